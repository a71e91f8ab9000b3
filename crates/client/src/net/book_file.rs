//! The address book as bytes.
//!
//! `CSADDR` and the format's version in two bytes; the chain's magic; the number of addresses in
//! four bytes, and each address: host, port, standing (0 new, 1 tried), source, services, last seen,
//! last success, failures; the number of bans in four bytes, and each ban: host, a byte that tells
//! whether a port follows, the port or zero, the end; the first eight bytes of the SHA-256 of all
//! before. Numbers are little-endian. A host is a byte (1: IPv4, 2: IPv6, 4: onion, as in BIP155; 0:
//! name), and 4, 16 or 32 bytes, or a byte of length and a name.
//!
//! Peers named by the user are not kept, since the user names them again; bans are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};

use super::book::{AddressBook, MAX_ADDRESSES, MAX_BANS, Standing};
use super::gossip::Heard;
use super::netgroup::Group;
use super::target::{Host, Target};

const NAME: &[u8; 6] = b"CSADDR";
const VERSION: u16 = 1;
const CHECKSUM: usize = 8;

/// Why bytes are no address book. None of it is worth more than to start with an empty one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookError {
    /// The bytes do not begin as an address book does.
    #[error("not an address book")]
    NotABook,
    /// The checksum is wrong: the bytes are damaged or cut.
    #[error("damaged: the checksum of the {bytes} bytes is wrong")]
    Checksum {
        /// How many bytes there are.
        bytes: usize,
    },
    /// Written by a later version.
    #[error("version {got}, known is {known}")]
    Version {
        /// The version in the bytes.
        got: u16,
        /// The version written here.
        known: u16,
    },
    /// A book of another chain.
    #[error("a book of the chain with magic {got}, expected {expected}")]
    Chain {
        /// The magic in the bytes.
        got: Magic,
        /// The magic of the chain asked for.
        expected: Magic,
    },
    /// The checksum is right and the contents are invalid.
    #[error("invalid contents at byte {offset}")]
    Malformed {
        /// Where.
        offset: usize,
    },
}

impl AddressBook {
    /// Encodes the book of the chain with this magic, at most 600 kB.
    pub fn encode(&self, magic: Magic) -> Vec<u8> {
        let mut out = NAME.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(magic.to_bytes());
        let kept = || self.entries.values().filter(|entry| entry.standing != Standing::Named);
        put_count(&mut out, kept().count());
        for entry in kept() {
            put_host(&mut out, &entry.target.host);
            out.extend(entry.target.port.to_le_bytes());
            out.push(u8::from(entry.standing == Standing::Tried));
            out.extend(entry.source.to_bytes());
            out.extend(entry.services.to_u64().to_le_bytes());
            out.extend(entry.seen.to_le_bytes());
            out.extend(entry.success.to_le_bytes());
            out.extend(entry.blamed.to_le_bytes());
        }
        put_count(&mut out, self.bans.until.len());
        for ((host, port), until) in &self.bans.until {
            put_host(&mut out, host);
            out.push(u8::from(port.is_some()));
            out.extend(port.unwrap_or(0).to_le_bytes());
            out.extend(until.to_le_bytes());
        }
        let sum = checksum(&out);
        out.extend(sum);
        out
    }

    /// Decodes what [`encode`](Self::encode) wrote for the chain with this magic.
    ///
    /// # Errors
    /// [`BookError`]: the caller starts with an empty book. Any damage is found.
    pub fn decode(bytes: &[u8], magic: Magic) -> Result<Self, BookError> {
        if bytes.get(..NAME.len()) != Some(NAME) {
            return Err(BookError::NotABook);
        }
        let split = bytes.len().checked_sub(CHECKSUM).and_then(|at| bytes.split_at_checked(at));
        let (body, sum) = split.ok_or(BookError::NotABook)?;
        if checksum(body) != *sum {
            return Err(BookError::Checksum { bytes: bytes.len() });
        }
        let mut from = Reader { bytes: body, at: NAME.len() };
        let version = u16::from_le_bytes(from.take()?);
        if version != VERSION {
            return Err(BookError::Version { got: version, known: VERSION });
        }
        let got = Magic::from_bytes(from.take()?);
        if got != magic {
            return Err(BookError::Chain { got, expected: magic });
        }
        let mut book = Self::new();
        for _ in 0..from.count(MAX_ADDRESSES)? {
            let start = from.at;
            let host = from.host()?;
            let port = u16::from_le_bytes(from.take()?);
            let standing = match from.take()? {
                [0] => Standing::New,
                [1] => Standing::Tried,
                _ => return Err(BookError::Malformed { offset: from.at - 1 }),
            };
            let source = Group::from_bytes(from.take()?);
            let services = ServiceFlags::from(from.number()?);
            let seen = from.number()?;
            let (success, blamed) = (from.number()?, u16::from_le_bytes(from.take()?));
            // Names, and what is not on the Internet, come from the user alone.
            let target = Target { host, port };
            if Group::of(&target.host).is_none() || book.holds(&target) {
                return Err(BookError::Malformed { offset: start });
            }
            let place = book.insert(Heard { target, services, seen }, standing, source);
            if let Some(entry) = book.entries.get_mut(&place) {
                (entry.success, entry.blamed) = (success, blamed);
            }
        }
        for _ in 0..from.count(MAX_BANS)? {
            let host = from.host()?;
            let [has_port] = from.take()?;
            let port = u16::from_le_bytes(from.take()?);
            let until = from.number()?;
            book.bans.insert((host, (has_port == 1).then_some(port)), until);
        }
        if from.at != body.len() {
            return Err(BookError::Malformed { offset: from.at });
        }
        Ok(book)
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let [a, b, c, d, e, f, g, h, ..] = sha256::Hash::hash(bytes).to_byte_array();
    [a, b, c, d, e, f, g, h]
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    // Both counts are bounded by a few thousand.
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_host(out: &mut Vec<u8>, host: &Host) {
    match host {
        Host::Ip(IpAddr::V4(ip)) => {
            out.push(1);
            out.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            out.push(2);
            out.extend(ip.octets());
        }
        Host::Onion(key) => {
            out.push(4);
            out.extend(key);
        }
        Host::Name(name) => {
            // A name of DNS has at most 253 bytes: a longer one cannot be reached.
            let name = name.as_bytes().get(..name.len().min(255)).unwrap_or_default();
            out.push(0);
            out.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.extend(name);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn slice(&mut self, length: usize) -> Result<&[u8], BookError> {
        let slice = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let slice = slice.ok_or(BookError::Malformed { offset: self.at })?;
        self.at += length;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BookError> {
        let offset = self.at;
        self.slice(N)?.try_into().map_err(|_| BookError::Malformed { offset })
    }

    fn number(&mut self) -> Result<u64, BookError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn count(&mut self, limit: usize) -> Result<u32, BookError> {
        let offset = self.at;
        let count = u32::from_le_bytes(self.take()?);
        if usize::try_from(count).is_ok_and(|count| count <= limit) {
            Ok(count)
        } else {
            Err(BookError::Malformed { offset })
        }
    }

    fn host(&mut self) -> Result<Host, BookError> {
        let offset = self.at;
        Ok(match self.take()? {
            [1] => Host::Ip(Ipv4Addr::from(self.take::<4>()?).into()),
            [2] => Host::Ip(Ipv6Addr::from(self.take::<16>()?).into()),
            [4] => Host::Onion(self.take()?),
            [0] => {
                let [length] = self.take()?;
                let name = str::from_utf8(self.slice(length.into())?);
                Host::Name(name.map_err(|_| BookError::Malformed { offset })?.to_owned())
            }
            _ => return Err(BookError::Malformed { offset }),
        })
    }
}

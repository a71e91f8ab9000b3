//! File format of the address book.
//!
//! All numbers are little-endian. The parts of a file, in order:
//!
//! - The name `CSADDR`, the version of the format (2 bytes), and the magic of the chain (4 bytes).
//! - The number of addresses (4 bytes), then each address: host, port (2), table (1; 0 is new, 1 is
//!   tried, 2 is tried and an anchor), source (6), services (8), last seen (8), last success (8), failures (2).
//! - The number of bans (4 bytes), then each ban: host, 1 if the ban covers one port or else 0 (1),
//!   the port or 0 (2), end of the ban (8).
//! - A checksum: the first 8 bytes of the SHA-256 of all preceding bytes.
//!
//! A host is a type byte (1: IPv4, 2: IPv6, 4: onion, as in BIP155; 0: host name), followed by an
//! address of 4, 16 or 32 bytes. For a host name, the type byte is followed by one byte with the
//! length, and the name. Times are Unix times in seconds.
//!
//! Version 1, which is still read, has no anchors.
//!
//! Peers named by the user are not stored, because the user names them again in the next run. Bans
//! of named peers are stored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};

use super::book::{AddressBook, MAX_ADDRESSES, MAX_ANCHORS, MAX_BANS, Standing};
use super::gossip::Heard;
use super::netgroup::Group;
use super::target::{Host, Target};

const NAME: &[u8; 6] = b"CSADDR";
const VERSION: u16 = 2;
const CHECKSUM: usize = 8;

/// Reason why bytes cannot be decoded as an address book. The caller then starts with an empty
/// book.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookError {
    /// The bytes do not begin with the name of the format, or are shorter than a checksum.
    #[error("not an address book")]
    NotABook,
    /// The checksum is wrong: the bytes are damaged or cut.
    #[error("damaged: the checksum of the {bytes} bytes is wrong")]
    Checksum {
        /// Number of bytes that were given.
        bytes: usize,
    },
    /// The file has a version of the format that this program does not know.
    #[error("address book of version {got}, the newest known version is {known}")]
    Version {
        /// The version in the file.
        got: u16,
        /// The version that this program writes. It reads this version and all earlier ones.
        known: u16,
    },
    /// The book belongs to another chain.
    #[error("address book of magic {got}, expected {expected}")]
    Chain {
        /// The magic in the file.
        got: Magic,
        /// The magic of the expected chain.
        expected: Magic,
    },
    /// The checksum is right, but the contents are invalid.
    #[error("invalid address book: malformed at byte {offset}")]
    Malformed {
        /// Offset of the malformed field in bytes.
        offset: usize,
    },
}

impl AddressBook {
    /// Encodes the book for the chain with this magic. The result has at most 600 kB.
    pub fn encode(&self, magic: Magic) -> Vec<u8> {
        let mut out = NAME.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(magic.to_bytes());
        let kept = || self.entries.values().filter(|entry| entry.standing != Standing::Named);
        put_count(&mut out, kept().count());
        for entry in kept() {
            put_host(&mut out, &entry.target.host);
            out.extend(entry.target.port.to_le_bytes());
            out.push(match entry.standing {
                Standing::Tried if entry.is_anchor => 2,
                Standing::Tried => 1,
                Standing::New | Standing::Named => 0,
            });
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

    /// Decodes a book that [`encode`](Self::encode) wrote for the chain with this magic.
    ///
    /// # Errors
    /// Returns a [`BookError`] if the bytes are damaged or cut, or if they belong to a different
    /// chain or version. The checksum finds all accidental damage.
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
        if !(1..=VERSION).contains(&version) {
            return Err(BookError::Version { got: version, known: VERSION });
        }
        let got = Magic::from_bytes(from.take()?);
        if got != magic {
            return Err(BookError::Chain { got, expected: magic });
        }
        let mut book = Self::new();
        let mut anchors = 0;
        for _ in 0..from.count(MAX_ADDRESSES)? {
            let start = from.at;
            let host = from.host()?;
            let port = u16::from_le_bytes(from.take()?);
            let (standing, is_anchor) = match from.take()? {
                [0] => (Standing::New, false),
                [1] => (Standing::Tried, false),
                [2] if version > 1 && anchors < MAX_ANCHORS => (Standing::Tried, true),
                _ => return Err(BookError::Malformed { offset: from.at - 1 }),
            };
            anchors += usize::from(is_anchor);
            let source = Group::from_bytes(from.take()?);
            let services = ServiceFlags::from(from.number()?);
            let seen = from.number()?;
            let (success, blamed) = (from.number()?, u16::from_le_bytes(from.take()?));
            // Only the user adds host names and addresses that are not routable, and named peers
            // are not stored. A second copy of an address would break the index of the book.
            let target = Target { host, port };
            if Group::of(&target.host).is_none() || book.holds(&target) {
                return Err(BookError::Malformed { offset: start });
            }
            let place = book.insert(Heard { target, services, seen }, standing, source);
            if let Some(entry) = book.entries.get_mut(&place) {
                (entry.success, entry.blamed, entry.is_anchor) = (success, blamed, is_anchor);
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
    // `MAX_ADDRESSES` and `MAX_BANS` bound the counts far below 2^32.
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
            // The length is stored in one byte. A DNS name has at most 253 bytes, so a name that is
            // cut here could not be resolved anyway.
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
        // The book never holds more entries than `limit`, so it never writes a larger count.
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

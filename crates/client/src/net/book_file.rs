//! File format of the address book.
//!
//! ```text
//! "CSAB" | version 1 | length u32 | checksum 4 | body:
//!     magic of the chain 4
//!     addresses u32, for each: host | port u16
//!         | table u8 (0 new, 1 tried, 2 tried and an anchor) | source 6 | services u64
//!         | last seen u64 | last success u64 | failures u16
//!     bans u32, for each: host | 1 if the ban covers one port or else 0, u8 | the port or 0, u16
//!         | end of the ban u64
//! host: kind u8 (1 IPv4, 2 IPv6, 4 onion, as in BIP155; 0 host name) | 4, 16 or 32 bytes, or a text
//! ```
//! The encoding is that of the other files of a client: numbers are little-endian, a compact size
//! precedes a text, and the checksum is the first 4 bytes of the double SHA-256 of the body. Times
//! are Unix times in seconds.
//!
//! Peers named by the user are not stored, because the user names them again in the next run. Bans
//! of named peers are stored.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use chainsieve::bitcoin::consensus::encode::{
    CheckedData, Decodable, Encodable, deserialize_partial, serialize,
};
use chainsieve::bitcoin::p2p::{Magic, ServiceFlags};

use super::book::{AddressBook, MAX_ADDRESSES, MAX_ANCHORS, MAX_BANS, Standing};
use super::gossip::Heard;
use super::netgroup::Group;
use super::target::{Host, Target};

const NAME: [u8; 4] = *b"CSAB";
const VERSION: u8 = 1;

/// Reason why bytes cannot be decoded as an address book. The caller then starts with an empty
/// book.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BookError {
    /// The bytes do not begin with the name of the format.
    #[error("not an address book")]
    NotABook,
    /// The checksum is wrong: the bytes are damaged or cut.
    #[error("damaged: the checksum of the {bytes} bytes is wrong")]
    Checksum {
        /// Number of bytes that were given.
        bytes: usize,
    },
    /// The file has a version of the format that this program does not know.
    #[error("address book of version {got}, the only known version is {VERSION}")]
    Version {
        /// The version in the file.
        got: u8,
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
    #[error("invalid address book: malformed at byte {offset} of its body")]
    Malformed {
        /// Offset of the malformed field in the body, in bytes.
        offset: usize,
    },
}

impl AddressBook {
    /// Encodes the book for the chain with this magic. The result has at most 600 kB.
    pub fn encode(&self, magic: Magic) -> Vec<u8> {
        let mut body = magic.to_bytes().to_vec();
        let kept = || self.entries.values().filter(|entry| entry.standing != Standing::Named);
        put_count(&mut body, kept().count());
        for entry in kept() {
            put_host(&mut body, &entry.target.host);
            let table: u8 = match entry.standing {
                Standing::Tried if entry.is_anchor => 2,
                Standing::Tried => 1,
                Standing::New | Standing::Named => 0,
            };
            let services = entry.services.to_u64();
            put(&mut body, &(entry.target.port, table, entry.source.to_bytes(), services));
            put(&mut body, &(entry.seen, entry.success, entry.blamed));
        }
        put_count(&mut body, self.bans.until.len());
        for ((host, port), until) in &self.bans.until {
            put_host(&mut body, host);
            put(&mut body, &(port.is_some(), port.unwrap_or(0), *until));
        }
        let [a, b, c, d] = NAME;
        let mut file = vec![a, b, c, d, VERSION];
        file.extend(serialize(&CheckedData::new(body)));
        file
    }

    /// Decodes a book that [`encode`](Self::encode) wrote for the chain with this magic.
    ///
    /// # Errors
    /// Returns a [`BookError`] if the bytes are damaged or cut, or if they belong to a different
    /// chain or version. The checksum finds all accidental damage.
    pub fn decode(bytes: &[u8], magic: Magic) -> Result<Self, BookError> {
        let rest = bytes.strip_prefix(&NAME).ok_or(BookError::NotABook)?;
        let (version, rest) = rest.split_first().ok_or(BookError::NotABook)?;
        if *version != VERSION {
            return Err(BookError::Version { got: *version });
        }
        let sealed: Option<(CheckedData, usize)> = deserialize_partial(rest).ok();
        let (body, _) = sealed
            .filter(|(_, used)| *used == rest.len())
            .ok_or(BookError::Checksum { bytes: bytes.len() })?;
        let mut from = Reader { body: body.data(), at: 0 };
        let got = Magic::from_bytes(from.take()?);
        if got != magic {
            return Err(BookError::Chain { got, expected: magic });
        }
        let mut book = Self::new();
        let mut anchors = 0;
        for _ in 0..from.count(MAX_ADDRESSES)? {
            let start = from.at;
            let host = from.host()?;
            let port = from.take()?;
            let (standing, is_anchor) = match from.take()? {
                0u8 => (Standing::New, false),
                1 => (Standing::Tried, false),
                2 if anchors < MAX_ANCHORS => (Standing::Tried, true),
                _ => return Err(BookError::Malformed { offset: from.at - 1 }),
            };
            anchors += usize::from(is_anchor);
            let source = Group::from_bytes(from.take()?);
            let services = ServiceFlags::from(from.take::<u64>()?);
            let (seen, success, blamed) = from.take()?;
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
            let (has_port, port, until): (bool, _, _) = from.take()?;
            book.bans.insert((host, has_port.then_some(port)), until);
        }
        if from.at != body.data().len() {
            return Err(BookError::Malformed { offset: from.at });
        }
        Ok(book)
    }
}

fn put(out: &mut Vec<u8>, value: &impl Encodable) {
    out.extend(serialize(value));
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    // `MAX_ADDRESSES` and `MAX_BANS` bound the counts far below 2^32.
    put(out, &u32::try_from(count).unwrap_or(u32::MAX));
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
            out.push(0);
            put(out, name);
        }
    }
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<T: Decodable>(&mut self) -> Result<T, BookError> {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let taken = deserialize_partial(rest);
        let (value, used) = taken.map_err(|_| BookError::Malformed { offset: self.at })?;
        self.at += used;
        Ok(value)
    }

    fn count(&mut self, limit: usize) -> Result<u32, BookError> {
        let offset = self.at;
        let count = self.take()?;
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
            1u8 => Host::Ip(Ipv4Addr::from(self.take::<[u8; 4]>()?).into()),
            2 => Host::Ip(Ipv6Addr::from(self.take::<[u8; 16]>()?).into()),
            4 => Host::Onion(self.take()?),
            0 => Host::Name(self.take()?),
            _ => return Err(BookError::Malformed { offset }),
        })
    }
}

//! The bytes of filters: one format for all kinds.
//!
//! Little-endian throughout.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | `CHSIEVEF` |
//! | 8–9 | version: 1 |
//! | 10 | [`Kind`] |
//! | 11 | hash function: 1 SipHash-1-3, 2 XXH3, 3 XXH64, 4 murmur3, 5 FNV-1a |
//! | 12–15 | zero |
//! | 16–31 | key or seed of the function, of 16, 8 or 4 bytes, then zeros |
//! | 32–39 | keys inserted |
//! | 40–63 | three parameters of the kind |
//! | 64– | the body: words of 64 bits, as many as the parameters say |
//! | last 8 | XXH3 with seed 0 of everything before |
//!
//! The body begins at a cache line of the file, so that a filter can be asked where it is mapped
//! (the `…Ref` types). Everything is checked before anything is allocated: the parameters must
//! fit the length, exactly.

use alloc::vec::Vec;
use core::ops::Range;

use super::hashing::{HashFunction, KeyHasher};
use super::kind::Kind;
use super::words::{NoMemory, Words};

const MAGIC: [u8; 8] = *b"CHSIEVEF";
const VERSION: u16 = 1;
pub(crate) const HEADER_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 8;

impl Kind {
    /// The kind of encoded bytes, by their first 64; nothing else of them is checked.
    ///
    /// # Errors
    /// If that is not the beginning of a filter in this format.
    pub fn of(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Header::read(bytes)?.kind)
    }
}

/// Filters that have bytes of their own in the format above.
pub trait Portable: Sized {
    /// The bytes.
    ///
    /// # Errors
    /// If the hasher's key was drawn at random and was not
    /// [exposed](KeyHasher::with_key_exposed).
    fn encode(&self) -> Result<Vec<u8>, EncodeError>;

    /// The filter of such bytes.
    ///
    /// # Errors
    /// If they are anything else, whole.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Why a filter is not encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The bytes would hold a key that was drawn to be secret.
    #[error("the filter's random hash key would be written: give an explicit key, or expose it")]
    SecretKey,
}

/// Why bytes are not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than there must be.
    #[error("{found} bytes, at least {needed} needed")]
    Truncated {
        /// Bytes there are.
        found: u64,
        /// Bytes there must be.
        needed: u64,
    },
    /// Bytes behind the end.
    #[error("{found} bytes, {expected} expected")]
    TooLong {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// The first eight bytes are others.
    #[error("not a filter: the first bytes are not CHSIEVEF")]
    Magic,
    /// A version this library can't read.
    #[error("version {0} of the format, 1 is known")]
    Version(u16),
    /// A kind this library doesn't have.
    #[error("kind {0} of filter is unknown")]
    Kind(u8),
    /// A filter of another kind than the one asked for.
    #[error("a {found} filter, not {expected}")]
    OtherKind {
        /// What it is.
        found: &'static str,
        /// What was asked for.
        expected: &'static str,
    },
    /// A hash function this library doesn't have.
    #[error("hash function {0} is unknown")]
    HashFunction(u8),
    /// Bytes that must be zero are not.
    #[error("bytes that must be zero are not: {0}")]
    NotZero(&'static str),
    /// A parameter that no filter of the kind has.
    #[error("{what} is {value}: {limit}")]
    Parameter {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it has to be.
        limit: &'static str,
    },
    /// Some byte was changed.
    #[error("the checksum does not fit the bytes")]
    Checksum,
    /// The body can't be asked in place: this host is big-endian, or the bytes don't begin at a
    /// multiple of eight in memory. `decode` copies.
    #[error("the bytes can't be read in place here: decode copies them")]
    NotInPlace,
    /// There is no memory for a copy.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

pub(crate) const fn parameter(what: &'static str, value: u64, limit: &'static str) -> DecodeError {
    DecodeError::Parameter { what, value, limit }
}

/// The first 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) hasher: KeyHasher,
    /// Keys inserted.
    pub(crate) len: u64,
    /// What the kind makes of them; zero where it makes nothing.
    pub(crate) params: [u64; 3],
}

impl Header {
    /// Header, body and checksum. The words of the body are those of `body`, one slice after
    /// another.
    pub(crate) fn encode(&self, body: &[&[u64]]) -> Result<Vec<u8>, EncodeError> {
        if self.hasher.is_secret() {
            return Err(EncodeError::SecretKey);
        }
        let words: usize = body.iter().map(|words| words.len()).sum();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + words * 8 + CHECKSUM_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        let (function, key) = match self.hasher.function() {
            HashFunction::SipHash13 { key } => (1, key),
            HashFunction::Xxh3 { seed } => (2, [seed, 0]),
            HashFunction::Xxh64 { seed } => (3, [seed, 0]),
            HashFunction::Murmur3 { seed } => (4, [u64::from(seed), 0]),
            HashFunction::Fnv1a => (5, [0, 0]),
        };
        bytes.extend([self.kind as u8, function, 0, 0, 0, 0]);
        let rest = [key[0], key[1], self.len, self.params[0], self.params[1], self.params[2]];
        bytes.extend(rest.iter().flat_map(|word| word.to_le_bytes()));
        for words in body {
            #[cfg(target_endian = "little")]
            bytes.extend_from_slice(bytemuck::cast_slice(words));
            #[cfg(not(target_endian = "little"))]
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend(checksum(&bytes));
        Ok(bytes)
    }

    /// The header alone.
    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (found, needed) = (bytes.len() as u64, (HEADER_BYTES + CHECKSUM_BYTES) as u64);
        let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(DecodeError::Truncated { found, needed });
        };
        let words: [u64; 8] = core::array::from_fn(|at| {
            let word = header.as_chunks::<8>().0.get(at).copied().unwrap_or_default();
            u64::from_le_bytes(word)
        });
        let [magic, tags, k0, k1, len, params @ ..] = words;
        if magic.to_le_bytes() != MAGIC {
            return Err(DecodeError::Magic);
        }
        let [v0, v1, kind, function, zeros @ ..] = tags.to_le_bytes();
        match u16::from_le_bytes([v0, v1]) {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        if zeros != [0; 4] {
            return Err(DecodeError::NotZero("12 to 15"));
        }
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or(DecodeError::Kind(kind))?;
        let (function, unused) = match function {
            1 => (HashFunction::SipHash13 { key: [k0, k1] }, 0),
            2 => (HashFunction::Xxh3 { seed: k0 }, k1),
            3 => (HashFunction::Xxh64 { seed: k0 }, k1),
            4 => {
                let seed =
                    u32::try_from(k0).map_err(|_| DecodeError::NotZero("behind the seed"))?;
                (HashFunction::Murmur3 { seed }, k1)
            }
            5 => (HashFunction::Fnv1a, k0 | k1),
            other => return Err(DecodeError::HashFunction(other)),
        };
        if unused != 0 {
            return Err(DecodeError::NotZero("behind the seed"));
        }
        Ok(Self { kind, hasher: KeyHasher::new(function), len, params })
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxhash_rust::xxh3::xxh3_64(bytes).to_le_bytes()
}

/// A header, and a body whose checksum fits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) header: Header,
    body: &'a [u8],
}

impl<'a> Opened<'a> {
    /// Reads the header, asks it by `words_of` how many words the body must have, compares that
    /// with the length, then the checksum.
    ///
    /// `words_of` sees parameters that nobody has checked.
    pub(crate) fn read(
        bytes: &'a [u8],
        kind: Kind,
        words_of: impl FnOnce(&Header) -> Result<u64, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let header = Header::read(bytes)?;
        if header.kind != kind {
            let (found, expected) = (header.kind.name(), kind.name());
            return Err(DecodeError::OtherKind { found, expected });
        }
        let words = words_of(&header)?;
        let around = (HEADER_BYTES + CHECKSUM_BYTES) as u64;
        let expected = words.checked_mul(8).and_then(|body| body.checked_add(around));
        let (found, expected) = (bytes.len() as u64, expected.unwrap_or(u64::MAX));
        if found < expected {
            return Err(DecodeError::Truncated { found, needed: expected });
        }
        if found > expected {
            return Err(DecodeError::TooLong { found, expected });
        }
        let truncated = DecodeError::Truncated { found, needed: expected };
        let split = bytes.split_last_chunk::<CHECKSUM_BYTES>();
        let (summed, stored) = split.ok_or(truncated.clone())?;
        if checksum(summed) != *stored {
            return Err(DecodeError::Checksum);
        }
        let body = summed.get(HEADER_BYTES..).ok_or(truncated)?;
        Ok(Self { header, body })
    }

    /// The words of the body, where they are.
    pub(crate) fn words_in_place(&self) -> Result<&'a [u64], DecodeError> {
        if cfg!(target_endian = "big") {
            return Err(DecodeError::NotInPlace);
        }
        bytemuck::try_cast_slice(self.body).map_err(|_| DecodeError::NotInPlace)
    }

    /// The bytes of the body.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.body
    }

    /// The words of the body, copied.
    pub(crate) fn words(&self) -> Result<Words, DecodeError> {
        Ok(Words::from_le_bytes(self.body)?)
    }

    /// How many words the body has: as many as `words_of` said.
    pub(crate) const fn num_words(&self) -> usize {
        self.body.len() / 8
    }

    /// Some of the words of the body, copied. Of a range beyond its end there are none.
    pub(crate) fn some_words(&self, range: Range<usize>) -> Result<Words, DecodeError> {
        let (from, to) = (range.start.saturating_mul(8), range.end.saturating_mul(8));
        Ok(Words::from_le_bytes(self.body.get(from..to).unwrap_or_default())?)
    }
}

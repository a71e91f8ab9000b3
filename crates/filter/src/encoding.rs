//! The kinds of filters, and the byte format of encoded filters. All kinds share one format.
//!
//! All integers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | `CHSIEVEF` |
//! | 8–9 | version: 1 |
//! | 10 | [`Kind`] |
//! | 11 | hash function: 1 SipHash-1-3, 2 XXH3, 3 XXH64, 4 murmur3, 5 FNV-1a |
//! | 12–15 | zero |
//! | 16–31 | key or seed of the hash function; zero where it has none |
//! | 32–39 | keys inserted |
//! | 40–63 | three parameters, whose meaning depends on the kind |
//! | 64– | the body: 64-bit words; their number follows from the parameters |
//! | last 8 | XXH3 checksum, with seed 0, of all bytes before it |
//!
//! The header has 64 bytes, so the body of a filter that starts a file begins at a cache line. A
//! filter in a mapped file can therefore be queried in place, without a copy (the `…Ref` types).
//! The decoder checks everything before it allocates memory: the length of the bytes must be
//! exactly the length that the parameters require.

use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use chainsieve_lanes::named;

use super::hashing::{HashFunction, KeyHasher};
use super::sizing::{self, BuildError, Cost, checked};
use super::words::{NoMemory, Words};

/// First eight bytes of every encoded filter.
const MAGIC: [u8; 8] = *b"CHSIEVEF";
/// Version of the format that this library reads and writes.
const VERSION: u16 = 1;
/// Size of the header in bytes: a cache line, so that the body is aligned to a cache line too.
pub(crate) const HEADER_BYTES: usize = 64;
/// Size of the XXH3 checksum after the body.
const CHECKSUM_BYTES: usize = 8;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $cost:expr;)+) => {
        /// A kind of filter, as encoded filters name it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)+
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$kind),+];

            const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name of the kind. The command line accepts this name, except for kinds
            /// that the command line can't build.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Computes what a filter of this kind costs for `n` keys at a false-positive rate of
            /// `fpr`. Zero keys cost as much as one key.
            ///
            /// # Errors
            /// Returns an error if the rate is not between 0 and 1, if this kind can't reach the
            /// rate, or if the filter would be larger than any memory.
            ///
            /// # Examples
            /// ```
            /// use chainsieve_filter::Kind;
            /// let cost = Kind::Cuckoo16.cost(100_000_000, 1e-3)?;
            /// assert!(cost.bits_per_key < 17.1 && cost.fpr < 1.2e-4 && cost.removes);
            /// assert!(Kind::Fuse8.cost(100_000_000, 1e-3).is_err());
            /// # Ok::<(), chainsieve_filter::sizing::BuildError>(())
            /// ```
            pub fn cost(self, n: u64, fpr: f64) -> Result<Cost, BuildError> {
                let (n, fpr) = (n.max(1), checked(fpr)?);
                match self {
                    $(Self::$kind => ($cost)(n, fpr),)+
                }
            }
        }
    };
}

kinds! {
    /// Classic Bloom filter over 64-bit hashes.
    Bloom = 1, "bloom", sizing::bloom;
    /// Classic Bloom filter over 128-bit hashes.
    WideBloom = 2, "wide-bloom", sizing::bloom;
    /// Partitioned Bloom filter.
    Partitioned = 3, "partitioned", sizing::partitioned;
    /// Split-block Bloom filter with blocks of 512 bits.
    SplitBlock512 = 4, "split-block-512", |n, fpr| sizing::split_block(n, fpr, 64);
    /// Split-block Bloom filter with blocks of 256 bits, as in Parquet files.
    SplitBlock256 = 5, "split-block-256", |n, fpr| sizing::split_block(n, fpr, 32);
    /// Counting Bloom filter with 4-bit counters in blocks of 128 counters.
    Counting = 6, "counting", sizing::counting;
    /// Scalable Bloom filter. The cost of this kind assumes that the filter grew by doubling from a
    /// hundredth of the keys.
    Scalable = 7, "scalable", sizing::scalable;
    /// Rolling Bloom filter, which remembers only the most recent keys.
    Rolling = 8, "rolling", sizing::rolling;
    /// Classic Bloom filter, entropy-coded for transmission.
    Compressed = 9, "compressed", sizing::compressed;
    /// Cuckoo filter with 8-bit fingerprints.
    Cuckoo8 = 10, "cuckoo8", |n, fpr| sizing::cuckoo(n, fpr, 8);
    /// Cuckoo filter with 12-bit fingerprints.
    Cuckoo12 = 11, "cuckoo12", |n, fpr| sizing::cuckoo(n, fpr, 12);
    /// Cuckoo filter with 16-bit fingerprints.
    Cuckoo16 = 12, "cuckoo16", |n, fpr| sizing::cuckoo(n, fpr, 16);
    /// Binary fuse filter with 8-bit fingerprints.
    Fuse8 = 13, "fuse8", |n, fpr| sizing::fuse(n, fpr, 8, "fuse8");
    /// Binary fuse filter with 16-bit fingerprints.
    Fuse16 = 14, "fuse16", |n, fpr| sizing::fuse(n, fpr, 16, "fuse16");
    /// Ribbon filter.
    Ribbon = 15, "ribbon", sizing::ribbon;
    /// Count-min sketch with 32-bit counters. The cost of this kind is that of a sketch used as a
    /// filter: the false-positive rate is the probability that a key that was never counted has an
    /// estimate above zero.
    CountMin = 16, "count-min", sizing::count_min;
}

named!(Kind, "a kind of filter");

impl Kind {
    /// Reads the kind of an encoded filter from its 64-byte header. The body and the checksum are
    /// not checked.
    ///
    /// # Errors
    /// Returns an error if `bytes` does not begin with a valid header of this format.
    pub fn of(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Header::read(bytes)?.kind)
    }
}

/// Filters that can be encoded to bytes and decoded again, in the format of the module `encoding`.
///
/// Decoding an encoded filter gives an equal filter.
pub trait Portable: Sized {
    /// Encodes the filter: header, body and checksum.
    ///
    /// # Errors
    /// Returns [`EncodeError::SecretKey`] if the hasher's key was drawn at random and was not
    /// [exposed](KeyHasher::with_key_exposed).
    fn encode(&self) -> Result<Vec<u8>, EncodeError>;

    /// Decodes a filter of this kind. The bytes are copied.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not exactly one valid encoded filter of this kind, or if
    /// there is no memory for the copy.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// The reason why a filter can't be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The encoded bytes would contain a hash key that was drawn at random to stay secret.
    #[error("the filter's random hash key would be written: give an explicit key, or expose it")]
    SecretKey,
    /// The filter's hasher is not that of Parquet, so Parquet's readers would not find the keys.
    #[error("the filter's keys are not hashed by XXH64 with seed 0")]
    ParquetHasher,
    /// Not all of Parquet's readers accept this number of blocks. Of the common readers, only arrow-rs
    /// accepts such a number.
    #[error("the filter has {0} blocks, but Parquet's readers need a power of two up to 4194304")]
    ParquetBlocks(u64),
    /// The format of `xor_singleheader` has room for exactly one shard, but the filter has more.
    #[error(
        "the filter has {num_shards} shards, but the format has exactly 1: build it in one shard"
    )]
    Shards {
        /// Number of shards of the filter.
        num_shards: usize,
    },
}

/// The reason why bytes can't be decoded as a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There are fewer bytes than the filter needs.
    #[error("{found} bytes, but at least {needed} are needed")]
    Truncated {
        /// Number of bytes found.
        found: u64,
        /// Number of bytes needed.
        needed: u64,
    },
    /// There are trailing bytes after the filter.
    #[error("{found} bytes, {expected} expected")]
    TooLong {
        /// Number of bytes found.
        found: u64,
        /// Number of bytes of the filter.
        expected: u64,
    },
    /// The first eight bytes are not the magic bytes `CHSIEVEF`.
    #[error("not a filter: the first bytes are not CHSIEVEF")]
    Magic,
    /// The format has a version that this library can't read.
    #[error("the format has version {0}, but only version 1 is supported")]
    Version(u16),
    /// This library knows no kind of filter with this number.
    #[error("filter kind {0} is unknown")]
    Kind(u8),
    /// The bytes encode a filter of a different kind from the kind that was to be decoded.
    #[error("the bytes encode a {found} filter, not a {expected} filter")]
    OtherKind {
        /// Name of the kind that the bytes encode.
        found: &'static str,
        /// Name of the kind that was to be decoded.
        expected: &'static str,
    },
    /// This library knows no hash function with this number.
    #[error("hash function {0} is unknown")]
    HashFunction(u8),
    /// Bytes that the format requires to be zero are not zero.
    #[error("{0} must be zero")]
    NotZero(&'static str),
    /// A parameter has a value that no filter of this kind can have.
    #[error("{what} is {value}, but must be {limit}")]
    Parameter {
        /// Name of the parameter.
        what: &'static str,
        /// Value of the parameter in the bytes.
        value: u64,
        /// The values that are allowed.
        limit: &'static str,
    },
    /// The checksum differs from that of the bytes: the bytes were changed after encoding.
    #[error("the checksum does not match the bytes")]
    Checksum,
    /// The body can't be queried in place, because this host is big-endian or because the bytes are
    /// not aligned to eight bytes in memory. `decode` copies the bytes and works in both cases.
    #[error("the bytes are not aligned to 8 bytes, or this host is big-endian: use decode")]
    NotInPlace,
    /// There is no memory for a copy of the body.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl DecodeError {
    /// Returns an error unless there are as many bytes as expected.
    pub(crate) const fn unless_long(found: u64, expected: u64) -> Result<(), Self> {
        if found < expected {
            Err(Self::Truncated { found, needed: expected })
        } else if found > expected {
            Err(Self::TooLong { found, expected })
        } else {
            Ok(())
        }
    }
}

pub(crate) const fn parameter(what: &'static str, value: u64, limit: &'static str) -> DecodeError {
    DecodeError::Parameter { what, value, limit }
}

/// Returns an error if a parameter is wrong.
pub(crate) const fn refuse_if(
    is_wrong: bool,
    what: &'static str,
    value: u64,
    limit: &'static str,
) -> Result<(), DecodeError> {
    if is_wrong { Err(parameter(what, value, limit)) } else { Ok(()) }
}

/// Returns an error unless a parameter is in a range, which `limit` states in words.
pub(crate) fn within(
    what: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
    limit: &'static str,
) -> Result<(), DecodeError> {
    refuse_if(!range.contains(&value), what, value, limit)
}

/// Returns an error if unused bytes have a value.
pub(crate) const fn refuse_nonzero(has_value: bool, what: &'static str) -> Result<(), DecodeError> {
    if has_value { Err(DecodeError::NotZero(what)) } else { Ok(()) }
}

/// The 64-byte header of an encoded filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) hasher: KeyHasher,
    /// Number of keys inserted.
    pub(crate) len: u64,
    /// The three parameters, whose meaning depends on the kind. A parameter that the kind does not
    /// use is zero.
    pub(crate) params: [u64; 3],
}

impl Header {
    /// Encodes the header, the body and the checksum. The body is the concatenation of the slices
    /// in `body`.
    pub(crate) fn encode(&self, body: &[&[u64]]) -> Result<Vec<u8>, EncodeError> {
        // Anyone who reads the key could search for keys that collide, so a secret key is never
        // written.
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

    /// Reads and checks the header. The body is not read.
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
        refuse_nonzero(zeros != [0; 4], "bytes 12 to 15")?;
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let kind = known.ok_or(DecodeError::Kind(kind))?;
        let (function, unused) = match function {
            1 => (HashFunction::SipHash13 { key: [k0, k1] }, 0),
            2 => (HashFunction::Xxh3 { seed: k0 }, k1),
            3 => (HashFunction::Xxh64 { seed: k0 }, k1),
            4 => {
                let seed =
                    u32::try_from(k0).map_err(|_| DecodeError::NotZero("bytes after the seed"))?;
                (HashFunction::Murmur3 { seed }, k1)
            }
            5 => (HashFunction::Fnv1a, k0 | k1),
            other => return Err(DecodeError::HashFunction(other)),
        };
        refuse_nonzero(unused != 0, "bytes after the seed")?;
        Ok(Self { kind, hasher: KeyHasher::new(function), len, params })
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    xxhash_rust::xxh3::xxh3_64(bytes).to_le_bytes()
}

/// The parts of an encoded filter after the length and the checksum were checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opened<'a> {
    pub(crate) header: Header,
    pub(crate) body: &'a [u8],
}

impl<'a> Opened<'a> {
    /// Reads the header, then checks the kind, the length and the checksum.
    ///
    /// `words_of` returns the number of words that a body with this header must have. The
    /// parameters of the header are still unchecked when `words_of` receives them.
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
        DecodeError::unless_long(found, expected)?;
        let truncated = DecodeError::Truncated { found, needed: expected };
        // The length was checked above, so neither split fails. Returning an error instead of
        // slicing keeps hostile bytes from causing a panic even if the check of the length were
        // wrong.
        let split = bytes.split_last_chunk::<CHECKSUM_BYTES>();
        let (summed, stored) = split.ok_or(truncated.clone())?;
        // The checksum is computed after the length was checked, so its cost is bounded by the
        // length that the header requires.
        if checksum(summed) != *stored {
            return Err(DecodeError::Checksum);
        }
        let body = summed.get(HEADER_BYTES..).ok_or(truncated)?;
        Ok(Self { header, body })
    }

    /// Returns the words of the body without copying them.
    pub(crate) fn words_in_place(&self) -> Result<&'a [u64], DecodeError> {
        if cfg!(target_endian = "big") {
            return Err(DecodeError::NotInPlace);
        }
        bytemuck::try_cast_slice(self.body).map_err(|_| DecodeError::NotInPlace)
    }

    /// Returns a copy of the words of the body.
    pub(crate) fn words(&self) -> Result<Words, DecodeError> {
        Ok(Words::from_le_bytes(self.body)?)
    }

    /// Returns the number of words of the body, which is the number that `words_of` returned.
    pub(crate) const fn num_words(&self) -> usize {
        self.body.len() / 8
    }

    /// Returns a copy of a range of the body's words. The copy is empty if the range does not lie
    /// inside the body.
    pub(crate) fn some_words(&self, range: Range<usize>) -> Result<Words, DecodeError> {
        let (from, to) = (range.start.saturating_mul(8), range.end.saturating_mul(8));
        Ok(Words::from_le_bytes(self.body.get(from..to).unwrap_or_default())?)
    }
}

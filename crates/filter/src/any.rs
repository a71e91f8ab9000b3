//! A decoded filter of any kind: [`AnyFilter`].
//!
//! [`AnyFilter`] is for programs that read filters without knowing their kind in advance: the
//! encoded bytes name the kind. A program that knows the kind should decode into the type of that
//! kind, which has more methods.

use alloc::vec::Vec;

use super::bloom::{BloomFilter, OpenedBloomFilter, PartitionedBloomFilter};
use super::count_min::{CountMin, UpdateRule};
use super::counting::CountingBloomFilter;
use super::cuckoo::{CuckooFilter, CuckooFilter8, CuckooFilter12, CuckooFilter16};
use super::encoding::{DecodeError, EncodeError, Kind, Portable};
use super::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, FuseFingerprint};
use super::hashing::{KeyHash, KeyHasher};
use super::membership::{Filter, Stats};
use super::ribbon::RibbonFilter;
use super::rolling::RollingBloomFilter;
use super::scalable::ScalableBloomFilter;
use super::split_block::{BlockShape, SplitBlockFilter, SplitBlockFilter256, SplitBlockFilter512};

/// Number of keys that are hashed before the filter is queried for them.
const BATCH: usize = 256;

/// The value of one parameter of a filter, for display.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Param {
    /// A count, or a number of bits.
    Number(u64),
    /// A rate or a fraction.
    Fraction(f64),
    /// The name of a chosen option.
    Word(&'static str),
}

macro_rules! param_from {
    ($($value:ident: $type:ty => $param:expr;)+) => {$(
        impl From<$type> for Param {
            fn from($value: $type) -> Self {
                $param
            }
        }
    )+};
}

param_from! {
    number: u64 => Self::Number(number);
    number: u32 => Self::Number(number.into());
    number: usize => Self::Number(number as u64);
    fraction: f64 => Self::Fraction(fraction);
    update: UpdateRule => Self::Word(update.name());
}

/// Names and values of the parameters that a filter was created with, except the hasher. Each
/// parameter has the name of the method that returns its value.
trait Described {
    fn params(&self) -> Vec<(&'static str, Param)>;
}

/// Defines the enum over all kinds and the operations that every kind has.
macro_rules! any_filter {
    ($($kind:ident($filter:ty)),+ $(,)?) => {
        /// A filter of any [`Kind`].
        ///
        /// ```
        /// use chainsieve_filter::split_block::SplitBlockFilter512;
        /// use chainsieve_filter::{AnyFilter, Insert, KeyHasher, Kind, Portable};
        ///
        /// let hasher = KeyHasher::siphash_1_3([1, 2]);
        /// let mut filter = SplitBlockFilter512::with_fpr(1_000, 0.001, hasher)?;
        /// filter.insert(b"key")?;
        /// let bytes = filter.encode()?;
        ///
        /// let filter = AnyFilter::decode(&bytes)?;
        /// assert_eq!(filter.kind(), Kind::SplitBlock512);
        /// assert!(filter.contains(b"key"));
        /// # Ok::<(), Box<dyn core::error::Error>>(())
        /// ```
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum AnyFilter {
            $(
                #[doc = concat!("[`Kind::", stringify!($kind), "`]")]
                $kind($filter),
            )+
        }

        impl AnyFilter {
            /// Returns the kind of the filter.
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                }
            }

            /// Decodes a filter of any kind. The kind is read from the bytes.
            ///
            /// # Errors
            /// Returns an error if `bytes` is not exactly one valid encoded filter.
            pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
                Ok(match Kind::of(bytes)? {
                    $(Kind::$kind => Self::$kind(Portable::decode(bytes)?),)+
                })
            }

            /// Encodes the filter in the format of [`Portable`].
            ///
            /// # Errors
            /// Returns the same errors as [`Portable::encode`].
            pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
                match self {
                    $(Self::$kind(filter) => filter.encode(),)+
                }
            }

            /// Returns the hasher of the keys.
            pub fn hasher(&self) -> &KeyHasher {
                match self {
                    $(Self::$kind(filter) => filter.hasher(),)+
                }
            }

            /// Returns `true` if the key may be in the set. `false` means that the key is certainly
            /// not in the set.
            pub fn contains(&self, key: &[u8]) -> bool {
                match self {
                    $(Self::$kind(filter) => filter.contains(key),)+
                }
            }

            /// Queries many keys, with the same answers as [`contains`](Self::contains) for each,
            /// but faster.
            ///
            /// The answer for `keys[i]` is written to `may_contain[i]`.
            ///
            /// # Panics
            /// Panics if the slices differ in length.
            pub fn contains_batch(&self, keys: &[&[u8]], may_contain: &mut [bool]) {
                assert_eq!(keys.len(), may_contain.len(), "an answer for every key");
                match self {
                    $(Self::$kind(filter) => contains_batch(filter, keys, may_contain),)+
                }
            }

            /// Returns the number of keys, the size, the fill and the expected false-positive rate.
            pub fn stats(&self) -> Stats {
                match self {
                    $(Self::$kind(filter) => filter.stats(),)+
                }
            }

            /// Returns the names and values of the parameters with which the filter was created,
            /// except the hasher.
            pub fn params(&self) -> Vec<(&'static str, Param)> {
                match self {
                    $(Self::$kind(filter) => filter.params(),)+
                }
            }
        }

        $(
            impl From<$filter> for AnyFilter {
                fn from(filter: $filter) -> Self {
                    Self::$kind(filter)
                }
            }
        )+
    };
}

any_filter! {
    Bloom(BloomFilter),
    WideBloom(BloomFilter<u128>),
    Partitioned(PartitionedBloomFilter),
    SplitBlock512(SplitBlockFilter512),
    SplitBlock256(SplitBlockFilter256),
    Counting(CountingBloomFilter),
    Scalable(ScalableBloomFilter),
    Rolling(RollingBloomFilter),
    Compressed(OpenedBloomFilter),
    Cuckoo8(CuckooFilter8),
    Cuckoo12(CuckooFilter12),
    Cuckoo16(CuckooFilter16),
    Fuse8(BinaryFuse8),
    Fuse16(BinaryFuse16),
    Ribbon(RibbonFilter),
    CountMin(CountMin),
}

macro_rules! described {
    ($([$($generic:tt)*] $filter:ty: $($param:ident),+;)+) => {$(
        impl<$($generic)*> Described for $filter {
            fn params(&self) -> Vec<(&'static str, Param)> {
                Vec::from([$((stringify!($param), self.$param().into())),+])
            }
        }
    )+};
}

described! {
    [H: KeyHash] BloomFilter<H>: num_bits, hash_funcs;
    [] PartitionedBloomFilter: slice_bits, hash_funcs;
    [B: BlockShape] SplitBlockFilter<B>: num_blocks;
    [] CountingBloomFilter: num_blocks, hash_funcs, saturated;
    [] ScalableBloomFilter: fpr, num_stages, capacity;
    [] RollingBloomFilter: capacity, num_places, hash_funcs;
    [const BITS: u32] CuckooFilter<BITS>: num_buckets, capacity;
    [F: FuseFingerprint] BinaryFuse<F>: num_shards;
    [] RibbonFilter: columns, num_shards;
    [] CountMin: width, depth, update;
}

impl Described for OpenedBloomFilter {
    fn params(&self) -> Vec<(&'static str, Param)> {
        let mut params = self.opened().params();
        params.push(("coded_bits", self.coded().coded_bits().into()));
        params
    }
}

fn contains_batch<F: Filter>(filter: &F, keys: &[&[u8]], may_contain: &mut [bool]) {
    let mut hashes = Vec::with_capacity(keys.len().min(BATCH));
    for (keys, may_contain) in keys.chunks(BATCH).zip(may_contain.chunks_mut(BATCH)) {
        hashes.clear();
        filter.hasher().hash_each(keys.iter().copied(), &mut hashes);
        filter.contains_batch(&hashes, may_contain);
    }
}

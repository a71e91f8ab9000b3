//! The Bloom filter of BIP37, its size, and its number of hash functions.
//!
//! Implementations differ in these numbers, and filters of different sizes have different bits.
//! This module computes what Bitcoin Core's `CBloomFilter` constructor computes: it divides
//! integers to get the number of hash functions, and it keeps Core's order of floating-point
//! operations. bitcoinj and btcd divide in floating point, and for about 29 % of small filters
//! their number of hash functions differs from Core's.

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PubkeyHash, PublicKey, Script};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::bit_array::BitArray;
use super::probe::{self, FilterView, Params};
use super::{MAX_BLOOM_FILTER_SIZE, MAX_HASH_FUNCS};
use crate::btc::names::names;
use crate::btc::script::pushes;

/// Rule for what a node inserts into a filter when an output matches: the low two bits of the
/// filter's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateMode {
    /// Insert nothing (flags 0, and 3 as Core masks it).
    #[default]
    None,
    /// Insert the outpoint of every output that matches (flags 1).
    ///
    /// Wallets with segwit outputs need this mode, because the inputs that spend such outputs carry
    /// no data that a filter tests.
    All,
    /// Insert the outpoint only if the output pays to a bare public key or to a bare multisig
    /// script (flags 2).
    P2PubkeyOnly,
}

names! { UpdateMode, "an update mode": None = "none", All = "all", P2PubkeyOnly = "p2pubkey_only" }

impl UpdateMode {
    /// Decodes a flags byte as Core does: `flags & 3`, where 3 means that nothing is inserted.
    pub fn from_flags(flags: u8) -> Self {
        match flags & 3 {
            1 => Self::All,
            2 => Self::P2PubkeyOnly,
            _ => Self::None,
        }
    }

    /// Returns the flags byte of `filterload` for this mode.
    pub fn to_flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::All => 1,
            Self::P2PubkeyOnly => 2,
        }
    }
}

/// A Bloom filter that a wallet loads on a node (BIP37), bit for bit equal to Bitcoin Core's.
///
/// If [`contains`](Self::contains) returns `false`, the element was never inserted; `true` means
/// "may contain". As in Core, three kinds of filter match everything: a filter without data, a
/// filter with 0 hash functions, and a filter with every bit set.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::{BloomFilter, UpdateMode};
/// // The first test case of Core's `bloom_tests.cpp`: three elements at 1 %.
/// let mut filter = BloomFilter::new(3, 0.01, 0, UpdateMode::All)?;
/// for hash in [
///     "99108ad8ed9bb6274d3980bab5a85c048f0950c8",
///     "b5a2c786d9ef4658287ced5914b37a1b4aa32eee",
///     "b9300670b4c5366e95b2699e8b18bc75e5f729c5",
/// ] {
///     filter.insert(&hex::decode(hash).unwrap());
/// }
/// assert_eq!(hex::encode(filter.encode()), "03614e9b050000000000000001");
/// # Ok::<(), chainsieve::btc::bip37::FilterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct BloomFilter {
    bits: BitArray,
    hash_funcs: u32,
    tweak: u32,
    flags: u8,
    backend: Backend,
}

impl BloomFilter {
    /// Returns an empty filter for `elements` elements at the false-positive rate `fpr`, sized as
    /// Core does ([`core_sizing`]).
    ///
    /// `tweak` is a random number that makes the filter's bits differ from those of another
    /// wallet's filter. A wallet should keep one tweak permanently. An observer of two filters of
    /// one wallet with different tweaks can intersect them, and most false positives disappear.
    ///
    /// # Errors
    /// Returns an error if `elements` is 0, if `fpr` is not in (0, 1), or if the resulting filter
    /// would match everything.
    pub fn new(
        elements: u32,
        fpr: f64,
        tweak: u32,
        update: UpdateMode,
    ) -> Result<Self, FilterError> {
        if fpr.is_nan() || fpr <= 0.0 || fpr >= 1.0 {
            return Err(FilterError::RateOutOfRange(fpr));
        }
        let filter = Self::with_core_sizing(elements, fpr, tweak, update.to_flags())?;
        if filter.bits.is_empty() {
            return Err(FilterError::ZeroBytes { elements, fpr });
        }
        if filter.hash_funcs == 0 {
            return Err(FilterError::ZeroHashFuncs { elements, fpr });
        }
        Ok(filter)
    }

    /// Returns the filter that Core's constructor creates, even with 0 bytes or 0 hash functions,
    /// in which case the filter matches everything.
    ///
    /// # Errors
    /// Returns an error if `elements` is 0, or if `fpr` is not in (0, 1]: Core's arithmetic is
    /// undefined for such values. Core's arithmetic is also undefined for a filter of more than
    /// 2^32 bits; this function then returns a filter of the largest size.
    pub fn with_core_sizing(
        elements: u32,
        fpr: f64,
        tweak: u32,
        flags: u8,
    ) -> Result<Self, FilterError> {
        if elements == 0 {
            return Err(FilterError::NoElements);
        }
        if fpr.is_nan() || fpr <= 0.0 || fpr > 1.0 {
            return Err(FilterError::RateOutOfRange(fpr));
        }
        let (bytes, hash_funcs) = core_sizing(elements, fpr);
        let bits = BitArray::from_bytes(alloc::vec![0; bytes as usize]).expect("36,000 at most");
        Ok(Self::from_bits(bits, hash_funcs, tweak, flags))
    }

    pub(super) fn from_bits(bits: BitArray, hash_funcs: u32, tweak: u32, flags: u8) -> Self {
        Self { bits, hash_funcs, tweak, flags, backend: Backend::best() }
    }

    /// Returns the bytes of the filter; bit `i` is `1 << (i & 7)` of byte `i >> 3`.
    pub fn data(&self) -> &[u8] {
        self.bits.as_bytes()
    }

    /// Returns the size of the filter in bits.
    pub fn num_bits(&self) -> u64 {
        self.bits.num_bits()
    }

    /// Returns the number of hash functions.
    pub fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// Returns the random number that is added to each hash function's seed.
    pub fn tweak(&self) -> u32 {
        self.tweak
    }

    /// Returns the flags byte as received, including reserved bits.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns the update mode that the flags select as in Core: `flags & 3`, where 3 selects
    /// [`UpdateMode::None`]. The other six bits have no effect; [`flags`](Self::flags) returns them.
    pub fn update_mode(&self) -> UpdateMode {
        UpdateMode::from_flags(self.flags)
    }

    /// Returns `true` if a node accepts the filter: at most 36,000 bytes and 50 hash functions.
    pub fn is_within_size_constraints(&self) -> bool {
        self.data().len() <= MAX_BLOOM_FILTER_SIZE && self.hash_funcs <= MAX_HASH_FUNCS
    }

    /// Returns `true` if the filter matches everything: it has no data or no hash functions, or
    /// every bit is set.
    pub fn matches_everything(&self) -> bool {
        self.hash_funcs == 0 || self.bits.count_ones() == self.num_bits()
    }

    /// Inserts an element of any length. A filter without data stays unchanged, as in Core.
    ///
    /// # Cost
    /// One pass over the element for each group of hash functions that run in parallel.
    pub fn insert(&mut self, element: &[u8]) {
        if !self.bits.is_empty() {
            let params = self.params();
            probe::insert(self.backend, &mut self.bits.padded, params, element);
        }
    }

    /// Returns `true` if the filter may contain `element`; `false` is certain.
    ///
    /// # Cost
    /// Computes hash functions up to the first function whose bit is clear.
    #[inline]
    pub fn contains(&self, element: &[u8]) -> bool {
        self.first_clear(element).is_none()
    }

    /// Returns the first clear bit that `element` selects, or `None` if the filter may contain
    /// `element`.
    #[inline]
    pub(super) fn first_clear(&self, element: &[u8]) -> Option<u32> {
        if self.bits.is_empty() {
            return None;
        }
        probe::first_clear(self.backend, self.view(), element)
    }

    pub(super) fn params(&self) -> Params {
        Params { reduction: self.bits.reduction, hash_funcs: self.hash_funcs, tweak: self.tweak }
    }

    /// Returns the view of the filter that the probing code takes. The filter must have data.
    pub(super) fn view(&self) -> FilterView<'_> {
        FilterView { padded: &self.bits.padded, params: self.params() }
    }

    /// Returns the set of CPU instructions with which this filter is probed.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Probes with `backend` instead of the best backend of this CPU. Results do not change.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Inserts an outpoint, so that transactions that spend it match.
    pub fn insert_outpoint(&mut self, outpoint: &OutPoint) {
        self.insert(&outpoint_bytes(outpoint));
    }

    /// Returns `true` if the filter may contain `outpoint`.
    pub fn contains_outpoint(&self, outpoint: &OutPoint) -> bool {
        self.contains(&outpoint_bytes(outpoint))
    }

    /// Inserts two elements: a serialised public key, and the key's hash.
    ///
    /// The key matches where a script reveals it (P2PK, multisig, an input that spends P2PKH). The
    /// hash matches P2PKH and P2WPKH outputs. A filter with both elements lets an observer tell the
    /// wallet's own keys from false positives. Insert only the hash
    /// ([`insert_key_hash`](Self::insert_key_hash)) to avoid that.
    pub fn insert_key(&mut self, key: &PublicKey) {
        self.insert(&key.to_bytes());
        self.insert_key_hash(&key.pubkey_hash());
    }

    /// Inserts the hash of a public key, so that P2PKH and P2WPKH outputs to the key match.
    pub fn insert_key_hash(&mut self, hash: &PubkeyHash) {
        self.insert(hash.as_byte_array());
    }

    /// Returns `true` if the filter may contain the serialised key or the key's hash.
    pub fn contains_key(&self, key: &PublicKey) -> bool {
        self.contains(&key.to_bytes()) || self.contains(key.pubkey_hash().as_byte_array())
    }

    /// Inserts every non-empty data push of an output script and returns the number of pushes.
    ///
    /// Outputs with this script match afterwards. Any other script that pushes one of the same
    /// elements matches too. BIP37 cannot watch a script that pushes nothing (0 is returned).
    pub fn insert_script(&mut self, script: &Script) -> usize {
        pushes(script.as_bytes()).map(|data| self.insert(data)).count()
    }

    /// Returns `true` if an output with `script` matches: the filter may contain one of the
    /// script's data pushes, or the filter has no data.
    pub fn contains_script(&self, script: &Script) -> bool {
        self.bits.is_empty() || pushes(script.as_bytes()).any(|data| self.contains(data))
    }

    /// Returns the number of bits that are set.
    pub fn bits_set(&self) -> u64 {
        self.bits.count_ones()
    }

    /// Returns the fraction of bits that are set, from 0 to 1. A filter without data returns 1,
    /// because it matches everything.
    #[expect(clippy::cast_precision_loss, reason = "both below 2^32")]
    pub fn fill(&self) -> f64 {
        if self.bits.is_empty() { 1.0 } else { self.bits_set() as f64 / self.num_bits() as f64 }
    }

    /// Estimates the number of inserted elements from the fill: `-m/k ln(1 - fill)` for `m` bits
    /// and `k` hash functions. The estimate is infinite for a filter that matches everything.
    #[expect(clippy::cast_precision_loss, reason = "below 2^32")]
    pub fn estimated_elements(&self) -> f64 {
        if self.matches_everything() {
            return f64::INFINITY;
        }
        // Subtracting from 0 gives 0 for an empty filter; a negation would give -0.
        0.0 - self.num_bits() as f64 / f64::from(self.hash_funcs) * ln(1.0 - self.fill())
    }

    /// Returns the fraction of never-inserted elements for which [`contains`](Self::contains)
    /// returns `true`: the fill to the power of the number of hash functions.
    pub fn false_positive_rate(&self) -> f64 {
        powf(self.fill(), f64::from(self.hash_funcs))
    }

    /// Adds all elements of `other` to this filter.
    ///
    /// # Errors
    /// Returns an error if size, number of hash functions, tweak or flags differ. If one of these
    /// differs, the same bit belongs to different elements in the two filters.
    pub fn union(&mut self, other: &Self) -> Result<(), FilterError> {
        if self.data().len() != other.data().len() {
            return Err(FilterError::Sizes { own: self.data().len(), other: other.data().len() });
        }
        if self.hash_funcs != other.hash_funcs {
            return Err(FilterError::HashFuncs { own: self.hash_funcs, other: other.hash_funcs });
        }
        if self.tweak != other.tweak {
            return Err(FilterError::Tweaks { own: self.tweak, other: other.tweak });
        }
        if self.flags != other.flags {
            return Err(FilterError::Flags { own: self.flags, other: other.flags });
        }
        for (byte, other) in self.bits.as_bytes_mut().iter_mut().zip(other.data()) {
            *byte |= other;
        }
        Ok(())
    }
}

/// Compares data and parameters. The backend is not compared.
impl PartialEq for BloomFilter {
    fn eq(&self, other: &Self) -> bool {
        let key = |filter: &Self| (filter.hash_funcs, filter.tweak, filter.flags);
        key(self) == key(other) && self.bits == other.bits
    }
}

impl Eq for BloomFilter {}

/// Serialises an outpoint as filters test it: the txid in wire order, then the output index,
/// little-endian.
pub(super) fn outpoint_bytes(outpoint: &OutPoint) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[..32].copy_from_slice(outpoint.txid.as_byte_array());
    bytes[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
    bytes
}

/// The square of ln 2, as Core writes it.
const LN2SQUARED: f64 = 0.480_453_013_918_201_424_667_102_526_326_664_971_730_552_951_594_545_586_866_864_133_623_665_382_259_834;
/// ln 2, as Core writes it.
const LN2: f64 = core::f64::consts::LN_2;

/// Returns the size in bytes and the number of hash functions that Bitcoin Core chooses for
/// `elements` elements at the false-positive rate `fpr`.
///
/// The results are at most 36,000 bytes and 50 hash functions. Either result may be 0. A filter
/// with 0 bytes or 0 hash functions matches everything, so
/// [`BloomFilter::new`] rejects such results.
///
/// Unlike Core's arithmetic, the function is defined for all arguments. If `elements` is 0 or `fpr`
/// is not a number, the result is `(0, 0)`. If `fpr` is below 0 or above 1, the size is 0 bytes. If
/// `fpr` is 0 or the filter would need more than 2^32 bits, the size is the largest possible size.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::core_sizing;
/// assert_eq!(core_sizing(1_000, 1e-4), (2_396, 13));
/// // 4 * 8 / 7 is 4 in integers, which gives two hash functions; bitcoinj uses three.
/// assert_eq!(core_sizing(7, 0.1), (4, 2));
/// ```
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the same casts as in Core; Rust saturates where C++ has no defined result"
)]
pub fn core_sizing(elements: u32, fpr: f64) -> (u32, u32) {
    if elements == 0 || fpr.is_nan() {
        return (0, 0);
    }
    let bits = (-1.0 / LN2SQUARED * f64::from(elements) * ln(fpr)) as u32;
    let bytes = bits.min(MAX_BLOOM_FILTER_SIZE as u32 * 8) / 8;
    let hash_funcs = (f64::from(bytes * 8 / elements) * LN2) as u32;
    (bytes, hash_funcs.min(MAX_HASH_FUNCS))
}

/// Reason why a filter cannot be built, or why two filters cannot be merged.
///
/// For a merge, the error names the parameter that differs, with this filter's value first.
#[derive(Debug, Clone, Copy, Error)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "error", rename_all = "snake_case")
)]
pub enum FilterError {
    /// The number of elements is 0.
    #[error("a filter for 0 elements has no size: at least 1 element is needed")]
    NoElements,
    /// The false-positive rate is not in (0, 1). For
    /// [`BloomFilter::with_core_sizing`], 1 is allowed.
    #[error("false-positive rate {0} is not between 0 and 1")]
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::fpr"))]
    RateOutOfRange(f64),
    /// The elements are so few, and the rate so high, that the filter has 0 bytes and matches
    /// everything.
    #[error("{elements} elements at rate {fpr} need 0 bytes: such a filter matches everything")]
    ZeroBytes {
        /// The requested number of elements.
        elements: u32,
        /// The requested false-positive rate.
        fpr: f64,
    },
    /// The filter has 0 hash functions and matches everything. The reason is that there are more
    /// than 144,000 elements at the size limit, or that the rate is above about 0.38.
    #[error(
        "{elements} elements at rate {fpr} allow 0 hash functions: such a filter matches everything \
        (the limit is {MAX_BLOOM_FILTER_SIZE} bytes)"
    )]
    ZeroHashFuncs {
        /// The requested number of elements.
        elements: u32,
        /// The requested false-positive rate.
        fpr: f64,
    },
    /// The filters to merge have different sizes in bytes.
    #[error("filters of {own} and {other} bytes cannot be merged")]
    Sizes {
        /// Size of this filter.
        own: usize,
        /// Size of the other filter.
        other: usize,
    },
    /// The filters to merge have different numbers of hash functions.
    #[error("filters with {own} and {other} hash functions cannot be merged")]
    HashFuncs {
        /// Number of hash functions of this filter.
        own: u32,
        /// Number of hash functions of the other filter.
        other: u32,
    },
    /// The filters to merge have different tweaks.
    #[error("filters with tweaks {own} and {other} cannot be merged")]
    Tweaks {
        /// Tweak of this filter.
        own: u32,
        /// Tweak of the other filter.
        other: u32,
    },
    /// The filters to merge have different flags.
    #[error("filters with flags {own} and {other} cannot be merged")]
    Flags {
        /// Flags of this filter.
        own: u8,
        /// Flags of the other filter.
        other: u8,
    },
}

/// Compares rates by their bits, so that NaN equals NaN.
impl PartialEq for FilterError {
    fn eq(&self, other: &Self) -> bool {
        let key = |error: &Self| match *error {
            Self::NoElements => (0, 0, 0),
            Self::RateOutOfRange(fpr) => (1, 0, fpr.to_bits()),
            Self::ZeroBytes { elements, fpr } => (2, elements.into(), fpr.to_bits()),
            Self::ZeroHashFuncs { elements, fpr } => (3, elements.into(), fpr.to_bits()),
            Self::Sizes { own, other } => (4, own as u64, other as u64),
            Self::HashFuncs { own, other } => (5, own.into(), other.into()),
            Self::Tweaks { own, other } => (6, own.into(), other.into()),
            Self::Flags { own, other } => (7, own.into(), other.into()),
        };
        key(self) == key(other)
    }
}

impl Eq for FilterError {}

/// Returns the natural logarithm, from `libm` if there is no standard library.
fn ln(x: f64) -> f64 {
    #[cfg(feature = "std")]
    return x.ln();
    #[cfg(not(feature = "std"))]
    return libm::log(x);
}

/// Returns `base` to the power of `exponent`, from `libm` if there is no standard library.
pub(super) fn powf(base: f64, exponent: f64) -> f64 {
    #[cfg(feature = "std")]
    return base.powf(exponent);
    #[cfg(not(feature = "std"))]
    return libm::pow(base, exponent);
}

#[cfg(test)]
mod tests {
    use super::{FilterError, core_sizing};

    #[test]
    fn total_where_core_is_undefined() {
        assert_eq!(core_sizing(0, 0.01), (0, 0));
        assert_eq!(core_sizing(10, f64::NAN), (0, 0));
        assert_eq!(core_sizing(10, 1.0), (0, 0));
        assert_eq!(core_sizing(10, f64::INFINITY), (0, 0));
        assert_eq!(core_sizing(10, 0.0), (36_000, 50));
        assert_eq!(core_sizing(u32::MAX, 1e-300), (36_000, 0));
        assert_eq!(core_sizing(400_000_000, 1e-6), (36_000, 0));
    }

    #[test]
    fn errors_equal_themselves() {
        let error = FilterError::RateOutOfRange(f64::NAN);
        assert_eq!(error, error.clone());
        assert_ne!(error, FilterError::RateOutOfRange(0.0));
    }
}

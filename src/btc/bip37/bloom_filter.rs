//! The Bloom filter of BIP37.

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, PubkeyHash, PublicKey, Script};
use chainsieve_lanes::simd::Backend;
use thiserror::Error;

use super::bit_array::BitArray;
use super::probe::{self, FilterView, Params};
use super::sizing::{SizingError, core_sizing, ln, powf};
use crate::btc::script::pushes;

/// What a filter inserts when an output matches: the low two bits of its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateMode {
    /// Nothing (0, and 3 as Core masks it).
    #[default]
    None,
    /// The outpoint of every output that matches (1). What wallets with segwit outputs need:
    /// their spends carry no data that a filter sees.
    All,
    /// The outpoint only where the output pays to a bare public key or to multisig (2).
    P2PubkeyOnly,
}

impl UpdateMode {
    /// Reads flags as Core does: `flags & 3`, where 3 updates nothing.
    pub fn from_flags(flags: u8) -> Self {
        match flags & 3 {
            1 => Self::All,
            2 => Self::P2PubkeyOnly,
            _ => Self::None,
        }
    }

    /// The flags byte of `filterload`.
    pub fn to_flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::All => 1,
            Self::P2PubkeyOnly => 2,
        }
    }
}

/// A filter that a wallet loads on a node (BIP37), bit for bit that of Bitcoin Core.
///
/// A `false` of [`contains`](Self::contains) is certain, a `true` means "may contain". Three
/// filters match everything, as in Core: one without data, one with 0 hash functions, and one
/// with every bit set.
///
/// # Examples
/// ```
/// use chainsieve::btc::bip37::{BloomFilter, UpdateMode};
/// // From BIP37's reference tests: three elements at 1 %.
/// let mut filter = BloomFilter::new(3, 0.01, 0, UpdateMode::All)?;
/// for hash in [
///     "99108ad8ed9bb6274d3980bab5a85c048f0950c8",
///     "b5a2c786d9ef4658287ced5914b37a1b4aa32eee",
///     "b9300670b4c5366e95b2699e8b18bc75e5f729c5",
/// ] {
///     filter.insert(&hex::decode(hash).unwrap());
/// }
/// assert_eq!(hex::encode(filter.encode()), "03614e9b050000000000000001");
/// # Ok::<(), chainsieve::btc::bip37::SizingError>(())
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
    /// An empty filter for `elements` at the false-positive rate `fpr`, sized as Core does
    /// ([`core_sizing`]).
    ///
    /// `tweak` is a random number that makes the filter's bits differ from another wallet's.
    /// Keep one for good: two filters of one wallet with different tweaks, laid side by side,
    /// leave only what is in both.
    ///
    /// # Errors
    /// No elements, a rate outside (0, 1), or a size that would match everything.
    pub fn new(
        elements: u32,
        fpr: f64,
        tweak: u32,
        update: UpdateMode,
    ) -> Result<Self, SizingError> {
        if fpr.is_nan() || fpr <= 0.0 || fpr >= 1.0 {
            return Err(SizingError::RateOutOfRange(fpr));
        }
        let filter = Self::with_core_sizing(elements, fpr, tweak, update.to_flags())?;
        if filter.bits.is_empty() {
            return Err(SizingError::ZeroBytes { elements, fpr });
        }
        if filter.hash_funcs == 0 {
            return Err(SizingError::ZeroHashFuncs { elements, fpr });
        }
        Ok(filter)
    }

    /// The filter that Core's constructor gives, 0 bytes and 0 hash functions included; either
    /// matches everything.
    ///
    /// # Errors
    /// Where Core's arithmetic is undefined: no elements, or a rate that is not above 0 and at
    /// most 1. More bits than 2^32, undefined too, give the largest size.
    pub fn with_core_sizing(
        elements: u32,
        fpr: f64,
        tweak: u32,
        flags: u8,
    ) -> Result<Self, SizingError> {
        if elements == 0 {
            return Err(SizingError::NoElements);
        }
        if fpr.is_nan() || fpr <= 0.0 || fpr > 1.0 {
            return Err(SizingError::RateOutOfRange(fpr));
        }
        let (bytes, hash_funcs) = core_sizing(elements, fpr);
        let bits = BitArray::from_bytes(alloc::vec![0; bytes as usize]).expect("36,000 at most");
        Ok(Self::from_bits(bits, hash_funcs, tweak, flags))
    }

    pub(super) fn from_bits(bits: BitArray, hash_funcs: u32, tweak: u32, flags: u8) -> Self {
        Self { bits, hash_funcs, tweak, flags, backend: Backend::best() }
    }

    /// The bytes of the filter; bit `i` is `1 << (i & 7)` of byte `i >> 3`.
    pub fn data(&self) -> &[u8] {
        self.bits.as_bytes()
    }

    /// The number of bits.
    pub fn num_bits(&self) -> u64 {
        self.bits.num_bits()
    }

    /// The number of hash functions.
    pub fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// The random number added to each hash function's seed.
    pub fn tweak(&self) -> u32 {
        self.tweak
    }

    /// The flags byte as received, reserved bits included.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// What the flags ask for.
    pub fn update_mode(&self) -> UpdateMode {
        UpdateMode::from_flags(self.flags)
    }

    /// Whether a node accepts the filter: at most 36,000 bytes and 50 hash functions.
    pub fn is_within_size_constraints(&self) -> bool {
        self.data().len() <= super::MAX_BLOOM_FILTER_SIZE
            && self.hash_funcs <= super::MAX_HASH_FUNCS
    }

    /// Whether every test answers yes: no data, no hash functions, or every bit set.
    pub fn matches_everything(&self) -> bool {
        self.hash_funcs == 0 || self.bits.count_ones() == self.num_bits()
    }

    /// Inserts an element of any length. Does nothing to a filter without data, as in Core.
    ///
    /// # Cost
    /// One pass over the element and `hash_funcs` hash states.
    pub fn insert(&mut self, element: &[u8]) {
        if !self.bits.is_empty() {
            let params = self.params();
            probe::element::insert(self.backend, self.bits.padded_mut(), params, element);
        }
    }

    /// Whether the filter may contain `element`. A `false` is certain.
    ///
    /// # Cost
    /// One pass over the element, and hash functions up to the first clear bit.
    #[inline]
    pub fn contains(&self, element: &[u8]) -> bool {
        self.first_clear(element).is_none()
    }

    /// The first bit that `element` selects and that is clear.
    #[inline]
    pub(super) fn first_clear(&self, element: &[u8]) -> Option<u32> {
        if self.bits.is_empty() {
            return None;
        }
        probe::element::first_clear(self.backend, self.view(), element)
    }

    pub(super) fn params(&self) -> Params {
        Params { reduction: self.bits.reduction(), hash_funcs: self.hash_funcs, tweak: self.tweak }
    }

    /// The filter as probing takes it; not for a filter without data.
    pub(super) fn view(&self) -> FilterView<'_> {
        FilterView { padded: self.bits.padded(), params: self.params() }
    }

    /// The instructions that this filter is probed with.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Probes with `backend` instead of the best of this CPU. Answers don't change.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Inserts an outpoint: the transactions that spend it match.
    pub fn insert_outpoint(&mut self, outpoint: &OutPoint) {
        self.insert(&outpoint_bytes(outpoint));
    }

    /// Whether the filter may contain `outpoint`.
    pub fn contains_outpoint(&self, outpoint: &OutPoint) -> bool {
        self.contains(&outpoint_bytes(outpoint))
    }

    /// Inserts a public key as serialised and its hash: two elements.
    ///
    /// The key is found where a script reveals it (P2PK, multisig, the spend of P2PKH), the hash
    /// in P2PKH and P2WPKH outputs. Both together let an observer tell the wallet's own keys from
    /// false positives; [`insert_key_hash`](Self::insert_key_hash) alone does not.
    pub fn insert_key(&mut self, key: &PublicKey) {
        self.insert(&key.to_bytes());
        self.insert_key_hash(&key.pubkey_hash());
    }

    /// Inserts the hash of a public key: P2PKH and P2WPKH outputs to it match.
    pub fn insert_key_hash(&mut self, hash: &PubkeyHash) {
        self.insert(hash.as_byte_array());
    }

    /// Whether the filter may contain the serialised key or its hash.
    pub fn contains_key(&self, key: &PublicKey) -> bool {
        self.contains(&key.to_bytes()) || self.contains(key.pubkey_hash().as_byte_array())
    }

    /// Inserts every data push of an output script and returns how many there were.
    ///
    /// Outputs with this script then match, and so does any other script that pushes one of
    /// them. A script that pushes nothing (0 returned) cannot be watched with BIP37.
    pub fn insert_script(&mut self, script: &Script) -> usize {
        pushes(script.as_bytes()).map(|data| self.insert(data)).count()
    }

    /// Whether an output with `script` matches: any of its data pushes may be contained, or the
    /// filter has no data.
    pub fn contains_script(&self, script: &Script) -> bool {
        self.bits.is_empty() || pushes(script.as_bytes()).any(|data| self.contains(data))
    }

    /// The number of bits set.
    pub fn bits_set(&self) -> u64 {
        self.bits.count_ones()
    }

    /// The share of bits set, from 0 to 1; 1 for a filter without data, which matches everything.
    #[expect(clippy::cast_precision_loss, reason = "both below 2^32")]
    pub fn fill(&self) -> f64 {
        if self.bits.is_empty() { 1.0 } else { self.bits_set() as f64 / self.num_bits() as f64 }
    }

    /// How many elements were inserted, judged by the fill: `-m/k ln(1 - fill)` for `m` bits and
    /// `k` hash functions. Infinite for a filter that matches everything.
    #[expect(clippy::cast_precision_loss, reason = "below 2^32")]
    pub fn estimated_elements(&self) -> f64 {
        if self.matches_everything() {
            return f64::INFINITY;
        }
        // Without the 0, nothing inserted would be -0.
        0.0 - self.num_bits() as f64 / f64::from(self.hash_funcs) * ln(1.0 - self.fill())
    }

    /// The share of elements never inserted that [`contains`](Self::contains) says `true` to:
    /// fill to the power of the number of hash functions.
    pub fn false_positive_rate(&self) -> f64 {
        powf(self.fill(), f64::from(self.hash_funcs))
    }

    /// Adds what `other` contains.
    ///
    /// # Errors
    /// A parameter that differs: bits of one then mean nothing in the other.
    pub fn union(&mut self, other: &Self) -> Result<(), UnionError> {
        if self.data().len() != other.data().len() {
            return Err(UnionError::Size(self.data().len(), other.data().len()));
        }
        if self.hash_funcs != other.hash_funcs {
            return Err(UnionError::HashFuncs(self.hash_funcs, other.hash_funcs));
        }
        if self.tweak != other.tweak {
            return Err(UnionError::Tweak(self.tweak, other.tweak));
        }
        if self.flags != other.flags {
            return Err(UnionError::Flags(self.flags, other.flags));
        }
        for (byte, other) in self.bits.as_bytes_mut().iter_mut().zip(other.data()) {
            *byte |= other;
        }
        Ok(())
    }
}

/// Equal data and parameters, whatever the backend.
impl PartialEq for BloomFilter {
    fn eq(&self, other: &Self) -> bool {
        let key = |filter: &Self| (filter.hash_funcs, filter.tweak, filter.flags);
        key(self) == key(other) && self.bits == other.bits
    }
}

impl Eq for BloomFilter {}

/// An outpoint as filters take it: txid in wire order, then the index, little-endian.
pub(super) fn outpoint_bytes(outpoint: &OutPoint) -> [u8; 36] {
    let mut bytes = [0; 36];
    bytes[..32].copy_from_slice(outpoint.txid.as_byte_array());
    bytes[32..].copy_from_slice(&outpoint.vout.to_le_bytes());
    bytes
}

/// Why two filters have no union: the parameter that differs, this filter's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnionError {
    /// Sizes in bytes.
    #[error("filters of {0} and {1} bytes have no union")]
    Size(usize, usize),
    /// Numbers of hash functions.
    #[error("filters with {0} and {1} hash functions have no union")]
    HashFuncs(u32, u32),
    /// Tweaks.
    #[error("filters with tweaks {0} and {1} have no union")]
    Tweak(u32, u32),
    /// Flags.
    #[error("filters with flags {0} and {1} have no union")]
    Flags(u8, u8),
}

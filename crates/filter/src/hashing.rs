//! Hashes of keys: which function, with which key or seed, and how wide.
//!
//! Keys are bytes. A filter never sees more of a key than its hash, so a hash that two keys share
//! is a false positive no filter can avoid: with `n` keys about `n·2⁻⁶⁴` of all strangers for 64
//! bits. Filters of a rate near that take hashes of 128 ([`KeyHash`] for [`u128`]).
//!
//! Whoever chooses keys and knows the hash can choose keys that collide. [`KeyHasher::random`] is
//! for filters that change while strangers choose keys; the fast hashes are for keys that nobody
//! grinds. Seeds of xxh3 and murmur3 are no defence: there are collisions under every seed.

use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher as _;

/// A hash function over keys, with its key or seed.
///
/// Two filters can be merged, and a filter can be read elsewhere, only with equal hashers.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    function: HashFunction,
    is_secret: bool,
}

/// The functions, with what they are keyed or seeded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashFunction {
    /// SipHash-1-3 under a 128-bit key (Aumasson and Bernstein): the one for keys that strangers
    /// choose. About 7 ns for a script.
    SipHash13 {
        /// `k0` and `k1`.
        key: [u64; 2],
    },
    /// XXH3, 64 or 128 bits. About 2 ns for a script.
    Xxh3 {
        /// The seed.
        seed: u64,
    },
    /// XXH64, as Parquet's filters hash (with seed 0). 64 bits only.
    Xxh64 {
        /// The seed.
        seed: u64,
    },
    /// `MurmurHash3_x64_128`, as Guava's filters hash (with seed 0); as 64 bits its first half.
    Murmur3 {
        /// The seed.
        seed: u32,
    },
    /// FNV-1a of 64 bits, finished by murmur3's `fmix64`, because the high bits of FNV alone are
    /// poor. 64 bits only.
    Fnv1a,
}

impl KeyHasher {
    /// SipHash-1-3 under a key from the operating system, for a filter that stays in this
    /// process. Encoding such a filter is refused: [`with_key_exposed`](Self::with_key_exposed).
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[cfg(feature = "std")]
    pub fn random() -> Self {
        let word = || getrandom::u64().expect("random numbers of the operating system");
        let function = HashFunction::SipHash13 { key: [word(), word()] };
        Self { function, is_secret: true }
    }

    /// SipHash-1-3 under a given key.
    pub const fn siphash_1_3(key: [u64; 2]) -> Self {
        Self::new(HashFunction::SipHash13 { key })
    }

    /// XXH3 with a given seed.
    pub const fn xxh3(seed: u64) -> Self {
        Self::new(HashFunction::Xxh3 { seed })
    }

    /// Any of the functions.
    pub const fn new(function: HashFunction) -> Self {
        Self { function, is_secret: false }
    }

    /// The function, with its key.
    pub const fn function(&self) -> HashFunction {
        self.function
    }

    /// Whether the key was drawn by [`random`](Self::random) and may not leave the process.
    pub const fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The same hasher, whose key may be written beside the filter: whoever reads the bytes can
    /// then look for keys that collide.
    #[must_use]
    pub const fn with_key_exposed(mut self) -> Self {
        self.is_secret = false;
        self
    }

    /// How many bits the function has: 64 or 128.
    pub const fn bits(&self) -> u32 {
        match self.function {
            HashFunction::Xxh64 { .. } | HashFunction::Fnv1a => 64,
            _ => 128,
        }
    }

    /// The name, as the command line has it.
    pub const fn name(&self) -> &'static str {
        match self.function {
            HashFunction::SipHash13 { .. } => "siphash13",
            HashFunction::Xxh3 { .. } => "xxh3",
            HashFunction::Xxh64 { .. } => "xxh64",
            HashFunction::Murmur3 { .. } => "murmur3",
            HashFunction::Fnv1a => "fnv1a",
        }
    }

    /// The hash of a key, of 64 or 128 bits.
    #[inline]
    pub fn hash<H: KeyHash>(&self, key: &[u8]) -> H {
        H::of(self, key)
    }

    /// The hashes of many keys, behind those that `hashes` holds.
    pub fn hash_each<'k, H: KeyHash>(
        &self,
        keys: impl IntoIterator<Item = &'k [u8]>,
        hashes: &mut Vec<H>,
    ) {
        hashes.extend(keys.into_iter().map(|key| H::of(self, key)));
    }

    #[inline]
    fn hash_64(&self, key: &[u8]) -> u64 {
        match self.function {
            HashFunction::SipHash13 { key: [k0, k1] } => {
                siphasher::sip::SipHasher13::new_with_keys(k0, k1).hash(key)
            }
            HashFunction::Xxh3 { seed } => xxhash_rust::xxh3::xxh3_64_with_seed(key, seed),
            HashFunction::Xxh64 { seed } => xxhash_rust::xxh64::xxh64(key, seed),
            HashFunction::Murmur3 { seed } => mur3::murmurhash3_x64_128(key, seed).0,
            HashFunction::Fnv1a => {
                let mut hasher = fnv::FnvHasher::default();
                hasher.write(key);
                fmix64(hasher.finish())
            }
        }
    }

    #[inline]
    fn hash_128(&self, key: &[u8]) -> u128 {
        match self.function {
            HashFunction::SipHash13 { key: [k0, k1] } => {
                siphasher::sip128::SipHasher13::new_with_keys(k0, k1).hash(key).as_u128()
            }
            HashFunction::Xxh3 { seed } => xxhash_rust::xxh3::xxh3_128_with_seed(key, seed),
            HashFunction::Murmur3 { seed } => {
                let (low, high) = mur3::murmurhash3_x64_128(key, seed);
                u128::from(high) << 64 | u128::from(low)
            }
            // No more than 64 bits of information: filters that ask for 128 refuse these.
            HashFunction::Xxh64 { .. } | HashFunction::Fnv1a => u128::from(self.hash_64(key)),
        }
    }
}

/// The finalizer of `MurmurHash3_x64_128`: every bit of `x` reaches every bit of the result.
#[inline]
pub(crate) const fn fmix64(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Draw number `at` of a hash, below `places`: independent of the others, where multiples of a
/// second hash are not (Kirsch and Mitzenmacher's positions repeat whole patterns in small
/// filters).
///
/// These are the words of `SplitMix64` from the hash on, each scaled by its high bits.
#[inline]
pub(crate) const fn draw(hash: u64, at: u64, places: u64) -> u64 {
    let step = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (fmix64(hash.wrapping_add(step)) as u128 * places as u128 >> 64) as u64
}

impl PartialEq for KeyHasher {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for KeyHasher {}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_secret {
            return write!(f, "{} (secret key)", self.name());
        }
        self.function.fmt(f)
    }
}

/// The hash of a key: `u64`, or `u128` for filters of so low a rate that 64 bits would spoil it.
pub trait KeyHash: Copy + Eq + Ord + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// 64 or 128.
    const BITS: u32;

    /// The hash of a key.
    fn of(hasher: &KeyHasher, key: &[u8]) -> Self;

    /// The low 64 bits, and the high ones: zero if there are none.
    fn to_words(self) -> [u64; 2];
}

impl KeyHash for u64 {
    const BITS: u32 = 64;

    #[inline]
    fn of(hasher: &KeyHasher, key: &[u8]) -> Self {
        hasher.hash_64(key)
    }

    #[inline]
    fn to_words(self) -> [u64; 2] {
        [self, 0]
    }
}

impl KeyHash for u128 {
    const BITS: u32 = 128;

    #[inline]
    fn of(hasher: &KeyHasher, key: &[u8]) -> Self {
        hasher.hash_128(key)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "its low half")]
    fn to_words(self) -> [u64; 2] {
        [self as u64, (self >> 64) as u64]
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what keeps the trait to this module")]
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for u128 {}
}

//! Hashing of keys: hash functions, their keys or seeds, and the width of the hashes.
//!
//! Keys are byte strings. A filter sees only the hash of a key. If two keys have equal hashes, no
//! filter can distinguish them, and the second key is a false positive. With `n` keys in the set
//! and 64-bit hashes, about `n·2⁻⁶⁴` of all other keys are such false positives. Filters with a
//! rate near `n·2⁻⁶⁴` need 128-bit hashes ([`KeyHash`] for [`u128`]).
//!
//! An attacker who chooses keys and knows the hash function can choose keys that collide. Use
//! [`KeyHasher::random`] for filters that change while untrusted parties choose keys. Use the fast
//! hash functions only if no attacker searches for keys that collide. The seeds of XXH3 and murmur3
//! do not protect: there are keys that collide under every seed.

use alloc::vec::Vec;
use core::fmt;
use core::hash::Hasher as _;

/// A hash function for keys, with its key or seed.
///
/// Filters can be merged only if their hashers are equal. A program that reads a filter must use
/// the hasher that filled it.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    function: HashFunction,
    is_secret: bool,
}

/// The hash functions, each with its key or seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashFunction {
    /// SipHash-1-3 with a 128-bit key (Aumasson and Bernstein): the function for keys that
    /// untrusted parties choose. Hashing a script takes about 7 ns.
    SipHash13 {
        /// The two key words `k0` and `k1`.
        key: [u64; 2],
    },
    /// XXH3, 64 or 128 bits wide. Hashing a script takes about 2 ns.
    Xxh3 {
        /// The seed.
        seed: u64,
    },
    /// XXH64, only 64 bits wide. Parquet's filters use XXH64 with seed 0.
    Xxh64 {
        /// The seed.
        seed: u64,
    },
    /// `MurmurHash3_x64_128`, whose 64-bit hash is its first half. Guava's filters use it with seed
    /// 0.
    Murmur3 {
        /// The seed.
        seed: u32,
    },
    /// 64-bit FNV-1a, followed by murmur3's `fmix64`, because the high bits of FNV alone are badly
    /// distributed. The hash is only 64 bits wide.
    Fnv1a,
}

impl HashFunction {
    /// Returns the name of the function, as the command line accepts it. The name contains neither
    /// key nor seed.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SipHash13 { .. } => "siphash13",
            Self::Xxh3 { .. } => "xxh3",
            Self::Xxh64 { .. } => "xxh64",
            Self::Murmur3 { .. } => "murmur3",
            Self::Fnv1a => "fnv1a",
        }
    }
}

/// Writes the [name](HashFunction::name).
impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl KeyHasher {
    /// Creates a SipHash-1-3 hasher with a random key from the operating system, for a filter that
    /// stays in this process.
    ///
    /// A filter with this hasher can't be encoded, unless the key is
    /// [exposed](Self::with_key_exposed).
    ///
    /// # Panics
    /// Panics if the operating system provides no random numbers.
    #[cfg(feature = "std")]
    pub fn random() -> Self {
        let word = || getrandom::u64().expect("random numbers of the operating system");
        let function = HashFunction::SipHash13 { key: [word(), word()] };
        Self { function, is_secret: true }
    }

    /// Creates a SipHash-1-3 hasher with the given key.
    pub const fn siphash_1_3(key: [u64; 2]) -> Self {
        Self::new(HashFunction::SipHash13 { key })
    }

    /// Creates an XXH3 hasher with the given seed.
    pub const fn xxh3(seed: u64) -> Self {
        Self::new(HashFunction::Xxh3 { seed })
    }

    /// Creates a hasher with any of the hash functions.
    pub const fn new(function: HashFunction) -> Self {
        Self { function, is_secret: false }
    }

    /// Returns the hash function, with its key or seed.
    pub const fn function(&self) -> HashFunction {
        self.function
    }

    /// Returns `true` if the key was drawn by [`random`](Self::random) and was not exposed, so that
    /// it must not leave the process.
    pub const fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Returns the same hasher, but allows its key to be encoded with the filter. A reader of the
    /// encoded filter can then search for keys that collide.
    #[must_use]
    pub const fn with_key_exposed(mut self) -> Self {
        self.is_secret = false;
        self
    }

    /// Returns the width of the function's hashes in bits: 64 or 128.
    pub const fn bits(&self) -> u32 {
        match self.function {
            HashFunction::Xxh64 { .. } | HashFunction::Fnv1a => 64,
            _ => 128,
        }
    }

    /// Returns the name of the hash function, as the command line accepts it.
    pub const fn name(&self) -> &'static str {
        self.function.name()
    }

    /// Returns the hash of a key, 64 or 128 bits wide.
    #[inline]
    pub fn hash<H: KeyHash>(&self, key: &[u8]) -> H {
        H::of(self, key)
    }

    /// Hashes many keys and appends the hashes to `hashes`.
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
            // XXH64 and FNV-1a hashes have only 64 bits of information. Filters over 128-bit hashes
            // reject both functions.
            HashFunction::Xxh64 { .. } | HashFunction::Fnv1a => u128::from(self.hash_64(key)),
        }
    }
}

/// The finalizer of `MurmurHash3_x64_128`: every bit of `x` influences every bit of the result.
#[inline]
pub(crate) const fn fmix64(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}

/// Returns pseudo-random number `at` of a hash, in `0..places`.
///
/// The numbers of one hash are independent of each other. Multiples of a second hash (double
/// hashing, Kirsch and Mitzenmacher) would not be independent: in small filters their positions
/// repeat whole patterns.
///
/// The numbers are the outputs of `SplitMix64` seeded with the hash, each scaled to the range by
/// its high bits.
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

/// A hash of a key: `u64`, or `u128` for filters with a rate so low that collisions of 64-bit
/// hashes would exceed the rate.
pub trait KeyHash: Copy + Eq + Ord + Send + Sync + fmt::Debug + sealed::Sealed + 'static {
    /// Width of the hash in bits: 64 or 128.
    const BITS: u32;

    /// Returns the hash of a key under `hasher`.
    fn of(hasher: &KeyHasher, key: &[u8]) -> Self;

    /// Returns the low 64 bits and the high 64 bits. The high bits of a 64-bit hash are zero.
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
    #[expect(unnameable_types, reason = "sealed: only this module implements the trait")]
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for u128 {}
}

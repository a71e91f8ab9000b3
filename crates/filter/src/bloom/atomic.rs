//! A classic Bloom filter that threads can share.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use super::positions::{Positions, word_and_bit};
use super::{BloomFilter, checked_positions};
use crate::encoding::{DecodeError, EncodeError, Portable};
use crate::hashing::{KeyHash, KeyHasher};
use crate::membership::Filter;
use crate::sizing::{BuildError, check_hash, classic, in_words};
use crate::words::{NoMemory, Words, count_ones, reserved};

/// A classic Bloom filter that any number of threads can insert into and query at the same time,
/// without locks.
///
/// The bits and the encoded bytes are those of a [`BloomFilter`]. The docs of [`BloomFilter`]
/// describe the cost, the meaning of `true`, and the better alternatives. An insertion reads each
/// bit before writing, and writes only bits that are not set yet. So inserting a key again costs no
/// more than a query, and the cache lines stay shared between the cores.
///
/// **Memory order.** A thread that knows that an insertion has returned (because it joined the
/// inserting thread, received a message or took a lock) finds the key. Without such
/// synchronisation, a query may miss an insertion that runs at the same time. No insertion is ever
/// lost.
///
/// # Examples
/// ```
/// use chainsieve_filter::bloom::AtomicBloomFilter;
/// use chainsieve_filter::{Filter, KeyHasher};
///
/// let filter = <AtomicBloomFilter>::with_fpr(1_000, 0.001, KeyHasher::random())?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| filter.insert(b"one"));
///     scope.spawn(|| filter.insert(b"two"));
/// });
/// assert!(filter.contains(b"one") && filter.contains(b"two"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AtomicBloomFilter<H = u64> {
    words: Vec<AtomicU64>,
    positions: Positions<false>,
    hasher: KeyHasher,
    len: Counter,
    hash: PhantomData<H>,
}

/// A counter that many threads increment. The count is the sum of several parts, each in a cache
/// line of its own, so that threads rarely write to the same line. The 64-bit parts never overflow
/// in practice.
#[derive(Debug, Default)]
struct Counter {
    before: u64,
    parts: [Part; 16],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicU64);

impl Counter {
    #[inline]
    fn add_one(&self, hash: u64) {
        let [Part(part), ..] = &self.parts;
        let [number, ..] = hash.to_le_bytes();
        let number = usize::from(number) % self.parts.len();
        let part = self.parts.get(number).map_or(part, |Part(part)| part);
        part.fetch_add(1, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        let parts = self.parts.iter().map(|Part(part)| part.load(Ordering::Relaxed));
        parts.fold(self.before, u64::saturating_add)
    }
}

impl<H: KeyHash> AtomicBloomFilter<H> {
    /// Creates a filter with the size that [`BloomFilter::with_fpr`] chooses.
    ///
    /// # Errors
    /// Returns the same errors as [`BloomFilter::with_fpr`].
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_bits(size.num_bits, size.hash_funcs, hasher)
    }

    /// Creates a filter with the size that [`BloomFilter::with_bits`] chooses.
    ///
    /// # Errors
    /// Returns the same errors as [`BloomFilter::with_bits`].
    pub fn with_bits(
        num_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let positions = checked_positions::<H, false>(num_bits, hash_funcs, &hasher)?;
        let words = num_bits.div_ceil(64);
        let atoms = atoms(words, (0..words).map(|_| 0))?;
        Ok(Self { words: atoms, positions, hasher, len: Counter::default(), hash: PhantomData })
    }

    /// Inserts a key. Returns `true` if the key was certainly not in the set when the call began.
    #[inline]
    pub fn insert(&self, key: &[u8]) -> bool {
        self.insert_hash(H::of(&self.hasher, key))
    }

    /// Inserts the key with this hash. Returns `true` if the key was certainly not in the set when
    /// the call began. If several threads insert the same key at the same time, more than one call
    /// may return `true`.
    #[inline]
    pub fn insert_hash(&self, hash: H) -> bool {
        let [low, _] = hash.to_words();
        self.len.add_one(low);
        self.positions.of(hash).fold(false, |new, position| new | self.set(position))
    }

    /// Inserts the keys with these hashes. The memory of several keys is prefetched first.
    pub fn insert_batch(&self, hashes: &[H]) {
        for hashes in hashes.chunks(16) {
            for hash in hashes {
                self.positions.of(*hash).for_each(|position| self.prefetch(position));
            }
            for hash in hashes {
                self.insert_hash(*hash);
            }
        }
    }

    /// Removes every key. `&mut self` ensures that no other thread inserts at the same time.
    pub fn clear(&mut self) {
        for word in &mut self.words {
            *word.get_mut() = 0;
        }
        self.len = Counter::default();
    }

    /// Returns the number of hash functions: the number of bits that a key sets.
    pub fn hash_funcs(&self) -> u32 {
        self.positions.hash_funcs
    }

    /// Copies the current contents into a filter that is not shared.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the copy.
    pub fn to_filter(&self) -> Result<BloomFilter<H>, NoMemory> {
        let mut words = Words::zeroed(self.words.len() as u64)?;
        for (to, from) in words.as_mut().iter_mut().zip(&self.words) {
            *to = from.load(Ordering::Relaxed);
        }
        let (positions, hasher) = (self.positions, self.hasher);
        let len = self.len_beside(words.as_ref());
        Ok(BloomFilter { words, positions, hasher, len, hash: PhantomData })
    }

    /// Copies a filter into one that threads can share.
    ///
    /// # Errors
    /// Returns an error if there is no memory for the copy.
    pub fn from_filter(filter: &BloomFilter<H>) -> Result<Self, NoMemory> {
        let BloomFilter { words, positions, hasher, len, .. } = filter;
        let words = words.as_ref();
        let atoms = atoms(words.len() as u64, words.iter().copied())?;
        let counter = Counter { before: *len, ..Counter::default() };
        Ok(Self {
            words: atoms,
            positions: *positions,
            hasher: *hasher,
            len: counter,
            hash: PhantomData,
        })
    }

    /// Returns the number of keys to record for a copy of the words.
    ///
    /// If another thread inserts during the copy, the copy may include the new bits but not the new
    /// key in its count, or the key in its count but not the bits. A decoder rejects a filter with
    /// more set bits than its number of keys can have set. So the recorded number is large enough
    /// that this many keys can have set the bits of the copy.
    fn len_beside(&self, words: &[u64]) -> u64 {
        match count_ones(words) {
            0 => 0,
            set => self.len().max(set.div_ceil(self.positions.hash_funcs.into())),
        }
    }

    /// Sets the bit at a position. Returns `true` if the bit was not set before.
    #[inline(always)]
    fn set(&self, position: u64) -> bool {
        let (word, bit) = word_and_bit(position);
        self.words.get(word).is_some_and(|word| {
            let mask = 1 << bit;
            // Most bits are already set. Reading first avoids a write, so the cache line stays
            // shared between the cores.
            word.load(Ordering::Relaxed) & mask == 0
                && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
        })
    }

    #[inline(always)]
    fn prefetch(&self, position: u64) {
        // A safe prefetch needs a plain reference to the word, which an atomic does not give. An
        // ordinary read serves as well: nothing depends on its result, so the CPU does not wait for
        // the read.
        let (word, _) = word_and_bit(position);
        core::hint::black_box(self.words.get(word).map(|word| word.load(Ordering::Relaxed)));
    }

    fn num_set(&self) -> u64 {
        let ones = |word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones());
        self.words.iter().map(ones).sum()
    }
}

impl<H: KeyHash> Filter for AtomicBloomFilter<H> {
    type Hash = H;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: H) -> bool {
        self.positions.contains_by(hash, |position| {
            let (word, bit) = word_and_bit(position);
            self.words.get(word).map_or(0, |word| word.load(Ordering::Relaxed) >> bit & 1)
        })
    }

    fn len(&self) -> u64 {
        self.len.total()
    }

    fn num_bits(&self) -> u64 {
        self.positions.num_bits()
    }

    fn fill(&self) -> f64 {
        classic::share(self.num_set(), self.num_bits())
    }

    fn expected_fpr(&self) -> f64 {
        let by_bits = libm::pow(self.fill(), f64::from(self.positions.hash_funcs));
        (by_bits + classic::hash_fpr(self.len(), H::BITS)).min(1.0)
    }

    fn estimated_len(&self) -> Option<f64> {
        Some(classic::estimated_len(self.num_set(), self.num_bits(), self.positions.hash_funcs))
    }
}

impl<H: KeyHash> Portable for AtomicBloomFilter<H> {
    /// Encodes the current contents as a [`BloomFilter`].
    ///
    /// # Panics
    /// Panics if there is no memory for a copy of the filter.
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.to_filter().expect("memory for a copy").encode()
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self::from_filter(&BloomFilter::decode(bytes)?)?)
    }
}

fn atoms(count: u64, words: impl Iterator<Item = u64>) -> Result<Vec<AtomicU64>, NoMemory> {
    let len = usize::try_from(count).map_err(|_| NoMemory { words: count })?;
    let mut atoms = reserved(len)?;
    atoms.extend(words.map(AtomicU64::new));
    Ok(atoms)
}

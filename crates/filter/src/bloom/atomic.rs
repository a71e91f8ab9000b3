//! The classic Bloom filter that threads share.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use super::classic::BloomFilter;
use super::filter::{checked_places, kind};
use super::places::{Places, word_and_bit};
use crate::encoding::{DecodeError, EncodeError, Header, Portable};
use crate::hashing::{KeyHash, KeyHasher};
use crate::membership::Filter;
use crate::sizing::{SizingError, check_hash, classic, in_words};
use crate::words::{NoMemory, Words, count_ones};

/// A classic Bloom filter that any number of threads insert into and ask at a time, without locks.
///
/// The bits and the bytes are those of a [`BloomFilter`]; see there for what it costs, what a
/// `true` means and what beats it. An insertion reads before it writes, and writes only bits that
/// are not set yet, so that keys seen before cost no more than a probe, and the lines of the cache
/// stay shared.
///
/// **Order.** A thread that knows that an insertion has returned (because it joined the thread, got
/// a message, took a lock) finds the key. Without that, a probe may come before or after an
/// insertion at the same time. No insertion is ever lost.
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
    places: Places<false>,
    hasher: KeyHasher,
    len: Counter,
    hash: PhantomData<H>,
}

/// A count that many threads add to: of several parts, in lines of their own, which begin at zero
/// and don't come to an end.
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
    /// As [`BloomFilter::with_fpr`].
    ///
    /// # Errors
    /// As there.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = in_words(classic::size(capacity, fpr)?);
        check_hash(capacity, fpr, H::BITS)?;
        Self::with_bits(size.num_bits, size.hash_funcs, hasher)
    }

    /// As [`BloomFilter::with_bits`].
    ///
    /// # Errors
    /// As there.
    pub fn with_bits(
        num_bits: u64,
        hash_funcs: u32,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        let places = checked_places::<H, false>(num_bits, hash_funcs, &hasher)?;
        let words = num_bits.div_ceil(64);
        let atoms = atoms(words, (0..words).map(|_| 0))?;
        Ok(Self { words: atoms, places, hasher, len: Counter::default(), hash: PhantomData })
    }

    /// Inserts a key. `true` if it was certainly not there when the call began.
    #[inline]
    pub fn insert(&self, key: &[u8]) -> bool {
        self.insert_hash(H::of(&self.hasher, key))
    }

    /// Inserts the key of this hash. `true` if it was certainly not there when the call began; of
    /// threads that insert the same key at a time, several may be told so.
    #[inline]
    pub fn insert_hash(&self, hash: H) -> bool {
        let [low, _] = hash.to_words();
        self.len.add_one(low);
        self.places.of(hash).fold(false, |new, place| new | self.set(place))
    }

    /// Inserts many; their words are asked for first.
    pub fn insert_batch(&self, hashes: &[H]) {
        for hashes in hashes.chunks(16) {
            for hash in hashes {
                self.places.of(*hash).for_each(|place| self.prefetch(place));
            }
            for hash in hashes {
                self.insert_hash(*hash);
            }
        }
    }

    /// Forgets every key. Nobody else can be inserting meanwhile.
    pub fn clear(&mut self) {
        for word in &mut self.words {
            *word.get_mut() = 0;
        }
        self.len = Counter::default();
    }

    /// Bits of a key.
    pub fn hash_funcs(&self) -> u32 {
        self.places.hash_funcs
    }

    /// The filter as it is now, no longer shared.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn to_filter(&self) -> Result<BloomFilter<H>, NoMemory> {
        let mut words = Words::zeroed(self.words.len() as u64)?;
        for (to, from) in words.as_mut().iter_mut().zip(&self.words) {
            *to = from.load(Ordering::Relaxed);
        }
        let (places, hasher) = (self.places, self.hasher);
        let len = self.len_beside(words.as_ref());
        Ok(BloomFilter { words, places, hasher, len, hash: PhantomData })
    }

    /// A filter made ready to be shared.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn from_filter(filter: &BloomFilter<H>) -> Result<Self, NoMemory> {
        let BloomFilter { words, places, hasher, len, .. } = filter;
        let words = words.as_ref();
        let atoms = atoms(words.len() as u64, words.iter().copied())?;
        let counter = Counter { before: *len, ..Counter::default() };
        Ok(Self { words: atoms, places: *places, hasher: *hasher, len: counter, hash: PhantomData })
    }

    /// How many keys to say that a copy of the words holds. The count and the bits of an insertion
    /// at the same time come in any order, and filters whose keys can't have set their bits are
    /// not read.
    fn len_beside(&self, words: &[u64]) -> u64 {
        match count_ones(words) {
            0 => 0,
            set => self.len().max(set.div_ceil(self.places.hash_funcs.into())),
        }
    }

    /// Sets a bit; whether it was not set before.
    #[inline(always)]
    fn set(&self, place: u64) -> bool {
        let (word, bit) = word_and_bit(place);
        self.words.get(word).is_some_and(|word| {
            let mask = 1 << bit;
            // Reading leaves the line with all cores that have it.
            word.load(Ordering::Relaxed) & mask == 0
                && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
        })
    }

    #[inline(always)]
    fn prefetch(&self, place: u64) {
        // The line of a word can't be named without reading the word, and reading is as good:
        // nothing waits for it.
        let (word, _) = word_and_bit(place);
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
        self.places.contains_by(hash, |place| {
            let (word, bit) = word_and_bit(place);
            self.words.get(word).map_or(0, |word| word.load(Ordering::Relaxed) >> bit & 1)
        })
    }

    fn len(&self) -> u64 {
        self.len.total()
    }

    fn num_bits(&self) -> u64 {
        self.places.num_bits()
    }

    fn fill(&self) -> f64 {
        classic::share(self.num_set(), self.num_bits())
    }

    fn expected_fpr(&self) -> f64 {
        let by_bits = libm::pow(self.fill(), f64::from(self.places.hash_funcs));
        (by_bits + classic::hash_fpr(self.len(), H::BITS)).min(1.0)
    }

    fn estimated_len(&self) -> Option<f64> {
        Some(classic::estimated_len(self.num_set(), self.num_bits(), self.places.hash_funcs))
    }
}

impl<H: KeyHash> Portable for AtomicBloomFilter<H> {
    /// The bytes of the [`BloomFilter`] that it is now.
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let words: Vec<u64> = self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let params = [self.places.range, self.places.hash_funcs.into(), 0];
        let len = self.len_beside(&words);
        let header = Header { kind: kind::<H>(false), hasher: self.hasher, len, params };
        header.encode(&[&words])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self::from_filter(&BloomFilter::decode(bytes)?)?)
    }
}

fn atoms(count: u64, words: impl Iterator<Item = u64>) -> Result<Vec<AtomicU64>, NoMemory> {
    let no_memory = NoMemory { words: count };
    let mut atoms = Vec::new();
    atoms
        .try_reserve_exact(usize::try_from(count).map_err(|_| no_memory)?)
        .map_err(|_| no_memory)?;
    atoms.extend(words.map(AtomicU64::new));
    Ok(atoms)
}

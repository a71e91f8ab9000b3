//! Rolling Bloom filter: places of two bits that say in which of three generations they were
//! set last.

use alloc::vec::Vec;

use chainsieve_lanes::simd::prefetch;

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::{KeyHasher, draw};
use super::kind::Kind;
use super::membership::{Filter, Full, Insert, contains_in_chunks};
use super::sizing::stages::{self, GENERATIONS, Rolling};
use super::sizing::{MAX_HASH_FUNCS, SizingError, classic, float, hash_bits};
use super::words::{LINE_WORDS, Words};

/// Places of each key of a batch that are asked for: a stranger is known by the first two, mostly.
const AHEAD: u64 = 2;
/// Most places, and most keys of a generation.
const MAX_PLACES: u64 = 1 << 54;

/// Remembers the last `n` insertions for certain, and forgets older ones by itself.
///
/// The places of a key hold the number of the generation that set them last, 1 to 3, or 0. A
/// generation takes `n/2` insertions. Then the oldest of the three is wiped and becomes the newest.
/// So at any time the two generations before the newest are whole (the layout of Bitcoin Core's
/// `CRollingBloomFilter`). One hash is taken for an operation.
///
/// **The contract.** The key of each of the last `n` insertions is found, for certain: a key is not
/// forgotten before `n` more insertions. After `1.5·n` more it is, and found by chance only, at the
/// filter's rate. A key that is in the newest generation already is not counted again: nobody
/// pushes others out by repeating one. What counts are insertions, not distinct keys: a few keys
/// that come again in each generation count in each.
///
/// **When to use it.** Relay de-duplication ("which inventory did this peer hear of?"), recent
/// rejects, doorkeepers that let into a cache only what is asked for a second time: sets without
/// end of which the recent part counts. For windows of time instead of counts, call
/// [`rotate`](Self::rotate) every half window: what was inserted within the last window is then
/// found, as long as no half window brings more than `n/2` keys.
///
/// **When not.** If keys end by an event and not by age, take a filter with removal. The keys have
/// to be distributed by a **secret** hash where strangers choose them: [`new`](Self::new) draws
/// one.
///
/// **What it costs, what beats it.** `2·1.5·1.44·log2(1/p)` bits for each of the `n`: 43 at 10⁻³,
/// 86 at 10⁻⁶, as much as Core's. log2(1/p) lines of memory for a key that is there, two for a
/// stranger. Several filters in turns beat it in memory and lose in lines: three, of `n/2` keys and
/// a third of the rate each, the oldest emptied for the next generation, keep the same contract in
/// 47 bits at 10⁻⁶ as classic filters and in 39 as cuckoo filters, for three times the lines. Two
/// classic ones of `n` keys take 60, and remember up to `2·n`. A hash table of 64-bit hashes with
/// their ages takes 200 and more, and is as good as exact.
///
/// # Examples
/// ```
/// use chainsieve_filter::rolling::RollingBloomFilter;
/// use chainsieve_filter::{Filter, Insert};
///
/// let mut seen = RollingBloomFilter::new(50_000, 1e-6)?;
/// assert!(seen.insert(b"transaction")?, "certainly new: relay it");
/// assert!(!seen.insert(b"transaction")?, "seen, but for a chance of a millionth");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingBloomFilter {
    hasher: KeyHasher,
    /// Pairs: the low bits of the generations of 64 places, then their high bits.
    words: Words,
    per_generation: u64,
    hash_funcs: u32,
    /// The newest: 1 to 3.
    newest: u8,
    /// Insertions of generations 1, 2, 3.
    lens: [u64; 3],
}

/// What a place of two bits holds.
type Generation = u8;

impl RollingBloomFilter {
    /// Remembers the last `capacity` insertions, under a random secret key.
    ///
    /// # Errors
    /// If there is no such filter.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[cfg(feature = "std")]
    pub fn new(capacity: u64, fpr: f64) -> Result<Self, SizingError> {
        Self::with_fpr(capacity, fpr, KeyHasher::random())
    }

    /// Remembers the last `capacity` insertions (one more if that is odd), at a rate of `fpr` when
    /// it is as full as it gets.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let size = stages::rolling(capacity, fpr)?;
        if hash_bits(size.per_generation.saturating_mul(GENERATIONS), fpr) > 64 {
            return Err(SizingError::HashTooShort { capacity, fpr, bits: 64 });
        }
        Self::with_size(size, hasher)
    }

    /// A filter of a given size. Places come in words: their number is rounded up to a multiple of
    /// 64.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn with_size(size: Rolling, hasher: KeyHasher) -> Result<Self, SizingError> {
        let within = SizingError::unless_within;
        within("keys of a generation", size.per_generation, MAX_PLACES)?;
        within("a number of places", size.num_places, MAX_PLACES)?;
        within("a number of hash functions", size.hash_funcs.into(), MAX_HASH_FUNCS.into())?;
        let words = Words::zeroed(size.num_places.div_ceil(64) * 2)?;
        let Rolling { per_generation, hash_funcs, .. } = size;
        Ok(Self { hasher, words, per_generation, hash_funcs, newest: 1, lens: [0; 3] })
    }

    /// Places, how many of them a key has, and keys of a generation.
    pub fn size(&self) -> Rolling {
        Rolling {
            num_places: self.num_places(),
            hash_funcs: self.hash_funcs,
            per_generation: self.per_generation,
        }
    }

    /// How many places a key has.
    pub const fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// How many insertions are remembered for certain.
    pub const fn capacity(&self) -> u64 {
        self.per_generation * (GENERATIONS - 1)
    }

    /// Begins a generation: forgets the oldest of the three.
    ///
    /// A full generation does so by itself. For a window of time call it every half window: a key
    /// outlives two calls for certain, and is forgotten at the third.
    pub fn rotate(&mut self) {
        self.newest = self.newest % 3 + 1;
        let (low, high) = planes(self.newest);
        for pair in self.words.as_mut().as_chunks_mut::<2>().0 {
            // Places of another generation stay.
            let keep = (pair[0] ^ low) | (pair[1] ^ high);
            *pair = [pair[0] & keep, pair[1] & keep];
        }
        *self.newest_len() = 0;
    }

    fn newest_len(&mut self) -> &mut u64 {
        &mut self.lens[usize::from(self.newest - 1) % 3]
    }

    fn pairs(&self) -> &[[u64; 2]] {
        self.words.as_ref().as_chunks().0
    }

    /// How many places there are, of two bits each.
    pub fn num_places(&self) -> u64 {
        self.pairs().len() as u64 * 64
    }

    /// The pair of words of a place, and its bit in both.
    #[inline]
    fn place(&self, hash: u64, at: u64) -> (usize, u64) {
        let place = draw(hash, at, self.num_places());
        let pair = (place / 64) as usize;
        (pair, 1 << (place % 64))
    }

    /// How many places each generation has, 1 to 3.
    fn places_of_generations(&self) -> [u64; 3] {
        let mut places = [0; 3];
        for [low, high] in self.pairs() {
            let of_generations = [low & !high, !low & high, low & high];
            for (count, bits) in places.iter_mut().zip(of_generations) {
                *count += u64::from(bits.count_ones());
            }
        }
        places
    }

    fn occupied(&self) -> u64 {
        self.places_of_generations().iter().sum()
    }
}

/// All places of a word set to a generation: its low and its high bit, 64 times each.
fn planes(generation: Generation) -> (u64, u64) {
    let of_bit = |bit: u8| 0_u64.wrapping_sub((generation >> bit & 1).into());
    (of_bit(0), of_bit(1))
}

impl Filter for RollingBloomFilter {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        let pairs = self.pairs();
        (0..self.hash_funcs.into()).all(|at| {
            let (pair, bit) = self.place(hash, at);
            (pairs[pair][0] | pairs[pair][1]) & bit != 0
        })
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        let (pairs, ahead) = (self.pairs(), AHEAD.min(self.hash_funcs.into()));
        let first = |hash| (0..ahead).for_each(|at| prefetch(&pairs[self.place(hash, at).0]));
        contains_in_chunks(hashes, may_contain, first, |hash| self.contains_hash(hash));
    }

    /// Insertions that are remembered, as counted: those of the three generations.
    fn len(&self) -> u64 {
        self.lens.iter().sum()
    }

    fn num_bits(&self) -> u64 {
        self.num_places() * 2
    }

    fn fill(&self) -> f64 {
        float(self.occupied()) / float(self.num_places())
    }

    fn expected_fpr(&self) -> f64 {
        libm::pow(self.fill(), self.hash_funcs.into())
    }

    fn estimated_len(&self) -> Option<f64> {
        let (occupied, places) = (self.occupied(), self.num_places());
        let estimate = || classic::estimated_len(occupied, places, self.hash_funcs);
        (occupied < places).then(estimate)
    }
}

impl Insert for RollingBloomFilter {
    /// Never full: the oldest go.
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let (low, high) = planes(self.newest);
        let (mut is_new, mut is_newest) = (false, true);
        let pairs = self.pairs();
        for at in 0..self.hash_funcs.into() {
            let (pair, bit) = self.place(hash, at);
            let [has_low, has_high] = pairs[pair];
            is_newest &= ((has_low ^ low) | (has_high ^ high)) & bit == 0;
            if (has_low | has_high) & bit == 0 {
                is_new = true;
                break;
            }
        }
        if is_newest {
            // It stays as long as whatever comes now.
            return Ok(false);
        }
        if *self.newest_len() == self.per_generation {
            self.rotate();
        }
        *self.newest_len() += 1;
        let (low, high) = planes(self.newest);
        for at in 0..self.hash_funcs.into() {
            let (pair, bit) = self.place(hash, at);
            let pair = &mut self.words.as_mut().as_chunks_mut::<2>().0[pair];
            *pair = [pair[0] & !bit | low & bit, pair[1] & !bit | high & bit];
        }
        Ok(is_new)
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        (self.newest, self.lens) = (1, [0; 3]);
    }
}

/// Parameters: keys of a generation, places, hash functions. Body: a line of eight words (the
/// newest generation, 1 to 3; the insertions of generations 1, 2 and 3; zeros), then for every 64
/// places two words: the low bits of their generations and the high bits.
impl Portable for RollingBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let Rolling { num_places, hash_funcs, per_generation } = self.size();
        let params = [per_generation, num_places, hash_funcs.into()];
        let header = Header { kind: Kind::Rolling, hasher: self.hasher, len: self.len(), params };
        let [first, second, third] = self.lens;
        let state = [self.newest.into(), first, second, third, 0, 0, 0, 0];
        header.encode(&[&state, self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Rolling, num_words)?;
        let Header { hasher, len, params: [per_generation, _, hash_funcs], .. } = opened.header;
        let state = opened.some_words(0..LINE_WORDS)?;
        let &[newest, first, second, third, 0, 0, 0, 0] = state.as_ref() else {
            return Err(DecodeError::NotZero("96 to 127"));
        };
        let newest = match newest {
            1 => 1,
            2 => 2,
            3 => 3,
            _ => {
                return Err(parameter("the newest generation", newest, "from 1 to 3 are possible"));
            }
        };
        let lens = [first, second, third];
        if let Some(len) = lens.into_iter().find(|len| *len > per_generation) {
            let limit = "at most the keys of a generation";
            return Err(parameter("the insertions of a generation", len, limit));
        }
        // Each at most 2⁵⁴, so that the sum is one.
        if lens.iter().sum::<u64>() != len {
            return Err(parameter("the number of keys", len, "the sum of three generations"));
        }
        let words = opened.some_words(LINE_WORDS..opened.num_words())?;
        let hash_funcs = u32::try_from(hash_funcs).unwrap_or(MAX_HASH_FUNCS);
        let filter = Self { hasher, words, per_generation, hash_funcs, newest, lens };
        for (places, len) in filter.places_of_generations().into_iter().zip(lens) {
            if places > len.saturating_mul(hash_funcs.into()) {
                let limit = "as many as its insertions can have set";
                return Err(parameter("the places of a generation", places, limit));
            }
        }
        Ok(filter)
    }
}

fn num_words(header: &Header) -> Result<u64, DecodeError> {
    let [per_generation, num_places, hash_funcs] = header.params;
    if !(1..=MAX_PLACES).contains(&per_generation) {
        let limit = "from 1 to 2^54 are possible";
        return Err(parameter("the keys of a generation", per_generation, limit));
    }
    if !(64..=MAX_PLACES).contains(&num_places) || num_places % 64 != 0 {
        let limit = "multiples of 64 up to 2^54 are possible";
        return Err(parameter("the number of places", num_places, limit));
    }
    if !(1..=u64::from(MAX_HASH_FUNCS)).contains(&hash_funcs) {
        let limit = "from 1 to 128 are possible";
        return Err(parameter("the number of hash functions", hash_funcs, limit));
    }
    Ok(num_places / 32 + LINE_WORDS as u64)
}

//! Rolling Bloom filter: cells of two bits that store which of three generations set them last.

use alloc::vec::Vec;

use chainsieve_lanes::simd::prefetch;

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_if, within,
};
use super::hashing::{KeyHasher, draw};
use super::membership::{Filter, Full, Insert, contains_in_chunks};
use super::sizing::classic::{self, GENERATIONS, Rolling};
use super::sizing::{BuildError, MAX_HASH_FUNCS, float, hash_bits};
use super::words::{LINE_WORDS, Words};

/// Number of cells per key that a batch prefetches. For most keys outside the set, one of the first
/// two cells is empty.
const AHEAD: u64 = 2;
/// Greatest number of cells, and of keys in a generation.
const MAX_PLACES: u64 = 1 << 54;

/// A filter that certainly remembers the last `n` insertions, and forgets older insertions by
/// itself.
///
/// Each key has several cells of two bits. A cell stores the number of the generation that set it
/// last, from 1 to 3, or 0 if it is empty. A generation ends after `n/2` insertions. Then the
/// oldest of the three generations is erased and becomes the newest. So the two generations before
/// the newest are always complete. The cells have the layout of Bitcoin Core's
/// `CRollingBloomFilter`. Each operation computes one hash.
///
/// **The contract.** The keys of the last `n` insertions are certainly found: a key is not
/// forgotten before `n` more insertions. After `1.5·n` more insertions the key is forgotten, and
/// found only by chance, at the filter's false-positive rate. Inserting a key that is already in
/// the newest generation is not counted as an insertion, so an attacker cannot displace other keys
/// by repeating one key. The filter counts insertions, not distinct keys: a key that is inserted in
/// several generations is counted in each of them.
///
/// **When to use it.** For endless sequences of keys, of which only the recent part matters: to
/// avoid sending a peer the same inventory twice, to remember recently rejected transactions, or to
/// admit a key to a cache only at its second request. For a time window instead of a number of
/// insertions, call [`rotate`](Self::rotate) every half window. The keys of the last window are
/// then found, as long as each half window inserts at most `n/2` keys.
///
/// **When not to use it.** If keys are to be forgotten after an event and not by age, use a filter
/// with removal. If untrusted parties choose the keys, the filter needs a **secret** hash key:
/// [`new`](Self::new) draws a secret key.
///
/// **Cost, and what is better.** The filter takes `2·1.5·1.44·log2(1/p)` bits for each of the `n`
/// keys: 43 bits at 10⁻³ and 86 bits at 10⁻⁶, as much as Core's filter. A query reads log2(1/p)
/// cache lines for a key in the set, and two for a key that is not in the set. Several filters used
/// in turn take less memory, but read more cache lines. Three filters of `n/2` keys, each with a
/// third of the rate, fulfil the same contract if the oldest of them is cleared for the next
/// generation. At 10⁻⁶ three classic filters take 47 bits per key and three cuckoo filters take 39,
/// and a query reads three times as many cache lines as in one filter. Two classic filters of `n`
/// keys take 60 bits per key, and remember up to `2·n` keys. A hash table of 64-bit hashes with
/// their ages takes 200 bits per key or more, and is practically exact.
///
/// # Examples
/// ```
/// use chainsieve_filter::rolling::RollingBloomFilter;
/// use chainsieve_filter::{Filter, Insert};
///
/// let mut seen = RollingBloomFilter::new(50_000, 1e-6)?;
/// assert!(seen.insert(b"transaction")?, "certainly new: relay it");
/// assert!(!seen.insert(b"transaction")?, "seen, except with a probability of one in a million");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollingBloomFilter {
    hasher: KeyHasher,
    /// Pairs of words for 64 cells each: the low bits of the cells' generations, then the high
    /// bits.
    words: Words,
    per_generation: u64,
    hash_funcs: u32,
    /// The newest generation, from 1 to 3.
    newest: u8,
    /// Numbers of insertions in generations 1, 2 and 3.
    lens: [u64; 3],
}

/// The content of a cell: the number of a generation, or 0.
type Generation = u8;

impl RollingBloomFilter {
    /// Creates a filter that remembers the last `capacity` insertions, with a random secret hash
    /// key.
    ///
    /// # Errors
    /// Returns the same errors as [`with_fpr`](Self::with_fpr).
    ///
    /// # Panics
    /// Panics if the operating system provides no random numbers.
    #[cfg(feature = "std")]
    pub fn new(capacity: u64, fpr: f64) -> Result<Self, BuildError> {
        Self::with_fpr(capacity, fpr, KeyHasher::random())
    }

    /// Creates a filter that remembers the last `capacity` insertions (one more if that number is
    /// odd), with a rate of at most `fpr` when all generations are full.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, if no filter can have this size and rate,
    /// or if there is no memory for the filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let size = classic::rolling(capacity, fpr)?;
        if hash_bits(size.per_generation.saturating_mul(GENERATIONS), fpr) > 64 {
            return Err(BuildError::HashTooShort { capacity, fpr, bits: 64 });
        }
        Self::with_size(size, hasher)
    }

    /// Creates a filter of the given size. The number of cells is rounded up to a multiple of 64.
    ///
    /// # Errors
    /// Returns an error if one of the numbers in `size` is zero or too large, or if there is no
    /// memory for the filter.
    pub fn with_size(size: Rolling, hasher: KeyHasher) -> Result<Self, BuildError> {
        let within = BuildError::unless_within;
        within("a number of keys per generation", size.per_generation, MAX_PLACES)?;
        within("a number of cells", size.num_places, MAX_PLACES)?;
        within("a number of hash functions", size.hash_funcs.into(), MAX_HASH_FUNCS.into())?;
        let words = Words::zeroed(size.num_places.div_ceil(64) * 2)?;
        let Rolling { per_generation, hash_funcs, .. } = size;
        Ok(Self { hasher, words, per_generation, hash_funcs, newest: 1, lens: [0; 3] })
    }

    /// Returns the number of cells, the number of cells per key, and the number of keys in a
    /// generation.
    pub fn size(&self) -> Rolling {
        Rolling {
            num_places: self.num_places(),
            hash_funcs: self.hash_funcs,
            per_generation: self.per_generation,
        }
    }

    /// Returns the number of cells that a key sets.
    pub const fn hash_funcs(&self) -> u32 {
        self.hash_funcs
    }

    /// Returns the number of insertions that are certainly remembered.
    pub const fn capacity(&self) -> u64 {
        self.per_generation * (GENERATIONS - 1)
    }

    /// Starts a new generation and forgets the oldest of the three.
    ///
    /// An insertion into a full generation starts a new generation by itself. For a time window,
    /// call this method every half window. A key is certainly remembered after two calls of this
    /// method, and is forgotten at the third call.
    pub fn rotate(&mut self) {
        self.newest = self.newest % 3 + 1;
        let (low, high) = planes(self.newest);
        for pair in self.words.as_mut().as_chunks_mut::<2>().0 {
            // Only the cells of the erased generation change.
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

    /// Returns the number of cells, of two bits each.
    pub fn num_places(&self) -> u64 {
        self.pairs().len() as u64 * 64
    }

    /// Returns the index of the pair of words in which a cell lies, and the cell's bit in both
    /// words.
    #[inline]
    fn place(&self, hash: u64, at: u64) -> (usize, u64) {
        let place = draw(hash, at, self.num_places());
        let pair = (place / 64) as usize;
        (pair, 1 << (place % 64))
    }

    /// Counts the cells of each generation, 1 to 3.
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

/// Returns the low bit and the high bit of a generation's number, each repeated 64 times.
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

    /// Returns the number of insertions in the three generations that are remembered.
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
    /// Always succeeds. If the newest generation is full, the oldest generation is forgotten first.
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
            // The key is already in the newest generation, so it will be remembered as long as a
            // key that is inserted now.
            return Ok(false);
        }
        // The newest generation is complete, so a new one starts.
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

/// The parameters in the encoded header are the number of keys in a generation, the number of
/// cells, and the number of hash functions.
///
/// The body starts with eight words: the newest generation (1 to 3), the numbers of insertions in
/// generations 1, 2 and 3, and four zeros. Two words follow for every 64 cells: the low bits of
/// their generations and the high bits.
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
            return Err(DecodeError::NotZero("bytes 96 to 127"));
        };
        let newest = match newest {
            1 => 1,
            2 => 2,
            3 => 3,
            _ => {
                return Err(parameter("the newest generation", newest, "from 1 to 3"));
            }
        };
        let lens = [first, second, third];
        if let Some(len) = lens.into_iter().find(|len| *len > per_generation) {
            let limit = "at most the number of keys per generation";
            return Err(parameter("the number of insertions in a generation", len, limit));
        }
        // Each number is at most 2⁵⁴, so the sum does not overflow.
        let is_wrong = lens.iter().sum::<u64>() != len;
        refuse_if(is_wrong, "the number of keys", len, "the sum of three generations")?;
        let words = opened.some_words(LINE_WORDS..opened.num_words())?;
        let hash_funcs = u32::try_from(hash_funcs).unwrap_or(MAX_HASH_FUNCS);
        let filter = Self { hasher, words, per_generation, hash_funcs, newest, lens };
        for (places, len) in filter.places_of_generations().into_iter().zip(lens) {
            if places > len.saturating_mul(hash_funcs.into()) {
                let limit = "at most the number that the generation's insertions can set";
                return Err(parameter("the number of cells of a generation", places, limit));
            }
        }
        Ok(filter)
    }
}

fn num_words(header: &Header) -> Result<u64, DecodeError> {
    let [per_generation, num_places, hash_funcs] = header.params;
    within("the number of keys per generation", per_generation, 1..=MAX_PLACES, "from 1 to 2^54")?;
    let is_wrong = !(64..=MAX_PLACES).contains(&num_places) || num_places % 64 != 0;
    refuse_if(is_wrong, "the number of cells", num_places, "a multiple of 64 up to 2^54")?;
    let is_wrong = !(1..=u64::from(MAX_HASH_FUNCS)).contains(&hash_funcs);
    refuse_if(is_wrong, "the number of hash functions", hash_funcs, "from 1 to 128")?;
    Ok(num_places / 32 + LINE_WORDS as u64)
}

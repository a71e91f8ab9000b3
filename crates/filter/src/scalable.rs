//! Scalable Bloom filter: stages of partitioned filters, each with twice the capacity of the
//! preceding stage.

use alloc::vec;
use alloc::vec::Vec;

use chainsieve_lanes::simd::prefetch;

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_if, refuse_nonzero,
};
use super::hashing::{KeyHasher, draw};
use super::membership::{Filter, Full, Insert};
use super::sizing::classic::{self, Slices};
use super::sizing::{BuildError, MAX_HASH_FUNCS, check_hash, checked, distinct, float, hash_bits};
use super::words::{LINE_WORDS, Words, count_ones};

/// A batch prefetches the memory of this many keys before it tests the first of these keys.
const CHUNK: usize = 32;
/// Number of slices per key that are prefetched. For most keys outside the set, one of the first
/// two bits is not set.
const AHEAD: u64 = 2;
/// Number of words in a stage's entry in the encoded form.
const LINE: usize = LINE_WORDS;
/// Greatest number of words in an encoded filter. No computer has memory for more words.
const MAX_WORDS: u64 = 1 << 48;

/// A filter for sets of unknown size, which grows and keeps its false-positive rate.
///
/// Keys are inserted into a stage until the stage has reached its capacity. Then a stage of twice
/// the capacity is added (Almeida, Baquero, Preguiça, Hutchison 2007: "Scalable Bloom Filters"). A
/// query searches every stage. Stages are partitioned: each has `k` slices, and a key sets one bit
/// in each slice.
///
/// **Why the rate holds.** A key that is not in the set is a false positive if any stage reports
/// it, so the rates of all stages add up. With the requested rate `p` and `r` = 0.8, stage `i` (0
/// is the first) is sized for the rate `pᵢ = p·(1-r)·rⁱ`:
///
/// - A stage of `k` slices of `s` bits with `n` keys has exactly the rate `(1 - (1 - 1/s)ⁿ)ᵏ`,
///   averaged over all hash functions. The reason is that each slice has the fraction `1 - (1 -
///   1/s)ⁿ` of its bits set on average, and that the positions in different slices and stages are
///   independent.
/// - A key that is already found sets no bit and is not counted. Until a stage of capacity `c` has
///   counted `c` keys, `c/(1 - pᵢ)` random keys are inserted on average. The slice size `s` is
///   chosen so that the rate is at most `pᵢ` even with `c/(1 - pᵢ)` keys.
/// - The total rate is `1 - Π(1 - pᵢ) ≤ Σpᵢ ≤ p·(1-r)·(1 + r + r² + …) = p`, for any number of
///   stages.
///
/// Other implementations often size the first stage for the rate `p` itself. The crate
/// `growable-bloom-filter` sizes its first stage for the rate `p`, with `r` = 0.85. The rates of
/// the stages of that crate's filters add up to `p/(1-r)`, which is 6.7 times the requested rate.
/// After a hundredfold growth of such a filter, the computed rate is 4.5 times the requested rate.
///
/// The proof ignores keys whose whole hash equals that of a key in the set (`n·2⁻⁶⁴`). The filter
/// returns [`Full`] before the rate of keys with equal hashes reaches a hundredth of `p`. The proof
/// holds for the mean rate over all hash functions: a particular small filter may have a rate above
/// or below this mean ([`expected_fpr`](Filter::expected_fpr)).
///
/// **When to use it.** If all three conditions hold: the number of keys is unknown beforehand, the
/// keys are not stored anywhere (so that no larger filter can be built from them), and the rate
/// must never exceed the promised rate.
///
/// **When not to use it, and what is better.** If the number of keys is known within a factor of
/// two, use a filter of that size: every stage costs another query, and a filter that has grown a
/// hundredfold takes 5.7 more bits per key, whatever the rate is. If the keys are stored elsewhere
/// (as those of a watch set are), build a larger filter from them, or grow shard by shard. The
/// filter supports neither removal nor merging.
///
/// **Cost.** A key of stage `i` takes `1.44·(log2(1/p) + 2.3 + 0.3·i)` bits, and the last stage may
/// be nearly empty. A query reads two cache lines per stage for a key that is not in the set. To
/// find a key in a stage, a query reads up to log2(1/p) + 7 cache lines.
///
/// # Examples
/// ```
/// use chainsieve_filter::scalable::ScalableBloomFilter;
/// use chainsieve_filter::{Filter, Insert, KeyHasher};
///
/// let mut filter = ScalableBloomFilter::with_fpr(100, 0.01, KeyHasher::random())?;
/// for key in 0..10_000_u32 {
///     filter.insert(&key.to_le_bytes())?;
/// }
/// assert_eq!(filter.num_stages(), 7);
/// assert!(filter.expected_fpr() < 0.01);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ScalableBloomFilter {
    hasher: KeyHasher,
    fpr: f64,
    max_stages: u32,
    /// The stages, the oldest and smallest first. There is at least one stage.
    stages: Vec<Stage>,
}

#[derive(Debug, Clone, PartialEq)]
struct Stage {
    /// The slices, one after another. Each slice has a whole number of words.
    words: Words,
    size: Slices,
    /// Index of the first of the hash's pseudo-random draws that this stage uses.
    first_draw: u64,
    capacity: u64,
    len: u64,
}

impl ScalableBloomFilter {
    /// Ratio of a stage's capacity to that of the preceding stage.
    pub const GROWTH: u64 = 2;
    /// Greatest number of stages. The last stage has 2²³ times the capacity of the first stage.
    pub const MAX_STAGES: u32 = 24;

    /// Creates a filter whose first stage has a capacity of `capacity` keys, and whose rate stays
    /// at most `fpr`, however much the filter grows.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1, if no filter can have this size and rate,
    /// or if there is no memory for the first stage.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let mut filter = Self { hasher, fpr, max_stages: Self::MAX_STAGES, stages: Vec::new() };
        check_hash(capacity, checked(fpr)?, 64)?;
        let first = filter.stage(0, capacity.max(1))?;
        filter.stages.push(first);
        Ok(filter)
    }

    /// Limits the number of stages. The filter returns [`Full`] when the last allowed stage has
    /// reached its capacity.
    ///
    /// The limit is at most [`MAX_STAGES`](Self::MAX_STAGES), and at least the number of stages
    /// that exist.
    #[must_use]
    pub fn with_max_stages(mut self, max_stages: u32) -> Self {
        self.max_stages = max_stages.clamp(self.num_stages(), Self::MAX_STAGES);
        self
    }

    /// Returns the rate for which the filter was created.
    pub const fn fpr(&self) -> f64 {
        self.fpr
    }

    /// Returns the number of stages.
    pub fn num_stages(&self) -> u32 {
        u32::try_from(self.stages.len()).unwrap_or(u32::MAX)
    }

    /// Returns the total capacity of the existing stages, in keys.
    pub fn capacity(&self) -> u64 {
        self.stages.iter().map(|stage| stage.capacity).sum()
    }

    /// Returns the number of keys, the capacity and the size of each stage, the oldest first.
    pub fn stages(&self) -> impl Iterator<Item = (u64, u64, Slices)> {
        self.stages.iter().map(|stage| (stage.len, stage.capacity, stage.size))
    }

    fn stage(&self, index: u32, capacity: u64) -> Result<Stage, BuildError> {
        let fpr = classic::stage_fpr(self.fpr, index);
        // Keys that are already found are not counted. So on average, `offered` random keys are
        // inserted until `capacity` new keys have been counted.
        let offered = libm::ceil(float(capacity) / (1.0 - fpr));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let offered = offered as u64;
        let Slices { slice_bits, hash_funcs } = classic::slices(offered, fpr)?;
        let size = Slices { slice_bits: slice_bits.next_multiple_of(64), hash_funcs };
        let words = Words::zeroed(size.num_bits() / 64)?;
        Ok(Stage { words, size, first_draw: first_draw(index), capacity, len: 0 })
    }

    /// Returns the stage into which the next key is inserted, and adds a stage if the last stage
    /// has reached its capacity.
    fn open_stage(&mut self) -> Result<&mut Stage, Full> {
        let capacities = self.capacity();
        let full = Full::new(self.len(), capacities);
        let last = self.stages.last().ok_or(full)?;
        if last.len == last.capacity {
            let capacity = last.capacity.checked_mul(Self::GROWTH).ok_or(full)?;
            let all = capacities.saturating_add(capacity);
            // The filter is full if another stage is not allowed, or if the keys of the stage would
            // make collisions of 64-bit hashes exceed a hundredth of the rate.
            if self.num_stages() >= self.max_stages || hash_bits(all, self.fpr) > 64 {
                return Err(full);
            }
            let next = self.stage(self.num_stages(), capacity).map_err(|_| full)?;
            self.stages.push(next);
        }
        self.stages.last_mut().ok_or(full)
    }

    fn num_words(&self) -> u64 {
        self.stages.iter().map(|stage| stage.words.as_ref().len() as u64).sum()
    }
}

/// Returns the index of a stage's first pseudo-random draw. Stages use different draws of a hash,
/// so that their positions are independent.
const fn first_draw(stage: u32) -> u64 {
    stage as u64 * MAX_HASH_FUNCS as u64
}

impl Stage {
    /// Returns the word and the bit of a key in a slice.
    #[inline]
    fn place(&self, hash: u64, slice: u64) -> (usize, u64) {
        let bits = self.size.slice_bits;
        let bit = slice * bits + draw(hash, self.first_draw + slice, bits);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let words = self.words.as_ref();
        (0..self.size.hash_funcs.into()).all(|slice| {
            let (word, bit) = self.place(hash, slice);
            words[word] & bit != 0
        })
    }

    fn insert(&mut self, hash: u64) {
        for slice in 0..self.size.hash_funcs.into() {
            let (word, bit) = self.place(hash, slice);
            self.words.as_mut()[word] |= bit;
        }
        self.len += 1;
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        for slice in 0..AHEAD.min(self.size.hash_funcs.into()) {
            prefetch(&self.words.as_ref()[self.place(hash, slice).0]);
        }
    }

    /// Returns the number of set bits in each slice.
    fn ones(&self) -> impl Iterator<Item = u64> {
        let slice_words = usize::try_from(self.size.slice_bits / 64).unwrap_or(usize::MAX);
        self.words.as_ref().chunks(slice_words).map(count_ones)
    }

    /// Computes the rate from the bits that are set: the probability that a key's bit is set in
    /// every slice.
    fn fpr(&self) -> f64 {
        self.ones().map(|ones| float(ones) / float(self.size.slice_bits)).product()
    }

    /// Estimates the number of keys from the bits that are set. Returns `None` if all bits are set.
    fn estimated_len(&self) -> Option<f64> {
        let fill = float(self.ones().sum()) / float(self.size.num_bits());
        distinct(fill, 1.0 / float(self.size.slice_bits))
    }
}

impl Filter for ScalableBloomFilter {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        // About half of all keys are in the newest stage, so it is searched first.
        self.stages.iter().rev().any(|stage| stage.contains(hash))
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        may_contain.fill(false);
        for (hashes, answers) in hashes.chunks(CHUNK).zip(may_contain.chunks_mut(CHUNK)) {
            for stage in self.stages.iter().rev() {
                for (answer, hash) in answers.iter().zip(hashes) {
                    if !answer {
                        stage.prefetch(*hash);
                    }
                }
                for (answer, hash) in answers.iter_mut().zip(hashes) {
                    *answer = *answer || stage.contains(*hash);
                }
            }
        }
    }

    /// Returns the number of keys that were certainly new when they were inserted. A key that was
    /// already found is not inserted again.
    fn len(&self) -> u64 {
        self.stages.iter().map(|stage| stage.len).sum()
    }

    fn num_bits(&self) -> u64 {
        self.num_words() * 64
    }

    fn fill(&self) -> f64 {
        let ones = self.stages.iter().flat_map(Stage::ones).sum();
        float(ones) / float(self.num_bits())
    }

    fn expected_fpr(&self) -> f64 {
        classic::compound_fpr(self.stages.iter().map(Stage::fpr)).min(1.0)
    }

    fn estimated_len(&self) -> Option<f64> {
        self.stages.iter().map(Stage::estimated_len).sum()
    }
}

impl Insert for ScalableBloomFilter {
    /// Inserts a key unless it is already found. Returns [`Full`] if the last allowed stage has
    /// reached its capacity, if collisions of 64-bit hashes would exceed a hundredth of the rate,
    /// or if there is no memory for another stage.
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        // Inserting a key that is already found would use up capacity for nothing.
        if self.contains_hash(hash) {
            return Ok(false);
        }
        self.open_stage()?.insert(hash);
        Ok(true)
    }

    fn clear(&mut self) {
        self.stages.truncate(1);
        for stage in &mut self.stages {
            stage.words.as_mut().fill(0);
            stage.len = 0;
        }
    }
}

/// The parameters in the encoded header are: the bits of the rate as a double; the number of stages
/// (lower half) and the greatest number allowed (upper half); the number of words in the body.
///
/// The body starts with an entry of eight words for each stage: number of keys, capacity, bits per
/// slice, number of slices, and four zeros. The slices of all stages follow.
impl Portable for ScalableBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let line = |stage: &Stage| {
            let Slices { slice_bits, hash_funcs } = stage.size;
            [stage.len, stage.capacity, slice_bits, hash_funcs.into(), 0, 0, 0, 0]
        };
        let lines: Vec<_> = self.stages.iter().flat_map(line).collect();
        let num_stages = u64::from(self.num_stages()) | u64::from(self.max_stages) << 32;
        let num_words = lines.len() as u64 + self.num_words();
        let params = [self.fpr.to_bits(), num_stages, num_words];
        let header = Header { kind: Kind::Scalable, hasher: self.hasher, len: self.len(), params };
        let mut body = vec![lines.as_slice()];
        body.extend(self.stages.iter().map(|stage| stage.words.as_ref()));
        header.encode(&body)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Scalable, |header| {
            let (num_stages, _, num_words) = checked_params(header)?;
            if num_words <= u64::from(num_stages) * LINE as u64 || num_words > MAX_WORDS {
                let limit = "more than the words of the stages' entries, and at most 2^48";
                return Err(parameter("the number of words", num_words, limit));
            }
            Ok(num_words)
        })?;
        let Header { hasher, len, params: [fpr, ..], .. } = opened.header;
        let (num_stages, max_stages, _) = checked_params(&opened.header)?;
        let fpr = f64::from_bits(fpr);
        let mut filter = Self { hasher, fpr, max_stages, stages: Vec::new() };
        let mut from = num_stages as usize * LINE;
        let lines = opened.some_words(0..from)?;
        for (index, line) in (0..).zip(lines.as_ref().as_chunks::<LINE>().0) {
            let stage = filter.read_stage(index, *line)?;
            // The stage has fewer than 2⁵⁶ bits.
            let num_words = usize::try_from(stage.size.num_bits() / 64).unwrap_or(usize::MAX);
            let to = from.saturating_add(num_words);
            if to > opened.num_words() {
                let limit = "within the body";
                return Err(parameter("the number of words of a stage", num_words as u64, limit));
            }
            let stage = Stage { words: opened.some_words(from..to)?, ..stage };
            if stage.ones().any(|ones| ones > stage.len) {
                let limit = "at least the number of bits set in each slice";
                return Err(parameter("the number of keys of a stage", stage.len, limit));
            }
            filter.stages.push(stage);
            from = to;
        }
        if from != opened.num_words() {
            let (value, limit) = (opened.num_words() as u64, "the sum over all stages");
            return Err(parameter("the number of words", value, limit));
        }
        refuse_if(filter.len() != len, "the number of keys", len, "the sum over all stages")?;
        Ok(filter)
    }
}

impl ScalableBloomFilter {
    /// Decodes a stage's entry into a stage without its words.
    fn read_stage(&self, index: u32, line: [u64; LINE]) -> Result<Stage, DecodeError> {
        let [len, capacity, slice_bits, hash_funcs, zeros @ ..] = line;
        refuse_nonzero(zeros != [0; 4], "the last four words of a stage's entry")?;
        let before = self.stages.last();
        let follows = before.map_or(capacity > 0 && capacity < 1 << 56, |before| {
            before.len == before.capacity
                && before.capacity.checked_mul(Self::GROWTH) == Some(capacity)
        });
        let limit = "twice the capacity of the preceding stage, which must be full";
        refuse_if(!follows, "the capacity of a stage", capacity, limit)?;
        let least = u64::from(before.is_some());
        let is_wrong = len > capacity || len < least;
        refuse_if(is_wrong, "the number of keys of a stage", len, "from 1 to its capacity")?;
        let slices = u32::try_from(hash_funcs).ok();
        let slices = slices.filter(|slices| (1..=MAX_HASH_FUNCS).contains(slices));
        let wrong = parameter("the number of slices", hash_funcs, "from 1 to 128");
        let hash_funcs = slices.ok_or(wrong)?;
        if !(64..1 << 48).contains(&slice_bits) || slice_bits % 64 != 0 {
            let limit = "a multiple of 64 below 2^48";
            return Err(parameter("the number of bits of a slice", slice_bits, limit));
        }
        let size = Slices { slice_bits, hash_funcs };
        // The whole filter keeps its promised rate only if each stage keeps the rate that was
        // planned for the stage. The tolerance allows for rounding in the last digits.
        let promised = classic::stage_fpr(self.fpr, index);
        if classic::slices_fpr(capacity, size) > promised * (1.0 + 1e-9) {
            let limit = "enough for the rate of the stage";
            return Err(parameter("the number of bits of a slice", slice_bits, limit));
        }
        let words = Words::zeroed(0)?;
        Ok(Stage { words, size, first_draw: first_draw(index), capacity, len })
    }
}

/// Checks the header, and returns the number of stages, the greatest number allowed, and the number
/// of words.
fn checked_params(header: &Header) -> Result<(u32, u32, u64), DecodeError> {
    let [fpr, num_stages, num_words] = header.params;
    let rate = f64::from_bits(fpr);
    let is_wrong = !(rate > 0.0 && rate < 1.0);
    refuse_if(is_wrong, "the rate's bits", fpr, "those of a number between 0 and 1")?;
    let [stages, most] = [num_stages & u64::from(u32::MAX), num_stages >> 32];
    let max = u64::from(ScalableBloomFilter::MAX_STAGES);
    match (u32::try_from(stages), u32::try_from(most)) {
        (Ok(num), Ok(most_stages)) if stages >= 1 && stages <= most && most <= max => {
            Ok((num, most_stages, num_words))
        }
        _ => Err(parameter("the number of stages", num_stages, "from 1 to a limit of at most 24")),
    }
}

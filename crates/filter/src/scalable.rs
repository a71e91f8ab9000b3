//! Scalable Bloom filter: stages of partitioned filters, each twice as large as the one before.

use alloc::vec;
use alloc::vec::Vec;

use chainsieve_lanes::simd::prefetch;

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::{KeyHasher, draw};
use super::kind::Kind;
use super::membership::{Filter, Full, Insert};
use super::sizing::{
    MAX_HASH_FUNCS, SizingError, check_hash, checked, distinct, float, hash_bits, partitioned,
    stages,
};
use super::words::{LINE_WORDS, Words, count_ones};

/// Keys of a batch whose memory is asked for before the first is tested.
const CHUNK: usize = 32;
/// Slices of each of them that are asked for: a stranger is known by the first two, mostly.
const AHEAD: u64 = 2;
/// Words of a stage's line in the bytes.
const LINE: usize = LINE_WORDS;
const MAX_WORDS: u64 = 1 << 48;

/// A filter for sets of unknown size: it grows, and keeps its rate.
///
/// Keys go into a stage until that has taken its capacity; then a stage of twice the capacity is
/// added (Almeida, Baquero, Preguiça, Hutchison 2007: "Scalable Bloom Filters"). A key is sought in
/// every stage. Stages are partitioned: `k` slices, a bit of a key in each.
///
/// **The rate that holds.** A stranger is found if any stage finds it, so the rates of all stages
/// add up. With `p` asked for and `r` = 0.8, stage `i` (0 is the first) is sized for
/// `p·(1-r)·rⁱ`:
///
/// - A stage of `k` slices of `s` bits with `n` keys has the rate `(1 - (1 - 1/s)ⁿ)ᵏ`, exactly in
///   the mean over hash functions: each slice has the share `1 - (1 - 1/s)ⁿ` of its bits set on
///   average, and slices take draws of the hash that don't depend on each other, nor on those of
///   other stages. `s` is chosen so that this is at most `pᵢ = p·(1-r)·rⁱ` for `n` of the stage's
///   capacity divided by `1 - pᵢ`. A key that is found already sets no bit and is not counted, so
///   that a stage has the bits of more random keys than it counts: of so many, in the mean, when
///   it is full.
/// - A stranger is found with chance `1 - Π(1 - pᵢ) ≤ Σpᵢ ≤ p·(1-r)·(1 + r + r² + …) = p`,
///   however many stages there are.
///
/// It is the first stage where others go wrong: a first stage of rate `p`, as in the crate
/// `growable-bloom-filter` with `r` = 0.85, adds up to `p/(1-r)`, which is 6.7 times the rate asked
/// for; after growing a hundredfold 4.5 times by computation.
/// What the proof leaves out are strangers that share a whole hash with a key (`n·2⁻⁶⁴`): before
/// these make a hundredth of `p` the filter is full. And it is about the mean: a certain small
/// filter may have more or less ([`expected_fpr`](Filter::expected_fpr)).
///
/// **When to use it.** Where nobody can say the size beforehand, keys are not kept anywhere to
/// build a larger filter from, and a stranger must not be found more often than promised.
///
/// **When not, and what beats it.** If the number of keys is known within a factor of two, a
/// filter of that size: every stage costs another probe, and a hundredfold growth takes 5.7 bits a
/// key more at any rate. If keys are kept elsewhere (a watch set's are), rebuild a larger filter
/// from them, or grow shard by shard. No removal, no merging.
///
/// **What it costs.** `1.44·(log2(1/p) + 2.3 + 0.3·i)` bits for a key of stage `i`, the last stage
/// perhaps nearly empty. Two lines of memory for each stage to see that a key is not there, up to
/// log2(1/p) + 7 to find one.
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
    /// The oldest and smallest first; at least one.
    stages: Vec<Stage>,
}

#[derive(Debug, Clone, PartialEq)]
struct Stage {
    /// Slices, one behind the other, of whole words.
    words: Words,
    size: partitioned::Size,
    /// The number of its first draw of a hash.
    first_draw: u64,
    capacity: u64,
    len: u64,
}

impl ScalableBloomFilter {
    /// Each stage holds this many times the keys of the one before.
    pub const GROWTH: u64 = 2;
    /// The most stages that there are: the last holds 2²³ times the keys of the first.
    pub const MAX_STAGES: u32 = 24;

    /// A filter that begins with room for `capacity` keys, and has at most a rate of `fpr` however
    /// much it grows.
    ///
    /// # Errors
    /// If there is no such filter.
    pub fn with_fpr(capacity: u64, fpr: f64, hasher: KeyHasher) -> Result<Self, SizingError> {
        let mut filter = Self { hasher, fpr, max_stages: Self::MAX_STAGES, stages: Vec::new() };
        check_hash(capacity, checked(fpr)?, 64)?;
        let first = filter.stage(0, capacity.max(1))?;
        filter.stages.push(first);
        Ok(filter)
    }

    /// The same filter, which is [`Full`] when so many stages are. From 1 to
    /// [`MAX_STAGES`](Self::MAX_STAGES); it keeps those that it has.
    #[must_use]
    pub fn with_max_stages(mut self, max_stages: u32) -> Self {
        self.max_stages = max_stages.clamp(self.num_stages(), Self::MAX_STAGES);
        self
    }

    /// The rate that it was made for.
    pub const fn fpr(&self) -> f64 {
        self.fpr
    }

    /// How many stages there are.
    pub fn num_stages(&self) -> u32 {
        u32::try_from(self.stages.len()).unwrap_or(u32::MAX)
    }

    /// The keys that the present stages have room for.
    pub fn capacity(&self) -> u64 {
        self.stages.iter().map(|stage| stage.capacity).sum()
    }

    /// Each stage: how many keys it has, how many it takes, its size. The oldest first.
    pub fn stages(&self) -> impl Iterator<Item = (u64, u64, partitioned::Size)> {
        self.stages.iter().map(|stage| (stage.len, stage.capacity, stage.size))
    }

    fn stage(&self, index: u32, capacity: u64) -> Result<Stage, SizingError> {
        let fpr = stages::stage_fpr(self.fpr, stages::TIGHTENING, index);
        // Keys that are found already are not counted: so many random ones bring `capacity` new.
        let offered = libm::ceil(float(capacity) / (1.0 - fpr));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let offered = offered as u64;
        let partitioned::Size { slice_bits, hash_funcs } = partitioned::size(offered, fpr)?;
        let size = partitioned::Size { slice_bits: slice_bits.next_multiple_of(64), hash_funcs };
        let words = Words::zeroed(size.num_bits() / 64)?;
        Ok(Stage { words, size, first_draw: first_draw(index), capacity, len: 0 })
    }

    /// The stage that takes a key now.
    fn open_stage(&mut self) -> Result<&mut Stage, Full> {
        let capacities = self.capacity();
        let full = Full::new(self.len(), capacities);
        let last = self.stages.last().ok_or(full)?;
        if last.len == last.capacity {
            let capacity = last.capacity.checked_mul(Self::GROWTH).ok_or(full)?;
            let all = capacities.saturating_add(capacity);
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

/// Stages take other draws of a hash, so that they don't depend on each other.
const fn first_draw(stage: u32) -> u64 {
    stage as u64 * MAX_HASH_FUNCS as u64
}

impl Stage {
    /// The word and bit of a key in a slice.
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

    /// How many bits of each slice are set.
    fn ones(&self) -> impl Iterator<Item = u64> {
        let slice_words = usize::try_from(self.size.slice_bits / 64).unwrap_or(usize::MAX);
        self.words.as_ref().chunks(slice_words).map(count_ones)
    }

    /// The rate by the bits that are set: a stranger's bit is set in each slice.
    fn fpr(&self) -> f64 {
        self.ones().map(|ones| float(ones) / float(self.size.slice_bits)).product()
    }

    /// Keys by the bits that are set; `None` if all are.
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
        // Half of all keys are in the newest.
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

    /// Keys that were certainly new when they came. Others are not inserted: they are found
    /// already.
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
        stages::compound_fpr(self.stages.iter().map(Stage::fpr)).min(1.0)
    }

    fn estimated_len(&self) -> Option<f64> {
        self.stages.iter().map(Stage::estimated_len).sum()
    }
}

impl Insert for ScalableBloomFilter {
    /// Full when the last of the stages is that may be, or when there is no memory for another.
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
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

/// Parameters: the rate as a double's bits; stages in the low half and the most of them in the
/// high; words of the body. Body: a line of eight words for each stage (keys, capacity, bits of a
/// slice, slices, zeros), then the stages' slices.
impl Portable for ScalableBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let line = |stage: &Stage| {
            let partitioned::Size { slice_bits, hash_funcs } = stage.size;
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
                let limit = "more than the stages' lines, and up to 2^48";
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
            // Below 2⁵⁶.
            let num_words = usize::try_from(stage.size.num_bits() / 64).unwrap_or(usize::MAX);
            let to = from.saturating_add(num_words);
            if to > opened.num_words() {
                let limit = "as many as the body has";
                return Err(parameter("the words of a stage", num_words as u64, limit));
            }
            let stage = Stage { words: opened.some_words(from..to)?, ..stage };
            if stage.ones().any(|ones| ones > stage.len) {
                let limit = "at least the bits set in a slice";
                return Err(parameter("the keys of a stage", stage.len, limit));
            }
            filter.stages.push(stage);
            from = to;
        }
        if from != opened.num_words() {
            let (value, limit) = (opened.num_words() as u64, "as many as the stages have");
            return Err(parameter("the number of words", value, limit));
        }
        if filter.len() != len {
            return Err(parameter("the number of keys", len, "the sum of the stages'"));
        }
        Ok(filter)
    }
}

impl ScalableBloomFilter {
    /// A stage without its words, for a line of the bytes.
    fn read_stage(&self, index: u32, line: [u64; LINE]) -> Result<Stage, DecodeError> {
        let [len, capacity, slice_bits, hash_funcs, zeros @ ..] = line;
        if zeros != [0; 4] {
            return Err(DecodeError::NotZero("the end of a stage's line"));
        }
        let before = self.stages.last();
        let follows = before.map_or(capacity > 0 && capacity < 1 << 56, |before| {
            before.len == before.capacity
                && before.capacity.checked_mul(Self::GROWTH) == Some(capacity)
        });
        if !follows {
            let limit = "twice the one before's, which is full";
            return Err(parameter("the capacity of a stage", capacity, limit));
        }
        let least = u64::from(before.is_some());
        if len > capacity || len < least {
            return Err(parameter("the keys of a stage", len, "up to its capacity"));
        }
        let slices = u32::try_from(hash_funcs).ok();
        let slices = slices.filter(|slices| (1..=MAX_HASH_FUNCS).contains(slices));
        let Some(hash_funcs) = slices else {
            return Err(parameter("the number of slices", hash_funcs, "from 1 to 128"));
        };
        if !(64..1 << 48).contains(&slice_bits) || slice_bits % 64 != 0 {
            let limit = "multiples of 64 below 2^48";
            return Err(parameter("the bits of a slice", slice_bits, limit));
        }
        let size = partitioned::Size { slice_bits, hash_funcs };
        // What the rate promised rests on; rounding differs in the last digits.
        let promised = stages::stage_fpr(self.fpr, stages::TIGHTENING, index);
        if partitioned::fpr(capacity, size) > promised * (1.0 + 1e-9) {
            let limit = "enough for the rate of the stage";
            return Err(parameter("the bits of a slice", slice_bits, limit));
        }
        let words = Words::zeroed(0)?;
        Ok(Stage { words, size, first_draw: first_draw(index), capacity, len })
    }
}

/// Stages, the most of them, and words.
fn checked_params(header: &Header) -> Result<(u32, u32, u64), DecodeError> {
    let [fpr, num_stages, num_words] = header.params;
    let rate = f64::from_bits(fpr);
    if !(rate > 0.0 && rate < 1.0) {
        return Err(parameter("the rate's bits", fpr, "a number between 0 and 1"));
    }
    let [stages, most] = [num_stages & u64::from(u32::MAX), num_stages >> 32];
    let max = u64::from(ScalableBloomFilter::MAX_STAGES);
    match (u32::try_from(stages), u32::try_from(most)) {
        (Ok(num), Ok(most_stages)) if stages >= 1 && stages <= most && most <= max => {
            Ok((num, most_stages, num_words))
        }
        _ => Err(parameter("the number of stages", num_stages, "from 1 to at most 24")),
    }
}

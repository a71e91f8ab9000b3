//! Count-min sketch: estimates how often keys occurred, in memory that does not depend on the
//! number of keys.

use alloc::vec::Vec;

use chainsieve_lanes::names;
use chainsieve_lanes::simd::prefetch;

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_nonzero, within,
};
use super::hashing::{KeyHasher, draw};
use super::membership::{Filter, Full, Insert, Merge, MergeError, contains_in_chunks};
use super::sizing::{BuildError, MAX_HASH_FUNCS, classic, distinct, float};
use super::words::Words;

/// Greatest number of counters in a row. With this limit, the sum of a row's 32-bit counters is
/// below 2⁶⁴.
const MAX_WIDTH: u64 = 1 << 32;
/// Number of rows per key that a batch prefetches. For most keys that never occurred, one of the
/// first two counters is zero, and the remaining rows are not read.
const AHEAD: u32 = 2;
/// The bit of the second parameter that marks conservative updates.
const CONSERVATIVE: u64 = 1 << 32;

/// A count-min sketch, which estimates how often a key occurred and never estimates too low.
///
/// Source: Cormode and Muthukrishnan 2005, "An Improved Data Stream Summary: The Count-Min Sketch
/// and its Applications". The sketch has `depth` rows of `width` 32-bit counters. A key has one
/// counter in each row. The estimate is the lowest of these counters, because the higher counters
/// also counted more occurrences of other keys.
///
/// **What an estimate means.** The estimate is never below the true count. With `width` = ⌈e/ε⌉ and
/// `depth` = ⌈ln(1/δ)⌉, the estimate exceeds the true count by more than `ε` times the sum of all
/// counts ([`total`](Self::total)) with a probability of at most `δ`. This bound holds for any
/// keys: the mean error of a row is at most `total/width`, so a row's error is above
/// `e·total/width` with a probability of at most `1/e`, and the rows are independent. If a few keys
/// make up most of the counts, the error is far smaller.
///
/// A counter that reaches [`u32::MAX`] keeps this value, so the true count may then be higher. Keys
/// with equal hashes are counted together. In a stream of `n` distinct keys, a key has the same
/// hash as another key with a probability of `n·2⁻⁶⁴`, unless an attacker who knows the hash
/// chooses the keys.
///
/// **Conservative update** ([`UpdateRule::Conservative`]; Estan and Varghese 2002: "New Directions
/// in Traffic Measurement and Accounting"): an addition raises only those counters of a key that
/// are below the new estimate. Estimates are never higher than with plain updates, and usually far
/// lower. Conservative updates have two disadvantages. The result depends on the order of the keys.
/// And a merge of two sketches does not give the sketch that counts both streams: the estimates of
/// the merged sketch are usually higher, but never below the true counts.
///
/// **When to use it.** To find frequent keys in a stream with more keys than fit into memory:
/// values that occur in every block and so select nothing, sources that send too much, or keys that
/// deserve room in a cache.
///
/// **When not to use it, and what is better.** If the keys fit into a hash table, use one, because
/// it is exact. For the question whether a key occurred before, a
/// [`RollingBloomFilter`](super::rolling::RollingBloomFilter) needs less memory. The sketch is
/// unsuitable for rare keys among many, because their error depends on the whole stream. Counts
/// can't be subtracted.
///
/// **Cost.** `32·⌈e/ε⌉·⌈ln(1/δ)⌉` bits: 1.09 MB for `ε` = 0.01 % and `δ` = 0.01 % (27,183 counters
/// by 10 rows). Each addition and each estimate reads `depth` cache lines.
///
/// # Examples
/// ```
/// use chainsieve_filter::KeyHasher;
/// use chainsieve_filter::count_min::{CountMin, UpdateRule};
///
/// let mut seen = CountMin::with_error(0.001, 0.01, UpdateRule::Conservative, KeyHasher::random())?;
/// for block in 0..1_000_u32 {
///     seen.add(b"in every block", 1);
///     seen.add(&block.to_le_bytes(), 1);
/// }
/// assert!(seen.estimate(b"in every block") >= 1_000);
/// assert_eq!(seen.total(), 2_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The next example is a cache that admits a key at its hundredth request. (For the second request
/// a rolling Bloom filter is sufficient: see the example `second_request` of `chainsieve`.) The
/// sketch takes 5 MB for any number of keys, and is cleared after a million requests, because
/// counts that are never forgotten would finally admit every key. Within each million requests,
/// every key is admitted at its hundredth request or earlier. A key with fewer than 90 requests is
/// admitted with a probability of at most 1 %.
/// ```
/// use chainsieve_filter::count_min::{CountMin, UpdateRule};
/// use chainsieve_filter::{Insert, KeyHasher};
///
/// let mut door = CountMin::with_error(1e-5, 0.01, UpdateRule::Conservative, KeyHasher::random())?;
/// let mut admits = |key: &[u8]| {
///     if door.total() == 1_000_000 {
///         door.clear();
///     }
///     door.add(key, 1) >= 100
/// };
/// assert!((1..100).all(|_| !admits(b"a transaction")));
/// assert!(admits(b"a transaction"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountMin {
    hasher: KeyHasher,
    /// The counters, row after row. A word has two counters, the first in its low half.
    words: Words,
    width: u64,
    depth: u32,
    update: UpdateRule,
    total: u64,
}

/// The rule by which an addition raises the counters of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateRule {
    /// Raises all counters by the same number. Merging two sketches gives exactly the sketch of
    /// both streams.
    Plain,
    /// Raises only the counters below the new estimate, up to that estimate. Estimates are lower
    /// than with plain updates.
    Conservative,
}

names! { UpdateRule, "a rule of updates": Plain = "plain", Conservative = "conservative" }

impl CountMin {
    /// Creates a sketch for a given error: an estimate exceeds the true count by more than
    /// `epsilon` times the sum of all counts with a probability of at most `delta`.
    ///
    /// The sketch has ⌈ln(1/`delta`)⌉ rows of ⌈e/`epsilon`⌉ counters.
    ///
    /// # Errors
    /// Returns an error if `epsilon` or `delta` is not between 0 and 1, if `epsilon` is below
    /// 6.33·10⁻¹⁰ (e/2³²), if `delta` is below e⁻¹²⁸, or if there is no memory for the sketch.
    pub fn with_error(
        epsilon: f64,
        delta: f64,
        update: UpdateRule,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        for (what, value) in [("a relative error", epsilon), ("a probability", delta)] {
            if !(value > 0.0 && value < 1.0) {
                return Err(BuildError::Share { what, value });
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let [width, depth] =
            [core::f64::consts::E / epsilon, -libm::log(delta)].map(|x| libm::ceil(x) as u64);
        // A depth beyond `u32` is invalid anyway: `with_size` rejects such a depth.
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        Self::with_size(width, depth, update, hasher)
    }

    /// Creates a sketch of `depth` rows, from 1 to 128, with `width` counters each, from 1 to 2³².
    ///
    /// # Errors
    /// Returns an error if `width` or `depth` is out of range, or if there is no memory for the
    /// sketch.
    pub fn with_size(
        width: u64,
        depth: u32,
        update: UpdateRule,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        BuildError::unless_within("a number of counters per row", width, MAX_WIDTH)?;
        BuildError::unless_within("a number of rows", depth.into(), MAX_HASH_FUNCS.into())?;
        let words = Words::zeroed(num_words(width, depth))?;
        Ok(Self { hasher, words, width, depth, update, total: 0 })
    }

    /// Adds `n` to the count of a key, and returns the new estimate.
    #[inline]
    pub fn add(&mut self, key: &[u8], n: u32) -> u32 {
        self.add_hash(self.hasher.hash(key), n)
    }

    /// Adds `n` to the count of the key with this hash, and returns the new estimate.
    pub fn add_hash(&mut self, hash: u64, n: u32) -> u32 {
        self.total = self.total.saturating_add(n.into());
        let raised = self.estimate_hash(hash).saturating_add(n);
        for row in 0..self.depth {
            let (word, shift) = self.place(hash, row);
            let word = &mut self.words.as_mut()[word];
            let before = half(*word, shift);
            let after = match self.update {
                UpdateRule::Plain => before.saturating_add(n),
                UpdateRule::Conservative => before.max(raised),
            };
            *word ^= u64::from(before ^ after) << shift;
        }
        // The counter that was lowest before the addition is still the lowest.
        raised
    }

    /// Estimates the count of a key. The estimate is never below the true count, unless the
    /// counters have reached [`u32::MAX`].
    #[inline]
    pub fn estimate(&self, key: &[u8]) -> u32 {
        self.estimate_hash(self.hasher.hash(key))
    }

    /// Estimates the count of the key with this hash, as [`estimate`](Self::estimate) does.
    #[inline]
    pub fn estimate_hash(&self, hash: u64) -> u32 {
        let words = self.words.as_ref();
        let counts = (0..self.depth).map(|row| {
            let (word, shift) = self.place(hash, row);
            half(words[word], shift)
        });
        counts.min().unwrap_or_default()
    }

    /// Returns the sum of all counts.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the error bound: e/`width` times the sum of all counts. An estimate exceeds the true
    /// count by more than this bound with a probability of at most e to the power of
    /// −[`depth`](Self::depth).
    pub fn error_bound(&self) -> f64 {
        core::f64::consts::E / float(self.width) * float(self.total)
    }

    /// Returns the number of counters in a row.
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// Returns the number of rows, which is the number of counters of a key.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the rule by which an addition raises counters.
    pub const fn update(&self) -> UpdateRule {
        self.update
    }

    /// Returns the word of a key's counter in a row, and the bit of the word at which the counter
    /// starts.
    #[inline]
    fn place(&self, hash: u64, row: u32) -> (usize, u32) {
        let at = u64::from(row) * self.width + draw(hash, row.into(), self.width);
        ((at / 2) as usize, (at % 2) as u32 * 32)
    }

    /// Returns the counters, row after row.
    fn counters(&self) -> impl Iterator<Item = u32> {
        let halves = self.words.as_ref().iter().flat_map(|word| [half(*word, 0), half(*word, 32)]);
        let count = usize::try_from(self.width * u64::from(self.depth)).unwrap_or(usize::MAX);
        halves.take(count)
    }

    /// Returns for each row the number of counters that are not zero, the sum of the counters, and
    /// `true` if a counter has reached its maximum.
    fn rows(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        let mut counters = self.counters();
        (0..self.depth).map(move |_| {
            let (mut occupied, mut sum, mut is_full) = (0, 0, false);
            for _ in 0..self.width {
                let counter = counters.next().unwrap_or_default();
                occupied += u64::from(counter != 0);
                sum += u64::from(counter);
                is_full |= counter == u32::MAX;
            }
            (occupied, sum, is_full)
        })
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "half of a word")]
const fn half(word: u64, shift: u32) -> u32 {
    (word >> shift) as u32
}

/// Returns the number of words in `depth` rows of `width` counters.
const fn num_words(width: u64, depth: u32) -> u64 {
    (width * depth as u64).div_ceil(2)
}

/// As a filter, the sketch is the set of keys that were counted at least once.
impl Filter for CountMin {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        let words = self.words.as_ref();
        (0..self.depth).all(|row| {
            let (word, shift) = self.place(hash, row);
            half(words[word], shift) != 0
        })
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        let (words, ahead) = (self.words.as_ref(), AHEAD.min(self.depth));
        let first = |hash| (0..ahead).for_each(|row| prefetch(&words[self.place(hash, row).0]));
        contains_in_chunks(hashes, may_contain, first, |hash| self.contains_hash(hash));
    }

    /// Returns the sum of all counts.
    fn len(&self) -> u64 {
        self.total
    }

    fn num_bits(&self) -> u64 {
        self.width * u64::from(self.depth) * 32
    }

    /// Returns the fraction of counters that are not zero.
    fn fill(&self) -> f64 {
        let occupied = self.rows().map(|(occupied, ..)| occupied).sum();
        classic::share(occupied, self.width * u64::from(self.depth))
    }

    /// Returns the probability that a key that was never counted has an estimate above zero.
    fn expected_fpr(&self) -> f64 {
        self.rows().map(|(occupied, ..)| classic::share(occupied, self.width)).product()
    }

    /// Estimates the number of distinct keys from the fraction of counters that are not zero.
    fn estimated_len(&self) -> Option<f64> {
        distinct(self.fill(), 1.0 / float(self.width))
    }
}

impl Insert for CountMin {
    /// Adds 1 to the count of the key with this hash. Returns `true` if the key was certainly never
    /// counted before.
    fn insert_hash(&mut self, hash: u64) -> Result<bool, Full> {
        let is_new = !self.contains_hash(hash);
        self.add_hash(hash, 1);
        Ok(is_new)
    }

    fn clear(&mut self) {
        self.words.as_mut().fill(0);
        self.total = 0;
    }
}

impl Merge for CountMin {
    /// Adds the counters of `other`, which must have the same shape, update rule and hasher.
    ///
    /// With plain updates, the result is exactly the sketch of both streams. With conservative
    /// updates, estimates are still never too low, and their error is not greater than with plain
    /// updates. But the estimates of the merged sketch are usually higher than those of one sketch
    /// that counted both streams.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("the number of counters per row", self.width, other.width)?;
        MergeError::unless_equal("the number of rows", self.depth.into(), other.depth.into())?;
        let (ours, theirs) = (self.update as u64, other.update as u64);
        MergeError::unless_equal("the update rule (1 is conservative)", ours, theirs)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        for (word, with) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            let sum = |shift| half(*word, shift).saturating_add(half(*with, shift));
            *word = u64::from(sum(0)) | u64::from(sum(32)) << 32;
        }
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }
}

/// The parameters in the encoded header are: the number of counters per row; the number of rows
/// (lower half), with 1 in the upper half if updates are conservative; and zero. The header's
/// number of keys is the sum of all counts.
///
/// The body contains the 32-bit counters row after row, padded with zeros to a whole word.
impl Portable for CountMin {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let update = if self.update == UpdateRule::Conservative { CONSERVATIVE } else { 0 };
        let params = [self.width, u64::from(self.depth) | update, 0];
        let (kind, hasher, len) = (Kind::CountMin, self.hasher, self.total);
        Header { kind, hasher, len, params }.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::CountMin, |header| {
            let (width, depth, _) = checked_params(header)?;
            Ok(num_words(width, depth))
        })?;
        let (width, depth, update) = checked_params(&opened.header)?;
        let Header { hasher, len: total, .. } = opened.header;
        let sketch = Self { hasher, words: opened.words()?, width, depth, update, total };
        let last = sketch.words.as_ref().last().copied().unwrap_or_default();
        if (width * u64::from(depth)) % 2 == 1 && half(last, 32) != 0 {
            return Err(DecodeError::NotZero("bytes after the last counter"));
        }
        for (occupied, sum, is_full) in sketch.rows() {
            // Each addition changes one counter in a row. The counter rises by less than the
            // addition only if it reached its maximum or, with conservative updates, was already
            // high enough. So the sum of a row is exactly `total`, or less in these two cases.
            let is_exact = update == UpdateRule::Plain && !is_full;
            if sum > total || is_exact && sum < total || occupied == 0 && total > 0 {
                let limit = "a number that each row can have counted";
                return Err(parameter("the sum of all counts", total, limit));
            }
        }
        Ok(sketch)
    }
}

/// Checks the header, and returns the number of counters per row, the number of rows and the update
/// rule.
fn checked_params(header: &Header) -> Result<(u64, u32, UpdateRule), DecodeError> {
    let [width, rows, zero] = header.params;
    within("the number of counters per row", width, 1..=MAX_WIDTH, "from 1 to 2^32")?;
    let update =
        if rows & CONSERVATIVE == 0 { UpdateRule::Plain } else { UpdateRule::Conservative };
    let depth = u32::try_from(rows & !CONSERVATIVE).ok();
    let Some(depth) = depth.filter(|depth| (1..=MAX_HASH_FUNCS).contains(depth)) else {
        let limit = "from 1 to 128, plus 2^32 if updates are conservative";
        return Err(parameter("the number of rows", rows, limit));
    };
    refuse_nonzero(zero != 0, "bytes 56 to 63")?;
    Ok((width, depth, update))
}

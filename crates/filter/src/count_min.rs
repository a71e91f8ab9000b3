//! Count-Min sketch: how often keys came, in memory that doesn't depend on how many there are.

use alloc::vec::Vec;

use chainsieve_lanes::simd::prefetch;

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::{KeyHasher, draw};
use super::kind::Kind;
use super::membership::{Filter, Full, Insert, Merge, MergeError, contains_in_chunks};
use super::sizing::{MAX_HASH_FUNCS, SizingError, classic, distinct, float};
use super::words::Words;

/// Most counters of a row: their sum is below 2⁶⁴.
const MAX_WIDTH: u64 = 1 << 32;
/// Rows of each key of a batch whose memory is asked for ahead: most strangers have a zero in one
/// of the first two, and no more rows are read.
const AHEAD: u32 = 2;
/// The bit of the second parameter that says that updates are conservative.
const CONSERVATIVE: u64 = 1 << 32;

/// A Count-Min sketch: how often a key came, never too low (Cormode and Muthukrishnan 2005: "An
/// Improved Data Stream Summary: The Count-Min Sketch and its Applications").
///
/// `depth` rows of `width` counters of 32 bits. A key has one counter in each row; the estimate is
/// the lowest of them, because the others count more keys beside it.
///
/// **What an estimate means.** It is never below the true count. It is above it by more than `ε`
/// times the sum of all counts ([`total`](Self::total)) with a chance of at most `δ`, for `width` =
/// ⌈e/ε⌉ and `depth` = ⌈ln(1/δ)⌉, whatever the keys are: a row is too high by at most `total/width`
/// in the mean, so by `e` times as much for at most one key in `e`, and rows don't depend on each
/// other. Where a few keys make up most of the counts, the error is far less. Counters stop at
/// [`u32::MAX`], which stands for that many or more. Keys of equal hash are counted together: of `n`
/// keys a share of `n·2⁻⁶⁴`, unless someone who knows the hash chooses them.
///
/// **Conservative update** ([`Update::Conservative`]; Estan and Varghese 2002: "New Directions in
/// Traffic Measurement and Accounting"): of the counters of a key only those are raised that are
/// below the new estimate. Estimates are never higher than without, and mostly far lower. What is
/// lost: the result depends on the order of keys, and a merge differs from the sketch of both
/// streams: it is mostly higher, and never below the counts.
///
/// **When to use it.** To find what is frequent in a stream of more keys than memory has room for:
/// values that select nothing because they are in every block, sources that send too much, keys
/// that are worth a place in a cache. **When not, and what beats it.** A hash table, as long as the
/// keys have room in one: it is exact. For "came before" a
/// [`RollingBloomFilter`](super::rolling::RollingBloomFilter), in less memory. Rare keys among many:
/// their error is that of the whole stream. Counts can't be taken back.
///
/// **What it costs.** `32·⌈e/ε⌉·⌈ln(1/δ)⌉` bits: 1.09 MB for `ε` = 0.01 % and `δ` = 0.01 % (27,183
/// counters by 10 rows). `depth` lines of memory for each addition and each estimate.
///
/// # Examples
/// ```
/// use chainsieve_filter::KeyHasher;
/// use chainsieve_filter::count_min::{CountMin, Update};
///
/// let mut seen = CountMin::with_error(0.001, 0.01, Update::Conservative, KeyHasher::random())?;
/// for block in 0..1_000_u32 {
///     seen.add(b"in every block", 1);
///     seen.add(&block.to_le_bytes(), 1);
/// }
/// assert!(seen.estimate(b"in every block") >= 1_000);
/// assert_eq!(seen.total(), 2_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A cache that takes what was asked for a hundred times. (For the second time a rolling Bloom
/// filter is enough: the example `second_request` of `chainsieve`.) The sketch takes 5 MB, whatever
/// is asked for, and begins anew after a million requests: counts that are never forgotten would
/// admit everything at last. Among such a million no key that was asked for 100 times is refused,
/// and one that was asked for fewer than 90 times is admitted with a chance of 1 % at most.
/// ```
/// use chainsieve_filter::count_min::{CountMin, Update};
/// use chainsieve_filter::{Insert, KeyHasher};
///
/// let mut door = CountMin::with_error(1e-5, 0.01, Update::Conservative, KeyHasher::random())?;
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
    /// Row after row; two counters to a word, the first in the low half.
    words: Words,
    width: u64,
    depth: u32,
    update: Update,
    total: u64,
}

/// How an addition raises the counters of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// All by as much: sketches merge to that of both streams.
    Plain,
    /// Those below the new estimate, up to it: estimates are lower.
    Conservative,
}

impl Update {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Conservative => "conservative",
        }
    }
}

impl CountMin {
    /// A sketch whose estimates are too high by more than `epsilon` times the sum of all counts
    /// with a chance of at most `delta`: ⌈e/`epsilon`⌉ counters in each of ⌈ln(1/`delta`)⌉ rows.
    ///
    /// # Errors
    /// If one of the two is not between 0 and 1, and as [`with_size`](Self::with_size): for an
    /// `epsilon` below 6.33·10⁻¹⁰ (e/2³²) and a `delta` below e⁻¹²⁸.
    pub fn with_error(
        epsilon: f64,
        delta: f64,
        update: Update,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        for (what, value) in [("an error", epsilon), ("a chance of a larger error", delta)] {
            if !(value > 0.0 && value < 1.0) {
                return Err(SizingError::Share { what, value });
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let [width, depth] =
            [core::f64::consts::E / epsilon, -libm::log(delta)].map(|x| libm::ceil(x) as u64);
        // More than there can be is refused below, however much more.
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        Self::with_size(width, depth, update, hasher)
    }

    /// A sketch of `depth` rows, from 1 to 128, of `width` counters, up to 2³².
    ///
    /// # Errors
    /// If there is no such sketch, or no memory for it.
    pub fn with_size(
        width: u64,
        depth: u32,
        update: Update,
        hasher: KeyHasher,
    ) -> Result<Self, SizingError> {
        SizingError::unless_within("a number of counters of a row", width, MAX_WIDTH)?;
        SizingError::unless_within("a number of rows", depth.into(), MAX_HASH_FUNCS.into())?;
        let words = Words::zeroed(num_words(width, depth))?;
        Ok(Self { hasher, words, width, depth, update, total: 0 })
    }

    /// Counts a key `n` times more, and returns its estimate.
    #[inline]
    pub fn add(&mut self, key: &[u8], n: u32) -> u32 {
        self.add_hash(self.hasher.hash(key), n)
    }

    /// Counts the key of this hash `n` times more, and returns its estimate.
    pub fn add_hash(&mut self, hash: u64, n: u32) -> u32 {
        self.total = self.total.saturating_add(n.into());
        let raised = self.estimate_hash(hash).saturating_add(n);
        for row in 0..self.depth {
            let (word, shift) = self.place(hash, row);
            let word = &mut self.words.as_mut()[word];
            let before = half(*word, shift);
            let after = match self.update {
                Update::Plain => before.saturating_add(n),
                Update::Conservative => before.max(raised),
            };
            *word ^= u64::from(before ^ after) << shift;
        }
        // The lowest counter before is the lowest after.
        raised
    }

    /// How often a key was counted, or more; [`u32::MAX`] stands for that many or more.
    #[inline]
    pub fn estimate(&self, key: &[u8]) -> u32 {
        self.estimate_hash(self.hasher.hash(key))
    }

    /// As [`estimate`](Self::estimate), of the key of this hash.
    #[inline]
    pub fn estimate_hash(&self, hash: u64) -> u32 {
        let words = self.words.as_ref();
        let counts = (0..self.depth).map(|row| {
            let (word, shift) = self.place(hash, row);
            half(words[word], shift)
        });
        counts.min().unwrap_or_default()
    }

    /// The sum of all counts.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The error bound: an estimate exceeds the count by more than this with a chance of at most
    /// e to the power of minus [`depth`](Self::depth). It is e/`width` times the sum of all counts.
    pub fn error_bound(&self) -> f64 {
        core::f64::consts::E / float(self.width) * float(self.total)
    }

    /// Counters of a row.
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// Rows: counters of a key.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// How an addition raises counters.
    pub const fn update(&self) -> Update {
        self.update
    }

    /// The word of a key's counter in a row, and where in the word the counter begins.
    #[inline]
    fn place(&self, hash: u64, row: u32) -> (usize, u32) {
        let at = u64::from(row) * self.width + draw(hash, row.into(), self.width);
        ((at / 2) as usize, (at % 2) as u32 * 32)
    }

    /// The counters, row after row.
    fn counters(&self) -> impl Iterator<Item = u32> {
        let halves = self.words.as_ref().iter().flat_map(|word| [half(*word, 0), half(*word, 32)]);
        let count = usize::try_from(self.width * u64::from(self.depth)).unwrap_or(usize::MAX);
        halves.take(count)
    }

    /// Of each row how many counters are not zero, what all count, and whether one is full.
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

/// Words of so many rows of so many counters.
const fn num_words(width: u64, depth: u32) -> u64 {
    (width * depth as u64).div_ceil(2)
}

/// The keys that were counted at least once, as a filter.
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

    /// The sum of all counts.
    fn len(&self) -> u64 {
        self.total
    }

    fn num_bits(&self) -> u64 {
        self.width * u64::from(self.depth) * 32
    }

    /// The share of counters that are not zero.
    fn fill(&self) -> f64 {
        let occupied = self.rows().map(|(occupied, ..)| occupied).sum();
        classic::share(occupied, self.width * u64::from(self.depth))
    }

    /// The share of strangers whose estimate is not zero.
    fn expected_fpr(&self) -> f64 {
        self.rows().map(|(occupied, ..)| classic::share(occupied, self.width)).product()
    }

    /// Distinct keys, by the share of counters that are not zero.
    fn estimated_len(&self) -> Option<f64> {
        distinct(self.fill(), 1.0 / float(self.width))
    }
}

impl Insert for CountMin {
    /// Counts the key once more.
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
    /// Adds counter to counter, of sketches of the same shape, update and hasher. With plain
    /// updates that is the sketch of both streams, as if one had been counted after the other.
    /// With conservative ones estimates are still never too low, and within the error of plain
    /// updates; mostly they are higher than those of one sketch that had counted both streams.
    fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        MergeError::unless_equal("the number of counters of a row", self.width, other.width)?;
        MergeError::unless_equal("the number of rows", self.depth.into(), other.depth.into())?;
        let (ours, theirs) = (self.update as u64, other.update as u64);
        MergeError::unless_equal("the update (1 is conservative)", ours, theirs)?;
        MergeError::unless_same_hasher(&self.hasher, &other.hasher)?;
        for (word, with) in self.words.as_mut().iter_mut().zip(other.words.as_ref()) {
            let sum = |shift| half(*word, shift).saturating_add(half(*with, shift));
            *word = u64::from(sum(0)) | u64::from(sum(32)) << 32;
        }
        self.total = self.total.saturating_add(other.total);
        Ok(())
    }
}

/// Parameters: counters of a row; rows in the low half, and in the high half 1 if updates are
/// conservative; zero. The keys inserted are the sum of all counts. Body: the counters, row after
/// row, of 32 bits each; zeros up to the last word's end.
impl Portable for CountMin {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let update = if self.update == Update::Conservative { CONSERVATIVE } else { 0 };
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
            return Err(DecodeError::NotZero("after the last counter"));
        }
        for (occupied, sum, is_full) in sketch.rows() {
            // Each addition is in one counter of a row. It is counted in part only if the counter
            // was full or, with conservative updates, already high enough.
            let is_exact = update == Update::Plain && !is_full;
            if sum > total || is_exact && sum < total || occupied == 0 && total > 0 {
                let limit = "as much as each row can have counted";
                return Err(parameter("the sum of all counts", total, limit));
            }
        }
        Ok(sketch)
    }
}

/// Counters of a row, rows, update.
fn checked_params(header: &Header) -> Result<(u64, u32, Update), DecodeError> {
    let [width, rows, zero] = header.params;
    if !(1..=MAX_WIDTH).contains(&width) {
        return Err(parameter("the number of counters of a row", width, "from 1 to 2^32"));
    }
    let update = if rows & CONSERVATIVE == 0 { Update::Plain } else { Update::Conservative };
    let depth = u32::try_from(rows & !CONSERVATIVE).ok();
    let Some(depth) = depth.filter(|depth| (1..=MAX_HASH_FUNCS).contains(depth)) else {
        let limit = "from 1 to 128, and 2^32 more if updates are conservative";
        return Err(parameter("the number of rows", rows, limit));
    };
    if zero != 0 {
        return Err(DecodeError::NotZero("56 to 63"));
    }
    Ok((width, depth, update))
}

//! Matching a filter with scripts: the filter is decoded, and each script is looked up in its values.
//!
//! For many scripts, a table of occupied slots of the filter's range makes most look-ups a test of a
//! single bit.

use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use chainsieve_lanes::hash::{Packed, SipKey, siphash_2_4};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::gcs::{GcsError, GcsFilter, scale};
use super::scripts::PreparedScripts;

/// Matches filters one after the other, and reuses its memory from filter to filter.
///
/// A match means "may contain": each script matches a filter by chance with a probability of 1 /
/// `M`. The whole filter is decoded before any answer, so a malformed filter always gives an error.
///
/// # Cost
/// Decodes the filter into 8 bytes for each value, and hashes each script. A small number of
/// scripts is looked up by binary search. For many scripts, the values are first entered into a
/// table of 3 to 6 bytes for each value, where most look-ups test a single bit. Apart from the
/// result of [`matching`](Self::matching), nothing is allocated per filter.
#[derive(Debug, Clone)]
pub struct Matcher(DecodedFilter);

impl Matcher {
    /// Creates a matcher that runs on `backend`.
    pub fn new() -> Self {
        Self(DecodedFilter::empty())
    }

    /// Returns the same matcher, which runs on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self(self.0.with_backend(backend))
    }

    /// Returns `true` if `filter` may contain at least one of `scripts`; `false` if `scripts` is
    /// empty.
    ///
    /// # Errors
    /// Returns an error if the filter is malformed by the rule of its
    /// [`Acceptance`](super::Acceptance). A malformed filter never gives a "no".
    pub fn match_any(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        self.match_any_from(filter, scripts, 0)
    }

    /// Returns `true` if `filter` may contain at least one of `scripts` whose index is `first` or
    /// higher; `false` if there is no such script.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn match_any_from(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
        first: usize,
    ) -> Result<bool, GcsError> {
        let range = first.min(scripts.len())..scripts.len();
        self.0.read(filter, range.len())?;
        Ok(self.0.match_range(scripts, range))
    }

    /// Returns `true` if `filter` may contain all of `scripts`, or if `scripts` is empty.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn match_all(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<bool, GcsError> {
        self.0.read(filter, scripts.len())?;
        Ok(self.0.match_all(scripts))
    }

    /// Returns the indices of the scripts that `filter` may contain, in ascending order.
    ///
    /// # Errors
    /// Returns the errors of [`match_any`](Self::match_any).
    pub fn matching(
        &mut self,
        filter: &GcsFilter<'_>,
        scripts: &PreparedScripts,
    ) -> Result<Vec<usize>, GcsError> {
        self.0.read(filter, scripts.len())?;
        Ok(self.0.matching(scripts, 0..scripts.len()))
    }
}

impl Default for Matcher {
    fn default() -> Self {
        Self::new()
    }
}

/// The decoded values of a filter, for repeated matching.
///
/// Two uses: a wallet recovery that reveals one script after another, and the scripts of many
/// wallets.
///
/// # Cost
/// Takes 11 to 14 bytes for each value. A look-up takes a few nanoseconds for each script.
#[derive(Debug, Clone)]
pub struct DecodedFilter {
    backend: Backend,
    /// The filter's key; `None` before the first filter is decoded.
    key: Option<SipKey>,
    range: u64,
    ascending: Vec<u64>,
    /// A table of the values, if many scripts are to be looked up.
    slots: Slots,
    has_slots: bool,
}

/// Number of values that can be entered into the slot table in the time of one binary search over
/// all values.
const VALUES_PER_SEARCH: usize = 16;

impl DecodedFilter {
    /// Returns a value without a filter, to be filled by [`read`](Self::read).
    fn empty() -> Self {
        Self {
            backend: Backend::best(),
            key: None,
            range: 0,
            ascending: Vec::new(),
            slots: Slots::default(),
            has_slots: false,
        }
    }

    /// Decodes `filter`, for matching on the [best](Backend::best) backend.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::decode_into`].
    pub fn decode(filter: &GcsFilter<'_>) -> Result<Self, GcsError> {
        let mut decoded = Self::empty();
        decoded.read(filter, usize::MAX)?;
        Ok(decoded)
    }

    /// Returns the same filter, matched on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Returns `true` if the filter may contain `script`.
    pub fn may_contain(&self, script: &[u8]) -> bool {
        self.key.is_some_and(|key| self.contains(siphash_2_4(key, script)))
    }

    /// Returns `true` if the filter may contain at least one of `scripts`; `false` if `scripts` is
    /// empty.
    pub fn match_any(&self, scripts: &PreparedScripts) -> bool {
        self.match_range(scripts, 0..scripts.len())
    }

    /// Returns `true` if the filter may contain all of `scripts`, or if `scripts` is empty.
    pub fn match_all(&self, scripts: &PreparedScripts) -> bool {
        let first_missing = |asked, found: &[u32]| match found.len() {
            count if count < asked => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        self.look_up(scripts, 0..scripts.len(), first_missing).is_continue()
    }

    /// Returns the indices of the scripts in `range` that the filter may contain, in ascending
    /// order. A recovery passes the range of the scripts that it has just added.
    ///
    /// # Panics
    /// Panics if `range` exceeds the number of scripts.
    pub fn matching(&self, scripts: &PreparedScripts, range: Range<usize>) -> Vec<usize> {
        assert!(range.end <= scripts.len(), "{range:?} of {} scripts", scripts.len());
        let mut matching = Vec::new();
        let _ = self.look_up(scripts, range, |_, found| {
            matching.extend(found.iter().map(|index| *index as usize));
            ControlFlow::Continue(())
        });
        matching.sort_unstable();
        matching
    }

    /// Replaces the values with those of `filter`. `num_scripts` scripts will be looked up.
    ///
    /// # Errors
    /// Returns the errors of [`GcsFilter::decode_into`].
    fn read(&mut self, filter: &GcsFilter<'_>, num_scripts: usize) -> Result<(), GcsError> {
        filter.decode_into_on(self.backend, &mut self.ascending)?;
        (self.key, self.range) = (Some(filter.key()), filter.range());
        // The slot table pays off only if there are enough look-ups to cover the cost of filling
        // it.
        self.has_slots = num_scripts >= self.ascending.len() / VALUES_PER_SEARCH;
        if self.has_slots {
            self.slots.fill(&self.ascending, self.range);
        }
        Ok(())
    }

    fn contains(&self, hash: u64) -> bool {
        let value = scale(hash, self.range);
        if self.has_slots {
            self.slots.contains(&self.ascending, value)
        } else {
            self.ascending.binary_search(&value).is_ok()
        }
    }

    /// Looks up the scripts in `range`, a batch at a time. For each batch, calls `take` with the
    /// number of scripts of the batch and the indices of those that may be in the filter, in any
    /// order. Stops when `take` breaks.
    fn look_up(
        &self,
        scripts: &PreparedScripts,
        range: Range<usize>,
        mut take: impl FnMut(usize, &[u32]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(key) = self.key else { return ControlFlow::Continue(()) };
        scripts.hash_each(self.backend, key, range, |indices, hashes| {
            let mut found = [0; Packed::AT_A_TIME];
            let mut count = 0;
            let mut keep = |position: usize| {
                if self.contains(hashes[position]) {
                    found[count] = indices[position];
                    count += 1;
                }
            };
            if self.has_slots {
                let taken = self.slots.taken(self.backend, hashes, self.range);
                for (mut taken, start) in taken.into_iter().zip((0..).step_by(64)) {
                    while taken != 0 {
                        keep(start + taken.trailing_zeros() as usize);
                        taken &= taken - 1;
                    }
                }
            } else {
                (0..hashes.len()).for_each(keep);
            }
            take(hashes.len(), &found[..count])
        })
    }

    /// Returns `true` if at least one of the scripts in `range` may be in the filter.
    fn match_range(&self, scripts: &PreparedScripts, range: Range<usize>) -> bool {
        let first = |_, found: &[u32]| match found {
            [] => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        };
        self.look_up(scripts, range, first).is_break()
    }
}

/// The range of a filter, divided into slots of equal width. The width is a power of two, and most
/// slots contain no value.
#[derive(Debug, Clone, Default)]
struct Slots {
    /// One bit for each slot, lowest bit first: set if at least one value is in the slot.
    taken: Vec<u64>,
    /// For each nonzero word of `taken`, the index of the first value in that word's slots.
    first: Vec<u32>,
    /// The width of a slot, as an exponent of two.
    shift: u32,
}

/// Minimum number of slots for each value. With one bit per slot, the slots of a typical block's
/// filter fit into the L1 cache.
const SLOTS_PER_VALUE: usize = 16;

impl Slots {
    /// Fills the table with ascending values. Values at or above `range` are left out.
    fn fill(&mut self, values: &[u64], range: u64) {
        let num_slots = (values.len() * SLOTS_PER_VALUE).next_power_of_two().max(64);
        // The number of bits of the largest value, minus the number of bits of the last slot's
        // index.
        let bits = range.saturating_sub(1).checked_ilog2().map_or(0, |highest| highest + 1);
        self.shift = bits.saturating_sub(num_slots.ilog2());
        self.taken.clear();
        self.taken.resize(num_slots / 64, 0);
        self.first.resize(num_slots / 64, 0);
        let inside = values.partition_point(|value| *value < range);
        let num_inside = u32::try_from(inside).expect("a filter has fewer than 2^32 values");
        // The values are entered in descending order. For each word, the index that is written last
        // is therefore the index of the first value in it.
        for (value, index) in values[..inside].iter().zip(0_u32..num_inside).rev() {
            let slot = value >> self.shift;
            let word = index_of(slot);
            self.taken[word] |= 1 << (slot % 64);
            self.first[word] = index;
        }
    }

    /// Returns `true` if the slot of `value` contains a value. `value` must be below the range.
    #[inline]
    fn is_taken(&self, value: u64) -> bool {
        let slot = value >> self.shift;
        self.taken[index_of(slot)] >> (slot % 64) & 1 != 0
    }

    /// Returns `true` if `value` is one of the `values` in the table. `value` must be below the
    /// range.
    #[inline]
    fn contains(&self, values: &[u64], value: u64) -> bool {
        if !self.is_taken(value) {
            return false;
        }
        let first = self.first[index_of(value >> self.shift)] as usize;
        // A word usually covers about four values. A malicious filter can have any number of values
        // in one word, so the remaining values are searched by binary search.
        let (near, far) = values[first..].split_at((values.len() - first).min(16));
        match near.last() {
            Some(last) if *last < value => far.binary_search(&value).is_ok(),
            _ => near.contains(&value),
        }
    }

    /// Returns which of `hashes` are in occupied slots after scaling to `range`.
    fn taken(&self, backend: Backend, hashes: &[u64], range: u64) -> Bits {
        debug_assert!(hashes.len() <= Packed::AT_A_TIME);
        backend.run(Taken { slots: self, hashes, range })
    }
}

/// One bit for each hash of a batch, lowest bit first.
type Bits = [u64; Packed::AT_A_TIME / 64];

/// Returns the index of the word that contains the bit of `slot`.
#[inline(always)]
fn index_of(slot: u64) -> usize {
    (slot / 64) as usize
}

struct Taken<'a> {
    slots: &'a Slots,
    hashes: &'a [u64],
    range: u64,
}

impl Taken<'_> {
    /// Tests at most 64 hashes one by one, beginning with the hash at `start`.
    #[inline(always)]
    fn one_by_one(&self, hashes: &[u64], start: usize) -> u64 {
        let mut taken = 0;
        for (position, hash) in hashes.iter().enumerate().skip(start) {
            taken |= u64::from(self.slots.is_taken(scale(*hash, self.range))) << position;
        }
        taken
    }
}

impl Kernel for Taken<'_> {
    type Output = Bits;

    fn scalar(self) -> Bits {
        let mut taken = Bits::default();
        for (taken, hashes) in taken.iter_mut().zip(self.hashes.chunks(64)) {
            *taken = self.one_by_one(hashes, 0);
        }
        taken
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Bits {
        let range = lanes.splat_64(self.range);
        let shift = lanes.splat_64(self.slots.shift.into());
        let (six, low_six) = (lanes.splat_64(6), lanes.splat_64(63));
        let mut all_taken = Bits::default();
        for (taken, hashes) in all_taken.iter_mut().zip(self.hashes.chunks(64)) {
            let mut at = 0;
            while at + L::LANES <= hashes.len() {
                let value = lanes.mul_high_64(lanes.load_slice_64(&hashes[at..]), range);
                let slot = lanes.shr_each_64(value, shift);
                let word = lanes.gather_64(&self.slots.taken, lanes.shr_each_64(slot, six));
                let is_taken = lanes.test_bit_64(word, lanes.and_64(slot, low_six));
                *taken |= u64::from(is_taken) << at;
                at += L::LANES;
            }
            *taken |= self.one_by_one(hashes, at);
        }
        all_taken
    }
}

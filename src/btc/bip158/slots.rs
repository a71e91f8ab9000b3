//! A table of occupied slots of a filter's range, so that most look-ups test a single bit.

use alloc::vec::Vec;

use chainsieve_lanes::hash::Packed;
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::gcs::scale;

/// The range of a filter, divided into slots of equal width. The width is a power of two, and most
/// slots contain no value.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
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
    pub(super) fn fill(&mut self, values: &[u64], range: u64) {
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
    pub(super) fn contains(&self, values: &[u64], value: u64) -> bool {
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
    pub(super) fn taken(&self, backend: Backend, hashes: &[u64], range: u64) -> Bits {
        debug_assert!(hashes.len() <= Packed::AT_A_TIME);
        backend.run(Taken { slots: self, hashes, range })
    }
}

/// One bit for each hash of a batch, lowest bit first.
pub(super) type Bits = [u64; Packed::AT_A_TIME / 64];

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

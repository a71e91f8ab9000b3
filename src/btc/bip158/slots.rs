//! Where the values of a filter stand, so that most questions end at one bit.

use alloc::vec::Vec;

use chainsieve_lanes::hash::Packed;
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::gcs::scale;

/// The range of a filter cut into slots of equal width, a power of two. Most have no value.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots {
    /// A bit for each slot, the lowest of a word first: whether values fall into it.
    taken: Vec<u64>,
    /// For each word with a bit set, the index of the first value in its slots.
    first: Vec<u32>,
    /// The width of a slot, as the power of two.
    shift: u32,
}

/// Slots for each value at least: as a bit each, those of a block stay in the first cache.
const SLOTS_PER_VALUE: usize = 16;

impl Slots {
    /// Enters ascending values, those below `range`.
    pub(super) fn fill(&mut self, values: &[u64], range: u64) {
        let num_slots = (values.len() * SLOTS_PER_VALUE).next_power_of_two().max(64);
        // The bits of the largest value, less those of the last slot.
        let bits = range.saturating_sub(1).checked_ilog2().map_or(0, |highest| highest + 1);
        self.shift = bits.saturating_sub(num_slots.ilog2());
        self.taken.clear();
        self.taken.resize(num_slots / 64, 0);
        self.first.resize(num_slots / 64, 0);
        let inside = values.partition_point(|value| *value < range);
        let num_inside = u32::try_from(inside).expect("a filter has fewer than 2^32 values");
        // Downwards, so that the first value of a word is the last to be written.
        for (value, index) in values[..inside].iter().zip(0_u32..num_inside).rev() {
            let slot = value >> self.shift;
            let word = index_of(slot);
            self.taken[word] |= 1 << (slot % 64);
            self.first[word] = index;
        }
    }

    /// Whether values fall into the slot of `value`, which is below the range.
    #[inline]
    fn is_taken(&self, value: u64) -> bool {
        let slot = value >> self.shift;
        self.taken[index_of(slot)] >> (slot % 64) & 1 != 0
    }

    /// Whether `value`, below the range, is among the `values` that were entered.
    #[inline]
    pub(super) fn contains(&self, values: &[u64], value: u64) -> bool {
        if !self.is_taken(value) {
            return false;
        }
        let first = self.first[index_of(value >> self.shift)] as usize;
        // A word has four values or so, but a liar's may have any number.
        let (near, far) = values[first..].split_at((values.len() - first).min(16));
        match near.last() {
            Some(last) if *last < value => far.binary_search(&value).is_ok(),
            _ => near.contains(&value),
        }
    }

    /// Which of `hashes` fall into taken slots once scaled to `range`.
    pub(super) fn taken(&self, backend: Backend, hashes: &[u64], range: u64) -> Bits {
        debug_assert!(hashes.len() <= Packed::AT_A_TIME);
        backend.run(Taken { slots: self, hashes, range })
    }
}

/// A bit for each of as many hashes as come at a time, the lowest of a word first.
pub(super) type Bits = [u64; Packed::AT_A_TIME / 64];

/// The word that holds a slot.
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
    /// Of 64 hashes at most, from the one at `start` on.
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

//! Filters of many logs, with almost no value hashed twice.

use alloc::vec;
use alloc::vec::Vec;

use alloy_primitives::Log;
use chainsieve_lanes::simd::Backend;

use super::{BlockReceipts, Form};
use crate::eth::bloom::{self, BitPositions};

/// The bit positions of every value of the logs of a block.
///
/// Most values of a block are repeated: in nine mainnet blocks, 9 to 45 % of the values are
/// distinct. Hashing each value once saves most of the work.
pub(super) struct Blooms {
    /// Bit positions of the distinct values.
    positions: Vec<BitPositions>,
    /// Indices in `positions` of all values of all logs, in the order of the receipts.
    values: Vec<u32>,
    /// For each receipt, the offset in `values` at which its values end.
    ends: Vec<usize>,
}

impl Blooms {
    /// Hashes the values of all logs.
    pub(super) fn of(backend: Backend, receipts: &BlockReceipts) -> Self {
        let count = receipts.iter().flat_map(|receipt| &receipt.logs).map(values_of_log).sum();
        let mut distinct = Distinct::with_capacity(count);
        let mut values = Vec::with_capacity(count);
        let mut ends = Vec::with_capacity(receipts.len());
        for receipt in receipts.iter() {
            for log in &receipt.logs {
                values.push(distinct.index_of(log.address.as_slice()));
                let topics = log.topics().iter();
                values.extend(topics.map(|topic| distinct.index_of(topic.as_slice())));
            }
            ends.push(values.len());
        }
        Self { positions: bloom::positions_of_each_on(backend, &distinct.values), values, ends }
    }

    /// Returns the filter of the logs of one receipt.
    pub(super) fn of_receipt(&self, receipt: usize) -> [u8; bloom::BYTES] {
        let start = receipt.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut filter = [0; bloom::BYTES];
        for &value in &self.values[start..self.ends[receipt]] {
            bloom::accrue(&mut filter, &self.positions[value as usize]);
        }
        filter
    }

    /// Returns the filter of all logs of the block.
    pub(super) fn of_block(&self) -> [u8; bloom::BYTES] {
        let mut filter = [0; bloom::BYTES];
        self.positions.iter().for_each(|value| bloom::accrue(&mut filter, value));
        filter
    }

    /// Returns the index of the first receipt whose given filter differs from the filter of its
    /// logs.
    pub(super) fn first_other(&self, receipts: &BlockReceipts) -> Option<usize> {
        receipts.entries.iter().enumerate().position(|(receipt, entry)| {
            let given = match &entry.form {
                Form::Encoded { bloom, .. } => &receipts.raw[bloom.clone()],
                Form::Fields { bloom: Some(bloom) } => &bloom[..],
                Form::Fields { bloom: None } => return false,
            };
            given != self.of_receipt(receipt)
        })
    }
}

fn values_of_log(log: &Log) -> usize {
    1 + log.topics().len()
}

/// Removes most repetitions from a sequence of values.
///
/// Each value is mapped to a slot, and a slot stores the index of its latest value. If different
/// values alternate in one slot, each is treated as new and hashed again, but different values are
/// never confused. So an attacker can choose values that share slots, but at worst every value is
/// hashed.
struct Distinct<'a> {
    values: Vec<&'a [u8]>,
    /// Index in `values` plus one, or 0 for an empty slot.
    slots: Vec<u32>,
    shift: u32,
}

impl<'a> Distinct<'a> {
    fn with_capacity(count: usize) -> Self {
        let slots = (2 * count).next_power_of_two().clamp(16, 1 << 16);
        Self { values: Vec::new(), slots: vec![0; slots], shift: 64 - slots.ilog2() }
    }

    fn index_of(&mut self, value: &'a [u8]) -> u32 {
        let slot = usize::try_from(mix(value) >> self.shift).expect("at most 16 bits");
        let slot = &mut self.slots[slot];
        if let Some(index) = slot.checked_sub(1)
            && self.values[index as usize] == value
        {
            return index;
        }
        self.values.push(value);
        *slot = u32::try_from(self.values.len()).expect("2^32 values are 80 GiB");
        *slot - 1
    }
}

/// Mixes all bytes of an address or a topic into a 64-bit number.
///
/// All bytes are used, because padding gives many topics the same first or last bytes.
fn mix(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    let mut mixed = 0_u64;
    for word in words {
        mixed =
            (mixed.rotate_left(23) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for byte in rest {
        mixed = (mixed.rotate_left(23) ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    mixed
}

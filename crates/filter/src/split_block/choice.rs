//! Selection of a key's block, and of its bit in each word of the block.

/// The multipliers of Parquet's specification: eight odd numbers without visible structure.
pub(super) const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Returns the block of a hash: its high half, scaled to the number of blocks.
#[inline(always)]
pub(super) fn place(hash: u64, num_blocks: usize) -> usize {
    ((hash >> 32) * num_blocks as u64 >> 32) as usize
}

/// Returns the low half of a hash, which selects the bits in the block.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn low(hash: u64) -> u32 {
    hash as u32
}

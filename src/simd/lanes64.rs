//! What a vector unit does with 64-bit lanes.

/// [`LANES`](Self::LANES) lanes of `u64`: as many as are fastest for a state of many words.
///
/// In memory eight lanes, of which the first `LANES` are read and written.
pub(crate) trait Lanes64: Copy {
    /// `LANES` `u64` in registers.
    type W: Copy;
    /// At most eight.
    const LANES: usize;

    fn splat_64(self, value: u64) -> Self::W;
    fn load_64(self, from: &[u64; 8]) -> Self::W;
    fn store_64(self, value: Self::W, to: &mut [u64; 8]);

    fn xor_64(self, a: Self::W, b: Self::W) -> Self::W;
    fn and_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a ^ b ^ c`
    fn xor3_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// `a ^ (!b & c)`
    fn xor_and_not_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// By 1 to 63 bits.
    fn rotate_left_64<const BITS: u32>(self, a: Self::W) -> Self::W;

    /// The eight words, little-endian, of each row: lane `i` has those of `rows[i]`.
    fn transpose_64(self, rows: [&[u8; 64]; 8]) -> [Self::W; 8];
}

//! What a vector unit does with 64-bit lanes.

/// [`LANES`](Self::LANES) lanes of `u64`: as many as are fastest for a state of many words.
///
/// In memory eight lanes, of which the first `LANES` are read and written.
pub trait Lanes64: Copy {
    /// `LANES` `u64` in registers.
    type W: Copy;
    /// At most eight.
    const LANES: usize;

    /// The value in every lane.
    fn splat_64(self, value: u64) -> Self::W;
    /// The first `LANES` values from memory.
    fn load_64(self, from: &[u64; 8]) -> Self::W;
    /// To the first `LANES` values in memory.
    fn store_64(self, value: Self::W, to: &mut [u64; 8]);

    /// `a ^ b`
    fn xor_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a & b`
    fn and_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a ^ b ^ c`
    fn xor3_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// `a ^ (!b & c)`
    fn xor_and_not_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// By 1 to 63 bits.
    fn rotate_left_64<const BITS: u32>(self, a: Self::W) -> Self::W;

    /// The eight words, little-endian, of each row: lane `i` has those of `rows[i]`.
    fn transpose_64(self, rows: [&[u8; 64]; 8]) -> [Self::W; 8];

    // Of hashes and tables.

    /// The first `LANES` words of a slice. Panics if there are fewer.
    fn load_slice_64(self, from: &[u64]) -> Self::W;
    /// Replaces the first `LANES` words of a slice. Panics if there are fewer.
    fn store_slice_64(self, value: Self::W, to: &mut [u64]);
    /// The sums.
    fn add_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// Each lane by its own count, below 64.
    fn shr_each_64(self, a: Self::W, count: Self::W) -> Self::W;
    /// The product of the low 32 bits of each.
    fn mul_low_halves_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// The high 64 bits of the product.
    #[inline(always)]
    fn mul_high_64(self, a: Self::W, b: Self::W) -> Self::W {
        // The products of the halves, added up from the bottom.
        let (half, low) = (self.splat_64(32), self.splat_64(u32::MAX.into()));
        let (a_high, b_high) = (self.shr_each_64(a, half), self.shr_each_64(b, half));
        let low_low = self.mul_low_halves_64(a, b);
        let high_low = self.mul_low_halves_64(a_high, b);
        let low_high = self.mul_low_halves_64(a, b_high);
        let high_high = self.mul_low_halves_64(a_high, b_high);
        let carried = self.add_64(high_low, self.shr_each_64(low_low, half));
        let middle = self.add_64(low_high, self.and_64(carried, low));
        let high = self.add_64(high_high, self.shr_each_64(carried, half));
        self.add_64(high, self.shr_each_64(middle, half))
    }
    /// The word at each index modulo the number of words, which is a power of two: else it
    /// panics.
    fn gather_64(self, words: &[u64], indices: Self::W) -> Self::W;
    /// The lanes whose bit `position`, 0 to 63, is set: lane `i` in bit `i`.
    fn test_bit_64(self, a: Self::W, position: Self::W) -> u8;

    /// The register of a CRC-32C, in the low 32 bits, after the eight bytes of a word, the lowest
    /// first.
    fn crc32c(self, crc: u64, word: u64) -> u64;

    // Of streams of bits.

    /// The differences.
    fn sub_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a | b`
    fn or_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// Each lane by its own count; zero from 64 on.
    fn shl_each_64(self, a: Self::W, count: Self::W) -> Self::W;
    /// 64 of zero.
    fn leading_zeros_64(self, a: Self::W) -> Self::W;
    /// The eight bytes, big-endian, at each offset of `bytes`, at least 8 of them. An offset past
    /// the last eight bytes reads those.
    fn gather_big_endian_64(self, bytes: &[u8], offsets: Self::W) -> Self::W;
    /// Writes lane `i` of each row to `columns[i]`.
    fn store_columns_64(self, rows: [Self::W; 8], columns: [&mut [u64; 8]; 8]);
}

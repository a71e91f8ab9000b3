//! Operations of a vector unit on 64-bit lanes.

/// [`LANES`](Self::LANES) lanes of `u64`: the number of lanes with which algorithms with a large
/// state are fastest.
///
/// In memory they are `[u64; 8]`, of which only the first `LANES` are read and written.
pub trait Lanes64: Copy {
    /// `LANES` `u64` in registers.
    type W: Copy;
    /// Number of lanes, at most eight.
    const LANES: usize;

    /// Returns `value` in every lane.
    fn splat_64(self, value: u64) -> Self::W;
    /// Loads the first `LANES` values from memory.
    fn load_64(self, from: &[u64; 8]) -> Self::W;
    /// Stores the lanes to the first `LANES` values in memory.
    fn store_64(self, value: Self::W, to: &mut [u64; 8]);

    /// `a ^ b`
    fn xor_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a & b`
    fn and_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a ^ b ^ c`
    fn xor3_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// `a ^ (!b & c)`
    fn xor_and_not_64(self, a: Self::W, b: Self::W, c: Self::W) -> Self::W;
    /// Rotates each lane left by 1 to 63 bits.
    fn rotate_left_64<const BITS: u32>(self, a: Self::W) -> Self::W;

    /// Loads the eight words, little-endian, of each row: lane `i` of result `j` is word `j` of
    /// `rows[i]`.
    fn transpose_64(self, rows: [&[u8; 64]; 8]) -> [Self::W; 8];

    // Operations for hashes and tables.

    /// Loads the first `LANES` words of a slice. Panics if the slice is shorter.
    fn load_slice_64(self, from: &[u64]) -> Self::W;
    /// Stores the lanes to the first `LANES` words of a slice. Panics if the slice is shorter.
    fn store_slice_64(self, value: Self::W, to: &mut [u64]);
    /// Adds lane by lane.
    fn add_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// Shifts each lane right by its own count, below 64.
    fn shr_each_64(self, a: Self::W, count: Self::W) -> Self::W;
    /// Multiplies the low 32 bits of each lane; the products have 64 bits.
    fn mul_low_halves_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// Returns the high 64 bits of each product.
    #[inline(always)]
    fn mul_high_64(self, a: Self::W, b: Self::W) -> Self::W {
        // Add the four products of the 32-bit halves, from the lowest up.
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
    /// Loads the word at each index modulo the number of words. Panics unless the number of words
    /// is a power of two.
    fn gather_64(self, words: &[u64], indices: Self::W) -> Self::W;
    /// Returns the mask of the lanes whose bit `position`, 0 to 63, is set: bit `i` belongs to lane
    /// `i`.
    fn test_bit_64(self, a: Self::W, position: Self::W) -> u8;

    /// Updates the register `crc` of a CRC-32C with the eight bytes of `word`, lowest byte first,
    /// and returns the new register in the low 32 bits.
    fn crc32c(self, crc: u64, word: u64) -> u64;

    // Operations for bit streams.

    /// Subtracts `b` from `a`, lane by lane.
    fn sub_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// `a | b`
    fn or_64(self, a: Self::W, b: Self::W) -> Self::W;
    /// Shifts each lane left by its own count; the result is zero for counts from 64 on.
    fn shl_each_64(self, a: Self::W, count: Self::W) -> Self::W;
    /// Returns the number of leading zeros of each lane; 64 for zero.
    fn leading_zeros_64(self, a: Self::W) -> Self::W;
    /// Loads the eight bytes, big-endian, at each offset of `bytes`. An offset past the last eight
    /// bytes reads the last eight bytes. Panics unless `bytes` has at least 8 bytes.
    fn gather_big_endian_64(self, bytes: &[u8], offsets: Self::W) -> Self::W;
    /// Writes lane `i` of each row to `columns[i]`.
    fn store_columns_64(self, rows: [Self::W; 8], columns: [&mut [u64; 8]; 8]);
}

//! Operations of a vector unit on sixteen 32-bit lanes.

use super::Lanes64;

/// Sixteen lanes of `u32`. In memory they are `[u32; 16]`, whatever the width of the registers.
///
/// Bit `i` of a mask belongs to lane `i`. Arithmetic wraps.
pub trait Lanes: Lanes64 {
    /// Sixteen `u32` in registers.
    type V: Copy;

    /// Returns `value` in every lane.
    fn splat(self, value: u32) -> Self::V;
    /// Loads sixteen values from memory.
    fn load(self, from: &[u32; 16]) -> Self::V;
    /// Stores sixteen values to memory.
    fn store(self, value: Self::V, to: &mut [u32; 16]);

    /// Adds lane by lane.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Subtracts `b` from `a`, lane by lane.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a ^ b`
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a & b`
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the low 32 bits of each product.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the high 32 bits of each product.
    fn mul_high(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts each lane left by 0 to 31 bits.
    fn shl<const BITS: u32>(self, a: Self::V) -> Self::V;
    /// Shifts each lane right by 0 to 31 bits.
    fn shr<const BITS: u32>(self, a: Self::V) -> Self::V;
    /// Shifts each lane left by its own count, below 32.
    fn shl_each(self, a: Self::V, count: Self::V) -> Self::V;
    /// Shifts each lane right by its own count, below 32.
    fn shr_each(self, a: Self::V, count: Self::V) -> Self::V;
    /// Reverses the order of the four bytes of each lane.
    fn swap_bytes(self, a: Self::V) -> Self::V;
    /// Rotates each lane left by 0 to 31 bits.
    fn rotate_left<const BITS: u32>(self, a: Self::V) -> Self::V;

    /// Loads the four bytes, little-endian, at each offset of `bytes`. An offset past the last four
    /// bytes reads the last four bytes. Panics unless `bytes` has at least 4 and at most `i32::MAX`
    /// bytes.
    fn gather(self, bytes: &[u8], offsets: Self::V) -> Self::V;
    /// Loads the four words, little-endian, of each of sixteen 16-byte blocks. Lane `i` gets the
    /// words of `quads[i % 4 * 4 + i / 4]`.
    fn transpose(self, quads: &[[u8; 16]; 16]) -> [Self::V; 4];
    /// Returns the mask of the lanes whose bit `position`, 0 to 31, is set.
    fn test_bit(self, a: Self::V, position: Self::V) -> u16;
    /// Returns `a` in the lanes where the mask is set, and `b` in the others.
    fn select(self, mask: u16, a: Self::V, b: Self::V) -> Self::V;
    /// Writes the lanes whose mask bit is set to the start of `to`, in order and without gaps. The
    /// rest of `to` is unspecified afterwards.
    fn compress(self, mask: u16, value: Self::V, to: &mut [u32; 16]);

    /// Sixty-four words in registers, or in memory for [`look_up`](Self::look_up).
    type Table<'a>: Copy;

    /// Loads sixteen words, little-endian.
    fn load_bytes(self, from: &[u8; 64]) -> Self::V;
    /// Loads eight `u64` as sixteen words, the low half of each first.
    fn load_long(self, from: &[u64; 8]) -> Self::V;
    /// Stores sixteen words as eight `u64`, the low half of each first.
    fn store_long(self, value: Self::V, to: &mut [u64; 8]);
    /// `a | b`
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `true` if every bit that is set in `a` is set in `of`.
    fn is_subset(self, a: Self::V, of: Self::V) -> bool;
    /// Transposes 16 by 16 words: lane `i` of result `j` is lane `j` of `rows[i]`.
    fn transpose_words(self, rows: [Self::V; 16]) -> [Self::V; 16];
    /// Returns the 64 words, little-endian, of 256 bytes as a table for [`look_up`](Self::look_up).
    fn table(self, bytes: &[u8; 256]) -> Self::Table<'_>;
    /// Returns the word of the table at the low six bits of each index.
    fn look_up(self, table: Self::Table<'_>, index: Self::V) -> Self::V;

    // Operations on blocks of bits.

    /// Shifts each `u64` of eight left by its own count; the result is zero for counts from 64 on.
    fn shl_each_long(self, a: Self::V, count: Self::V) -> Self::V;
    /// Loads two times four `u64` as sixteen words, the low half of each first.
    fn load_long_halves(self, first: &[u64; 4], second: &[u64; 4]) -> Self::V;
    /// Returns `first` in lanes 0 to 7, and `second` in the others.
    fn splat_halves(self, first: u32, second: u32) -> Self::V;
    /// Returns one result for lanes 0 to 7, and one for lanes 8 to 15: `true` if every bit that is
    /// set in these lanes of `a` is also set in `of`.
    fn are_subsets(self, a: Self::V, of: Self::V) -> [bool; 2];
}

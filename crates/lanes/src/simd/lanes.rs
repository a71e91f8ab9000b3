//! What a vector unit does with sixteen 32-bit lanes.

use super::Lanes64;

/// Sixteen lanes of `u32`, in memory `[u32; 16]` whatever the width of the registers.
///
/// A mask holds lane `i` in bit `i`. Arithmetic wraps.
pub trait Lanes: Lanes64 {
    /// Sixteen `u32` in registers.
    type V: Copy;

    /// The value in every lane.
    fn splat(self, value: u32) -> Self::V;
    /// Sixteen values from memory.
    fn load(self, from: &[u32; 16]) -> Self::V;
    /// Sixteen values to memory.
    fn store(self, value: Self::V, to: &mut [u32; 16]);

    /// The sums.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// The differences.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a ^ b`
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a & b`
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    /// The low 32 bits of the product.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// The high 32 bits of the product.
    fn mul_high(self, a: Self::V, b: Self::V) -> Self::V;
    /// By 0 to 31 bits.
    fn shl<const BITS: u32>(self, a: Self::V) -> Self::V;
    /// By 0 to 31 bits.
    fn shr<const BITS: u32>(self, a: Self::V) -> Self::V;
    /// Each lane by its own count, below 32.
    fn shl_each(self, a: Self::V, count: Self::V) -> Self::V;
    /// Each lane by its own count, below 32.
    fn shr_each(self, a: Self::V, count: Self::V) -> Self::V;
    /// Each lane's four bytes in reverse order.
    fn swap_bytes(self, a: Self::V) -> Self::V;
    /// By 0 to 31 bits.
    fn rotate_left<const BITS: u32>(self, a: Self::V) -> Self::V;

    /// The four bytes, little-endian, at each offset of `bytes`, at least 4 and at most
    /// `i32::MAX` of them. An offset past the last four bytes reads those.
    fn gather(self, bytes: &[u8], offsets: Self::V) -> Self::V;
    /// The four words, little-endian, of sixteen times sixteen bytes: lane `i` has those of
    /// `quads[i % 4 * 4 + i / 4]`.
    fn transpose(self, quads: &[[u8; 16]; 16]) -> [Self::V; 4];
    /// The lanes whose bit `position`, 0 to 31, is set.
    fn test_bit(self, a: Self::V, position: Self::V) -> u16;
    /// `a` where the mask is set, `b` elsewhere.
    fn select(self, mask: u16, a: Self::V, b: Self::V) -> Self::V;
    /// Writes the lanes of the mask one behind the other from the start of `to`; what stands
    /// behind them in `to` afterwards is not defined.
    fn compress(self, mask: u16, value: Self::V, to: &mut [u32; 16]);

    /// Sixty-four words in registers, or where [`look_up`](Self::look_up) finds them.
    type Table<'a>: Copy;

    /// Sixteen words, little-endian.
    fn load_bytes(self, from: &[u8; 64]) -> Self::V;
    /// Eight `u64` as sixteen words, the low half of each first.
    fn load_long(self, from: &[u64; 8]) -> Self::V;
    /// Sixteen words as eight `u64`, the low half of each first.
    fn store_long(self, value: Self::V, to: &mut [u64; 8]);
    /// `a | b`
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Whether every bit of `a` is set in `of`.
    fn is_subset(self, a: Self::V, of: Self::V) -> bool;
    /// Lane `i` of result `j` is lane `j` of `rows[i]`.
    fn transpose_words(self, rows: [Self::V; 16]) -> [Self::V; 16];
    /// The 64 words, little-endian, of 256 bytes.
    fn table(self, bytes: &[u8; 256]) -> Self::Table<'_>;
    /// The table's word at the low six bits of each index.
    fn look_up(self, table: Self::Table<'_>, index: Self::V) -> Self::V;

    // Of blocks of bits.

    /// As eight `u64`, each by its own count: zero from 64 on.
    fn shl_each_long(self, a: Self::V, count: Self::V) -> Self::V;
    /// Twice four `u64` as sixteen words, the low half of each first.
    fn load_long_halves(self, first: &[u64; 4], second: &[u64; 4]) -> Self::V;
    /// `first` in lanes 0 to 7, `second` in the others.
    fn splat_halves(self, first: u32, second: u32) -> Self::V;
    /// For lanes 0 to 7 and for the others, whether every bit of `a` is set in `of`.
    fn are_subsets(self, a: Self::V, of: Self::V) -> [bool; 2];
}

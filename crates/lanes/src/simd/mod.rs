//! SIMD chosen at run time: the only unsafe code of the library.
//!
//! This module defines the vector operations, not the algorithms. An algorithm is a [`Kernel`]:
//! safe code in two versions. The scalar version is the oracle of the tests. The vector version
//! uses sixteen lanes of 32 bits, or four or eight lanes of 64 bits. [`Backend`] chooses one
//! version for each batch. Only detection creates a vector backend, so any existing vector backend
//! proves that the CPU has its instructions.

#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
use x86_64::{Avx2, Avx512};

/// Prefetches the cache line where a value starts, because the value will be read soon. Does
/// nothing on CPUs other than x86-64.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    x86_64::prefetch(value);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// An algorithm over slices with a scalar and a vector version, which return equal results.
pub trait Kernel: Sized {
    /// Result of the algorithm.
    type Output;

    /// Runs the scalar version.
    fn scalar(self) -> Self::Output;

    /// Runs the vector version on the given lanes. The implementation must be `#[inline(always)]`,
    /// and so must everything that it calls with lanes: it is compiled into a function that has the
    /// CPU features enabled. By default, the scalar version is compiled into this function, and
    /// uses the instructions that these features add, such as the instruction that counts bits.
    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Self::Output {
        let _ = lanes;
        self.scalar()
    }
}

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

/// The set of CPU instructions that the algorithms run on.
///
/// Every backend returns the same results; [`best`](Self::best) is the fastest set on this CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Backend(Choice);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Default for Backend {
    /// Returns the [best](Self::best) backend.
    fn default() -> Self {
        Self::best()
    }
}

impl Backend {
    /// Scalar code, which runs on every CPU.
    pub const SCALAR: Self = Self(Choice::Scalar);

    /// Returns the fastest backend of this CPU. With feature `std` the CPU is asked at run time;
    /// without `std`, the result follows from the CPU features for which the crate was compiled.
    #[inline]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(avx512) = Avx512::detect() {
                return Self(Choice::Avx512(avx512));
            }
            if let Some(avx2) = Avx2::detect() {
                return Self(Choice::Avx2(avx2));
            }
        }
        Self::SCALAR
    }

    /// Returns every backend of this CPU, from the slowest to the fastest.
    pub fn available() -> impl Iterator<Item = Self> {
        let backends = [
            Some(Self::SCALAR),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(|avx2| Self(Choice::Avx2(avx2))),
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(|avx512| Self(Choice::Avx512(avx512))),
        ];
        backends.into_iter().flatten()
    }

    /// Returns the name: `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Choice::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(_) => "avx512",
        }
    }

    /// Runs an algorithm on this backend.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Choice::Scalar => kernel.scalar(),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(avx2) => avx2.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(avx512) => avx512.run(kernel),
        }
    }
}

impl core::fmt::Debug for Backend {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

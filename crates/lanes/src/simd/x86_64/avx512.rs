//! AVX-512: sixteen 32-bit lanes in one register.

#![expect(unsafe_code, reason = "CPU intrinsics")]

use core::arch::x86_64::{
    __m512i, _mm256_loadu_si256, _mm512_add_epi32, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_castsi256_si512, _mm512_i32gather_epi32, _mm512_inserti64x4, _mm512_loadu_si512,
    _mm512_mask_blend_epi32, _mm512_maskz_compress_epi32, _mm512_min_epu32, _mm512_mul_epu32,
    _mm512_mullo_epi32, _mm512_or_si512, _mm512_permutex2var_epi32, _mm512_rolv_epi32,
    _mm512_set1_epi32, _mm512_shuffle_epi8, _mm512_shuffle_epi32, _mm512_shuffle_i32x4,
    _mm512_sllv_epi32, _mm512_srlv_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
    _mm512_test_epi32_mask, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::{binary, cpu_has, last_offset};
use crate::simd::{Kernel, Lanes, Lanes64};

/// Proof that the CPU has the features: only [`detect`](Self::detect) creates one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::simd) struct Avx512(());

/// Calls one intrinsic on registers.
macro_rules! op {
    ($intrinsic:expr) => {{
        // SAFETY: an `Avx512` exists here, so `detect` found the CPU features of the intrinsic, and
        // the intrinsic has no other precondition.
        unsafe { $intrinsic }
    }};
}

mod lanes64;

impl Avx512 {
    #[inline]
    pub(in crate::simd) fn detect() -> Option<Self> {
        cpu_has!("avx512f", "avx512vl", "avx512bw", "avx512cd", "bmi2", "lzcnt", "popcnt", "sse4.2")
            .then_some(Self(()))
    }

    #[inline]
    pub(in crate::simd) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512cd,bmi2,lzcnt,popcnt,sse4.2")]
        fn with_features<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
            kernel.vector(lanes)
        }
        op!(with_features(self, kernel))
    }
}

#[expect(clippy::unused_self, reason = "`self` is the proof that the CPU has the features")]
impl Avx512 {
    /// Transposes four rows within each 128-bit quarter: lane `i` of result `j` is lane `j` of
    /// `rows[i]`.
    #[inline(always)]
    fn transpose_quarters(self, rows: [__m512i; 4]) -> [__m512i; 4] {
        let low = [
            op!(_mm512_unpacklo_epi32(rows[0], rows[1])),
            op!(_mm512_unpacklo_epi32(rows[2], rows[3])),
        ];
        let high = [
            op!(_mm512_unpackhi_epi32(rows[0], rows[1])),
            op!(_mm512_unpackhi_epi32(rows[2], rows[3])),
        ];
        [
            op!(_mm512_unpacklo_epi64(low[0], low[1])),
            op!(_mm512_unpackhi_epi64(low[0], low[1])),
            op!(_mm512_unpacklo_epi64(high[0], high[1])),
            op!(_mm512_unpackhi_epi64(high[0], high[1])),
        ]
    }

    /// Transposes the 128-bit quarters: quarter `i` of result `j` is quarter `j` of `rows[i]`.
    #[inline(always)]
    fn gather_quarters(self, rows: [__m512i; 4]) -> [__m512i; 4] {
        let low = [
            op!(_mm512_shuffle_i32x4::<0b01_00_01_00>(rows[0], rows[1])),
            op!(_mm512_shuffle_i32x4::<0b01_00_01_00>(rows[2], rows[3])),
        ];
        let high = [
            op!(_mm512_shuffle_i32x4::<0b11_10_11_10>(rows[0], rows[1])),
            op!(_mm512_shuffle_i32x4::<0b11_10_11_10>(rows[2], rows[3])),
        ];
        [
            op!(_mm512_shuffle_i32x4::<0b10_00_10_00>(low[0], low[1])),
            op!(_mm512_shuffle_i32x4::<0b11_01_11_01>(low[0], low[1])),
            op!(_mm512_shuffle_i32x4::<0b10_00_10_00>(high[0], high[1])),
            op!(_mm512_shuffle_i32x4::<0b11_01_11_01>(high[0], high[1])),
        ]
    }
}

impl Lanes for Avx512 {
    type V = __m512i;

    #[inline(always)]
    fn splat(self, value: u32) -> __m512i {
        op!(_mm512_set1_epi32(value.cast_signed()))
    }

    #[inline(always)]
    fn load(self, from: &[u32; 16]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, value: __m512i, to: &mut [u32; 16]) {
        // SAFETY: the array has the 64 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    binary! {
        __m512i, op:
        add = _mm512_add_epi32,
        sub = _mm512_sub_epi32,
        xor = _mm512_xor_si512,
        and = _mm512_and_si512,
        mul = _mm512_mullo_epi32,
        shl_each = _mm512_sllv_epi32,
        shr_each = _mm512_srlv_epi32,
        or = _mm512_or_si512,
    }

    #[inline(always)]
    fn mul_high(self, a: __m512i, b: __m512i) -> __m512i {
        // Multiply the even lanes to 64-bit products, then the odd lanes, which are moved to even
        // positions first.
        let even = op!(_mm512_mul_epu32(a, b));
        let a = op!(_mm512_shuffle_epi32::<0b11_11_01_01>(a));
        let b = op!(_mm512_shuffle_epi32::<0b11_11_01_01>(b));
        let odd = op!(_mm512_mul_epu32(a, b));
        let even = op!(_mm512_shuffle_epi32::<0b11_11_01_01>(even));
        self.select(0xaaaa, odd, even)
    }

    // Shifts by a constant use the intrinsic with a count for each lane; the compiler turns it into
    // the instruction with an immediate count.

    #[inline(always)]
    fn shl<const BITS: u32>(self, a: __m512i) -> __m512i {
        self.shl_each(a, self.splat(BITS))
    }

    #[inline(always)]
    fn shr<const BITS: u32>(self, a: __m512i) -> __m512i {
        self.shr_each(a, self.splat(BITS))
    }

    #[inline(always)]
    fn swap_bytes(self, a: __m512i) -> __m512i {
        let order = self.load(&super::SWAP_BYTES);
        op!(_mm512_shuffle_epi8(a, order))
    }

    #[inline(always)]
    fn rotate_left<const BITS: u32>(self, a: __m512i) -> __m512i {
        op!(_mm512_rolv_epi32(a, self.splat(BITS)))
    }

    #[inline(always)]
    fn gather(self, bytes: &[u8], offsets: __m512i) -> __m512i {
        let offsets = op!(_mm512_min_epu32(offsets, self.splat(last_offset(bytes))));
        // SAFETY: the minimum instruction has limited every offset to `bytes.len() - 4`, and this
        // bound fits a non-negative `i32`.
        unsafe { _mm512_i32gather_epi32::<1>(offsets, bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn transpose(self, quads: &[[u8; 16]; 16]) -> [__m512i; 4] {
        let (columns, _) = quads.as_chunks::<4>();
        let load = |column: usize| {
            let column: &[[u8; 16]; 4] = &columns[column];
            // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
            // alignment.
            unsafe { _mm512_loadu_si512(column.as_ptr().cast()) }
        };
        self.transpose_quarters([load(0), load(1), load(2), load(3)])
    }

    #[inline(always)]
    fn test_bit(self, a: __m512i, position: __m512i) -> u16 {
        let bit = self.shl_each(self.splat(1), position);
        op!(_mm512_test_epi32_mask(a, bit))
    }

    #[inline(always)]
    fn select(self, mask: u16, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mask_blend_epi32(mask, b, a))
    }

    #[inline(always)]
    fn compress(self, mask: u16, value: __m512i, to: &mut [u32; 16]) {
        self.store(op!(_mm512_maskz_compress_epi32(mask, value)), to);
    }

    type Table<'a> = [__m512i; 4];

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 64]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_long(self, from: &[u64; 8]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_long(self, value: __m512i, to: &mut [u64; 8]) {
        // SAFETY: the array has the 64 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn is_subset(self, a: __m512i, of: __m512i) -> bool {
        let missing = op!(_mm512_andnot_si512(of, a));
        op!(_mm512_test_epi32_mask(missing, missing)) == 0
    }

    #[inline(always)]
    fn transpose_words(self, rows: [__m512i; 16]) -> [__m512i; 16] {
        // Transpose within 128 bits, for four rows at a time, then transpose the quarters of all
        // rows.
        let [q0, q1, q2, q3] = [
            self.transpose_quarters([rows[0], rows[1], rows[2], rows[3]]),
            self.transpose_quarters([rows[4], rows[5], rows[6], rows[7]]),
            self.transpose_quarters([rows[8], rows[9], rows[10], rows[11]]),
            self.transpose_quarters([rows[12], rows[13], rows[14], rows[15]]),
        ];
        let c0 = self.gather_quarters([q0[0], q1[0], q2[0], q3[0]]);
        let c1 = self.gather_quarters([q0[1], q1[1], q2[1], q3[1]]);
        let c2 = self.gather_quarters([q0[2], q1[2], q2[2], q3[2]]);
        let c3 = self.gather_quarters([q0[3], q1[3], q2[3], q3[3]]);
        [
            c0[0], c1[0], c2[0], c3[0], c0[1], c1[1], c2[1], c3[1], c0[2], c1[2], c2[2], c3[2],
            c0[3], c1[3], c2[3], c3[3],
        ]
    }

    #[inline(always)]
    fn table(self, bytes: &[u8; 256]) -> [__m512i; 4] {
        let (quarters, _) = bytes.as_chunks::<64>();
        [
            self.load_bytes(&quarters[0]),
            self.load_bytes(&quarters[1]),
            self.load_bytes(&quarters[2]),
            self.load_bytes(&quarters[3]),
        ]
    }

    #[inline(always)]
    fn look_up(self, table: [__m512i; 4], index: __m512i) -> __m512i {
        // The permutation uses the low five bits of each index; the sixth bit chooses the half of
        // the table.
        let low = op!(_mm512_permutex2var_epi32(table[0], index, table[1]));
        let high = op!(_mm512_permutex2var_epi32(table[2], index, table[3]));
        let half = op!(_mm512_test_epi32_mask(index, self.splat(32)));
        self.select(half, high, low)
    }

    #[inline(always)]
    fn shl_each_long(self, a: __m512i, count: __m512i) -> __m512i {
        self.shl_each_64(a, count)
    }

    #[inline(always)]
    fn load_long_halves(self, first: &[u64; 4], second: &[u64; 4]) -> __m512i {
        // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        let first = unsafe { _mm256_loadu_si256(first.as_ptr().cast()) };
        // SAFETY: as above.
        let second = unsafe { _mm256_loadu_si256(second.as_ptr().cast()) };
        let first = op!(_mm512_castsi256_si512(first));
        op!(_mm512_inserti64x4::<1>(first, second))
    }

    #[inline(always)]
    fn splat_halves(self, first: u32, second: u32) -> __m512i {
        self.select(0xff00, self.splat(second), self.splat(first))
    }

    #[inline(always)]
    fn are_subsets(self, a: __m512i, of: __m512i) -> [bool; 2] {
        let missing = op!(_mm512_andnot_si512(of, a));
        op!(_mm512_test_epi32_mask(missing, missing)).to_le_bytes().map(|half| half == 0)
    }
}

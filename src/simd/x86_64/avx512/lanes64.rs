//! Eight lanes of 64 bits in one register.

use core::arch::x86_64::{
    __m512i, _mm512_add_epi64, _mm512_and_si512, _mm512_i64gather_epi64, _mm512_loadu_si512,
    _mm512_lzcnt_epi64, _mm512_min_epu64, _mm512_mul_epu32, _mm512_or_si512, _mm512_rolv_epi64,
    _mm512_set1_epi64, _mm512_shuffle_epi8, _mm512_shuffle_i64x2, _mm512_sllv_epi64,
    _mm512_srlv_epi64, _mm512_storeu_si512, _mm512_sub_epi64, _mm512_ternarylogic_epi64,
    _mm512_test_epi64_mask, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::super::{SWAP_BYTES_64, last_offset_64, last_word_index};
use super::Avx512;
use crate::simd::Lanes64;

impl Lanes64 for Avx512 {
    type W = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat_64(self, value: u64) -> __m512i {
        op!(_mm512_set1_epi64(value.cast_signed()))
    }

    #[inline(always)]
    fn load_64(self, from: &[u64; 8]) -> __m512i {
        // SAFETY: the array is the 64 bytes that are read; no alignment is asked for.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_64(self, value: __m512i, to: &mut [u64; 8]) {
        // SAFETY: the array is the 64 bytes that are written; no alignment is asked for.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn xor_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_xor_si512(a, b))
    }

    #[inline(always)]
    fn and_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_and_si512(a, b))
    }

    // The table of the three inputs' function: bit 4a + 2b + c is its value there.

    #[inline(always)]
    fn xor3_64(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        op!(_mm512_ternarylogic_epi64::<0b1001_0110>(a, b, c))
    }

    #[inline(always)]
    fn xor_and_not_64(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        op!(_mm512_ternarylogic_epi64::<0b1101_0010>(a, b, c))
    }

    #[inline(always)]
    fn rotate_left_64<const BITS: u32>(self, a: __m512i) -> __m512i {
        op!(_mm512_rolv_epi64(a, self.splat_64(BITS.into())))
    }

    #[inline(always)]
    fn transpose_64(self, rows: [&[u8; 64]; 8]) -> [__m512i; 8] {
        let load = |row: usize| {
            let row: &[u8; 64] = rows[row];
            // SAFETY: the array is the 64 bytes that are read; no alignment is asked for.
            unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
        };
        // Of two rows, the even words of both, and the odd ones, in pairs.
        let pair = |row: usize| {
            let (a, b) = (load(row), load(row + 1));
            [op!(_mm512_unpacklo_epi64(a, b)), op!(_mm512_unpackhi_epi64(a, b))]
        };
        let pairs = [pair(0), pair(2), pair(4), pair(6)];
        // Words 0, 2, 4, 6, or one more each: four times four pairs turned around.
        let turn = |odd: usize| {
            let (low, high) = ((pairs[0][odd], pairs[1][odd]), (pairs[2][odd], pairs[3][odd]));
            let low_0_4 = op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(low.0, low.1));
            let low_2_6 = op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(low.0, low.1));
            let high_0_4 = op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(high.0, high.1));
            let high_2_6 = op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(high.0, high.1));
            [
                op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(low_0_4, high_0_4)),
                op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(low_2_6, high_2_6)),
                op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(low_0_4, high_0_4)),
                op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(low_2_6, high_2_6)),
            ]
        };
        let ([a, c, e, g], [b, d, f, h]) = (turn(0), turn(1));
        [a, b, c, d, e, f, g, h]
    }

    #[inline(always)]
    fn load_slice_64(self, from: &[u64]) -> __m512i {
        self.load_64(from.first_chunk().expect("eight words"))
    }

    #[inline(always)]
    fn store_slice_64(self, value: __m512i, to: &mut [u64]) {
        self.store_64(value, to.first_chunk_mut().expect("eight words"));
    }

    #[inline(always)]
    fn add_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_add_epi64(a, b))
    }

    #[inline(always)]
    fn shr_each_64(self, a: __m512i, count: __m512i) -> __m512i {
        op!(_mm512_srlv_epi64(a, count))
    }

    #[inline(always)]
    fn mul_low_halves_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mul_epu32(a, b))
    }

    #[inline(always)]
    fn gather_64(self, words: &[u64], indices: __m512i) -> __m512i {
        let indices = self.and_64(indices, self.splat_64(last_word_index(words)));
        // SAFETY: every index was brought down to at most `words.len() - 1`.
        unsafe { _mm512_i64gather_epi64::<8>(indices, words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn test_bit_64(self, a: __m512i, position: __m512i) -> u8 {
        let bit = op!(_mm512_sllv_epi64(self.splat_64(1), position));
        op!(_mm512_test_epi64_mask(a, bit))
    }

    #[inline(always)]
    fn sub_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_sub_epi64(a, b))
    }

    #[inline(always)]
    fn or_64(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_or_si512(a, b))
    }

    #[inline(always)]
    fn shl_each_64(self, a: __m512i, count: __m512i) -> __m512i {
        op!(_mm512_sllv_epi64(a, count))
    }

    #[inline(always)]
    fn leading_zeros_64(self, a: __m512i) -> __m512i {
        op!(_mm512_lzcnt_epi64(a))
    }

    #[inline(always)]
    fn gather_big_endian_64(self, bytes: &[u8], offsets: __m512i) -> __m512i {
        let last = self.splat_64(last_offset_64(bytes));
        let offsets = op!(_mm512_min_epu64(offsets, last));
        // SAFETY: every offset was brought down to at most `bytes.len() - 8`, so that the eight
        // bytes there are inside.
        let words = unsafe { _mm512_i64gather_epi64::<1>(offsets, bytes.as_ptr().cast()) };
        op!(_mm512_shuffle_epi8(words, self.load_64(&SWAP_BYTES_64)))
    }
}

//! Eight lanes of 64 bits in one register.

use core::arch::x86_64::{
    __m512i, _mm_crc32_u64, _mm512_add_epi64, _mm512_and_si512, _mm512_i64gather_epi64,
    _mm512_loadu_si512, _mm512_lzcnt_epi64, _mm512_min_epu64, _mm512_mul_epu32, _mm512_or_si512,
    _mm512_rolv_epi64, _mm512_set1_epi64, _mm512_shuffle_epi8, _mm512_shuffle_i64x2,
    _mm512_sllv_epi64, _mm512_srlv_epi64, _mm512_storeu_si512, _mm512_sub_epi64,
    _mm512_ternarylogic_epi64, _mm512_test_epi64_mask, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::super::{SWAP_BYTES_64, binary, last_offset_64, last_word_index};
use super::Avx512;
use crate::simd::Lanes64;

#[expect(clippy::unused_self, reason = "`self` is the proof that the CPU has the features")]
impl Avx512 {
    /// Transposes 8 by 8 words: lane `i` of result `j` is lane `j` of row `i`.
    #[inline(always)]
    fn turn_64(self, rows: &[__m512i; 8]) -> [__m512i; 8] {
        // For each pair of rows, interleave the even words of both, and the odd words of both.
        let [a, b] = self.pairs_64(rows[0], rows[1]);
        let [c, d] = self.pairs_64(rows[2], rows[3]);
        let [e, f] = self.pairs_64(rows[4], rows[5]);
        let [g, h] = self.pairs_64(rows[6], rows[7]);
        let [word_0, word_2, word_4, word_6] = self.turn_pairs_64([a, c, e, g]);
        let [word_1, word_3, word_5, word_7] = self.turn_pairs_64([b, d, f, h]);
        [word_0, word_1, word_2, word_3, word_4, word_5, word_6, word_7]
    }

    #[inline(always)]
    fn pairs_64(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        [op!(_mm512_unpacklo_epi64(a, b)), op!(_mm512_unpackhi_epi64(a, b))]
    }

    /// Transposes 4 by 4 pairs of words.
    #[inline(always)]
    fn turn_pairs_64(self, [a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        let low_0_4 = op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b));
        let low_2_6 = op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(a, b));
        let high_0_4 = op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(c, d));
        let high_2_6 = op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(c, d));
        [
            op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(low_0_4, high_0_4)),
            op!(_mm512_shuffle_i64x2::<0b10_00_10_00>(low_2_6, high_2_6)),
            op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(low_0_4, high_0_4)),
            op!(_mm512_shuffle_i64x2::<0b11_01_11_01>(low_2_6, high_2_6)),
        ]
    }
}

impl Lanes64 for Avx512 {
    type W = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat_64(self, value: u64) -> __m512i {
        op!(_mm512_set1_epi64(value.cast_signed()))
    }

    #[inline(always)]
    fn load_64(self, from: &[u64; 8]) -> __m512i {
        // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_64(self, value: __m512i, to: &mut [u64; 8]) {
        // SAFETY: the array has the 64 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    binary! {
        __m512i, op:
        xor_64 = _mm512_xor_si512,
        and_64 = _mm512_and_si512,
        add_64 = _mm512_add_epi64,
        shr_each_64 = _mm512_srlv_epi64,
        mul_low_halves_64 = _mm512_mul_epu32,
        sub_64 = _mm512_sub_epi64,
        or_64 = _mm512_or_si512,
        shl_each_64 = _mm512_sllv_epi64,
    }

    // The constant is the truth table of the three inputs: bit 4a + 2b + c is the result for a, b,
    // c.

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
            // SAFETY: the array has the 64 bytes that are read, and the intrinsic requires no
            // alignment.
            unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
        };
        let rows = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
        self.turn_64(&rows)
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
    fn gather_64(self, words: &[u64], indices: __m512i) -> __m512i {
        let indices = self.and_64(indices, self.splat_64(last_word_index(words)));
        // SAFETY: the mask has limited every index to `words.len() - 1`.
        unsafe { _mm512_i64gather_epi64::<8>(indices, words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn crc32c(self, crc: u64, word: u64) -> u64 {
        op!(_mm_crc32_u64(crc, word))
    }

    #[inline(always)]
    fn test_bit_64(self, a: __m512i, position: __m512i) -> u8 {
        let bit = op!(_mm512_sllv_epi64(self.splat_64(1), position));
        op!(_mm512_test_epi64_mask(a, bit))
    }

    #[inline(always)]
    fn leading_zeros_64(self, a: __m512i) -> __m512i {
        op!(_mm512_lzcnt_epi64(a))
    }

    #[inline(always)]
    fn gather_big_endian_64(self, bytes: &[u8], offsets: __m512i) -> __m512i {
        let last = self.splat_64(last_offset_64(bytes));
        let offsets = op!(_mm512_min_epu64(offsets, last));
        // SAFETY: the minimum instruction has limited every offset to `bytes.len() - 8`, so the
        // eight bytes from each offset on are inside `bytes`.
        let words = unsafe { _mm512_i64gather_epi64::<1>(offsets, bytes.as_ptr().cast()) };
        op!(_mm512_shuffle_epi8(words, self.load_64(&SWAP_BYTES_64)))
    }

    #[inline(always)]
    fn store_columns_64(self, rows: [__m512i; 8], columns: [&mut [u64; 8]; 8]) {
        let turned = self.turn_64(&rows);
        for lane in 0..8 {
            self.store_64(turned[lane], columns[lane]);
        }
    }
}

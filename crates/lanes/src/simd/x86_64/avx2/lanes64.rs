//! Four lanes of 64 bits in one register. Eight lanes in two registers would make Keccak a tenth
//! faster if all lanes are busy, but would take twice as long if at most four lanes are busy.

use core::arch::x86_64::{
    __m256i, _mm_crc32_u64, _mm256_add_epi64, _mm256_and_si256, _mm256_andnot_si256,
    _mm256_blendv_epi8, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64,
    _mm256_i64gather_epi64, _mm256_loadu_si256, _mm256_movemask_pd, _mm256_mul_epu32,
    _mm256_or_si256, _mm256_permute2x128_si256, _mm256_set1_epi64x, _mm256_shuffle_epi8,
    _mm256_sllv_epi64, _mm256_srlv_epi64, _mm256_storeu_si256, _mm256_sub_epi64,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::super::{SWAP_BYTES_64, binary, last_offset_64, last_word_index};
use super::Avx2;
use crate::simd::Lanes64;

impl Avx2 {
    /// Transposes 4 by 4 words: lane `i` of result `j` is lane `j` of row `i`.
    #[inline(always)]
    fn turn_64(self, [a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
        let even = (op!(_mm256_unpacklo_epi64(a, b)), op!(_mm256_unpacklo_epi64(c, d)));
        let odd = (op!(_mm256_unpackhi_epi64(a, b)), op!(_mm256_unpackhi_epi64(c, d)));
        [
            op!(_mm256_permute2x128_si256::<0x20>(even.0, even.1)),
            op!(_mm256_permute2x128_si256::<0x20>(odd.0, odd.1)),
            op!(_mm256_permute2x128_si256::<0x31>(even.0, even.1)),
            op!(_mm256_permute2x128_si256::<0x31>(odd.0, odd.1)),
        ]
    }
}

impl Lanes64 for Avx2 {
    type W = __m256i;
    const LANES: usize = 4;

    #[inline(always)]
    fn splat_64(self, value: u64) -> __m256i {
        op!(_mm256_set1_epi64x(value.cast_signed()))
    }

    #[inline(always)]
    fn load_64(self, from: &[u64; 8]) -> __m256i {
        // SAFETY: the array has more than the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_64(self, value: __m256i, to: &mut [u64; 8]) {
        // SAFETY: the array has more than the 32 bytes that are written, and the intrinsic requires
        // no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    binary! {
        __m256i, op:
        xor_64 = _mm256_xor_si256,
        and_64 = _mm256_and_si256,
        add_64 = _mm256_add_epi64,
        shr_each_64 = _mm256_srlv_epi64,
        mul_low_halves_64 = _mm256_mul_epu32,
        sub_64 = _mm256_sub_epi64,
        or_64 = _mm256_or_si256,
        shl_each_64 = _mm256_sllv_epi64,
    }

    #[inline(always)]
    fn xor3_64(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        self.xor_64(self.xor_64(a, b), c)
    }

    #[inline(always)]
    fn xor_and_not_64(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        self.xor_64(a, op!(_mm256_andnot_si256(b, c)))
    }

    // The compiler turns the counts of the lanes into immediates.
    #[inline(always)]
    fn rotate_left_64<const BITS: u32>(self, a: __m256i) -> __m256i {
        let up = op!(_mm256_sllv_epi64(a, self.splat_64(BITS.into())));
        let down = op!(_mm256_srlv_epi64(a, self.splat_64((64 - BITS).into())));
        op!(_mm256_or_si256(up, down))
    }

    #[inline(always)]
    fn transpose_64(self, rows: [&[u8; 64]; 8]) -> [__m256i; 8] {
        let load = |row: usize, half: usize| {
            let row: &[u8; 32] = &rows[row].as_chunks().0[half];
            // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
            // alignment.
            unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
        };
        let turn =
            |half| self.turn_64([load(0, half), load(1, half), load(2, half), load(3, half)]);
        let ([a, b, c, d], [e, f, g, h]) = (turn(0), turn(1));
        [a, b, c, d, e, f, g, h]
    }

    #[inline(always)]
    fn load_slice_64(self, from: &[u64]) -> __m256i {
        let from: &[u64; 4] = from.first_chunk().expect("four words");
        // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_slice_64(self, value: __m256i, to: &mut [u64]) {
        let to: &mut [u64; 4] = to.first_chunk_mut().expect("four words");
        // SAFETY: the array has the 32 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn gather_64(self, words: &[u64], indices: __m256i) -> __m256i {
        let indices = self.and_64(indices, self.splat_64(last_word_index(words)));
        // SAFETY: the mask has limited every index to `words.len() - 1`.
        unsafe { _mm256_i64gather_epi64::<8>(words.as_ptr().cast(), indices) }
    }

    #[inline(always)]
    fn crc32c(self, crc: u64, word: u64) -> u64 {
        op!(_mm_crc32_u64(crc, word))
    }

    #[inline(always)]
    fn test_bit_64(self, a: __m256i, position: __m256i) -> u8 {
        // Shift the bit to the sign position, left by 63 - position: `movemask` collects the signs.
        let count = op!(_mm256_sub_epi64(self.splat_64(63), position));
        let shifted = op!(_mm256_sllv_epi64(a, count));
        let signs = op!(_mm256_castsi256_pd(shifted));
        u8::try_from(op!(_mm256_movemask_pd(signs))).unwrap_or_default()
    }

    #[inline(always)]
    fn leading_zeros_64(self, mut a: __m256i) -> __m256i {
        // AVX2 has no count of leading zeros: so the leading zeros are counted in steps of 32, 16,
        // 8, 4, 2 and 1 bits. A second step of 1 bit counts the 64th zero of a zero word.
        let mut zeros = self.splat_64(0);
        for half in [32, 16, 8, 4, 2, 1, 1] {
            let top = self.shr_each_64(a, self.splat_64(64 - half));
            let is_zero = op!(_mm256_cmpeq_epi64(top, self.splat_64(0)));
            let skipped = self.and_64(is_zero, self.splat_64(half));
            zeros = self.add_64(zeros, skipped);
            a = self.shl_each_64(a, skipped);
        }
        zeros
    }

    #[inline(always)]
    fn gather_big_endian_64(self, bytes: &[u8], offsets: __m256i) -> __m256i {
        let last = self.splat_64(last_offset_64(bytes));
        // AVX2 compares signed numbers only. With the top bit flipped, signed order is unsigned
        // order.
        let flip = self.splat_64(1 << 63);
        let is_past = op!(_mm256_cmpgt_epi64(self.xor_64(offsets, flip), self.xor_64(last, flip)));
        let offsets = op!(_mm256_blendv_epi8(offsets, last, is_past));
        // SAFETY: the blend has limited every offset to `bytes.len() - 8`, so the eight bytes from
        // each offset on are inside `bytes`.
        let words = unsafe { _mm256_i64gather_epi64::<1>(bytes.as_ptr().cast(), offsets) };
        op!(_mm256_shuffle_epi8(words, self.load_64(&SWAP_BYTES_64)))
    }

    #[inline(always)]
    fn store_columns_64(self, rows: [__m256i; 8], columns: [&mut [u64; 8]; 8]) {
        let [a, b, c, d, e, f, g, h] = rows;
        let (low, high) = (self.turn_64([a, b, c, d]), self.turn_64([e, f, g, h]));
        for lane in 0..4 {
            self.store_slice_64(low[lane], columns[lane]);
            self.store_slice_64(high[lane], &mut columns[lane][4..]);
        }
    }
}

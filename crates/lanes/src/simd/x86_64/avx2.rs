//! AVX2: sixteen 32-bit lanes in two registers.

#![expect(unsafe_code, reason = "CPU intrinsics")]
#![expect(clippy::unused_self, reason = "`self` is the proof that the CPU has the features")]

use core::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_blend_epi32,
    _mm256_blendv_epi8, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_i32gather_epi32,
    _mm256_loadu_si256, _mm256_min_epu32, _mm256_movemask_ps, _mm256_mul_epu32, _mm256_mullo_epi32,
    _mm256_or_si256, _mm256_permute2x128_si256, _mm256_permutevar8x32_epi32, _mm256_set1_epi32,
    _mm256_shuffle_epi8, _mm256_shuffle_epi32, _mm256_sllv_epi32, _mm256_sllv_epi64,
    _mm256_srlv_epi32, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_testc_si256,
    _mm256_testz_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::{binary, cpu_has, last_offset};
use crate::simd::{Kernel, Lanes, Lanes64};

/// Proof that the CPU has the features: only [`detect`](Self::detect) creates one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::simd) struct Avx2(());

/// Calls one intrinsic on registers.
macro_rules! op {
    ($intrinsic:expr) => {{
        // SAFETY: an `Avx2` exists here, so `detect` found the CPU features of the intrinsic, and
        // the intrinsic has no other precondition.
        unsafe { $intrinsic }
    }};
}

mod lanes64;

/// Calls the same intrinsic on both registers.
macro_rules! both {
    ($intrinsic:ident($($argument:expr),*)) => {
        [op!($intrinsic($($argument[0]),*)), op!($intrinsic($($argument[1]),*))]
    };
}

/// An entry for each mask of eight lanes: the numbers of the lanes that are set in the mask,
/// ascending, four bits for each number.
static COMPRESS: [u32; 256] = {
    let mut table = [0; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut place) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 != 0 {
                table[mask] |= lane << place;
                place += 4;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
};

impl Avx2 {
    #[inline]
    pub(in crate::simd) fn detect() -> Option<Self> {
        cpu_has!("avx2", "bmi2", "lzcnt", "popcnt", "sse4.2").then_some(Self(()))
    }

    #[inline]
    pub(in crate::simd) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,bmi2,lzcnt,popcnt,sse4.2")]
        fn with_features<K: Kernel>(lanes: Avx2, kernel: K) -> K::Output {
            kernel.vector(lanes)
        }
        op!(with_features(self, kernel))
    }

    #[inline(always)]
    fn splat_one(self, value: u32) -> __m256i {
        op!(_mm256_set1_epi32(value.cast_signed()))
    }

    #[inline(always)]
    fn mul_high_one(self, a: __m256i, b: __m256i) -> __m256i {
        // Multiply the even lanes to 64-bit products, then the odd lanes, which are moved to even
        // positions first.
        let even = op!(_mm256_mul_epu32(a, b));
        let a = op!(_mm256_shuffle_epi32::<0b11_11_01_01>(a));
        let b = op!(_mm256_shuffle_epi32::<0b11_11_01_01>(b));
        let odd = op!(_mm256_mul_epu32(a, b));
        let even = op!(_mm256_shuffle_epi32::<0b11_11_01_01>(even));
        op!(_mm256_blend_epi32::<0b1010_1010>(even, odd))
    }

    /// Returns all ones in the lanes that are set in the mask's low eight bits.
    #[inline(always)]
    fn expand_mask(self, mask: u16) -> __m256i {
        let bits = [1, 2, 4, 8, 16, 32, 64, 128];
        let bits = self.load_half(&bits);
        let set = op!(_mm256_and_si256(self.splat_one(u32::from(mask)), bits));
        op!(_mm256_cmpeq_epi32(set, bits))
    }

    #[inline(always)]
    fn load_half(self, from: &[u32; 8]) -> __m256i {
        // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store_half(self, value: __m256i, to: &mut [u32; 8]) {
        // SAFETY: the array has the 32 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn compress_half(self, mask: u16, value: __m256i, to: &mut [u32; 8]) {
        let lanes = self.splat_one(COMPRESS[usize::from(mask & 0xff)]);
        let places = self.load_half(&[0, 4, 8, 12, 16, 20, 24, 28]);
        // The permutation uses only the low three bits of each index.
        let lanes = op!(_mm256_srlv_epi32(lanes, places));
        self.store_half(op!(_mm256_permutevar8x32_epi32(value, lanes)), to);
    }
}

impl Avx2 {
    /// Transposes register `HALF` of four rows within each 128-bit half: lane `i` of result `j` is
    /// lane `j` of `rows[i]`.
    #[inline(always)]
    fn transpose_halves<const HALF: usize>(self, rows: [<Self as Lanes>::V; 4]) -> [__m256i; 4] {
        let low = [
            op!(_mm256_unpacklo_epi32(rows[0][HALF], rows[1][HALF])),
            op!(_mm256_unpacklo_epi32(rows[2][HALF], rows[3][HALF])),
        ];
        let high = [
            op!(_mm256_unpackhi_epi32(rows[0][HALF], rows[1][HALF])),
            op!(_mm256_unpackhi_epi32(rows[2][HALF], rows[3][HALF])),
        ];
        [
            op!(_mm256_unpacklo_epi64(low[0], low[1])),
            op!(_mm256_unpackhi_epi64(low[0], low[1])),
            op!(_mm256_unpacklo_epi64(high[0], high[1])),
            op!(_mm256_unpackhi_epi64(high[0], high[1])),
        ]
    }

    /// Transposes register `HALF` of eight rows: lane `i` of result `j` is lane `j` of `rows[i]`.
    #[inline(always)]
    fn transpose_block<const HALF: usize>(self, rows: &[<Self as Lanes>::V; 8]) -> [__m256i; 8] {
        let a = self.transpose_halves::<HALF>([rows[0], rows[1], rows[2], rows[3]]);
        let b = self.transpose_halves::<HALF>([rows[4], rows[5], rows[6], rows[7]]);
        [
            op!(_mm256_permute2x128_si256::<0x20>(a[0], b[0])),
            op!(_mm256_permute2x128_si256::<0x20>(a[1], b[1])),
            op!(_mm256_permute2x128_si256::<0x20>(a[2], b[2])),
            op!(_mm256_permute2x128_si256::<0x20>(a[3], b[3])),
            op!(_mm256_permute2x128_si256::<0x31>(a[0], b[0])),
            op!(_mm256_permute2x128_si256::<0x31>(a[1], b[1])),
            op!(_mm256_permute2x128_si256::<0x31>(a[2], b[2])),
            op!(_mm256_permute2x128_si256::<0x31>(a[3], b[3])),
        ]
    }
}

/// Returns the two halves of sixteen lanes.
#[inline(always)]
fn halves<T>(lanes: &[T; 16]) -> [&[T; 8]; 2] {
    let (low, high) = lanes.split_at(8);
    [low.try_into().expect("half of 16"), high.try_into().expect("half of 16")]
}

/// Returns the eight lanes from `start` on.
#[inline(always)]
fn half_mut<T>(lanes: &mut [T; 16], start: usize) -> &mut [T; 8] {
    (&mut lanes[start..start + 8]).try_into().expect("eight of 16")
}

impl Lanes for Avx2 {
    type V = [__m256i; 2];

    #[inline(always)]
    fn splat(self, value: u32) -> Self::V {
        [self.splat_one(value); 2]
    }

    #[inline(always)]
    fn load(self, from: &[u32; 16]) -> Self::V {
        let [low, high] = halves(from);
        [self.load_half(low), self.load_half(high)]
    }

    #[inline(always)]
    fn store(self, value: Self::V, to: &mut [u32; 16]) {
        self.store_half(value[0], half_mut(to, 0));
        self.store_half(value[1], half_mut(to, 8));
    }

    binary! {
        Self::V, both:
        add = _mm256_add_epi32,
        sub = _mm256_sub_epi32,
        xor = _mm256_xor_si256,
        and = _mm256_and_si256,
        mul = _mm256_mullo_epi32,
        shl_each = _mm256_sllv_epi32,
        shr_each = _mm256_srlv_epi32,
        or = _mm256_or_si256,
        shl_each_long = _mm256_sllv_epi64,
    }

    #[inline(always)]
    fn mul_high(self, a: Self::V, b: Self::V) -> Self::V {
        [self.mul_high_one(a[0], b[0]), self.mul_high_one(a[1], b[1])]
    }

    // Shifts by a constant use the intrinsic with a count for each lane; the compiler turns it into
    // the instruction with an immediate count.

    #[inline(always)]
    fn shl<const BITS: u32>(self, a: Self::V) -> Self::V {
        self.shl_each(a, self.splat(BITS))
    }

    #[inline(always)]
    fn shr<const BITS: u32>(self, a: Self::V) -> Self::V {
        self.shr_each(a, self.splat(BITS))
    }

    #[inline(always)]
    fn swap_bytes(self, a: Self::V) -> Self::V {
        let order = self.load(&super::SWAP_BYTES);
        both!(_mm256_shuffle_epi8(a, order))
    }

    #[inline(always)]
    fn rotate_left<const BITS: u32>(self, a: Self::V) -> Self::V {
        let (up, down) = (self.shl::<BITS>(a), self.shr_each(a, self.splat(32 - BITS)));
        self.xor(up, down)
    }

    #[inline(always)]
    fn gather(self, bytes: &[u8], offsets: Self::V) -> Self::V {
        let last = self.splat(last_offset(bytes));
        let [low, high] = both!(_mm256_min_epu32(offsets, last));
        // SAFETY: the minimum instruction has limited every offset to `bytes.len() - 4`, and this
        // bound fits a non-negative `i32`.
        let low = unsafe { _mm256_i32gather_epi32::<1>(bytes.as_ptr().cast(), low) };
        // SAFETY: as above.
        let high = unsafe { _mm256_i32gather_epi32::<1>(bytes.as_ptr().cast(), high) };
        [low, high]
    }

    #[inline(always)]
    fn transpose(self, quads: &[[u8; 16]; 16]) -> [Self::V; 4] {
        let (pairs, _) = quads.as_chunks::<2>();
        let load = |pair: usize| {
            let pair: &[[u8; 16]; 2] = &pairs[pair];
            // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
            // alignment.
            unsafe { _mm256_loadu_si256(pair.as_ptr().cast()) }
        };
        let columns =
            [[load(0), load(1)], [load(2), load(3)], [load(4), load(5)], [load(6), load(7)]];
        let low: [Self::V; 2] = [
            both!(_mm256_unpacklo_epi32(columns[0], columns[1])),
            both!(_mm256_unpacklo_epi32(columns[2], columns[3])),
        ];
        let high: [Self::V; 2] = [
            both!(_mm256_unpackhi_epi32(columns[0], columns[1])),
            both!(_mm256_unpackhi_epi32(columns[2], columns[3])),
        ];
        [
            both!(_mm256_unpacklo_epi64(low[0], low[1])),
            both!(_mm256_unpackhi_epi64(low[0], low[1])),
            both!(_mm256_unpacklo_epi64(high[0], high[1])),
            both!(_mm256_unpackhi_epi64(high[0], high[1])),
        ]
    }

    #[inline(always)]
    fn test_bit(self, a: Self::V, position: Self::V) -> u16 {
        // Shift the bit to the sign position, left by 31 - position: `movemask` collects the signs.
        let count = self.sub(self.splat(31), position);
        let [low, high] = self.shl_each(a, count);
        let (low, high) = (op!(_mm256_castsi256_ps(low)), op!(_mm256_castsi256_ps(high)));
        let (low, high) = (op!(_mm256_movemask_ps(low)), op!(_mm256_movemask_ps(high)));
        u16::try_from(low | high << 8).unwrap_or_default()
    }

    #[inline(always)]
    fn select(self, mask: u16, a: Self::V, b: Self::V) -> Self::V {
        let masks = [self.expand_mask(mask), self.expand_mask(mask >> 8)];
        both!(_mm256_blendv_epi8(b, a, masks))
    }

    #[inline(always)]
    fn compress(self, mask: u16, value: Self::V, to: &mut [u32; 16]) {
        self.compress_half(mask, value[0], half_mut(to, 0));
        let low = (mask & 0xff).count_ones() as usize;
        self.compress_half(mask >> 8, value[1], half_mut(to, low));
    }

    type Table<'a> = &'a [u8; 256];

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 64]) -> Self::V {
        let [low, high] = from.as_chunks::<32>().0 else { unreachable!("twice 32 is 64") };
        // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast()) };
        [low, high]
    }

    #[inline(always)]
    fn load_long(self, from: &[u64; 8]) -> Self::V {
        let [low, high] = from.as_chunks::<4>().0 else { unreachable!("twice 4 is 8") };
        // SAFETY: the array has the 32 bytes that are read, and the intrinsic requires no
        // alignment.
        let low = unsafe { _mm256_loadu_si256(low.as_ptr().cast()) };
        // SAFETY: as above.
        let high = unsafe { _mm256_loadu_si256(high.as_ptr().cast()) };
        [low, high]
    }

    #[inline(always)]
    fn store_long(self, value: Self::V, to: &mut [u64; 8]) {
        let [low, high] = to.as_chunks_mut::<4>().0 else { unreachable!("twice 4 is 8") };
        // SAFETY: the array has the 32 bytes that are written, and the intrinsic requires no
        // alignment.
        unsafe { _mm256_storeu_si256(low.as_mut_ptr().cast(), value[0]) };
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(high.as_mut_ptr().cast(), value[1]) };
    }

    #[inline(always)]
    fn is_subset(self, a: Self::V, of: Self::V) -> bool {
        let missing = both!(_mm256_andnot_si256(of, a));
        let missing = op!(_mm256_or_si256(missing[0], missing[1]));
        op!(_mm256_testz_si256(missing, missing)) == 1
    }

    #[inline(always)]
    fn transpose_words(self, rows: [Self::V; 16]) -> [Self::V; 16] {
        // Transpose four blocks of eight by eight; the two blocks off the diagonal change places.
        let upper = [rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]];
        let lower = [rows[8], rows[9], rows[10], rows[11], rows[12], rows[13], rows[14], rows[15]];
        let (a, b) = (self.transpose_block::<0>(&upper), self.transpose_block::<0>(&lower));
        let (c, d) = (self.transpose_block::<1>(&upper), self.transpose_block::<1>(&lower));
        [
            [a[0], b[0]],
            [a[1], b[1]],
            [a[2], b[2]],
            [a[3], b[3]],
            [a[4], b[4]],
            [a[5], b[5]],
            [a[6], b[6]],
            [a[7], b[7]],
            [c[0], d[0]],
            [c[1], d[1]],
            [c[2], d[2]],
            [c[3], d[3]],
            [c[4], d[4]],
            [c[5], d[5]],
            [c[6], d[6]],
            [c[7], d[7]],
        ]
    }

    #[inline(always)]
    fn table(self, bytes: &[u8; 256]) -> &[u8; 256] {
        bytes
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 256], index: Self::V) -> Self::V {
        self.gather(table, self.shl::<2>(self.and(index, self.splat(63))))
    }

    #[inline(always)]
    fn load_long_halves(self, first: &[u64; 4], second: &[u64; 4]) -> Self::V {
        [self.load_slice_64(first), self.load_slice_64(second)]
    }

    #[inline(always)]
    fn splat_halves(self, first: u32, second: u32) -> Self::V {
        [self.splat_one(first), self.splat_one(second)]
    }

    #[inline(always)]
    fn are_subsets(self, a: Self::V, of: Self::V) -> [bool; 2] {
        [op!(_mm256_testc_si256(of[0], a[0])) == 1, op!(_mm256_testc_si256(of[1], a[1])) == 1]
    }
}

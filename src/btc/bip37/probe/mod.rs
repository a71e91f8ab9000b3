//! Probing of filters: computes which bits of a filter an element selects, and tests if they are
//! set.
//!
//! Murmur3 mixes each block of an element independently of the seed, so each element is mixed once
//! for all hash functions. The steps that depend on the seed run in SIMD lanes. [`element`] assigns
//! the hash functions of one element to lanes, [`batch`] assigns many elements.

pub(super) mod batch;
pub(super) mod element;
pub(super) mod tiles;

use chainsieve_lanes::hash::murmur3;
use chainsieve_lanes::simd::Lanes;

use super::bit_array::Reduction;

/// The seed of hash function `i` is `i * SEED_STEP + tweak` (BIP37).
const SEED_STEP: u32 = 0xfba4_c795;

/// The parameters of a filter that determine which bits an element selects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    pub(super) reduction: Reduction,
    pub(super) hash_funcs: u32,
    pub(super) tweak: u32,
}

impl Params {
    #[inline(always)]
    fn seed(&self, i: u32) -> u32 {
        i.wrapping_mul(SEED_STEP).wrapping_add(self.tweak)
    }
}

/// The bytes and parameters of a filter that has data.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterView<'a> {
    /// The filter's bytes followed by padding, so that a four-byte load at any offset stays in
    /// bounds.
    pub(super) padded: &'a [u8],
    pub(super) params: Params,
}

impl FilterView<'_> {
    #[inline(always)]
    pub(super) fn is_set(&self, bit: u32) -> bool {
        self.padded[(bit >> 3) as usize] >> (bit & 7) & 1 != 0
    }
}

/// Returns a mask of the first `count` lanes; of all sixteen lanes if `count` is 16 or more.
#[inline(always)]
fn first_lanes(count: u32) -> u16 {
    if count >= 16 { u16::MAX } else { (1 << count) - 1 }
}

/// The parameters of [`Reduction`], one vector each.
#[derive(Clone, Copy)]
struct Broadcast<V> {
    magic: V,
    shift: V,
    num_bits: V,
}

/// The steps of Murmur3 and the reduction to a bit position, in each lane.
trait MurmurLanes: Lanes {
    #[inline(always)]
    fn broadcast(self, reduction: Reduction) -> Broadcast<Self::V> {
        Broadcast {
            magic: self.splat(reduction.magic),
            shift: self.splat(reduction.shift),
            num_bits: self.splat(reduction.num_bytes << 3),
        }
    }

    #[inline(always)]
    fn mix_block(self, block: Self::V) -> Self::V {
        let block = self.mul(block, self.splat(murmur3::MIX[0]));
        self.mul(self.rotate_left::<15>(block), self.splat(murmur3::MIX[1]))
    }

    #[inline(always)]
    fn absorb(self, hash: Self::V, mixed: Self::V) -> Self::V {
        let hash = self.rotate_left::<13>(self.xor(hash, mixed));
        let times_five = self.add(hash, self.shl::<2>(hash));
        self.add(times_five, self.splat(murmur3::ABSORB_ADD))
    }

    #[inline(always)]
    fn finalize(self, hash: Self::V, tail: Self::V, length: Self::V) -> Self::V {
        let hash = self.xor(self.xor(hash, tail), length);
        let hash = self.xor(hash, self.shr::<16>(hash));
        let hash = self.mul(hash, self.splat(murmur3::FMIX[0]));
        let hash = self.xor(hash, self.shr::<13>(hash));
        let hash = self.mul(hash, self.splat(murmur3::FMIX[1]));
        self.xor(hash, self.shr::<16>(hash))
    }

    /// Reduces hashes to bit positions, as [`Reduction::bit`].
    #[inline(always)]
    fn reduce(self, hash: Self::V, filter: Broadcast<Self::V>) -> Self::V {
        let quotient = self.mul_high(self.and(hash, self.splat(!7)), filter.magic);
        let quotient = self.shr_each(quotient, filter.shift);
        self.sub(hash, self.mul(quotient, filter.num_bits))
    }

    /// Returns the mask of the lanes whose bit is set.
    #[inline(always)]
    fn test(self, padded: &[u8], bit: Self::V) -> u16 {
        let word = self.gather(padded, self.shr::<3>(bit));
        self.test_bit(word, self.and(bit, self.splat(7)))
    }
}

impl<L: Lanes> MurmurLanes for L {}

//! Probing: which bits of a filter an element selects, and whether they are set.
//!
//! The mixing of an element's blocks does not depend on the seed, so it is done once for all hash
//! functions. What is left to the seeds runs in SIMD lanes: [`element`] spreads the hash
//! functions of one element over them, [`batch`] many elements, [`bank`] many filters.

pub(super) mod bank;
pub(super) mod batch;
pub(super) mod element;
pub(super) mod mixed;
pub(super) mod tiles;

use chainsieve_lanes::hash::murmur3;
use chainsieve_lanes::simd::Lanes;

use super::bit_array::Reduction;

/// The seed of hash function `i` is `i * SEED_STEP + tweak` (BIP37).
const SEED_STEP: u32 = 0xfba4_c795;

/// What the bits of an element depend on.
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

/// A filter that has data.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilterView<'a> {
    /// The bytes with padding behind them, so that four can be loaded at any byte.
    pub(super) padded: &'a [u8],
    pub(super) params: Params,
}

impl FilterView<'_> {
    #[inline(always)]
    pub(super) fn is_set(&self, bit: u32) -> bool {
        self.padded[(bit >> 3) as usize] >> (bit & 7) & 1 != 0
    }
}

/// A mask of the first `count` lanes, all sixteen from 16 on.
#[inline(always)]
fn first_lanes(count: u32) -> u16 {
    if count >= 16 { u16::MAX } else { (1 << count) - 1 }
}

/// A filter's parameters in every lane.
#[derive(Clone, Copy)]
struct Broadcast<V> {
    magic: V,
    shift: V,
    num_bits: V,
}

/// Murmur3's steps and the reduction to a bit, lane by lane.
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

    /// As [`Reduction::bit`].
    #[inline(always)]
    fn reduce(self, hash: Self::V, filter: Broadcast<Self::V>) -> Self::V {
        let quotient = self.mul_high(self.and(hash, self.splat(!7)), filter.magic);
        let quotient = self.shr_each(quotient, filter.shift);
        self.sub(hash, self.mul(quotient, filter.num_bits))
    }

    /// The lanes whose bit is set.
    #[inline(always)]
    fn test(self, padded: &[u8], bit: Self::V) -> u16 {
        let word = self.gather(padded, self.shr::<3>(bit));
        self.test_bit(word, self.and(bit, self.splat(7)))
    }
}

impl<L: Lanes> MurmurLanes for L {}

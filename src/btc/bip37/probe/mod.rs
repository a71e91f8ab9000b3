//! Probing of filters: computes which bits of a filter an element selects, and tests if they are
//! set.
//!
//! Murmur3 mixes each block of an element independently of the seed, so each element is mixed once
//! for all hash functions. The steps that depend on the seed run in SIMD lanes. [`first_clear`]
//! assigns the hash functions of one element to lanes, [`batch`] assigns many elements.

pub(super) mod batch;
pub(super) mod tiles;

use chainsieve_lanes::hash::murmur3::{self, absorb, finalize, length, mix_block, mix_tail};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

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

/// Returns the bit positions of hash functions `i` to `i + N - 1`. The hashes are computed in
/// parallel: two or four hashes take little longer than one hash.
#[inline(always)]
fn bits<const N: usize>(params: Params, element: &[u8], i: u32) -> [u32; N] {
    let (blocks, tail) = element.as_chunks::<4>();
    let mut seed = params.seed(i);
    let mut hashes = [0; N].map(|_: u32| {
        let this = seed;
        seed = seed.wrapping_add(SEED_STEP);
        this
    });
    for block in blocks {
        let mixed = mix_block(u32::from_le_bytes(*block));
        hashes = hashes.map(|hash| absorb(hash, mixed));
    }
    let tail = mix_tail(tail);
    hashes.map(|hash| params.reduction.bit(finalize(hash ^ tail, length(element))))
}

/// Returns the bit positions of hash functions `i` to `i + 15`, one per lane.
#[inline(always)]
fn bits_in_lanes<L: Lanes>(lanes: L, params: Params, element: &[u8], i: u32) -> L::V {
    // The difference between the seed of each lane and the seed of the first lane.
    const STEPS: [u32; 16] = {
        let mut steps = [0; 16];
        let mut lane = 1;
        while lane < 16 {
            steps[lane] = SEED_STEP.wrapping_add(steps[lane - 1]);
            lane += 1;
        }
        steps
    };
    let (blocks, tail) = element.as_chunks::<4>();
    let mut hash = lanes.add(lanes.load(&STEPS), lanes.splat(params.seed(i)));
    for block in blocks {
        hash = lanes.absorb(hash, lanes.splat(mix_block(u32::from_le_bytes(*block))));
    }
    let tail = lanes.splat(mix_tail(tail));
    let hash = lanes.finalize(hash, tail, lanes.splat(length(element)));
    lanes.reduce(hash, lanes.broadcast(params.reduction))
}

/// Returns the first clear bit that `element` selects, in the order of the hash functions; `None`
/// if the filter may contain `element`.
#[inline]
pub(super) fn first_clear(backend: Backend, view: FilterView<'_>, element: &[u8]) -> Option<u32> {
    // As in Core, a filter without hash functions contains everything.
    if view.params.hash_funcs == 0 {
        return None;
    }
    // One scalar probe rejects half of the absent elements if the filter is half full, and most
    // absent elements if the filter is sparse.
    let [bit] = bits(view.params, element, 0);
    if !view.is_set(bit) {
        return Some(bit);
    }
    backend.run(FirstClear { view, element, from: 1 })
}

/// Kernel of [`first_clear`], starting at hash function `from`.
struct FirstClear<'a> {
    view: FilterView<'a>,
    element: &'a [u8],
    from: u32,
}

impl Kernel for FirstClear<'_> {
    type Output = Option<u32>;

    fn scalar(self) -> Option<u32> {
        let Self { view, element, from } = self;
        (from..view.params.hash_funcs)
            .map(|i| bits::<1>(view.params, element, i)[0])
            .find(|&bit| !view.is_set(bit))
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) -> Option<u32> {
        let Self { view, element, from } = self;
        let mut i = from;
        while i < view.params.hash_funcs {
            let bits = bits_in_lanes(lanes, view.params, element, i);
            let clear = !lanes.test(view.padded, bits) & first_lanes(view.params.hash_funcs - i);
            if clear != 0 {
                let mut stored = [0; 16];
                lanes.store(bits, &mut stored);
                return Some(stored[clear.trailing_zeros() as usize & 15]);
            }
            i = i.saturating_add(16);
        }
        None
    }
}

/// Sets the bits of `element` in `bytes`, which may end with padding.
#[inline]
pub(super) fn insert(backend: Backend, bytes: &mut [u8], params: Params, element: &[u8]) {
    backend.run(Insert { bytes, params, element });
}

struct Insert<'a> {
    bytes: &'a mut [u8],
    params: Params,
    element: &'a [u8],
}

impl Insert<'_> {
    #[inline(always)]
    fn set(&mut self, bit: u32) {
        self.bytes[(bit >> 3) as usize] |= 1 << (bit & 7);
    }
}

impl Kernel for Insert<'_> {
    type Output = ();

    fn scalar(mut self) {
        let Params { hash_funcs, .. } = self.params;
        let mut i = 0;
        while hash_funcs - i >= 4 {
            let bits: [u32; 4] = bits(self.params, self.element, i);
            for bit in bits {
                self.set(bit);
            }
            i += 4;
        }
        for i in i..hash_funcs {
            let [bit] = bits(self.params, self.element, i);
            self.set(bit);
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(mut self, lanes: L) {
        let (params, element) = (self.params, self.element);
        let mut i = 0;
        while i < params.hash_funcs {
            let count = params.hash_funcs - i;
            // A single hash function does not need the lanes.
            if count == 1 {
                let [bit] = bits(params, element, i);
                return self.set(bit);
            }
            let bits = bits_in_lanes(lanes, params, element, i);
            let (mut bytes, mut masks) = ([0; 16], [0; 16]);
            lanes.store(lanes.shr::<3>(bits), &mut bytes);
            let places = lanes.and(bits, lanes.splat(7));
            lanes.store(lanes.shl_each(lanes.splat(1), places), &mut masks);
            for (&byte, &mask) in bytes.iter().zip(&masks).take(count as usize) {
                self.bytes[byte as usize] |= mask.to_le_bytes()[0];
            }
            i = i.saturating_add(16);
        }
    }
}

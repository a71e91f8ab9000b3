//! The bits of a filter, and probing them: computes which bits an element selects, and tests if they
//! are set.
//!
//! Murmur3 mixes each block of an element independently of the seed, so each element is mixed once
//! for all hash functions. The steps that depend on the seed run in SIMD lanes. [`first_clear`]
//! assigns the hash functions of one element to lanes, [`batch`] assigns many elements.

pub(super) mod batch;
pub(super) mod tiles;

use alloc::vec::Vec;
use core::fmt;

use chainsieve_lanes::hash::murmur3::{self, absorb, finalize, length, mix_block, mix_tail};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

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

/// Number of padding bytes after the filter's bytes, so that a four-byte load at any offset stays
/// in bounds.
const PADDING: usize = 3;

/// Array of bits in BIP37's order: bit `i` is `1 << (i & 7)` of byte `i >> 3`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct BitArray {
    /// The `reduction.num_bytes` bytes of the filter, then `PADDING` zeros; no bytes at all if the
    /// filter is empty.
    padded: Vec<u8>,
    reduction: Reduction,
}

impl BitArray {
    /// Largest size of an array in bytes, because bit positions are 32 bits wide.
    pub(super) const MAX_BYTES: usize = 1 << 28;

    /// Takes the bytes of a filter and appends the padding. Returns `None` if there are more than
    /// [`MAX_BYTES`](Self::MAX_BYTES).
    pub(super) fn from_bytes(mut bytes: Vec<u8>) -> Option<Self> {
        if bytes.len() > Self::MAX_BYTES {
            return None;
        }
        let reduction = Reduction::new(u32::try_from(bytes.len()).ok()?);
        if !bytes.is_empty() {
            bytes.reserve_exact(PADDING);
            bytes.resize(bytes.len() + PADDING, 0);
        }
        Some(Self { padded: bytes, reduction })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.padded[..self.padded.len().saturating_sub(PADDING)]
    }

    pub(super) fn as_bytes_mut(&mut self) -> &mut [u8] {
        let end = self.padded.len().saturating_sub(PADDING);
        &mut self.padded[..end]
    }

    /// Returns the bytes with the padding, from which vector code gathers.
    pub(super) fn padded(&self) -> &[u8] {
        &self.padded
    }

    /// Returns the bytes with the padding. The bits of the padding must stay clear.
    pub(super) fn padded_mut(&mut self) -> &mut [u8] {
        &mut self.padded
    }

    pub(super) fn reduction(&self) -> Reduction {
        self.reduction
    }

    pub(super) fn is_empty(&self) -> bool {
        self.padded.is_empty()
    }

    pub(super) fn num_bits(&self) -> u64 {
        u64::from(self.reduction.num_bytes) * 8
    }

    pub(super) fn count_ones(&self) -> u64 {
        let (words, rest) = self.as_bytes().as_chunks::<8>();
        let words: u64 = words.iter().map(|&w| u64::from(u64::from_le_bytes(w).count_ones())).sum();
        words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
    }
}

impl fmt::Debug for BitArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bits set", self.count_ones(), self.num_bits())
    }
}

/// Computes `hash % (8 * num_bytes)` by multiplication instead of division.
///
/// The low three bits of the hash are kept. The other bits of the hash are the number `n` of the
/// reduction `n % d`, where `n` has 29 bits and `d` is the number of bytes. With
/// `shift = ceil(log2 d)` and `magic = ceil(2^(29 + shift) / d)`, which is at most `2^30`, `n / d`
/// is exactly `(n * magic) >> (29 + shift)` for every `n` of 29 bits (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", 1994, theorem 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduction {
    pub(super) num_bytes: u32,
    pub(super) magic: u32,
    pub(super) shift: u32,
}

impl Reduction {
    /// Returns the reduction for a filter of `num_bytes`, at most [`BitArray::MAX_BYTES`].
    pub(super) fn new(num_bytes: u32) -> Self {
        debug_assert!(num_bytes as usize <= BitArray::MAX_BYTES);
        let shift = num_bytes.max(1).next_power_of_two().trailing_zeros();
        let magic = (1_u64 << (29 + shift)).div_ceil(u64::from(num_bytes.max(1)));
        Self { num_bytes, magic: u32::try_from(magic).expect("at most 2^30"), shift }
    }

    /// Returns the position of the bit that `hash` selects. The position is meaningless for a
    /// filter without bytes.
    #[inline(always)]
    pub(super) fn bit(self, hash: u32) -> u32 {
        // `hash & !7` is `n << 3`, and `((n << 3) * magic) >> 32` equals `(n * magic) >> 29`.
        let quotient = (u64::from(hash & !7) * u64::from(self.magic) >> 32) as u32 >> self.shift;
        hash.wrapping_sub(quotient.wrapping_mul(self.num_bytes) << 3)
    }
}

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

#[cfg(test)]
mod tests {
    use super::{BitArray, Reduction};

    #[test]
    fn reduction_is_the_remainder() {
        let sizes = (1..=2_000).chain([2_396, 4_095, 35_999, 36_000, 65_537, 4_000_000, 1 << 28]);
        for num_bytes in sizes {
            let reduction = Reduction::new(num_bytes);
            let modulus = num_bytes * 8;
            let near_multiples = (0..200_u32).flat_map(|i| {
                let multiple = u32::MAX / 200 * i / modulus * modulus;
                [multiple, multiple.wrapping_sub(1), multiple.wrapping_add(modulus - 1)]
            });
            for hash in near_multiples.chain([u32::MAX, u32::MAX - 7, 0, 1, 7, 8]) {
                assert_eq!(reduction.bit(hash), hash % modulus, "{hash} % {modulus}");
            }
        }
    }

    #[test]
    fn padding_is_no_part_of_the_bits() {
        let array = BitArray::from_bytes(vec![0xff; 5]).unwrap();
        assert_eq!((array.as_bytes().len(), array.count_ones(), array.num_bits()), (5, 40, 40));
        assert!(BitArray::from_bytes(vec![]).unwrap().is_empty());
    }
}

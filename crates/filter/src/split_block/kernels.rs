//! Batch operations on vector lanes. While one key is processed, the blocks of later keys are
//! prefetched.

use chainsieve_lanes::simd::{Kernel, Lanes, prefetch};

use super::choice::{SALTS, low, place};
use super::layout::{Bits256, Bits512, Layout};

/// Number of keys between the prefetch of a block and its use: twice the number of cache misses
/// that a core can have in flight, so that this maximum number is always in flight.
const AHEAD: usize = 48;

/// The multipliers, each in the low half of a 64-bit word.
const LONG_SALTS: [u64; 8] = {
    let mut long = [0; 8];
    let mut word = 0;
    while word < 8 {
        long[word] = SALTS[word] as u64;
        word += 1;
    }
    long
};

/// The multipliers repeated, to process two keys at once.
const SALTS_TWICE: [u32; 16] = {
    let mut twice = [0; 16];
    let mut word = 0;
    while word < 16 {
        twice[word] = SALTS[word % 8];
        word += 1;
    }
    twice
};

/// Operations on many keys, on vector lanes. The caller must have prefetched the blocks of the
/// first keys.
#[expect(unnameable_types, reason = "sealed: only this crate defines shapes")]
pub trait Batches: Layout {
    fn contains_each<L: Lanes>(
        lanes: L,
        blocks: &[Self::Block],
        hashes: &[u64],
        answers: &mut [bool],
    );
    fn insert_each<L: Lanes>(lanes: L, blocks: &mut [Self::Block], hashes: &[u64]);
}

/// Prefetches the block of the key that is `AHEAD` positions after `at`.
#[inline(always)]
fn ask_ahead<B>(blocks: &[B], hashes: &[u64], at: usize) {
    if let Some(hash) = hashes.get(at + AHEAD) {
        prefetch(&blocks[place(*hash, blocks.len())]);
    }
}

/// Prefetches the blocks of the first `AHEAD` keys.
#[inline(always)]
fn ask_first<B>(blocks: &[B], hashes: &[u64]) {
    for hash in hashes.iter().take(AHEAD) {
        prefetch(&blocks[place(*hash, blocks.len())]);
    }
}

/// Returns the eight bits of a key in a 512-bit block.
#[inline(always)]
fn mask_512<L: Lanes>(lanes: L, low: u32) -> L::V {
    // The upper halves of the 64-bit words are zero before and after the 32-bit multiplication.
    let products = lanes.mul(lanes.splat(low), lanes.load_long(&LONG_SALTS));
    lanes.shl_each_long(lanes.load_long(&[1; 8]), lanes.shr::<26>(products))
}

/// Returns the eight bits of each of two keys in 256-bit blocks.
#[inline(always)]
fn masks_256<L: Lanes>(lanes: L, first: u32, second: u32) -> L::V {
    let products = lanes.mul(lanes.splat_halves(first, second), lanes.load(&SALTS_TWICE));
    lanes.shl_each(lanes.splat(1), lanes.shr::<27>(products))
}

impl Batches for Bits512 {
    #[inline(always)]
    fn contains_each<L: Lanes>(
        lanes: L,
        blocks: &[[u64; 8]],
        hashes: &[u64],
        answers: &mut [bool],
    ) {
        for (at, (hash, answer)) in hashes.iter().zip(answers).enumerate() {
            ask_ahead(blocks, hashes, at);
            let block = lanes.load_long(&blocks[place(*hash, blocks.len())]);
            *answer = lanes.is_subset(mask_512(lanes, low(*hash)), block);
        }
    }

    #[inline(always)]
    fn insert_each<L: Lanes>(lanes: L, blocks: &mut [[u64; 8]], hashes: &[u64]) {
        for (at, hash) in hashes.iter().enumerate() {
            ask_ahead(blocks, hashes, at);
            let num_blocks = blocks.len();
            let block = &mut blocks[place(*hash, num_blocks)];
            let filled = lanes.or(lanes.load_long(block), mask_512(lanes, low(*hash)));
            lanes.store_long(filled, block);
        }
    }
}

impl Batches for Bits256 {
    #[inline(always)]
    fn contains_each<L: Lanes>(
        lanes: L,
        blocks: &[[u64; 4]],
        hashes: &[u64],
        answers: &mut [bool],
    ) {
        let (pairs, last) = hashes.as_chunks::<2>();
        let (answer_pairs, last_answer) = answers.as_chunks_mut::<2>();
        for (at, ([first, second], answers)) in pairs.iter().zip(answer_pairs).enumerate() {
            ask_ahead(blocks, hashes, at * 2);
            ask_ahead(blocks, hashes, at * 2 + 1);
            let masks = masks_256(lanes, low(*first), low(*second));
            let [first, second] = [first, second].map(|hash| &blocks[place(*hash, blocks.len())]);
            *answers = lanes.are_subsets(masks, lanes.load_long_halves(first, second));
        }
        for (hash, answer) in last.iter().zip(last_answer) {
            *answer = Self::may_contain(&blocks[place(*hash, blocks.len())], low(*hash));
        }
    }

    #[inline(always)]
    fn insert_each<L: Lanes>(lanes: L, blocks: &mut [[u64; 4]], hashes: &[u64]) {
        let num_blocks = blocks.len();
        let (pairs, last) = hashes.as_chunks::<2>();
        for (at, pair) in pairs.iter().enumerate() {
            ask_ahead(blocks, hashes, at * 2);
            ask_ahead(blocks, hashes, at * 2 + 1);
            // The masks are computed on lanes, but written to the blocks one key at a time.
            let mut masks = [0; 8];
            lanes.store_long(masks_256(lanes, low(pair[0]), low(pair[1])), &mut masks);
            // The two keys may have the same block, so the second write must follow the first.
            for (hash, mask) in pair.iter().zip(masks.as_chunks::<4>().0) {
                for (word, bits) in blocks[place(*hash, num_blocks)].iter_mut().zip(mask) {
                    *word |= bits;
                }
            }
        }
        for hash in last {
            Self::insert(&mut blocks[place(*hash, num_blocks)], low(*hash));
        }
    }
}

pub(super) struct Contains<'a, B: Layout> {
    pub(super) blocks: &'a [B::Block],
    pub(super) hashes: &'a [u64],
    pub(super) answers: &'a mut [bool],
}

impl<B: Batches> Kernel for Contains<'_, B> {
    type Output = ();

    fn scalar(self) {
        let Self { blocks, hashes, answers } = self;
        ask_first(blocks, hashes);
        for (at, (hash, answer)) in hashes.iter().zip(answers).enumerate() {
            ask_ahead(blocks, hashes, at);
            *answer = B::may_contain(&blocks[place(*hash, blocks.len())], low(*hash));
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        ask_first(self.blocks, self.hashes);
        B::contains_each(lanes, self.blocks, self.hashes, self.answers);
    }
}

pub(super) struct Fill<'a, B: Layout> {
    pub(super) blocks: &'a mut [B::Block],
    pub(super) hashes: &'a [u64],
}

impl<B: Batches> Kernel for Fill<'_, B> {
    type Output = ();

    fn scalar(self) {
        let Self { blocks, hashes } = self;
        let num_blocks = blocks.len();
        ask_first(blocks, hashes);
        for (at, hash) in hashes.iter().enumerate() {
            ask_ahead(blocks, hashes, at);
            B::insert(&mut blocks[place(*hash, num_blocks)], low(*hash));
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        ask_first(self.blocks, self.hashes);
        B::insert_each(lanes, self.blocks, self.hashes);
    }
}

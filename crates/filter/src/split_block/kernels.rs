//! The shapes of blocks, the selection of a key's block and of its bits in the block, and batch
//! operations on vector lanes. While one key of a batch is processed, the blocks of later keys are
//! prefetched.

use chainsieve_lanes::simd::{Kernel, Lanes, prefetch};

use crate::encoding::Kind;

/// The multipliers of Parquet's specification: eight odd numbers without visible structure.
pub(super) const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// Returns the block of a hash: its high half, scaled to the number of blocks.
#[inline(always)]
pub(super) fn place(hash: u64, num_blocks: usize) -> usize {
    ((hash >> 32) * num_blocks as u64 >> 32) as usize
}

/// Returns the low half of a hash, which selects the bits in the block.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn low(hash: u64) -> u32 {
    hash as u32
}

/// The shape of blocks of 512 bits, in eight words of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits512 {}

/// The shape of blocks of 256 bits, in eight words of 32 bits, as in Parquet's filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits256 {}

/// The operations on a block. A key has one bit in each of eight words, selected by the low half of
/// its hash. The high half selects the block.
#[expect(unnameable_types, reason = "sealed: only this crate defines shapes")]
pub trait Layout: Sized + Send + Sync + 'static {
    /// The memory of a block: eight or four words of 64 bits.
    type Block: Copy + AsRef<[u64]> + AsMut<[u64]>;

    const KIND: Kind;
    /// Number of bits in each of the eight words.
    const WORD_BITS: u32;

    fn blocks(words: &[u64]) -> &[Self::Block];
    fn blocks_mut(words: &mut [u64]) -> &mut [Self::Block];

    /// Returns `true` if all eight bits of a key are set.
    fn may_contain(block: &Self::Block, low: u32) -> bool;
    /// Sets the eight bits of a key. Returns `true` if at least one of these bits was not set
    /// before.
    fn insert(block: &mut Self::Block, low: u32) -> bool;
    /// Returns how many of all `WORD_BITS^8` selections of eight bits have all their bits set: the
    /// product of the numbers of set bits in the eight words.
    fn hits(block: &Self::Block) -> u64;

    /// Queries many keys, on vector lanes. The caller must have prefetched the blocks of the first
    /// keys.
    fn contains_each<L: Lanes>(
        lanes: L,
        blocks: &[Self::Block],
        hashes: &[u64],
        answers: &mut [bool],
    );
    /// Inserts many keys, on vector lanes. The caller must have prefetched the blocks of the first
    /// keys.
    fn insert_each<L: Lanes>(lanes: L, blocks: &mut [Self::Block], hashes: &[u64]);
}

impl Layout for Bits512 {
    type Block = [u64; 8];

    const KIND: Kind = Kind::SplitBlock512;
    const WORD_BITS: u32 = 64;

    #[inline]
    fn blocks(words: &[u64]) -> &[[u64; 8]] {
        words.as_chunks().0
    }

    #[inline]
    fn blocks_mut(words: &mut [u64]) -> &mut [[u64; 8]] {
        words.as_chunks_mut().0
    }

    #[inline]
    fn may_contain(block: &[u64; 8], low: u32) -> bool {
        let bits =
            block.iter().zip(SALTS).map(|(word, salt)| word >> (low.wrapping_mul(salt) >> 26));
        bits.fold(1, |all, bit| all & bit) != 0
    }

    #[inline]
    fn insert(block: &mut [u64; 8], low: u32) -> bool {
        let mut missing = 0;
        for (word, salt) in block.iter_mut().zip(SALTS) {
            let bit = 1 << (low.wrapping_mul(salt) >> 26);
            missing |= bit & !*word;
            *word |= bit;
        }
        missing != 0
    }

    fn hits(block: &[u64; 8]) -> u64 {
        block.iter().map(|word| u64::from(word.count_ones())).product()
    }

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

impl Layout for Bits256 {
    /// Each 64-bit word contains two 32-bit words of the block, the first in the low half.
    type Block = [u64; 4];

    const KIND: Kind = Kind::SplitBlock256;
    const WORD_BITS: u32 = 32;

    #[inline]
    fn blocks(words: &[u64]) -> &[[u64; 4]] {
        words.as_chunks().0
    }

    #[inline]
    fn blocks_mut(words: &mut [u64]) -> &mut [[u64; 4]] {
        words.as_chunks_mut().0
    }

    #[inline]
    fn may_contain(block: &[u64; 4], low: u32) -> bool {
        let bits = block.iter().zip(SALTS.as_chunks::<2>().0).map(|(word, [first, second])| {
            let first = word >> (low.wrapping_mul(*first) >> 27);
            let second = word >> 32 >> (low.wrapping_mul(*second) >> 27);
            first & second
        });
        bits.fold(1, |all, bit| all & bit) != 0
    }

    #[inline]
    fn insert(block: &mut [u64; 4], low: u32) -> bool {
        let mut missing = 0;
        for (word, [first, second]) in block.iter_mut().zip(SALTS.as_chunks::<2>().0) {
            let first = 1 << (low.wrapping_mul(*first) >> 27);
            let bits = first | 1 << 32 << (low.wrapping_mul(*second) >> 27);
            missing |= bits & !*word;
            *word |= bits;
        }
        missing != 0
    }

    fn hits(block: &[u64; 4]) -> u64 {
        let ones = |word: u64| u64::from(word.count_ones());
        block.iter().map(|word| ones(word & u64::from(u32::MAX)) * ones(word >> 32)).product()
    }

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

pub(super) struct Contains<'a, B: Layout> {
    pub(super) blocks: &'a [B::Block],
    pub(super) hashes: &'a [u64],
    pub(super) answers: &'a mut [bool],
}

impl<B: Layout> Kernel for Contains<'_, B> {
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

impl<B: Layout> Kernel for Fill<'_, B> {
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

//! The shapes of blocks, and the positions of a key's bits in a block.

use super::choice::SALTS;
use crate::kind::Kind;

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
}

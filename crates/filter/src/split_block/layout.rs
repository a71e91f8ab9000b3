//! What a block is: where the bits of a key lie in it.

use super::choice::SALTS;
use crate::kind::Kind;

/// Blocks of 512 bits in eight words of 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits512 {}

/// Blocks of 256 bits in eight words of 32, as Parquet has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits256 {}

/// The arithmetic of a block. A key has one bit in each of eight words, chosen by the low half of
/// its hash; the high half chose the block.
#[expect(unnameable_types, reason = "sealed: no shapes but ours")]
pub trait Layout: Sized + Send + Sync + 'static {
    /// Words of 64 bits of memory: eight or four.
    type Block: Copy + AsRef<[u64]> + AsMut<[u64]>;

    const KIND: Kind;
    /// The bits of one of the eight words: as many places a bit of a key has.
    const WORD_BITS: u32;

    fn blocks(words: &[u64]) -> &[Self::Block];
    fn blocks_mut(words: &mut [u64]) -> &mut [Self::Block];

    /// Whether all eight bits are set.
    fn may_contain(block: &Self::Block, low: u32) -> bool;
    /// Sets the eight bits. Whether one was not.
    fn insert(block: &mut Self::Block, low: u32) -> bool;
    /// The product of the numbers of bits set in the eight words: of all `WORD_BITS^8` choices of
    /// bits, how many find theirs set.
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
    /// A word of 64 bits is two of 32, the first of them in the low half.
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

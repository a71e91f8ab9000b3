//! Folding: a filter of a divisor of the blocks, as if its keys had gone into that one.
//!
//! A key's block is its hash scaled to the number of blocks, so that with half of them it has the
//! block of half the index: blocks that stand side by side become one. (Where the index is a
//! remainder, the halves of the filter have to be laid over each other; mixing the two up loses
//! keys.) The same holds for every divisor.

use super::{BlockShape, SplitBlockFilter, rates};
use crate::membership::Filter as _;
use crate::words::{NoMemory, Words};

/// Why a filter is not folded. It is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// Only divisors of the number of blocks fold it: a number of blocks that is odd can't be
    /// halved.
    #[error("{num_blocks} blocks can't be folded by {factor}, which does not divide them")]
    Indivisible {
        /// Blocks there are.
        num_blocks: u64,
        /// How many were to become one.
        factor: u64,
    },
    /// No memory for the smaller filter.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
}

impl<B: BlockShape> SplitBlockFilter<B> {
    /// Folds to half of the blocks. No key is lost; strangers hit more often.
    ///
    /// # Errors
    /// If the number of blocks is odd.
    pub fn fold(&mut self) -> Result<(), FoldError> {
        self.fold_by(2)
    }

    /// Folds each `factor` blocks that stand side by side to one.
    ///
    /// # Errors
    /// If `factor` does not divide the number of blocks.
    pub fn fold_by(&mut self, factor: u64) -> Result<(), FoldError> {
        *self = self.folded_by(factor)?;
        Ok(())
    }

    /// Folds to half of the blocks as often as the rate then still is `fpr` at most: not an
    /// estimate but [`expected_fpr`](crate::Filter::expected_fpr) of the smaller filter.
    /// Returns how often. It ends at an odd number of blocks.
    ///
    /// # Errors
    /// If there is no memory for the smaller filter.
    pub fn fold_to_fpr(&mut self, fpr: f64) -> Result<u32, FoldError> {
        let mut folds = 0;
        while self.fpr_folded_by(2).is_ok_and(|folded| folded <= fpr) {
            self.fold()?;
            folds += 1;
        }
        Ok(folds)
    }
}

impl<B: BlockShape, S: AsRef<[u64]>> SplitBlockFilter<B, S> {
    /// A filter of a number of blocks `factor` times smaller.
    ///
    /// # Errors
    /// If `factor` does not divide the number of blocks.
    pub fn folded_by(&self, factor: u64) -> Result<SplitBlockFilter<B>, FoldError> {
        let groups = self.groups(factor)?;
        let mut words = Words::zeroed(self.words.as_ref().len() as u64 / factor)?;
        for (folded, group) in B::blocks_mut(words.as_mut()).iter_mut().zip(groups) {
            *folded = union::<B>(group);
        }
        Ok(SplitBlockFilter::from_words(words, self.len(), self.hasher))
    }

    /// What [`expected_fpr`](crate::Filter::expected_fpr) would be after folding by
    /// `factor`.
    ///
    /// # Errors
    /// If `factor` does not divide the number of blocks.
    pub fn fpr_folded_by(&self, factor: u64) -> Result<f64, FoldError> {
        let folded = self.groups(factor)?.map(union::<B>);
        Ok(rates::fpr::<B>(folded, self.num_blocks() / factor, self.len()))
    }

    fn groups(&self, factor: u64) -> Result<core::slice::ChunksExact<'_, B::Block>, FoldError> {
        let num_blocks = self.num_blocks();
        match usize::try_from(factor) {
            Ok(group) if group > 0 && num_blocks.is_multiple_of(factor) => {
                Ok(self.blocks().chunks_exact(group))
            }
            _ => Err(FoldError::Indivisible { num_blocks, factor }),
        }
    }
}

/// All bits of at least one block.
fn union<B: BlockShape>(group: &[B::Block]) -> B::Block {
    let (first, others) = group.split_first().expect("groups of one block at least");
    others.iter().fold(*first, |mut union, block| {
        for (word, bits) in union.as_mut().iter_mut().zip(block.as_ref()) {
            *word |= bits;
        }
        union
    })
}

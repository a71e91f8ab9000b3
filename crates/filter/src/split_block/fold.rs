//! Folding: a filter of half the blocks, as if its keys had gone into that one.
//!
//! A key's block is its hash scaled to the number of blocks, so that with half of them it has the
//! block of half the index: blocks that stand side by side become one. (Where the index is a
//! remainder, the halves of the filter have to be laid over each other; mixing the two up loses
//! keys.)

use super::{BlockShape, SplitBlockFilter, fpr};
use crate::membership::{Filter as _, Fold};
use crate::words::{NoMemory, Words, unite};

impl<B: BlockShape> Fold for SplitBlockFilter<B> {
    /// `None` if the number of blocks is odd.
    fn fpr_folded(&self) -> Option<f64> {
        let num_blocks = self.num_blocks();
        let halves = self.blocks().as_chunks::<2>().0.iter().map(union::<B>);
        num_blocks.is_multiple_of(2).then(|| fpr::<B>(halves, num_blocks / 2, self.len()))
    }

    /// No key is lost; strangers hit more often. `None` if the number of blocks is odd.
    fn folded(&self) -> Result<Option<Self>, NoMemory> {
        if !self.num_blocks().is_multiple_of(2) {
            return Ok(None);
        }
        let mut words = Words::zeroed(self.words.as_ref().len() as u64 / 2)?;
        let pairs = self.blocks().as_chunks::<2>().0;
        for (folded, pair) in B::blocks_mut(words.as_mut()).iter_mut().zip(pairs) {
            *folded = union::<B>(pair);
        }
        Ok(Some(Self::from_words(words, self.len(), self.hasher)))
    }
}

/// All bits of two blocks.
fn union<B: BlockShape>([first, second]: &[B::Block; 2]) -> B::Block {
    let mut union = *first;
    unite(union.as_mut(), second.as_ref());
    union
}

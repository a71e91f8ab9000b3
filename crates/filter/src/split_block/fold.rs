//! Folding a filter to half the number of blocks.
//!
//! A folded filter has the same bits as a filter of the smaller size into which the same keys were
//! inserted. The block of a key is its hash scaled to the number of blocks. With half the number of
//! blocks, the index is therefore halved, and neighbouring blocks are united. (Filters whose index
//! is a remainder must unite the lower half of the blocks with the upper half instead. Using the
//! wrong rule loses keys.)

use super::{BlockShape, SplitBlockFilter, fpr};
use crate::membership::{Filter as _, Fold};
use crate::words::{NoMemory, Words, unite};

impl<B: BlockShape> Fold for SplitBlockFilter<B> {
    /// Computes the rate after a fold. Returns `None` if the number of blocks is odd.
    fn fpr_folded(&self) -> Option<f64> {
        let num_blocks = self.num_blocks();
        let halves = self.blocks().as_chunks::<2>().0.iter().map(union::<B>);
        num_blocks.is_multiple_of(2).then(|| fpr::<B>(halves, num_blocks / 2, self.len()))
    }

    /// Folds the filter. All keys stay in the filter, and the rate rises. Returns `None` if the
    /// number of blocks is odd.
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

/// Returns the union of the bits of two blocks.
fn union<B: BlockShape>([first, second]: &[B::Block; 2]) -> B::Block {
    let mut union = *first;
    unite(union.as_mut(), second.as_ref());
    union
}

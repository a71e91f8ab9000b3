//! An index in place of the headers of past blocks.

use std::ops::RangeInclusive;

use chainsieve::eth::header::BlockRef;

/// An index of past blocks that finds the candidates of a query without headers from nodes.
pub trait CandidateIndex: Send {
    /// Returns the range of indexed blocks, without those that may still leave the chain; `None` if
    /// there are no such blocks.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read.
    fn blocks(&mut self) -> Result<Option<RangeInclusive<u64>>, String>;

    /// Returns the number and hash of an indexed block.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read.
    fn block(&mut self, number: u64) -> Result<BlockRef, String>;

    /// Returns the first candidates of a range, in order, and the block up to which the list is
    /// complete.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read.
    fn candidates(
        &mut self,
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<BlockRef>, BlockRef), String>;
}

//! An index in place of the headers of past blocks.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use chainsieve::eth::header::BlockRef;
use chainsieve::eth::index::{Index, Storage};
use chainsieve::eth::log_query::CompiledQuery;

/// Maximum number of candidates that an [`Index`] returns at once for a query.
const MOST: usize = 1024;

/// An index of past blocks that finds the candidates of queries without headers from nodes.
///
/// An [`Index`] with [block hashes](chainsieve::eth::index::Settings::with_block_hashes) implements
/// this trait.
pub trait CandidateIndex: Send {
    /// Returns the range of indexed blocks; `None` if there are none.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read, or does not store the hashes of blocks.
    fn blocks(&mut self) -> Result<Option<RangeInclusive<u64>>, String>;

    /// Returns the number and hash of an indexed block.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read.
    fn block(&mut self, number: u64) -> Result<BlockRef, String>;

    /// Returns the first blocks of a range that may have a log of one of the queries, in order, and the
    /// block up to which the list is complete.
    ///
    /// # Errors
    /// Returns the reason if the index cannot be read.
    fn candidates(
        &mut self,
        queries: &[CompiledQuery],
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<BlockRef>, BlockRef), String>;
}

impl<S: Storage> CandidateIndex for Index<S>
where
    Self: Send,
{
    fn blocks(&mut self) -> Result<Option<RangeInclusive<u64>>, String> {
        if !self.settings().has_block_hashes() {
            return Err(NO_HASHES.to_owned());
        }
        Ok(self.numbers())
    }

    fn block(&mut self, number: u64) -> Result<BlockRef, String> {
        let mut blocks = with_hashes(self, [number])?;
        blocks.pop().ok_or_else(|| NO_HASHES.to_owned())
    }

    fn candidates(
        &mut self,
        queries: &[CompiledQuery],
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<BlockRef>, BlockRef), String> {
        let (first, mut end) = numbers.into_inner();
        let mut found = BTreeSet::new();
        for query in queries {
            let numbers = self.iter(query, first..=end).map_err(|error| error.to_string())?;
            let some: Result<Vec<u64>, _> = numbers.take(MOST).collect();
            let some = some.map_err(|error| error.to_string())?;
            // Of later blocks, nothing is known yet.
            if let (MOST, Some(&last)) = (some.len(), some.last()) {
                end = last;
            }
            found.extend(some);
        }
        // The last one is the block up to which the list is complete.
        let mut blocks = with_hashes(self, found.range(..=end).copied().chain([end]))?;
        let end = blocks.pop().ok_or_else(|| NO_HASHES.to_owned())?;
        Ok((blocks, end))
    }
}

pub(crate) const NO_HASHES: &str = "the index has no block hashes, by which headers are requested: build the index with --block-hashes";

/// Returns indexed blocks with their hashes. Numbers that ascend cost one read for each section of the index.
///
/// # Errors
/// Returns the reason if the index cannot be read, or has no hash of one of these blocks.
pub(crate) fn with_hashes<S: Storage>(
    index: &Index<S>,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<Vec<BlockRef>, String> {
    let (mut first, mut hashes) = (0, Vec::new());
    let with_hash = |number: u64| {
        let place = |first: u64| usize::try_from(number.checked_sub(first)?).ok();
        if place(first).is_none_or(|at| at >= hashes.len()) {
            let around = index.hashes_around(number).map_err(|error| error.to_string())?;
            (first, hashes) = around.ok_or(NO_HASHES)?;
        }
        let hash = place(first).and_then(|at| hashes.get(at)).copied();
        let hash = hash.ok_or_else(|| format!("the index has no hash of block {number}"))?;
        Ok(BlockRef { number, hash })
    };
    numbers.into_iter().map(with_hash).collect()
}

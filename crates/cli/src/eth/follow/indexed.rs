//! Reads candidates among past blocks, and the hashes of these blocks, from an index.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, ensure};
use chainsieve::eth::log_query::{CompiledQuery, LogQuery};
use chainsieve_provider::CandidateIndex;

use crate::eth::index::{self, Hashes, MappedIndex};
use chainsieve::eth::header::BlockRef;

/// Maximum number of candidates that are returned at once.
const MOST: usize = 1024;

/// An index with the hash of each block.
pub(super) struct Indexed {
    index: MappedIndex,
    name: String,
    query: CompiledQuery,
    hashes: Hashes,
    /// Number of newest blocks that are not used, because a reorganisation may remove them.
    newest: u64,
}

impl CandidateIndex for Indexed {
    fn blocks(&mut self) -> Result<Option<RangeInclusive<u64>>, String> {
        let (first, last) = index::numbers(&self.index).into_inner();
        let last = last.checked_sub(self.newest).filter(|last| *last >= first);
        Ok(last.map(|last| first..=last))
    }

    fn block(&mut self, number: u64) -> Result<BlockRef, String> {
        self.at(number).map_err(|error| format!("{error:#}"))
    }

    fn candidates(
        &mut self,
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<BlockRef>, BlockRef), String> {
        self.first_candidates(numbers).map_err(|error| format!("{error:#}"))
    }
}

impl Indexed {
    pub(super) fn open(path: &Path, query: &LogQuery, newest: u64) -> anyhow::Result<Self> {
        let index = index::open(path)?;
        let name = index::named(path);
        ensure!(
            index.settings().has_block_hashes(),
            "{name}: the index has no block hashes, which are needed to request headers: build it \
             with --block-hashes"
        );
        let query = query.compile();
        Ok(Self { index, name, query, hashes: Hashes::default(), newest })
    }

    /// Returns a block of the index.
    fn at(&mut self, number: u64) -> anyhow::Result<BlockRef> {
        let hash = self.hashes.get(&self.index, number).with_context(|| self.name.clone())?;
        let hash = hash
            .with_context(|| format!("{}: the index has no hash of block {number}", self.name))?;
        Ok(BlockRef { number, hash })
    }

    /// Returns the first candidates of a range, and the block up to which they are complete.
    fn first_candidates(
        &mut self,
        numbers: RangeInclusive<u64>,
    ) -> anyhow::Result<(Vec<BlockRef>, BlockRef)> {
        let mut end = *numbers.end();
        let candidates = self.index.iter(&self.query, numbers);
        let candidates = candidates.with_context(|| self.name.clone())?;
        let found = candidates.take(MOST).collect::<Result<Vec<_>, _>>();
        let found = found.with_context(|| self.name.clone())?;
        if let (MOST, Some(&last)) = (found.len(), found.last()) {
            end = last;
        }
        let blocks = found.into_iter().map(|number| self.at(number));
        Ok((blocks.collect::<anyhow::Result<_>>()?, self.at(end)?))
    }
}

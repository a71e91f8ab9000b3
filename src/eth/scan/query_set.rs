//! Many queries over history, answered in one pass, also those that come up on the way.

use alloc::vec::Vec;
use core::ops::Range;

use super::ranges::Ranges;
use crate::eth::bloom::BYTES;
use crate::eth::log_query::CompiledQuery;
use crate::simd::Backend;

/// Names a query of a [`QuerySet`]: 0 for the first inserted, 1 for the next, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(u32);

impl QueryId {
    /// The id as a number, to index one's own table of queries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Queries scanned together over numbered blocks, each from its own first block.
///
/// Chunks of filters may come in any order and size. A query that is inserted after blocks were
/// scanned, since it was found in one of them (the child of a factory), has yet to be answered
/// for those from its first block on: [`pending`](Self::pending) says which they are, and scanning
/// them once more answers them for such queries alone.
///
/// The law: over all calls of [`scan`](Self::scan), a query is answered for each block once at
/// most; and once nothing is pending, it was answered for every scanned block from its first one
/// on.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan::QuerySet};
/// use chainsieve::simd::Backend;
///
/// let (factory, child) = (bloom::positions(&[1; 20]), bloom::positions(&[2; 20]));
/// let mut blooms = vec![[0; 256]; 100];
/// bloom::accrue(&mut blooms[30], &factory);
/// bloom::accrue(&mut blooms[31], &child);
///
/// let mut set = QuerySet::new(Backend::best());
/// let factory = set.insert(CompiledQuery::new(vec![vec![factory]]), 1_000);
/// let hits = set.scan(1_000, &blooms);
/// assert_eq!(hits.iter().collect::<Vec<_>>(), [(1_030, &[factory][..])]);
///
/// // The receipts of block 1030 show that the factory made a child there.
/// let child = set.insert(CompiledQuery::new(vec![vec![child]]), 1_030);
/// assert_eq!(set.pending(), [1_030..1_100]);
/// let hits = set.scan(1_030, &blooms[30..]);
/// assert_eq!(hits.iter().collect::<Vec<_>>(), [(1_031, &[child][..])]);
/// assert_eq!(set.pending(), []);
/// ```
#[derive(Debug, Clone)]
pub struct QuerySet {
    backend: Backend,
    queries: Vec<Member>,
    /// Every block that was scanned.
    scanned: Ranges,
}

#[derive(Debug, Clone)]
struct Member {
    query: CompiledQuery,
    from_block: u64,
    /// Scanned blocks from `from_block` on that the query was not answered for.
    missing: Ranges,
}

impl QuerySet {
    /// A set without queries.
    pub fn new(backend: Backend) -> Self {
        Self { backend, queries: Vec::new(), scanned: Ranges::default() }
    }

    /// Adds a query, to be answered for blocks from `from_block` on.
    pub fn insert(&mut self, query: CompiledQuery, from_block: u64) -> QueryId {
        let id = u32::try_from(self.queries.len()).expect("fewer than 2^32 queries");
        let missing = self.scanned.intersection(&(from_block..u64::MAX));
        self.queries.push(Member { query, from_block, missing });
        QueryId(id)
    }

    /// How many queries there are.
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// Whether there is no query.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// Scans the filters of the blocks from number `first_block` on: each block that is a
    /// candidate of a query, with all queries it is one of.
    ///
    /// A block that was scanned before is looked at only for the queries to which it is
    /// [pending](Self::pending).
    ///
    /// # Panics
    /// If a block's number would be `u64::MAX` or more.
    pub fn scan(&mut self, first_block: u64, blooms: &[[u8; BYTES]]) -> Hits {
        let count = u64::try_from(blooms.len()).ok();
        let end = count.and_then(|count| first_block.checked_add(count));
        let chunk = first_block..end.expect("block numbers below u64::MAX");
        let fresh = self.scanned.gaps(&chunk);
        let mut hits = Hits::default();
        for (block, bloom) in chunk.clone().zip(blooms) {
            let is_in = |ranges: &Ranges| !ranges.intersection(&(block..block + 1)).is_empty();
            let is_new = is_in(&fresh);
            for (id, member) in (0..).zip(&self.queries) {
                let due = (is_new && block >= member.from_block) || is_in(&member.missing);
                if due && member.query.answer(bloom).is_candidate() {
                    hits.push(block, QueryId(id));
                }
            }
        }
        self.scanned.insert(chunk.clone());
        self.queries.iter_mut().for_each(|member| member.missing.remove(&chunk));
        hits
    }

    /// The blocks that were scanned before a query came that asks for them: to be scanned again.
    /// Ascending, and none touches the next.
    pub fn pending(&self) -> Vec<Range<u64>> {
        let mut pending = Ranges::default();
        for member in &self.queries {
            member.missing.as_slice().iter().for_each(|range| pending.insert(range.clone()));
        }
        pending.as_slice().to_vec()
    }

    /// The [pending](Self::pending) blocks of one query; none if the set never gave this id.
    pub fn pending_of(&self, id: QueryId) -> &[Range<u64>] {
        self.queries.get(id.index()).map_or(&[], |member| member.missing.as_slice())
    }

    /// Forgets that blocks from `block` on were scanned: another chain took their place. Scanning
    /// the new ones answers every query for them again.
    pub fn rewind(&mut self, block: u64) {
        let gone = block..u64::MAX;
        self.scanned.remove(&gone);
        self.queries.iter_mut().for_each(|member| member.missing.remove(&gone));
    }
}

/// Candidates, each with the queries that its block may hold a match of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hits {
    blocks: Vec<u64>,
    /// Where the ids of each block end in `ids`.
    ends: Vec<usize>,
    ids: Vec<QueryId>,
}

impl Hits {
    /// Number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block is a candidate.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks' numbers, ascending, each with the ids of its queries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[QueryId])> {
        let starts = core::iter::once(&0).chain(&self.ends);
        let ids = starts.zip(&self.ends).map(|(&start, &end)| &self.ids[start..end]);
        self.blocks.iter().copied().zip(ids)
    }

    /// One more hit, of the last block or of one behind it.
    fn push(&mut self, block: u64, id: QueryId) {
        if self.blocks.last() == Some(&block) {
            self.ends.pop();
        } else {
            self.blocks.push(block);
        }
        self.ids.push(id);
        self.ends.push(self.ids.len());
    }
}

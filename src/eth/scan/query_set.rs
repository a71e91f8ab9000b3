//! Many queries over history, answered in one pass, also those that come up on the way.

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;

use super::ranges::Ranges;
use super::scanner::Scanner;
use super::slices::{Select, TILE, Task, Tile, ValueColumns, columns_of, for_each, range_mask};
use crate::eth::bloom::{BYTES, Blooms};
use crate::eth::log_query::CompiledQuery;

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
///
/// let (factory, child) = (bloom::positions(&[1; 20]), bloom::positions(&[2; 20]));
/// let mut blooms = vec![[0; 256]; 100];
/// bloom::accrue(&mut blooms[30], &factory);
/// bloom::accrue(&mut blooms[31], &child);
///
/// let mut set = QuerySet::new();
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
#[derive(Debug, Clone, Default)]
pub struct QuerySet {
    backend: Backend,
    queries: Vec<Member>,
    /// Every block that was scanned.
    scanned: Ranges,
}

#[derive(Debug, Clone)]
struct Member {
    query: CompiledQuery,
    /// Where the query's values stand once filters are turned, the shortest clause first.
    clauses: Vec<Vec<ValueColumns>>,
    from_block: u64,
    /// Scanned blocks from `from_block` on that the query was not answered for.
    missing: Ranges,
}

/// A query and places in a chunk that it has yet to be answered for.
#[derive(Debug, Clone)]
struct Due {
    stretch: Range<usize>,
    number: u32,
}

/// Up to so many queries are scanned one by one: turning filters for them costs more.
const FEW: usize = 2;

/// The clauses of a query, the shortest first. One without values, which filters meet that say
/// nothing, stands as clauses that need every bit.
fn clauses_in_columns(query: &CompiledQuery) -> Vec<Vec<ValueColumns>> {
    if query.clauses().iter().any(Vec::is_empty) {
        let every = (0..2046).step_by(3).map(|bit| [bit, bit + 1, bit + 2]);
        return every.chain([[2045, 2046, 2047]]).map(|bits| columns_of(&[bits])).collect();
    }
    let mut clauses: Vec<_> = query.clauses().iter().map(|values| columns_of(values)).collect();
    clauses.sort_by_key(Vec::len);
    clauses
}

impl QuerySet {
    /// A set without queries.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same set, scanned on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Adds a query, to be answered for blocks from `from_block` on.
    pub fn insert(&mut self, query: CompiledQuery, from_block: u64) -> QueryId {
        let id = u32::try_from(self.queries.len()).expect("fewer than 2^32 queries");
        let missing = self.scanned.intersection(&(from_block..u64::MAX));
        let clauses = clauses_in_columns(&query);
        self.queries.push(Member { query, clauses, from_block, missing });
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
    pub fn scan(&mut self, first_block: u64, blooms: &(impl Blooms + ?Sized)) -> Hits {
        self.scan_arrays(first_block, blooms.as_arrays())
    }

    fn scan_arrays(&mut self, first_block: u64, blooms: &[[u8; BYTES]]) -> Hits {
        let count = u64::try_from(blooms.len()).ok();
        let end = count.and_then(|count| first_block.checked_add(count));
        let chunk = first_block..end.expect("block numbers below u64::MAX");
        let due = self.due(&chunk);
        let hits = if due.len() <= FEW {
            self.scan_each(first_block, blooms, &due)
        } else {
            self.scan_together(first_block, blooms, &due)
        };
        self.scanned.insert(chunk.clone());
        self.queries.iter_mut().for_each(|member| member.missing.remove(&chunk));
        hits
    }

    /// What each query is to be answered for, in the order of the queries.
    fn due(&self, chunk: &Range<u64>) -> Vec<Due> {
        let fresh = self.scanned.gaps(chunk);
        let place = |block: u64| usize::try_from(block - chunk.start).expect("within a slice");
        let mut due = Vec::new();
        for (number, member) in (0..).zip(&self.queries) {
            let fresh =
                fresh.as_slice().iter().map(|range| range.start.max(member.from_block)..range.end);
            let missing = member
                .missing
                .as_slice()
                .iter()
                .map(|range| range.start.max(chunk.start)..range.end.min(chunk.end));
            let stretches = fresh.chain(missing).filter(|stretch| !stretch.is_empty());
            due.extend(
                stretches.map(|stretch| Due {
                    stretch: place(stretch.start)..place(stretch.end),
                    number,
                }),
            );
        }
        due
    }

    /// One query after the other.
    fn scan_each(&self, first_block: u64, blooms: &[[u8; BYTES]], due: &[Due]) -> Hits {
        let mut tile = Tile::default();
        let mut pairs: Vec<(usize, u32)> = Vec::new();
        for Due { stretch, number } in due {
            let blooms = &blooms[stretch.clone()];
            let query = &self.queries[*number as usize].query;
            let scanner = Scanner::ordered_by_on(self.backend, query, blooms);
            let mut found = Vec::new();
            scanner.scan(blooms, stretch.start, &mut tile, &mut found);
            pairs.extend(found.iter().map(|&place| (place, *number)));
        }
        pairs.sort_unstable();
        let mut hits = Hits::default();
        for (place, number) in pairs {
            hits.push(first_block + place as u64, QueryId(number));
        }
        hits
    }

    /// All queries for 512 blocks, then for the next.
    fn scan_together(&self, first_block: u64, blooms: &[[u8; BYTES]], due: &[Due]) -> Hits {
        let mut tile = Tile::default();
        let mut hits = Hits::default();
        let mut found = Found::default();
        for (number, blooms) in blooms.chunks(TILE).enumerate() {
            let start = number * TILE;
            let end = start + blooms.len();
            let columns = tile.turn(self.backend, blooms);
            let whole = range_mask(0, blooms.len());
            let here = due.iter().filter(|due| due.stretch.start < end && due.stretch.end > start);
            let tasks = here.map(|due| {
                let stretch = due.stretch.start.max(start)..due.stretch.end.min(end);
                let part = || range_mask(stretch.start - start, stretch.end - start);
                let mask = if stretch.len() == blooms.len() { whole } else { part() };
                let clauses = &self.queries[due.number as usize].clauses;
                (due.number, Task { clauses, mask })
            });
            let see = |query, mask: &_| found.add(query, mask);
            self.backend.run(Select { columns, tasks, see });
            found.drain_to(first_block + start as u64, &mut hits);
        }
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

/// Hits of 512 blocks, found query by query.
#[derive(Debug, Default)]
struct Found {
    /// Block and query.
    pairs: Vec<(u16, u32)>,
}

impl Found {
    fn add(&mut self, query: u32, blocks: &[u32; 16]) {
        for_each(blocks, |block| {
            self.pairs.push((u16::try_from(block).expect("below 512"), query));
        });
    }

    /// Moves all to `hits`, in the order of the blocks.
    fn drain_to(&mut self, first_block: u64, hits: &mut Hits) {
        if self.pairs.is_empty() {
            return;
        }
        // One pass to count, one to place.
        let mut ends = [0_usize; TILE];
        self.pairs.iter().for_each(|(block, _)| ends[usize::from(*block)] += 1);
        let mut start = hits.ids.len();
        for (place, count) in (0..).zip(&mut ends) {
            let end = start + *count;
            if *count > 0 {
                hits.blocks.push(first_block + place);
                hits.ends.push(end);
            }
            (*count, start) = (start, end);
        }
        hits.ids.resize(start, QueryId(0));
        for (block, query) in self.pairs.drain(..) {
            let place = &mut ends[usize::from(block)];
            hits.ids[*place] = QueryId(query);
            *place += 1;
        }
    }
}

/// Candidates, each with the queries that its block may hold a match of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a query is answered for a block once: hits that are dropped do not come again"]
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

//! Tests many queries against past blocks in one pass; queries may be added during the scan.

use alloc::vec::Vec;
use core::ops::Range;

use chainsieve_lanes::simd::Backend;

use super::Ranges;
use super::Scanner;
use super::slices::{Select, TILE, Task, Tile, ValueColumns, columns_of, for_each, range_mask};
use crate::eth::bloom::{BYTES, Blooms};
use crate::eth::log_query::CompiledQuery;

/// Queries that are scanned together over numbered blocks. Each query has its own first block.
///
/// Chunks of filters may be scanned in any order and size. A query may be inserted after blocks
/// were scanned, for example because a log in one of them reveals a new contract of a factory. A
/// query that is inserted late has no answers yet for blocks that were scanned before.
/// [`pending`](Self::pending) returns the blocks without an answer. If the pending blocks are
/// scanned again, only the queries that lack answers for these blocks are answered.
///
/// Over all calls of [`scan`](Self::scan), a query is answered at most once for each block. Once no
/// blocks are pending, every query is answered for every scanned block from its first block on.
///
/// A new header is a chunk of one filter: the queries of many customers are tested against it in one
/// call. If the header may replace another header with the same number, call [`rewind`](Self::rewind)
/// first: a number that was scanned is not answered again.
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
/// // The receipts of block 1030 show that the factory created a child contract there.
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
    /// All blocks that were scanned.
    scanned: Ranges,
}

#[derive(Debug, Clone)]
struct Member {
    query: CompiledQuery,
    /// Columns of the query's values in the transposed filters, the shortest clause first.
    clauses: Vec<Vec<ValueColumns>>,
    from_block: u64,
    /// Scanned blocks from `from_block` on for which the query was not answered.
    missing: Ranges,
}

/// A query, and a range of indices in a chunk for which it must be answered.
#[derive(Debug, Clone)]
struct Due {
    stretch: Range<usize>,
    number: u32,
}

/// Highest number of queries that are scanned one by one: with more queries than this,
/// transposing the filters costs less.
const FEW: usize = 2;

/// Returns the clauses of a query as columns, the shortest first.
///
/// A query with an empty clause is fulfilled only by filters with all bits set: such a query is
/// replaced by clauses that together need every bit.
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
    /// Creates a set without queries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the same set, which scans on `backend`.
    #[must_use]
    pub fn with_backend(self, backend: Backend) -> Self {
        Self { backend, ..self }
    }

    /// Adds a query that is answered for blocks from `from_block` on. Returns its id: 0 for the first
    /// query, 1 for the next, and so on.
    ///
    /// # Panics
    /// Panics if the set has 2³² queries.
    pub fn insert(&mut self, query: CompiledQuery, from_block: u64) -> usize {
        let id = self.queries.len();
        assert!(u32::try_from(id).is_ok(), "fewer than 2^32 queries");
        let missing = self.scanned.intersection(&(from_block..u64::MAX));
        let clauses = clauses_in_columns(&query);
        self.queries.push(Member { query, clauses, from_block, missing });
        id
    }

    /// Returns the number of queries.
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// Returns `true` if there is no query.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// Scans the filters of consecutive blocks. The first of these blocks has the number
    /// `first_block`. Returns the candidates, each with all queries that it may match.
    ///
    /// A block that was scanned before is tested only against the queries for which it is
    /// [pending](Self::pending).
    ///
    /// # Panics
    /// Panics if the number of a block is `u64::MAX`.
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

    /// Returns the ranges of the chunk for which each query must be answered, in the order of the
    /// queries.
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

    /// Scans the queries one after the other, each over its own ranges.
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
            hits.push(first_block + place as u64, number as usize);
        }
        hits
    }

    /// Runs all queries over 512 blocks, then all queries over the next 512 blocks, and so on.
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

    /// Returns the blocks to scan again, because queries were inserted after these blocks were
    /// scanned.
    ///
    /// The ranges ascend, and no range touches the next range.
    pub fn pending(&self) -> Vec<Range<u64>> {
        let mut pending = Ranges::default();
        for member in &self.queries {
            member.missing.as_slice().iter().for_each(|range| pending.insert(range.clone()));
        }
        pending.as_slice().to_vec()
    }

    /// Returns the [pending](Self::pending) blocks of one query; empty for an unknown id.
    pub fn pending_of(&self, id: usize) -> &[Range<u64>] {
        self.queries.get(id).map_or(&[], |member| member.missing.as_slice())
    }

    /// Forgets that blocks from `block` on were scanned, because a reorganisation replaced them.
    /// When the new blocks are scanned, every query is answered for these blocks again.
    pub fn rewind(&mut self, block: u64) {
        let gone = block..u64::MAX;
        self.scanned.remove(&gone);
        self.queries.iter_mut().for_each(|member| member.missing.remove(&gone));
    }
}

/// Hits in 512 blocks, collected query by query.
#[derive(Debug, Default)]
struct Found {
    /// Pairs of block index and query.
    pairs: Vec<(u16, u32)>,
}

impl Found {
    fn add(&mut self, query: u32, blocks: &[u32; 16]) {
        for_each(blocks, |block| {
            self.pairs.push((u16::try_from(block).expect("below 512"), query));
        });
    }

    /// Moves all hits to `hits`, ordered by block.
    fn drain_to(&mut self, first_block: u64, hits: &mut Hits) {
        if self.pairs.is_empty() {
            return;
        }
        // Counting sort: the first pass counts the hits of each block, the second one places them.
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
        hits.ids.resize(start, 0);
        for (block, query) in self.pairs.drain(..) {
            let place = &mut ends[usize::from(block)];
            hits.ids[*place] = query as usize;
            *place += 1;
        }
    }
}

/// Candidates, each with the queries that its block may match.
///
/// `serde` writes a list of objects. In each object, `block` is the number of a block, and
/// `queries` is the list of its queries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "each query is answered only once for a block: dropped hits are not repeated"]
pub struct Hits {
    blocks: Vec<u64>,
    /// For each block, the index in `ids` at which the ids of its queries end.
    ends: Vec<usize>,
    ids: Vec<usize>,
}

impl Hits {
    /// Returns the number of candidate blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns `true` if no block is a candidate.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the numbers of the blocks, ascending, each with the ids of its queries, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[usize])> {
        let starts = core::iter::once(&0).chain(&self.ends);
        let ids = starts.zip(&self.ends).map(|(&start, &end)| &self.ids[start..end]);
        self.blocks.iter().copied().zip(ids)
    }

    /// Adds a hit, in the block of the preceding hit or in a block after it.
    fn push(&mut self, block: u64, id: usize) {
        if self.blocks.last() == Some(&block) {
            self.ends.pop();
        } else {
            self.blocks.push(block);
        }
        self.ids.push(id);
        self.ends.push(self.ids.len());
    }
}

impl serde::Serialize for Hits {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Hit<'a> {
            block: u64,
            queries: &'a [usize],
        }
        serializer.collect_seq(self.iter().map(|(block, queries)| Hit { block, queries }))
    }
}

//! Tests many queries, called watches, against the filter of one new block.

use alloc::vec::Vec;

use chainsieve_lanes::bits::transpose::Row;
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::rows::{RowLanes as _, ValueTile, fill_tile, is_set};
use crate::eth::bloom::{BitPositions, BloomAnswer, BloomView};
use crate::eth::log_query::CompiledQuery;

/// Queries that are tested against each new block, for example those of a wallet's users or a
/// notifier's customers.
///
/// # Cost
/// A query takes 40 bytes if it has one address, and 52 bytes if it has one address and one topic.
/// While the lists grow, a query takes up to twice as much memory.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan::QueryList};
///
/// let [alice, bob] = [[1; 20], [2; 20]].map(|address| bloom::positions(&address));
/// let watches = [vec![vec![alice]], vec![vec![bob]], vec![vec![alice, bob]]];
/// let watches = QueryList::new(&watches.map(CompiledQuery::new));
///
/// let mut bloom = [0; 256];
/// bloom::accrue(&mut bloom, &bob);
/// assert_eq!(watches.matching(&bloom), [1, 2]);
/// // A filter without information may contain anything.
/// assert_eq!(watches.matching(&[0xff; 256]), [0, 1, 2]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct QueryList {
    /// Groups of entries with the same number of values.
    groups: Vec<Group>,
    /// Watches without a clause, which match every block.
    always: Vec<u32>,
    /// For each watch, the query that must still be tested after an entry of the watch matched.
    rest: Vec<CompiledQuery>,
}

/// Entries with the same number of values. An entry is a set of values that a match needs.
///
/// A watch has one entry if it has a clause of a single value. Otherwise it has one entry for each
/// value of its shortest clause.
#[derive(Debug, Clone)]
struct Group {
    values: usize,
    /// The values of the entries, in tiles. For each group of 16 entries, the first tile has their
    /// first values, the second tile has their second values, and so on.
    tiles: Vec<ValueTile>,
    /// The watch of each entry, in arrays of 16 entries. The last array may have unused elements.
    owners: Vec<[u32; 16]>,
    entries: usize,
}

impl Group {
    fn push(&mut self, entry: &[BitPositions], owner: u32) {
        let lane = self.entries % 16;
        if lane == 0 {
            self.tiles.resize(self.tiles.len() + self.values, [[0; 16]; 3]);
            self.owners.push([0; 16]);
        }
        let first = self.tiles.len() - self.values;
        for (tile, value) in self.tiles[first..].iter_mut().zip(entry) {
            fill_tile(tile, lane, *value);
        }
        if let Some(owners) = self.owners.last_mut() {
            owners[lane] = owner;
        }
        self.entries += 1;
    }

    /// Returns the tiles and the owners of each group of 16 entries.
    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = (&[ValueTile], &[u32; 16])> {
        self.tiles.chunks_exact(self.values).zip(&self.owners)
    }

    /// Returns a mask of the last 16 lanes, in which the lanes with an entry are set.
    #[inline(always)]
    fn last_lanes(&self) -> u16 {
        u16::MAX >> (self.entries.wrapping_neg() & 15)
    }
}

impl QueryList {
    /// Creates the watches of these queries, numbered from 0 in their order.
    pub fn new(queries: &[CompiledQuery]) -> Self {
        let mut list = Self::default();
        for query in queries {
            list.insert(query);
        }
        list
    }

    /// Adds a watch and returns its number; numbers ascend by one.
    pub fn insert(&mut self, query: &CompiledQuery) -> u32 {
        let number = self.len();
        let clauses = query.clauses();
        let singles = clauses.iter().filter(|values| values.len() == 1);
        let mut entry: Vec<BitPositions> = singles.flatten().copied().collect();
        let shortest = clauses.iter().map(Vec::as_slice).min_by_key(|values| values.len());
        match shortest {
            None => self.always.push(number),
            // An empty clause can't be fulfilled, so the watch needs no entry.
            Some([]) => {}
            Some([_]) => {
                entry.sort_unstable();
                entry.dedup();
                self.group(entry.len()).push(&entry, number);
            }
            Some(values) => {
                let group = self.group(1);
                for value in values {
                    group.push(&[*value], number);
                }
            }
        }
        // If the watch has only one clause, or only clauses of one value, its entries decide the
        // match.
        let decided = clauses.len() == 1 || entry.len() == clauses.len();
        let rest = if decided { CompiledQuery::new(Vec::new()) } else { query.clone() };
        self.rest.push(rest);
        number
    }

    /// Returns the number of watches.
    pub fn len(&self) -> u32 {
        u32::try_from(self.rest.len()).expect("fewer than 2^32 watches")
    }

    /// Returns `true` if there is no watch.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the numbers of the watches that a block with this filter may match, ascending. If
    /// the filter carries no information, the numbers of all watches are returned.
    pub fn matching<'a>(&self, bloom: impl Into<BloomView<'a>>) -> Vec<u32> {
        self.matching_on(Backend::best(), bloom)
    }

    /// Does the same as [`matching`](Self::matching), on the given backend.
    pub fn matching_on<'a>(&self, backend: Backend, bloom: impl Into<BloomView<'a>>) -> Vec<u32> {
        let Some(bloom) = bloom.into().informative() else {
            return (0..self.len()).collect();
        };
        let mut found = self.always.clone();
        for group in &self.groups {
            backend.run(Met { group, bloom, found: &mut found });
        }
        found.sort_unstable();
        found.dedup();
        found.retain(|&number| self.rest[number as usize].answer(bloom) != BloomAnswer::No);
        found
    }

    fn group(&mut self, values: usize) -> &mut Group {
        let at = self.groups.iter().position(|group| group.values == values);
        let at = at.unwrap_or_else(|| {
            let (tiles, owners) = (Vec::new(), Vec::new());
            self.groups.push(Group { values, tiles, owners, entries: 0 });
            self.groups.len() - 1
        });
        &mut self.groups[at]
    }
}

/// Appends the owners of the entries whose values the filter may contain.
struct Met<'a> {
    group: &'a Group,
    bloom: &'a Row,
    found: &'a mut Vec<u32>,
}

impl Kernel for Met<'_> {
    type Output = ();

    fn scalar(self) {
        let mut entries = self.group.entries;
        for (tiles, owners) in self.group.iter() {
            for (lane, owner) in owners.iter().enumerate().take(entries) {
                let mut indices = tiles.as_flattened().iter().map(|indices| indices[lane]);
                if indices.all(|index| is_set(self.bloom, index)) {
                    self.found.push(*owner);
                }
            }
            entries = entries.saturating_sub(16);
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        let Self { group, bloom, found } = self;
        let bloom = lanes.table(bloom);
        let mut count = found.len();
        let mut last = 0;
        for (tiles, owners) in group.iter() {
            let mut met = u16::MAX;
            for tile in tiles {
                met &= lanes.contained(bloom, tile);
                if met == 0 {
                    break;
                }
            }
            if found.len() < count + 16 {
                found.resize(count + 1024, 0);
            }
            let to = found[count..].first_chunk_mut().expect("room for sixteen more");
            lanes.compress(met, lanes.load(owners), to);
            last = met;
            count += met.count_ones() as usize;
        }
        // Unused lanes are the highest of the last 16 entries, so their results are the last ones.
        count -= (last & !group.last_lanes()).count_ones() as usize;
        found.truncate(count);
    }
}

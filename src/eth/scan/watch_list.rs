//! Many watches over the filter of one new block.

use alloc::vec::Vec;

use chainsieve_lanes::bits::transpose::Row;
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::rows::{RowLanes as _, ValueTile, fill_tile, is_set};
use crate::eth::bloom::{Answer, BitPositions, BloomView};
use crate::eth::log_query::CompiledQuery;

/// Queries that wait for each new block: those of a wallet's users, of a notifier's customers.
///
/// 40 bytes for an address, 52 for an address and a topic, and up to twice that while lists grow.
///
/// # Examples
/// ```
/// use chainsieve::eth::{bloom, log_query::CompiledQuery, scan::WatchList};
///
/// let [alice, bob] = [[1; 20], [2; 20]].map(|address| bloom::positions(&address));
/// let watches = [vec![vec![alice]], vec![vec![bob]], vec![vec![alice, bob]]];
/// let watches = WatchList::new(&watches.map(CompiledQuery::new));
///
/// let mut bloom = [0; 256];
/// bloom::accrue(&mut bloom, &bob);
/// assert_eq!(watches.matching(&bloom), [1, 2]);
/// // A filter that says nothing could hold anything.
/// assert_eq!(watches.matching(&[0xff; 256]), [0, 1, 2]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct WatchList {
    /// By how many values an entry needs.
    groups: Vec<Group>,
    /// The watches that ask for nothing.
    always: Vec<u32>,
    /// What is left to test of each watch when one of its entries is met.
    rest: Vec<CompiledQuery>,
}

/// Entries of equally many values: sets of values that a watch needs all of. A watch has one, or
/// one for each value of its shortest clause.
#[derive(Debug, Clone)]
struct Group {
    values: usize,
    /// For each sixteen entries, their first values, then their second ones, and so on.
    tiles: Vec<ValueTile>,
    /// The watch of each entry, of those that lack in the last sixteen anything.
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

    /// Tiles and owners of each sixteen entries.
    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = (&[ValueTile], &[u32; 16])> {
        self.tiles.chunks_exact(self.values).zip(&self.owners)
    }

    /// The lanes of the last sixteen that have an entry.
    #[inline(always)]
    fn last_lanes(&self) -> u16 {
        u16::MAX >> (self.entries.wrapping_neg() & 15)
    }
}

impl WatchList {
    /// The watches of these queries, numbered from 0 in their order.
    pub fn new(queries: &[CompiledQuery]) -> Self {
        let mut list = Self::default();
        for query in queries {
            list.insert(query);
        }
        list
    }

    /// Adds a watch and returns its number, one more than the last one's.
    pub fn insert(&mut self, query: &CompiledQuery) -> u32 {
        let number = self.len();
        let clauses = query.clauses();
        let singles = clauses.iter().filter(|values| values.len() == 1);
        let mut entry: Vec<BitPositions> = singles.flatten().copied().collect();
        let shortest = clauses.iter().map(Vec::as_slice).min_by_key(|values| values.len());
        match shortest {
            None => self.always.push(number),
            // What can't be met has no entry.
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
        // A sole clause of several values, and single ones, are decided by the entries.
        let decided = clauses.len() == 1 || entry.len() == clauses.len();
        let rest = if decided { CompiledQuery::new(Vec::new()) } else { query.clone() };
        self.rest.push(rest);
        number
    }

    /// How many watches there are.
    pub fn len(&self) -> u32 {
        u32::try_from(self.rest.len()).expect("fewer than 2^32 watches")
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The numbers of the watches that a block with this filter may hold a match of, ascending:
    /// all of them, if the filter gives no information.
    pub fn matching<'a>(&self, bloom: impl Into<BloomView<'a>>) -> Vec<u32> {
        self.matching_on(Backend::best(), bloom)
    }

    /// As [`matching`](Self::matching), on this backend.
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
        found.retain(|&number| self.rest[number as usize].answer(bloom) != Answer::No);
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

/// Adds the owners of the entries that the filter may hold.
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
        // Lanes without an entry are the highest, so they came last.
        count -= (last & !group.last_lanes()).count_ones() as usize;
        found.truncate(count);
    }
}

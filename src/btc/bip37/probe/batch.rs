//! Probing of many elements in one filter, with elements in SIMD lanes.
//!
//! MurmurHash3 reads an element in blocks of four bytes. Elements with the same number of whole
//! blocks are probed sixteen at a time. The first two hash functions are computed for all elements
//! without a branch. With a half-full filter, a quarter of the elements remain. The remaining
//! elements are compacted into rows. When a row is full, the next two hash functions are computed
//! for it, and so on until no element or no hash function is left.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers of the strings of a block, which fit 32 bits"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "over lanes: a closure would not inline into the function with the CPU features"
)]

use alloc::vec::Vec;
use core::array::from_mut;

use chainsieve_lanes::hash::murmur3::{absorb, finalize, length, mix_block, mix_tail};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::tiles::{MAX_BLOCKS, Quad, Tiles};
use super::{Broadcast, FilterView, MurmurLanes, Params, first_lanes};

/// Number of extra elements after the end of an array, because lanes are always stored sixteen at a
/// time.
pub(in crate::btc::bip37) const OVERRUN: usize = 16;
/// Largest number of remaining elements that are collected before the hash functions after the
/// first two are computed.
const COLUMNS: usize = 512;
/// One value (block, tail, length or number) of each collected element.
type Row = [u32; COLUMNS + OVERRUN];
/// The mixed blocks of sixteen elements, then their mixed tails and their lengths.
type Tile = [[u32; 16]; MAX_BLOCKS + 2];

/// Probes all classes of elements, one after the other, with one filter.
#[derive(Debug)]
pub(in crate::btc::bip37) struct Prober<'a> {
    backend: Backend,
    view: FilterView<'a>,
    rows: Vec<Row>,
    /// Numbers of the elements that the filter may contain.
    pub(in crate::btc::bip37) contained: Vec<u32>,
    /// For each element that the filter does not contain, by number: the first clear bit that the
    /// element selects, in the order of the hash functions. These bits are written only if the
    /// vector is not empty. The vector must then have space for all numbers and for [`OVERRUN`]
    /// further entries.
    pub(in crate::btc::bip37) first_clear: Vec<u32>,
}

impl<'a> Prober<'a> {
    pub(in crate::btc::bip37) fn new(
        backend: Backend,
        view: FilterView<'a>,
        first_clear: Vec<u32>,
    ) -> Self {
        Self { backend, view, rows: Vec::new(), contained: Vec::new(), first_clear }
    }

    /// Probes the strings of a class. Classes must be probed in the order of their numbers, because
    /// entries of `first_clear` after the class are overwritten.
    pub(in crate::btc::bip37) fn probe(&mut self, class: &Tiles) {
        // As in Core, a filter without hash functions contains everything.
        if self.view.params.hash_funcs == 0 {
            return self.contained.extend(class.start..class.end());
        }
        // The elements of this class need one row for each block of their length, and three more
        // rows: for tails, lengths and numbers.
        if self.rows.len() < class.blocks + 3 {
            self.rows.resize(class.blocks + 3, [0; COLUMNS + OVERRUN]);
        }
        self.backend.run(Probe { prober: self, class });
    }
}

struct Probe<'a, 'f> {
    prober: &'a mut Prober<'f>,
    class: &'a Tiles,
}

impl Kernel for Probe<'_, '_> {
    type Output = ();

    fn scalar(self) {
        let Self { prober, class } = self;
        let params = prober.view.params;
        let (mixed, rest) = prober.rows.split_at_mut(class.blocks + 2);
        let alive = &mut rest[0];
        let mut start = class.start;
        while start < class.end() {
            let mut count = (class.end() - start).min(COLUMNS as u32);
            for column in 0..count {
                class.with_bytes(start + column, |element| mix_column(element, mixed, column));
                alive[column as usize] = column;
            }
            for i in 0..params.hash_funcs {
                let seed = params.seed(i);
                let mut still = 0;
                for at in 0..count as usize {
                    let column = alive[at];
                    let bit = column_bit(mixed, column as usize, seed, params);
                    if !prober.first_clear.is_empty() {
                        prober.first_clear[(start + column) as usize] = bit;
                    }
                    // The outcome is nearly random, so a branch would often be mispredicted.
                    alive[still as usize] = column;
                    still += u32::from(prober.view.is_set(bit));
                }
                count = still;
            }
            prober.contained.extend(alive[..count as usize].iter().map(|column| start + column));
            start += COLUMNS as u32;
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        let Self { prober, class } = self;
        let mut rounds = Rounds {
            lanes,
            view: prober.view,
            filter: lanes.broadcast(prober.view.params.reduction),
            blocks: class.blocks,
            rows: &mut prober.rows[..class.blocks + 3],
            alive: 0,
            contained: &mut prober.contained,
            first_clear: &mut prober.first_clear,
        };
        let mut mixed: [Tile; 2] = [[[0; 16]; MAX_BLOCKS + 2]; 2];
        let mut number = class.start;
        let mut tiles = class.iter();
        while let Some(tile) = tiles.next() {
            match tiles.next() {
                Some(next) => rounds.first([tile, next], &mut mixed, number, class.end()),
                None => rounds.first([tile], from_mut(&mut mixed[0]), number, class.end()),
            }
            number += 32;
        }
        rounds.finish();
    }
}

/// Writes the mixed blocks, the mixed tail and the length of an element into a column.
#[inline(always)]
fn mix_column<const N: usize>(element: &[u8], rows: &mut [[u32; N]], column: u32) {
    let column = column as usize;
    let (words, tail) = element.as_chunks::<4>();
    let (rows, ends) = rows.split_at_mut(words.len());
    for (row, word) in rows.iter_mut().zip(words) {
        row[column] = mix_block(u32::from_le_bytes(*word));
    }
    ends[0][column] = mix_tail(tail);
    ends[1][column] = length(element);
}

/// Returns the bit position that an element selects with `seed`.
#[inline(always)]
fn column_bit<const N: usize>(rows: &[[u32; N]], column: usize, seed: u32, params: Params) -> u32 {
    let (blocks, ends) = rows.split_at(rows.len() - 2);
    let hash = blocks.iter().fold(seed, |hash, row| absorb(hash, row[column]));
    params.reduction.bit(finalize(hash ^ ends[0][column], ends[1][column]))
}

/// State of probing one class: the elements that remain, and the results.
struct Rounds<'a, L: Lanes> {
    lanes: L,
    view: FilterView<'a>,
    filter: Broadcast<L::V>,
    blocks: usize,
    /// The blocks, tails, lengths and numbers of the remaining elements.
    rows: &'a mut [Row],
    alive: usize,
    contained: &'a mut Vec<u32>,
    first_clear: &'a mut [u32],
}

impl<L: Lanes> Rounds<'_, L> {
    /// Computes the first two hash functions for the elements of `tiles`, whose numbers are at
    /// least `number` and less than `end`. Appends the remaining elements to the rows, with `mixed`
    /// as a buffer.
    #[inline(always)]
    fn first<const N: usize>(
        &mut self,
        tiles: [(&[Quad], &[u32; 16]); N],
        mixed: &mut [Tile; N],
        number: u32,
        end: u32,
    ) {
        let lanes = self.lanes;
        let mut hashes = self.start::<N>(0);
        let mut ends = [(lanes.splat(0), lanes.splat(0)); N];
        let (full, rest) = (self.blocks / 4, self.blocks % 4);
        for quad in 0..full {
            for n in 0..N {
                let words = lanes.transpose(&tiles[n].0[quad]);
                for word in 0..4 {
                    let block = lanes.mix_block(words[word]);
                    lanes.store(block, &mut mixed[n][quad * 4 + word]);
                    self.absorb(&mut hashes[n], block);
                }
            }
        }
        for n in 0..N {
            let words = lanes.transpose(&tiles[n].0[full]);
            let mut tail = words[0];
            for word in 0..3 {
                // The last full block is followed by the tail, and then by arbitrary bytes.
                if word < rest {
                    let block = lanes.mix_block(words[word]);
                    lanes.store(block, &mut mixed[n][full * 4 + word]);
                    self.absorb(&mut hashes[n], block);
                    tail = words[word + 1];
                }
            }
            let lengths = lanes.load(tiles[n].1);
            let bits = lanes.shl::<3>(lanes.and(lengths, lanes.splat(3)));
            // A mask for the tail's bytes: the bytes after the end of a string are arbitrary.
            let behind = lanes.shl_each(lanes.splat(1), bits);
            let tail = lanes.and(tail, lanes.sub(behind, lanes.splat(1)));
            ends[n] = (lanes.mix_block(tail), lengths);
            lanes.store(ends[n].0, &mut mixed[n][self.blocks]);
            lanes.store(lengths, &mut mixed[n][self.blocks + 1]);
        }
        let results = self.settle(0, hashes, ends);
        for n in 0..N {
            let (set, clear) = results[n];
            let number = number + 16 * n as u32;
            let set = set & first_lanes(end - number);
            if !self.first_clear.is_empty() {
                lanes.store(clear, sixteen_mut(self.first_clear, number as usize));
            }
            let numbers = lanes.add(lanes.load(&IOTA), lanes.splat(number));
            let (numbers_row, rows) = self.rows.split_last_mut().expect("a row of numbers");
            for (row, column) in rows.iter_mut().zip(&mixed[n]) {
                lanes.compress(set, lanes.load(column), sixteen_mut(row, self.alive));
            }
            lanes.compress(set, numbers, sixteen_mut(numbers_row, self.alive));
            self.alive += set.count_ones() as usize;
        }
        // The next tiles might not fit into the rows.
        if self.alive > COLUMNS - 16 * N {
            self.finish();
        }
    }

    /// Computes all other hash functions for the remaining elements, and records those that the
    /// filter may contain.
    #[inline(always)]
    fn finish(&mut self) {
        let mut i = 2;
        while self.alive > 0 && i < self.view.params.hash_funcs {
            let (mut at, mut still) = (0, 0);
            while at < self.alive {
                // While at least two groups remain, two groups are computed at once, because the
                // CPU overlaps their hashes. For a single remaining group, a second group would
                // compute only unused lanes.
                if self.alive - at > 16 {
                    still = self.next::<2>(i, at, still);
                    at += 32;
                } else {
                    still = self.next::<1>(i, at, still);
                    at += 16;
                }
            }
            self.alive = still;
            i = i.saturating_add(2);
        }
        let numbers = self.blocks + 2;
        self.contained.extend_from_slice(&self.rows[numbers][..self.alive]);
        self.alive = 0;
    }

    /// Computes hash functions `i` and `i + 1` for the elements in the columns from `at`. Moves the
    /// remaining elements to the columns from `still`, and returns the next free column.
    #[inline(always)]
    fn next<const N: usize>(&mut self, i: u32, at: usize, mut still: usize) -> usize {
        let lanes = self.lanes;
        let numbers = self.blocks + 2;
        let mut hashes = self.start::<N>(i);
        let mut ends = [(lanes.splat(0), lanes.splat(0)); N];
        for row in &self.rows[..self.blocks] {
            for n in 0..N {
                self.absorb(&mut hashes[n], lanes.load(sixteen(row, at + 16 * n)));
            }
        }
        for n in 0..N {
            let end = |row: usize| lanes.load(sixteen(&self.rows[row], at + 16 * n));
            ends[n] = (end(self.blocks), end(self.blocks + 1));
        }
        let results = self.settle(i, hashes, ends);
        for n in 0..N {
            let (set, clear) = results[n];
            let at = at + 16 * n;
            let live = first_lanes((self.alive - at) as u32);
            let (set, mut out) = (set & live, live & !set);
            if !self.first_clear.is_empty() {
                let mut bits = [0; 16];
                lanes.store(clear, &mut bits);
                while out != 0 {
                    let lane = out.trailing_zeros() as usize & 15;
                    self.first_clear[self.rows[numbers][at + lane] as usize] = bits[lane];
                    out &= out - 1;
                }
            }
            // Writing in place is safe, because `still` never exceeds `at`.
            for row in &mut *self.rows {
                let column = lanes.load(sixteen(row, at));
                lanes.compress(set, column, sixteen_mut(row, still));
            }
            still += set.count_ones() as usize;
        }
        still
    }

    /// Returns the initial hashes of hash functions `i` and `i + 1`, for `N` groups of sixteen
    /// elements. More groups let the CPU overlap more hashes.
    #[inline(always)]
    fn start<const N: usize>(&self, i: u32) -> [[L::V; 2]; N] {
        let seed = |i| self.lanes.splat(self.view.params.seed(i));
        [[seed(i), seed(i.wrapping_add(1))]; N]
    }

    #[inline(always)]
    fn absorb(&self, hashes: &mut [L::V; 2], block: L::V) {
        hashes[0] = self.lanes.absorb(hashes[0], block);
        hashes[1] = self.lanes.absorb(hashes[1], block);
    }

    /// Completes the hashes of functions `i` and, if it exists, `i + 1` with tails and lengths, and
    /// tests the bits.
    ///
    /// Returns for each group the mask of the lanes whose bits are all set, and the first clear bit
    /// of the other lanes.
    #[inline(always)]
    fn settle<const N: usize>(
        &self,
        i: u32,
        hashes: [[L::V; 2]; N],
        ends: [(L::V, L::V); N],
    ) -> [(u16, L::V); N] {
        let lanes = self.lanes;
        let mut results = [(0, lanes.splat(0)); N];
        let mut bits = hashes;
        for n in 0..N {
            let (tail, length) = ends[n];
            for function in 0..2 {
                let hash = lanes.finalize(hashes[n][function], tail, length);
                bits[n][function] = lanes.reduce(hash, self.filter);
            }
        }
        let is_last = self.view.params.hash_funcs - i == 1;
        for n in 0..N {
            let first = lanes.test(self.view.padded, bits[n][0]);
            results[n] = if is_last {
                (first, bits[n][0])
            } else {
                let second = lanes.test(self.view.padded, bits[n][1]);
                (first & second, lanes.select(first, bits[n][1], bits[n][0]))
            };
        }
        results
    }
}

const IOTA: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

#[inline(always)]
fn sixteen(row: &[u32], at: usize) -> &[u32; 16] {
    row[at..at + 16].try_into().expect("sixteen lanes")
}

#[inline(always)]
fn sixteen_mut(row: &mut [u32], at: usize) -> &mut [u32; 16] {
    (&mut row[at..at + 16]).try_into().expect("sixteen lanes")
}

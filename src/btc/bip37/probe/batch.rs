//! Many elements against one filter: elements in lanes.
//!
//! Elements with the same number of full blocks go through sixteen at a time. All of them see the
//! first two hash functions without a branch. Those that are still in, a quarter with a half-full
//! filter, are moved together into rows, and when there are enough of them the next two hash
//! functions follow, and so on until none is left or no hash function.

use alloc::vec::Vec;

use super::tiles::{MAX_BLOCKS, Tiles};
use super::{Broadcast, FilterView, MurmurLanes, Params, first_lanes};
use crate::hash::murmur3::{absorb, finalize, length, mix_block, mix_tail};
use crate::simd::{Backend, Kernel, Lanes};

/// Lanes are written sixteen at a time, up to as many places behind the last one.
pub(in crate::btc::bip37) const OVERRUN: usize = 16;
/// How many elements are moved together.
const COLUMNS: usize = 256;
/// A row of blocks, one of each element.
type Row = [u32; COLUMNS + OVERRUN];
/// The mixed blocks of sixteen elements, then their tails and their lengths.
type Tile = [[u32; 16]; MAX_BLOCKS + 2];

/// Probes class after class with one filter.
#[derive(Debug)]
pub(in crate::btc::bip37) struct Prober<'a> {
    backend: Backend,
    view: FilterView<'a>,
    rows: Vec<Row>,
    /// The numbers of the elements that the filter may contain.
    pub(in crate::btc::bip37) contained: Vec<u32>,
    /// By number, for the elements that it does not contain: the first bit that one selects and
    /// that is clear, in the order of the hash functions. Written only if not empty, and then
    /// with room for all numbers and [`OVERRUN`] more.
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

    /// Probes the strings of a class. Classes must come in the order of their numbers, since
    /// places of `first_clear` behind a class are overwritten.
    pub(in crate::btc::bip37) fn probe(&mut self, class: &Tiles) {
        if self.view.params.hash_funcs == 0 {
            return self.contained.extend(class.start()..class.end());
        }
        if self.rows.len() < class.blocks() + 3 {
            self.rows.resize(class.blocks() + 3, [0; COLUMNS + OVERRUN]);
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
        let (mixed, rest) = prober.rows.split_at_mut(class.blocks() + 2);
        let alive = &mut rest[0];
        let mut start = class.start();
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
                    // No branch on what is as good as the toss of a coin.
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
            blocks: class.blocks(),
            rows: &mut prober.rows[..class.blocks() + 3],
            alive: 0,
            contained: &mut prober.contained,
            first_clear: &mut prober.first_clear,
        };
        let mut tiles: [Tile; 2] = [[[0; 16]; MAX_BLOCKS + 2]; 2];
        let [one, two] = &mut tiles;
        let (one, two) = (&mut one[..class.blocks() + 2], &mut two[..class.blocks() + 2]);
        let mut number = class.start();
        let mut from = class.iter();
        while let Some((quads, lengths)) = from.next() {
            mix_tile(lanes, quads, lengths, one);
            if let Some((quads, lengths)) = from.next() {
                mix_tile(lanes, quads, lengths, two);
                rounds.first([one, two], number, class.end());
            } else {
                rounds.first([one], number, class.end());
            }
            number += 32;
        }
        rounds.finish();
    }
}

/// Mixes the blocks of an element into a column.
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

/// The bit that an element selects under `seed`.
#[inline(always)]
fn column_bit<const N: usize>(rows: &[[u32; N]], column: usize, seed: u32, params: Params) -> u32 {
    let (blocks, ends) = rows.split_at(rows.len() - 2);
    let hash = blocks.iter().fold(seed, |hash, row| absorb(hash, row[column]));
    params.reduction.bit(finalize(hash ^ ends[0][column], ends[1][column]))
}

/// Mixes the blocks and tails of sixteen elements.
#[inline(always)]
fn mix_tile<L: Lanes>(
    lanes: L,
    quads: &[[[u8; 16]; 16]],
    lengths: &[u32; 16],
    tile: &mut [[u32; 16]],
) {
    let (blocks, ends) = tile.split_at_mut(tile.len() - 2);
    let lengths = lanes.load(lengths);
    lanes.store(lengths, &mut ends[1]);
    let (blocks, last) = blocks.as_chunks_mut::<4>();
    let (last_quad, quads) = quads.split_last().expect("room for a tail");
    for (quad, rows) in quads.iter().zip(blocks) {
        let words = lanes.transpose(quad);
        lanes.store(lanes.mix_block(words[0]), &mut rows[0]);
        lanes.store(lanes.mix_block(words[1]), &mut rows[1]);
        lanes.store(lanes.mix_block(words[2]), &mut rows[2]);
        lanes.store(lanes.mix_block(words[3]), &mut rows[3]);
    }
    let words = lanes.transpose(last_quad);
    for (word, row) in words.iter().zip(&mut *last) {
        lanes.store(lanes.mix_block(*word), row);
    }
    let bits = lanes.shl::<3>(lanes.and(lengths, lanes.splat(3)));
    let end = lanes.shl_each(lanes.splat(1), bits);
    let tail = lanes.and(words[last.len()], lanes.sub(end, lanes.splat(1)));
    lanes.store(lanes.mix_block(tail), &mut ends[0]);
}

/// The rounds over a class, and the elements that are still in.
struct Rounds<'a, L: Lanes> {
    lanes: L,
    view: FilterView<'a>,
    filter: Broadcast<L::V>,
    blocks: usize,
    /// Of the elements moved together: blocks, tails, lengths, and numbers.
    rows: &'a mut [Row],
    alive: usize,
    contained: &'a mut Vec<u32>,
    first_clear: &'a mut [u32],
}

impl<L: Lanes> Rounds<'_, L> {
    /// The first two hash functions on tiles of elements, numbered from `number` to before `end`.
    #[inline(always)]
    fn first<const N: usize>(&mut self, tiles: [&[[u32; 16]]; N], number: u32, end: u32) {
        let lanes = self.lanes;
        let results = self.probe_two::<N>(0, |n, row| lanes.load(&tiles[n][row]));
        for n in 0..N {
            let (set, clear) = results[n];
            let number = number + 16 * n as u32;
            let set = set & first_lanes(end.saturating_sub(number));
            if !self.first_clear.is_empty() {
                lanes.store(clear, sixteen_mut(self.first_clear, number as usize));
            }
            let numbers = lanes.add(lanes.load(&IOTA), lanes.splat(number));
            let (numbers_row, rows) = self.rows.split_last_mut().expect("a row of numbers");
            for (row, column) in rows.iter_mut().zip(tiles[n]) {
                lanes.compress(set, lanes.load(column), sixteen_mut(row, self.alive));
            }
            lanes.compress(set, numbers, sixteen_mut(numbers_row, self.alive));
            self.alive += set.count_ones() as usize;
        }
        if self.alive > COLUMNS - 16 * N {
            self.finish();
        }
    }

    /// All other hash functions on the elements that are still in.
    #[inline(always)]
    fn finish(&mut self) {
        let lanes = self.lanes;
        let numbers = self.blocks + 2;
        let mut i = 2;
        while self.alive > 0 && i < self.view.params.hash_funcs {
            let mut still = 0;
            for at in (0..self.alive).step_by(16) {
                let live = first_lanes((self.alive - at) as u32);
                let [(set, clear)] =
                    self.probe_two(i, |_, row| lanes.load(sixteen(&self.rows[row], at)));
                let (set, out) = (set & live, live & !set);
                if !self.first_clear.is_empty() {
                    let mut bits = [0; 16];
                    lanes.store(clear, &mut bits);
                    for lane in (0..16).filter(|lane| out >> lane & 1 != 0) {
                        self.first_clear[self.rows[numbers][at + lane] as usize] = bits[lane];
                    }
                }
                // What is written never passes what is read.
                for row in &mut *self.rows {
                    let column = lanes.load(sixteen(row, at));
                    lanes.compress(set, column, sixteen_mut(row, still));
                }
                still += set.count_ones() as usize;
            }
            self.alive = still;
            i = i.saturating_add(2);
        }
        self.contained.extend_from_slice(&self.rows[numbers][..self.alive]);
        self.alive = 0;
    }

    /// Probes hash functions `i` and, if there is one, `i + 1` on `N` times sixteen elements, whose
    /// rows `read` gives: the lanes where all are set, and in the others the first bit that is
    /// clear. The more at once, the better the hashes overlap.
    #[inline(always)]
    fn probe_two<const N: usize>(
        &self,
        i: u32,
        read: impl Fn(usize, usize) -> L::V,
    ) -> [(u16, L::V); N] {
        let lanes = self.lanes;
        let params = self.view.params;
        let mut one = [lanes.splat(params.seed(i)); N];
        let mut two = [lanes.splat(params.seed(i.wrapping_add(1))); N];
        for block in 0..self.blocks {
            for n in 0..N {
                let mixed = read(n, block);
                one[n] = lanes.absorb(one[n], mixed);
                two[n] = lanes.absorb(two[n], mixed);
            }
        }
        for n in 0..N {
            let (tail, length) = (read(n, self.blocks), read(n, self.blocks + 1));
            one[n] = lanes.reduce(lanes.finalize(one[n], tail, length), self.filter);
            two[n] = lanes.reduce(lanes.finalize(two[n], tail, length), self.filter);
        }
        let is_last = params.hash_funcs - i == 1;
        let mut results = [(0, one[0]); N];
        for n in 0..N {
            let first = lanes.test(self.view.padded, one[n]);
            results[n] = if is_last {
                (first, one[n])
            } else {
                let second = lanes.test(self.view.padded, two[n]);
                (first & second, lanes.select(first, two[n], one[n]))
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

//! Many elements against one filter: elements in lanes.
//!
//! Elements with the same number of full blocks are probed together, a chunk at a time. All of a
//! chunk see the first two hash functions without a branch; the lanes that are still in, a
//! quarter of them with a half-full filter, move together, and so on until none is left or no
//! hash function.

use alloc::vec::Vec;

use super::{FilterView, MurmurLanes, Params};
use crate::hash::murmur3::{absorb, finalize, length, mix_block, mix_tail};
use crate::simd::{Backend, Kernel, Lanes};

/// Elements of a chunk.
pub(in crate::btc::bip37) const CHUNK: usize = 512;
/// Lanes are written sixteen at a time, up to as many places behind the last one.
pub(in crate::btc::bip37) const OVERRUN: usize = 16;
/// A row of a chunk.
const ROW: usize = CHUNK + OVERRUN;
/// Elements with more full blocks than this are probed one by one.
pub(in crate::btc::bip37) const MAX_BLOCKS: usize = 32;

/// The mixed blocks of up to [`CHUNK`] elements with equally many full blocks: row `b` has block
/// `b` of every element, two more rows have the tails and the lengths.
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct MixedChunk {
    rows: Vec<[u32; ROW]>,
    blocks: usize,
    count: usize,
}

impl MixedChunk {
    pub(in crate::btc::bip37) const fn new() -> Self {
        Self { rows: Vec::new(), blocks: 0, count: 0 }
    }

    /// Takes in at most [`CHUNK`] elements of `blocks` full blocks and up to three bytes more.
    pub(in crate::btc::bip37) fn fill<'a>(
        &mut self,
        backend: Backend,
        blocks: usize,
        elements: impl ExactSizeIterator<Item = &'a [u8]>,
    ) {
        assert!(elements.len() <= CHUNK && blocks <= MAX_BLOCKS, "a chunk has its limits");
        self.blocks = blocks;
        self.count = elements.len();
        if self.rows.len() < blocks + 2 {
            self.rows.resize(blocks + 2, [0; ROW]);
        }
        let (rows, ends) = self.rows[..blocks + 2].split_at_mut(blocks);
        for (i, element) in elements.enumerate() {
            let (words, tail) = element.as_chunks::<4>();
            debug_assert_eq!(words.len(), blocks);
            for (row, word) in rows.iter_mut().zip(words) {
                row[i] = u32::from_le_bytes(*word);
            }
            ends[0][i] = mix_tail(tail);
            ends[1][i] = length(element);
        }
        backend.run(Mix { rows });
    }
}

/// Mixes blocks in place.
struct Mix<'a> {
    rows: &'a mut [[u32; ROW]],
}

impl Kernel for Mix<'_> {
    type Output = ();

    fn scalar(self) {
        self.rows.as_flattened_mut().iter_mut().for_each(|word| *word = mix_block(*word));
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        let (words, _) = self.rows.as_flattened_mut().as_chunks_mut::<16>();
        for word in words {
            lanes.store(lanes.mix_block(lanes.load(word)), word);
        }
    }
}

/// Room to work in, kept from chunk to chunk.
#[derive(Debug, Default)]
pub(in crate::btc::bip37) struct Scratch {
    rows: Vec<[u32; ROW]>,
}

/// Probes a chunk. Appends to `contained` the numbers of the elements that the filter may
/// contain, counted from `first`. With `first_clear`, writes there from place `first` on for each
/// other element the first bit that it selects and that is clear, in the order of the hash
/// functions; up to [`OVERRUN`] places behind the chunk's are overwritten.
pub(in crate::btc::bip37) fn probe(
    backend: Backend,
    view: FilterView<'_>,
    chunk: &MixedChunk,
    first: u32,
    scratch: &mut Scratch,
    first_clear: Option<&mut [u32]>,
    contained: &mut Vec<u32>,
) {
    if view.params.hash_funcs == 0 {
        return contained.extend((first..).take(chunk.count));
    }
    let found = contained.len();
    let first_clear = first_clear.map(|first_clear| &mut first_clear[first as usize..]);
    scratch.rows.resize(scratch.rows.len().max(chunk.blocks + 3), [0; ROW]);
    backend.run(Probe { view, chunk, scratch: &mut scratch.rows, first_clear, contained });
    contained[found..].iter_mut().for_each(|number| *number += first);
}

struct Probe<'a> {
    view: FilterView<'a>,
    chunk: &'a MixedChunk,
    /// A row for each of the chunk's and one for the elements' numbers.
    scratch: &'a mut [[u32; ROW]],
    first_clear: Option<&'a mut [u32]>,
    contained: &'a mut Vec<u32>,
}

impl Kernel for Probe<'_> {
    type Output = ();

    fn scalar(self) {
        let Self { view, chunk, scratch, mut first_clear, contained } = self;
        let rows = &chunk.rows[..chunk.blocks + 2];
        let alive = &mut scratch[0];
        let mut count = chunk.count;
        for (i, place) in (0..).zip(&mut alive[..count]) {
            *place = i;
        }
        for i in 0..view.params.hash_funcs {
            if count == 0 {
                return;
            }
            let seed = view.params.seed(i);
            let mut still = 0;
            for at in 0..count {
                let element = alive[at];
                let bit = column_bit(rows, element as usize, seed, view.params);
                if let Some(first_clear) = &mut first_clear {
                    first_clear[element as usize] = bit;
                }
                // No branch on what is as good as a coin toss.
                alive[still] = element;
                still += usize::from(view.is_set(bit));
            }
            count = still;
        }
        contained.extend_from_slice(&alive[..count]);
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        Rounds {
            lanes,
            view: self.view,
            filter: lanes.broadcast(self.view.params.reduction),
            blocks: self.chunk.blocks,
        }
        .run(self);
    }
}

/// The bit that an element of a chunk selects under `seed`.
#[inline(always)]
fn column_bit(rows: &[[u32; ROW]], column: usize, seed: u32, params: Params) -> u32 {
    let (ends, blocks) = rows
        .split_last_chunk::<2>()
        .map(|(blocks, ends)| (ends, blocks))
        .expect("two rows of ends");
    let hash = blocks.iter().fold(seed, |hash, row| absorb(hash, row[column]));
    params.reduction.bit(finalize(hash ^ ends[0][column], ends[1][column]))
}

/// The vector side of [`Probe`].
struct Rounds<'a, L: Lanes> {
    lanes: L,
    view: FilterView<'a>,
    filter: super::Broadcast<L::V>,
    blocks: usize,
}

impl<L: Lanes> Rounds<'_, L> {
    #[inline(always)]
    fn run(&self, probe: Probe<'_>) {
        let Probe { chunk, scratch, mut first_clear, contained, .. } = probe;
        let hash_funcs = self.view.params.hash_funcs;
        let ids = self.blocks + 2;

        // The first round reads the chunk and moves the survivors into the scratch rows.
        let mut alive = 0;
        for at in (0..chunk.count).step_by(16) {
            let read = |row: usize| self.lanes.load(sixteen(&chunk.rows[row], at));
            let (set, clear) = self.probe_next(0, hash_funcs, read);
            let set = set & super::first_lanes(remaining(chunk.count, at));
            if let Some(first_clear) = &mut first_clear {
                self.lanes.store(clear, sixteen_mut(first_clear, at));
            }
            for row in 0..ids {
                self.lanes.compress(set, read(row), sixteen_mut(&mut scratch[row], alive));
            }
            let numbers = self.lanes.add(self.lanes.load(&IOTA), self.lanes.splat(at as u32));
            self.lanes.compress(set, numbers, sixteen_mut(&mut scratch[ids], alive));
            alive += set.count_ones() as usize;
        }
        // The others work within the scratch rows: what is written never passes what is read.
        let mut i = 2;
        while alive > 0 && i < hash_funcs {
            let mut still = 0;
            for at in (0..alive).step_by(16) {
                let read = |row: usize| self.lanes.load(sixteen(&scratch[row], at));
                let (set, clear) = self.probe_next(i, hash_funcs, read);
                let live = super::first_lanes(remaining(alive, at));
                if let Some(first_clear) = &mut first_clear {
                    let mut bits = [0; 16];
                    self.lanes.store(clear, &mut bits);
                    for (lane, bit) in bits.into_iter().enumerate() {
                        if live & !set & 1 << lane != 0 {
                            first_clear[scratch[ids][at + lane] as usize] = bit;
                        }
                    }
                }
                for row in scratch[..=ids].iter_mut() {
                    let value = self.lanes.load(sixteen(row, at));
                    self.lanes.compress(set & live, value, sixteen_mut(row, still));
                }
                still += (set & live).count_ones() as usize;
            }
            alive = still;
            i += 2;
        }
        contained.extend_from_slice(&scratch[ids][..alive]);
    }

    /// Probes hash functions `i` and, if there is one, `i + 1`: the lanes where all are set, and
    /// in the others the first bit that is clear.
    #[inline(always)]
    fn probe_next(&self, i: u32, hash_funcs: u32, read: impl Fn(usize) -> L::V) -> (u16, L::V) {
        let lanes = self.lanes;
        let params = self.view.params;
        let mut hashes = [lanes.splat(params.seed(i)), lanes.splat(params.seed(i + 1))];
        for block in 0..self.blocks {
            let mixed = read(block);
            hashes = hashes.map(|hash| lanes.absorb(hash, mixed));
        }
        let (tail, length) = (read(self.blocks), read(self.blocks + 1));
        let bits = hashes.map(|hash| lanes.reduce(lanes.finalize(hash, tail, length), self.filter));
        let first = lanes.test(self.view.padded, bits[0]);
        if i + 1 == hash_funcs {
            return (first, bits[0]);
        }
        let second = lanes.test(self.view.padded, bits[1]);
        (first & second, lanes.select(first, bits[1], bits[0]))
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

#[inline(always)]
fn remaining(count: usize, at: usize) -> u32 {
    (count - at) as u32
}

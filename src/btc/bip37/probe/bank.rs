//! A few elements against many filters: filters in lanes.
//!
//! The mixed blocks of an element are the same for all filters, the seeds and sizes differ by
//! lane. All filters see the first two hash functions of an element without a branch. Those that
//! are still in, a quarter if they are half full, are moved together, the next two hash functions
//! follow, and so on until none is left or no hash function.

use alloc::vec::Vec;
use core::array;

use super::{Broadcast, MurmurLanes, Params, SEED_STEP, element, first_lanes};
use crate::btc::bip37::Elements;
use crate::btc::bip37::bit_array::Reduction;
use crate::hash::murmur3::{absorb, finalize, length, mix_block, mix_tail};
use crate::simd::{Backend, Kernel, Lanes};

/// How many filters share an arena. With filters of 36,000 bytes it has 9 MB, and whatever changes
/// moves no more than that.
pub(in crate::btc::bip37) const SHARD: usize = 1_024;
/// How many groups of sixteen are probed side by side: the CPU has work on one while the other
/// waits for its multiplications and its loads.
const TOGETHER: usize = 2;
const GROUPS: usize = SHARD / 16;
/// Behind the last filter, so that four bytes can be loaded at any byte.
const PADDING: usize = 3;

/// Elements whose blocks are mixed.
#[derive(Debug, Default)]
pub(in crate::btc::bip37) struct Mixed {
    blocks: Vec<u32>,
    ends: Vec<End>,
}

/// Where the blocks of an element end, and what comes behind them.
#[derive(Debug, Clone, Copy)]
struct End {
    blocks: usize,
    tail: u32,
    length: u32,
}

impl Mixed {
    pub(in crate::btc::bip37) fn new(elements: &Elements) -> Self {
        let mut mixed = Self::default();
        for class in elements.classes() {
            for number in class.start()..class.end() {
                class.with_bytes(number, |bytes| mixed.push(bytes));
            }
        }
        elements.long().for_each(|(_, bytes)| mixed.push(bytes));
        mixed
    }

    fn push(&mut self, element: &[u8]) {
        let (words, tail) = element.as_chunks::<4>();
        self.blocks.extend(words.iter().map(|word| mix_block(u32::from_le_bytes(*word))));
        let blocks = self.blocks.len();
        self.ends.push(End { blocks, tail: mix_tail(tail), length: length(element) });
    }

    /// Blocks, tail and length of each element.
    #[inline(always)]
    fn iter(&self) -> impl Iterator<Item = (&[u32], u32, u32)> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let blocks = &self.blocks[start..end.blocks];
            start = end.blocks;
            (blocks, end.tail, end.length)
        })
    }
}

/// Up to [`SHARD`] filters, numbered without gaps.
#[derive(Debug, Clone, Default)]
pub(in crate::btc::bip37) struct Shard {
    /// The filters' bytes, then padding. What a filter leaves behind stays until half is waste.
    arena: Vec<u8>,
    groups: Vec<Group>,
    len: usize,
    /// Bytes of the arena that belong to no filter, padding apart.
    waste: usize,
}

/// The parameters of sixteen filters.
#[derive(Debug, Clone, Default)]
struct Group {
    seed: [u32; 16],
    magic: [u32; 16],
    shift: [u32; 16],
    num_bits: [u32; 16],
    base: [u32; 16],
    /// The number of hash functions, and in the low half the number of the filter.
    tag: [u32; 16],
    /// The lanes with a filter that needs probing.
    live: u16,
    /// The lanes that match everything: no data or no hash functions.
    everything: u16,
    /// The lanes with less than two hash functions.
    below_two: u16,
    /// The lanes with less than three.
    below_three: u16,
}

impl Group {
    fn set(&mut self, number: usize, base: usize, params: Params) {
        let lane = number % 16;
        let Params { reduction, hash_funcs, tweak } = params;
        self.seed[lane] = tweak;
        self.magic[lane] = reduction.magic;
        self.shift[lane] = reduction.shift;
        self.num_bits[lane] = reduction.num_bytes << 3;
        self.base[lane] = u32::try_from(base).expect("an arena of a few megabytes");
        self.tag[lane] = hash_funcs << 16 | u32::try_from(number).expect("below SHARD");
        let everything = reduction.num_bytes == 0 || hash_funcs == 0;
        set_lane(&mut self.live, lane, !everything);
        set_lane(&mut self.everything, lane, everything);
        set_lane(&mut self.below_two, lane, hash_funcs < 2);
        set_lane(&mut self.below_three, lane, hash_funcs < 3);
    }
}

fn set_lane(mask: &mut u16, lane: usize, to: bool) {
    *mask = *mask & !(1 << lane) | u16::from(to) << lane;
}

impl Shard {
    /// Puts a filter behind the last one. The number of hash functions must fit 15 bits.
    pub(in crate::btc::bip37) fn push(&mut self, params: Params, data: &[u8]) {
        debug_assert!(self.len < SHARD && params.hash_funcs < 1 << 15);
        if self.len.is_multiple_of(16) {
            self.groups.push(Group::default());
        }
        self.len += 1;
        self.append(self.len - 1, params, data);
    }

    /// Puts another filter in the place of filter `number`.
    pub(in crate::btc::bip37) fn replace(&mut self, number: usize, params: Params, data: &[u8]) {
        debug_assert!(params.hash_funcs < 1 << 15);
        let (old, place) = self.get(number);
        let old = old.reduction.num_bytes as usize;
        if old == data.len() {
            self.groups[number / 16].set(number, place, params);
            self.data_mut(number).copy_from_slice(data);
        } else {
            self.forget(number);
            self.append(number, params, data);
        }
    }

    /// Drops the last filter.
    pub(in crate::btc::bip37) fn pop(&mut self) {
        self.len -= 1;
        self.forget(self.len);
        if self.len.is_multiple_of(16) {
            self.groups.pop();
        }
        self.compact();
    }

    /// Leaves a filter without data and without a live lane.
    fn forget(&mut self, number: usize) {
        let (params, _) = self.get(number);
        self.waste += params.reduction.num_bytes as usize;
        let group = &mut self.groups[number / 16];
        group.set(number, 0, Params { reduction: Reduction::new(0), hash_funcs: 0, tweak: 0 });
        set_lane(&mut group.everything, number % 16, false);
    }

    fn append(&mut self, number: usize, params: Params, data: &[u8]) {
        self.compact();
        let base = self.arena.len().saturating_sub(PADDING);
        self.arena.truncate(base);
        self.arena.extend_from_slice(data);
        self.arena.resize(base + data.len() + PADDING, 0);
        self.groups[number / 16].set(number, base, params);
    }

    /// Moves the filters together if less than half of the arena is theirs.
    fn compact(&mut self) {
        if self.waste * 2 <= self.arena.len() {
            return;
        }
        let mut arena = Vec::with_capacity(self.arena.len() - self.waste);
        for number in 0..self.len {
            let base = u32::try_from(arena.len()).expect("less than before");
            arena.extend_from_slice(self.data(number));
            self.groups[number / 16].base[number % 16] = base;
        }
        arena.resize(arena.len() + PADDING, 0);
        (self.arena, self.waste) = (arena, 0);
    }

    /// Parameters of a filter and where its bytes start.
    fn get(&self, number: usize) -> (Params, usize) {
        debug_assert!(number <= self.len);
        let (group, lane) = (&self.groups[number / 16], number % 16);
        let reduction = Reduction {
            num_bytes: group.num_bits[lane] >> 3,
            magic: group.magic[lane],
            shift: group.shift[lane],
        };
        let (hash_funcs, tweak) = (group.tag[lane] >> 16, group.seed[lane]);
        (Params { reduction, hash_funcs, tweak }, group.base[lane] as usize)
    }

    pub(in crate::btc::bip37) fn params(&self, number: usize) -> Params {
        self.get(number).0
    }

    pub(in crate::btc::bip37) fn data(&self, number: usize) -> &[u8] {
        let (params, base) = self.get(number);
        &self.arena[base..][..params.reduction.num_bytes as usize]
    }

    pub(in crate::btc::bip37) fn data_mut(&mut self, number: usize) -> &mut [u8] {
        let (params, base) = self.get(number);
        &mut self.arena[base..][..params.reduction.num_bytes as usize]
    }

    /// Inserts an element into one filter.
    pub(in crate::btc::bip37) fn insert(&mut self, backend: Backend, number: usize, data: &[u8]) {
        let params = self.params(number);
        if params.reduction.num_bytes != 0 {
            element::insert(backend, self.data_mut(number), params, data);
        }
    }

    /// The filters that may contain any of the elements, as a mask for each sixteen.
    pub(in crate::btc::bip37) fn probe(
        &self,
        backend: Backend,
        elements: &Mixed,
        rows: &mut Rows,
    ) -> [u16; GROUPS] {
        let mut hits = [0; GROUPS];
        for (hits, group) in hits.iter_mut().zip(&self.groups) {
            *hits = group.everything;
        }
        backend.run(Probe { shard: self, elements, rows, hits: &mut hits });
        hits
    }
}

/// A parameter of filters moved together, with room behind for lanes that are not in use.
type Row = [u32; SHARD + TOGETHER * 16];

/// Of the filters that are still in: what [`Group`] has of them, in the same order.
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct Rows([Row; 6]);

impl Default for Rows {
    fn default() -> Self {
        Self([[0; SHARD + TOGETHER * 16]; 6])
    }
}

struct Probe<'a> {
    shard: &'a Shard,
    elements: &'a Mixed,
    rows: &'a mut Rows,
    hits: &'a mut [u16; GROUPS],
}

impl Kernel for Probe<'_> {
    type Output = ();

    /// Filter by filter.
    fn scalar(self) {
        let Self { shard, elements, hits, .. } = self;
        for number in 0..shard.len {
            let (group, lane) = (number / 16, number % 16);
            if shard.groups[group].live >> lane & 1 == 0 {
                continue;
            }
            let (params, data) = (shard.params(number), shard.data(number));
            let is_set = |bit: u32| data[(bit >> 3) as usize] >> (bit & 7) & 1 != 0;
            let contains = |(blocks, tail, length): (&[u32], u32, u32)| {
                let mut i = 0;
                while i < params.hash_funcs {
                    // Two at a time, and no branch on what is as good as the toss of a coin.
                    let (mut one, mut two) = (params.seed(i), params.seed(i + 1));
                    for &block in blocks {
                        (one, two) = (absorb(one, block), absorb(two, block));
                    }
                    let first = is_set(params.reduction.bit(finalize(one ^ tail, length)));
                    let second = is_set(params.reduction.bit(finalize(two ^ tail, length)));
                    if !(first & (second | (i + 1 == params.hash_funcs))) {
                        return false;
                    }
                    i += 2;
                }
                true
            };
            if elements.iter().any(contains) {
                hits[group] |= 1 << lane;
            }
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        let Self { shard, elements, rows, hits } = self;
        // Filters without data have nothing to gather from.
        if shard.arena.len() <= PADDING {
            return;
        }
        let mut rounds = Rounds { lanes, arena: &shard.arena, rows: &mut rows.0, alive: 0, hits };
        for (blocks, tail, length) in elements.iter() {
            let element = Element { blocks, tail: lanes.splat(tail), length: lanes.splat(length) };
            let (together, rest) = shard.groups.as_chunks::<TOGETHER>();
            for (groups, number) in together.iter().zip((0..).step_by(TOGETHER)) {
                rounds.first(element, groups, number);
            }
            for (group, number) in rest.iter().zip(together.len() * TOGETHER..) {
                rounds.first(element, array::from_ref(group), number);
            }
            rounds.finish(element);
        }
    }
}

/// An element: its mixed blocks, and in every lane its mixed tail and its length.
#[derive(Clone, Copy)]
struct Element<'a, V> {
    blocks: &'a [u32],
    tail: V,
    length: V,
}

/// The parameters of sixteen filters in lanes.
#[derive(Clone, Copy)]
struct Filters<V> {
    seed: V,
    reduction: Broadcast<V>,
    base: V,
}

struct Rounds<'a, L: Lanes> {
    lanes: L,
    arena: &'a [u8],
    rows: &'a mut [Row; 6],
    alive: usize,
    hits: &'a mut [u16; GROUPS],
}

impl<L: Lanes> Rounds<'_, L> {
    /// The first two hash functions, on groups numbered from `number`.
    #[inline(always)]
    fn first<const N: usize>(
        &mut self,
        element: Element<'_, L::V>,
        groups: &[Group; N],
        number: usize,
    ) {
        let lanes = self.lanes;
        let mut filters = [self.load(&groups[0]); N];
        for n in 1..N {
            filters[n] = self.load(&groups[n]);
        }
        let masks = self.probe_two(element, &filters, 0);
        for n in 0..N {
            let (group, hits) = (&groups[n], &mut self.hits[number + n]);
            let [first, second] = masks[n];
            // Who was hit by an element before needs no more probes.
            let set = first & (second | group.below_two) & group.live & !*hits;
            *hits |= set & group.below_three;
            let set = set & !group.below_three;
            self.keep(set, self.alive, filters[n], lanes.load(&group.tag));
            self.alive += set.count_ones() as usize;
        }
    }

    /// All other hash functions, on the filters that are still in.
    #[inline(always)]
    fn finish(&mut self, element: Element<'_, L::V>) {
        let lanes = self.lanes;
        let mut i = 2;
        while self.alive > 0 {
            let mut still = 0;
            for at in (0..self.alive).step_by(16 * TOGETHER) {
                let (mut filters, mut tags) =
                    ([self.read(at).0; TOGETHER], [self.read(at).1; TOGETHER]);
                for n in 1..TOGETHER {
                    (filters[n], tags[n]) = self.read(at + n * 16);
                }
                let masks = self.probe_two(element, &filters, i);
                for n in 0..TOGETHER {
                    let [first, second] = masks[n];
                    // Less than `count` hash functions: the difference is negative.
                    let no_second = lanes.test_bit(self.minus(tags[n], i + 2), lanes.splat(31));
                    let done = lanes.test_bit(self.minus(tags[n], i + 3), lanes.splat(31));
                    let live = first_lanes(self.alive.saturating_sub(at + n * 16) as u32);
                    let set = first & (second | no_second) & live;
                    if set & done != 0 {
                        self.hit(set & done, tags[n]);
                    }
                    let set = set & !done;
                    // What is written never passes what is read.
                    self.keep(set, still, filters[n], tags[n]);
                    still += set.count_ones() as usize;
                }
            }
            self.alive = still;
            i += 2;
        }
    }

    #[inline(always)]
    fn load(&self, group: &Group) -> Filters<L::V> {
        let lanes = self.lanes;
        Filters {
            seed: lanes.load(&group.seed),
            reduction: Broadcast {
                magic: lanes.load(&group.magic),
                shift: lanes.load(&group.shift),
                num_bits: lanes.load(&group.num_bits),
            },
            base: lanes.load(&group.base),
        }
    }

    /// Sixteen filters that are still in, with their tags.
    #[inline(always)]
    fn read(&self, at: usize) -> (Filters<L::V>, L::V) {
        let reduction =
            Broadcast { magic: self.row(1, at), shift: self.row(2, at), num_bits: self.row(3, at) };
        (Filters { seed: self.row(0, at), reduction, base: self.row(4, at) }, self.row(5, at))
    }

    /// A tag less a number of hash functions.
    #[inline(always)]
    fn minus(&self, tag: L::V, hash_funcs: u32) -> L::V {
        self.lanes.sub(tag, self.lanes.splat(hash_funcs << 16))
    }

    #[inline(always)]
    fn hit(&mut self, mask: u16, tag: L::V) {
        let mut tags = [0; 16];
        self.lanes.store(tag, &mut tags);
        for (lane, tag) in tags.iter().enumerate() {
            let number = (tag & 0xffff) as usize;
            self.hits[number / 16 % GROUPS] |= (mask >> lane & 1) << (number % 16);
        }
    }

    #[inline(always)]
    fn row(&self, row: usize, at: usize) -> L::V {
        self.lanes.load(self.rows[row][at..at + 16].try_into().expect("sixteen lanes"))
    }

    /// Moves the lanes of the mask together, to `at`.
    #[inline(always)]
    fn keep(&mut self, mask: u16, at: usize, filters: Filters<L::V>, tag: L::V) {
        let Filters { seed, reduction, base } = filters;
        let Broadcast { magic, shift, num_bits } = reduction;
        self.keep_row(0, mask, at, seed);
        self.keep_row(1, mask, at, magic);
        self.keep_row(2, mask, at, shift);
        self.keep_row(3, mask, at, num_bits);
        self.keep_row(4, mask, at, base);
        self.keep_row(5, mask, at, tag);
    }

    #[inline(always)]
    fn keep_row(&mut self, row: usize, mask: u16, at: usize, value: L::V) {
        let to = (&mut self.rows[row][at..at + 16]).try_into().expect("sixteen lanes");
        self.lanes.compress(mask, value, to);
    }

    /// The filters that have the bit of hash function `i` set, and those with that of `i + 1`.
    #[inline(always)]
    fn probe_two<const N: usize>(
        &self,
        element: Element<'_, L::V>,
        filters: &[Filters<L::V>; N],
        i: u32,
    ) -> [[u16; 2]; N] {
        let lanes = self.lanes;
        let (first, step) = (lanes.splat(i.wrapping_mul(SEED_STEP)), lanes.splat(SEED_STEP));
        let mut hashes = [[first; 2]; N];
        for n in 0..N {
            let seed = lanes.add(filters[n].seed, first);
            hashes[n] = [seed, lanes.add(seed, step)];
        }
        for &block in element.blocks {
            let mixed = lanes.splat(block);
            for [one, two] in &mut hashes {
                *one = lanes.absorb(*one, mixed);
                *two = lanes.absorb(*two, mixed);
            }
        }
        let mut masks = [[0; 2]; N];
        for n in 0..N {
            for (mask, hash) in masks[n].iter_mut().zip(hashes[n]) {
                let hash = lanes.finalize(hash, element.tail, element.length);
                *mask = self.test(filters[n], lanes.reduce(hash, filters[n].reduction));
            }
        }
        masks
    }

    #[inline(always)]
    fn test(&self, filters: Filters<L::V>, bit: L::V) -> u16 {
        let lanes = self.lanes;
        let byte = lanes.add(filters.base, lanes.shr::<3>(bit));
        lanes.test_bit(lanes.gather(self.arena, byte), lanes.and(bit, lanes.splat(7)))
    }
}

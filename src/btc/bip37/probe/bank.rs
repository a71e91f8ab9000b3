//! Probing of a few elements in many filters, with filters in SIMD lanes.
//!
//! The mixed blocks of an element are the same for all filters; seeds and sizes differ from lane to
//! lane. The first hash function of an element is computed for all filters without a branch. If the
//! filters are half full, half of the filters remain after this step. The remaining filters are
//! compacted, and the next hash function is computed for them, and so on until no filter or no hash
//! function is left.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lanes and filters of a shard are counted in 32 bits"
)]

use alloc::vec::Vec;
use core::array;

use chainsieve_lanes::hash::murmur3::{absorb, finalize};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes};

use super::mixed::Mixed;
use super::{Broadcast, MurmurLanes, Params, SEED_STEP, element, first_lanes};
use crate::btc::bip37::bit_array::Reduction;

/// Number of filters that share an arena, which then has at most 37 MB (36,000 bytes per filter). A
/// larger shard amortises the last rounds of each element, in which few filters are still
/// undecided.
pub(in crate::btc::bip37) const SHARD: usize = 1_024;
/// Number of 16-lane groups probed in parallel, so that the CPU computes for one group while
/// another waits for its multiplications and loads. An estimate: with AVX2, the hash states of four
/// groups take 8 of the 16 registers.
const TOGETHER: usize = 4;
/// When at most this many filters remain, two hash functions are computed per round, so that there
/// are fewer rounds. The limit is the number of filters in [`TOGETHER`] groups: below it, a round
/// with one hash function would no longer fill all groups.
const FEW: usize = 64;
/// Number of 16-lane groups probed in parallel when at most [`FEW`] filters remain. Two groups with
/// two hash functions each compute as many hashes at a time as [`TOGETHER`] groups with one hash
/// function.
const FEW_TOGETHER: usize = 2;
/// Number of 16-lane groups in a full shard.
const GROUPS: usize = SHARD / 16;
/// Number of padding bytes after the last filter, so that a four-byte load at any offset stays in
/// bounds.
const PADDING: usize = 3;

/// At most [`SHARD`] filters, numbered without gaps.
#[derive(Debug, Clone, Default)]
pub(in crate::btc::bip37) struct Shard {
    /// The bytes of the filters, then padding. Bytes of removed filters stay until they are more
    /// than half of the arena.
    arena: Vec<u8>,
    groups: Vec<Group>,
    len: usize,
    /// Number of bytes of the arena that belong to no filter, not counting the padding.
    waste: usize,
}

/// The parameters of sixteen filters, one per lane.
#[derive(Debug, Clone, Default)]
struct Group {
    seed: [u32; 16],
    magic: [u32; 16],
    shift: [u32; 16],
    num_bits: [u32; 16],
    base: [u32; 16],
    /// The number of hash functions in the high 16 bits, and the number of the filter in the low 16
    /// bits.
    tag: [u32; 16],
    /// Mask of the lanes whose filter must be probed.
    live: u16,
    /// Mask of the lanes whose filter matches everything, because it has no data or no hash
    /// functions.
    everything: u16,
    /// Mask of the lanes whose filter has a single hash function.
    single: u16,
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
        set_lane(&mut self.single, lane, hash_funcs == 1);
    }
}

fn set_lane(mask: &mut u16, lane: usize, to: bool) {
    *mask = *mask & !(1 << lane) | u16::from(to) << lane;
}

impl Shard {
    /// Appends a filter. The number of hash functions must fit 15 bits.
    pub(in crate::btc::bip37) fn push(&mut self, params: Params, data: &[u8]) {
        debug_assert!(self.len < SHARD && params.hash_funcs < 1 << 15);
        if self.len.is_multiple_of(16) {
            self.groups.push(Group::default());
        }
        self.len += 1;
        self.append(self.len - 1, params, data);
    }

    /// Replaces filter `number`.
    pub(in crate::btc::bip37) fn replace(&mut self, number: usize, params: Params, data: &[u8]) {
        debug_assert!(params.hash_funcs < 1 << 15);
        let (old, place) = self.get(number);
        let old = old.reduction.num_bytes as usize;
        // A filter of the same size is overwritten in place, so that the arena does not grow.
        if old == data.len() {
            self.groups[number / 16].set(number, place, params);
            self.data_mut(number).copy_from_slice(data);
        } else {
            self.forget(number);
            self.append(number, params, data);
        }
    }

    /// Removes the last filter.
    pub(in crate::btc::bip37) fn pop(&mut self) {
        self.len -= 1;
        self.forget(self.len);
        if self.len.is_multiple_of(16) {
            self.groups.pop();
        }
        self.compact();
    }

    /// Replaces a filter by a filter without data. The lane of such a filter is never probed.
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

    /// Compacts the arena if more than half of its bytes belong to no filter.
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

    /// Returns the parameters of a filter, and the offset of its first byte in the arena.
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
        // A filter without data stays unchanged, as in Core.
        if params.reduction.num_bytes != 0 {
            element::insert(backend, self.data_mut(number), params, data);
        }
    }

    /// Returns the filters that may contain any of the elements, as a mask for each group of
    /// sixteen.
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

/// One parameter of each remaining filter, with extra space for unused lanes.
type Row = [u32; SHARD + TOGETHER * 16];

/// Number of parameters per filter: seed, magic, shift, bits, base and tag.
const ROWS: usize = 6;

/// The parameters of the remaining filters, in the order of the fields of [`Group`].
#[derive(Debug, Clone)]
pub(in crate::btc::bip37) struct Rows(Vec<Row>);

impl Default for Rows {
    fn default() -> Self {
        Self(alloc::vec![[0; SHARD + TOGETHER * 16]; ROWS])
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

    /// Probes one filter after the other.
    fn scalar(self) {
        let Self { shard, elements, hits, .. } = self;
        for number in 0..shard.len {
            let (group, lane) = (number / 16, number % 16);
            // The result for unused lanes, and for filters that match everything, is known without
            // probing.
            if shard.groups[group].live >> lane & 1 == 0 {
                continue;
            }
            let (params, data) = (shard.params(number), shard.data(number));
            let is_set = |bit: u32| data[(bit >> 3) as usize] >> (bit & 7) & 1 != 0;
            let contains = |(blocks, tail, length): (&[u32], u32, u32)| {
                let mut i = 0;
                while i < params.hash_funcs {
                    // Two hash functions are computed at a time. Each outcome is nearly random, so
                    // a branch after each one would often be mispredicted.
                    let (mut one, mut two) = (params.seed(i), params.seed(i + 1));
                    for &block in blocks {
                        (one, two) = (absorb(one, block), absorb(two, block));
                    }
                    let first = is_set(params.reduction.bit(finalize(one ^ tail, length)));
                    let second = is_set(params.reduction.bit(finalize(two ^ tail, length)));
                    let set = [first, second || i + 1 == params.hash_funcs];
                    if set != [true; 2] {
                        return false;
                    }
                    i += 2;
                }
                true
            };
            // One element is enough for a hit, so the others are not probed.
            if elements.iter().any(contains) {
                hits[group] |= 1 << lane;
            }
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, lanes: L) {
        let Self { shard, elements, rows, hits } = self;
        // If no filter has data, the arena has no bytes to gather from.
        if shard.arena.len() <= PADDING {
            return;
        }
        let rows = rows.0.first_chunk_mut().expect("as many as were made");
        let mut rounds = Rounds { lanes, arena: &shard.arena, rows, alive: 0, hits };
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

/// An element: its mixed blocks, and vectors with its mixed tail and its length in every lane.
#[derive(Clone, Copy)]
struct Element<'a, V> {
    blocks: &'a [u32],
    tail: V,
    length: V,
}

/// The parameters of sixteen filters, as vectors.
#[derive(Clone, Copy)]
struct Filters<V> {
    seed: V,
    reduction: Broadcast<V>,
    base: V,
}

struct Rounds<'a, L: Lanes> {
    lanes: L,
    arena: &'a [u8],
    rows: &'a mut [Row; ROWS],
    alive: usize,
    hits: &'a mut [u16; GROUPS],
}

impl<L: Lanes> Rounds<'_, L> {
    /// Computes the first hash function for the filters of `groups`, which are numbered from
    /// `number`.
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
        let set: [u16; N] = self.probe::<N, 1>(element, &filters, &[lanes.splat(0); N], 0);
        for n in 0..N {
            let (group, hits) = (&groups[n], &mut self.hits[number + n]);
            // A filter that already matched an element needs no more probes.
            let set = set[n] & group.live & !*hits;
            *hits |= set & group.single;
            let set = set & !group.single;
            self.keep(set, self.alive, filters[n], lanes.load(&group.tag));
            self.alive += set.count_ones() as usize;
        }
    }

    /// Computes all other hash functions for the remaining filters.
    #[inline(always)]
    fn finish(&mut self, element: Element<'_, L::V>) {
        let mut i = 1;
        // While many filters are left, a second hash function per round would be computed in vain
        // for the filters that drop out.
        while self.alive > FEW {
            self.round::<TOGETHER, 1>(element, i);
            i += 1;
        }
        while self.alive > 0 {
            self.round::<FEW_TOGETHER, 2>(element, i);
            i += 2;
        }
    }

    /// Computes hash functions `i` to `i + F - 1` for the remaining filters.
    #[inline(always)]
    fn round<const N: usize, const F: usize>(&mut self, element: Element<'_, L::V>, i: u32) {
        let mut still = 0;
        for at in (0..self.alive).step_by(16 * N) {
            let (filters, tag) = self.read(at);
            let (mut filters, mut tags) = ([filters; N], [tag; N]);
            for n in 1..N {
                (filters[n], tags[n]) = self.read(at + n * 16);
            }
            let set: [u16; N] = self.probe::<N, F>(element, &filters, &tags, i);
            for n in 0..N {
                let set = set[n] & first_lanes(self.alive.saturating_sub(at + n * 16) as u32);
                let done = self.at_most(tags[n], i + F as u32);
                // Filters without further hash functions may contain the element.
                if set & done != 0 {
                    self.hit(set & done, tags[n]);
                }
                let set = set & !done;
                // Writing in place is safe, because `still` never exceeds `at`.
                self.keep(set, still, filters[n], tags[n]);
                still += set.count_ones() as usize;
            }
        }
        self.alive = still;
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

    /// Returns the parameters of sixteen remaining filters, and their tags.
    #[inline(always)]
    fn read(&self, at: usize) -> (Filters<L::V>, L::V) {
        let reduction =
            Broadcast { magic: self.row(1, at), shift: self.row(2, at), num_bits: self.row(3, at) };
        (Filters { seed: self.row(0, at), reduction, base: self.row(4, at) }, self.row(5, at))
    }

    /// Returns the mask of the filters with at most `hash_funcs` hash functions.
    #[inline(always)]
    fn at_most(&self, tag: L::V, hash_funcs: u32) -> u16 {
        // For these filters, the tag minus `hash_funcs + 1` in its high half is negative, whatever
        // the low half of the tag contains.
        let difference = self.lanes.sub(tag, self.lanes.splat((hash_funcs + 1) << 16));
        self.lanes.test_bit(difference, self.lanes.splat(31))
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

    /// Copies the lanes that the mask selects to consecutive columns of the rows, from column `at`
    /// on.
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

    /// Returns the mask of the filters whose bits of hash functions `first` to `first + F - 1` are
    /// set. Hash functions that a filter does not have are ignored.
    #[inline(always)]
    fn probe<const N: usize, const F: usize>(
        &self,
        element: Element<'_, L::V>,
        filters: &[Filters<L::V>; N],
        tags: &[L::V; N],
        first: u32,
    ) -> [u16; N] {
        let lanes = self.lanes;
        let mut hashes = [[lanes.splat(0); F]; N];
        for n in 0..N {
            for (hash, i) in hashes[n].iter_mut().zip(first..) {
                let step = lanes.splat(i.wrapping_mul(SEED_STEP));
                *hash = lanes.add(filters[n].seed, step);
            }
        }
        for &block in element.blocks {
            let mixed = lanes.splat(block);
            for hash in hashes.as_flattened_mut() {
                *hash = lanes.absorb(*hash, mixed);
            }
        }
        let mut masks = [u16::MAX; N];
        for n in 0..N {
            for (hash, i) in hashes[n].into_iter().zip(first..) {
                let hash = lanes.finalize(hash, element.tail, element.length);
                let set = self.test(filters[n], lanes.reduce(hash, filters[n].reduction));
                // Every remaining filter has the hash function `first`.
                masks[n] &= if i == first { set } else { set | self.at_most(tags[n], i) };
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

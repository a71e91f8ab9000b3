//! The table of a cuckoo filter: buckets of fingerprints, and the operations that change them.
//!
//! **Buckets** of four fingerprints are packed into 64-bit words. One operation compares all four
//! slots. Bucket `b` starts at bit `4·BITS·b`, counted from the lowest bit of the first word. Slot
//! `s` of a bucket has `BITS` bits and starts at bit `BITS·s` of the bucket. In little-endian memory
//! the buckets therefore follow one another byte by byte. A slot with the value zero is free.
//!
//! **Each key has two buckets.** Each of them can be computed from the fingerprint and the other
//! bucket.
//!
//! **Insertion** stores the fingerprint in a free slot of one of the two buckets, or else moves other
//! fingerprints to their other buckets. The search for moves is breadth-first from both buckets, and
//! ends at the first free slot. Fingerprints are moved only after the search. The breadth-first
//! search has four advantages over random moves: there are few moves, the next buckets are prefetched
//! long before they are read, a failed search changes nothing, and the result does not depend on
//! chance.

use alloc::vec::Vec;

use crate::hashing::fmix64;

/// Number of slots in a bucket.
pub(super) const SLOTS: u32 = 4;
/// Greatest number of buckets. The bucket comes from the high 32 bits of a hash and the fingerprint
/// from the low 32, so no bit of the hash determines both.
pub(super) const MAX_BUCKETS: u64 = 1 << 32;
/// Number of buckets that a search looks at before it fails.
const MAX_SEARCHED: usize = 2000;
/// Number of the queue's nodes that are stored without heap memory.
const NEAR: usize = 48;
/// Number of keys in a batch that are handled together.
const CHUNK: usize = 32;

/// One bucket, with its first slot in the lowest bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket<const BITS: u32>(pub(super) u64);

impl<const BITS: u32> Bucket<BITS> {
    /// A mask of the lowest bit of every slot.
    const ONES: u64 = 1 | 1 << BITS | 1 << (2 * BITS) | 1 << (3 * BITS);
    /// A mask of the highest bit of every slot.
    const HIGHS: u64 = Self::ONES << (BITS - 1);
    /// A mask of the first slot.
    const SLOT: u64 = (1 << BITS) - 1;

    /// Returns a value that is not zero if any slot is zero. The lowest set bit of the result is
    /// the highest bit of the first slot that is zero. The higher bits of the result may be wrong,
    /// because the subtraction borrows between slots.
    #[inline(always)]
    const fn zeros(slots: u64) -> u64 {
        slots.wrapping_sub(Self::ONES) & !slots & Self::HIGHS
    }

    #[inline(always)]
    const fn differences(self, fingerprint: u32) -> u64 {
        self.0 ^ (fingerprint as u64).wrapping_mul(Self::ONES)
    }

    /// Returns `true` if a slot of either bucket contains the fingerprint.
    #[inline(always)]
    pub(super) const fn either_has(self, other: Self, fingerprint: u32) -> bool {
        let (ours, theirs) = (self.differences(fingerprint), other.differences(fingerprint));
        Self::zeros(ours) | Self::zeros(theirs) != 0
    }

    /// Returns the first slot that contains the fingerprint.
    #[inline]
    pub(super) const fn slot_of(self, fingerprint: u32) -> Option<u32> {
        match Self::zeros(self.differences(fingerprint)) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// Returns the first free slot.
    #[inline(always)]
    pub(super) const fn free_slot(self) -> Option<u32> {
        match Self::zeros(self.0) {
            0 => None,
            found => Some(found.trailing_zeros() / BITS),
        }
    }

    /// Returns the number of slots that are taken.
    #[inline(always)]
    pub(super) const fn taken(self) -> u32 {
        let below = Self::HIGHS - Self::ONES;
        (((self.0 & below) + below | self.0) & Self::HIGHS).count_ones()
    }

    /// Returns the fingerprint in a slot, or 0 if the slot is free.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a slot has 16 bits at most")]
    pub(super) const fn get(self, slot: u32) -> u32 {
        (self.0 >> (BITS * slot) & Self::SLOT) as u32
    }

    /// Returns a copy of the bucket with `fingerprint` stored in `slot`.
    #[inline(always)]
    pub(super) const fn with(self, slot: u32, fingerprint: u32) -> Self {
        let at = BITS * slot;
        Self(self.0 & !(Self::SLOT << at) | (fingerprint as u64) << at)
    }
}

/// Returns the number of words that `buckets` buckets take.
pub(super) const fn words_for<const BITS: u32>(buckets: u64) -> u64 {
    (buckets * (SLOTS * BITS) as u64).div_ceil(64)
}

/// Returns the first word of a bucket, the last word, and the bit of the first word at which the
/// bucket starts.
#[inline(always)]
const fn span<const BITS: u32>(bucket: u32) -> (usize, usize, u32) {
    let (at, bits) = (bucket as usize, SLOTS * BITS);
    match bits {
        64 => (at, at, 0),
        32 => (at / 2, at / 2, bucket % 2 * 32),
        // Four buckets of 48 bits lie in three words.
        _ => (at / 4 * 3 + at % 4 * 3 / 4, at / 4 * 3 + (at % 4 * 3 + 2) / 4, bucket % 4 * 48 % 64),
    }
}

/// Reads a bucket.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
pub(super) fn load<const BITS: u32>(words: &[u64], bucket: u32) -> Bucket<BITS> {
    let (first, last, shift) = span::<BITS>(bucket);
    match BITS {
        16 => Bucket(words[first]),
        8 => Bucket(words[first] >> shift & 0xffff_ffff),
        _ => {
            let both = u128::from(words[last]) << 64 | u128::from(words[first]);
            Bucket((both >> shift) as u64 & 0xffff_ffff_ffff)
        }
    }
}

/// Writes a bucket.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are stored")]
pub(super) fn store<const BITS: u32>(words: &mut [u64], bucket: u32, value: Bucket<BITS>) {
    let (first, last, shift) = span::<BITS>(bucket);
    match BITS {
        16 => words[first] = value.0,
        8 => words[first] = words[first] & !(0xffff_ffff << shift) | value.0 << shift,
        _ => {
            let both = u128::from(words[last]) << 64 | u128::from(words[first]);
            let both = both & !(0xffff_ffff_ffff << shift) | u128::from(value.0) << shift;
            if last != first {
                words[last] = (both >> 64) as u64;
            }
            words[first] = both as u64;
        }
    }
}

/// Prefetches the memory of a bucket.
#[inline(always)]
pub(super) fn prefetch<const BITS: u32>(words: &[u64], bucket: u32) {
    let (first, last, _) = span::<BITS>(bucket);
    for at in [first, last].into_iter().take(if BITS == 12 { 2 } else { 1 }) {
        if let Some([byte, ..]) = words.get(at).map(bytemuck::bytes_of) {
            chainsieve_lanes::simd::prefetch(byte);
        }
    }
}

/// A fingerprint and its two buckets, which may be the same bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) fingerprint: u32,
}

impl Entry {
    /// Computes the fingerprint and the buckets of a hash, for `buckets` buckets.
    #[inline(always)]
    pub(super) fn of<const BITS: u32>(hash: u64, buckets: u64) -> Self {
        Self::in_bucket(scale(hash, buckets), fingerprint_of::<BITS>(hash), buckets)
    }

    /// Computes the other bucket of a fingerprint from one of its buckets.
    #[inline(always)]
    pub(super) const fn in_bucket(first: u32, fingerprint: u32, buckets: u64) -> Self {
        Self { first, second: other_bucket(first, fingerprint, buckets), fingerprint }
    }
}

/// Computes the fingerprint of a hash, from 1 to 2^BITS − 1. The value 0 marks free slots.
///
/// The low 32 bits of the hash are scaled to this range. So the probabilities of the values differ
/// by at most one part in 2^(32 − BITS), which is 65,536 for 16 bits. Taking `BITS` bits of the
/// hash and replacing zero by one would make one value twice as likely as the others.
#[inline(always)]
pub(super) const fn fingerprint_of<const BITS: u32>(hash: u64) -> u32 {
    let (low, fingerprints) = (hash & 0xffff_ffff, (1 << BITS) - 1);
    (low * fingerprints >> 32) as u32 + 1
}

/// Returns the other bucket of a fingerprint that may be in `bucket`.
///
/// The bucket is `(H(fingerprint) − bucket) mod buckets`. Applying this formula twice gives
/// `bucket` again, for any number of buckets. The exclusive or of textbooks has this property only
/// for powers of two, and so wastes up to half of the memory.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
pub(super) const fn other_bucket(bucket: u32, fingerprint: u32, buckets: u64) -> u32 {
    let (sum, bucket) = (scale(fmix64(fingerprint as u64), buckets) as u64, bucket as u64);
    let wrapped = if bucket > sum { buckets } else { 0 };
    (sum + wrapped - bucket) as u32
}

/// Scales a word to a number below `buckets` by its high bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "below the number of buckets, at most 2^32")]
const fn scale(word: u64, buckets: u64) -> u32 {
    (word as u128 * buckets as u128 >> 64) as u32
}

/// A bucket that a search reached by moving the fingerprint in `slot` of the parent's bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    bucket: u32,
    parent: u16,
    slot: u8,
}

/// The nodes of a search, in the order in which the search looks at them.
struct Queue {
    near: [Node; NEAR],
    far: Vec<Node>,
    roots: usize,
    len: usize,
}

impl Queue {
    fn new(roots: [u32; 2]) -> Self {
        let mut near = [Node::default(); NEAR];
        near[0].bucket = roots[0];
        near[1].bucket = roots[1];
        let roots = if roots[0] == roots[1] { 1 } else { 2 };
        Self { near, far: Vec::new(), roots, len: roots }
    }

    #[inline]
    fn push(&mut self, node: Node) {
        match self.near.get_mut(self.len) {
            Some(near) => *near = node,
            None => self.far.push(node),
        }
        self.len += 1;
    }

    #[inline]
    fn get(&self, at: usize) -> Node {
        match self.near.get(at) {
            Some(node) => *node,
            None => self.far[at - NEAR],
        }
    }

    fn is_root(&self, node: usize) -> bool {
        node < self.roots
    }
}

/// The buckets of a filter, with the operations that change them.
pub(super) struct Table<'w, const BITS: u32> {
    pub(super) words: &'w mut [u64],
    pub(super) buckets: u64,
}

impl<const BITS: u32> Table<'_, BITS> {
    #[inline(always)]
    fn load(&self, bucket: u32) -> Bucket<BITS> {
        load(self.words, bucket)
    }

    /// Inserts the fingerprint if one of its buckets has a free slot. The bucket with more free
    /// slots is used. Returns `false` if both buckets are full.
    #[inline(always)]
    pub(super) fn insert_directly(&mut self, entry: Entry) -> bool {
        let (first, second) = (self.load(entry.first), self.load(entry.second));
        let (at, bucket) = if first.taken() <= second.taken() {
            (entry.first, first)
        } else {
            (entry.second, second)
        };
        let Some(slot) = bucket.free_slot() else { return false };
        store(self.words, at, bucket.with(slot, entry.fingerprint));
        true
    }

    /// Inserts the fingerprint by moving other fingerprints. Both buckets of the fingerprint must
    /// be full. If the search fails, returns `false` and leaves the table unchanged.
    pub(super) fn insert_by_moves(&mut self, entry: Entry) -> bool {
        let mut queue = Queue::new([entry.first, entry.second]);
        let mut at = 0;
        while at < queue.len {
            let node = queue.get(at);
            let bucket = self.load(node.bucket);
            if let Some(free) = bucket.free_slot() {
                self.make_moves(&queue, at, free, entry.fingerprint);
                return true;
            }
            for slot in 0..SLOTS {
                // The nodes that are already in the queue are still tested, but no further nodes
                // are added.
                if queue.len >= MAX_SEARCHED {
                    break;
                }
                let next = other_bucket(node.bucket, bucket.get(slot), self.buckets);
                prefetch::<BITS>(self.words, next);
                #[expect(clippy::cast_possible_truncation, reason = "few nodes and four slots")]
                queue.push(Node { bucket: next, parent: at as u16, slot: slot as u8 });
            }
            at += 1;
        }
        false
    }

    /// Moves the fingerprints on the path to `node`, the last fingerprint first, and stores
    /// `fingerprint` in the slot that becomes free.
    ///
    /// No bucket occurs twice on the path. If a bucket occurred twice, the breadth-first search
    /// would have found a shorter path before: the path without the part between the two
    /// occurrences.
    fn make_moves(&mut self, queue: &Queue, mut node: usize, mut free: u32, fingerprint: u32) {
        while !queue.is_root(node) {
            let Node { bucket, parent, slot } = queue.get(node);
            let from = self.load(queue.get(usize::from(parent)).bucket);
            let moved = from.get(u32::from(slot));
            let to = self.load(bucket).with(free, moved);
            store(self.words, bucket, to);
            (node, free) = (usize::from(parent), u32::from(slot));
        }
        let root = queue.get(node).bucket;
        let bucket = self.load(root).with(free, fingerprint);
        store(self.words, root, bucket);
    }

    /// Inserts fingerprints in order until one does not fit, and returns the number inserted.
    pub(super) fn insert_all(&mut self, mut entries: impl Iterator<Item = Entry>) -> usize {
        let mut inserted = 0;
        let mut chunk = [Entry::default(); CHUNK];
        loop {
            let mut len = 0;
            for (slot, entry) in chunk.iter_mut().zip(&mut entries) {
                *slot = entry;
                prefetch::<BITS>(self.words, entry.first);
                prefetch::<BITS>(self.words, entry.second);
                len += 1;
            }
            let done = self.insert_chunk(&chunk[..len]);
            inserted += done;
            if done < CHUNK {
                return inserted;
            }
        }
    }

    /// Inserts the fingerprints of a chunk in order until one does not fit, and returns the number
    /// inserted.
    ///
    /// The fingerprints that need no moves are inserted first. During these insertions, the buckets
    /// that the other fingerprints need for their moves are prefetched.
    fn insert_chunk(&mut self, chunk: &[Entry]) -> usize {
        let mut late = [0; CHUNK];
        let mut num_late = 0;
        for (at, entry) in chunk.iter().enumerate() {
            if !self.insert_directly(*entry) {
                late[num_late] = at;
                num_late += 1;
                self.prefetch_moves(*entry);
            }
        }
        for (done, at) in late[..num_late].iter().enumerate() {
            if !self.insert(chunk[*at]) {
                // The result must be a prefix of the chunk. So the fingerprints that follow the
                // failed one in the chunk and were already inserted are removed. Then the
                // fingerprints from the failed one on are inserted one by one, in order, until one
                // does not fit.
                let waiting = &late[done + 1..num_late];
                for (at, entry) in chunk.iter().enumerate().skip(at + 1) {
                    if !waiting.contains(&at) {
                        self.remove(*entry);
                    }
                }
                let rest = chunk[*at..].iter().take_while(|entry| self.insert(**entry));
                return at + rest.count();
            }
        }
        chunk.len()
    }

    fn prefetch_moves(&self, entry: Entry) {
        for at in [entry.first, entry.second] {
            let bucket = self.load(at);
            for slot in 0..SLOTS {
                let next = other_bucket(at, bucket.get(slot), self.buckets);
                prefetch::<BITS>(self.words, next);
            }
        }
    }

    /// Inserts a fingerprint. If there is no room, returns `false` and leaves the table unchanged.
    #[inline]
    pub(super) fn insert(&mut self, entry: Entry) -> bool {
        self.insert_directly(entry) || self.insert_by_moves(entry)
    }

    /// Removes one copy of a fingerprint. Returns `false` if neither bucket contains the
    /// fingerprint.
    #[inline]
    pub(super) fn remove(&mut self, entry: Entry) -> bool {
        for at in [entry.first, entry.second] {
            let bucket = self.load(at);
            if let Some(slot) = bucket.slot_of(entry.fingerprint) {
                store(self.words, at, bucket.with(slot, 0));
                return true;
            }
        }
        false
    }
}

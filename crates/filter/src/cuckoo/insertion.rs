//! Insertion of fingerprints: into a free slot of one of the two buckets, or else by moving other
//! fingerprints to their other buckets.
//!
//! The search for moves is breadth-first from both buckets, and ends at the first free slot.
//! Fingerprints are moved only after the search. The breadth-first search has four advantages over
//! random moves: there are few moves, the next buckets are prefetched long before they are read, a
//! failed search changes nothing, and the result does not depend on chance.

use alloc::vec::Vec;

use super::bucket::{Bucket, SLOTS, load, prefetch, store};
use super::place::{Place, other_bucket};

/// Number of buckets that a search looks at before it fails.
const MAX_SEARCHED: usize = 2000;
/// Number of the queue's nodes that are stored without heap memory.
const NEAR: usize = 48;

/// Number of keys in a batch that are handled together.
const CHUNK: usize = 32;

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
            Some(place) => *place = node,
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
    pub(super) fn insert_directly(&mut self, place: Place) -> bool {
        let (first, second) = (self.load(place.first), self.load(place.second));
        let (at, bucket) = if first.taken() <= second.taken() {
            (place.first, first)
        } else {
            (place.second, second)
        };
        let Some(slot) = bucket.free_slot() else { return false };
        store(self.words, at, bucket.with(slot, place.fingerprint));
        true
    }

    /// Inserts the fingerprint by moving other fingerprints. Both buckets of the fingerprint must
    /// be full. If the search fails, returns `false` and leaves the table unchanged.
    pub(super) fn insert_by_moves(&mut self, place: Place) -> bool {
        let mut queue = Queue::new([place.first, place.second]);
        let mut at = 0;
        while at < queue.len {
            let node = queue.get(at);
            let bucket = self.load(node.bucket);
            if let Some(free) = bucket.free_slot() {
                self.make_moves(&queue, at, free, place.fingerprint);
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

    /// Moves the fingerprints on the path to `node`, the last one first, and stores `fingerprint`
    /// in the slot that becomes free.
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
    pub(super) fn insert_all(&mut self, mut places: impl Iterator<Item = Place>) -> usize {
        let mut inserted = 0;
        let mut chunk = [Place::default(); CHUNK];
        loop {
            let mut len = 0;
            for (slot, place) in chunk.iter_mut().zip(&mut places) {
                *slot = place;
                prefetch::<BITS>(self.words, place.first);
                prefetch::<BITS>(self.words, place.second);
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
    fn insert_chunk(&mut self, chunk: &[Place]) -> usize {
        let mut late = [0; CHUNK];
        let mut num_late = 0;
        for (at, place) in chunk.iter().enumerate() {
            if !self.insert_directly(*place) {
                late[num_late] = at;
                num_late += 1;
                self.prefetch_moves(*place);
            }
        }
        for (done, at) in late[..num_late].iter().enumerate() {
            if !self.insert(chunk[*at]) {
                // The result must be a prefix of the chunk. So the fingerprints that follow the
                // failed one in the chunk and were already inserted are removed. Then the
                // fingerprints from the failed one on are inserted one by one, in order, until one
                // does not fit.
                let waiting = &late[done + 1..num_late];
                for (at, place) in chunk.iter().enumerate().skip(at + 1) {
                    if !waiting.contains(&at) {
                        self.remove(*place);
                    }
                }
                let rest = chunk[*at..].iter().take_while(|place| self.insert(**place));
                return at + rest.count();
            }
        }
        chunk.len()
    }

    fn prefetch_moves(&self, place: Place) {
        for at in [place.first, place.second] {
            let bucket = self.load(at);
            for slot in 0..SLOTS {
                let next = other_bucket(at, bucket.get(slot), self.buckets);
                prefetch::<BITS>(self.words, next);
            }
        }
    }

    /// Inserts a fingerprint. If there is no room, returns `false` and leaves the table unchanged.
    #[inline]
    pub(super) fn insert(&mut self, place: Place) -> bool {
        self.insert_directly(place) || self.insert_by_moves(place)
    }

    /// Removes one copy of a fingerprint. Returns `false` if neither bucket contains the
    /// fingerprint.
    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> bool {
        for at in [place.first, place.second] {
            let bucket = self.load(at);
            if let Some(slot) = bucket.slot_of(place.fingerprint) {
                store(self.words, at, bucket.with(slot, 0));
                return true;
            }
        }
        false
    }
}

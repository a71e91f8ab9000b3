//! Putting fingerprints in: directly where one of the two buckets has a free slot, else by moving
//! others to their other buckets.
//!
//! The moves are searched before any is made, breadth first from both buckets, and the first free
//! slot found ends the search. So moves are few, the memory of the next buckets is asked for long
//! before they are read, a search that fails has changed nothing, and nothing is left to chance.

use alloc::vec::Vec;

use super::bucket::{Bucket, SLOTS, load, prefetch, store};
use super::place::{Place, other_bucket};

/// Buckets that a search looks at before it gives up.
const MAX_SEARCHED: usize = 2000;
/// Of them, those that take no memory from the heap.
const NEAR: usize = 48;

/// Keys of a batch that are handled together.
const CHUNK: usize = 32;

/// A bucket that a search reached, by moving what is in `slot` of its parent.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    bucket: u32,
    parent: u16,
    slot: u8,
}

/// The nodes of a search in the order they are looked at.
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

/// Buckets that fingerprints are put into.
pub(super) struct Table<'w, const BITS: u32> {
    pub(super) words: &'w mut [u64],
    pub(super) buckets: u64,
}

impl<const BITS: u32> Table<'_, BITS> {
    #[inline(always)]
    fn load(&self, bucket: u32) -> Bucket<BITS> {
        load(self.words, bucket)
    }

    /// Inserts, if that takes no moves, into the bucket of the two that has more room.
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

    /// Inserts by moves, both buckets being full. `false` if none were found: then nothing has
    /// changed.
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
                if queue.len >= MAX_SEARCHED {
                    break;
                }
                let next = other_bucket(node.bucket, bucket.get(slot), self.buckets);
                prefetch::<BITS>(self.words, next);
                #[expect(clippy::cast_possible_truncation, reason = "nodes are few, slots four")]
                queue.push(Node { bucket: next, parent: at as u16, slot: slot as u8 });
            }
            at += 1;
        }
        false
    }

    /// Moves along the way to `node`, the last move first, and fills the slot that becomes free.
    ///
    /// The way comes through no bucket twice, or it would have moved what it had put there: what
    /// is behind the second time would have been reached from the first, and earlier.
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

    /// Inserts in order as many as have room, and returns their number.
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

    /// Inserts in order as many as have room, and returns their number.
    ///
    /// Those that take no moves go first. While they go, the memory of the moves of the others is
    /// on its way.
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
                // As one by one: those behind leave again, and have another try in their turn.
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

    /// Inserts. `false` if there is no room: then nothing has changed.
    #[inline]
    pub(super) fn insert(&mut self, place: Place) -> bool {
        self.insert_directly(place) || self.insert_by_moves(place)
    }

    /// Takes one copy out. `false` if there is none.
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

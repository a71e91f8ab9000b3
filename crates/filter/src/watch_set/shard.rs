//! The filters of one part of a set: a gate, the cuckoo filter behind it, and what fits neither.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;

use crate::cuckoo::CuckooFilter16;
use crate::hashing::{KeyHasher, fmix64};
use crate::membership::{Filter, Insert, NotContained, Remove, Witness};
use crate::sizing::SizingError;
use crate::split_block::SplitBlockFilter512;

/// The share of a cuckoo filter's slots that is filled, at most.
const MAX_LOAD: f64 = 0.94;
/// Room that a part gets beyond its keys when it grows, as a share of them. Every key is put in
/// again about once for each such share that a set grows by; and memory is that much too large.
const HEADROOM: f64 = 0.1;
/// Bits of the gate for every key there is room for. With 17.02 of the cuckoo filter and the
/// headroom that is 29.2 a key at most.
const GATE_BITS: f64 = 9.5;
/// The share of its room that a part's keys take at least, or it shrinks: 29.8 bits a key.
const MIN_FILL: f64 = 0.89;
/// Of the headroom, what a part that shrinks gets, so that it may shrink further for a while.
pub(super) const SHRUNK: f64 = 0.25;
/// Room that is not worth less.
const MIN_CAPACITY: u64 = 64;
/// Hashes beside the filters that are not worth a rebuild.
const SHORT_STASH: usize = 8;
/// Tries to build filters that everything fits.
const BUILDS: u32 = 3;

/// How the filters of all parts are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// What keys are hashed by: the filters' own hasher is never asked.
    pub(super) hasher: KeyHasher,
    pub(super) has_gate: bool,
}

/// Filters over the keys of one part.
#[derive(Debug)]
pub(super) struct Shard {
    gate: Option<SplitBlockFilter512>,
    cuckoo: CuckooFilter16,
    /// Hashes that the cuckoo filter had no place for, each as often as it was put in. Next to
    /// never any; they keep the promise that a failed insertion loses nothing.
    stash: Vec<u64>,
    /// How long the stash may get before the part is made anew.
    stash_limit: usize,
    keys: u64,
    capacity: u64,
    /// Keys that were taken out and whose bits are still in the gate.
    stale: u64,
}

/// The hash for the gate. The bits that chose the part are the same for all of its keys; this
/// spreads the others over all.
#[inline(always)]
pub(super) const fn gate_hash(hash: u64) -> u64 {
    fmix64(hash)
}

/// The hash for the cuckoo filter, from that for the gate. Mixed again, so that strangers who
/// pass the gate are no more likely than others to pass the cuckoo filter: the rates multiply.
#[inline(always)]
pub(super) const fn cuckoo_hash(gate_hash: u64) -> u64 {
    fmix64(gate_hash ^ 0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    /// Filters of these keys, with `headroom` of the usual room for more, 0 to 1.
    pub(super) fn build(hashes: &[u64], headroom: f64, shape: Shape) -> Result<Self, SizingError> {
        let len = hashes.len() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "far from both"
        )]
        let mut capacity = ((len + len * HEADROOM * headroom).ceil() as u64).max(MIN_CAPACITY);
        let mut built = Self::build_with(hashes, capacity, shape)?;
        for _ in 1..BUILDS {
            if built.stash.len() <= SHORT_STASH {
                break;
            }
            capacity += capacity / 16;
            let roomier = Self::build_with(hashes, capacity, shape)?;
            if roomier.stash.len() > built.stash.len() / 2 {
                // Not chance, but keys that were chosen to collide: no room is enough for them, and
                // too much would be given back at the next removal, and at each one after it.
                break;
            }
            built = roomier;
        }
        built.stash_limit = SHORT_STASH.max(built.stash.len() * 2);
        Ok(built)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far from both")]
    fn build_with(hashes: &[u64], capacity: u64, shape: Shape) -> Result<Self, SizingError> {
        let buckets = (capacity as f64 / (4.0 * MAX_LOAD)).ceil() as u64;
        let blocks = (capacity as f64 * GATE_BITS / 512.0).ceil() as u64;
        let gate = shape.has_gate.then(|| SplitBlockFilter512::with_blocks(blocks, shape.hasher));
        let mut shard = Self {
            gate: gate.transpose()?,
            cuckoo: CuckooFilter16::with_buckets(buckets, shape.hasher)?,
            stash: Vec::new(),
            stash_limit: SHORT_STASH,
            keys: 0,
            capacity,
            stale: 0,
        };
        let mut mixed: Vec<_> = hashes.iter().map(|hash| gate_hash(*hash)).collect();
        if let Some(gate) = &mut shard.gate {
            // A Bloom filter is never full.
            let _ = gate.insert_batch(&mixed);
        }
        for hash in &mut mixed {
            *hash = cuckoo_hash(*hash);
        }
        let mut next = 0;
        while let Err(full) = shard.cuckoo.insert_batch(&mixed[next..]) {
            // All but the one that there is no place for.
            next += full.inserted;
            shard.stash.push(hashes[next]);
            next += 1;
        }
        shard.keys = hashes.len() as u64;
        Ok(shard)
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        let gate_hash = gate_hash(hash);
        self.passes_gate(gate_hash) && self.is_behind_gate(hash, cuckoo_hash(gate_hash))
    }

    #[inline]
    pub(super) fn passes_gate(&self, gate_hash: u64) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.contains_hash(gate_hash))
    }

    #[inline]
    pub(super) fn is_behind_gate(&self, hash: u64, cuckoo_hash: u64) -> bool {
        self.cuckoo.contains_hash(cuckoo_hash) || self.stash.contains(&hash)
    }

    /// Asks for the memory that [`prefetch_gate`](Self::prefetch_gate) reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        chainsieve_lanes::simd::prefetch(&self.gate);
    }

    /// Asks for the memory that [`passes_gate`](Self::passes_gate) reads.
    #[inline]
    pub(super) fn prefetch_gate(&self, gate_hash: u64) {
        if let Some(gate) = &self.gate {
            gate.prefetch(gate_hash);
        }
    }

    /// Asks for the memory that [`is_behind_gate`](Self::is_behind_gate) reads.
    #[inline]
    pub(super) fn prefetch_behind_gate(&self, cuckoo_hash: u64) {
        self.cuckoo.prefetch(cuckoo_hash);
    }

    /// Puts in a key that is not there.
    pub(super) fn insert(&mut self, hash: u64) {
        let gate_hash = gate_hash(hash);
        if let Some(gate) = &mut self.gate {
            let _ = gate.insert_hash(gate_hash);
        }
        if self.cuckoo.insert_hash(cuckoo_hash(gate_hash)).is_err() {
            self.stash.push(hash);
        }
        self.keys += 1;
    }

    /// Takes out a key that is there.
    pub(super) fn remove(&mut self, hash: u64) -> Result<(), NotContained> {
        if let Some(at) = self.stash.iter().position(|stashed| *stashed == hash) {
            self.stash.swap_remove(at);
        } else {
            self.cuckoo.remove(Witness::vouched(cuckoo_hash(gate_hash(hash))))?;
        }
        self.keys = self.keys.saturating_sub(1);
        self.stale += u64::from(self.gate.is_some());
        Ok(())
    }

    /// Whether another key needs more room.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.capacity
    }

    /// Whether to make the filters anew before the next key goes in: there is no room, or too
    /// many found no place.
    pub(super) fn has_long_stash(&self) -> bool {
        self.stash.len() > self.stash_limit
    }

    /// Whether to make the filters anew after keys went out: bits that stand for nothing let too
    /// many strangers pass the gate, or there is too much room.
    pub(super) fn is_spoiled(&self) -> bool {
        let is_sparse =
            (self.keys as f64) < self.capacity as f64 * MIN_FILL && self.capacity > MIN_CAPACITY;
        is_sparse || self.stale > (self.capacity / 4).max(MIN_CAPACITY)
    }

    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    pub(super) fn stashed(&self) -> usize {
        self.stash.len()
    }

    /// The share of the cuckoo filter's slots that is taken.
    pub(super) fn load(&self) -> f64 {
        self.cuckoo.fill()
    }

    pub(super) fn gate_bits(&self) -> u64 {
        self.gate.as_ref().map_or(0, Filter::num_bits)
    }

    pub(super) fn cuckoo_bits(&self) -> u64 {
        self.cuckoo.num_bits() + self.stash.capacity() as u64 * 64
    }

    /// The share of strangers that pass the gate.
    pub(super) fn gate_fpr(&self) -> f64 {
        self.gate.as_ref().map_or(1.0, Filter::expected_fpr)
    }

    /// The share of those that pass the gate which pass the cuckoo filter.
    pub(super) fn cuckoo_fpr(&self) -> f64 {
        self.cuckoo.expected_fpr()
    }
}

#[cfg(test)]
mod tests;

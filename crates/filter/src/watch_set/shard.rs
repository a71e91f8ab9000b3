//! The filters of one shard: a gate, the cuckoo filter after it, and a stash for hashes that do not
//! fit into the cuckoo filter.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;

use crate::cuckoo::CuckooFilter16;
use crate::hashing::{KeyHasher, fmix64};
use crate::membership::{Filter, Insert, NotContained, Remove, Witness};
use crate::sizing::SizingError;
use crate::split_block::SplitBlockFilter512;

/// Greatest planned load of a cuckoo filter.
const MAX_LOAD: f64 = 0.94;
/// Room for further keys when a shard grows, as a fraction of its keys. While a set grows by this
/// fraction, every key is inserted again about once. A greater value would need fewer rebuilds, but
/// more memory.
const HEADROOM: f64 = 0.1;
/// Number of gate bits per key of the capacity. Together with the 17.02 bits of the cuckoo filter
/// and the headroom, a shard takes at most 29.2 bits per key.
const GATE_BITS: f64 = 9.5;
/// Least number of keys as a fraction of the capacity: a shard with fewer keys is rebuilt with a
/// smaller capacity. With this value a shard takes at most 29.8 bits per key.
const MIN_FILL: f64 = 0.89;
/// Fraction of the usual headroom for a shard that is rebuilt because it shrank. The small headroom
/// lets the shard shrink further for a while before the next rebuild.
pub(super) const SHRUNK: f64 = 0.25;
/// Least capacity of a shard. A smaller capacity would save too little memory.
const MIN_CAPACITY: u64 = 64;
/// A stash of at most this length never causes a rebuild.
const SHORT_STASH: usize = 8;
/// Number of attempts to build filters without a long stash.
const BUILDS: u32 = 3;

/// Options for the filters of all shards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Hasher of the keys. The filters receive hashes, so their own hasher is never used.
    pub(super) hasher: KeyHasher,
    pub(super) has_gate: bool,
}

/// The filters of the keys of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    gate: Option<SplitBlockFilter512>,
    cuckoo: CuckooFilter16,
    /// Hashes that did not fit into the cuckoo filter, each as often as it was inserted. The stash
    /// is almost always empty. The stash guarantees that a failed insertion loses no key.
    stash: Vec<u64>,
    /// Length of the stash above which the shard is rebuilt.
    stash_limit: usize,
    keys: u64,
    capacity: u64,
    /// Number of removed keys whose bits are still in the gate.
    stale: u64,
}

/// Returns the hash for the gate. The bits that selected the shard are equal for all of its keys,
/// and mixing spreads the other bits over the whole hash.
#[inline(always)]
pub(super) const fn gate_hash(hash: u64) -> u64 {
    fmix64(hash)
}

/// Returns the hash for the cuckoo filter, computed from the hash for the gate. The hash is mixed
/// again, so that both filters are independent and their false-positive rates multiply.
#[inline(always)]
pub(super) const fn cuckoo_hash(gate_hash: u64) -> u64 {
    fmix64(gate_hash ^ 0x9e37_79b9_7f4a_7c15)
}

impl Shard {
    /// Builds the filters of these hashes. `headroom`, from 0 to 1, is the fraction of the usual
    /// room for further keys.
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
            // Queries search the stash one hash after another. A short stash costs little. If the
            // stash is longer, the filters are built again with more room.
            if built.stash.len() <= SHORT_STASH {
                break;
            }
            capacity += capacity / 16;
            let roomier = Self::build_with(hashes, capacity, shape)?;
            if roomier.stash.len() > built.stash.len() / 2 {
                // More room hardly shortens the stash, so the stash is not due to chance: the keys
                // were chosen to collide. No room is sufficient for such keys, and too much room
                // would cause a rebuild at every later removal.
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
        // A shard without a gate takes less memory and has a higher false-positive rate.
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
            // Insertion into a Bloom filter always succeeds.
            let _ = gate.insert_batch(&mixed);
        }
        for hash in &mut mixed {
            *hash = cuckoo_hash(*hash);
        }
        let mut next = 0;
        while let Err(full) = shard.cuckoo.insert_batch(&mixed[next..]) {
            // The hash that does not fit is stored in the stash, and the insertion continues with
            // the next hash.
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

    /// Prefetches the memory that [`prefetch_gate`](Self::prefetch_gate) reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        chainsieve_lanes::simd::prefetch(&self.gate);
    }

    /// Prefetches the memory that [`passes_gate`](Self::passes_gate) reads.
    #[inline]
    pub(super) fn prefetch_gate(&self, gate_hash: u64) {
        if let Some(gate) = &self.gate {
            gate.prefetch(gate_hash);
        }
    }

    /// Prefetches the memory that [`is_behind_gate`](Self::is_behind_gate) reads.
    #[inline]
    pub(super) fn prefetch_behind_gate(&self, cuckoo_hash: u64) {
        self.cuckoo.prefetch(cuckoo_hash);
    }

    /// Inserts a key that is not in the shard.
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

    /// Removes a key that is in the shard.
    pub(super) fn remove(&mut self, hash: u64) -> Result<(), NotContained> {
        // The stash is searched first. For a stashed hash, the cuckoo filter might contain an equal
        // fingerprint of another key, which must not be removed.
        if let Some(at) = self.stash.iter().position(|stashed| *stashed == hash) {
            self.stash.swap_remove(at);
        } else {
            self.cuckoo.remove(Witness::vouched(cuckoo_hash(gate_hash(hash))))?;
        }
        self.keys = self.keys.saturating_sub(1);
        self.stale += u64::from(self.gate.is_some());
        Ok(())
    }

    /// Returns `true` if another key needs more room.
    pub(super) fn is_full(&self) -> bool {
        self.keys >= self.capacity
    }

    /// Returns `true` if so many hashes did not fit into the cuckoo filter that the filters should
    /// be rebuilt.
    pub(super) fn has_long_stash(&self) -> bool {
        self.stash.len() > self.stash_limit
    }

    /// Returns `true` if the filters should be rebuilt after removals: because bits of removed keys
    /// let too many keys pass the gate, or because the shard has too much unused room.
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

    /// Returns the fraction of the cuckoo filter's slots that are taken.
    pub(super) fn load(&self) -> f64 {
        self.cuckoo.fill()
    }

    pub(super) fn gate_bits(&self) -> u64 {
        self.gate.as_ref().map_or(0, Filter::num_bits)
    }

    pub(super) fn cuckoo_bits(&self) -> u64 {
        self.cuckoo.num_bits() + self.stash.capacity() as u64 * 64
    }

    /// Returns the fraction of the keys outside the set that pass the gate.
    pub(super) fn gate_fpr(&self) -> f64 {
        self.gate.as_ref().map_or(1.0, Filter::expected_fpr)
    }

    /// Returns the probability that the cuckoo filter accepts a key that passed the gate wrongly.
    pub(super) fn cuckoo_fpr(&self) -> f64 {
        self.cuckoo.expected_fpr()
    }
}

#[cfg(test)]
mod tests;

//! The filters of one shard: a gate, the cuckoo filter after it, and a stash for hashes that do not
//! fit into the cuckoo filter.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::cuckoo::CuckooFilter16;
use crate::hashing::{KeyHasher, fmix64};
use crate::membership::{Filter, Insert, NotContained, Remove};
use crate::sizing::BuildError;
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
pub(super) struct FilterOptions {
    /// Hasher of the keys. The filters receive hashes, so their own hasher is never used.
    pub(super) hasher: KeyHasher,
    pub(super) has_gate: bool,
}

/// The filters of the keys of one shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) gate: Option<SplitBlockFilter512>,
    pub(super) cuckoo: CuckooFilter16,
    /// Hashes that did not fit into the cuckoo filter, each as often as it was inserted. The stash
    /// is almost always empty. The stash guarantees that a failed insertion loses no key.
    pub(super) stash: Vec<u64>,
    /// Length of the stash above which the shard is rebuilt.
    stash_limit: usize,
    pub(super) keys: u64,
    pub(super) capacity: u64,
    /// Number of removed keys whose bits are still in the gate.
    pub(super) stale: u64,
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
    pub(super) fn build(
        hashes: &[u64],
        headroom: f64,
        options: FilterOptions,
    ) -> Result<Self, BuildError> {
        let len = hashes.len() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "far from both"
        )]
        let mut capacity = ((len + len * HEADROOM * headroom).ceil() as u64).max(MIN_CAPACITY);
        let mut built = Self::build_with(hashes, capacity, options)?;
        for _ in 1..BUILDS {
            // Queries search the stash one hash after another. A short stash costs little. If the
            // stash is longer, the filters are built again with more room.
            if built.stash.len() <= SHORT_STASH {
                break;
            }
            capacity += capacity / 16;
            let roomier = Self::build_with(hashes, capacity, options)?;
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
    fn build_with(
        hashes: &[u64],
        capacity: u64,
        options: FilterOptions,
    ) -> Result<Self, BuildError> {
        let buckets = (capacity as f64 / (4.0 * MAX_LOAD)).ceil() as u64;
        let blocks = (capacity as f64 * GATE_BITS / 512.0).ceil() as u64;
        // A shard without a gate takes less memory and has a higher false-positive rate.
        let gate =
            options.has_gate.then(|| SplitBlockFilter512::with_blocks(blocks, options.hasher));
        let mut shard = Self {
            gate: gate.transpose()?,
            cuckoo: CuckooFilter16::with_buckets(buckets, options.hasher)?,
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
            self.cuckoo.remove_known_hash(cuckoo_hash(gate_hash(hash)))?;
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

    /// Returns the fraction of the keys outside the set that pass the gate.
    pub(super) fn gate_fpr(&self) -> f64 {
        self.gate.as_ref().map_or(1.0, Filter::expected_fpr)
    }
}

/// Statistics of one shard.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ShardStats {
    /// Range of the hashes that belong to the shard.
    pub hashes: RangeInclusive<u64>,
    /// Number of keys in the shard.
    pub keys: u64,
    /// Number of keys for which the shard has room.
    pub capacity: u64,
    /// Size of the gate in bits.
    pub gate_bits: u64,
    /// Size of the cuckoo filter in bits, including the stash for hashes that did not fit.
    pub cuckoo_bits: u64,
    /// Number of removed keys whose bits are still in the gate.
    pub stale: u64,
    /// Number of hashes that did not fit into the cuckoo filter.
    pub stashed: u64,
    /// Fraction of the cuckoo filter's slots that are taken.
    pub load: f64,
    /// Fraction of the keys outside the set that pass the gate.
    pub gate_fpr: f64,
    /// False-positive rate: the fraction of the keys outside the set that are reported as hits.
    pub fpr: f64,
}

impl ShardStats {
    pub(super) fn of(hashes: RangeInclusive<u64>, shard: &Shard) -> Self {
        let gate_fpr = shard.gate_fpr();
        Self {
            hashes,
            keys: shard.keys,
            capacity: shard.capacity,
            gate_bits: shard.gate.as_ref().map_or(0, Filter::num_bits),
            cuckoo_bits: shard.cuckoo.num_bits() + shard.stash.capacity() as u64 * 64,
            stale: shard.stale,
            stashed: shard.stash.len() as u64,
            load: shard.cuckoo.fill(),
            gate_fpr,
            fpr: gate_fpr * shard.cuckoo.expected_fpr(),
        }
    }

    /// Returns the memory of the filters, in bits per key.
    pub fn bits_per_key(&self) -> f64 {
        (self.gate_bits + self.cuckoo_bits) as f64 / self.keys.max(1) as f64
    }
}

#[cfg(test)]
mod tests;

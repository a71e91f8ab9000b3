//! Statistics of a watch set: memory, load and false-positive rates.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::directory::STRIPES;
use super::key_store::KeyStore;
use super::shard::Shard;
use super::{Body, WatchSet};

/// Statistics of a [`WatchSet`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct WatchStats {
    /// Number of distinct keys.
    pub keys: u64,
    /// `true` if every answer is exact.
    pub is_exact: bool,
    /// Number of shards, each with filters of its own.
    pub shards: u64,
    /// Size of all gates in bits.
    pub gate_bits: u64,
    /// Size of all cuckoo filters in bits, including the stashes for hashes that did not fit.
    pub cuckoo_bits: u64,
    /// Size in bits of everything but the store: filters, copied keys and directories.
    pub total_bits: u64,
    /// Total capacity of all shards, in keys. If all shards fill evenly, no shard grows before the
    /// set has this many keys.
    pub capacity: u64,
    /// Number of removed keys whose bits are still in the gates.
    pub stale: u64,
    /// Number of hashes that did not fit into the cuckoo filters.
    pub stashed: u64,
    /// Mean load of the cuckoo filters, weighted by their size. The load is 0 if the set has no
    /// cuckoo filters.
    pub load: f64,
    /// Fraction of the keys outside the set that pass the gates, or 0 if the set is exact.
    pub gate_fpr: f64,
    /// False-positive rate: the fraction of the keys outside the set that are reported as hits, or
    /// 0 if the set is exact.
    pub fpr: f64,
}

impl WatchStats {
    /// Returns the memory of everything but the store, in bits per key.
    pub fn bits_per_key(&self) -> f64 {
        self.total_bits as f64 / self.keys.max(1) as f64
    }
}

impl fmt::Display for WatchStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = self.total_bits.div_ceil(8_000);
        write!(f, "{} keys, {kilobytes} kB in addition to the keys", self.keys)?;
        if self.is_exact {
            return f.write_str(", exact");
        }
        write!(
            f,
            ", {:.1} bits per key, {} shards, load {:.3}, {} stale, false-positive rate {:.1e}",
            self.bits_per_key(),
            self.shards,
            self.load,
            self.stale,
            self.fpr
        )
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
    /// Number of keys that the shard has room for.
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
    fn of(hashes: RangeInclusive<u64>, shard: &Shard) -> Self {
        let gate_fpr = shard.gate_fpr();
        Self {
            hashes,
            keys: shard.keys(),
            capacity: shard.capacity(),
            gate_bits: shard.gate_bits(),
            cuckoo_bits: shard.cuckoo_bits(),
            stale: shard.stale(),
            stashed: shard.stashed() as u64,
            load: shard.load(),
            gate_fpr,
            fpr: gate_fpr * shard.cuckoo_fpr(),
        }
    }

    /// Returns the memory of the filters, in bits per key.
    pub fn bits_per_key(&self) -> f64 {
        (self.gate_bits + self.cuckoo_bits) as f64 / self.keys.max(1) as f64
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Returns the statistics of the set.
    ///
    /// # Cost
    /// Reads all gates, which takes some milliseconds per million keys.
    pub fn stats(&self) -> WatchStats {
        let own = size_of::<Self>() + self.stripes.capacity() * size_of::<super::Stripe>();
        let mut stats = WatchStats {
            keys: self.len(),
            is_exact: true,
            shards: 0,
            gate_bits: 0,
            cuckoo_bits: 0,
            total_bits: own as u64 * 8,
            capacity: 0,
            stale: 0,
            stashed: 0,
            load: 0.0,
            gate_fpr: 0.0,
            fpr: 0.0,
        };
        for stripe in 0..STRIPES {
            let beside = match &*self.read(stripe) {
                Body::InStore => 0,
                Body::Exact(table) => table.bytes(),
                Body::Shards(shards) => {
                    stats.is_exact = false;
                    shards.bytes()
                }
            };
            stats.total_bits += beside as u64 * 8;
            for shard in self.stripe_stats(stripe) {
                stats.shards += 1;
                stats.gate_bits += shard.gate_bits;
                stats.cuckoo_bits += shard.cuckoo_bits;
                stats.capacity += shard.capacity;
                stats.stale += shard.stale;
                stats.stashed += shard.stashed;
                stats.load += shard.load * shard.cuckoo_bits as f64;
                let width = (shard.hashes.end() - shard.hashes.start()) as f64;
                let share = width / u64::MAX as f64;
                stats.gate_fpr += shard.gate_fpr * share;
                stats.fpr += shard.fpr * share;
            }
        }
        stats.total_bits += stats.gate_bits + stats.cuckoo_bits;
        stats.load /= stats.cuckoo_bits.max(1) as f64;
        stats
    }

    /// Returns the statistics of every shard, in the order of their hashes. The result is empty if
    /// the set is exact.
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        (0..STRIPES).flat_map(|stripe| self.stripe_stats(stripe)).collect()
    }

    fn stripe_stats(&self, stripe: usize) -> Vec<ShardStats> {
        match &*self.read(stripe) {
            Body::InStore | Body::Exact(_) => Vec::new(),
            Body::Shards(shards) => {
                shards.in_order().map(|(range, shard)| ShardStats::of(range, shard)).collect()
            }
        }
    }
}

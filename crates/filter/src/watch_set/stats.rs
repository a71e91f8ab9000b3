//! What a watch set costs and how it does.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::directory::STRIPES;
use super::key_store::KeyStore;
use super::shard::Shard;
use super::{Body, WatchSet};

/// The figures of a [`WatchSet`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct WatchStats {
    /// Distinct keys.
    pub keys: u64,
    /// Whether every answer is exact.
    pub is_exact: bool,
    /// Parts with filters of their own.
    pub shards: u64,
    /// Bits of the gates.
    pub gate_bits: u64,
    /// Bits of the cuckoo filters, and of what they had no place for.
    pub cuckoo_bits: u64,
    /// Bits of everything beside the store: filters, copied keys, what finds them.
    pub total_bits: u64,
    /// Keys there is room for before the next part grows, all being filled alike.
    pub capacity: u64,
    /// Removed keys whose bits are still in gates.
    pub stale: u64,
    /// Keys that the cuckoo filters had no place for.
    pub stashed: u64,
    /// The mean load of the cuckoo filters, weighted by their size; 0 without any.
    pub load: f64,
    /// The share of strangers that pass the gates; 0 if exact.
    pub gate_fpr: f64,
    /// The share of strangers that are hits; 0 if exact.
    pub fpr: f64,
}

impl WatchStats {
    /// Memory beside the store, in bits a key.
    pub fn bits_per_key(&self) -> f64 {
        self.total_bits as f64 / self.keys.max(1) as f64
    }
}

impl fmt::Display for WatchStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = self.total_bits.div_ceil(8_000);
        write!(f, "{} keys, {kilobytes} kB beside them", self.keys)?;
        if self.is_exact {
            return f.write_str(", exact");
        }
        write!(
            f,
            ", {:.1} bits a key, {} parts, load {:.3}, {} stale, strangers {:.1e}",
            self.bits_per_key(),
            self.shards,
            self.load,
            self.stale,
            self.fpr
        )
    }
}

/// The figures of one part.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ShardStats {
    /// The hashes of its keys.
    pub hashes: RangeInclusive<u64>,
    /// Keys in it.
    pub keys: u64,
    /// Keys there is room for.
    pub capacity: u64,
    /// Bits of the gate.
    pub gate_bits: u64,
    /// Bits of the cuckoo filter, and of what it had no place for.
    pub cuckoo_bits: u64,
    /// Removed keys whose bits are still in the gate.
    pub stale: u64,
    /// Keys that the cuckoo filter had no place for.
    pub stashed: u64,
    /// The share of the cuckoo filter's slots that is taken.
    pub load: f64,
    /// The share of strangers that pass the gate.
    pub gate_fpr: f64,
    /// The share of strangers that are hits.
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

    /// The memory of the filters, in bits a key.
    pub fn bits_per_key(&self) -> f64 {
        (self.gate_bits + self.cuckoo_bits) as f64 / self.keys.max(1) as f64
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// The figures of the set. Reads all gates: some milliseconds for every million keys.
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

    /// The figures of every part, in the order of hashes; none of exact sets.
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

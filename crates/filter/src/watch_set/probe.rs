//! Batch queries, such as for all outputs of a block.

use alloc::vec::Vec;

use super::directory::{Directory, STRIPES, stripe_of};
use super::keys::KeyStore;
use super::shard::{Shard, cuckoo_hash, gate_hash};
use super::{Body, WatchAnswer, WatchError, WatchSet};

/// A batch prefetches the memory of this many keys before it tests the first of these keys.
const CHUNK: usize = 32;

/// A key of a batch that may be in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Hit {
    /// Index of the key in the batch.
    pub index: usize,
    /// `true` if the key is certainly in the set, `false` if the key may be in the set.
    pub is_certain: bool,
}

/// Reusable memory for batch queries. A batch allocates nothing if an earlier batch was at least as
/// large.
#[derive(Debug, Default, Clone)]
pub struct Probe {
    hashes: Vec<u64>,
    /// Indices of the keys, grouped by stripe.
    order: Vec<u32>,
    /// The keys that passed the gates of a stripe: index, and hash for the cuckoo filter.
    survivors: Vec<(u32, u64)>,
    hits: Vec<Hit>,
}

impl Probe {
    /// Creates an empty `Probe`, which has allocated no memory.
    pub const fn new() -> Self {
        Self { hashes: Vec::new(), order: Vec::new(), survivors: Vec::new(), hits: Vec::new() }
    }

    /// Returns the hits of the last batch, ordered by index.
    pub fn hits(&self) -> &[Hit] {
        &self.hits
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Queries a batch of keys, and returns the keys that may be in the set, ordered by index. Keys
    /// that are not returned are certainly not in the set.
    ///
    /// On large sets a batch is much faster than single queries: every lock is taken once, and the
    /// memory of later keys is prefetched while earlier keys are tested.
    ///
    /// # Panics
    /// Panics if there are 2³² keys or more.
    pub fn contains_batch<'p, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        probe: &'p mut Probe,
    ) -> &'p [Hit] {
        probe.hashes.clear();
        probe.hashes.extend(keys.iter().map(|key| self.options.hasher.hash::<u64>(key.as_ref())));
        // The hashes are moved out, so that `probe` can be borrowed mutably in the call.
        let hashes = core::mem::take(&mut probe.hashes);
        self.contains_hashed(keys, &hashes, probe);
        probe.hashes = hashes;
        &probe.hits
    }

    /// Queries a batch of keys, as [`contains_batch`](Self::contains_batch) does, with hashes that
    /// the caller computed by the set's [`hasher`](Self::hasher).
    ///
    /// # Panics
    /// Panics if `keys` and `hashes` differ in length, or if there are 2³² keys or more.
    pub fn contains_hashed<'p, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        hashes: &[u64],
        probe: &'p mut Probe,
    ) -> &'p [Hit] {
        assert_eq!(keys.len(), hashes.len(), "a hash for every key");
        probe.hits.clear();
        let ends = sort_by_stripe(hashes, &mut probe.order);
        let mut start = 0;
        for (stripe, end) in ends.into_iter().enumerate() {
            let indices = &probe.order[start..end];
            start = end;
            if indices.is_empty() {
                continue;
            }
            let mut hit = |index: u32, answer: WatchAnswer| {
                if answer.may_contain() {
                    let is_certain = answer.is_certain();
                    probe.hits.push(Hit { index: index as usize, is_certain });
                }
            };
            match &*self.read(stripe) {
                Body::Shards(shards) => {
                    probe.survivors.clear();
                    pass_gates(shards, hashes, indices, &mut probe.survivors);
                    // The memory of the survivors was prefetched when they passed the gate.
                    for (index, cuckoo_hash) in &probe.survivors {
                        let hash = hashes[*index as usize];
                        let is_hit = shards.of(hash).is_behind_gate(hash, *cuckoo_hash);
                        hit(*index, WatchAnswer::of_filter(is_hit));
                    }
                }
                exact => {
                    for index in indices {
                        let (key, hash) = (&keys[*index as usize], hashes[*index as usize]);
                        hit(*index, self.ask_body(exact, hash, key.as_ref()));
                    }
                }
            }
        }
        probe.hits.sort_unstable_by_key(|hit| hit.index);
        &probe.hits
    }

    /// Queries a batch of keys, and returns the keys that are in the set, ordered by index. The
    /// result is exact, because the store is queried for the keys that the filters may contain.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    ///
    /// # Panics
    /// Panics if there are 2³² keys or more.
    pub fn confirm_batch<'p, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        probe: &'p mut Probe,
    ) -> Result<&'p [Hit], WatchError<S::Error>> {
        self.contains_batch(keys, probe);
        let mut failed = None;
        let Probe { hashes, hits, .. } = probe;
        hits.retain_mut(|hit| {
            if hit.is_certain {
                return true;
            }
            // Every hit that is kept has been confirmed by the store.
            hit.is_certain = true;
            match self.store.holds(hashes[hit.index], keys[hit.index].as_ref()) {
                Ok(holds) => holds,
                Err(error) => {
                    // `retain_mut` can't return early. So the error is stored and returned
                    // afterwards.
                    failed = Some(error);
                    false
                }
            }
        });
        match failed {
            Some(error) => Err(WatchError::Store(error)),
            None => Ok(&probe.hits),
        }
    }
}

/// Writes the indices of the hashes into `order`, grouped by stripe. Returns the end of each
/// stripe's group.
fn sort_by_stripe(hashes: &[u64], order: &mut Vec<u32>) -> [usize; STRIPES] {
    let len = u32::try_from(hashes.len()).expect("fewer than 2^32 keys");
    let mut ends = [0; STRIPES];
    for hash in hashes {
        ends[stripe_of(*hash)] += 1;
    }
    let mut end = 0;
    for count in &mut ends {
        end += core::mem::replace(count, end);
    }
    // `ends` now contains the start of each group. The start of a group advances with every index
    // that is written, and finally is the end of the group.
    order.clear();
    order.resize(hashes.len(), 0);
    for (index, hash) in (0..len).zip(hashes) {
        let next = &mut ends[stripe_of(*hash)];
        order[*next] = index;
        *next += 1;
    }
    ends
}

/// Appends the keys that pass the gates to `survivors`, and prefetches the memory of their cuckoo
/// filters.
fn pass_gates(
    shards: &Directory<Shard>,
    hashes: &[u64],
    indices: &[u32],
    survivors: &mut Vec<(u32, u64)>,
) {
    // Three passes over each chunk hide the cache misses: the first prefetches the shards, the
    // second their gates, and the third tests the gates.
    let mut queries: [(&Shard, u64); CHUNK] = [(shards.of(hashes[indices[0] as usize]), 0); CHUNK];
    for chunk in indices.chunks(CHUNK) {
        for (query, index) in queries.iter_mut().zip(chunk) {
            let hash = hashes[*index as usize];
            *query = (shards.of(hash), gate_hash(hash));
            query.0.prefetch();
        }
        for ((shard, gate_hash), _) in queries.iter().zip(chunk) {
            shard.prefetch_gate(*gate_hash);
        }
        for ((shard, gate_hash), index) in queries.iter().zip(chunk) {
            if shard.passes_gate(*gate_hash) {
                let cuckoo_hash = cuckoo_hash(*gate_hash);
                shard.cuckoo.prefetch(cuckoo_hash);
                survivors.push((*index, cuckoo_hash));
            }
        }
    }
}

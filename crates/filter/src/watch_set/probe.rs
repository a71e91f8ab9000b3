//! A block's outputs, asked at once.

use alloc::vec::Vec;

use super::directory::{Directory, STRIPES, stripe_of};
use super::errors::{Answer, WatchError};
use super::key_store::KeyStore;
use super::shard::{Shard, cuckoo_hash, gate_hash};
use super::{Body, WatchSet};

/// Keys whose memory is asked for before the first of them is tested.
const CHUNK: usize = 32;

/// A key that may be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hit {
    /// Which of the keys that were asked for.
    pub index: usize,
    /// Whether the key is watched for certain; else it may be.
    pub is_certain: bool,
}

/// The memory of batches, to be used again: after the first of its size a batch allocates
/// nothing.
#[derive(Debug, Default, Clone)]
pub struct Probe {
    hashes: Vec<u64>,
    /// Indices of keys, those of a stripe together.
    order: Vec<u32>,
    /// What passed the gates of a stripe: index, and the hash for what is behind.
    survivors: Vec<(u32, u64)>,
    hits: Vec<Hit>,
}

impl Probe {
    /// No memory yet.
    pub const fn new() -> Self {
        Self { hashes: Vec::new(), order: Vec::new(), survivors: Vec::new(), hits: Vec::new() }
    }

    /// The hits of the last batch, by index.
    pub fn hits(&self) -> &[Hit] {
        &self.hits
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Which of the keys may be watched, by index. All others certainly are not.
    ///
    /// Much faster than one by one on large sets: every lock is taken once, and the memory of
    /// later keys is asked for while earlier ones are tested.
    ///
    /// # Panics
    /// For 2³² keys or more.
    pub fn contains_batch<'p, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        probe: &'p mut Probe,
    ) -> &'p [Hit] {
        probe.hashes.clear();
        probe.hashes.extend(keys.iter().map(|key| self.shape.hasher.hash::<u64>(key.as_ref())));
        let hashes = core::mem::take(&mut probe.hashes);
        self.contains_hashed(keys, &hashes, probe);
        probe.hashes = hashes;
        &probe.hits
    }

    /// As [`contains_batch`](Self::contains_batch), with the hashes of the keys by the set's
    /// [`hasher`](Self::hasher).
    ///
    /// # Panics
    /// If there are more or fewer hashes than keys, or 2³² keys or more.
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
            let mut hit = |index: u32, answer: Answer| {
                if answer.may_contain() {
                    let is_certain = answer.is_certain();
                    probe.hits.push(Hit { index: index as usize, is_certain });
                }
            };
            match &*self.read(stripe) {
                Body::Shards(shards) => {
                    probe.survivors.clear();
                    pass_gates(shards, hashes, indices, &mut probe.survivors);
                    for (index, cuckoo_hash) in &probe.survivors {
                        let hash = hashes[*index as usize];
                        let is_hit = shards.of(hash).is_behind_gate(hash, *cuckoo_hash);
                        hit(*index, Answer::of_filter(is_hit));
                    }
                }
                Body::Exact(table) => {
                    for index in indices {
                        let (key, hash) = (&keys[*index as usize], hashes[*index as usize]);
                        hit(*index, Answer::exact(table.contains(hash, key.as_ref())));
                    }
                }
                Body::InStore => {
                    for index in indices {
                        let (key, hash) = (&keys[*index as usize], hashes[*index as usize]);
                        hit(*index, self.ask_store(hash, key.as_ref()));
                    }
                }
            }
        }
        probe.hits.sort_unstable_by_key(|hit| hit.index);
        &probe.hits
    }

    /// Which of the keys are watched, by index: exact, because the store is asked about those
    /// that may be.
    ///
    /// # Errors
    /// If the store can't tell.
    ///
    /// # Panics
    /// For 2³² keys or more.
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
            hit.is_certain = true;
            match self.store.holds(hashes[hit.index], keys[hit.index].as_ref()) {
                Ok(holds) => holds,
                Err(error) => {
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

/// Puts the indices of hashes into `order`, those of a stripe together; where each stripe's end.
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
    // Starts now, moved on as indices come.
    order.clear();
    order.resize(hashes.len(), 0);
    for (index, hash) in (0..len).zip(hashes) {
        let next = &mut ends[stripe_of(*hash)];
        order[*next] = index;
        *next += 1;
    }
    ends
}

/// Appends those that the gates let through, and asks for the memory behind.
fn pass_gates(
    shards: &Directory<Shard>,
    hashes: &[u64],
    indices: &[u32],
    survivors: &mut Vec<(u32, u64)>,
) {
    let mut places: [(&Shard, u64); CHUNK] = [(shards.of(hashes[indices[0] as usize]), 0); CHUNK];
    for chunk in indices.chunks(CHUNK) {
        for (place, index) in places.iter_mut().zip(chunk) {
            let hash = hashes[*index as usize];
            *place = (shards.of(hash), gate_hash(hash));
            place.0.prefetch();
        }
        for ((shard, gate_hash), _) in places.iter().zip(chunk) {
            shard.prefetch_gate(*gate_hash);
        }
        for ((shard, gate_hash), index) in places.iter().zip(chunk) {
            if shard.passes_gate(*gate_hash) {
                let cuckoo_hash = cuckoo_hash(*gate_hash);
                shard.prefetch_behind_gate(cuckoo_hash);
                survivors.push((*index, cuckoo_hash));
            }
        }
    }
}

//! Watch sets: large sets of keys that change while many threads query them, such as the scripts
//! that a wallet backend watches.
//!
//! # Structure
//! The top six bits of a key's hash select one of 64 stripes. Each stripe has one lock for its
//! readers and one for its writers. Further bits select one of the stripe's shards (extendible
//! hashing), of about 25,000 keys each. A shard has two filters: a
//! [`SplitBlockFilter512`](super::split_block::SplitBlockFilter512), called the gate, and a
//! [`CuckooFilter16`](super::cuckoo::CuckooFilter16). The gate reads one cache line, and rejects
//! 99 % of the keys that are not in the set. The cuckoo filter reads two cache lines and rejects
//! all but one in ten thousand of the keys that pass the gate wrongly.
//!
//! Each of the two filters hashes the key's hash again, in a different way. The bits that selected
//! the shard are equal for all of its keys, so they must not be used within the shard. If both
//! filters used the same bits, a false positive of the gate would more often be a false positive of
//! the cuckoo filter too.
//!
//! The keys of a filter can't be listed, so a filter can't grow by itself. Instead, a shard of a
//! different size is built from the shard's keys in the store. Meanwhile readers query the old
//! shard. Then the new shard replaces the old shard.
//!
//! # Why a "no" is certain
//! A cuckoo filter can wrongly answer "no" in two cases: after the removal of a key that was not in
//! the filter, and after a key was inserted more often than the key has slots. In a watch set, the
//! store's reference count determines when a key is inserted into the filters (when the count rises
//! from zero to one) and when it is removed (when the count falls from one to zero). The store and
//! the filters change under one lock. Everything that can fail is done before the store changes, or
//! its failure does no harm: a hash that does not fit into the cuckoo filter is stored beside the
//! filter. If a store panics during a change, the set queries the store directly from that moment
//! on, until the filters are rebuilt.

#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

mod builder;
mod directory;
mod keys;
mod maintain;
mod probe;
mod shard;

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

pub use builder::{Progress, WatchSetBuilder};
pub use keys::{Added, KeepError, Kept, KeptKeys, KeyStore, Removed};
pub use probe::{Hit, Probe};
pub use shard::ShardStats;

use chainsieve_lanes::names;

use super::fuse::{BinaryFuse, FuseFingerprint};
use super::hashing::KeyHasher;
use super::sizing::BuildError;
use directory::{Directory, STRIPES, stripe_of};
use keys::{KeyTable, MAX_KEY_BYTES};
use shard::{FilterOptions, SHRUNK, Shard};

/// A set of watched keys that changes while it is queried. The set is meant for 10⁶ to 10⁸ keys,
/// such as the scripts that a wallet backend watches.
///
/// - **Small sets** (by default up to 100,000 keys) are exact tables. The answers of a small set
///   are [`WatchAnswer::Yes`] or [`WatchAnswer::No`], and [`is_exact`](Self::is_exact) returns `true`.
/// - **Large sets** are filters. [`WatchAnswer::No`] is certain. [`WatchAnswer::Maybe`] is wrong
///   for about one in a million of the keys that are not in the set. The filters take 27 to 30 bits
///   per key in addition to the keys, whether the set was built at once, grew or shrank.
///   [`confirm_batch`](Self::confirm_batch) looks up the keys that the filters may contain, so its
///   answers are exact.
/// - **Keys** are reference-counted: a key that was added twice must be removed twice. The keys are
///   stored in the set ([`KeptKeys`]: their bytes and about ten more bytes per key) or by the
///   caller ([`KeyStore`]).
/// - **Threads**: every method takes `&self`. The readers of a stripe share a lock. A writer takes
///   this lock exclusively for one insertion or one replacement of filters. Up to 64 writers work
///   at the same time. A key that stays in the set is found at every moment.
/// - **Pauses**: an addition that rebuilds a shard takes one or two milliseconds. Readers do not
///   wait for this rebuild.
/// - **Removals** leave bits in the gates. So more keys pass a gate wrongly, but the cuckoo filters
///   still reject them. A gate is rebuilt before the number of keys that pass it wrongly is three
///   times that of a full gate.
///
/// **When to use it.** If all three conditions hold: the keys change, most queries are for keys
/// that are not in the set, and each false positive costs a database look-up.
///
/// **When not to use it.** If the keys never change, a [`BinaryFuse16`](super::fuse::BinaryFuse16)
/// takes 18 bits per key, but has more false positives. If the filter is sent to others, see
/// [`Exposure`]. If a rate of one in ten thousand is sufficient and memory is scarce, build the set
/// [`without_gate`](WatchSetBuilder::without_gate).
///
/// ```
/// use chainsieve_filter::watch_set::{Probe, WatchSet};
///
/// let watch = WatchSet::new();
/// watch.add(b"a script")?;
/// let outputs = [&b"another"[..], b"a script"];
/// let mut probe = Probe::new();
/// let hits: Vec<_> = watch.contains_batch(&outputs, &mut probe).iter().map(|hit| hit.index).collect();
/// assert_eq!(hits, [1]);
/// assert!(watch.remove(b"another").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WatchSet<S: KeyStore = KeptKeys> {
    store: S,
    options: FilterOptions,
    stripes: Vec<Stripe>,
    /// Number of distinct keys.
    keys: AtomicU64,
    /// Number of keys up to which the stripes are exact.
    exact_up_to: u64,
    /// Number of keys up to which a shard is not split.
    shard_keys: u64,
    /// `true` if stripes are to be rebuilt as exact tables.
    is_small: AtomicBool,
    /// Lock for changing `is_small` and then all stripes.
    mode: Mutex<()>,
}

/// One of the 64 stripes, with a sixty-fourth of all hashes.
struct Stripe {
    /// Lock for changing the stripe or its keys in the store. Readers never wait for this lock.
    writer: Mutex<()>,
    body: RwLock<Body>,
    /// Number of distinct keys in the stripe.
    keys: AtomicU64,
}

/// The structure that answers the queries of a stripe.
enum Body {
    /// The stripe has no structure of its own: the store answers the queries.
    InStore,
    /// An exact copy of the store's keys, for stores that are not in memory.
    Exact(KeyTable),
    Shards(Directory<Shard>),
}

impl Body {
    const fn is_exact(&self) -> bool {
        !matches!(self, Self::Shards(_))
    }
}

impl WatchSet {
    /// Creates an empty set that stores its keys in memory, with a random hash key.
    pub fn new() -> Self {
        WatchSetBuilder::new().empty()
    }
}

impl Default for WatchSet {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchSet<KeptKeys> {
    /// Returns the reference count of a key: the number of its additions minus the number of its
    /// removals.
    pub fn count(&self, key: &[u8]) -> u64 {
        self.store.count(key)
    }

    /// Calls `each` with every key and its reference count. Keys that are added or removed during
    /// the call, by other threads or by `each` itself, may or may not be included.
    pub fn for_each_key(&self, each: impl FnMut(&[u8], u64)) {
        self.store.for_each(each);
    }

    /// Returns the memory that the keys take, in bytes.
    pub fn key_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Removes every key. Keys that other threads add during the call may stay.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub fn clear(&self) -> Result<(), WatchError<KeepError>> {
        for stripe in 0..STRIPES {
            let _writer = self.lock(stripe)?;
            self.store.clear_stripe(stripe);
            self.remake_stripe(stripe)?;
        }
        self.rebuild()
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Returns the hasher of the keys.
    pub const fn hasher(&self) -> &KeyHasher {
        &self.options.hasher
    }

    /// Returns the number of distinct keys.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns `true` if the set contains no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if every answer is [`WatchAnswer::Yes`] or [`WatchAnswer::No`], as in small sets.
    pub fn is_exact(&self) -> bool {
        (0..STRIPES).all(|stripe| self.read(stripe).is_exact())
    }

    /// Adds a key to the set, or increments its reference count if it is already in the set.
    ///
    /// # Errors
    /// Returns an error if the store fails or if there is no memory. The key's reference count is
    /// then unchanged.
    pub fn add(&self, key: &[u8]) -> Result<Added, WatchError<S::Error>> {
        let hash = self.options.hasher.hash(key);
        let stripe = stripe_of(hash);
        // An exact set is converted to filters when it has too many keys, or when a copied table
        // could not store a key of this length.
        if self.is_small.load(Ordering::Relaxed)
            && (self.len() >= self.exact_up_to || !S::IN_MEMORY && key.len() > MAX_KEY_BYTES)
        {
            self.leave_exact()?;
        }
        let _writer = self.lock(stripe)?;
        // A failure after `acquire` could not be undone. So the filters get room for the key first.
        self.make_room(stripe, hash)?;
        match self.store.acquire(hash, key).map_err(WatchError::Store)? {
            // The filters already contain the key, and must not contain it twice.
            Added::Again => return Ok(Added::Again),
            Added::New => {}
        }
        // From here on nothing may fail: the store already has the key.
        let hash_of = |key: &[u8]| self.options.hasher.hash(key);
        let mut has_long_stash = false;
        match &mut *self.write(stripe) {
            Body::InStore => {}
            body @ Body::Exact(_) => {
                if let Body::Exact(table) = body
                    && table.push(hash, key, 1, hash_of).is_err()
                {
                    // The table can't store the key. The store has the key, so the store answers
                    // from now on.
                    *body = Body::InStore;
                }
            }
            Body::Shards(shards) => {
                let shard = shards.part_mut(shards.cell_of(hash));
                shard.insert(hash);
                has_long_stash = shard.has_long_stash();
            }
        }
        self.recount(stripe, 0, 1);
        if has_long_stash {
            // A failure does no harm here: the stash grows, and no key is lost.
            let _ = self.remake_shard(stripe, hash, |_| 1.0);
        }
        Ok(Added::New)
    }

    /// Decrements the reference count of a key, and removes the key from the set if the count
    /// becomes zero.
    ///
    /// # Errors
    /// Returns [`WatchError::Unknown`] if the key is not in the set, or an error if the store
    /// fails. The set is then unchanged.
    pub fn remove(&self, key: &[u8]) -> Result<Removed, WatchError<S::Error>> {
        let hash = self.options.hasher.hash(key);
        let stripe = stripe_of(hash);
        let _writer = self.lock(stripe)?;
        match self.store.release(hash, key).map_err(WatchError::Store)? {
            None => return Err(WatchError::Unknown),
            // Other references to the key remain, so the filters must still contain the key.
            Some(Removed::StillHeld) => return Ok(Removed::StillHeld),
            Some(Removed::Gone) => {}
        }
        let hash_of = |key: &[u8]| self.options.hasher.hash(key);
        let mut is_spoiled = false;
        match &mut *self.write(stripe) {
            Body::InStore => {}
            Body::Exact(table) => drop(table.release(hash, key, hash_of)),
            Body::Shards(shards) => {
                let cell = shards.cell_of(hash);
                let shard = shards.part_mut(cell);
                // If the filters do not contain the key, somebody changed the store directly, and
                // not through the set. Rebuilding the shard makes the filters correct again.
                let is_unknown = shard.remove(hash).is_err();
                let keys = shard.keys;
                is_spoiled = is_unknown || shard.is_spoiled();
                if let Some(buddy) = shards.buddy(cell) {
                    is_spoiled |= self.are_too_small(keys + shards.part(buddy).keys);
                }
            }
        }
        self.recount(stripe, 1, 0);
        if is_spoiled {
            // A failure does no harm here: the next removal tries again.
            let _ = self.remake_shard(stripe, hash, |_| SHRUNK);
        }
        Ok(Removed::Gone)
    }

    /// Returns `true` if the key may be in the set. `false` is certain.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.ask(key).may_contain()
    }

    /// Queries a key. The answer is certain, except for [`WatchAnswer::Maybe`].
    pub fn ask(&self, key: &[u8]) -> WatchAnswer {
        self.ask_hashed(self.options.hasher.hash(key), key)
    }

    fn ask_hashed(&self, hash: u64, key: &[u8]) -> WatchAnswer {
        self.ask_body(&self.read(stripe_of(hash)), hash, key)
    }

    /// Queries the body of the key's stripe. Returns [`WatchAnswer::Maybe`] if the store has to answer,
    /// and fails.
    fn ask_body(&self, body: &Body, hash: u64, key: &[u8]) -> WatchAnswer {
        match body {
            Body::InStore => {
                self.store.holds(hash, key).map_or(WatchAnswer::Maybe, WatchAnswer::exact)
            }
            Body::Exact(table) => WatchAnswer::exact(table.contains(hash, key)),
            Body::Shards(shards) => WatchAnswer::of_filter(shards.of(hash).contains(hash)),
        }
    }

    /// Returns `true` if the key is in the set. The answer is exact: if the filters may contain the
    /// key, the store is queried.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn confirm(&self, key: &[u8]) -> Result<bool, WatchError<S::Error>> {
        let hash = self.options.hasher.hash(key);
        match self.ask_hashed(hash, key) {
            WatchAnswer::No => Ok(false),
            WatchAnswer::Yes => Ok(true),
            WatchAnswer::Maybe => self.store.holds(hash, key).map_err(WatchError::Store),
        }
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Builds a static filter of the keys for publication: a
    /// [`BinaryFuse8`](crate::fuse::BinaryFuse8) or a [`BinaryFuse16`](crate::fuse::BinaryFuse16).
    /// [`Exposure`] describes what the filter reveals.
    ///
    /// The keys are hashed again by `hasher`, which becomes public. Use a new hasher: with the
    /// hasher of the set, others could choose keys that collide in the set.
    ///
    /// # Errors
    /// Returns an error if the hasher is secret, if the store fails or provides only hashes, if
    /// there is no memory, or if no seed leads to a filter.
    pub fn export_public<F: FuseFingerprint>(
        &self,
        hasher: KeyHasher,
        exposure: Exposure,
    ) -> Result<BinaryFuse<F>, WatchError<S::Error>> {
        let hashes = self.public_hashes(hasher, exposure)?;
        Ok(BinaryFuse::build(&hashes, hasher)?)
    }

    /// Returns the hashes of all keys under another hasher, to build a static filter of another
    /// kind. The hashes reveal as much as the filter: see [`Exposure`].
    ///
    /// Keys that other threads add or remove during the call may or may not be included.
    ///
    /// # Errors
    /// Returns [`WatchError::SecretKey`], [`WatchError::Store`] or [`WatchError::NoKeys`], as
    /// [`export_public`](Self::export_public) does.
    pub fn public_hashes(
        &self,
        hasher: KeyHasher,
        Exposure::AnyoneCanTestScripts: Exposure,
    ) -> Result<Vec<u64>, WatchError<S::Error>> {
        if hasher.is_secret() {
            return Err(WatchError::SecretKey);
        }
        let mut hashes = Vec::with_capacity(usize::try_from(self.len()).unwrap_or_default());
        let mut has_keys = true;
        let mut take = |kept: Kept<'_>| match kept {
            Kept::Key(key) => hashes.push(hasher.hash(key)),
            Kept::Hash(hash) if hasher == self.options.hasher => hashes.push(hash),
            Kept::Hash(_) => has_keys = false,
        };
        self.store.visit(0..=u64::MAX, &mut take).map_err(WatchError::Store)?;
        if has_keys { Ok(hashes) } else { Err(WatchError::NoKeys) }
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Returns the statistics of the set.
    ///
    /// # Cost
    /// Reads all gates, which takes some milliseconds per million keys.
    pub fn stats(&self) -> WatchStats {
        let own = size_of::<Self>() + self.stripes.capacity() * size_of::<Stripe>();
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

impl<S: KeyStore> fmt::Debug for WatchSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_exact() { "exact" } else { "filters" };
        write!(f, "WatchSet of {} keys ({kind}, {:?})", self.len(), self.options.hasher)
    }
}

/// The answer of a watch set to a query for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum WatchAnswer {
    /// The key is certainly not in the set.
    No,
    /// The key may be in the set. The filters can't decide whether the key is in the set, but the
    /// key store can ([`confirm`](WatchSet::confirm)).
    Maybe,
    /// The key is certainly in the set.
    Yes,
}

names! { WatchAnswer, "an answer of a watch set": No = "no", Maybe = "maybe", Yes = "yes" }

impl WatchAnswer {
    /// Returns `true` if the key may be in the set: for every answer except [`No`](Self::No).
    pub const fn may_contain(self) -> bool {
        !matches!(self, Self::No)
    }

    /// Returns `true` if the answer is certain: for every answer except [`Maybe`](Self::Maybe).
    pub const fn is_certain(self) -> bool {
        !matches!(self, Self::Maybe)
    }

    pub(super) const fn exact(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }

    pub(super) const fn of_filter(may_contain: bool) -> Self {
        if may_contain { Self::Maybe } else { Self::No }
    }
}

/// The reason why an operation of a watch set failed. The set's answers are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError<E> {
    /// The key to remove is not in the set.
    #[error("the key to remove is not in the set")]
    Unknown,
    /// The key store failed.
    #[error("the key store failed: {0}")]
    Store(#[source] E),
    /// The key of a hasher was drawn at random to stay secret, but would be published with an exported
    /// filter.
    #[error("the hasher's random key would be published: give an explicit key, or expose this key")]
    SecretKey,
    /// The set can't be exported, because the key store provides only hashes of its keys, and the filter needs
    /// hashes of another hasher.
    #[error("the key store has only hashes of its keys, which can't be hashed by another hasher")]
    NoKeys,
    /// There is no memory for the filters, or an exported filter can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// The caller's confirmation that publishing a filter of a watch set reveals the set.
///
/// # Warning
/// The filter's hasher is published with the filter, including its key. Anyone who has the filter
/// and the hasher can test every script that ever occurred in the chain, about 10⁹ scripts, in a
/// minute or two. At a rate of 2⁻¹⁶ only the watched scripts and a few others remain: **the wallet
/// is public**. Neither a hash key nor a lower rate keeps the wallet private.
///
/// Export only lists that are public anyway, such as lists of known-bad addresses. A wallet that
/// wants privacy should download filters of blocks (BIP158) and match them locally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exposure {
    /// Confirms that anyone with the filter can find out which scripts are in the set.
    AnyoneCanTestScripts,
}

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
            ", {:.1} bits per key, {} shards, load {:.3}, {} removed keys still in the filters, \
             false-positive rate {:.1e}",
            self.bits_per_key(),
            self.shards,
            self.load,
            self.stale,
            self.fpr
        )
    }
}

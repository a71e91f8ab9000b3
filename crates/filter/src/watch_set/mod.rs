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

mod builder;
mod directory;
mod errors;
mod export;
mod kept_keys;
mod key_store;
mod key_table;
mod maintain;
mod probe;
mod shard;
mod stats;

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

pub use builder::{Progress, WatchSetBuilder};
pub use errors::{Added, Removed, WatchAnswer, WatchError};
pub use export::{ExportError, Exposure};
pub use kept_keys::KeptKeys;
pub use key_store::{Acquired, Kept, KeyStore, Released};
pub use key_table::KeepError;
pub use probe::{Hit, Probe};
pub use stats::{ShardStats, WatchStats};

use super::hashing::KeyHasher;
use directory::{Directory, STRIPES, stripe_of};
use key_table::{KeyTable, MAX_KEY_BYTES};
use shard::{SHRUNK, Shape, Shard};

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
    shape: Shape,
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

    /// Returns every key with its reference count. The keys are copied one stripe (a sixty-fourth
    /// of the set) at a time.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, u64)> {
        (0..STRIPES).flat_map(|stripe| self.store.of_stripe(stripe))
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
        &self.shape.hasher
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
        let hash = self.shape.hasher.hash(key);
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
            Acquired::Again => return Ok(Added::Again),
            Acquired::First => {}
        }
        // From here on nothing may fail: the store already has the key.
        let hash_of = |key: &[u8]| self.shape.hasher.hash(key);
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
        let hash = self.shape.hasher.hash(key);
        let stripe = stripe_of(hash);
        let _writer = self.lock(stripe)?;
        match self.store.release(hash, key).map_err(WatchError::Store)? {
            Released::Unknown => return Err(WatchError::Unknown),
            // Other references to the key remain, so the filters must still contain the key.
            Released::StillHeld => return Ok(Removed::StillHeld),
            Released::Last => {}
        }
        let hash_of = |key: &[u8]| self.shape.hasher.hash(key);
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
                let keys = shard.keys();
                is_spoiled = is_unknown || shard.is_spoiled();
                if let Some(buddy) = shards.buddy(cell) {
                    is_spoiled |= self.are_too_small(keys + shards.part(buddy).keys());
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
        self.ask_hashed(self.shape.hasher.hash(key), key)
    }

    fn ask_hashed(&self, hash: u64, key: &[u8]) -> WatchAnswer {
        match &*self.read(stripe_of(hash)) {
            Body::InStore => self.ask_store(hash, key),
            Body::Exact(table) => WatchAnswer::exact(table.contains(hash, key)),
            Body::Shards(shards) => WatchAnswer::of_filter(shards.of(hash).contains(hash)),
        }
    }

    /// Queries the store. Returns [`WatchAnswer::Maybe`] if the store fails.
    fn ask_store(&self, hash: u64, key: &[u8]) -> WatchAnswer {
        self.store.holds(hash, key).map_or(WatchAnswer::Maybe, WatchAnswer::exact)
    }

    /// Returns `true` if the key is in the set. The answer is exact: if the filters may contain the
    /// key, the store is queried.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn confirm(&self, key: &[u8]) -> Result<bool, WatchError<S::Error>> {
        let hash = self.shape.hasher.hash(key);
        match self.ask_hashed(hash, key) {
            WatchAnswer::No => Ok(false),
            WatchAnswer::Yes => Ok(true),
            WatchAnswer::Maybe => self.store.holds(hash, key).map_err(WatchError::Store),
        }
    }

    /// Rebuilds every shard from the store, one after another.
    ///
    /// The rebuilt gates contain no bits of removed keys, and the memory has no holes. A set that
    /// has become small becomes an exact table again. Readers are not blocked. A writer waits for
    /// the rebuild of at most one shard.
    ///
    /// # Errors
    /// Returns an error if the store fails or if there is no memory. Shards rebuilt before the
    /// error stay rebuilt, and all answers are as correct as before.
    pub fn rebuild(&self) -> Result<(), WatchError<S::Error>> {
        self.remake_all()
    }
}

impl<S: KeyStore> fmt::Debug for WatchSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_exact() { "exact" } else { "filters" };
        write!(f, "WatchSet of {} keys ({kind}, {:?})", self.len(), self.shape.hasher)
    }
}

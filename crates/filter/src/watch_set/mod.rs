//! Watch sets: is this output's script one of the millions we watch?
//!
//! # How it is built
//! The top six bits of a key's hash choose one of 64 stripes, with a lock for its readers and one
//! for its writers. Further bits choose one of the stripe's parts (extendible hashing), of some
//! 25,000 keys each. A part is a [`SplitBlockFilter512`](super::split_block::SplitBlockFilter512), the gate, in
//! front of a [`CuckooFilter16`](super::cuckoo::CuckooFilter16): of strangers 99 % are turned away by the
//! one line of memory that the gate reads, and the others but for one in ten thousand by the two
//! lines behind. Both take the hash mixed anew, each otherwise: the bits that chose the part say
//! nothing within it, and bits that both knew would let the same strangers through both.
//!
//! Filters can't be listed, so they can't grow: a part is made anew from its keys in the store, in
//! another size, beside the old one that readers go on asking, and swapped in.
//!
//! # What keeps a "no" certain
//! A cuckoo filter says "no" wrongly after a key was removed that was not there, or after one was
//! put in more often than it has places for. Here the store's count says what goes in (from zero
//! to one) and out (from one to zero), under one lock with the filters. Everything that can fail
//! comes before the store is asked, or is done without: what the cuckoo filter has no place for
//! stands beside it. Where a store panicked half way, its keys are asked from that moment on until
//! the filters are made anew.

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
pub use errors::{Added, Answer, Removed, WatchError};
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

/// A set of watched keys that changes while it is asked: is this output's script one of the 10⁶
/// to 10⁸ we watch?
///
/// - **Small sets** (by default up to 100,000 keys) are exact tables, and say so: answers are
///   [`Answer::Yes`] or [`Answer::No`], [`is_exact`](Self::is_exact).
/// - **Large sets** are filters: [`Answer::No`] is certain, [`Answer::Maybe`] is wrong for about
///   one stranger in a million. They take 27 to 30 bits a key beside the keys, whether they were
///   made at once, grew or shrank. [`confirm_batch`](Self::confirm_batch) asks the keys where the
///   filters say perhaps, and is exact.
/// - **Keys** are held by count: who adds one twice removes it twice. They are kept in the set
///   ([`KeptKeys`]: their bytes and some ten more) or by the caller ([`KeyStore`]).
/// - **Threads**: everything goes through `&self`. Readers of a stripe share a lock, which a
///   writer takes for the moment of one insertion or swap; writers work at up to 64 places at
///   once. A key that is in the set all the while is found at every moment.
/// - **Pauses**: an addition that makes a part anew takes a millisecond or two, for whoever adds.
///   Readers don't wait for it.
/// - **Removals** leave bits in the gates. They let through more strangers, which the cuckoo
///   filters turn away; gates are made anew before these are three times as many as a full gate
///   lets through.
///
/// **When to use it**: keys change, strangers are many, a false hit costs a look-up in a database.
/// **When not**: keys never change (a [`BinaryFuse16`](super::fuse::BinaryFuse16): 18 bits a key, but
/// more strangers); all are shipped to others (see [`Exposure`]); a rate of one in ten thousand is
/// enough and memory is short ([`without_gate`](WatchSetBuilder::without_gate)).
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
    /// Distinct keys.
    keys: AtomicU64,
    /// Up to how many keys stripes are exact.
    exact_up_to: u64,
    /// Keys of a part that is not split.
    shard_keys: u64,
    /// Whether stripes that are made are to be exact.
    is_small: AtomicBool,
    /// Taken to change `is_small` and then all stripes.
    mode: Mutex<()>,
}

/// A sixty-fourth of all hashes.
struct Stripe {
    /// Taken by whoever changes the stripe or its keys in the store. Readers never wait for it.
    writer: Mutex<()>,
    body: RwLock<Body>,
    /// Distinct keys.
    keys: AtomicU64,
}

/// What a stripe is asked by.
enum Body {
    /// The store.
    InStore,
    /// A copy of its keys.
    Exact(KeyTable),
    Shards(Directory<Shard>),
}

impl Body {
    const fn is_exact(&self) -> bool {
        !matches!(self, Self::Shards(_))
    }
}

impl WatchSet {
    /// An empty set that keeps its keys, under a random hash key.
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
    /// How often a key is held.
    pub fn count(&self, key: &[u8]) -> u64 {
        self.store.count(key)
    }

    /// Calls `each` with every key and how often it is held. Keys that are added or removed
    /// meanwhile, by others or by `each` itself, may be shown or not.
    pub fn for_each_key(&self, each: impl FnMut(&[u8], u64)) {
        self.store.for_each(each);
    }

    /// Every key, with how often it is held, copied a sixty-fourth of the set at a time.
    pub fn iter(&self) -> impl Iterator<Item = (Vec<u8>, u64)> {
        (0..STRIPES).flat_map(|stripe| self.store.of_stripe(stripe))
    }

    /// Bytes of memory that the keys take.
    pub fn key_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Forgets every key. Those that others add meanwhile may stay.
    ///
    /// # Errors
    /// If memory is out.
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
    /// How keys are hashed.
    pub const fn hasher(&self) -> &KeyHasher {
        &self.shape.hasher
    }

    /// How many distinct keys there are.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every answer is exact, as of small sets: [`Answer::Yes`] or [`Answer::No`].
    pub fn is_exact(&self) -> bool {
        (0..STRIPES).all(|stripe| self.read(stripe).is_exact())
    }

    /// Watches a key; once more, if it is watched.
    ///
    /// # Errors
    /// If the store fails or memory is out. The key is then held as often as before.
    pub fn add(&self, key: &[u8]) -> Result<Added, WatchError<S::Error>> {
        let hash = self.shape.hasher.hash(key);
        let stripe = stripe_of(hash);
        if self.is_small.load(Ordering::Relaxed)
            && (self.len() >= self.exact_up_to || !S::IN_MEMORY && key.len() > MAX_KEY_BYTES)
        {
            self.leave_exact()?;
        }
        let _writer = self.lock(stripe)?;
        self.make_room(stripe, hash)?;
        match self.store.acquire(hash, key).map_err(WatchError::Store)? {
            Acquired::Again => return Ok(Added::Again),
            Acquired::First => {}
        }
        // From here on nothing may fail.
        let hash_of = |key: &[u8]| self.shape.hasher.hash(key);
        let mut has_long_stash = false;
        match &mut *self.write(stripe) {
            Body::InStore => {}
            body @ Body::Exact(_) => {
                if let Body::Exact(table) = body
                    && table.push(hash, key, 1, hash_of).is_err()
                {
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
            // If that fails, the stash gets longer, and nothing is lost.
            let _ = self.remake_shard(stripe, hash, |_| 1.0);
        }
        Ok(Added::New)
    }

    /// Watches a key once less.
    ///
    /// # Errors
    /// [`WatchError::Unknown`] for a key that is not watched; nothing has changed then, and
    /// nothing either if the store fails.
    pub fn remove(&self, key: &[u8]) -> Result<Removed, WatchError<S::Error>> {
        let hash = self.shape.hasher.hash(key);
        let stripe = stripe_of(hash);
        let _writer = self.lock(stripe)?;
        match self.store.release(hash, key).map_err(WatchError::Store)? {
            Released::Unknown => return Err(WatchError::Unknown),
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
                // A key that the filters don't have was put into the store by others.
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
            // If that fails, the next removal tries again.
            let _ = self.remake_shard(stripe, hash, |_| SHRUNK);
        }
        Ok(Removed::Gone)
    }

    /// Whether the key may be watched. `false` is certain.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.ask(key).may_contain()
    }

    /// Whether the key is watched, and how certain that is.
    pub fn ask(&self, key: &[u8]) -> Answer {
        self.ask_hashed(self.shape.hasher.hash(key), key)
    }

    fn ask_hashed(&self, hash: u64, key: &[u8]) -> Answer {
        match &*self.read(stripe_of(hash)) {
            Body::InStore => self.ask_store(hash, key),
            Body::Exact(table) => Answer::exact(table.contains(hash, key)),
            Body::Shards(shards) => Answer::of_filter(shards.of(hash).contains(hash)),
        }
    }

    /// What the store says; perhaps, where it can't tell.
    fn ask_store(&self, hash: u64, key: &[u8]) -> Answer {
        self.store.holds(hash, key).map_or(Answer::Maybe, Answer::exact)
    }

    /// Whether the key is watched, by the store where the filters say that it may be.
    ///
    /// # Errors
    /// If the store can't tell.
    pub fn confirm(&self, key: &[u8]) -> Result<bool, WatchError<S::Error>> {
        let hash = self.shape.hasher.hash(key);
        match self.ask_hashed(hash, key) {
            Answer::No => Ok(false),
            Answer::Yes => Ok(true),
            Answer::Maybe => self.store.holds(hash, key).map_err(WatchError::Store),
        }
    }

    /// Makes every part anew out of the store, one after the other: gates without stale bits,
    /// memory without holes, an exact table again if the set has become small. Readers go on; a
    /// writer waits for a part at most.
    ///
    /// # Errors
    /// If the store fails or memory is out. Parts made until then stay made; answers are right
    /// as before.
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

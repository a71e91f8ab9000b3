//! How a watch set comes to be.

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use super::directory::STRIPES;
use super::errors::WatchError;
use super::kept_keys::KeptKeys;
use super::key_store::KeyStore;
use super::key_table::{KeepError, KeyTable};
use super::shard::Shape;
use super::{Body, Stripe, WatchSet};
use crate::hashing::KeyHasher;

/// Up to so many keys a set is exact.
const EXACT_UP_TO: u64 = 100_000;
/// The most keys of an exact set.
const MAX_EXACT: u64 = 1 << 21;
/// Up to so many keys a part is not split.
const SHARD_KEYS: u64 = 24 << 10;
/// Keys between two reports.
const REPORT_EVERY: u64 = 1 << 16;

/// What a [`WatchSet`] is made by.
#[derive(Clone)]
pub struct WatchSetBuilder {
    hasher: Option<KeyHasher>,
    exact_up_to: u64,
    shard_keys: u64,
    has_gate: bool,
}

/// How far the building of a large set is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Keys taken from the iterator.
    Keys {
        /// So many, of which some may be the same.
        taken: u64,
    },
    /// Filters made.
    Filters {
        /// For so many keys.
        done: u64,
        /// Of so many.
        of: u64,
    },
}

impl Default for WatchSetBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchSetBuilder {
    /// A random hash key, exact up to 100,000 keys.
    pub const fn new() -> Self {
        Self { hasher: None, exact_up_to: EXACT_UP_TO, shard_keys: SHARD_KEYS, has_gate: true }
    }

    /// Keys are hashed by this, not by SipHash-1-3 under a random key. For stores that find keys
    /// by their hashes, and where nobody chooses keys that collide.
    #[must_use]
    pub const fn hasher(mut self, hasher: KeyHasher) -> Self {
        self.hasher = Some(hasher);
        self
    }

    /// Up to how many keys the set is an exact table. At most 2²¹.
    #[must_use]
    pub const fn exact_up_to(mut self, keys: u64) -> Self {
        self.exact_up_to = if keys < MAX_EXACT { keys } else { MAX_EXACT };
        self
    }

    /// Without the gate: 19.1 bits a key at most instead of 29.8, at a hundred times the rate of
    /// false positives, and with two lines of memory read for a stranger instead of one.
    #[must_use]
    pub const fn without_gate(mut self) -> Self {
        self.has_gate = false;
        self
    }

    /// Up to how many keys a part of the set is one; at five thirds of it the part has become
    /// two. By default 24,576. An addition that makes a part anew takes about a tenth of a
    /// microsecond for each of its keys; small parts take memory of their own, some hundred bytes.
    /// From 16 to 2²⁴.
    #[must_use]
    pub const fn shard_keys(mut self, keys: u64) -> Self {
        self.shard_keys = match keys {
            ..16 => 16,
            16..=0x100_0000 => keys,
            _ => 0x100_0000,
        };
        self
    }

    fn store(&self, hasher: KeyHasher) -> KeptKeys {
        let table_keys = usize::try_from(self.shard_keys / 3 * 4).unwrap_or(usize::MAX);
        KeptKeys::new(hasher, table_keys)
    }

    fn with<S: KeyStore>(&self, store: S, hasher: KeyHasher) -> WatchSet<S> {
        let body = || if S::IN_MEMORY { Body::InStore } else { Body::Exact(KeyTable::default()) };
        let stripe = |_| Stripe {
            writer: Mutex::new(()),
            body: RwLock::new(body()),
            keys: AtomicU64::new(0),
        };
        WatchSet {
            store,
            shape: Shape { hasher, has_gate: self.has_gate },
            stripes: (0..STRIPES).map(stripe).collect(),
            keys: AtomicU64::new(0),
            exact_up_to: self.exact_up_to,
            shard_keys: self.shard_keys,
            is_small: AtomicBool::new(true),
            mode: Mutex::new(()),
        }
    }

    /// A set without keys, which will keep them.
    pub fn empty(&self) -> WatchSet {
        let hasher = self.hasher.unwrap_or_else(KeyHasher::random);
        self.with(self.store(hasher), hasher)
    }

    /// A set that keeps these keys, each as often as it comes. The keys are stored as they come,
    /// and their filters made at the end, in one pass.
    ///
    /// # Errors
    /// If a key is too long or memory is out.
    pub fn from_keys<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        mut progress: impl FnMut(Progress),
    ) -> Result<WatchSet, WatchError<KeepError>> {
        let hasher = self.hasher.unwrap_or_else(KeyHasher::random);
        let store = self.store(hasher);
        let mut taken = 0;
        for key in keys {
            let key = key.as_ref();
            store.acquire(hasher.hash(key), key).map_err(WatchError::Store)?;
            taken += 1;
            if taken % REPORT_EVERY == 0 {
                progress(Progress::Keys { taken });
            }
        }
        progress(Progress::Keys { taken });
        self.fill(self.with(store, hasher), progress)
    }

    /// A set over the keys of a store that has them. It is shown all of them once.
    ///
    /// # Errors
    /// If the store fails or memory is out.
    pub fn over<S: KeyStore>(
        &self,
        store: S,
        progress: impl FnMut(Progress),
    ) -> Result<WatchSet<S>, WatchError<S::Error>> {
        let hasher = self.hasher.unwrap_or_else(KeyHasher::random);
        self.fill(self.with(store, hasher), progress)
    }

    fn fill<S: KeyStore>(
        &self,
        set: WatchSet<S>,
        mut progress: impl FnMut(Progress),
    ) -> Result<WatchSet<S>, WatchError<S::Error>> {
        let (mut done, of) = (0, set.store.len());
        set.is_small.store(of <= self.exact_up_to, Ordering::Relaxed);
        for stripe in 0..STRIPES {
            done += set.remake_stripe(stripe)?;
            progress(Progress::Filters { done, of: of.max(done) });
        }
        if !set.is_small.load(Ordering::Relaxed) {
            set.leave_exact()?;
        }
        Ok(set)
    }
}

impl fmt::Debug for WatchSetBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hasher, exact_up_to, shard_keys, has_gate } = self;
        let mut debug = f.debug_struct("WatchSetBuilder");
        debug.field("hasher", hasher).field("exact_up_to", exact_up_to);
        debug.field("shard_keys", shard_keys).field("has_gate", has_gate).finish()
    }
}

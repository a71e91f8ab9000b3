//! Construction of watch sets.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use super::directory::STRIPES;
use super::keys::{KeepError, KeptKeys, KeyStore, KeyTable};
use super::shard::FilterOptions;
use super::{Body, Stripe, WatchError, WatchSet};
use crate::hashing::KeyHasher;

/// Default number of keys up to which a set is exact.
const EXACT_UP_TO: u64 = 100_000;
/// Greatest number of keys of an exact set.
const MAX_EXACT: u64 = 1 << 21;
/// Default number of keys up to which a shard is not split.
const SHARD_KEYS: u64 = 24 << 10;
/// Number of keys between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// Builder of a [`WatchSet`], with its options.
#[derive(Debug, Clone)]
pub struct WatchSetBuilder {
    hasher: Option<KeyHasher>,
    exact_up_to: u64,
    shard_keys: u64,
    has_gate: bool,
}

/// Progress of building a large set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Keys are taken from the iterator.
    Keys {
        /// Number of keys taken so far, including duplicates.
        taken: u64,
    },
    /// Filters are built.
    Filters {
        /// Number of keys whose filters are complete.
        done: u64,
        /// Number of all keys.
        of: u64,
    },
}

impl Default for WatchSetBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchSetBuilder {
    /// Creates a builder with the default options: a random hash key, exact up to 100,000 keys,
    /// gates, and shards of 24,576 keys.
    pub const fn new() -> Self {
        Self { hasher: None, exact_up_to: EXACT_UP_TO, shard_keys: SHARD_KEYS, has_gate: true }
    }

    /// Sets the hasher of the keys. The default is SipHash-1-3 with a random key.
    ///
    /// A hasher must be set if the caller's store finds keys by their hashes. If no attacker
    /// chooses keys that collide, a hasher with a faster hash function can be set.
    #[must_use]
    pub const fn hasher(mut self, hasher: KeyHasher) -> Self {
        self.hasher = Some(hasher);
        self
    }

    /// Sets the number of keys up to which the set is an exact table. The number is limited to 2²¹.
    #[must_use]
    pub const fn exact_up_to(mut self, keys: u64) -> Self {
        self.exact_up_to = if keys < MAX_EXACT { keys } else { MAX_EXACT };
        self
    }

    /// Builds shards without a gate. The filters then take at most 19.1 bits per key instead of
    /// 29.8. The false-positive rate is a hundred times as high, and a query for a key outside the
    /// set reads two cache lines instead of one.
    #[must_use]
    pub const fn without_gate(mut self) -> Self {
        self.has_gate = false;
        self
    }

    /// Sets the number of keys up to which a shard is not split. The default is 24,576.
    ///
    /// A shard is split when its number of keys is between `keys` and five thirds of `keys`. An
    /// addition that rebuilds a shard takes about a tenth of a microsecond for each of the shard's
    /// keys. Each shard also takes some hundred bytes of memory, so small shards cost more memory
    /// per key. The number is limited to the range from 16 to 2²⁴.
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
            options: FilterOptions { hasher, has_gate: self.has_gate },
            stripes: (0..STRIPES).map(stripe).collect(),
            keys: AtomicU64::new(0),
            exact_up_to: self.exact_up_to,
            shard_keys: self.shard_keys,
            is_small: AtomicBool::new(true),
            mode: Mutex::new(()),
        }
    }

    /// Creates an empty set that stores its keys in memory.
    pub fn empty(&self) -> WatchSet {
        let hasher = self.hasher.unwrap_or_else(KeyHasher::random);
        self.with(self.store(hasher), hasher)
    }

    /// Creates a set of these keys, stored in memory. A key's reference count is the number of
    /// times it occurs. The keys are stored first, and then all filters are built in one pass.
    ///
    /// # Errors
    /// Returns an error if a key is too long or if there is no memory.
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

    /// Creates a set over a store that already contains the keys. The keys are read
    /// from the store, one stripe at a time.
    ///
    /// # Errors
    /// Returns an error if the store fails or if there is no memory.
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

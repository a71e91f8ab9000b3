//! Building, growing, shrinking and rebuilding the shards of a watch set.
//!
//! All of these operations run under the writer lock of the stripe, and read the keys from the
//! store. Meanwhile readers query the old filters. Readers are blocked only while the new filters
//! replace the old filters.
#![expect(clippy::cast_precision_loss, reason = "counts become shares")]

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use super::directory::{Directory, STRIPES, stripe_range};
use super::keys::{Kept, KeyStore, KeyTable};
use super::shard::Shard;
use super::{Body, WatchError, WatchSet};
use crate::hashing::fmix64;
use crate::sizing::BuildError;

/// Returns a pseudo-random number from 0 (included) to 1 (excluded) that depends only on the range.
fn stagger(range: &RangeInclusive<u64>) -> f64 {
    (fmix64(range.start() ^ range.end().rotate_left(32)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A guard of a stripe's writer lock.
///
/// If the store panics, it may already have made the requested change. The store may then contain a
/// key that the filters do not contain. So the store answers the queries of the stripe from the
/// moment of the panic on, and not only after the next writer has taken the lock.
pub(super) struct Writing<'s, S: KeyStore> {
    set: &'s WatchSet<S>,
    stripe: usize,
    /// `true` if the thread was already panicking when it took the lock.
    was_panicking: bool,
    _guard: MutexGuard<'s, ()>,
}

impl<S: KeyStore> Drop for Writing<'_, S> {
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            self.set.ask_store_only(self.stripe);
        }
    }
}

impl<S: KeyStore> WatchSet<S> {
    /// Returns `true` if a shard with this many keys must be split.
    ///
    /// The threshold is between `shard_keys` and five thirds of `shard_keys`, and depends on the
    /// shard's range. So shards that grow evenly are not all split at the same time.
    fn is_too_large(&self, keys: u64, range: &RangeInclusive<u64>) -> bool {
        let least = self.shard_keys as f64;
        keys as f64 > least + least * stagger(range) * (2.0 / 3.0)
    }

    /// Returns `true` if two neighbouring shards with this many keys in total must be joined.
    pub(super) const fn are_too_small(&self, keys: u64) -> bool {
        keys <= self.shard_keys / 6
    }

    pub(super) fn read(&self, stripe: usize) -> RwLockReadGuard<'_, Body> {
        // No foreign code runs under the write lock, so a panic can't leave the body half changed.
        self.stripes[stripe].body.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self, stripe: usize) -> RwLockWriteGuard<'_, Body> {
        self.stripes[stripe].body.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock that the writers of a stripe need.
    ///
    /// A writer panics if the caller's store panics. The stripe's filter is then not used, and
    /// every query asks the store, until the stripe is rebuilt. This method rebuilds such a stripe.
    pub(super) fn lock(&self, stripe: usize) -> Result<Writing<'_, S>, WatchError<S::Error>> {
        let locked = self.stripes[stripe].writer.lock();
        let (is_poisoned, guard) = match locked {
            Ok(guard) => (false, guard),
            Err(poisoned) => (true, poisoned.into_inner()),
        };
        let was_panicking = thread::panicking();
        let writing = Writing { set: self, stripe, was_panicking, _guard: guard };
        // A writer panicked in the store, so the store and the filters may differ. The lock stays
        // poisoned if the rebuild fails, and the next writer tries again.
        if is_poisoned {
            self.ask_store_only(stripe);
            self.remake_stripe(stripe)?;
            self.stripes[stripe].writer.clear_poison();
        }
        Ok(writing)
    }

    /// Makes the store answer every query of a stripe.
    fn ask_store_only(&self, stripe: usize) {
        let counted = self.stripes[stripe].keys.load(Ordering::Relaxed);
        self.replace(stripe, Body::InStore, counted);
    }

    /// Returns the hashes of the store's keys in the range.
    pub(super) fn hashes(
        &self,
        range: &RangeInclusive<u64>,
    ) -> Result<Vec<u64>, WatchError<S::Error>> {
        let mut hashes = Vec::new();
        let mut take = |kept: Kept<'_>| {
            let hash = match kept {
                Kept::Key(key) => self.options.hasher.hash(key),
                Kept::Hash(hash) => hash,
            };
            if range.contains(&hash) {
                hashes.push(hash);
            }
        };
        self.store.visit(range.clone(), &mut take).map_err(WatchError::Store)?;
        Ok(hashes)
    }

    /// Copies the store's keys of a stripe into a table. Returns `None` if the store provides only
    /// hashes, or if a key does not fit into the table.
    fn table(&self, stripe: usize) -> Result<Option<KeyTable>, WatchError<S::Error>> {
        let (range, hasher) = (stripe_range(stripe), self.options.hasher);
        let (mut table, mut is_whole) = (KeyTable::default(), true);
        let mut take = |kept: Kept<'_>| match kept {
            Kept::Key(key) => {
                let hash = hasher.hash(key);
                if range.contains(&hash) {
                    is_whole &= table.push(hash, key, 1, |key| hasher.hash(key)).is_ok();
                }
            }
            Kept::Hash(_) => is_whole = false,
        };
        self.store.visit(range.clone(), &mut take).map_err(WatchError::Store)?;
        Ok(is_whole.then_some(table))
    }

    /// Replaces the body of a stripe by `body`, which contains `keys` keys.
    fn replace(&self, stripe: usize, body: Body, keys: u64) {
        let former = core::mem::replace(&mut *self.write(stripe), body);
        drop(former); // freed after the lock is released, so that readers do not wait for it
        let counted = self.stripes[stripe].keys.load(Ordering::Relaxed);
        self.recount(stripe, counted, keys);
    }

    /// Changes the number of keys by the difference of `now` and `former`. The caller must own the
    /// stripe's writer lock.
    pub(super) fn recount(&self, stripe: usize, former: u64, now: u64) {
        let more = now.wrapping_sub(former);
        self.stripes[stripe].keys.fetch_add(more, Ordering::Relaxed);
        self.keys.fetch_add(more, Ordering::Relaxed);
    }

    /// Builds shards for the keys of a stripe.
    fn shards(&self, stripe: usize, hashes: &mut [u64]) -> Result<Directory<Shard>, BuildError> {
        let parts = (hashes.len() as u64).div_ceil(self.shard_keys).max(1).next_power_of_two();
        let depth = parts.trailing_zeros();
        if depth > 0 {
            // Sorted hashes are in the order of the shards.
            hashes.sort_unstable();
        }
        let mut rest = &*hashes;
        let ranges = Directory::<()>::ranges(stripe, depth);
        let built = ranges.map(|range| {
            let keys = if depth > 0 {
                rest.partition_point(|hash| hash <= range.end())
            } else {
                rest.len()
            };
            let (part, others) = rest.split_at(keys);
            rest = others;
            Shard::build(part, stagger(&range), self.options)
        });
        Ok(Directory::of_parts(stripe, depth, built.collect::<Result<_, _>>()?))
    }

    /// Rebuilds a stripe from the store. The stripe becomes exact if the set is small, and otherwise
    /// gets shards. Returns the number of keys.
    pub(super) fn remake_stripe(&self, stripe: usize) -> Result<u64, WatchError<S::Error>> {
        let mut hashes = self.hashes(&stripe_range(stripe))?;
        let keys = hashes.len() as u64;
        let exact = match self.is_small.load(Ordering::Relaxed) {
            false => None,
            // A store in memory answers as fast as a copy would, so no copy is made.
            true if S::IN_MEMORY => Some(Body::InStore),
            true => self.table(stripe)?.map(Body::Exact),
        };
        let body = if let Some(exact) = exact {
            exact
        } else {
            // The set is large, or the store provides only hashes, from which no exact table can be
            // built.
            self.is_small.store(false, Ordering::Relaxed);
            Body::Shards(self.shards(stripe, &mut hashes)?)
        };
        self.replace(stripe, body, keys);
        Ok(keys)
    }

    /// Converts the exact stripes to shards, one stripe after another.
    pub(super) fn leave_exact(&self) -> Result<(), WatchError<S::Error>> {
        let _mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_small.store(false, Ordering::Relaxed);
        for stripe in 0..STRIPES {
            let _writer = self.lock(stripe)?;
            if self.read(stripe).is_exact() {
                self.remake_stripe(stripe)?;
            }
        }
        Ok(())
    }

    /// Rebuilds the shard of a hash with the room that its keys need. Splits a shard with many
    /// keys, and joins a shard with few keys with its neighbour.
    ///
    /// Returns the last hash of the range that was rebuilt. If the stripe has no shards, nothing is
    /// rebuilt, and the result is the last hash of the stripe.
    pub(super) fn remake_shard(
        &self,
        stripe: usize,
        hash: u64,
        headroom: impl Fn(&RangeInclusive<u64>) -> f64,
    ) -> Result<u64, WatchError<S::Error>> {
        let (cell, range, former, middle, buddy) = {
            let body = self.read(stripe);
            let Body::Shards(shards) = &*body else { return Ok(*stripe_range(stripe).end()) };
            let cell = shards.cell_of(hash);
            let former = shards.part(cell).keys;
            let buddy = shards.buddy(cell);
            let buddy = buddy.map(|cell| (cell, shards.range(cell), shards.part(cell).keys));
            (cell, shards.range(cell), former, shards.middle(cell), buddy)
        };
        let mut hashes = self.hashes(&range)?;
        let keys = hashes.len() as u64;
        let mut last = *range.end();
        let build = |hashes: &[u64], range: &RangeInclusive<u64>| {
            Shard::build(hashes, headroom(range), self.options)
        };
        if let Some(middle) = middle
            && self.is_too_large(keys, &range)
        {
            let (lower, upper): (Vec<u64>, Vec<u64>) =
                hashes.into_iter().partition(|hash| *hash < middle);
            let lower = build(&lower, &(*range.start()..=middle - 1))?;
            let upper = build(&upper, &(middle..=*range.end()))?;
            if let Body::Shards(shards) = &mut *self.write(stripe) {
                shards.split(cell, lower, upper);
            }
            self.recount(stripe, former, keys);
        } else if let Some((buddy, buddy_range, buddy_keys)) = buddy
            && self.are_too_small(keys + buddy_keys)
        {
            hashes.append(&mut self.hashes(&buddy_range)?);
            let both =
                *range.start().min(buddy_range.start())..=*range.end().max(buddy_range.end());
            let joined = build(&hashes, &both)?;
            last = *both.end();
            if let Body::Shards(shards) = &mut *self.write(stripe) {
                shards.join(cell, buddy, joined);
            }
            self.recount(stripe, former + buddy_keys, hashes.len() as u64);
        } else {
            let built = build(&hashes, &range)?;
            if let Body::Shards(shards) = &mut *self.write(stripe) {
                *shards.part_mut(cell) = built;
            }
            self.recount(stripe, former, keys);
        }
        Ok(last)
    }

    /// Ensures that the stripe has room for one more key with this hash.
    pub(super) fn make_room(&self, stripe: usize, hash: u64) -> Result<(), WatchError<S::Error>> {
        let (is_exact, is_full) = match &*self.read(stripe) {
            Body::Shards(shards) => (false, shards.of(hash).is_full()),
            Body::InStore | Body::Exact(_) => (true, false),
        };
        if is_exact && !self.is_small.load(Ordering::Relaxed) {
            // The set has become large, but this stripe is still exact.
            self.remake_stripe(stripe)?;
        } else if is_full {
            self.remake_shard(stripe, hash, |_| 1.0)?;
        }
        Ok(())
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
        let mode = self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let is_small = self.store.len() <= self.exact_up_to;
        self.is_small.store(is_small, Ordering::Relaxed);
        for stripe in 0..STRIPES {
            // An exact stripe, or one that is to become exact, is rebuilt as a whole.
            if is_small || self.read(stripe).is_exact() {
                let _writer = self.lock(stripe)?;
                self.remake_stripe(stripe)?;
                continue;
            }
            let range = stripe_range(stripe);
            let mut next = Some(*range.start());
            while let Some(hash) = next.filter(|hash| range.contains(hash)) {
                // The lock is released between shards, so that other writers can proceed.
                let _writer = self.lock(stripe)?;
                next = self.remake_shard(stripe, hash, stagger)?.checked_add(1);
            }
        }
        drop(mode);
        if self.is_small.load(Ordering::Relaxed) { Ok(()) } else { self.leave_exact() }
    }
}

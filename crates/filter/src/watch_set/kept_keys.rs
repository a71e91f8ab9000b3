//! The keys of a watch set, stored in memory.

use alloc::vec::Vec;
use core::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::directory::{Directory, STRIPES, stripe_of, stripe_range};
use super::key_store::{Acquired, Kept, KeyStore, Released};
use super::key_table::{KeepError, KeyTable};
use crate::hashing::KeyHasher;

/// The default [`KeyStore`] of a [`WatchSet`](super::WatchSet): keys and their reference counts in
/// memory.
///
/// Each key takes its own bytes, two bytes for the count and the length, and five to eleven bytes
/// of a hash table. Removed keys leave holes of at most a quarter of the memory, until their table
/// is rebuilt.
#[derive(Debug)]
pub struct KeptKeys {
    hasher: KeyHasher,
    /// Greatest number of keys in a table that is not split. An addition may have to wait for a
    /// split, so this number bounds the wait.
    max_keys: usize,
    stripes: Vec<RwLock<Directory<KeyTable>>>,
}

impl KeptKeys {
    /// Creates an empty store whose keys are found by the hashes of `hasher`.
    pub(super) fn new(hasher: KeyHasher, max_keys: usize) -> Self {
        let empty = |stripe| RwLock::new(Directory::new(stripe, KeyTable::default()));
        Self { hasher, max_keys, stripes: (0..STRIPES).map(empty).collect() }
    }

    fn read(&self, stripe: usize) -> RwLockReadGuard<'_, Directory<KeyTable>> {
        // No foreign code runs under these locks, so a panic can't leave a table half changed.
        self.stripes[stripe].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, stripe: usize) -> RwLockWriteGuard<'_, Directory<KeyTable>> {
        self.stripes[stripe].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Returns the reference count of a key.
    pub fn count(&self, key: &[u8]) -> u64 {
        let hash = self.hash_of(key);
        self.read(stripe_of(hash)).of(hash).count(hash, key)
    }

    /// Returns the memory of the store in bytes.
    pub fn bytes(&self) -> usize {
        let of_stripe = |stripe| {
            let directory = self.read(stripe);
            directory.bytes() + directory.parts().map(KeyTable::bytes).sum::<usize>()
        };
        (0..STRIPES).map(of_stripe).sum()
    }

    /// Calls `each` with every key and its reference count. Keys that other threads add or remove
    /// during the call may or may not be included. No lock is held while `each` runs, so `each` may
    /// change the set.
    pub fn for_each(&self, mut each: impl FnMut(&[u8], u64)) {
        for stripe in 0..STRIPES {
            let mut next = Some(*stripe_range(stripe).start());
            while let Some(from) = next {
                let (keys, last) = {
                    let directory = self.read(stripe);
                    let cell = directory.cell_of(from);
                    (directory.part(cell).listing(), *directory.range(cell).end())
                };
                for (key, count) in keys.iter() {
                    // If two tables were joined since the last pass, the table also contains keys
                    // below `from`, which `each` has already received.
                    if self.hash_of(key) >= from {
                        each(key, count);
                    }
                }
                next = last.checked_add(1).filter(|hash| stripe_of(*hash) == stripe);
            }
        }
    }

    /// Returns copies of the keys of a stripe, with their reference counts.
    pub(super) fn of_stripe(&self, stripe: usize) -> Vec<(Vec<u8>, u64)> {
        let directory = self.read(stripe);
        let keys = directory.parts().flat_map(KeyTable::iter);
        keys.map(|(key, count)| (key.to_vec(), count)).collect()
    }

    /// Removes the keys of a stripe.
    pub(super) fn clear_stripe(&self, stripe: usize) {
        *self.write(stripe) = Directory::new(stripe, KeyTable::default());
    }

    /// Splits a table that has too many keys into two.
    fn split_if_large(&self, directory: &mut Directory<KeyTable>, hash: u64) {
        let cell = directory.cell_of(hash);
        let table = directory.part(cell);
        if table.len() <= self.max_keys {
            return;
        }
        let Some(middle) = directory.middle(cell) else { return };
        let half = |is_upper: bool| {
            table.copy_of(|hash| (hash >= middle) == is_upper, |key| self.hash_of(key))
        };
        let (lower, upper) = (half(false), half(true));
        directory.split(cell, lower, upper);
    }

    /// Joins a table with its neighbour if both together have few keys.
    fn join_if_small(&self, directory: &mut Directory<KeyTable>, hash: u64) {
        let cell = directory.cell_of(hash);
        let Some(buddy) = directory.buddy(cell) else { return };
        if directory.part(cell).len() + directory.part(buddy).len() > self.max_keys / 8 {
            return;
        }
        let mut joined = directory.part(cell).copy_of(|_| true, |key| self.hash_of(key));
        if joined.append(directory.part(buddy), |key| self.hash_of(key)).is_ok() {
            directory.join(cell, buddy, joined);
        }
    }
}

impl KeyStore for KeptKeys {
    type Error = KeepError;

    const IN_MEMORY: bool = true;

    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Acquired, KeepError> {
        let mut directory = self.write(stripe_of(hash));
        let cell = directory.cell_of(hash);
        let acquired = directory.part_mut(cell).acquire(hash, key, |key| self.hash_of(key))?;
        self.split_if_large(&mut directory, hash);
        Ok(acquired)
    }

    fn release(&self, hash: u64, key: &[u8]) -> Result<Released, KeepError> {
        let mut directory = self.write(stripe_of(hash));
        let cell = directory.cell_of(hash);
        let released = directory.part_mut(cell).release(hash, key, |key| self.hash_of(key));
        if released == Released::Last {
            self.join_if_small(&mut directory, hash);
        }
        Ok(released)
    }

    fn holds(&self, hash: u64, key: &[u8]) -> Result<bool, KeepError> {
        Ok(self.read(stripe_of(hash)).of(hash).contains(hash, key))
    }

    fn len(&self) -> u64 {
        let of_stripe = |stripe| self.read(stripe).parts().map(KeyTable::len).sum::<usize>() as u64;
        (0..STRIPES).map(of_stripe).sum()
    }

    fn visit(
        &self,
        hashes: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Kept<'_>),
    ) -> Result<(), KeepError> {
        for stripe in stripe_of(*hashes.start())..=stripe_of(*hashes.end()) {
            let directory = self.read(stripe);
            let within = stripe_range(stripe);
            let (mut next, last) =
                (*hashes.start().max(within.start()), *hashes.end().min(within.end()));
            // The range may touch several tables of the stripe.
            loop {
                let cell = directory.cell_of(next);
                for (key, _) in directory.part(cell).iter() {
                    visit(Kept::Key(key));
                }
                let end = *directory.range(cell).end();
                if end >= last {
                    break;
                }
                next = end + 1;
            }
        }
        Ok(())
    }
}

//! The keys of a watch set. The reference counts in the key store determine what the filters contain.
//!
//! [`KeyStore`] is the interface of a store, and [`KeptKeys`] stores the keys in memory, in one or
//! several [`KeyTable`]s for each stripe.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;

use super::directory::{Directory, STRIPES, stripe_of, stripe_range};
use crate::hashing::KeyHasher;

/// Greatest length of a key in bytes.
pub(super) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// Value of the count byte for every count of 255 and above. These counts are stored in a separate
/// map.
const COUNT_ELSEWHERE: u8 = u8::MAX;
/// Value of the length byte for every length of 255 and above. Such a length is stored in the next
/// two bytes.
const LENGTH_FOLLOWS: u8 = u8::MAX;
/// A table with at most this many bytes of removed keys is never compacted.
const FEW_BYTES: usize = 4096;

/// The keys of a [`WatchSet`](super::WatchSet), with a reference count for each key.
///
/// The set changes the store first and then follows the store's answer: a key is inserted into the
/// filters when its count rises from zero to one, and removed from the filters when the count falls
/// from one to zero. So the filters never insert a key twice, and never remove a key that they do
/// not contain.
///
/// The set owns its store and calls it from several threads. The set makes no two concurrent calls
/// of [`acquire`](Self::acquire) or [`release`](Self::release) for hashes in the same stripe: the
/// top six bits of the hash divide all hashes into 64 stripes. While the set [visits](Self::visit)
/// a range of a stripe to build filters, it calls neither of these two methods for that stripe. The
/// set may call [`holds`](Self::holds) and [`len`](Self::len) at any time, even during changes. The
/// same is true of the visit of all hashes for an export. If the store is changed in any other way,
/// the set may give wrong answers until it is [rebuilt](super::WatchSet::rebuild).
///
/// If a store panics, the set assumes that the requested change may have been made. The set then
/// answers all queries for keys of the affected stripe from the store, until the next change in
/// this stripe rebuilds the filters.
///
/// Hashes are computed by the [`KeyHasher`] of the set. A store that survives a
/// restart and finds its keys by their hashes needs a hasher with an explicit key.
pub trait KeyStore: Sync {
    /// The error type of the store.
    type Error;

    /// `true` if [`holds`](Self::holds) answers from memory. If the value is `true`, a small set
    /// queries the store directly. If the value is `false`, a small set stores a copy of the keys.
    const IN_MEMORY: bool = false;

    /// Increments the reference count of a key.
    ///
    /// # Errors
    /// Returns an error if the count was not incremented. The store must then be unchanged.
    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Added, Self::Error>;

    /// Decrements the reference count of a key. Returns `None` if the count was zero. The store must
    /// then be unchanged.
    ///
    /// # Errors
    /// Returns an error if the count was not decremented. The store must then be unchanged.
    fn release(&self, hash: u64, key: &[u8]) -> Result<Option<Removed>, Self::Error>;

    /// Returns `true` if the reference count of the key is not zero.
    ///
    /// # Errors
    /// Returns an error if the store can't be queried.
    fn holds(&self, hash: u64, key: &[u8]) -> Result<bool, Self::Error>;

    /// Returns the number of distinct keys.
    fn len(&self) -> u64;

    /// Returns `true` if the store contains no keys.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` once for every key whose hash is in the range.
    ///
    /// The store may also pass keys with other hashes, which the set skips. So a store without an
    /// index may pass all of its keys, which is slow. A set of 10⁸ keys has several thousand
    /// ranges, and visits one range whenever it rebuilds a shard.
    ///
    /// # Errors
    /// Returns an error if not every key was visited.
    fn visit(
        &self,
        hashes: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Kept<'_>),
    ) -> Result<(), Self::Error>;
}

/// A key of a store, as passed to the visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept<'k> {
    /// The bytes of the key.
    Key(&'k [u8]),
    /// Only the hash of the key. A hash is sufficient to rebuild filters, but not to build an exact
    /// table or to export the set under another hasher.
    Hash(u64),
}

/// The result of adding a key, to a [`WatchSet`](super::WatchSet) or to its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The key was not in the set before: its reference count rose from zero to one.
    New,
    /// The key was already in the set. The key's reference count was incremented.
    Again,
}

/// The result of removing a key, from a [`WatchSet`](super::WatchSet) or from its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The key is no longer in the set: its reference count fell to zero.
    Gone,
    /// The key is still in the set, because it was added more often than removed.
    StillHeld,
}

/// Implements [`KeyStore`] for pointers to a store, so that the caller can share the store with the
/// set. The caller must not change the store, except through the set.
macro_rules! forward_to_store {
    ($($pointer:ty),+) => {$(
        impl<S: KeyStore + Send> KeyStore for $pointer {
            type Error = S::Error;

            const IN_MEMORY: bool = S::IN_MEMORY;

            fn acquire(&self, hash: u64, key: &[u8]) -> Result<Added, S::Error> {
                (**self).acquire(hash, key)
            }

            fn release(&self, hash: u64, key: &[u8]) -> Result<Option<Removed>, S::Error> {
                (**self).release(hash, key)
            }

            fn holds(&self, hash: u64, key: &[u8]) -> Result<bool, S::Error> {
                (**self).holds(hash, key)
            }

            fn len(&self) -> u64 {
                (**self).len()
            }

            fn visit(
                &self,
                hashes: RangeInclusive<u64>,
                visit: &mut dyn FnMut(Kept<'_>),
            ) -> Result<(), S::Error> {
                (**self).visit(hashes, visit)
            }
        }
    )+};
}

forward_to_store!(&S, alloc::sync::Arc<S>);

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
    pub(super) fn count(&self, key: &[u8]) -> u64 {
        let hash = self.hash_of(key);
        self.read(stripe_of(hash)).of(hash).count(hash, key)
    }

    /// Returns the memory of the store in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_stripe = |stripe| {
            let directory = self.read(stripe);
            directory.bytes() + directory.parts().map(KeyTable::bytes).sum::<usize>()
        };
        (0..STRIPES).map(of_stripe).sum()
    }

    /// Calls `each` with every key and its reference count. Keys that other threads add or remove
    /// during the call may or may not be included. No lock is held while `each` runs, so `each` may
    /// change the set.
    pub(super) fn for_each(&self, mut each: impl FnMut(&[u8], u64)) {
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

    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Added, KeepError> {
        let mut directory = self.write(stripe_of(hash));
        let cell = directory.cell_of(hash);
        let acquired = directory.part_mut(cell).acquire(hash, key, |key| self.hash_of(key))?;
        self.split_if_large(&mut directory, hash);
        Ok(acquired)
    }

    fn release(&self, hash: u64, key: &[u8]) -> Result<Option<Removed>, KeepError> {
        let mut directory = self.write(stripe_of(hash));
        let cell = directory.cell_of(hash);
        let released = directory.part_mut(cell).release(hash, key, |key| self.hash_of(key));
        if released == Some(Removed::Gone) {
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

/// The reason why a key can't be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The key is too long.
    #[error("the key has {bytes} bytes, but at most {max} are possible")]
    KeyTooLong {
        /// Length of the key in bytes.
        bytes: usize,
        /// Greatest length possible.
        max: usize,
    },
    /// One table would have more than 4 GiB of keys. A table becomes that large only with long keys
    /// whose hashes share many leading bits.
    #[error("more than 4 GiB of keys whose hashes share their leading bits")]
    TooManyBytes,
}

/// Keys in one byte array (the arena), and a hash table of their offsets.
///
/// Each key takes its own bytes, two bytes for the count and the length, and five to eleven bytes
/// of the hash table.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// Offsets of the entries in the arena.
    offsets: HashTable<u32>,
    /// The entries, one after another: count (0 if removed), length, key.
    arena: Vec<u8>,
    /// Number of bytes of removed entries.
    dead: usize,
    /// Counts that do not fit into a byte, by offset.
    many: BTreeMap<u32, u64>,
}

/// A decoded entry of the arena.
#[derive(Clone, Copy)]
struct StoredKey<'a> {
    count: u8,
    key: &'a [u8],
    /// Length of the whole entry in bytes.
    bytes: usize,
}

impl<'a> StoredKey<'a> {
    /// Decodes the entry at the start of `arena`.
    fn read(arena: &'a [u8]) -> Option<Self> {
        let (count, rest) = arena.split_first()?;
        let (len, rest) = rest.split_first()?;
        let (len, rest) = match *len {
            LENGTH_FOLLOWS => {
                let (len, rest) = rest.split_first_chunk::<2>()?;
                (usize::from(u16::from_le_bytes(*len)), rest)
            }
            len => (usize::from(len), rest),
        };
        let key = rest.get(..len)?;
        Some(Self { count: *count, key, bytes: arena.len() - rest.len() + len })
    }
}

/// Rotates a hash for use in the hash table. The table takes the lowest bits for the position and
/// the highest seven bits for the tag. Without the rotation, the highest bits would be equal for
/// all keys of a shard.
#[inline]
const fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

impl KeyTable {
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(super) fn contains(&self, hash: u64, key: &[u8]) -> bool {
        self.find(hash, key).is_some()
    }

    /// Returns the reference count of a key.
    pub(super) fn count(&self, hash: u64, key: &[u8]) -> u64 {
        let Some(at) = self.find(hash, key) else { return 0 };
        self.count_at(at)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.offsets.find(spread(hash), |at| self.key_at(*at) == Some(key)).copied()
    }

    fn key_at(&self, at: u32) -> Option<&[u8]> {
        Some(StoredKey::read(self.arena.get(at as usize..)?)?.key)
    }

    fn count_at(&self, at: u32) -> u64 {
        match self.arena.get(at as usize) {
            Some(&COUNT_ELSEWHERE) => {
                self.many.get(&at).copied().unwrap_or(u64::from(COUNT_ELSEWHERE))
            }
            count => count.copied().map_or(0, u64::from),
        }
    }

    fn set_count(&mut self, at: u32, count: u64) {
        let byte = u8::try_from(count).unwrap_or(COUNT_ELSEWHERE);
        if byte == COUNT_ELSEWHERE {
            self.many.insert(at, count);
        } else {
            self.many.remove(&at);
        }
        if let Some(place) = self.arena.get_mut(at as usize) {
            *place = byte;
        }
    }

    /// Increments the reference count of a key. `hash_of` computes the hashes of the existing keys,
    /// in case the table grows.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        key: &[u8],
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<Added, KeepError> {
        if let Some(at) = self.find(hash, key) {
            self.set_count(at, self.count_at(at).saturating_add(1));
            return Ok(Added::Again);
        }
        self.push(hash, key, 1, hash_of)?;
        Ok(Added::New)
    }

    /// Adds a key that is not in the table, with the given reference count.
    pub(super) fn push(
        &mut self,
        hash: u64,
        key: &[u8],
        count: u64,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<(), KeepError> {
        let too_long = KeepError::KeyTooLong { bytes: key.len(), max: MAX_KEY_BYTES };
        let len = u16::try_from(key.len()).map_err(|_| too_long)?;
        let at = u32::try_from(self.arena.len()).map_err(|_| KeepError::TooManyBytes)?;
        self.reserve(key.len() + 4);
        self.arena.push(0);
        match u8::try_from(len) {
            Ok(len) if len != LENGTH_FOLLOWS => self.arena.push(len),
            _ => {
                self.arena.push(LENGTH_FOLLOWS);
                self.arena.extend(len.to_le_bytes());
            }
        }
        self.arena.extend_from_slice(key);
        self.set_count(at, count);
        let Self { offsets, arena, .. } = self;
        let key_at = |at: u32| StoredKey::read(arena.get(at as usize..)?).map(|entry| entry.key);
        offsets
            .insert_unique(spread(hash), at, |at| spread(hash_of(key_at(*at).unwrap_or_default())));
        Ok(())
    }

    /// Reserves room for `bytes` more bytes. The arena grows by an eighth instead of doubling, to
    /// save memory.
    fn reserve(&mut self, bytes: usize) {
        if self.arena.capacity() - self.arena.len() < bytes {
            self.arena.reserve_exact(bytes.max(self.arena.len() / 8));
        }
    }

    /// Decrements the reference count of a key, and removes the key if the count becomes zero.
    pub(super) fn release(
        &mut self,
        hash: u64,
        key: &[u8],
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Option<Removed> {
        let at = self.find(hash, key)?;
        let count = self.count_at(at) - 1;
        self.set_count(at, count);
        if count > 0 {
            return Some(Removed::StillHeld);
        }
        if let Ok(place) = self.offsets.find_entry(spread(hash), |place| *place == at) {
            place.remove();
        }
        let entry = self.arena.get(at as usize..).and_then(StoredKey::read);
        self.dead += entry.map_or(0, |entry| entry.bytes);
        // More than a quarter of the arena consists of holes, so the arena is compacted.
        if self.dead > FEW_BYTES.max(self.arena.len() / 4) {
            *self = self.copy_of(|_| true, hash_of);
        }
        Some(Removed::Gone)
    }

    /// Returns the keys with their reference counts, in the order of insertion.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            loop {
                let entry = self.arena.get(at..).and_then(StoredKey::read)?;
                let here = u32::try_from(at).unwrap_or(u32::MAX);
                at += entry.bytes;
                if entry.count > 0 {
                    return Some((entry.key, self.count_at(here)));
                }
            }
        })
    }

    /// Returns a copy for use with [`iter`](Self::iter) only. The copy has no hash table, so it
    /// finds no keys.
    pub(super) fn listing(&self) -> Self {
        let (arena, many) = (self.arena.clone(), self.many.clone());
        Self { offsets: HashTable::new(), arena, dead: self.dead, many }
    }

    /// Returns a table without holes that contains the keys whose hashes satisfy `wanted`.
    pub(super) fn copy_of(
        &self,
        wanted: impl Fn(u64) -> bool,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Self {
        let mut copy = Self::default();
        for (key, count) in self.iter() {
            let hash = hash_of(key);
            if wanted(hash) {
                // The insertion can't fail: a subset of the keys needs no more room than all keys.
                let _ = copy.push(hash, key, count, &hash_of);
            }
        }
        copy.arena.shrink_to_fit();
        copy
    }

    /// Adds the keys of another table, which has no key in common with this table.
    pub(super) fn append(
        &mut self,
        other: &Self,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<(), KeepError> {
        other.iter().try_for_each(|(key, count)| self.push(hash_of(key), key, count, &hash_of))
    }

    /// Returns the memory of the table in bytes.
    pub(super) fn bytes(&self) -> usize {
        // This estimates 16 bytes for each count of the map, whose nodes store up to eleven counts.
        self.arena.capacity() + self.offsets.allocation_size() + self.many.len() * 16
    }
}

#[cfg(test)]
mod tests;

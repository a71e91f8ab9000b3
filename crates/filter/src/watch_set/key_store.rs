//! The key store of a watch set, whose reference counts determine what the filters contain.

use core::ops::RangeInclusive;

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
/// a range of a stripe to build filters, it calls neither of these two methods for that stripe.
/// The set may call [`holds`](Self::holds) and [`len`](Self::len) at any time, even during changes.
/// The same is true of the visit of all hashes for an export. If somebody else changes the store,
/// the set may give wrong answers until it is [rebuilt](super::WatchSet::rebuild).
///
/// If a store panics, the set assumes that the requested change may have been made. The set then
/// answers all queries for keys of the affected stripe from the store, until the next change in
/// this stripe rebuilds the filters.
///
/// Hashes are computed by the [`KeyHasher`](crate::KeyHasher) of the set. A store that survives a
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
    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Acquired, Self::Error>;

    /// Decrements the reference count of a key.
    ///
    /// # Errors
    /// Returns an error if the count was not decremented. The store must then be unchanged.
    fn release(&self, hash: u64, key: &[u8]) -> Result<Released, Self::Error>;

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

/// The result of incrementing a reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The count rose from zero to one: the key is new.
    First,
    /// The count was already above zero.
    Again,
}

/// The result of decrementing a reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The count fell to zero: the key is gone.
    Last,
    /// The count is still above zero.
    StillHeld,
    /// The count was zero. The store is unchanged.
    Unknown,
}

/// Implements [`KeyStore`] for pointers to a store, so that the caller can share the store with the
/// set. The caller must not change the store, except through the set.
macro_rules! forward_to_store {
    ($($pointer:ty),+) => {$(
        impl<S: KeyStore + Send> KeyStore for $pointer {
            type Error = S::Error;

            const IN_MEMORY: bool = S::IN_MEMORY;

            fn acquire(&self, hash: u64, key: &[u8]) -> Result<Acquired, S::Error> {
                (**self).acquire(hash, key)
            }

            fn release(&self, hash: u64, key: &[u8]) -> Result<Released, S::Error> {
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

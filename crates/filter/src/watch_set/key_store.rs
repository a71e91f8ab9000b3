//! Who has the keys: a store whose counts say what a watch set puts in and takes out.

use core::ops::RangeInclusive;

/// The keys of a [`WatchSet`](super::WatchSet), with a count of references to each.
///
/// The set asks the store first and does as it answers: a key goes into the filters when its
/// count goes from zero to one, and out of them when it goes from one to zero. What filters must
/// never see, a key twice or the removal of one that is not there, can't be said to them.
///
/// The set owns its store and calls it from several threads. What changes keys,
/// [`acquire`](Self::acquire) and [`release`](Self::release), it never calls for two hashes at a
/// time that lie in the same of 64 equal parts of all hashes (the top six bits of the hash), nor
/// while the store is [visited](Self::visit) for a range in that part to make filters.
/// [`holds`](Self::holds), [`len`](Self::len) and the visit of an export, which is of all hashes,
/// come at any time, beside changes too. Whoever changes the store in another way has to
/// [`rebuild`](super::WatchSet::rebuild) before the set is right again.
///
/// If a store panics, the set holds it to be possible that it did what it was asked to do, and asks
/// it for every answer in that part until the next change there makes the filters anew.
///
/// Hashes are those of the set's [`KeyHasher`](crate::KeyHasher). A store that is kept
/// over restarts and finds its keys by these hashes takes one with an explicit key.
pub trait KeyStore: Sync {
    /// What can go wrong in the store.
    type Error;

    /// Whether [`holds`](Self::holds) answers out of memory. A small set then asks the store;
    /// else it keeps a copy of the keys as long as it is small.
    const IN_MEMORY: bool = false;

    /// One more reference to the key.
    ///
    /// # Errors
    /// If there is none more; nothing has changed then.
    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Acquired, Self::Error>;

    /// One reference less.
    ///
    /// # Errors
    /// If there are as many as before; nothing has changed then.
    fn release(&self, hash: u64, key: &[u8]) -> Result<Released, Self::Error>;

    /// Whether the key's count is not zero.
    ///
    /// # Errors
    /// If the store can't tell.
    fn holds(&self, hash: u64, key: &[u8]) -> Result<bool, Self::Error>;

    /// How many distinct keys there are.
    fn len(&self) -> u64;

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows every key whose hash is in the range to `visit`, once. Keys of other hashes may be
    /// shown too: they are passed over, so that a store without an index may show all, slowly.
    ///
    /// A set of 10⁸ keys has some thousand ranges, and visits one when it is rebuilt.
    ///
    /// # Errors
    /// If not every key was shown.
    fn visit(
        &self,
        hashes: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Kept<'_>),
    ) -> Result<(), Self::Error>;
}

/// A key of a store, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept<'k> {
    /// The key.
    Key(&'k [u8]),
    /// The key's hash alone, where the store has it: enough to rebuild filters, but neither for
    /// an exact table nor for an export under another hasher.
    Hash(u64),
}

/// What came of one more reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// It is the first: the key is new.
    First,
    /// There were others.
    Again,
}

/// What came of one reference less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It was the last: the key is gone.
    Last,
    /// There are others.
    StillHeld,
    /// There was none: nothing has changed.
    Unknown,
}

/// A store that others hold as well: to look into it, not to change it.
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

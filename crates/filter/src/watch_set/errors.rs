//! What the operations of a watch set answer.

use crate::sizing::SizingError;

/// Whether a key is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It is not: certain.
    No,
    /// It may be: filters can't say more. The keys can
    /// ([`confirm`](super::WatchSet::confirm)).
    Maybe,
    /// It is: certain.
    Yes,
}

impl Answer {
    /// Whether the key may be watched: anything but a certain no.
    pub const fn may_contain(self) -> bool {
        !matches!(self, Self::No)
    }

    /// Whether there is nothing left to ask.
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

/// What came of an addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The key was not there.
    New,
    /// It was there, and is now held once more.
    Again,
}

/// What came of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The key is no longer there.
    Gone,
    /// It is still held: it was added more often.
    StillHeld,
}

/// Why a watch set did not do what it was asked. It answers as before.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError<E> {
    /// The key to remove is not in the set.
    #[error("the key to remove is not in the set")]
    Unknown,
    /// The store of keys failed.
    #[error("the store of keys: {0}")]
    Store(#[source] E),
    /// No memory for larger filters.
    #[error(transparent)]
    Sizing(#[from] SizingError),
}

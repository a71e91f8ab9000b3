//! Answers, results and errors of a watch set's operations.

use chainsieve_lanes::names;

use crate::sizing::SizingError;

/// The answer of a watch set to a query for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum WatchAnswer {
    /// The key is certainly not in the set.
    No,
    /// The key may be in the set. The filters can't decide whether the key is in the set, but the
    /// key store can ([`confirm`](super::WatchSet::confirm)).
    Maybe,
    /// The key is certainly in the set.
    Yes,
}

names! { WatchAnswer, "an answer of a watch set": No = "no", Maybe = "maybe", Yes = "yes" }

impl WatchAnswer {
    /// Returns `true` if the key may be in the set: for every answer except [`No`](Self::No).
    pub const fn may_contain(self) -> bool {
        !matches!(self, Self::No)
    }

    /// Returns `true` if the answer is certain: for every answer except [`Maybe`](Self::Maybe).
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

/// The result of adding a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The key was not in the set before.
    New,
    /// The key was already in the set. The key's reference count was incremented.
    Again,
}

/// The result of removing a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The key is no longer in the set.
    Gone,
    /// The key is still in the set, because it was added more often than removed.
    StillHeld,
}

/// The reason why an operation of a watch set failed. The set's answers are unchanged.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError<E> {
    /// The key to remove is not in the set.
    #[error("the key to remove is not in the set")]
    Unknown,
    /// The key store failed.
    #[error("the key store failed: {0}")]
    Store(#[source] E),
    /// There is no memory for the filters.
    #[error(transparent)]
    Sizing(#[from] SizingError),
}

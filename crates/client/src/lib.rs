#![doc = include_str!("../README.md")]

/// Defines methods of a builder: each changes the builder, and returns it.
macro_rules! setters {
    ($self:ident: $(
        $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $change:block
    )+) => {$(
        $(#[$doc])*
        pub fn $name(mut $self, $($argument: $type),*) -> Self {
            $change
            $self
        }
    )+};
}

/// Implements `Debug` by some members of a type, because other members are secret or do not
/// implement `Debug`.
macro_rules! debug_by {
    ($type:ty: $($member:ident),*) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($member), &self.$member);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}

mod builder;
mod client;
mod driver;
mod error;
#[doc(hidden)]
pub mod peers {
    //! Bitcoin's peer-to-peer protocol over TCP: connections, handshakes, addresses, and the pool of
    //! peers that owns them.

    pub mod address;
    pub mod book;
    pub mod connection;
    pub mod dial;
    pub mod frame;
    pub mod handshake;
    pub mod pool;
    pub mod socks;
}
mod shared;
mod storage;
pub mod testnode;

pub use chainsieve;
pub use chainsieve::bitcoin::Network;
pub use chainsieve::btc::client::{
    Birthday, BroadcastNews, Finding, Graded, Hit, HitReason, InclusionEvidence, Item, ItemCause,
    ItemError, News, OwnedOutput, OwnedSpend, Owner, Progress, Protocol, Update, UpdateId, Wallet,
    WalletId, WatchId,
};
pub use chainsieve::btc::peer::Grade;
pub use chainsieve::btc::wallet::{History, TxPosition};

pub use builder::Builder;
pub use client::{Client, HitCounts, PeerClaims, PeerStatus, Status};
pub use error::{LookUpError, RunError, StartError, Stopped, WalletError};
pub use peers::address::NetworkParams;
pub use peers::pool::PeerNote;
#[cfg(feature = "tokio")]
pub use shared::UpdateStream;
pub use shared::Updates;
pub use storage::{Folder, Memory, Storage, StorageError};

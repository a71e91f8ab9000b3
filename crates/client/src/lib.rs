#![doc = include_str!("../README.md")]

mod builder;
mod client;
mod clocks;
mod driver;
mod error;
#[doc(hidden)]
pub mod net;
mod shared;
mod storage;
pub mod testnode;
mod updates;

pub use chainsieve;
pub use chainsieve::bitcoin::Network;
pub use chainsieve::btc::client::{
    Birthday, BroadcastNews, Finding, Graded, Hit, HitReason, InclusionEvidence, Item, ItemCause,
    ItemError, News, OwnedOutput, OwnedSpend, Owner, Progress, Protocol, Update, UpdateId, Wallet,
    WalletId, WatchId,
};
pub use chainsieve::btc::peer::Grade;
pub use chainsieve::btc::wallet::{History, Place};

pub use builder::Builder;
pub use client::{Client, HitCounts, PeerClaims, PeerStatus, Status};
pub use error::{LookUpError, RunError, StartError, Stopped, WalletError};
pub use net::chain::Chain;
pub use net::events::PeerNote;
pub use storage::{Folder, Memory, Storage, StorageError};
#[cfg(feature = "tokio")]
pub use updates::UpdateStream;
pub use updates::Updates;

//! A Bitcoin light client over TCP: BIP157 or BIP37, several wallets, from peers nobody trusts.
//!
//! The protocol machines are those of [`chainsieve`], which read no socket, no clock and no file.
//! This crate gives them all three: peers named by the user or found by DNS seeds and an address
//! book, over TCP or a SOCKS5 proxy; a folder that survives kills; a thread. A [`Client`] is made
//! by a [`Builder`] and tells what it finds as [`Update`]s, by a blocking iterator or, with the
//! feature `tokio`, a stream.
//!
//! # Examples
//! See [`Builder`], and the folder `examples` of this package.

mod builder;
mod client;
mod driver;
mod error;
#[doc(hidden)]
pub mod net;
mod storage;
pub mod testnode;
mod updates;

pub use chainsieve;
pub use chainsieve::bitcoin::Network;
pub use chainsieve::btc::client::{
    Birthday, BroadcastNews, Evidence, Finding, Graded, Hit, Item, ItemCause, ItemError, News,
    Owner, Progress, Protocol, Received, Spent, Update, UpdateId, Wallet, WalletId, Why,
};
pub use chainsieve::btc::peer::Grade;
pub use chainsieve::btc::wallet::History;

pub use builder::Builder;
pub use client::{Client, HitCounts, PeerClaims, PeerStatus, Status};
pub use error::{LookUpError, RunError, StartError, Stopped, StorageError, WalletError};
pub use net::chain::Chain;
pub use net::events::PeerNote;
pub use storage::{Folder, Memory, Storage};
pub use updates::Updates;

//! Errors of a client: of its start, its run, its wallets and its look-ups.

use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::client::{BlockError, ItemError, OpenError, WalletId};
use thiserror::Error;

use crate::peers::address::{Target, TargetError};
use crate::storage::StorageError;

/// Reason why a client could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address of a peer is invalid.
    #[error("peer {peer}: {cause}")]
    Peer {
        /// The text that was given as the peer's address.
        peer: String,
        /// Reason why the text is not an address.
        cause: TargetError,
    },
    /// No peer is named, the address book is empty and no seed may be asked.
    #[error("no peer to connect to: no named peers, no stored addresses and no seeds")]
    NobodyToCall,
    /// A peer named by the user is an onion service, which can be reached only through a proxy.
    #[error("onion address {0} needs a proxy")]
    NeedsProxy(Target),
    /// The data folder cannot be opened or read.
    #[error("data folder: {0}")]
    Storage(#[from] StorageError),
    /// A checkpoint is at a height that cannot have a checkpoint.
    #[error(transparent)]
    Checkpoint(OpenError),
    /// The contents of the data folder cannot be used.
    #[error("data folder: {0}")]
    Open(OpenError),
    /// An item of a wallet cannot be watched.
    #[error(transparent)]
    Wallet(#[from] WalletError),
    /// The system provides no random numbers.
    #[error("the system provides no random numbers: {0}")]
    Random(String),
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            error @ OpenError::Checkpoint(_) => Self::Checkpoint(error),
            error => Self::Open(error),
        }
    }
}

/// Reason why a wallet cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WalletError {
    /// The id is invalid.
    #[error("wallet {:?}: an id has 1 to {max} bytes, the first not zero", .0.0, max = WalletId::MAX_BYTES)]
    Id(WalletId),
    /// An item of the wallet cannot be watched.
    #[error("wallet {wallet}: {cause}")]
    Item {
        /// The id of the wallet.
        wallet: WalletId,
        /// The item, and why it cannot be watched.
        cause: ItemError,
    },
    /// The client has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The client has stopped, or it was called on its own thread.
///
/// `Client::shutdown` returns the reason for a stop. Calls on the client's own thread, from a log
/// callback or a storage, always fail: the thread would wait for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client has stopped, or was called on its own thread")]
pub struct Stopped;

/// Reason why a client has stopped by itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A write to the storage failed. Updates whose acknowledgement was already durable are not
    /// delivered again by the next run.
    #[error("data folder: {0}")]
    Storage(#[from] StorageError),
    /// A thread of the client has panicked.
    #[error("a thread of the client has panicked")]
    Panicked,
}

/// Reason why a look-up of a block or a transaction failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookUpError {
    /// The block is not in the chain, or no peer delivers it.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The block does not contain the transaction.
    #[error("block {0} does not contain transaction {1}")]
    NotInBlock(BlockHash, chainsieve::bitcoin::Txid),
    /// The client has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

//! Why a client does not start, stops, or does not answer.

use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::bip157::ConfigError;
use chainsieve::btc::client::{BlockError, ItemError, OpenError, WalletId};
use thiserror::Error;

use crate::net::pool::PoolError;
use crate::net::target::TargetError;
use crate::storage::StorageError;

/// Why a client does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address of a peer is invalid.
    #[error("peer {peer}: {cause}")]
    Peer {
        /// The address.
        peer: String,
        /// What is wrong with it.
        cause: TargetError,
    },
    /// There is nobody to connect to.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The data folder cannot be used.
    #[error("data folder: {0}")]
    Storage(#[from] StorageError),
    /// A checkpoint at a height that has none.
    #[error(transparent)]
    Checkpoint(ConfigError),
    /// What the data folder holds cannot be used.
    #[error("data folder: {0}")]
    Open(OpenError),
    /// An item of a wallet cannot be watched.
    #[error(transparent)]
    Wallet(#[from] WalletError),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
    /// The system starts no thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Config(error) => Self::Checkpoint(error),
            error => Self::Open(error),
        }
    }
}

/// Why a wallet cannot be watched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WalletError {
    /// The id is invalid.
    #[error("wallet {:?}: an id has 1 to {max} bytes, the first not zero", .0.0, max = WalletId::MAX_BYTES)]
    Id(WalletId),
    /// An item that cannot be watched.
    #[error("wallet {wallet}: {cause}")]
    Item {
        /// The wallet.
        wallet: WalletId,
        /// The item, and why.
        cause: ItemError,
    },
    /// The client has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The client has stopped, and answers no more: see `Client::shutdown` for why. Or it was asked on
/// its own thread, where it never answers: from its log or its storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the client has stopped, or was asked on its own thread")]
pub struct Stopped;

/// Why a client has ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The storage has failed. What was acknowledged before is kept.
    #[error("data folder: {0}")]
    Storage(#[from] StorageError),
    /// A thread of the client has panicked.
    #[error("a thread of the client has panicked")]
    Panicked,
}

/// Why a look-up has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LookUpError {
    /// The block is not to be had.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The block does not hold the transaction.
    #[error("block {0} does not hold transaction {1}")]
    NotInBlock(BlockHash, chainsieve::bitcoin::Txid),
    /// The client has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

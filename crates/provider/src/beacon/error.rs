//! Errors of a light client of the beacon chain.

use std::io;
use std::path::PathBuf;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::sync_committee::StoredError;
use thiserror::Error;

use super::client::ServerFailure;
use crate::durable_file::Cause;
use crate::error::BuildError;

/// Maximum size of the file of a light client, which has about 200 kB.
pub(super) const MAX_FILE: u64 = 4 << 20;

/// Reason why a light client of the beacon chain could not start or go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BeaconError {
    /// A URL or one of its headers is invalid.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No checkpoint was given, and the folder has no light client to go on with.
    #[error("no checkpoint was given, and {} does not exist", .0.display())]
    NoCheckpoint(PathBuf),
    /// Neither a checkpoint nor a folder was given.
    #[error("neither a checkpoint nor a folder with a light client was given")]
    NoStart,
    /// The light client in the folder started from another checkpoint than the one that was given.
    #[error("{}: the light client started from checkpoint {stored}, not {given}", .path.display())]
    OtherCheckpoint {
        /// Path of the file.
        path: PathBuf,
        /// Checkpoint of the light client in the file.
        stored: B256,
        /// The checkpoint that was given.
        given: B256,
    },
    /// The file of the light client could not be read or written.
    #[error("{}: {cause}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the file could not be read or written.
        cause: BeaconFileCause,
    },
    /// No server sent a valid bootstrap of the checkpoint.
    #[error("no server has a valid bootstrap of checkpoint {checkpoint}{}", listed(.failures))]
    NoBootstrap {
        /// Root of the trusted block.
        checkpoint: B256,
        /// Reasons, at least one for each server that was asked.
        failures: Vec<ServerFailure>,
    },
    /// The newest finalised header is older than Capella, and binds no execution block.
    #[error(
        "the finalised header of slot {slot} is older than Capella, and binds no execution block"
    )]
    NoExecution {
        /// Slot of the header.
        slot: u64,
    },
    /// A [`Stop`](crate::Stop) was set.
    #[error("stopped")]
    Stopped,
}

/// Cause of [`BeaconError::File`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BeaconFileCause {
    /// Another process uses the file.
    #[error("another process uses this light client")]
    InUse,
    /// The operating system reported an error.
    #[error("{1}")]
    Io(io::ErrorKind, String),
    /// The file has this many bytes, which is too large for a light client.
    #[error("{0} bytes, a light client has at most {MAX_FILE}")]
    TooLarge(u64),
    /// The file contains no valid light client.
    #[error(transparent)]
    Stored(#[from] StoredError),
}

impl From<io::Error> for BeaconFileCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

impl From<Cause> for BeaconFileCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::InUse => Self::InUse,
            Cause::Io(error) => error.into(),
            Cause::TooLarge(size) => Self::TooLarge(size),
        }
    }
}

fn listed(failures: &[ServerFailure]) -> String {
    failures.iter().fold(String::new(), |text, failure| text + &format!("; {failure}"))
}

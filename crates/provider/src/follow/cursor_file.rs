//! A follower's cursor in a file, which stays consistent after kills and power failures.

use std::io;
use std::path::{Path, PathBuf};

use chainsieve::eth::follow::{Cursor, CursorError};
use thiserror::Error;

use crate::durable_file::{Cause, DurableFile};

/// Maximum size of a cursor file. Every cursor is smaller than this maximum: it contains the logs
/// of some hundred full blocks at most.
const MAX_BYTES: u64 = 4 << 30;

/// Reason why the file of a cursor could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {cause}", .path.display())]
#[non_exhaustive]
pub struct CursorFileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason why the file could not be read or written.
    pub cause: CursorFileCause,
}

/// Cause of a [`CursorFileError`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CursorFileCause {
    /// Another process uses the file.
    #[error("another process uses this cursor file")]
    InUse,
    /// The operating system reported an error.
    #[error("{1}")]
    Io(io::ErrorKind, String),
    /// The file has this many bytes, which is too large for a cursor.
    #[error("a cursor file of {0} bytes, the limit is {MAX_BYTES}")]
    TooLarge(u64),
    /// The file contains no valid cursor.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

impl From<io::Error> for CursorFileCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

impl From<Cause> for CursorFileCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::InUse => Self::InUse,
            Cause::Io(error) => error.into(),
            Cause::TooLarge(size) => Self::TooLarge(size),
        }
    }
}

/// A cursor file, which only one process at a time can open.
#[derive(Debug)]
pub(crate) struct CursorFile(DurableFile);

impl CursorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, CursorFileError> {
        let opened = DurableFile::open(path).map(Self);
        opened.map_err(|cause| CursorFileError { path: path.to_owned(), cause: cause.into() })
    }

    /// Reads the cursor of an earlier run; `None` if the file does not exist.
    pub(crate) fn read(&self) -> Result<Option<Cursor>, CursorFileError> {
        let text = self.0.read(MAX_BYTES).map_err(|cause| self.error(cause.into()))?;
        let cursor = text.map(|text| Cursor::from_json(&text)).transpose();
        cursor.map_err(|error| self.error(error.into()))
    }

    /// Replaces the file by `cursor`. The new contents are durable when this method returns.
    pub(crate) fn write(&self, cursor: &Cursor) -> Result<(), CursorFileError> {
        self.0.write(&cursor.to_json()).map_err(|error| self.error(error.into()))
    }

    fn error(&self, cause: CursorFileCause) -> CursorFileError {
        CursorFileError { path: self.0.path().to_owned(), cause }
    }
}

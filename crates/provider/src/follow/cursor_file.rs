//! A follower's cursor in a file, which stays consistent after kills and power failures.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use chainsieve::eth::follow::{Cursor, CursorError};
use thiserror::Error;

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

/// A cursor file, which only one process at a time can open.
#[derive(Debug)]
pub(crate) struct CursorFile {
    path: PathBuf,
    /// The lock file, which stays locked until the `CursorFile` is dropped.
    _lock: File,
}

impl CursorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, CursorFileError> {
        // The lock is a second file, because each write replaces the cursor file itself.
        let lock = || {
            let path = beside(path, ".lock");
            let lock = File::options().write(true).create(true).truncate(false).open(path)?;
            match lock.try_lock() {
                Ok(()) => Ok(lock),
                Err(TryLockError::WouldBlock) => Err(CursorFileCause::InUse),
                Err(TryLockError::Error(error)) => Err(error.into()),
            }
        };
        let lock = lock().map_err(|cause| CursorFileError { path: path.to_owned(), cause })?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Reads the cursor of an earlier run; `None` if the file does not exist.
    pub(crate) fn read(&self) -> Result<Option<Cursor>, CursorFileError> {
        let read = || {
            let size = match fs::metadata(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                metadata => metadata?.len(),
            };
            if size > MAX_BYTES {
                return Err(CursorFileCause::TooLarge(size));
            }
            Ok(Some(Cursor::from_json(&fs::read_to_string(&self.path)?)?))
        };
        read().map_err(|cause| self.error(cause))
    }

    /// Replaces the file by `cursor`. The new contents are durable when this method returns.
    ///
    /// The new contents are written to another file and synced. The new file then replaces the old
    /// one. So a crash leaves the old or the new cursor, never a part of a cursor.
    pub(crate) fn write(&self, cursor: &Cursor) -> Result<(), CursorFileError> {
        let write = || {
            let new = beside(&self.path, ".new");
            let mut file = File::create(&new)?;
            file.write_all(cursor.to_json().as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            if cfg!(unix) {
                let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
                File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            io::Result::Ok(())
        };
        write().map_err(|error| self.error(error.into()))
    }

    fn error(&self, cause: CursorFileCause) -> CursorFileError {
        CursorFileError { path: self.path.clone(), cause }
    }
}

/// Returns the path with `end` appended to its file name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

//! A follower's cursor in a file that survives kills and power cuts.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use chainsieve::eth::follow::{Cursor, CursorError};
use thiserror::Error;

/// Larger than any: the logs of some hundred full blocks.
const MAX_BYTES: u64 = 4 << 30;

/// Why a cursor is not read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {cause}", .path.display())]
pub struct CursorFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub cause: CursorFileCause,
}

/// What is wrong with the file of a cursor.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CursorFileCause {
    /// Another process has it.
    #[error("another process follows with it")]
    InUse,
    /// The operating system refuses it.
    #[error("{1}")]
    Io(io::ErrorKind, String),
    /// It is too large.
    #[error("{0} bytes; the limit is {MAX_BYTES}")]
    TooLarge(u64),
    /// It does not hold a cursor.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

impl From<io::Error> for CursorFileCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind(), error.to_string())
    }
}

/// A cursor in a file, which one process at a time holds.
#[derive(Debug)]
pub(crate) struct CursorFile {
    path: PathBuf,
    /// Held.
    _lock: File,
}

impl CursorFile {
    pub(crate) fn open(path: &Path) -> Result<Self, CursorFileError> {
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

    /// What an earlier run left; `None` if there was none.
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

    /// Replaces the file; when this returns it is durable.
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

/// A path with something at the end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

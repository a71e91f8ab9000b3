//! A file that stays consistent after kills and power failures, used by one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Reason why the file of a cursor or of a light client could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {}", self.path().display(), self.reason())]
#[non_exhaustive]
pub enum FileError {
    /// Another process uses the file.
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The operating system reported an error.
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Text of the error.
        message: String,
    },
    /// The file is too large for its contents.
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the file in bytes.
        size: u64,
        /// Maximum size in bytes.
        limit: u64,
    },
    /// The contents of the file are invalid.
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the contents are invalid.
        why: String,
    },
}

impl FileError {
    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        match self {
            Self::InUse { path }
            | Self::Io { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Invalid { path, .. } => path,
        }
    }

    /// Returns the reason without the path, for a program that does not print each path.
    pub fn reason(&self) -> String {
        match self {
            Self::InUse { .. } => "another process uses this file".to_owned(),
            Self::Io { message, .. } => message.clone(),
            Self::TooLarge { size, limit, .. } => format!("{size} bytes, the limit is {limit}"),
            Self::Invalid { why, .. } => why.clone(),
        }
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        Self::Io { path: path.to_owned(), kind: error.kind(), message: error.to_string() }
    }

    pub(crate) fn invalid(path: &Path, why: &impl ToString) -> Self {
        Self::Invalid { path: path.to_owned(), why: why.to_string() }
    }
}

/// A file, which only one process at a time can open.
#[derive(Debug)]
pub(crate) struct DurableFile {
    pub(crate) path: PathBuf,
    /// The lock file, which stays locked until the `DurableFile` is dropped.
    _lock: File,
}

impl DurableFile {
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |error: &io::Error| FileError::io(path, error);
        // The lock is a second file, because each write replaces the file itself.
        let lock = beside(path, ".lock");
        let lock = File::options().write(true).create(true).truncate(false).open(lock);
        let lock = lock.map_err(|error| failed(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(FileError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    /// Reads the file of at most `limit` bytes; `None` if the file does not exist.
    pub(crate) fn read(&self, limit: u64) -> Result<Option<String>, FileError> {
        read(&self.path, limit)
    }

    /// Replaces the contents. The new contents are durable when this method returns.
    ///
    /// The new contents are written to another file and synced. The new file then replaces the old
    /// file. So a crash leaves the old or the new contents, never a part of them.
    pub(crate) fn write(&self, text: &str) -> Result<(), FileError> {
        self.replace(text).map_err(|error| FileError::io(&self.path, &error))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        if cfg!(unix) {
            let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }
}

/// Reads a file of at most `limit` bytes, also while another process uses it; `None` if the file does
/// not exist.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<String>, FileError> {
    let failed = |error: io::Error| FileError::io(path, &error);
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(failed)?.len(),
    };
    if size > limit {
        return Err(FileError::TooLarge { path: path.to_owned(), size, limit });
    }
    fs::read_to_string(path).map(Some).map_err(failed)
}

/// Returns the path with `end` appended to its file name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

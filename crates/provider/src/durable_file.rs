//! A file that stays consistent after kills and power failures, used by one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Reason why a file could not be read or written.
#[derive(Debug)]
pub(crate) enum Cause {
    /// Another process uses the file.
    InUse,
    /// The operating system reported an error.
    Io(io::Error),
    /// The file has this many bytes, more than allowed.
    TooLarge(u64),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A file, which only one process at a time can open.
#[derive(Debug)]
pub(crate) struct DurableFile {
    path: PathBuf,
    /// The lock file, which stays locked until the `DurableFile` is dropped.
    _lock: File,
}

impl DurableFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Cause> {
        // The lock is a second file, because each write replaces the file itself.
        let lock = beside(path, ".lock");
        let lock = File::options().write(true).create(true).truncate(false).open(lock)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Cause::InUse),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file of at most `limit` bytes; `None` if the file does not exist.
    pub(crate) fn read(&self, limit: u64) -> Result<Option<String>, Cause> {
        read(&self.path, limit)
    }

    /// Replaces the contents. The new contents are durable when this method returns.
    ///
    /// The new contents are written to another file and synced. The new file then replaces the old
    /// one. So a crash leaves the old or the new contents, never a part of them.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
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
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<String>, Cause> {
    let size = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?.len(),
    };
    if size > limit {
        return Err(Cause::TooLarge(size));
    }
    Ok(Some(fs::read_to_string(path)?))
}

/// Returns the path with `end` appended to its file name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

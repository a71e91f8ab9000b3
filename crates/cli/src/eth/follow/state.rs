//! The cursor of a follower, in a file that outlives kills and power cuts.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use chainsieve::eth::follow::Cursor;

use crate::input::named;
use crate::output::grouped;

/// Larger than any: the logs of some hundred full blocks.
const MAX_BYTES: u64 = 4 << 30;

/// The file, which no other process writes meanwhile.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Held.
    _lock: File,
}

impl StateFile {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let name = || format!("state, {}", named(path));
        let lock_path = beside(path, ".lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.with_context(name)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}: another process follows with it", name()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(name),
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// What an earlier process left; none if there was none.
    pub(super) fn read(&self) -> anyhow::Result<Option<Cursor>> {
        let name = || format!("state, {}", named(&self.path));
        let size = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.with_context(name)?.len(),
        };
        let (size_text, limit) = (grouped(size), grouped(MAX_BYTES));
        ensure!(size <= MAX_BYTES, "{}: {size_text} bytes; the limit is {limit}", name());
        let text = fs::read_to_string(&self.path).with_context(name)?;
        Cursor::from_json(&text).map(Some).with_context(name)
    }

    /// Replaces the file; when this returns it is durable.
    pub(super) fn write(&self, cursor: &Cursor) -> anyhow::Result<()> {
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
        write().with_context(|| format!("state, {}", named(&self.path)))
    }
}

/// A path with something at the end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

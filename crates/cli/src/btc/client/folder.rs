//! The folder of `--data`: one process at a time, and files that a kill leaves old or new.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use chainsieve::bitcoin::hashes::{Hash as _, sha256};

use crate::input::named;

/// A folder that this process alone writes to.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Held as long as the folder is.
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is not there, and locks it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || {
            fs::create_dir_all(path)?;
            OpenOptions::new().create(true).append(true).open(path.join("lock"))
        };
        let lock = open().with_context(|| format!("--data {}", named(path)))?;
        // Where files cannot be locked, none is.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            bail!("--data {}: another process uses it", named(path))
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where a file of the folder is, or would be.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A folder in this one, made if it is not there.
    pub(crate) fn sub(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| named(&path))?;
        Ok(path)
    }
}

/// The bytes of a file; `None` if it is not there.
pub(crate) fn read(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| named(path)),
    }
}

/// Replaces a file: whenever this is stopped, the file is the old one or the new one, whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_parent(path)
    };
    write().with_context(|| format!("cannot write {}", named(path)))
}

/// A line with its checksum, against bits that have turned.
pub(crate) fn summed(line: &str) -> String {
    format!("{} {line}\n", checksum(line))
}

/// The line without its checksum, if that is right.
pub(crate) fn unsummed(line: &str) -> anyhow::Result<&str> {
    match line.split_once(' ') {
        Some((sum, line)) if sum == checksum(line) => Ok(line),
        _ => bail!("damaged: its checksum is not right"),
    }
}

fn checksum(line: &str) -> String {
    sha256::Hash::hash(line.as_bytes()).to_string().chars().take(8).collect()
}

/// That a file has a name is written in its folder.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        // Elsewhere folders are not files.
        Some(parent) if cfg!(unix) => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btc::client::scratch::Scratch;

    #[test]
    fn one_process_at_a_time() {
        let scratch = Scratch::new("folder-lock");
        let first = Folder::open(scratch.path()).unwrap();
        let error = Folder::open(scratch.path()).unwrap_err().to_string();
        assert!(error.ends_with("another process uses it"), "{error}");
        drop(first);
        Folder::open(scratch.path()).unwrap();
    }

    #[test]
    fn a_file_is_replaced_and_what_is_not_there_is_none() {
        let scratch = Scratch::new("folder-replace");
        let path = scratch.path().join("state");
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}

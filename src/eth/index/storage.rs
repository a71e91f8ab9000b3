//! Storage of the files of an index: a folder, or a storage that the caller implements.
//!
//! The library reads through [`ReadAt`] and [`Storage`], and writes through [`WriteStorage`].
//! [`Folder`] implements the two storage traits over `std::fs`. To map sealed segments into memory,
//! implement [`Storage`] with a file type whose [`ReadAt::as_slice`] returns the mapping.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::format::{self, Manifest, damaged};
use super::{Damage, IndexError, Part};

/// Random-access reads of the bytes of a file, through a shared reference.
///
/// An [`Index`](super::Index) can be shared between threads if its files are `Send + Sync`.
pub trait ReadAt {
    /// Returns the current length in bytes.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Returns any error of the storage, and [`io::ErrorKind::UnexpectedEof`] if the file ends
    /// before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns all bytes if they are in memory and never change, else `None`.
    ///
    /// The checksum of a part that is read from this slice is computed only on its first use. The
    /// checksum of a part that is read through [`read_exact_at`](Self::read_exact_at) is computed
    /// on each use.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// Tells the storage that the bytes of `range` are about to be read. The default implementation
    /// does nothing.
    fn will_need(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// Way in which the bytes of a file may change after it was opened.
///
/// A [`Storage`] must treat a kind that it does not know as [`Growing`](Self::Growing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// File that is written once as a whole, and then never changed or truncated. Such a file may
    /// be mapped into memory.
    Sealed,
    /// File to which bytes may be appended, or which may be replaced by another file of the same
    /// name.
    Growing,
}

/// Folder with the files of an index, open for reading.
///
/// Threads can share an [`Index`](super::Index) or a [`Writer`](super::Writer) if the storage, its
/// files, appenders and locks are `Send + Sync`. [`Folder`], its files, appenders and locks are
/// `Send + Sync`.
pub trait Storage {
    /// An open file. The file must stay readable after a writer removes or replaces its name.
    type File: ReadAt;

    /// Opens a file.
    ///
    /// # Errors
    /// Returns any error of the storage, and [`io::ErrorKind::NotFound`] if the file does not
    /// exist.
    fn open(&self, name: &str, kind: FileKind) -> io::Result<Self::File>;
}

/// File that is open for writing at its end.
pub trait Append {
    /// Appends all bytes.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, any prefix of the bytes may have been
    /// written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all bytes durable that were written before this call.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, it is unknown which bytes are durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Folder with the files of an index, open for reading and writing.
pub trait WriteStorage: Storage {
    /// File that is open for writing.
    type Appender: Append;
    /// Guard of the writer's lock: dropping it releases the lock.
    type Lock;

    /// Takes the lock, which only one writer can hold at a time.
    ///
    /// # Errors
    /// Returns any error of the storage, and [`io::ErrorKind::WouldBlock`] if another writer holds
    /// the lock.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// Creates an empty file. An existing file of the same name must be replaced and not truncated,
    /// because readers may have mapped it into memory.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn create(&self, name: &str) -> io::Result<Self::Appender>;

    /// Opens an existing file for appending.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn append_to(&self, name: &str) -> io::Result<Self::Appender>;

    /// Renames a file. An existing file named `to` is replaced atomically.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of all files in the folder.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes all changes of file names before this call durable: creations, renames and removals.
    ///
    /// # Errors
    /// Returns any error of the storage.
    fn sync_names(&self) -> io::Result<()>;
}

impl ReadAt for [u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let bytes = from.and_then(|bytes| bytes.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

macro_rules! read_as_slice {
    ($($bytes:ty),*) => {$(
        impl ReadAt for $bytes {
            fn length(&self) -> io::Result<u64> {
                self[..].length()
            }

            fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
                self[..].read_exact_at(buffer, offset)
            }

            fn as_slice(&self) -> Option<&[u8]> {
                Some(self)
            }
        }
    )*};
}

read_as_slice!(Vec<u8>, alloc::sync::Arc<[u8]>);

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn length(&self) -> io::Result<u64> {
        R::length(self)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        R::read_exact_at(self, buffer, offset)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        R::as_slice(self)
    }

    fn will_need(&self, range: Range<u64>) {
        R::will_need(self, range);
    }
}

/// A file in memory.
impl Append for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ReadAt for File {
    fn length(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(self, buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A folder of the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

impl Folder {
    /// Wraps the path of an existing folder.
    ///
    /// A writer makes the names inside the folder durable. The creator of the folder must make the
    /// folder's own name durable.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Storage for Folder {
    type File = File;

    fn open(&self, name: &str, _: FileKind) -> io::Result<File> {
        File::open(self.0.join(name))
    }
}

impl Append for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Name of the file that the writer locks.
const LOCK: &str = "lock";

impl WriteStorage for Folder {
    type Appender = File;
    type Lock = File;

    fn lock(&self) -> io::Result<File> {
        let options = fs::OpenOptions::new().write(true).create(true).truncate(false).to_owned();
        let file = options.open(self.0.join(LOCK))?;
        file.try_lock()?;
        Ok(file)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let path = self.0.join(name);
        // Remove the old file and create a new one: truncating the old file would break readers
        // that have mapped it into memory.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::create_new(path),
        }
    }

    fn append_to(&self, name: &str) -> io::Result<File> {
        fs::OpenOptions::new().append(true).open(self.0.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.0.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            // A name that is not UTF-8 was not created by a writer of this library: skip the file.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        // On Unix a new name is durable only after the folder itself is synced. Other systems make
        // names durable by themselves, and cannot open a folder as a file.
        if cfg!(unix) { File::open(&self.0)?.sync_all() } else { Ok(()) }
    }
}

/// Converts an I/O error of an operation on a file into an [`IndexError`].
pub(super) fn failed(
    operation: &'static str,
    file: &str,
    offset: u64,
) -> impl FnOnce(io::Error) -> IndexError {
    move |error| IndexError::Io { kind: error.kind(), operation, file: file.into(), offset }
}

/// Opens a file.
pub(super) fn open<S: Storage>(
    storage: &S,
    name: &str,
    kind: FileKind,
) -> Result<S::File, IndexError> {
    storage.open(name, kind).map_err(failed("open", name, 0))
}

/// Returns the length of a file in bytes.
pub(super) fn length(file: &(impl ReadAt + ?Sized), name: &str) -> Result<u64, IndexError> {
    file.length().map_err(failed("get the length of", name, 0))
}

/// Fills `buffer` with the bytes from `offset` on.
pub(super) fn read(
    file: &(impl ReadAt + ?Sized),
    name: &str,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), IndexError> {
    file.read_exact_at(buffer, offset).map_err(failed("read", name, offset))
}

/// Reads and decodes the manifest.
///
/// # Errors
/// Returns [`IndexError::NoIndex`] if there is no manifest, an I/O error of the storage, or an
/// error of [`Manifest::from_bytes`]. A manifest with trailing bytes is reported as damaged.
pub(super) fn read_manifest(storage: &impl Storage) -> Result<Manifest, IndexError> {
    let name = format::MANIFEST;
    let file = open(storage, name, FileKind::Growing).map_err(|error| match error {
        IndexError::Io { kind: io::ErrorKind::NotFound, .. } => IndexError::NoIndex,
        error => error,
    })?;
    let found = length(&file, name)?;
    let mut bytes = [0; format::MANIFEST_LEN];
    let bytes =
        &mut bytes[..usize::try_from(found).unwrap_or(usize::MAX).min(format::MANIFEST_LEN)];
    read(&file, name, bytes, 0)?;
    let manifest = Manifest::from_bytes(bytes)?;
    let expected = format::MANIFEST_LEN as u64;
    if found != expected {
        let damage = Damage::Length { found, expected };
        return Err(damaged(name, expected, Part::Manifest, damage));
    }
    Ok(manifest)
}

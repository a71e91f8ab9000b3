//! Where the files of an index are: a folder, or whatever a caller puts in its place.
//!
//! The library reads through [`ReadAt`] and [`Storage`], and writes through [`WriteStorage`].
//! [`Folder`] is both over `std::fs`. Who wants sealed segments mapped into memory implements
//! [`Storage`] with a file whose [`ReadAt::as_slice`] is the mapping.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Bytes that can be read at any place, by any number of threads.
pub trait ReadAt {
    /// How many bytes there are now.
    ///
    /// # Errors
    /// Of the storage.
    fn length(&self) -> io::Result<u64>;

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Of the storage; [`io::ErrorKind::UnexpectedEof`] if there are fewer.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// All bytes, where they are in memory and never change. Checksums of what is read from here
    /// are checked when it is used for the first time, those of anything else each time.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }

    /// A hint: these bytes are about to be read.
    fn will_need(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Written once, whole, never changed or cut afterwards: may be mapped into memory.
    Sealed,
    /// Appended to, or replaced by another file of its name.
    Growing,
}

/// A folder to read from.
pub trait Storage {
    /// An open file. It stays readable when the name is gone.
    type File: ReadAt;

    /// Opens a file.
    ///
    /// # Errors
    /// Of the storage; [`io::ErrorKind::NotFound`] where there is no such file.
    fn open(&self, name: &str, kind: FileKind) -> io::Result<Self::File>;
}

/// A file being written: at its end only.
pub trait Append {
    /// Writes all bytes at the end.
    ///
    /// # Errors
    /// Of the storage. Any part of the bytes may then have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Of the storage. What is durable is then unknown.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder to write to.
pub trait WriteStorage: Storage {
    /// A file being written.
    type Appender: Append;
    /// Held as long as one writes.
    type Lock;

    /// Becomes the one writer.
    ///
    /// # Errors
    /// Of the storage; [`io::ErrorKind::WouldBlock`] if another one holds the lock.
    fn lock(&self) -> io::Result<Self::Lock>;

    /// Creates a file, empty; one of the same name is replaced, not cut.
    ///
    /// # Errors
    /// Of the storage.
    fn create(&self, name: &str) -> io::Result<Self::Appender>;

    /// Opens a file to go on at its end.
    ///
    /// # Errors
    /// Of the storage.
    fn append_to(&self, name: &str) -> io::Result<Self::Appender>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// Of the storage.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Of the storage.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files.
    ///
    /// # Errors
    /// Of the storage.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes the names durable: what was created, renamed and removed so far.
    ///
    /// # Errors
    /// Of the storage.
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
    /// An existing folder. A writer makes the names in it durable; that of the folder itself is the
    /// business of who created it.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }

    /// The path.
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
        // Another file, so that nothing is cut off that someone may have mapped.
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
            // Names that are not UTF-8 are none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        // Other systems make names durable by themselves and can't open folders.
        if cfg!(unix) { File::open(&self.0)?.sync_all() } else { Ok(()) }
    }
}

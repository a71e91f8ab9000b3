//! An in-memory folder that a writer and readers share.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chainsieve::eth::index::{Append, FileKind, ReadAt, Storage, WriteStorage};

type Contents = Arc<Mutex<Vec<u8>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shared folder.
#[derive(Debug, Clone, Default)]
pub struct SharedFolder {
    files: Arc<Mutex<BTreeMap<String, Contents>>>,
    /// `true` if sealed files are read as slices.
    pub slices: bool,
}

impl SharedFolder {
    /// Returns the same folder. If `slices` is `true`, sealed files are read as slices.
    #[must_use]
    pub fn read_as_slices(&self, slices: bool) -> Self {
        Self { files: Arc::clone(&self.files), slices }
    }

    /// Returns another folder with copies of all files.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = |(name, bytes): (&String, &Contents)| {
            (name.clone(), Arc::new(Mutex::new(lock(bytes).clone())))
        };
        let files = lock(&self.files).iter().map(copy).collect();
        Self { files: Arc::new(Mutex::new(files)), slices: self.slices }
    }

    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        lock(&self.files).get(name).map(|bytes| lock(bytes).clone())
    }

    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        lock(&self.files).insert(name.into(), Arc::new(Mutex::new(bytes)));
    }

    fn file(&self, name: &str) -> io::Result<Contents> {
        Ok(Arc::clone(lock(&self.files).get(name).ok_or(io::ErrorKind::NotFound)?))
    }
}

/// A file of the shared folder.
#[derive(Debug)]
pub enum SharedFile {
    Slice(Vec<u8>),
    Shared(Contents),
}

impl ReadAt for SharedFile {
    fn length(&self) -> io::Result<u64> {
        match self {
            Self::Slice(bytes) => bytes.length(),
            Self::Shared(bytes) => lock(bytes).length(),
        }
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Slice(bytes) => bytes.read_exact_at(buffer, offset),
            Self::Shared(bytes) => lock(bytes).read_exact_at(buffer, offset),
        }
    }

    fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::Slice(bytes) => Some(bytes),
            Self::Shared(_) => None,
        }
    }
}

impl Append for SharedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Slice(_) => Err(io::ErrorKind::PermissionDenied.into()),
            Self::Shared(file) => {
                lock(file).extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for SharedFolder {
    type File = SharedFile;

    fn open(&self, name: &str, kind: FileKind) -> io::Result<SharedFile> {
        let file = self.file(name)?;
        if self.slices && kind == FileKind::Sealed {
            let bytes = lock(&file).clone();
            return Ok(SharedFile::Slice(bytes));
        }
        Ok(SharedFile::Shared(file))
    }
}

impl WriteStorage for SharedFolder {
    type Appender = SharedFile;
    type Lock = ();

    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<SharedFile> {
        self.put(name, Vec::new());
        self.append_to(name)
    }

    fn append_to(&self, name: &str) -> io::Result<SharedFile> {
        Ok(SharedFile::Shared(self.file(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.files);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.into(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.files).remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.files).keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

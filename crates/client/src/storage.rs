//! Where a client keeps what it knows: a folder, or memory.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use chainsieve::btc::client::{File, Kept, Write};
use thiserror::Error;

/// A storage of a client's files.
///
/// Writes are carried out in order. [`commit`](Self::commit) makes every write so far durable;
/// before a [`Write::Replace`] all earlier ones must be. The filters of blocks need not survive a
/// crash: they only spare downloads.
pub trait Storage: Send {
    /// What an earlier run has kept.
    ///
    /// # Errors
    /// A file that is there and cannot be read.
    fn load(&mut self) -> Result<Kept, StorageError>;

    /// Carries out a write.
    ///
    /// # Errors
    /// It cannot be written. The client stops then.
    fn write(&mut self, write: &Write) -> Result<(), StorageError>;

    /// Makes all writes so far durable.
    ///
    /// # Errors
    /// They cannot be. The client stops then.
    fn commit(&mut self) -> Result<(), StorageError>;

    /// The contents of a file; `None` if it is not there.
    ///
    /// # Errors
    /// It is there and cannot be read.
    fn read(&mut self, file: File) -> Result<Option<Vec<u8>>, StorageError>;

    /// The addresses of peers, as an earlier run has kept them. Losing them loses nothing else.
    fn addresses(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Keeps the addresses of peers.
    ///
    /// # Errors
    /// They cannot be written; the client goes on.
    fn keep_addresses(&mut self, _bytes: &[u8]) -> Result<(), StorageError> {
        Ok(())
    }
}

/// A failure of the storage.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{operation} {file}: {message}")]
pub struct StorageError {
    /// What was tried: "read", "write", …
    pub operation: &'static str,
    /// The file, or the folder.
    pub file: String,
    /// The kind of the system's error.
    pub kind: ErrorKind,
    /// The system's message.
    pub message: String,
}

impl StorageError {
    /// An error of the system's, with what was tried.
    pub fn new(operation: &'static str, file: impl Into<String>, error: &io::Error) -> Self {
        let (kind, message) = (error.kind(), error.to_string());
        Self { operation, file: file.into(), kind, message }
    }

    pub(crate) fn of(operation: &'static str, file: File, error: &io::Error) -> Self {
        Self::new(operation, file_name(file), error)
    }
}

/// A file's name in a folder, and in messages.
pub(crate) fn file_name(file: File) -> String {
    match file {
        File::Network => "network".into(),
        File::Headers => "headers".into(),
        File::Journal => "journal".into(),
        File::State => "state".into(),
        File::Filters(number) => format!("filters/{number:06}"),
        _ => "other".into(),
    }
}

/// A storage in memory: for tests, and for wallets that keep nothing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    files: Arc<Mutex<BTreeMap<File, Vec<u8>>>>,
}

impl Memory {
    /// An empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, does: impl FnOnce(&mut BTreeMap<File, Vec<u8>>) -> T) -> T {
        does(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage for Memory {
    fn load(&mut self) -> Result<Kept, StorageError> {
        Ok(self.with(|files| Kept {
            network: files.get(&File::Network).cloned(),
            headers: files.get(&File::Headers).cloned(),
            journal: files.get(&File::Journal).cloned(),
            state: files.get(&File::State).cloned(),
            filters: files
                .iter()
                .filter_map(|(file, bytes)| match file {
                    File::Filters(number) => Some((*number, bytes.len() as u64)),
                    _ => None,
                })
                .collect(),
        }))
    }

    fn write(&mut self, write: &Write) -> Result<(), StorageError> {
        self.with(|files| match write {
            Write::Append { file, at, bytes } => {
                let contents = files.entry(*file).or_default();
                contents.resize(usize::try_from(*at).unwrap_or(usize::MAX).min(contents.len()), 0);
                contents.extend(bytes);
            }
            Write::Replace { file, bytes } => drop(files.insert(*file, bytes.clone())),
            Write::Remove(file) => drop(files.remove(file)),
            _ => {}
        });
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    fn read(&mut self, file: File) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.with(|files| files.get(&file).cloned()))
    }
}

/// A folder that one client at a time writes to. Whenever it is killed, the next one goes on.
#[derive(Debug)]
pub struct Folder {
    /// The folder of what is one client's.
    path: PathBuf,
    /// The folder of what clients share: headers and the addresses of peers.
    shared: PathBuf,
    /// Held as long as the folder is.
    _lock: fs::File,
    /// Open files, and whether each has writes that are not durable.
    open: BTreeMap<File, (fs::File, bool)>,
    /// A file was made whose name is not durable.
    is_new: bool,
    /// Set once a write has failed: what a system reports once it need not report again.
    failed: Option<StorageError>,
}

impl Folder {
    /// Makes the folder if it is not there, and locks it.
    ///
    /// # Errors
    /// It cannot be made or written to, or another client uses it ([`ErrorKind::WouldBlock`]).
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        Self::open_both(path, path)
    }

    /// A folder by this name within `shared`, where headers and the addresses of peers are kept:
    /// clients that use different ones, one after the other, download headers once. Makes both
    /// folders if they are not there, and locks `shared`.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn open_within(shared: &Path, name: &str) -> Result<Self, StorageError> {
        Self::open_both(shared, &shared.join(name))
    }

    fn open_both(shared: &Path, path: &Path) -> Result<Self, StorageError> {
        let open = || {
            fs::create_dir_all(shared)?;
            OpenOptions::new().create(true).append(true).open(shared.join("lock"))
        };
        let lock = open()
            .map_err(|error| StorageError::new("open", shared.display().to_string(), &error))?;
        // Where files cannot be locked, none is.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let error = io::Error::new(ErrorKind::WouldBlock, "another process uses it");
            return Err(StorageError::new("lock", shared.display().to_string(), &error));
        }
        fs::create_dir_all(path.join("filters"))
            .map_err(|error| StorageError::new("open", path.display().to_string(), &error))?;
        Ok(Self {
            path: path.to_owned(),
            shared: shared.to_owned(),
            _lock: lock,
            open: BTreeMap::new(),
            is_new: false,
            failed: None,
        })
    }

    fn path(&self, file: File) -> PathBuf {
        let is_shared = matches!(file, File::Headers | File::Network);
        let folder = if is_shared { &self.shared } else { &self.path };
        folder.join(file_name(file))
    }

    fn append(&mut self, file: File, at: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(file);
        // Filters come by the thousand; few of their files are written to at a time.
        if matches!(file, File::Filters(_)) && !self.open.contains_key(&file) {
            self.open.retain(|other, _| !matches!(other, File::Filters(_)));
        }
        let (open, is_dirty) = match self.open.entry(file) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                self.is_new |= !path.exists();
                let new = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path)?;
                entry.insert((new, false))
            }
        };
        if open.metadata()?.len() != at {
            open.set_len(at)?;
        }
        open.seek(SeekFrom::Start(at))?;
        open.write_all(bytes)?;
        *is_dirty = true;
        Ok(())
    }

    fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_parent(path)
    }

    fn sync(&mut self) -> io::Result<()> {
        for (file, (open, is_dirty)) in &mut self.open {
            if *is_dirty && !matches!(file, File::Filters(_)) {
                open.sync_data()?;
                *is_dirty = false;
            }
        }
        if std::mem::take(&mut self.is_new) {
            // Their own names too, where they were made.
            for folder in [&self.path, &self.shared] {
                sync_parent(&folder.join("lock"))?;
                sync_parent(folder)?;
            }
        }
        Ok(())
    }

    /// After a failed write nothing more is written: a later one could rest on it.
    fn guard(&mut self, result: Result<(), StorageError>) -> Result<(), StorageError> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn check(&self) -> Result<(), StorageError> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

/// The bytes of a file; `None` if it is not there.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::new("read", path.display().to_string(), &error)),
    }
}

impl Storage for Folder {
    fn load(&mut self) -> Result<Kept, StorageError> {
        let mut filters = Vec::new();
        let folder = self.path.join("filters");
        let error =
            |error: &io::Error| StorageError::new("read", folder.display().to_string(), error);
        for entry in fs::read_dir(&folder).map_err(|e| error(&e))? {
            let entry = entry.map_err(|e| error(&e))?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(number), Ok(metadata)) = (number, entry.metadata()) {
                filters.push((number, metadata.len()));
            }
        }
        filters.sort_unstable();
        Ok(Kept {
            network: read(&self.path(File::Network))?,
            headers: read(&self.path(File::Headers))?,
            journal: read(&self.path(File::Journal))?,
            state: read(&self.path(File::State))?,
            filters,
        })
    }

    fn write(&mut self, write: &Write) -> Result<(), StorageError> {
        self.check()?;
        let result = match write {
            Write::Append { file, at, bytes } => self
                .append(*file, *at, bytes)
                .map_err(|error| StorageError::of("write", *file, &error)),
            Write::Replace { file, bytes } => self.commit().and_then(|()| {
                self.open.remove(file);
                let path = self.path(*file);
                Self::replace(&path, bytes)
                    .map_err(|error| StorageError::of("replace", *file, &error))
            }),
            Write::Remove(file) => {
                self.open.remove(file);
                match fs::remove_file(self.path(*file)) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        Err(StorageError::of("remove", *file, &error))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        };
        self.guard(result)
    }

    fn commit(&mut self) -> Result<(), StorageError> {
        self.check()?;
        let result =
            self.sync().map_err(|e| StorageError::new("sync", self.path.display().to_string(), &e));
        self.guard(result)
    }

    fn read(&mut self, file: File) -> Result<Option<Vec<u8>>, StorageError> {
        read(&self.path(file))
    }

    fn addresses(&mut self) -> Option<Vec<u8>> {
        fs::read(self.shared.join("addresses")).ok()
    }

    fn keep_addresses(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let path = self.shared.join("addresses");
        Self::replace(&path, bytes)
            .map_err(|e| StorageError::new("write", path.display().to_string(), &e))
    }
}

/// That a file has a name is written in its folder.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        // The working folder's path.
        Some(parent) if parent.as_os_str().is_empty() => sync_parent(&Path::new(".").join(path)),
        // Elsewhere folders are not files.
        Some(parent) if cfg!(unix) => fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

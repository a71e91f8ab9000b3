//! Storage of a client's state: a folder, or memory.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use chainsieve::btc::client::{File, StoredFiles, Write};
use thiserror::Error;

/// A storage of a client's files.
///
/// An implementation must carry out writes in order. [`commit`](Self::commit) makes all earlier
/// writes durable. Before a [`Write::Replace`] is carried out, all earlier writes must be durable
/// too. Block filters may be lost in a crash: stored filters only save downloads.
///
/// [`Builder::start`](crate::Builder::start) loads the state. After the state is loaded, only the
/// client's thread calls the methods, so a storage must be `Send`, but need not be `Sync`.
pub trait Storage: Send {
    /// Returns the state that an earlier run has stored.
    ///
    /// # Errors
    /// Returns an error if a file exists but cannot be read.
    fn load(&mut self) -> Result<StoredFiles, StorageError>;

    /// Carries out a write. The write need not be durable before the next
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    /// Returns an error if the write fails. The client then stops.
    fn write(&mut self, write: &Write) -> Result<(), StorageError>;

    /// Makes all earlier writes durable: these writes must survive a crash of the system.
    ///
    /// # Errors
    /// Returns an error if a write cannot be made durable. The client then stops.
    fn commit(&mut self) -> Result<(), StorageError>;

    /// Returns the contents of a file, or `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file exists but cannot be read.
    fn read(&mut self, file: File) -> Result<Option<Vec<u8>>, StorageError>;

    /// Returns the address book that an earlier run has stored, if any.
    ///
    /// Losing the address book loses nothing else: addresses are found again.
    fn addresses(&mut self) -> Option<Vec<u8>> {
        None
    }

    /// Stores the address book, and replaces the previous address book.
    ///
    /// # Errors
    /// Returns an error if the address book cannot be written. The client continues.
    fn keep_addresses(&mut self, _bytes: &[u8]) -> Result<(), StorageError> {
        Ok(())
    }
}

/// An error of a storage operation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{operation} {file}: {message}")]
#[non_exhaustive]
pub struct StorageError {
    /// The operation that failed: "read", "write", …
    pub operation: &'static str,
    /// Name or path of the file or folder.
    pub file: String,
    /// The kind of the system's error.
    pub kind: ErrorKind,
    /// The system's message.
    pub message: String,
}

impl StorageError {
    /// Creates an error from a system error, with the operation and the file.
    pub fn new(operation: &'static str, file: impl Into<String>, error: &io::Error) -> Self {
        let (kind, message) = (error.kind(), error.to_string());
        Self { operation, file: file.into(), kind, message }
    }

    pub(crate) fn of(operation: &'static str, file: File, error: &io::Error) -> Self {
        Self::new(operation, file_name(file), error)
    }
}

/// Returns the name of a file, as used in a folder and in messages.
pub(crate) fn file_name(file: File) -> String {
    match file {
        File::Network => "network".into(),
        File::Headers => "headers".into(),
        File::Journal => "journal".into(),
        File::DamagedJournal => "journal.damaged".into(),
        File::State => "state".into(),
        File::Filters(number) => format!("filters/{number:06}"),
        _ => "other".into(),
    }
}

/// A storage in memory, for tests and for wallets that store nothing. Clones share the contents.
///
/// Unlike a [`Folder`], it has no lock: two clients on clones overwrite the data of each other.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    files: Arc<Mutex<BTreeMap<File, Vec<u8>>>>,
}

impl Memory {
    /// Creates an empty storage.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, does: impl FnOnce(&mut BTreeMap<File, Vec<u8>>) -> T) -> T {
        does(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage for Memory {
    fn load(&mut self) -> Result<StoredFiles, StorageError> {
        Ok(self.with(|files| StoredFiles {
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

/// A storage in a folder, which one client at a time can use.
///
/// If the client is killed at any time, the next client continues from the state on disk.
#[derive(Debug)]
#[must_use = "dropping the folder releases its lock"]
pub struct Folder {
    /// Folder of the files that belong to one client.
    path: PathBuf,
    /// Folder of the files that clients share: headers, network and addresses of peers.
    shared: PathBuf,
    /// Lock of the shared folder, held until this storage is dropped.
    _lock: fs::File,
    /// Open files; `true` if the file has writes that are not durable.
    open: BTreeMap<File, (fs::File, bool)>,
    /// `true` if a file was created whose directory entry is not durable yet.
    is_new: bool,
    /// The first error of a write, kept because a system may report a failed write only once.
    failed: Option<StorageError>,
}

impl Folder {
    /// Opens and locks a folder. Creates the folder if it does not exist.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be created or written to, or if another client uses it
    /// ([`ErrorKind::WouldBlock`]).
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        Self::open_both(path, path)
    }

    /// Opens the folder `name` within the folder `shared`. The folder `shared` holds the headers
    /// and the addresses of peers.
    ///
    /// If several clients run one after the other, each with its own folder within `shared`, only
    /// the first client has to download all headers. Both folders are created if they do not exist.
    /// The folder `shared` is locked until this storage is dropped.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn open_within(shared: &Path, name: &str) -> Result<Self, StorageError> {
        Self::open_both(shared, &shared.join(name))
    }

    fn open_both(shared: &Path, path: &Path) -> Result<Self, StorageError> {
        let open = || {
            fs::create_dir_all(shared)?;
            OpenOptions::new().create(true).append(true).open(shared.join("lock"))
        };
        let lock = open().map_err(at("open", shared))?;
        // Other errors are ignored: on a file system without locks, the folder is used unlocked.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let error = io::Error::new(ErrorKind::WouldBlock, "another process uses this folder");
            return Err(at("lock", shared)(error));
        }
        fs::create_dir_all(path.join("filters")).map_err(at("open", path))?;
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
        // At most one file of filters stays open: each holds 1,000 filters, and a client writes to
        // few of them at a time. So the number of open files is bounded.
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
        // An earlier run may have left bytes after `at`, which the write must cut off.
        if open.metadata()?.len() != at {
            open.set_len(at)?;
        }
        open.seek(SeekFrom::Start(at))?;
        open.write_all(bytes)?;
        *is_dirty = true;
        Ok(())
    }

    /// Replaces a file so that a crash leaves the old or the new contents, never a mixture: the new
    /// contents are synced under another name, and then renamed.
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
            // Filters need not survive a crash, so their files are not synced.
            if *is_dirty && !matches!(file, File::Filters(_)) {
                open.sync_data()?;
                *is_dirty = false;
            }
        }
        // A synced file is still lost in a crash if its entry in the folder is not durable. So
        // after a file was created, sync the entries of the files in both folders, and the entries
        // of the folders in their parents: the folders may be new too.
        if std::mem::take(&mut self.is_new) {
            for folder in [&self.path, &self.shared] {
                sync_parent(&folder.join("lock"))?;
                sync_parent(folder)?;
            }
        }
        Ok(())
    }

    /// Remembers the error of a failed write. No further write is carried out, because a later
    /// write may depend on the failed write.
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

/// Reads a file, or returns `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at("read", path)(error)),
    }
}

/// Returns a function that converts a system error: it adds the operation and the path.
fn at(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> StorageError {
    move |error| StorageError::new(operation, path.display().to_string(), &error)
}

impl Storage for Folder {
    fn load(&mut self) -> Result<StoredFiles, StorageError> {
        let mut filters = Vec::new();
        let folder = self.path.join("filters");
        for entry in fs::read_dir(&folder).map_err(at("read", &folder))? {
            let entry = entry.map_err(at("read", &folder))?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let (Some(number), Ok(metadata)) = (number, entry.metadata()) {
                filters.push((number, metadata.len()));
            }
        }
        filters.sort_unstable();
        Ok(StoredFiles {
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
            // The replaced file may depend on earlier writes, so these must be durable first.
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
        let result = self.sync().map_err(at("sync", &self.path));
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
        Self::replace(&path, bytes).map_err(at("write", &path))
    }
}

/// Makes the directory entry of a file durable, by a sync of its folder.
fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        // A relative path of one component has an empty parent, which means the working folder.
        Some(parent) if parent.as_os_str().is_empty() => sync_parent(&Path::new(".").join(path)),
        // Only on Unix can a folder be opened and synced like a file.
        Some(parent) if cfg!(unix) => fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

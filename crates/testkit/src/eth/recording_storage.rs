//! An in-memory folder that records all operations, fails on request, and computes the contents
//! that may be left after a power failure.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chainsieve::eth::index::{Append, FileKind, ReadAt, Storage, WriteStorage};

use crate::Rng;

type FileId = usize;

/// A recorded operation. If a name is created again, it links to a new file.
#[derive(Debug, Clone)]
enum Op {
    Link(String, FileId),
    Unlink(String),
    Append(FileId, Arc<[u8]>),
    Sync(FileId),
    /// A failed sync: readers see the appended data, but it never becomes durable.
    Lost(FileId),
    SyncNames,
}

/// Files, and the names that link to them.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    names: BTreeMap<String, FileId>,
    files: Vec<Arc<Vec<u8>>>,
}

impl Disk {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Returns the names of the files with this extension.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = &str> {
        self.names().filter(move |name| {
            std::path::Path::new(name).extension().is_some_and(|found| found == extension)
        })
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.names.get(name).map(|&file| &self.files[file][..])
    }

    pub fn put(&mut self, name: &str, bytes: Vec<u8>) {
        self.files.push(Arc::new(bytes));
        self.names.insert(name.into(), self.files.len() - 1);
    }

    pub fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    fn name(&mut self, op: &Op) {
        match op {
            Op::Link(name, file) => drop(self.names.insert(name.clone(), *file)),
            Op::Unlink(name) => drop(self.names.remove(name)),
            _ => {}
        }
    }
}

/// A simulated failure of the storage.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// Number of the storage call that fails, from 0.
    pub call: usize,
    /// `true` if all later calls fail too.
    pub forever: bool,
    /// If the call is a write, this many 256ths of its bytes are written nevertheless.
    pub written: usize,
}

#[derive(Debug, Default)]
struct State {
    start: Disk,
    now: Disk,
    log: Vec<Op>,
    locked: bool,
    failure: Option<Failure>,
    /// The calls so far: method, and name of the file.
    calls: Vec<(&'static str, String)>,
}

impl State {
    /// Records a call, and returns an error if it is to fail.
    fn call(&mut self, what: &'static str, name: &str) -> io::Result<()> {
        let call = self.calls.len();
        self.calls.push((what, name.into()));
        match self.failure {
            Some(failure) if call == failure.call || call > failure.call && failure.forever => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn name_of(&self, file: FileId) -> String {
        let name = self.now.names.iter().find(|(_, named)| **named == file);
        name.map(|(name, _)| name.clone()).unwrap_or_default()
    }

    fn apply(&mut self, op: Op) {
        self.now.name(&op);
        if let Op::Append(file, bytes) = &op {
            Arc::make_mut(&mut self.now.files[*file]).extend_from_slice(bytes);
        }
        self.log.push(op);
    }
}

/// The recording folder.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
    slices: bool,
}

impl Recorder {
    /// Returns a folder with these files, all durable.
    pub fn of(disk: &Disk) -> Self {
        let state = State { start: disk.clone(), now: disk.clone(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), slices: false }
    }

    /// Returns the same folder. If `slices` is `true`, sealed files are read as slices.
    #[must_use]
    pub fn read_as_slices(&self, slices: bool) -> Self {
        Self { state: Arc::clone(&self.state), slices }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of operations so far.
    pub fn done(&self) -> usize {
        self.state().log.len()
    }

    /// Returns the calls so far: method, and name of the file.
    pub fn calls(&self) -> Vec<(&'static str, String)> {
        self.state().calls.clone()
    }

    pub fn fail(&self, failure: Option<Failure>) {
        self.state().failure = failure;
    }

    /// Returns the files as a running process sees them.
    pub fn now(&self) -> Disk {
        self.state().now.clone()
    }

    /// Returns the states that a power failure after `done` operations may leave. If there are at
    /// most `limit` states, returns all of them, otherwise `limit` states that `rng` chooses.
    pub fn crashes(&self, done: usize, limit: usize, rng: &mut Rng) -> Vec<Disk> {
        let state = self.state();
        let mut disk = state.start.clone();
        let mut files: Vec<_> = disk.files.iter().map(Volatile::durable).collect();
        let mut names = Vec::new();
        for op in &state.log[..done] {
            match op {
                Op::Link(_, file) => {
                    if *file == files.len() {
                        files.push(Volatile::default());
                    }
                    names.push(op);
                }
                Op::Unlink(_) => names.push(op),
                Op::Append(file, bytes) => files[*file].unsynced.push((bytes.clone(), true)),
                Op::Sync(file) => files[*file].sync(),
                Op::Lost(file) => files[*file].unsynced.iter_mut().for_each(|part| part.1 = false),
                Op::SyncNames => names.drain(..).for_each(|op| disk.name(op)),
            }
        }
        let counts: Vec<_> = files.iter().map(Volatile::count).collect();
        let all = counts
            .iter()
            .fold(1_usize << names.len().min(30), |all, &count| all.saturating_mul(count));
        let choices = if all <= limit { all } else { limit };
        let choose = |choice: usize| {
            let mut disk = disk.clone();
            let mut index = match choice {
                _ if all <= limit => choice,
                0 => 0,                      // no unsynced name, no unsynced contents
                1 => (1 << names.len()) - 1, // all unsynced names, no unsynced contents
                _ => rng.below(all),
            };
            for (bit, op) in names.iter().enumerate() {
                if index >> bit & 1 != 0 {
                    disk.name(op);
                }
            }
            index >>= names.len();
            disk.files.clear();
            for (file, count) in files.iter().zip(&counts) {
                disk.files.push(file.variant(index % count, choice as u64));
                index /= count;
            }
            disk
        };
        (0..choices).map(choose).collect()
    }
}

/// A file, with the writes that are not durable yet.
#[derive(Debug, Default)]
struct Volatile {
    durable: Arc<Vec<u8>>,
    /// Each write that is not durable yet, and `true` if a later sync makes it durable.
    unsynced: Vec<(Arc<[u8]>, bool)>,
}

/// Cut positions in bytes. Most are at or next to the size of a slot, the size of the header before
/// the slots, or sums of these sizes.
const CUTS: [usize; 11] = [1, 12, 95, 96, 97, 327, 328, 329, 96 + 328, 2 * 328, 512];
/// Number of variants of the bytes after a cut: no bytes, zeros, or garbage.
const BEHIND: usize = 3;
/// Number of variants in which some sectors were written and others were not.
const SECTORS: usize = 6;

impl Volatile {
    fn durable(bytes: &Arc<Vec<u8>>) -> Self {
        Self { durable: Arc::clone(bytes), unsynced: Vec::new() }
    }

    fn sync(&mut self) {
        if self.unsynced.is_empty() {
            return;
        }
        let mut durable = Arc::unwrap_or_clone(core::mem::take(&mut self.durable));
        let mut unsynced = Vec::new();
        for (bytes, writes) in self.unsynced.drain(..) {
            if writes && unsynced.is_empty() {
                durable.extend_from_slice(&bytes);
            } else {
                unsynced.push((bytes, false));
            }
        }
        self.durable = Arc::new(durable);
        self.unsynced = unsynced;
    }

    fn masks(&self) -> usize {
        1 << self.unsynced.len().min(6)
    }

    /// Returns the number of variants of the file that a power failure may leave.
    fn count(&self) -> usize {
        if self.unsynced.is_empty() { 1 } else { self.masks() + CUTS.len() * 2 * BEHIND + SECTORS }
    }

    fn variant(&self, variant: usize, seed: u64) -> Arc<Vec<u8>> {
        if self.unsynced.is_empty() || variant == 0 {
            return Arc::clone(&self.durable);
        }
        let mut rng = Rng::new(seed ^ 0xc4a5);
        let mut bytes = Vec::clone(&self.durable);
        let all: Vec<u8> = self.unsynced.iter().flat_map(|part| part.0.iter().copied()).collect();
        if let Some(cut) = variant.checked_sub(self.masks() + SECTORS) {
            // The cut is near the start of the unsynced bytes, or near their end.
            let (behind, cut) = (cut % BEHIND, cut / BEHIND);
            let (back, cut) = (cut % 2 == 1, CUTS[cut / 2].min(all.len()));
            let at = if back { all.len() - cut } else { cut };
            bytes.extend_from_slice(&all[..at]);
            match behind {
                0 => {}
                1 => bytes.resize(bytes.len() + all.len() - at, 0),
                _ => bytes.extend(rng.bytes(all.len() - at)),
            }
        } else if let Some(way) = variant.checked_sub(self.masks()) {
            for sector in all.chunks(512) {
                match rng.below(2) {
                    0 => bytes.extend_from_slice(sector),
                    _ if way % 2 == 0 => bytes.resize(bytes.len() + sector.len(), 0),
                    _ => bytes.extend(rng.bytes(sector.len())),
                }
            }
        } else {
            let mut end = bytes.len();
            for (number, (part, _)) in self.unsynced.iter().enumerate() {
                let there = variant >> number.min(5) & 1 != 0;
                if there {
                    bytes.extend_from_slice(part);
                    end = bytes.len();
                } else {
                    bytes.resize(bytes.len() + part.len(), 0);
                }
            }
            bytes.truncate(end);
        }
        Arc::new(bytes)
    }
}

/// A file opened for reading.
#[derive(Debug)]
pub struct Reading(Recorder, FileId, Option<Arc<Vec<u8>>>);

impl ReadAt for Reading {
    fn length(&self) -> io::Result<u64> {
        let mut state = self.0.state();
        let name = state.name_of(self.1);
        state.call("length", &name)?;
        Ok(state.now.files[self.1].len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.0.state();
        let name = state.name_of(self.1);
        state.call("read", &name)?;
        state.now.files[self.1].read_exact_at(buffer, offset)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        self.2.as_ref().map(|bytes| &bytes[..])
    }
}

impl Storage for Recorder {
    type File = Reading;

    fn open(&self, name: &str, kind: FileKind) -> io::Result<Reading> {
        let mut state = self.state();
        state.call("open", name)?;
        let file = *state.now.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let slice =
            (self.slices && kind == FileKind::Sealed).then(|| state.now.files[file].clone());
        Ok(Reading(self.clone(), file, slice))
    }
}

/// A file opened for appending.
#[derive(Debug)]
pub struct Appending(Recorder, FileId);

impl Append for Appending {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.state();
        let name = state.name_of(self.1);
        let result = state.call("append", &name);
        let written = match (&result, state.failure) {
            (Err(_), Some(failure)) => bytes.len() * failure.written / 256,
            _ => bytes.len(),
        };
        if written > 0 {
            state.apply(Op::Append(self.1, bytes[..written].into()));
        }
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.state();
        let name = state.name_of(self.1);
        let result = state.call("sync", &name);
        state.apply(if result.is_ok() { Op::Sync(self.1) } else { Op::Lost(self.1) });
        result
    }
}

/// The lock of the folder, which is released on drop.
#[derive(Debug)]
pub struct Held(Recorder);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl WriteStorage for Recorder {
    type Appender = Appending;
    type Lock = Held;

    fn lock(&self) -> io::Result<Held> {
        let mut state = self.state();
        state.call("lock", "lock")?;
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Held(self.clone()))
    }

    fn create(&self, name: &str) -> io::Result<Appending> {
        let mut state = self.state();
        state.call("create", name)?;
        if state.now.names.contains_key(name) {
            state.apply(Op::Unlink(name.into()));
        }
        let file = state.now.files.len();
        state.now.files.push(Arc::default());
        state.apply(Op::Link(name.into(), file));
        Ok(Appending(self.clone(), file))
    }

    fn append_to(&self, name: &str) -> io::Result<Appending> {
        let mut state = self.state();
        state.call("append_to", name)?;
        let file = *state.now.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Appending(self.clone(), file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call("rename", from)?;
        let file = *state.now.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.apply(Op::Link(to.into(), file));
        state.apply(Op::Unlink(from.into()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.call("remove", name)?;
        if !state.now.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.apply(Op::Unlink(name.into()));
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.call("names", "")?;
        Ok(state.now.names.keys().cloned().collect())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.call("sync_names", "")?;
        state.apply(Op::SyncNames);
        Ok(())
    }
}

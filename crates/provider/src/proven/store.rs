//! Proven headers, receipts and transactions on disk, found by their hash or root.
//!
//! Nothing on disk is trusted: whoever reads from the store computes the root of what was read.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use chainsieve::alloy_primitives::{B256, Bytes};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};

/// Name of the file in the folder.
const FILE: &str = "blocks.redb";
/// The RLP list of encodings, by kind and root.
const VALUES: TableDefinition<'_, [u8; 33], &[u8]> = TableDefinition::new("values");
/// Kind, root and length of each value, by its age.
const AGES: TableDefinition<'_, u64, ([u8; 33], u64)> = TableDefinition::new("ages");
/// Number of values that may wait to be written. Further ones are not stored.
const WAITING: usize = 256;
/// Memory of the database for pages.
const CACHE: usize = 16 << 20;

/// What a value in the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Receipts = 1,
    Transactions = 2,
    /// One header, by its hash.
    Header = 3,
}

/// The store. It is written by one thread, so that nobody waits for the disk.
#[derive(Debug)]
pub(crate) struct Store {
    database: Arc<Database>,
    /// `None` only while the store is dropped.
    waiting: Option<SyncSender<Value>>,
    writer: Option<JoinHandle<()>>,
}

/// Writes what waits, and closes the file.
impl Drop for Store {
    fn drop(&mut self) {
        self.waiting = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[derive(Debug)]
struct Value {
    key: [u8; 33],
    rlp: Vec<u8>,
}

fn key(kind: Kind, root: B256) -> [u8; 33] {
    let mut key = [kind as u8; 33];
    key[1..].copy_from_slice(root.as_slice());
    key
}

impl Store {
    /// Opens the store in a folder, or creates it. `limit` is the maximum number of bytes of all
    /// values; the oldest ones are removed first.
    pub(crate) fn open(folder: &Path, limit: u64) -> Result<Self, String> {
        let path = folder.join(FILE);
        let failed = |error: redb::Error| format!("{}: {error}", path.display());
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE);
        let database = builder.create(&path).map_err(|error| failed(error.into()))?;
        let database = Arc::new(database);
        let size = create_tables(&database).map_err(failed)?;
        let (waiting, values) = mpsc::sync_channel(WAITING);
        let writer = Writer { database: Arc::clone(&database), limit, size };
        let thread = thread::Builder::new().name("chainsieve-store".into());
        let writer = thread.spawn(move || writer.run(&values));
        let writer = writer.map_err(|error| failed(redb::Error::Io(error)))?;
        Ok(Self { database, waiting: Some(waiting), writer: Some(writer) })
    }

    /// Returns the encodings that were stored under a root; `None` if there are none, or if they
    /// cannot be read.
    pub(crate) fn get(&self, kind: Kind, root: B256) -> Option<Vec<Vec<u8>>> {
        let read = self.database.begin_read().ok()?;
        let values = read.open_table(VALUES).ok()?;
        let value = values.get(key(kind, root)).ok()??;
        let encodings: Vec<Bytes> = alloy_rlp::Decodable::decode(&mut value.value()).ok()?;
        Some(encodings.into_iter().map(|encoding| encoding.to_vec()).collect())
    }

    /// Stores encodings under their root, soon. If too many wait already, they are not stored.
    pub(crate) fn put(&self, kind: Kind, root: B256, encodings: &[Bytes]) {
        let mut rlp = Vec::new();
        alloy_rlp::encode_list::<_, Bytes>(encodings, &mut rlp);
        let value = Value { key: key(kind, root), rlp };
        if let Some(waiting) = &self.waiting {
            // What does not fit is fetched again when it is needed.
            let _ = waiting.try_send(value);
        }
    }
}

/// Creates what is missing, and returns the number of bytes of all values.
fn create_tables(database: &Database) -> Result<u64, redb::Error> {
    let write = database.begin_write()?;
    let mut size = 0;
    {
        write.open_table(VALUES)?;
        let ages = write.open_table(AGES)?;
        for entry in ages.iter()? {
            size += entry?.1.value().1;
        }
    }
    write.commit()?;
    Ok(size)
}

struct Writer {
    database: Arc<Database>,
    limit: u64,
    size: u64,
}

impl Writer {
    fn run(mut self, values: &mpsc::Receiver<Value>) {
        while let Ok(first) = values.recv() {
            // What has come meanwhile is written together.
            let batch: Vec<Value> = std::iter::once(first).chain(values.try_iter()).collect();
            // What could not be written is fetched again when it is needed.
            if let Ok(size) = self.write(&batch) {
                self.size = size;
            }
        }
    }

    fn write(&self, batch: &[Value]) -> Result<u64, redb::Error> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        let mut size = self.size;
        {
            let mut values = write.open_table(VALUES)?;
            let mut ages = write.open_table(AGES)?;
            let mut next = ages.last()?.map_or(0, |(age, _)| age.value() + 1);
            for Value { key, rlp } in batch {
                let length = rlp.len() as u64;
                if length > self.limit || values.insert(key, &rlp[..])?.is_some() {
                    continue;
                }
                ages.insert(next, (*key, length))?;
                next += 1;
                size += length;
            }
            while size > self.limit {
                let Some((_, oldest)) = ages.pop_first()? else { break };
                let (key, length) = oldest.value();
                values.remove(key)?;
                size = size.saturating_sub(length);
            }
        }
        write.commit()?;
        Ok(size)
    }
}

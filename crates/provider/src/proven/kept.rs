//! What is kept of blocks: in memory, where one budget is divided among it, and on disk, found by its hash or root.
//! Work that is done once for all that ask for it at the same time.
//!
//! Nothing on disk is trusted: each reader computes the root of the data that it read.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use chainsieve::alloy_primitives::{B256, Bytes};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use redb::{Database, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::stop::lock;

/// The shares of a budget in bytes.
///
/// Receipts get the largest share, because every query for logs needs them. A body is needed for whole
/// blocks, and for the hashes of transactions. These hashes have a share of their own: logs need no other
/// part of a body, and the hashes of a block take a tenth of the space of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) receipts: u64,
    pub(super) bodies: u64,
    pub(super) hashes: u64,
    pub(super) headers: u64,
    pub(super) places: u64,
}

impl Shares {
    pub(super) const fn of(budget: u64) -> Self {
        let sixteenth = budget / 16;
        Self {
            receipts: budget - 7 * sixteenth,
            bodies: 4 * sixteenth,
            hashes: sixteenth,
            headers: sixteenth,
            places: sixteenth,
        }
    }
}

/// Approximate number of bytes that a value takes in memory.
pub(super) trait Size {
    fn size(&self) -> u64;
}

/// Weighs values by their size.
#[derive(Debug, Clone)]
pub(super) struct BySize;

/// Approximate number of bytes of a key and of the links of the cache.
const ENTRY: u64 = 100;

impl<K, V: Size> Weighter<K, V> for BySize {
    fn weight(&self, _: &K, value: &V) -> u64 {
        value.size() + ENTRY
    }
}

/// Values of one kind in memory, up to a number of bytes. Values that are not used are removed
/// first.
pub(super) type Kept<K, V> = Cache<K, V, BySize>;

/// Number of values for which a cache is laid out. A cache keeps more values if they are small.
const ESTIMATED: usize = 4096;

/// Creates a cache for values of at most `bytes` together.
pub(super) fn kept<K: Eq + Hash, V: Size + Clone>(bytes: u64) -> Kept<K, V> {
    // In one piece: of several, each would have a part of the budget, and a large block fits into none.
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(ESTIMATED)
        .weight_capacity(bytes)
        .build()
        .expect("both capacities are set");
    let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
    Cache::with_options(options, BySize, hasher, lifecycle)
}

/// Work in progress, by the key of its result.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    open: Mutex<HashMap<K, Arc<OnceLock<V>>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default() }
    }

    /// Returns the result of `work`. If another thread does the same work now, its result is awaited
    /// instead.
    pub(crate) fn run(&self, key: &K, work: impl FnOnce() -> V) -> V {
        let flight = Arc::clone(lock(&self.open).entry(key.clone()).or_default());
        let value = flight.get_or_init(work).clone();
        let mut open = lock(&self.open);
        if open.get(key).is_some_and(|now| Arc::ptr_eq(now, &flight)) {
            open.remove(key);
        }
        value
    }
}

impl Size for B256 {
    fn size(&self) -> u64 {
        32
    }
}

/// The block of each transaction that was found, by the hash of the transaction. A block may have left the
/// chain since then: the caller must check that.
#[derive(Debug)]
pub(crate) struct Places(Kept<B256, B256>);

impl Places {
    pub(super) fn new(bytes: u64) -> Self {
        Self(kept(bytes))
    }

    pub(crate) fn get(&self, transaction: B256) -> Option<B256> {
        self.0.get(&transaction)
    }

    pub(crate) fn set(&self, transaction: B256, block: B256) {
        self.0.insert(transaction, block);
    }
}

/// Name of the file in the folder.
const FILE: &str = "blocks.redb";
/// The RLP list of encodings, by kind and root.
const VALUES: TableDefinition<'_, [u8; 33], &[u8]> = TableDefinition::new("values");
/// Kind, root and length of each value, by its age.
const AGES: TableDefinition<'_, u64, ([u8; 33], u64)> = TableDefinition::new("ages");
/// Maximum number of values that wait to be written. Further values are not stored.
const WAITING: usize = 256;
/// Memory of the database for pages.
const CACHE: usize = 16 << 20;

/// The kind of a value in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Receipts = 1,
    Transactions = 2,
    /// One header, by its hash.
    Header = 3,
}

/// Calls the database, and turns its panics into errors. On a truncated or overwritten file, assertions of
/// the database fail, in later calls too: then nothing can be read or written, but the program continues.
fn guarded<T>(call: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(redb::Error::DatabaseAlreadyOpen)) => Err("another process uses this file".into()),
        Ok(Err(redb::Error::Io(error))) if error.kind() != ErrorKind::InvalidData => {
            Err(error.to_string())
        }
        Ok(Err(redb::Error::Io(_))) | Err(_) => {
            Err("the file is damaged: remove the file, and its blocks will be fetched again".into())
        }
        Ok(Err(error)) => Err(error.to_string()),
    }
}

/// The store. One thread writes to it, so that no caller waits for the disk.
#[derive(Debug)]
pub(crate) struct Store {
    /// `None` only while the store is dropped, like the next two members.
    database: Option<Arc<Database>>,
    waiting: Option<SyncSender<Value>>,
    writer: Option<JoinHandle<()>>,
}

/// Writes the queued values, and closes the file.
impl Drop for Store {
    fn drop(&mut self) {
        self.waiting = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        let database = self.database.take();
        let _ = guarded(|| {
            drop(database);
            Ok(())
        });
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
    /// values. If they exceed it, the oldest values are removed first.
    pub(crate) fn open(folder: &Path, limit: u64) -> Result<Self, String> {
        let path = folder.join(FILE);
        let failed = |error: String| format!("{}: {error}", path.display());
        let opened = guarded(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE);
            let database = builder.create(&path)?;
            let size = create_tables(&database)?;
            Ok((Arc::new(database), size))
        });
        let (database, size) = opened.map_err(failed)?;
        let (waiting, values) = mpsc::sync_channel(WAITING);
        let writer = Writer { database: Arc::clone(&database), limit, size };
        let thread = thread::Builder::new().name("chainsieve-store".into());
        let writer = thread.spawn(move || writer.run(&values));
        let writer = writer.map_err(|error| failed(error.to_string()))?;
        Ok(Self { database: Some(database), waiting: Some(waiting), writer: Some(writer) })
    }

    /// Returns the encodings that were stored under a root; `None` if there are none, or if they
    /// cannot be read.
    pub(crate) fn get(&self, kind: Kind, root: B256) -> Option<Vec<Vec<u8>>> {
        let database = self.database.as_ref()?;
        let value = guarded(|| {
            let values = database.begin_read()?.open_table(VALUES)?;
            Ok(values.get(key(kind, root))?.map(|value| value.value().to_vec()))
        });
        let encodings: Vec<Bytes> = alloy_rlp::Decodable::decode(&mut &value.ok()??[..]).ok()?;
        Some(encodings.into_iter().map(|encoding| encoding.to_vec()).collect())
    }

    /// Queues encodings to be stored under their root. If the queue is full, the encodings are not
    /// stored.
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

/// Creates missing tables, and returns the number of bytes of all values.
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
            if let Ok(size) = guarded(|| self.write(&batch)) {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_shares_are_the_budget() {
        for budget in [0, 1, 15, 16, 1000, 256 << 20] {
            let Shares { receipts, bodies, hashes, headers, places } = Shares::of(budget);
            assert_eq!(receipts + bodies + hashes + headers + places, budget);
        }
    }

    #[test]
    fn all_that_ask_together_get_one_result() {
        let (flights, count) = (Flights::new(), AtomicU32::new(0));
        let waiting = || lock(&flights.open).get(&7).map_or(0, Arc::strong_count);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.run(&7, || {
                    // The map and eight others hold it beside this one.
                    while waiting() < 10 {
                        thread::yield_now();
                    }
                    count.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            while waiting() < 2 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| flights.run(&7, || panic!("the first one is at work"))))
                .collect();
            assert_eq!(first.join().expect("no panic"), 1);
            for other in others {
                assert_eq!(other.join().expect("no panic"), 1);
            }
        });
        // Later, the work is done again.
        assert_eq!(flights.run(&7, || 2), 2);
    }

    fn key_of(byte: u8) -> B256 {
        B256::repeat_byte(byte)
    }

    /// Opens the store, and reads and writes. Returns what it has under the first root.
    fn used(folder: &Path) -> Result<Option<Vec<Vec<u8>>>, String> {
        let store = Store::open(folder, 1 << 20)?;
        let found = store.get(Kind::Receipts, key_of(1));
        for byte in 1..40 {
            store.get(Kind::Receipts, key_of(byte));
        }
        store.put(Kind::Receipts, key_of(77), &[vec![7; 50_000].into()]);
        drop(store);
        Ok(found)
    }

    #[test]
    fn a_damaged_file_is_an_error_or_has_what_can_still_be_read() {
        let folder = std::env::temp_dir().join(format!("chainsieve-store-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let store = Store::open(&folder, 1 << 20).expect("a new file");
        for byte in 1..40 {
            store.put(Kind::Receipts, key_of(byte), &[vec![byte; 9_000].into()]);
        }
        drop(store);
        let path = folder.join(FILE);
        let whole = fs::read(&path).expect("a file");
        assert_eq!(used(&folder).expect("it opens"), Some(vec![vec![1; 9_000]]));

        let (mut refused, mut opened) = (0, 0);
        let mut use_damaged = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            match used(&folder) {
                Ok(_) => opened += 1,
                Err(why) => {
                    assert!(why.contains(FILE), "{why}");
                    refused += 1;
                }
            }
        };
        let length = whole.len();
        for end in [
            1,
            8,
            9,
            63,
            64,
            319,
            320,
            4_095,
            4_096,
            100_000,
            length / 2,
            length - 4_096,
            length - 1,
        ] {
            use_damaged(&whole[..end]);
        }
        let seeds = 0..60_u64;
        for seed in seeds {
            let mut bytes = whole.clone();
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for _ in 0..=seed % 8 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Half of the damage is in the header and the first pages.
                let room = if seed % 2 == 0 { 8_192 } else { length };
                let at = usize::try_from(state >> 8).expect("64 bits") % room;
                bytes[at] ^= state.to_le_bytes()[7] | 1;
            }
            use_damaged(&bytes);
        }
        assert!(refused > 5 && opened > 5, "{refused} refused, {opened} opened");
        fs::remove_dir_all(&folder).expect("removed");
    }
}

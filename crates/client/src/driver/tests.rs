//! Tests of the client's thread: slow readers, failing storages, dropped clients.

mod clocks;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::{Block, ScriptBuf, Txid};
use chainsieve::btc::client::{Birthday, Config, Item, News, StoredFiles, Wallet, Write};

use super::*;
use crate::peers::book::AddressBook;
use crate::peers::frame::{read_message, write_message};
use crate::peers::pool::PoolConfig;
use crate::testnode::Node;
use crate::{Builder, Client, Memory, Network};

/// Timeout of each wait: long enough for slow machines. A test that passes does not reach it.
const LIMIT: Duration = Duration::from_secs(2 * 60);

fn script() -> ScriptBuf {
    [&[0, 20][..], &[1; 20]].concat().into()
}

fn wallet() -> Wallet {
    Wallet::new(Birthday::Height(0), vec![Item::Script(script())])
}

fn builder(node: &Node) -> Builder {
    Builder::new(Network::Regtest).peer(node.address().to_string())
}

fn paying(count: usize) -> (Node, Vec<Block>) {
    let node = Node::regtest().unwrap();
    let blocks = node.mine_many(&script(), count);
    (node, blocks)
}

fn txids(blocks: &[Block]) -> Vec<Txid> {
    blocks.iter().map(|block| block.txdata[0].compute_txid()).collect()
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < LIMIT, "timeout: the condition is still false");
        thread::yield_now();
    }
}

/// Waits until `count` hits were found and every update has left the machine.
fn wait_for_hits(client: &Client, count: usize) {
    wait_until(|| {
        let done = client.query(move |machine, _| {
            machine.hits(&"w".into()).count() == count && machine.waiting_updates() == 0
        });
        done.unwrap()
    });
}

/// Waits until the machine has passed on more than `capacity` updates after update `read`: from
/// then on the client reads nothing from its peers.
fn wait_for_stall(client: &Client, read: u64, capacity: u64) {
    wait_until(|| {
        let stalls = client.query(move |machine, _| {
            machine.last_update().0 > read + capacity && machine.waiting_updates() == 0
        });
        stalls.unwrap()
    });
}

/// Returns the txid of each hit, with `true` if the hit was delivered again.
fn hits(updates: impl IntoIterator<Item = Update>) -> Vec<(Txid, bool)> {
    let hit = |update: Update| match update.news {
        News::Hit(hit) => Some((hit.txid, update.again)),
        _ => None,
    };
    updates.into_iter().filter_map(hit).collect()
}

/// A function that is called before each read. If it fails, the read fails.
type OnRead = Arc<dyn Fn(File) -> Result<(), StorageError> + Send + Sync>;

/// A storage in memory that records which writes are durable.
#[derive(Clone, Default)]
struct Hooked {
    files: Memory,
    /// The contents that are durable.
    durable: Memory,
    writes: Arc<Mutex<Vec<Write>>>,
    on_read: Option<OnRead>,
}

impl Storage for Hooked {
    fn load(&mut self) -> Result<StoredFiles, StorageError> {
        self.files.load()
    }

    fn write(&mut self, write: &Write) -> Result<(), StorageError> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write.clone());
        self.files.write(write)
    }

    fn commit(&mut self) -> Result<(), StorageError> {
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.drain(..).try_for_each(|write| self.durable.write(&write))
    }

    fn read(&mut self, file: File) -> Result<Option<Vec<u8>>, StorageError> {
        self.on_read.as_ref().map_or(Ok(()), |hook| hook(file))?;
        self.files.read(file)
    }
}

#[test]
fn a_block_comes_to_a_reader_that_has_read_nothing() {
    let (node, blocks) = paying(60);
    let client = builder(&node).max_updates(1).wallet("w", wallet()).start().unwrap();
    wait_for_stall(&client, 0, 1);
    let client = Arc::new(client);
    let (sender, result) = sync_channel(1);
    let (asking, hash) = (Arc::clone(&client), blocks[7].block_hash());
    thread::spawn(move || sender.send(asking.block(hash)).unwrap());
    assert_eq!(result.recv_timeout(LIMIT).unwrap().unwrap(), blocks[7]);
    // The updates that were queued while the caller waited for the block are not lost.
    let found = hits(client.updates().take_while(|it| !matches!(it.news, News::CaughtUp(_))));
    assert_eq!(found, txids(&blocks).into_iter().map(|txid| (txid, false)).collect::<Vec<_>>());
}

#[test]
fn what_a_slow_reader_acknowledges_becomes_durable() {
    let (node, _) = paying(60);
    let storage = Hooked::default();
    let client = builder(&node).storage(storage.clone()).max_updates(1).wallet("w", wallet());
    let client = client.start().unwrap();
    let is_hit = |update: &Update| matches!(update.news, News::Hit(_));
    let read: Vec<_> = client.updates().filter(is_hit).take(5).collect();
    wait_for_stall(&client, read[4].id.0, 1);
    for update in &read {
        client.acknowledge(update);
    }
    let read = hits(read);
    // An answer to this query shows that the acknowledgements before it were processed.
    client.status().unwrap();
    wait_until(|| storage.writes.lock().unwrap().is_empty());
    // A kill leaves only the durable contents.
    let left = Memory::new();
    for file in [File::Headers, File::Journal, File::State] {
        if let Some(bytes) = storage.durable.clone().read(file).unwrap() {
            left.clone().write(&Write::Replace { file, bytes }).unwrap();
        }
    }
    client.shutdown().unwrap();
    let next = builder(&node).storage(left).wallet("w", wallet()).start().unwrap();
    let again = hits(next.updates().take_while(|it| !matches!(it.news, News::CaughtUp(_))));
    assert_eq!(again.len(), 55);
    assert!(again.iter().all(|(txid, _)| read.iter().all(|(other, _)| other != txid)));
}

/// Returns a storage with the filters of all blocks. The next client does not have them in memory.
fn with_filters(build: &dyn Fn(Hooked) -> Builder) -> Hooked {
    let storage = Hooked::default();
    let client = build(storage.clone()).wallet("other", wallet()).start().unwrap();
    client.updates().find(|update| matches!(update.news, News::CaughtUp(_))).unwrap();
    client.shutdown().unwrap();
    storage
}

#[test]
fn commands_are_taken_between_files_of_filters() {
    let (node, _) = paying(5);
    let reads = Arc::new(AtomicUsize::new(0));
    let (begun, wait_begun) = sync_channel::<()>(1);
    let (asked, wait_asked): (SyncSender<()>, Receiver<()>) = sync_channel(1);
    let (count, wait_asked) = (Arc::clone(&reads), Mutex::new(wait_asked));
    let on_read = move |_| {
        if count.fetch_add(1, Ordering::AcqRel) == 0 {
            begun.send(()).unwrap();
            wait_asked.lock().unwrap().recv_timeout(LIMIT).unwrap();
        }
        Ok(())
    };
    let build = |storage| builder(&node).keep_filters(1 << 20).storage(storage);
    let storage = with_filters(&build);
    let storage = Hooked { on_read: Some(Arc::new(on_read)), ..storage };
    let client = build(storage).wallet("other", wallet()).start().unwrap();
    let mut updates = client.updates();
    updates.find(|update| matches!(update.news, News::CaughtUp(_))).unwrap();
    // A rescan from height 0 reads two files, because the filter of the genesis block has a file of
    // its own.
    client.rescan(0).unwrap();
    wait_begun.recv_timeout(LIMIT).unwrap();
    let (sender, answer) = sync_channel(1);
    let seen = Arc::clone(&reads);
    let query = move |_: &LightClient, _: &Pool| sender.send(seen.load(Ordering::Acquire)).unwrap();
    client.shared.command(Command::Query(Box::new(query))).unwrap();
    asked.send(()).unwrap();
    assert_eq!(answer.recv_timeout(LIMIT).unwrap(), 1);
    wait_until(|| reads.load(Ordering::Acquire) == 2);
}

#[test]
fn filters_that_cannot_be_read_are_downloaded_again() {
    let (node, blocks) = paying(5);
    let on_read = |file| {
        let error = std::io::Error::other("Input/output error");
        Err(StorageError::of("read", file, &error))
    };
    let build = |storage| {
        let builder = builder(&node).keep_filters(1 << 20).storage(storage);
        builder.start_at(Birthday::Height(0))
    };
    let storage = with_filters(&build);
    let storage = Hooked { on_read: Some(Arc::new(on_read)), ..storage };
    let client = build(storage).start().unwrap();
    let mut updates = client.updates();
    updates.find(|update| matches!(update.news, News::CaughtUp(_))).unwrap();
    // The client tries to read the stored filters for the new wallet, and the read fails.
    client.watch("w", wallet()).unwrap();
    let found = hits(updates.take_while(|it| !matches!(it.news, News::CaughtUp(_))));
    assert_eq!(found, txids(&blocks).into_iter().map(|txid| (txid, false)).collect::<Vec<_>>());
    client.shutdown().unwrap();
}

#[test]
fn a_wallet_that_is_forgotten_and_watched_again_gets_each_hit_once() {
    let (node, blocks) = paying(60);
    // 20 updates are in the readers' queue, and further updates wait for room in this queue.
    let client = builder(&node).max_updates(20).wallet("w", wallet()).start().unwrap();
    wait_for_stall(&client, 0, 20);
    client.forget("w").unwrap();
    // An answer to this query shows that the wallet was forgotten before it is watched again.
    client.status().unwrap();
    client.watch("w", wallet()).unwrap();
    let (mut updates, mut found) = (client.updates(), Vec::new());
    while found.len() < 60 {
        found.extend(hits([updates.next_within(LIMIT).unwrap()]));
    }
    client.shutdown().unwrap();
    found.extend(hits(updates));
    let mut expected: Vec<_> = txids(&blocks).into_iter().map(|txid| (txid, false)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn a_reorganisation_counts_the_withdrawals_that_are_left_of_it() {
    let (node, blocks) = paying(3);
    let client = builder(&node).wallet("w", wallet()).wallet("other", wallet());
    let client = client.start().unwrap();
    wait_for_hits(&client, 3);
    let other: ScriptBuf = [&[0, 20][..], &[9; 20]].concat().into();
    node.reorganize(1, &other);
    wait_for_hits(&client, 1);
    client.forget("w").unwrap();
    // An answer to this query shows that the wallet was forgotten.
    client.status().unwrap();
    let mut updates = client.updates();
    let reorganized = |update: Update| match update.news {
        News::Reorganized { withdrawn, .. } => Some(withdrawn),
        _ => None,
    };
    assert_eq!(updates.find_map(reorganized), Some(2));
    let gone: Vec<_> = updates.by_ref().take(2).map(|update| update.wallet).collect();
    assert_eq!(gone, [Some("other".into()), Some("other".into())]);
    assert_eq!(blocks.len(), 3);
    client.shutdown().unwrap();
}

#[test]
fn a_client_does_not_wait_for_itself() {
    let (node, _) = paying(1);
    let own: Arc<Mutex<Option<Client>>> = Arc::default();
    let (sender, result) = sync_channel(1);
    let held = Arc::clone(&own);
    let log = move |_: &PeerNote| {
        // The first notes may arrive before the client is stored in `own`.
        let Some(client) = held.lock().unwrap().take() else { return };
        let status = client.status().map(drop);
        drop(client);
        sender.send(status).unwrap();
    };
    *own.lock().unwrap() = Some(builder(&node).log(log).start().unwrap());
    // The end of the connection causes a note.
    node.stop();
    assert_eq!(result.recv_timeout(LIMIT).unwrap(), Err(crate::Stopped));
}

#[test]
fn a_folder_is_free_once_its_client_is_dropped() {
    let (node, _) = paying(1);
    let data = std::env::temp_dir().join(format!("chainsieve-dropped-{}", std::process::id()));
    for _ in 0..20 {
        drop(builder(&node).data_dir(&data).wallet("w", wallet()).start().unwrap());
    }
    // The folder is also free once the iterator of updates has ended.
    let client = builder(&node).data_dir(&data).start().unwrap();
    let updates = client.updates();
    client.shared.stop();
    assert!(updates.last().is_none_or(|update| update.id.0 > 0));
    builder(&node).data_dir(&data).start().unwrap().shutdown().unwrap();
    std::fs::remove_dir_all(&data).unwrap();
}

/// Starts a peer that claims to have 7 blocks, and answers nothing after the handshake. The thread
/// ends with the connection.
fn silent_peer() -> (std::net::SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let magic = Network::Regtest.magic();
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let first = read_message(&mut stream, magic).unwrap();
        let NetworkMessage::Version(mut version) = first else { panic!("{first:?}") };
        version.nonce ^= 1;
        version.start_height = 7;
        version.services =
            ServiceFlags::NETWORK | ServiceFlags::WITNESS | ServiceFlags::COMPACT_FILTERS;
        for message in [NetworkMessage::Version(version), NetworkMessage::Verack] {
            write_message(&mut stream, magic, message).unwrap();
        }
        while read_message(&mut stream, magic).is_ok() {}
    });
    (address, peer)
}

/// Time counts towards timeouts as it passes, and not as the system's clock is set.
#[test]
fn a_clock_that_is_set_forward_disconnects_no_peer() {
    static AHEAD: AtomicU64 = AtomicU64::new(0);
    let (address, peer) = silent_peer();
    let mut config = PoolConfig::new(Network::Regtest.into());
    config.peers = vec![address.into()];
    let pool = Pool::new(config, AddressBook::new(), [3; 16]).unwrap();
    let machine = LightClient::new(Config::new(Network::Regtest, [0; 16]), &StoredFiles::default());
    let shared = Arc::new(Shared::new(16, pool.waker()));
    let mut driver = Driver::new(machine.unwrap(), pool, Box::new(Memory::new()), shared, None);
    driver.unix = || unix_time() + Duration::from_secs(AHEAD.load(Ordering::Relaxed));
    let begun = Instant::now();
    while driver.pool.peers().count() == 0 {
        assert!(begun.elapsed() < LIMIT);
        driver.take_events(TICK).unwrap();
    }
    // The peer owes the headers that it claims to have. Its timeout is a minute.
    for ahead in [600, 1_200, 100_000] {
        AHEAD.store(ahead, Ordering::Relaxed);
        driver.feed(Event::Tick).unwrap();
        assert_eq!(driver.pool.peers().count(), 1, "the clock is set forward by {ahead} s");
    }
    drop(driver);
    peer.join().unwrap();
}

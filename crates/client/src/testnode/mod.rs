//! A node that serves headers, blocks, Bloom filters and compact filters from memory: for wallets'
//! tests, and what `btc serve` of the command runs.
//!
//! It answers as Bitcoin Core does ([`chainsieve::btc::server`]). It validates no transactions.
//!
//! # Examples
//! ```
//! use chainsieve_client::testnode::Node;
//! use chainsieve_client::{Birthday, Builder, Item, Network, News, Wallet};
//!
//! let node = Node::regtest()?;
//! let script = chainsieve::bitcoin::ScriptBuf::from_hex("0014aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")?;
//! let paid = node.mine(&script);
//! let wallet = Wallet::new(Birthday::Height(0), vec![Item::Script(script)]);
//! let client = Builder::new(Network::Regtest)
//!     .peer(node.address().to_string())
//!     .wallet("test", wallet)
//!     .start()?;
//! let hit = client.updates().find_map(|update| match update.news {
//!     News::Hit(hit) => Some(hit),
//!     _ => None,
//! });
//! assert_eq!(hit.map(|hit| hit.txid), Some(paid.txdata[0].compute_txid()));
//! client.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod door;
mod regtest;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::{Block, Network, Script, Transaction};
use chainsieve::btc::server::{Config, Peer, ServedChain};

pub use connection::Ended;
use door::Door;
pub use regtest::next_block;

/// How often to look for connections.
const TICK: Duration = Duration::from_millis(20);

/// What happens to connections, for a log. Peers are numbered in the order in which they connect.
#[derive(Debug)]
#[non_exhaustive]
pub enum Note<'a> {
    /// A peer has connected.
    Connected(u64, SocketAddr),
    /// The handshake is done.
    Ready(u64, &'a Peer),
    /// The connection is gone.
    Disconnected(u64, &'a Ended),
    /// A connection was refused: as many peers are connected as may be.
    Refused(SocketAddr, usize),
    /// A connection was lost before it was taken, or no thread could be started for it.
    Lost(io::Error),
}

/// Where notes go.
pub type Log = Box<dyn Fn(&Note<'_>) + Send + Sync>;

/// What the threads share.
struct Shared {
    magic: Magic,
    config: Config,
    chain: RwLock<ServedChain>,
    stop: AtomicBool,
    /// How many peers have come.
    count: AtomicU64,
    log: Option<Log>,
}

impl Shared {
    fn chain(&self) -> RwLockReadGuard<'_, ServedChain> {
        self.chain.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain_mut(&self) -> RwLockWriteGuard<'_, ServedChain> {
        self.chain.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn note(&self, note: &Note<'_>) {
        if let Some(log) = &self.log {
            log(note);
        }
    }
}

/// How a node is set up.
#[must_use]
pub struct NodeBuilder {
    chain: ServedChain,
    config: Config,
    magic: Magic,
    listen: SocketAddr,
    max_connections: usize,
    log: Option<Log>,
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl NodeBuilder {
    /// A node that serves this chain, on any free port of this machine alone.
    pub fn new(chain: ServedChain) -> Self {
        Self {
            config: Config::default(),
            magic: chain.network().magic(),
            chain,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            max_connections: 125,
            log: None,
        }
    }

    /// What it offers.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Where it listens.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// The first bytes of each message, where they are not the network's: a signet of one's own.
    pub fn magic(mut self, magic: Magic) -> Self {
        self.magic = magic;
        self
    }

    /// Connections at a time; 125 unless this is called.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// Gets notes about connections, for a log. Called from several threads.
    pub fn log(mut self, log: impl Fn(&Note<'_>) + Send + Sync + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Listens, and answers whoever connects.
    ///
    /// # Errors
    /// The address cannot be listened at, or no thread can be started.
    pub fn start(self) -> io::Result<Node> {
        let listener = TcpListener::bind(self.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            magic: self.magic,
            config: self.config,
            chain: RwLock::new(self.chain),
            stop: AtomicBool::new(false),
            count: AtomicU64::new(0),
            log: self.log,
        });
        let mut door = Door::new(listener, Arc::clone(&shared), self.max_connections);
        let take = move || {
            while !door.is_stopping() {
                door.open();
                thread::sleep(TICK);
            }
            door.close();
        };
        let thread = thread::Builder::new().name("node".into()).spawn(take)?;
        Ok(Node { shared, address, thread: Some(thread) })
    }
}

/// A node that runs in threads of its own, until it is dropped.
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Node {
    /// A node of regtest with the genesis block, which takes transactions of its peers.
    ///
    /// # Errors
    /// No port of this machine can be listened at.
    pub fn regtest() -> io::Result<Self> {
        let mut config = Config::default();
        config.accept_transactions = true;
        NodeBuilder::new(ServedChain::new(Network::Regtest, true)).config(config).start()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it offers.
    pub fn config(&self) -> Config {
        self.shared.config
    }

    /// The chain that it serves. No peer is answered while it is borrowed for long.
    pub fn chain(&self) -> RwLockReadGuard<'_, ServedChain> {
        self.shared.chain()
    }

    /// The chain, to be changed: peers are told of what is new.
    pub fn chain_mut(&self) -> RwLockWriteGuard<'_, ServedChain> {
        self.shared.chain_mut()
    }

    /// Mines a block on top of the tip, on regtest: its coinbase transaction pays 50 bitcoin to
    /// `script`, and it holds every transaction of the mempool. Returns the block.
    pub fn mine(&self, script: &Script) -> Block {
        let mut chain = self.chain_mut();
        let txs: Vec<Transaction> = chain.mempool().iter().map(|(_, tx)| (**tx).clone()).collect();
        let tip = chain.tip();
        let parent = chain.headers().header_at(tip.height).copied();
        let block =
            next_block(&parent.expect("the tip is in the chain"), tip.height + 1, script, txs);
        // Made by the rules of regtest just now.
        let _added = chain.add_block(block.clone(), u32::MAX);
        block
    }

    /// Mines so many blocks in a row; see [`mine`](Self::mine).
    pub fn mine_many(&self, script: &Script, count: usize) -> Vec<Block> {
        (0..count).map(|_| self.mine(script)).collect()
    }

    /// Replaces the blocks above a height by as many and one more, on regtest: a reorganisation.
    /// Their coinbase transactions pay to `script`. Returns the new blocks.
    pub fn reorganize(&self, height: u32, script: &Script) -> Vec<Block> {
        let mut chain = self.chain_mut();
        let count = chain.tip().height.saturating_sub(height) + 1;
        let Some(mut parent) = chain.headers().header_at(height).copied() else {
            return Vec::new();
        };
        let mut blocks = Vec::new();
        for above in 1..=count {
            let mut block = next_block(&parent, height + above, script, Vec::new());
            // Other times than those of the blocks that are replaced, so that these are others.
            regtest::solve(&mut block.header, parent.time + 2);
            parent = block.header;
            let _added = chain.add_block(block.clone(), u32::MAX);
            blocks.push(block);
        }
        blocks
    }

    /// How many peers have connected so far.
    pub fn connections(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire)
    }

    /// Ends all connections, and waits for their threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            drop(thread.join());
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// The time in Unix seconds.
fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

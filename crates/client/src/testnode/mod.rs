//! A node that serves headers, blocks, Bloom filters and compact filters from memory.
//!
//! The node is made for the tests of wallets. The command `btc test-node` runs such a node. The node
//! answers as Bitcoin Core does ([`chainsieve::btc::server`]). The node does not validate
//! transactions.
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

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chainsieve::bitcoin::absolute::LockTime;
use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::Magic;
use chainsieve::bitcoin::script::Builder;
use chainsieve::bitcoin::transaction::Version as TxVersion;
use chainsieve::bitcoin::{
    Amount, Block, CompactTarget, Network, OutPoint, Script, Sequence, Transaction, TxIn,
    TxMerkleNode, TxOut, Witness,
};
use chainsieve::btc::server::{Config, Peer, ServedChain};

use connection::Door;
pub use connection::Ended;

/// Interval at which the node accepts waiting connections.
const TICK: Duration = Duration::from_millis(20);

/// An event of a connection, for a log. Peers are numbered from 1, in the order of connecting.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectionNote<'a> {
    /// A peer has connected.
    Connected(u64, SocketAddr),
    /// The handshake is done.
    Ready(u64, &'a Peer),
    /// The connection has ended, with its reason.
    Disconnected(u64, &'a Ended),
    /// A connection from this address was refused, because this maximum number of peers is
    /// connected.
    Refused(SocketAddr, usize),
    /// A connection could not be accepted, or no thread could be started for it.
    Lost(io::Error),
}

/// Callback that receives notes about connections.
pub type Log = Box<dyn Fn(&ConnectionNote<'_>) + Send + Sync>;

/// The state that the node's threads share.
struct Shared {
    magic: Magic,
    config: Config,
    chain: RwLock<ServedChain>,
    stop: AtomicBool,
    /// Number of peers that have connected so far.
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

    fn note(&self, note: &ConnectionNote<'_>) {
        if let Some(log) = &self.log {
            log(note);
        }
    }
}

/// Configures and starts a node.
#[must_use]
pub struct NodeBuilder {
    chain: ServedChain,
    config: Config,
    magic: Magic,
    listen: SocketAddr,
    max_connections: usize,
    log: Option<Log>,
}

debug_by!(NodeBuilder: listen);

impl NodeBuilder {
    /// Creates a builder for a node that serves this chain.
    ///
    /// By default the node listens on a free port of the loopback address 127.0.0.1.
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

    setters! { self:
        /// Sets the services and limits of the node (default: `Config::default()`).
        config(config: Config) { self.config = config; }

        /// Sets the address to listen on (default: a free port of 127.0.0.1).
        listen(address: SocketAddr) { self.listen = address; }

        /// Sets the first four bytes of each message, for a custom signet (default: the network's).
        magic(magic: Magic) { self.magic = magic; }

        /// Sets the maximum number of simultaneous connections (default: 125).
        max_connections(count: usize) { self.max_connections = count; }

        /// Sets a callback that receives notes about connections, for a log. Several threads call this
        /// callback.
        log(log: impl Fn(&ConnectionNote<'_>) + Send + Sync + 'static) {
            self.log = Some(Box::new(log));
        }
    }

    /// Starts the node: it listens, and answers all peers that connect.
    ///
    /// # Errors
    /// Returns an error if the node cannot listen on the address, or if no thread can be started.
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

/// Handle of a node that runs in threads of its own. Dropping it stops the node.
#[must_use = "dropping the node stops it"]
pub struct Node {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

debug_by!(Node: address);

impl Node {
    /// Starts a regtest node whose chain is the genesis block. The node accepts transactions of its
    /// peers.
    ///
    /// # Errors
    /// Returns an error if the node cannot listen on the loopback address, or if no thread can be
    /// started.
    pub fn regtest() -> io::Result<Self> {
        let mut config = Config::default();
        config.accept_transactions = true;
        NodeBuilder::new(ServedChain::new(Network::Regtest, true)).config(config).start()
    }

    /// Returns the address that the node listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the services and limits of the node.
    pub fn config(&self) -> Config {
        self.shared.config
    }

    /// Locks the served chain for reading. While a caller holds the lock, the chain cannot change.
    pub fn chain(&self) -> RwLockReadGuard<'_, ServedChain> {
        self.shared.chain()
    }

    /// Locks the served chain for changes. While a caller holds the lock, no peer is answered.
    ///
    /// New blocks and transactions are announced to the peers afterwards.
    pub fn chain_mut(&self) -> RwLockWriteGuard<'_, ServedChain> {
        self.shared.chain_mut()
    }

    /// Mines a block on top of the tip, on regtest, and returns the block. The coinbase transaction
    /// pays 50 bitcoin to `script`. The block also contains every transaction of the mempool.
    pub fn mine(&self, script: &Script) -> Block {
        let mut chain = self.chain_mut();
        let txs: Vec<Transaction> = chain.mempool().iter().map(|(_, tx)| (**tx).clone()).collect();
        let tip = chain.tip();
        let parent = chain.headers().header_at(tip.height).copied();
        let block =
            next_block(&parent.expect("the tip is in the chain"), tip.height + 1, script, txs);
        // The block is valid by the rules of regtest, so that the call cannot fail.
        let _added = chain.add_block(block.clone(), None, Duration::MAX);
        block
    }

    /// Mines `count` blocks in a row, and returns them; see [`mine`](Self::mine).
    pub fn mine_many(&self, script: &Script, count: usize) -> Vec<Block> {
        (0..count).map(|_| self.mine(script)).collect()
    }

    /// Causes a reorganisation on regtest: replaces the blocks above `height` by a branch that is
    /// one block longer.
    ///
    /// The coinbase transactions of the new blocks pay to `script`. Returns the new blocks, or none
    /// if the chain does not reach `height`.
    pub fn reorganize(&self, height: u32, script: &Script) -> Vec<Block> {
        let mut chain = self.chain_mut();
        let count = chain.tip().height.saturating_sub(height) + 1;
        let Some(mut parent) = chain.headers().header_at(height).copied() else {
            return Vec::new();
        };
        let mut blocks = Vec::new();
        for above in 1..=count {
            let mut block = next_block(&parent, height + above, script, Vec::new());
            // Mined blocks have times one second apart. Times two seconds apart make the new blocks
            // differ from those that they replace, even with the same script.
            solve(&mut block.header, parent.time + 2);
            parent = block.header;
            let _added = chain.add_block(block.clone(), None, Duration::MAX);
            blocks.push(block);
        }
        blocks
    }

    /// Returns the number of peers that have connected so far.
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
            // A panic of the thread is ignored: the panic hook has reported the panic.
            drop(thread.join());
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// The easiest target, which all regtest blocks have (Bitcoin Core, `kernel/chainparams.cpp`).
const EASIEST: u32 = 0x207f_ffff;
const COIN: u64 = 100_000_000;

/// Creates a regtest block on top of `parent`, with proof of work.
///
/// The coinbase transaction of the block pays 50 bitcoin to `script`; `txs` are the other
/// transactions. If one of these transactions has a witness, the block has the witness commitment
/// of BIP141.
///
/// `height` must be the height of `parent` plus 1.
pub fn next_block(parent: &Header, height: u32, script: &Script, txs: Vec<Transaction>) -> Block {
    let coinbase = Transaction {
        version: TxVersion::TWO,
        lock_time: LockTime::ZERO,
        input: vec![TxIn {
            previous_output: OutPoint::null(),
            // BIP34 requires that the script begins with the height. The second push makes the
            // script at least two bytes long, as consensus requires for a coinbase.
            script_sig: Builder::new().push_int(height.into()).push_int(0).into_script(),
            sequence: Sequence::MAX,
            witness: Witness::new(),
        }],
        output: vec![TxOut { value: Amount::from_sat(50 * COIN), script_pubkey: script.into() }],
    };
    let has_witness = |tx: &Transaction| tx.input.iter().any(|input| !input.witness.is_empty());
    let is_committed = txs.iter().any(has_witness);
    let mut txdata = vec![coinbase];
    txdata.extend(txs);
    let header = Header {
        version: Version::from_consensus(0x2000_0000),
        prev_blockhash: parent.block_hash(),
        merkle_root: TxMerkleNode::all_zeros(),
        time: 0,
        bits: CompactTarget::from_consensus(EASIEST),
        nonce: 0,
    };
    let mut block = Block { header, txdata };
    if is_committed {
        commit_to_witnesses(&mut block);
    }
    block.header.merkle_root = block.compute_merkle_root().expect("it has a coinbase transaction");
    solve(&mut block.header, parent.time + 1);
    block
}

/// Adds the witness commitment of BIP141, in a second output of the coinbase transaction.
fn commit_to_witnesses(block: &mut Block) {
    let reserved = [0; 32];
    let root = block.witness_root();
    let (Some(root), Some(coinbase)) = (root, block.txdata.first_mut()) else { return };
    let commitment = Block::compute_witness_commitment(&root, &reserved);
    let mut script = vec![0x6a, 0x24, 0xaa, 0x21, 0xa9, 0xed];
    script.extend(commitment.as_byte_array());
    coinbase.output.push(TxOut { value: Amount::ZERO, script_pubkey: script.into() });
    if let Some(input) = coinbase.input.first_mut() {
        input.witness = Witness::from_slice(&[reserved]);
    }
}

/// Sets the time of a header, and finds a nonce with proof of work.
fn solve(header: &mut Header, time: u32) {
    (header.time, header.nonce) = (time, 0);
    while header.validate_pow(header.target()).is_err() {
        header.nonce += 1;
    }
}

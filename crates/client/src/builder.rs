//! Configuration and start of a client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chainsieve::bitcoin::Work;
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::client::{Birthday, Config, Event, LightClient, Protocol, Wallet, WalletId};

use crate::client::{Client, check};
use crate::driver::{Driver, Log};
use crate::error::StartError;
use crate::peers::address::NetworkParams;
use crate::peers::address::Target;
use crate::peers::book::AddressBook;
use crate::peers::book::Random;
use crate::peers::pool::PeerNote;
use crate::peers::pool::{Pool, PoolConfig};
use crate::shared::Shared;
use crate::storage::{Folder, Memory, Storage};

/// Default for the maximum number of queued updates.
const UPDATES: usize = 1_024;

/// Where the client stores its state.
enum StoredIn {
    Memory,
    Folder(PathBuf),
    Other(Box<dyn Storage>),
}

/// Configures and starts a client.
///
/// ```no_run
/// use chainsieve_client::{Birthday, Builder, Item, Network, News, Wallet};
/// let script = "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu"
///     .parse::<chainsieve::bitcoin::Address<_>>()?
///     .assume_checked()
///     .script_pubkey();
/// let wallet = Wallet::new(Birthday::Height(880_000), vec![Item::Script(script)]);
/// let client = Builder::new(Network::Bitcoin).data_dir("wallet-data").wallet("savings", wallet).start()?;
/// for update in client.updates() {
///     if let News::Hit(hit) = &update.news {
///         println!("{} at {:?}", hit.txid, hit.place);
///     }
///     client.acknowledge(&update);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Builder {
    pool: PoolConfig,
    peers: Vec<String>,
    stored_in: StoredIn,
    updates: usize,
    wallets: Vec<(WalletId, Wallet)>,
    config: Config,
    log: Option<Log>,
}

debug_by!(Builder: peers, config);

impl Builder {
    /// Creates a builder for a network, or for a [custom signet](NetworkParams::signet).
    ///
    /// The defaults are the protocol BIP157, four peers found through DNS seeds, and all state in
    /// memory.
    pub fn new(chain: impl Into<NetworkParams>) -> Self {
        let chain = chain.into();
        Self {
            config: Config {
                magic: chain.magic,
                block_time: chain.block_time,
                ..Config::new(chain.network, [0; 16])
            },
            pool: PoolConfig::new(chain),
            peers: Vec::new(),
            stored_in: StoredIn::Memory,
            updates: UPDATES,
            wallets: Vec::new(),
            log: None,
        }
    }

    setters! { self:
        /// Adds a peer to connect to: `HOST`, `HOST:PORT`, an IPv6 or onion address.
        ///
        /// If at least one peer is named, the client connects to no other peers unless
        /// [`other_peers`](Self::other_peers) is called. Even if no new block arrives, it connects
        /// to no others.
        peer(address: impl Into<String>) { self.peers.push(address.into()); }

        /// Allows connections to other peers in addition to the named peers.
        other_peers() { self.pool.others = true; }

        /// Disables DNS seeds, so that only the named peers and peers of the address book are used.
        no_seeds() { self.pool.use_seeds = false; }

        /// Sets the maximum number of simultaneous connections, from 1 to 8 (default: 4). Other values
        /// are clamped to this range.
        ///
        /// If no new block arrives for half an hour, the client connects to one more peer, and then
        /// disconnects the peer whose last new block is the oldest. Every two minutes on average, a
        /// connection of a few seconds tests an address at which no peer was found before.
        max_peers(count: usize) { self.pool.max_peers = count.clamp(1, 8); }

        /// Connects to peers through a SOCKS5 proxy, for example Tor's.
        ///
        /// Each connection uses different credentials, so that Tor uses a separate circuit for each
        /// peer. Only the proxy resolves host names.
        proxy(address: SocketAddr) { self.pool.proxy = Some(address); }

        /// Sets the user agent that the client sends to peers (BIP14). The user agent may have at most
        /// 256 bytes, because Bitcoin Core rejects a `version` message with a longer user agent.
        user_agent(agent: impl Into<String>) { self.pool.user_agent = agent.into(); }

        /// Sets the protocol by which blocks are scanned (default: BIP157).
        protocol(protocol: Protocol) { self.config.protocol = protocol; }

        /// Stores all state in this folder, so that the next run continues where this run stops.
        ///
        /// The folder is created if it does not exist. Only one client at a time can use the folder.
        data_dir(path: impl AsRef<Path>) {
            self.stored_in = StoredIn::Folder(path.as_ref().to_owned());
        }

        /// Stores all state in a storage that the caller implements.
        storage(storage: impl Storage + 'static) {
            self.stored_in = StoredIn::Other(Box::new(storage));
        }

        /// Adds a wallet to watch. More wallets can be added while the client runs.
        wallet(id: impl Into<WalletId>, wallet: Wallet) { self.wallets.push((id.into(), wallet)); }

        /// Scans blocks from this birthday on, even if no wallet needs blocks that early.
        start_at(first: Birthday) { self.config.first = Some(first); }

        /// Scans no block above this height.
        end_at(last: u32) { self.config.last = Some(last); }

        /// Sets the minimum work of a chain: with less work, the client is not caught up and starts
        /// no scan. The default is the work of a block of the network some time before this version,
        /// or zero for a custom signet. A made-up chain, such as that of a test node, needs zero.
        minimum_work(work: Work) { self.config.minimum_work = work; }

        /// Sets the timeout after which a request is sent to another peer (default: 30 s).
        timeout(timeout: Duration) { self.config.timeout = timeout; }

        /// BIP157: adds a trusted filter header at a height, which must be a multiple of 1,000. A peer
        /// that claims a different filter header at this height is banned.
        checkpoint(height: u32, header: FilterHeader) {
            self.config.checkpoints.insert(height, header);
        }

        /// BIP157: sets the rate of audits: one block in `one_in` is fetched to audit its filter
        /// (default: 1,000). The value 0 disables audits.
        spot_audits(one_in: u32) { self.config.spot_audits = one_in; }

        /// BIP157: sets the maximum size of stored filters in bytes. The default is 0: no filters
        /// are stored.
        ///
        /// Stored filters are not downloaded again for a new wallet or a rescan. When the size is
        /// exceeded, the filters of the lowest heights are dropped first.
        keep_filters(bytes: u64) { self.config.kept_filters = bytes; }

        /// BIP37: sets the false-positive rate of the Bloom filter, in (0, 1) (default: 1e-5).
        ///
        /// With a higher rate, it is harder to see which elements belong to the wallet, but more
        /// bandwidth is needed. A rate that no filter can meet is reported as
        /// [`Finding::NoFilter`](crate::Finding::NoFilter).
        false_positive_rate(rate: f64) { self.config.fpr = rate; }

        /// Sets the number of queued updates at which the client stops reading from its peers
        /// (default: 1,024, at least 1).
        max_updates(count: usize) { self.updates = count; }

        /// Sets a callback that receives notes about connections, for a log.
        ///
        /// The client's thread runs the callback. The callback must not wait for updates. If the
        /// callback calls methods of [`Client`], they fail with [`Stopped`](crate::Stopped).
        log(log: impl FnMut(&PeerNote) + Send + 'static) { self.log = Some(Box::new(log)); }
    }

    /// Starts the client in a thread of its own.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration is invalid, if the storage cannot be opened or
    /// read, or if the system provides no random numbers or no thread. After an error, no thread
    /// runs.
    pub fn start(self) -> Result<Client, StartError> {
        let Self { mut pool, stored_in, mut config, wallets, .. } = self;
        for (id, wallet) in &wallets {
            check(id, wallet, config.protocol)?;
        }
        let target = |peer: &String| {
            let target = Target::parse(peer, pool.chain.port);
            target.map_err(|cause| StartError::Peer { peer: peer.clone(), cause })
        };
        pool.peers = self.peers.iter().map(target).collect::<Result<_, _>>()?;
        let random = || Random::seed().map_err(|error| StartError::Random(error.to_string()));
        config.seed = random()?;
        let mut storage: Box<dyn Storage> = match stored_in {
            StoredIn::Memory => Box::new(Memory::new()),
            StoredIn::Folder(path) => Box::new(Folder::open(&path)?),
            StoredIn::Other(storage) => storage,
        };
        // The pool connects to one peer more while no new block arrives. Beyond its limit, the
        // machine would disconnect this peer.
        config.filter_limits.peers = config.filter_limits.peers.max(pool.max_peers + 1);
        let (protocol, magic) = (config.protocol, pool.chain.magic);
        let machine = LightClient::new(config, &storage.load()?)?;
        pool.services = ServiceFlags::NETWORK | ServiceFlags::WITNESS | machine.services();
        pool.start_height = machine.chain().tip().height;
        // A damaged address book is no error: seeds and peers provide addresses again.
        let book = storage.addresses().and_then(|it| AddressBook::decode(&it, magic).ok());
        let pool = Pool::new(pool, book.unwrap_or_default(), random()?)?;
        let shared = Arc::new(Shared::new(self.updates, pool.waker()));
        let mut driver = Driver::new(machine, pool, storage, Arc::clone(&shared), self.log);
        for (id, wallet) in wallets {
            let number = driver.shared.next_watch();
            driver.feed(Event::Watch(number, id, Box::new(wallet)))?;
        }
        let panics = Arc::clone(&shared);
        let run = move || {
            // After a panic, readers of updates must be woken, or they would wait for ever.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
            if let Err(panic) = result {
                panics.end(Err(crate::error::RunError::Panicked));
                std::panic::resume_unwind(panic);
            }
        };
        let thread = thread::Builder::new().name("chainsieve".into()).spawn(run);
        let thread = thread.map_err(|error| StartError::Thread(error.to_string()))?;
        Ok(Client { shared, thread: Some(thread), protocol })
    }
}

//! How a client is set up and started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::client::{
    Birthday, Client as Machine, Config, Event, Protocol, Wallet, WalletId,
};

use crate::client::{Client, check};
use crate::driver::{Driver, Log};
use crate::error::StartError;
use crate::net::book::AddressBook;
use crate::net::chain::Chain;
use crate::net::events::PeerNote;
use crate::net::pool::{Pool, PoolConfig};
use crate::net::random::Random;
use crate::net::target::Target;
use crate::shared::Shared;
use crate::storage::{Folder, Memory, Storage};

/// Most updates that wait for their reader, unless the builder says otherwise.
const UPDATES: usize = 1_024;

enum Place {
    Memory,
    Folder(PathBuf),
    Other(Box<dyn Storage>),
}

/// Sets a client up.
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
    chain: Chain,
    peers: Vec<String>,
    others: bool,
    use_seeds: bool,
    max_peers: usize,
    proxy: Option<SocketAddr>,
    user_agent: Option<String>,
    place: Place,
    updates: usize,
    wallets: Vec<(WalletId, Wallet)>,
    config: Config,
    log: Option<Log>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("chain", &self.chain)
            .field("peers", &self.peers)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// A client of a network, or of a [signet of one's own](Chain::signet): by BIP157, four peers
    /// from DNS seeds, everything in memory.
    pub fn new(chain: impl Into<Chain>) -> Self {
        let chain = chain.into();
        Self {
            config: Config { magic: chain.magic, ..Config::new(chain.network, [0; 16]) },
            chain,
            peers: Vec::new(),
            others: false,
            use_seeds: true,
            max_peers: 4,
            proxy: None,
            user_agent: None,
            place: Place::Memory,
            updates: UPDATES,
            wallets: Vec::new(),
            log: None,
        }
    }

    /// Connects to this peer: `HOST`, `HOST:PORT`, an IPv6 or onion address. With at least one, no
    /// others are called.
    pub fn peer(mut self, address: impl Into<String>) -> Self {
        self.peers.push(address.into());
        self
    }

    /// Calls other peers beside those named.
    pub fn other_peers(mut self) -> Self {
        self.others = true;
        self
    }

    /// Asks no DNS seeds: peers come from those named and the address book alone.
    pub fn no_seeds(mut self) -> Self {
        self.use_seeds = false;
        self
    }

    /// Connections at a time, from 1 to 8. Values outside are clamped; 4 unless this is called.
    pub fn max_peers(mut self, count: usize) -> Self {
        // `Limits::peers` of BIP157 is 8: a ninth peer would be disconnected with `TooManyPeers`.
        self.max_peers = count.clamp(1, 8);
        self
    }

    /// Connects through a SOCKS5 proxy, say Tor's, with other credentials for each peer, so that
    /// Tor takes another circuit for each. Names are resolved by the proxy alone.
    pub fn proxy(mut self, address: SocketAddr) -> Self {
        self.proxy = Some(address);
        self
    }

    /// What the client calls itself to peers (BIP14). At most 256 bytes: Bitcoin Core rejects the
    /// `version` of a longer one.
    pub fn user_agent(mut self, agent: impl Into<String>) -> Self {
        self.user_agent = Some(agent.into());
        self
    }

    /// How blocks are looked through; BIP157 unless this is called.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.config.protocol = protocol;
        self
    }

    /// Keeps everything in this folder, made if it is not there, so that the next run goes on
    /// where this one stops. One client at a time uses a folder.
    pub fn data_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.place = Place::Folder(path.as_ref().to_owned());
        self
    }

    /// Keeps everything in a storage of the caller's.
    pub fn storage(mut self, storage: impl Storage + 'static) -> Self {
        self.place = Place::Other(Box::new(storage));
        self
    }

    /// Watches for a wallet. More can be added while the client runs.
    pub fn wallet(mut self, id: impl Into<WalletId>, wallet: Wallet) -> Self {
        self.wallets.push((id.into(), wallet));
        self
    }

    /// Looks at blocks from here on even where no wallet wants them.
    pub fn from(mut self, first: Birthday) -> Self {
        self.config.first = Some(first);
        self
    }

    /// Looks at no block above this height.
    pub fn to(mut self, last: u32) -> Self {
        self.config.last = Some(last);
        self
    }

    /// How long an answer may take before another peer is asked; 30 s unless this is called.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// BIP157: trusts the filter header at a height, a multiple of 1,000. A peer that differs is
    /// banned.
    pub fn checkpoint(mut self, height: u32, header: FilterHeader) -> Self {
        self.config.checkpoints.insert(height, header);
        self
    }

    /// BIP157: fetches one block in this many to audit its filter; 0 for none. 1,000 unless this is
    /// called.
    pub fn spot_audits(mut self, one_in: u32) -> Self {
        self.config.spot_audits = one_in;
        self
    }

    /// BIP157: keeps up to this many bytes of filters, the lowest blocks' dropped first, so that
    /// another wallet or a rescan downloads nothing twice. 0, the default, keeps none.
    pub fn keep_filters(mut self, bytes: u64) -> Self {
        self.config.kept_filters = bytes;
        self
    }

    /// BIP37: the share of foreign elements that match the filter. More hides better and costs
    /// more. In (0, 1), 1e-5 unless this is called; a rate that no filter meets is reported as
    /// [`Finding::NoFilter`](crate::Finding::NoFilter).
    pub fn false_positive_rate(mut self, rate: f64) -> Self {
        self.config.fpr = rate;
        self
    }

    /// How many updates may wait for their reader before the client stops reading from peers. At
    /// least 1; 1,024 unless this is called.
    pub fn max_updates(mut self, count: usize) -> Self {
        self.updates = count;
        self
    }

    /// Gets notes about connections, for a log. Called on the client's thread: the client is not
    /// to be asked there (it reports [`Stopped`](crate::Stopped)), nor its updates to be waited for.
    pub fn log(mut self, log: impl FnMut(&PeerNote) + Send + 'static) -> Self {
        self.log = Some(Box::new(log));
        self
    }

    /// Starts the client.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing runs then.
    pub fn start(self) -> Result<Client, StartError> {
        let Self { chain, place, mut config, wallets, .. } = self;
        for (id, wallet) in &wallets {
            check(id, wallet, config.protocol)?;
        }
        let target = |peer: &String| {
            let target = Target::parse(peer, chain.port);
            target.map_err(|cause| StartError::Peer { peer: peer.clone(), cause })
        };
        let mut pool = PoolConfig::new(chain.clone());
        pool.peers = self.peers.iter().map(target).collect::<Result<_, _>>()?;
        (pool.others, pool.use_seeds) = (self.others, self.use_seeds);
        (pool.max_peers, pool.proxy) = (self.max_peers, self.proxy);
        if let Some(agent) = self.user_agent {
            pool.user_agent = agent;
        }
        let random = || Random::seed().map_err(|error| StartError::Random(error.to_string()));
        config.seed = random()?;
        let mut storage: Box<dyn Storage> = match place {
            Place::Memory => Box::new(Memory::new()),
            Place::Folder(path) => Box::new(Folder::open(&path)?),
            Place::Other(storage) => storage,
        };
        let protocol = config.protocol;
        let machine = Machine::new(config, &storage.load()?)?;
        pool.services = ServiceFlags::NETWORK | ServiceFlags::WITNESS | machine.services();
        pool.start_height = machine.chain().tip().height;
        // Addresses are found again where they are damaged.
        let book = storage.addresses().and_then(|it| AddressBook::decode(&it, chain.magic).ok());
        let pool = Pool::new(pool, book.unwrap_or_default(), random()?)?;
        let shared = Arc::new(Shared::new(self.updates, pool.waker()));
        let mut driver = Driver::new(machine, pool, storage, Arc::clone(&shared), self.log);
        for (id, wallet) in wallets {
            driver.feed(Event::Watch(id, Box::new(wallet)))?;
        }
        let panics = Arc::clone(&shared);
        let run = move || {
            // A reader that waits must not wait for a thread that is gone.
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

//! Configuration of an endpoint.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use chainsieve::eth::header::BlockRef;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};

use super::chain::{Chain, Journal};
use super::clients::{Budget, Bytes, Clients, RpcServerLimits};
use super::compare::Compare;
use super::error::RpcServerError;
use super::filters::Filters;
use super::head::TrustedBlocks;
use super::http::{Front, Hosts, Origins};
use super::index::FilterIndex;
use super::methods::Lookups;
use super::operator::{Events, Metrics, Observed, RpcServerEvent};
use super::{Proven, compare, listen};
use crate::proven::{Blocks, Options, Store};
use crate::provider::Provider;
use crate::stop::Stop;

/// Maximum size of an upstream's answer.
const MAX_ANSWER: u64 = 64 << 20;
/// Number of answers of an upstream of more than a megabyte that are held at the same time.
const LARGE_ANSWERS: usize = 4;
/// Maximum number of new blocks whose contents wait to be fetched.
const AHEAD: usize = 256;
/// Time after which blocks that could not be added to the index are requested again.
const INDEX_RETRY: Duration = Duration::from_secs(10);

/// Configures and starts an endpoint: see [`Provider::serve`].
#[must_use]
pub struct RpcServerBuilder {
    provider: Provider,
    folder: Option<PathBuf>,
    index: Option<PathBuf>,
    index_from: Option<u64>,
    limits: RpcServerLimits,
    poll: Duration,
    pass_unverified: bool,
    max_head_age: Option<Duration>,
    compare: bool,
    hosts: Option<Vec<String>>,
    origins: Vec<String>,
    events: Events,
}

debug_by!(RpcServerBuilder: provider);

/// A running endpoint. It ends when it is dropped.
#[derive(Debug)]
pub struct RpcServer {
    address: SocketAddr,
    proven: Arc<Proven>,
    runtime: Option<Runtime>,
    /// The thread that follows the head.
    head: JoinHandle<()>,
}

impl Provider {
    /// Returns a builder for an endpoint that gives only proven answers of this provider's nodes.
    ///
    /// The trusted head comes from the provider's [anchor](crate::Builder::anchor), or is the head that
    /// its nodes name.
    ///
    /// # Examples
    /// ```no_run
    /// # fn run(head: chainsieve::alloy_primitives::B256) -> Result<(), Box<dyn std::error::Error>> {
    /// use chainsieve_provider::Provider;
    ///
    /// let provider = Provider::builder().url("https://mainnet.example").anchor(head).build()?;
    /// let server = provider.serve().start("127.0.0.1:8546".parse()?)?;
    /// println!("http://{}", server.address());
    /// server.wait();
    /// # Ok(())
    /// # }
    /// ```
    pub fn serve(&self) -> RpcServerBuilder {
        RpcServerBuilder {
            provider: self.clone(),
            folder: None,
            index: None,
            index_from: None,
            limits: RpcServerLimits::default(),
            poll: Duration::from_secs(2),
            pass_unverified: false,
            max_head_age: None,
            compare: true,
            hosts: None,
            origins: Vec::new(),
            events: Events::default(),
        }
    }
}

impl RpcServerBuilder {
    setters! { self:
        /// Stores proven receipts, transactions and headers in a folder, for later runs.
        folder(folder: impl AsRef<Path>) { self.folder = Some(folder.as_ref().to_owned()); }

        /// Keeps the filters of final blocks in an [index](chainsieve::eth::index) in a folder: a
        /// query for these blocks needs only the headers of its candidates, also in later runs.
        ///
        /// If the folder has no index, a new index begins at the newest final block, or at
        /// [`index_from`](Self::index_from). An existing index with block hashes is continued. It
        /// is used up to the newest final block, if it has the same hash for that block.
        index(folder: impl AsRef<Path>) { self.index = Some(folder.as_ref().to_owned()); }

        /// Sets the first block of a new index. The headers from there to the final block are
        /// fetched in the background: 650 bytes each. Without a source of
        /// [links](crate::AnchorSource::link), at most
        /// [`max_headers`](RpcServerLimits::max_headers) headers can be fetched.
        index_from(block: u64) { self.index_from = Some(block); }

        /// Sets the limits.
        limits(limits: RpcServerLimits) { self.limits = limits; }

        /// Sets the interval at which the endpoint asks for a newer head (default: 2 s).
        poll(interval: Duration) { self.poll = interval; }

        /// Passes calls whose answers cannot be proven to the upstreams. Such an answer has the
        /// member `unverified`, which is `true`. Over HTTP, it also has the header
        /// `chainsieve-unverified: 1`.
        pass_unverified() { self.pass_unverified = true; }

        /// Sets the age of the verified head from which on `/health` says that the endpoint is not
        /// ready. By default, the head may have any age.
        max_head_age(age: Duration) { self.max_head_age = Some(age); }

        /// Turns off the comparison: by default, the upstreams are also asked for logs, and the
        /// endpoint counts the proven logs that an upstream left out.
        without_comparison() { self.compare = false; }

        /// Accepts requests for these hosts only, for example `localhost:*`. By default, a server
        /// on a loopback address accepts requests for this machine only, so that no web page can
        /// use it through a name of its own (DNS rebinding).
        hosts(hosts: impl IntoIterator<Item = impl Into<String>>) {
            self.hosts = Some(hosts.into_iter().map(Into::into).collect());
        }

        /// Lets pages of these origins, for example `https://app.example`, use the endpoint from a
        /// browser (CORS); `*` stands for all pages. By default, a browser keeps answers over HTTP
        /// from pages of all other origins, and the endpoint accepts `WebSocket` connections only
        /// from pages on this machine.
        allow_origins(origins: impl IntoIterator<Item = impl Into<String>>) {
            self.origins = origins.into_iter().map(Into::into).collect();
        }

        /// Sets a callback for events, for a log.
        on_event(sink: impl Fn(&RpcServerEvent) + Send + Sync + 'static) {
            self.events = Events(Some(Arc::new(sink)));
        }
    }

    /// Starts the endpoint. It listens at once; [`/health`](RpcServer) says when a head is verified.
    ///
    /// # Errors
    /// Returns an error if nothing is trusted, if no upstream names its chain, or if the address or
    /// the folder cannot be opened.
    pub fn start(mut self, address: SocketAddr) -> Result<RpcServer, RpcServerError> {
        let (poll, hosts) = (self.poll, self.hosts.take());
        let given = hosts.as_deref().map(Hosts::new).transpose()?;
        let origins = Origins::new(std::mem::take(&mut self.origins))?;
        let proven = self.open()?;
        let calls = usize::try_from(proven.limits.max_calls).unwrap_or(usize::MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("chainsieve-rpc")
            // Subscriptions and calls that are passed on have threads of their own.
            .max_blocking_threads(calls.saturating_mul(3).clamp(16, 8192))
            .enable_all()
            .build()
            .map_err(|error| RpcServerError::Open(error.to_string()))?;
        let failed = |error| RpcServerError::Listen { address, error };
        let listener = runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let own = || address.ip().is_loopback().then(|| Hosts::new(&this_machine(address)));
        let hosts = given.map(Ok).or_else(own).transpose()?;
        let front = Front { proven: Arc::clone(&proven), hosts, origins };
        runtime.spawn(listen::accept(listener, Arc::new(front)));
        let head = follow_head(&proven, poll)?;
        Ok(RpcServer { address, proven, runtime: Some(runtime), head })
    }

    /// Starts without an address, for clients in this process. Returns when a head is verified.
    ///
    /// # Errors
    /// Returns the errors of [`start`](Self::start), and [`RpcServerError::NoHead`].
    #[cfg(feature = "alloy-layer")]
    pub fn layer(self) -> Result<super::alloy_layer::ProvenLayer, RpcServerError> {
        let poll = self.poll;
        let proven = self.open()?;
        proven.advance().map_err(RpcServerError::NoHead)?;
        follow_head(&proven, poll)?;
        Ok(super::alloy_layer::ProvenLayer::new(proven))
    }

    /// Opens everything except an address.
    fn open(self) -> Result<Arc<Proven>, RpcServerError> {
        let anchor = self.provider.0.settings.anchor.clone();
        let stop = self.provider.stop().child();
        let provider = self.provider.with_stop(stop.clone());
        let (chain_id, profile) = (provider.chain_id()?, provider.profile()?);
        let nodes = provider
            .nodes()
            .iter()
            .map(|node| node.with_max_answer(MAX_ANSWER).with_large_answers(LARGE_ANSWERS));
        let nodes: Vec<_> = nodes.collect();
        let store = match &self.folder {
            None => None,
            Some(folder) => {
                super::create_folder(folder).map_err(RpcServerError::Open)?;
                Some(Store::open(folder, self.limits.disk).map_err(RpcServerError::Open)?)
            }
        };
        let index = self.index.as_deref();
        let index = index.map(|folder| FilterIndex::open(folder, self.index_from, chain_id));
        let index = index.transpose().map_err(RpcServerError::Open)?;
        let metrics = Arc::new(Metrics::new(&nodes));
        let (compare, answers) = Compare::new(self.compare);
        let journal = Arc::new(Journal::new());
        let memory = self.limits.memory;
        let observer = Arc::new(Observed {
            metrics: Arc::clone(&metrics),
            events: self.events.clone(),
            journal: Arc::clone(&journal),
        });
        let calls = usize::try_from(self.limits.max_calls).unwrap_or(usize::MAX);
        let [passing, standing] = [
            (Bytes::Passing, self.limits.answer_memory),
            (Bytes::Standing, self.limits.filter_memory),
        ]
        .map(|(of, limit)| Budget::new(of, limit, Arc::clone(&metrics)));
        let (ahead, blocks) = mpsc::sync_channel(AHEAD);
        let (newly_final, woken) = mpsc::sync_channel(1);
        let proven = Arc::new(Proven {
            chain_id,
            chain: Chain::new(self.limits.max_headers),
            trusted: TrustedBlocks::default(),
            head_named_by: AtomicUsize::new(0),
            head_failure: Mutex::default(),
            journal,
            blocks: Blocks::new(nodes, profile, Options { memory, store, observer }),
            lookups: Lookups::new(),
            index,
            filters: Filters::new(self.limits.max_filters),
            compare,
            passing,
            standing,
            metrics,
            events: self.events,
            anchor,
            pass_unverified: self.pass_unverified,
            max_head_age: self.max_head_age,
            clients: Clients::new(&self.limits),
            connections: Arc::default(),
            subscriptions: Arc::default(),
            calls: permits(calls),
            background: permits(calls),
            passed: permits(calls),
            limits: self.limits,
            stop,
            ahead,
            newly_final,
            stopped: Arc::new(Notify::new()),
        });
        // The thread holds no reference, so that the last one to leave ends it.
        let looking = Arc::downgrade(&proven);
        spawn("chainsieve-ahead", move || {
            while let Ok(block) = blocks.recv() {
                let Some(proven) = looking.upgrade() else { return };
                proven.look_ahead(&block);
            }
        })?;
        let comparing = Arc::downgrade(&proven);
        spawn("chainsieve-compare", move || compare::run(&comparing, &answers))?;
        if proven.index.is_some() {
            let writing = Arc::downgrade(&proven);
            spawn("chainsieve-index", move || write_index(&writing, &woken))?;
        }
        Ok(proven)
    }
}

/// Adds blocks to the index whenever blocks became final, or again after a failure.
fn write_index(proven: &Weak<Proven>, woken: &mpsc::Receiver<()>) {
    let mut failed = None;
    loop {
        match woken.recv_timeout(INDEX_RETRY) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if failed.is_none() => continue,
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(proven) = proven.upgrade() else { return };
        let now = proven.add_to_index().err();
        // The same reason is said once.
        if let Some(why) = now.clone().filter(|_| now != failed && !proven.stop.is_set()) {
            proven.events.log(&RpcServerEvent::IndexFailed { why });
        }
        failed = now;
    }
}

fn permits(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, RpcServerError> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|error| RpcServerError::Open(error.to_string()))
}

fn follow_head(proven: &Arc<Proven>, poll: Duration) -> Result<JoinHandle<()>, RpcServerError> {
    let following = Arc::clone(proven);
    spawn("chainsieve-head", move || following.follow_head(poll))
}

fn this_machine(address: SocketAddr) -> Vec<String> {
    let names = ["localhost:*", "127.0.0.1:*", "[::1]:*"].map(str::to_owned);
    names.into_iter().chain([address.to_string()]).collect()
}

impl RpcServer {
    /// Returns the address that the endpoint listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the verified head; `None` until there is one.
    pub fn head(&self) -> Option<BlockRef> {
        self.proven.chain.head()
    }

    /// Returns the number of calls of clients so far.
    pub fn num_calls(&self) -> u64 {
        self.proven.metrics.num_calls()
    }

    /// Returns the handle that stops the endpoint.
    pub fn stop(&self) -> &Stop {
        &self.proven.stop
    }

    /// Waits until the endpoint is stopped.
    pub fn wait(self) {
        self.proven.stop.wait();
    }
}

/// Time that calls and requests in progress have when an endpoint ends.
const GRACE: Duration = Duration::from_secs(1);

/// Ends all connections. Calls and requests in progress are awaited for a second or two, so that the
/// folder is usually closed afterwards.
impl Drop for RpcServer {
    fn drop(&mut self) {
        self.proven.stop.set();
        self.proven.stopped.notify_waiters();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(GRACE);
        }
        let began = Instant::now();
        while self.proven.index.as_ref().is_some_and(|index| !index.close())
            && began.elapsed() < GRACE
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        while !self.head.is_finished() && began.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

//! The limits, and the resources that each client holds: connections, calls, filters, and bytes that the
//! client has not read yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::error::Refusal;
use super::operator::Metrics;
use crate::stop::lock;

/// Number of clients from which on clients that have left are removed.
const MANY: usize = 1024;

/// Number of subscriptions of a client that are processed at the same time.
const BACKGROUND: usize = 8;

/// Limits on the requests and the resources of clients. Each limit has an error of its own and a
/// counter.
///
/// A client is an IPv4 address, or a network of 64 bits of IPv6.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RpcServerLimits {
    /// Maximum number of blocks of a query (default: 100,000).
    pub max_blocks: u64,
    /// Maximum number of blocks in a query whose filters do not rule a match out (default: 10,000).
    pub max_candidates: u64,
    /// Maximum number of logs in an answer (default: 100,000).
    pub max_logs: u64,
    /// Maximum number of calls that are processed at the same time (default: 128). Further calls
    /// wait. Calls that read little, such as `eth_blockNumber`, are not counted.
    pub max_calls: u64,
    /// Maximum number of calls of one client that are processed at the same time (default: 32).
    pub max_calls_of_client: u64,
    /// Maximum time that a call waits for other calls to end (default: 10 s).
    pub max_wait: Duration,
    /// Maximum time for the answer to a call (default: 10 minutes).
    pub call_timeout: Duration,
    /// Maximum number of connections (default: 1,000).
    pub max_connections: u32,
    /// Maximum number of connections of one client (default: 200).
    pub max_connections_of_client: u32,
    /// `true` if a proxy stands in front of the endpoint: the client is then the last address in
    /// `X-Forwarded-For`, and connections are not counted for each client (default: `false`).
    pub behind_proxy: bool,
    /// Maximum number of subscriptions (default: 10,000).
    pub max_subscriptions: u64,
    /// Maximum number of subscriptions of one client (default: 2,000).
    pub max_subscriptions_of_client: u64,
    /// Maximum number of subscriptions of a connection (default: 100).
    pub max_subscriptions_of_connection: u32,
    /// Maximum number of installed filters (default: 10,000).
    pub max_filters: usize,
    /// Maximum number of filters of one client (default: 1,000).
    pub max_filters_of_client: u64,
    /// Maximum size of filters and subscriptions in bytes (default: 64 MiB). One client may use a quarter
    /// of this size.
    pub filter_memory: u64,
    /// Maximum number of calls in a batch (default: 1,000, as in go-ethereum).
    pub max_batch: u32,
    /// Maximum size of a request in bytes (default: 1 MiB).
    pub max_request: u32,
    /// Maximum time until a request has arrived completely, and between two requests of a connection
    /// (default: 30 s).
    pub request_timeout: Duration,
    /// Maximum size of an answer in bytes (default: 128 MiB).
    pub max_answer: u32,
    /// Maximum size in bytes of all requests and answers that are processed, or that clients have not
    /// read yet (default: 512 MiB). One client may use a quarter of this size, or have a single
    /// larger answer. A client that reads fewer than 8 KiB a second may be cut off after half a
    /// minute.
    pub answer_memory: u64,
    /// Maximum number of headers in memory, at 368 bytes (default: 1,000,000).
    pub max_headers: u64,
    /// Maximum size of proven headers, receipts and bodies in memory in bytes (default: 256 MiB). Receipts
    /// get nine sixteenths, and bodies four. Headers, the hashes of transactions, and the places of
    /// transactions get one sixteenth each.
    pub memory: u64,
    /// Maximum size of proven receipts and transactions on disk in bytes (default: 4 GiB).
    pub disk: u64,
    /// Number of blocks that are fetched at the same time for one query (default: 8).
    pub parallel: usize,
    /// Time until a subscription asks again for a block that no upstream had (default: 1 s).
    pub retry: Duration,
}

impl Default for RpcServerLimits {
    fn default() -> Self {
        Self {
            max_blocks: 100_000,
            max_candidates: 10_000,
            max_logs: 100_000,
            max_calls: 128,
            max_calls_of_client: 32,
            max_wait: Duration::from_secs(10),
            call_timeout: Duration::from_secs(600),
            max_connections: 1000,
            max_connections_of_client: 200,
            behind_proxy: false,
            max_subscriptions: 10_000,
            max_subscriptions_of_client: 2000,
            max_subscriptions_of_connection: 100,
            max_filters: 10_000,
            max_filters_of_client: 1000,
            filter_memory: 64 << 20,
            max_batch: 1000,
            max_request: 1 << 20,
            request_timeout: Duration::from_secs(30),
            max_answer: 128 << 20,
            answer_memory: 512 << 20,
            max_headers: 1_000_000,
            memory: 256 << 20,
            disk: 4 << 30,
            parallel: 8,
            retry: Duration::from_secs(1),
        }
    }
}

/// The clients that hold resources now, by their address.
#[derive(Debug)]
pub(super) struct Clients {
    calls: usize,
    known: Mutex<HashMap<IpAddr, Weak<Client>>>,
}

/// A client: all connections from one address.
#[derive(Debug)]
pub(super) struct Client {
    /// A permit for each call that may be processed at the same time.
    pub(super) calls: Arc<Semaphore>,
    pub(super) connections: Arc<AtomicU64>,
    /// A permit for each subscription that may be processed at the same time.
    pub(super) background: Arc<Semaphore>,
    pub(super) filters: Arc<AtomicU64>,
    pub(super) subscriptions: Arc<AtomicU64>,
    /// Bytes of its requests and answers.
    passing: AtomicU64,
    /// Bytes of its filters and subscriptions.
    standing: AtomicU64,
}

impl Clients {
    pub(super) fn new(limits: &RpcServerLimits) -> Self {
        let calls = usize::try_from(limits.max_calls_of_client).unwrap_or(usize::MAX);
        Self { calls: calls.min(Semaphore::MAX_PERMITS), known: Mutex::default() }
    }

    /// Returns the client of an address. All addresses of an IPv6 network of 64 bits are one
    /// client.
    pub(super) fn of(&self, address: IpAddr) -> Arc<Client> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address @ IpAddr::V4(_) => address,
        };
        let mut known = lock(&self.known);
        if let Some(client) = known.get(&address).and_then(Weak::upgrade) {
            return client;
        }
        if known.len() >= MANY && known.len().is_power_of_two() {
            known.retain(|_, client| client.strong_count() > 0);
        }
        let client = Arc::new(Client::new(self.calls));
        known.insert(address, Arc::downgrade(&client));
        client
    }
}

impl Client {
    /// `calls` is the maximum number of calls at the same time.
    pub(super) fn new(calls: usize) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(calls)),
            connections: Arc::default(),
            background: Arc::new(Semaphore::new(BACKGROUND)),
            filters: Arc::default(),
            subscriptions: Arc::default(),
            passing: AtomicU64::new(0),
            standing: AtomicU64::new(0),
        }
    }

    fn bytes(&self, of: Bytes) -> &AtomicU64 {
        match of {
            Bytes::Passing => &self.passing,
            Bytes::Standing => &self.standing,
        }
    }
}

/// One counted thing, for example a connection. It is counted until the value is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU64>);

impl Counted {
    /// Adds one to the count, unless the count has reached `limit`.
    pub(super) fn new(count: &Arc<AtomicU64>, limit: u64) -> Option<Self> {
        add(count, 1, |now| now <= limit).then(|| Self(Arc::clone(count)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn add(count: &AtomicU64, number: u64, fits: impl Fn(u64) -> bool) -> bool {
    let sum = |now: u64| now.checked_add(number).filter(|&sum| fits(sum));
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum).is_ok()
}

/// The kind of bytes that a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// Bytes of requests and answers, until they are read.
    Passing,
    /// Bytes of filters and subscriptions, until they end.
    Standing,
}

/// Maximum number of bytes that clients hold together. Each client may hold a quarter, or a single larger
/// thing if it holds at most a sixteenth besides.
#[derive(Debug)]
pub(super) struct Budget {
    of: Bytes,
    limit: u64,
    held: AtomicU64,
    metrics: Arc<Metrics>,
}

impl Budget {
    pub(super) fn new(of: Bytes, limit: u64, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { of, limit, held: AtomicU64::new(0), metrics })
    }

    /// Returns a part of the budget, which is empty at first.
    pub(super) fn part(self: &Arc<Self>, client: &Arc<Client>) -> Held {
        Held { budget: Arc::clone(self), client: Arc::clone(client), bytes: 0 }
    }

    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// Bytes that a client holds, until the value is dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    client: Arc<Client>,
    bytes: u64,
}

impl Held {
    /// Adds bytes.
    ///
    /// # Errors
    /// Returns an error if the budget, or the client's part of it, has no room for them.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let Budget { of, limit, held, metrics } = &*self.budget;
        let (all, each, name) = match of {
            Bytes::Passing => {
                let all = "bytes of answers that are not read yet";
                (all, "bytes of your answers", "answer_memory")
            }
            Bytes::Standing => ("bytes of filters", "bytes of your filters", "filter_memory"),
        };
        let busy = |what, limit| {
            metrics.limit_reached(name);
            Err(Refusal::Busy { what, limit })
        };
        let share = limit / 4;
        let own = self.bytes.saturating_add(bytes);
        let of_client = self.client.bytes(*of);
        let fits = |now: u64| now <= share || now.saturating_sub(own) <= share / 4;
        if !add(of_client, bytes, fits) {
            return busy(each, share);
        }
        if !add(held, bytes, |now| now <= *limit) {
            of_client.fetch_sub(bytes, Ordering::SeqCst);
            return busy(all, *limit);
        }
        self.bytes = own;
        Ok(())
    }

    /// Returns another part of the same budget for the same client, which is empty at first.
    pub(super) fn of_same(&self) -> Self {
        self.budget.part(&self.client)
    }

    /// Moves this number of bytes to a new part.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut other = self.of_same();
        other.bytes = bytes;
        other
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps this number of bytes, and returns all others to the budget.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.budget.held.fetch_sub(less, Ordering::SeqCst);
        self.client.bytes(self.budget.of).fetch_sub(less, Ordering::SeqCst);
        self.bytes -= less;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The counters in which an open connection is counted.
#[derive(Debug)]
pub(super) struct Open {
    _of_client: Option<Counted>,
    _all: Counted,
}

impl Open {
    /// Counts a connection of a client. The error is the name of the limit that the connection
    /// would exceed.
    pub(super) fn new(
        client: &Client,
        all: &Arc<AtomicU64>,
        limits: &RpcServerLimits,
    ) -> Result<Self, &'static str> {
        // Behind a proxy, all connections have its address.
        let of_client = (!limits.behind_proxy)
            .then(|| Counted::new(&client.connections, limits.max_connections_of_client.into()));
        match (of_client, Counted::new(all, limits.max_connections.into())) {
            (Some(None), _) => Err("connections_of_client"),
            (_, None) => Err("connections"),
            (of_client, Some(all)) => Ok(Self { _of_client: of_client.flatten(), _all: all }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients {
        Clients::new(&RpcServerLimits::default())
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let clients = clients();
        let of = |address: &str| clients.of(address.parse().expect("an address"));
        for (one, other, is_same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ] {
            assert_eq!(Arc::ptr_eq(&of(one), &of(other)), is_same, "{one} {other}");
        }
        // What nobody holds is forgotten.
        for number in 0..10_000_u32 {
            drop(clients.of(IpAddr::V4(number.into())));
        }
        assert!(clients.known.lock().expect("no panic").len() <= 2 * MANY);
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let (clients, budget) =
            (clients(), Budget::new(Bytes::Passing, 1000, Arc::new(Metrics::new(&[]))));
        let [one, other] =
            ["192.0.2.1", "192.0.2.2"].map(|address| clients.of(address.parse().expect("one")));
        // A single large answer is served, and nothing beside it.
        let mut large = budget.part(&one);
        assert!(large.grow(400).is_ok() && large.grow(200).is_ok());
        assert!(budget.part(&one).grow(1).is_err());
        // What is small beside it does not hinder it.
        let [mut request, mut answer] = [budget.part(&other), budget.part(&other)];
        assert!(request.grow(60).is_ok() && answer.grow(300).is_ok());
        drop((request, answer));
        let mut small: Vec<Held> = (0..6).map(|_| budget.part(&other)).collect();
        let granted = small.iter_mut().filter_map(|held| held.grow(50).ok()).count();
        assert_eq!(granted, 5, "a quarter");
        // Together they hold no more than the limit.
        assert!(large.grow(200).is_err());
        assert_eq!(budget.held(), 850);
        large.shrink_to(100);
        assert_eq!(budget.held(), 350);
        drop((large, small));
        assert_eq!(budget.held(), 0);
        assert!(budget.part(&one).grow(1001).is_err());
    }

    #[test]
    fn no_more_are_counted_than_the_limit() {
        let count = Arc::default();
        let counted: Vec<_> = (0..5).filter_map(|_| Counted::new(&count, 3)).collect();
        assert_eq!((counted.len(), count.load(Ordering::SeqCst)), (3, 3));
        drop(counted);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}

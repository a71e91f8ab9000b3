//! What each client holds: connections, calls, filters, and bytes that wait until it reads them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

use super::builder::RpcServerLimits;
use super::metrics::Metrics;
use super::refusal::Refusal;

/// Number of clients after which those that left are looked for.
const MANY: usize = 1024;

/// Number of subscriptions of a client for which is worked at the same time.
const BACKGROUND: usize = 8;

/// The clients that hold something now, by their address.
#[derive(Debug)]
pub(super) struct Clients {
    calls: usize,
    known: Mutex<HashMap<IpAddr, Weak<Client>>>,
}

/// A client: all connections from one address.
#[derive(Debug)]
pub(super) struct Client {
    /// A permit for each call that may be worked on at the same time.
    pub(super) calls: Arc<Semaphore>,
    pub(super) connections: Arc<AtomicU64>,
    /// A permit for each subscription for which is worked at the same time.
    pub(super) background: Arc<Semaphore>,
    filters: AtomicU64,
    subscriptions: AtomicU64,
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

    /// Returns the client of an address. Whoever has an IPv6 network of 64 bits is one client.
    pub(super) fn of(&self, address: IpAddr) -> Arc<Client> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address @ IpAddr::V4(_) => address,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
            filters: AtomicU64::new(0),
            subscriptions: AtomicU64::new(0),
            passing: AtomicU64::new(0),
            standing: AtomicU64::new(0),
        }
    }

    /// Counts one more filter, unless there are `limit` already.
    pub(super) fn filter(self: &Arc<Self>, limit: u64) -> Option<OwnFilter> {
        add(&self.filters, 1, |now| now <= limit).then(|| OwnFilter(Arc::clone(self)))
    }

    /// Counts one more subscription, unless there are `limit` already.
    pub(super) fn subscription(self: &Arc<Self>, limit: u64) -> Option<OwnSubscription> {
        let counted = add(&self.subscriptions, 1, |now| now <= limit);
        counted.then(|| OwnSubscription(Arc::clone(self)))
    }

    fn bytes(&self, of: Bytes) -> &AtomicU64 {
        match of {
            Bytes::Passing => &self.passing,
            Bytes::Standing => &self.standing,
        }
    }
}

/// A filter of a client, which is known for as long as it has one.
#[derive(Debug)]
pub(super) struct OwnFilter(Arc<Client>);

impl Drop for OwnFilter {
    fn drop(&mut self) {
        self.0.filters.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A subscription of a client.
#[derive(Debug)]
pub(super) struct OwnSubscription(Arc<Client>);

impl Drop for OwnSubscription {
    fn drop(&mut self) {
        self.0.subscriptions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One of the things that are counted, for as long as the value lives.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU64>);

impl Counted {
    /// Counts one more, unless there are `limit` already.
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

/// Which bytes of a client a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// Of requests and answers: until they are read.
    Passing,
    /// Of filters and subscriptions: until they end.
    Standing,
}

/// Maximum number of bytes that clients hold together. Each may hold a quarter, or one larger thing beside a
/// sixteenth.
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

    /// Returns a part of the budget, of no byte yet.
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

    /// Returns a part of the same budget for the same client, of no byte yet.
    pub(super) fn of_same(&self) -> Self {
        self.budget.part(&self.client)
    }

    /// Moves so many of the bytes to another part.
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

    /// Keeps so many bytes, and gives the others back.
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

//! Where peers are found, and when each is to be called again.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;

/// The wait after the first failure; twice as long after each other.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// A connection that lasted as long was none that failed.
const GOOD_AFTER: Duration = Duration::from_mins(1);
/// Addresses taken from DNS seeds.
const MAX_SEEDED: usize = 256;

/// The port that nodes of a network listen on.
pub(crate) fn default_port(network: Network) -> u16 {
    match network {
        Network::Testnet => 18_333,
        Network::Testnet4 => 48_333,
        Network::Signet => 38_333,
        Network::Regtest => 18_444,
        Network::Bitcoin => 8_333,
    }
}

/// The DNS seeds of Core 30 (`kernel/chainparams.cpp`).
pub(crate) fn seeds(network: Network) -> &'static [&'static str] {
    match network {
        Network::Bitcoin => &[
            "seed.bitcoin.sipa.be",
            "dnsseed.bluematt.me",
            "seed.bitcoin.jonasschnelli.ch",
            "seed.btc.petertodd.net",
            "seed.bitcoin.sprovoost.nl",
            "dnsseed.emzy.de",
            "seed.bitcoin.wiz.biz",
            "seed.mainnet.achownodes.xyz",
        ],
        Network::Testnet => &[
            "testnet-seed.bitcoin.jonasschnelli.ch",
            "seed.tbtc.petertodd.net",
            "seed.testnet.bitcoin.sprovoost.nl",
            "testnet-seed.bluematt.me",
            "seed.testnet.achownodes.xyz",
        ],
        Network::Testnet4 => &["seed.testnet4.bitcoin.sprovoost.nl", "seed.testnet4.wiz.biz"],
        Network::Signet => &["seed.signet.bitcoin.sprovoost.nl", "seed.signet.achownodes.xyz"],
        Network::Regtest => &[],
    }
}

/// Asks the system's resolver for the addresses behind a seed, of nodes with these services where
/// the seed tells them apart.
pub(crate) fn ask_seed(
    seed: &str,
    port: u16,
    services: ServiceFlags,
    none_before: bool,
) -> Vec<SocketAddr> {
    let filtered = format!("x{:x}.{seed}", services.to_u64());
    let resolve = |name: &str| (name, port).to_socket_addrs().map(Vec::from_iter);
    match resolve(&filtered) {
        Ok(found) if !found.is_empty() => found,
        // Some seeds do not know the prefix; whom they name may lack the services.
        _ if none_before => resolve(seed).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `--peer`: resolved each time.
    Named(String, u16),
    Socket(SocketAddr),
}

impl Target {
    /// `HOST`, `HOST:PORT`, an IPv6 address with or without brackets.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, &'static str> {
        let text = text.trim();
        if let Ok(socket) = text.parse() {
            return Ok(Self::Socket(socket));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Self::Socket((ip, default_port).into()));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => {
                (host, port.parse().map_err(|_| "the port is no number from 0 to 65535")?)
            }
            None => (text, default_port),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err("neither an address nor a name of a host");
        }
        Ok(Self::Named(host.to_owned(), port))
    }

    /// The addresses behind it. Asks the system's resolver, which takes what it takes.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Socket(socket) => Ok(vec![*socket]),
            Self::Named(host, port) => Ok((host.as_str(), *port).to_socket_addrs()?.collect()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(host, port) => write!(f, "{host}:{port}"),
            Self::Socket(socket) => socket.fmt(f),
        }
    }
}

/// What is known of an address.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    pub(crate) state: State,
    /// It has been called at least once, and the call is over.
    pub(crate) tried: bool,
    failures: u32,
    /// Not called before this.
    due: Duration,
}

/// Where an address stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    /// Being called, or connected.
    Busy,
    Banned,
}

/// All addresses. Times are counted from any one moment.
#[derive(Debug)]
pub(crate) struct AddressBook {
    pub(crate) entries: Vec<Entry>,
    /// For the jitter: peers that went down together are not called together.
    random: u64,
}

impl AddressBook {
    pub(crate) fn new(targets: impl IntoIterator<Item = Target>, seed: u64) -> Self {
        let mut book = Self { entries: Vec::new(), random: seed | 1 };
        for target in targets {
            book.add(target);
        }
        book
    }

    /// Adds an address that is not there yet.
    pub(crate) fn add(&mut self, target: Target) {
        if self.entries.len() < MAX_SEEDED
            && self.entries.iter().all(|entry| entry.target != target)
        {
            let (state, due) = (State::Idle, Duration::ZERO);
            self.entries.push(Entry { target, state, tried: false, failures: 0, due });
        }
    }

    /// Adds what seeds have named, in an order that they do not choose.
    pub(crate) fn add_shuffled(&mut self, mut found: Vec<SocketAddr>) {
        while !found.is_empty() {
            let at = usize::try_from(self.random() % found.len() as u64).unwrap_or(0);
            self.add(Target::Socket(found.swap_remove(at)));
        }
    }

    /// An address to call now.
    pub(crate) fn due(&self, now: Duration) -> Option<usize> {
        let is_due = |entry: &Entry| entry.state == State::Idle && entry.due <= now;
        let due = self.entries.iter().enumerate().filter(|(_, entry)| is_due(entry));
        due.min_by_key(|(_, entry)| (entry.failures, entry.due)).map(|(place, _)| place)
    }

    /// A call has failed, or a connection that lasted so long has ended. Returns how long the
    /// address is left alone.
    pub(crate) fn ended(&mut self, place: usize, lasted: Duration, now: Duration) -> Duration {
        let jitter = self.random() % 512;
        let Some(entry) = self.entries.get_mut(place) else { return Duration::ZERO };
        entry.failures = if lasted >= GOOD_AFTER { 1 } else { entry.failures.saturating_add(1) };
        let doublings = (entry.failures - 1).min(16);
        let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
        // Three quarters to five quarters of it.
        let wait = wait.saturating_mul(768 + u32::try_from(jitter).unwrap_or(0)) / 1_024;
        (entry.state, entry.tried, entry.due) = (State::Idle, true, now + wait);
        wait
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        let parse = |text| Target::parse(text, 8_333).map(|target| target.to_string());
        for (text, target) in [
            ("127.0.0.1", "127.0.0.1:8333"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("::1", "[::1]:8333"),
            ("[::1]", "[::1]:8333"),
            ("[::1]:1", "[::1]:1"),
            ("node.example", "node.example:8333"),
            (" node-1.example:65535 ", "node-1.example:65535"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(target), "{text}");
        }
        for text in ["", ":1", "node:65536", "node:", "node:x", "a b", "http://node", "a\u{1b}[m"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn waits_grow_to_a_limit_and_start_over_after_a_good_connection() {
        let mut book = AddressBook::new([Target::parse("a", 1).unwrap()], 7);
        let mut now = Duration::ZERO;
        for failure in 0..20 {
            assert_eq!(book.due(now), Some(0));
            let wait = book.ended(0, Duration::ZERO, now).as_secs_f64();
            let base = 2_f64.powi(failure).min(300.0);
            assert!((base * 0.74..base * 1.26).contains(&wait), "{failure}: {wait}");
            assert_eq!(book.due(now), None);
            now += Duration::from_secs(400);
        }
        assert!(book.ended(0, GOOD_AFTER, now) < Duration::from_secs(2));
    }

    #[test]
    fn who_failed_least_is_called_first_and_nobody_twice() {
        let mut book = AddressBook::new(["a", "b", "a"].map(|a| Target::parse(a, 1).unwrap()), 7);
        assert_eq!(book.entries.len(), 2);
        book.ended(0, Duration::ZERO, Duration::ZERO);
        let later = Duration::from_secs(10);
        assert_eq!(book.due(later), Some(1));
        book.entries[1].state = State::Busy;
        assert_eq!(book.due(later), Some(0));
        book.entries[0].state = State::Banned;
        assert_eq!(book.due(later), None);
    }
}

//! The configuration of a session.

use core::time::Duration;

use bitcoin::Network;

use super::policy::FilterPolicy;
use super::privacy::ADDRESS_POPULATION;

/// The configuration of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The network, which determines the limit of the proof of work.
    pub network: Network,
    /// The policy for building filters. For an existing wallet, use the tweak and the capacity of
    /// its earlier filters.
    pub filter: FilterPolicy,
    /// Assumed total number of addresses, for the privacy report. The report multiplies this number
    /// by the false-positive rate.
    pub address_population: f64,
    /// Limits on stored data and requests, and the timeout.
    pub limits: Limits,
}

impl Config {
    /// Returns a configuration with the default limits.
    pub fn new(network: Network, filter: FilterPolicy) -> Self {
        Self { network, filter, address_population: ADDRESS_POPULATION, limits: Limits::default() }
    }
}

/// Limits on what a session stores, and its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of requests that are not sent yet; 1,000,000 by default.
    pub queued: usize,
    /// Largest number of requests that are sent and not answered; 100 by default.
    pub in_flight: usize,
    /// Timeout of a request, after which the session reports
    /// [`Finding::Stalled`](super::Finding::Stalled); 60 s by default.
    pub timeout: Duration,
    /// Largest size of the cache of received transactions, in bytes. A transaction that was
    /// received outside of a block may replace a transaction that a block's answer lacks. The
    /// default is 4 MiB.
    pub cached_bytes: usize,
    /// Largest number of undelivered transactions that are remembered because they may arrive late;
    /// 10,000 by default.
    pub missing: usize,
    /// Largest number of watched outputs of the wallet. Outputs that the caller adds are included
    /// in the number, but are always stored. The default is 50,000.
    pub outpoints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queued: 1_000_000,
            in_flight: 100,
            timeout: Duration::from_secs(60),
            cached_bytes: 4 << 20,
            missing: 10_000,
            outpoints: 50_000,
        }
    }
}

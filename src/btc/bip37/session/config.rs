//! The configuration of a session.

use core::time::Duration;

use bitcoin::Network;

use super::policy::FilterPolicy;
use super::privacy::ADDRESS_POPULATION;

/// The configuration of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The network, for the proof of work.
    pub network: Network,
    /// How filters are made. Restore the tweak and the capacity of a wallet.
    pub filter: FilterPolicy,
    /// The addresses that false positives are drawn from, for the privacy report.
    pub address_population: f64,
    /// Bounds on what is kept, and the timeout.
    pub limits: Limits,
}

impl Config {
    /// A configuration with the usual limits.
    pub fn new(network: Network, filter: FilterPolicy) -> Self {
        Self { network, filter, address_population: ADDRESS_POPULATION, limits: Limits::default() }
    }
}

/// Bounds on what a session keeps, and its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests not sent yet.
    pub queued: usize,
    /// Requests sent and not answered.
    pub in_flight: usize,
    /// How long a request may wait before [`Finding::Stalled`](super::Finding::Stalled).
    pub timeout: Duration,
    /// Bytes of transactions that are kept for a while: one that came outside of blocks may stand
    /// in for one in a block.
    pub cached_bytes: usize,
    /// Answers that evidence can be held against.
    pub answers: usize,
    /// Bytes of those answers, with the filters that they answer.
    pub answer_bytes: usize,
    /// Transactions not delivered that may come late.
    pub missing: usize,
    /// Outputs of the wallet. Those given by hand count, and are always kept.
    pub outpoints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queued: 1_000_000,
            in_flight: 100,
            timeout: Duration::from_mins(1),
            cached_bytes: 4 << 20,
            answers: 1_000,
            answer_bytes: 16 << 20,
            missing: 10_000,
            outpoints: 50_000,
        }
    }
}

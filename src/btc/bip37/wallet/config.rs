//! What a session is set up with.

use core::time::Duration;

use bitcoin::Network;

use super::{ADDRESS_POPULATION, FilterPolicy};

/// What a session is set up with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// The network, for the proof of work.
    pub network: Network,
    /// How filters are made. Restore the tweak and the capacity of a wallet.
    pub filter: FilterPolicy,
    /// The addresses that false positives are drawn from, for the privacy report.
    pub address_population: f64,
    /// How much is kept.
    pub limits: Limits,
}

impl Config {
    /// A configuration with the usual limits.
    pub fn new(network: Network, filter: FilterPolicy) -> Self {
        Self { network, filter, address_population: ADDRESS_POPULATION, limits: Limits::default() }
    }
}

/// How much a session keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests not sent yet.
    pub queued: usize,
    /// Requests sent and not answered.
    pub in_flight: usize,
    /// How long a request may wait before [`Finding::Stalled`](super::Finding::Stalled).
    pub patience: Duration,
    /// Bytes of transactions that came outside of blocks and may stand in for one in a block.
    pub cached_bytes: usize,
    /// Answers that evidence can be held against.
    pub answers: usize,
    /// Bytes of those answers, with the filters that they answer.
    pub answer_bytes: usize,
    /// Transactions not delivered that may come late.
    pub missing: usize,
    /// Outputs of the wallet.
    pub outpoints: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queued: 1_000_000,
            in_flight: 100,
            patience: Duration::from_mins(1),
            cached_bytes: 4 << 20,
            answers: 1_000,
            answer_bytes: 16 << 20,
            missing: 10_000,
            outpoints: 50_000,
        }
    }
}

//! The wallet's side of a BIP37 connection, as a state machine without I/O.
//!
//! A [`Session`] takes events: what the wallet watches, the blocks to filter, the node's messages,
//! and the time. The session returns actions: messages to send, and findings.
//!
//! A session owns a [`WatchedItems`](crate::btc::wallet::WatchedItems) and builds the filter
//! according to a [`FilterPolicy`]. The session verifies every answer as [`Proof`](super::Proof)
//! does under the strict policy, and compares every transaction exactly with what is watched.
//!
//! # What a finding is worth
//! The proof of a block states how certain it is that a relevant transaction is in the block. It is
//! only the node's claim that the block contains no other relevant transaction, because a merkle
//! block proves only inclusion.
//!
//! Anyone who has the block can prove that the node left a transaction out ([`OmissionEvidence`]).
//! Other irregularities prove nothing, because they also happen with honest nodes: a transaction
//! that was announced but not delivered, a block that was not answered, an unexpected message. For
//! example, Core does not send a transaction again if it knows that the wallet has the transaction.
//!
//! # The node's filter
//! The node inserts outpoints into its filter for transactions in blocks, and also for transactions
//! that it announces. The session follows only the insertions for blocks, so its copy of the filter
//! (the mirror) may lack elements of the node's filter.
//!
//! To use an answer as evidence, keep it with the filter as it was loaded. Three conditions must hold:
//! no filter was sent between request and answer; the node answered every request exactly once; a
//! later `pong` shows that it had finished all its answers. The session does not check them.
//!
//! # Starting over
//! A transaction can be missed in three ways, and all lead to [`Finding::Refilter`] or
//! [`Finding::RefilterEarlier`]:
//!
//! - The wallet derives a key only after a transaction that uses an earlier key. The caller adds
//!   scripts after [`Finding::KeychainAdvanced`].
//! - The gap limit of BIP44 is a rule about indices, not about time: a key may be used in a block
//!   before the block that advanced its keychain. Once all requested blocks are answered, the
//!   session starts over from the lowest block that it was ever asked for.
//! - The node answers a block without the outpoint of an output of the wallet in its filter.
//!
//! Answers in flight are then superseded. Until all of them have arrived, no block is requested: they may
//! show further coins. The next filter contains the coins that they have shown, whether or not the node
//! answers their blocks again.
//!
//! A session knows only the blocks that it was asked for. If the wallet was searched by an earlier
//! session, the caller itself must request the blocks from the wallet's birthday on again whenever
//! a keychain receives new scripts.

mod blocks;
mod event;
mod evidence;
mod filter;
mod machine;
mod report;
#[cfg(test)]
mod tests;

use core::time::Duration;

use bitcoin::Network;

pub use event::{Action, Event, Finding, Message};
pub use evidence::{Ground, HeightEvidence, Omission, OmissionEvidence, TransactionInBlock};
pub use filter::{FilterPolicy, element_of, is_watchable};
pub use machine::Session;
pub use report::{
    ADDRESS_POPULATION, ELEMENTS_PER_TRANSACTION, MatchStats, PrivacyReport, RefreshReason,
    expected_match_rate,
};

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
    /// Largest number of requests that are not sent yet; 1,000,000 by default.
    pub queued: usize,
    /// Largest number of requests that are sent and not answered; 100 by default.
    pub in_flight: usize,
    /// Timeout of a request, after which the session reports
    /// [`Finding::Stalled`]; 60 s by default.
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

impl Config {
    /// Returns a configuration with the default limits.
    pub fn new(network: Network, filter: FilterPolicy) -> Self {
        Self {
            network,
            filter,
            address_population: ADDRESS_POPULATION,
            queued: 1_000_000,
            in_flight: 100,
            timeout: Duration::from_secs(60),
            cached_bytes: 4 << 20,
            missing: 10_000,
            outpoints: 50_000,
        }
    }
}

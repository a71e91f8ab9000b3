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
//! - A filter without the outpoint of an output was loaded while the block with the output was in
//!   flight.
//!
//! A session knows only the blocks that it was asked for. If the wallet was searched by an earlier
//! session, the caller itself must request the blocks from the wallet's birthday on again whenever
//! a keychain receives new scripts.

mod advance;
mod config;
mod elements;
mod event;
mod evidence;
mod fences;
mod machine;
#[cfg(feature = "std")]
mod messages;
mod missing;
mod node_filter;
mod open_block;
mod policy;
mod privacy;
mod recent;
mod request;
mod requests;
mod stats;
#[cfg(test)]
mod tests;

pub use config::{Config, Limits};
pub use elements::{element_of, is_watchable};
pub use event::{Action, ClosedBlock, Event, Finding, Message};
pub use evidence::{
    EvidenceError, Ground, HeightEvidence, Omission, OmissionEvidence, TransactionInBlock,
};
pub use machine::Session;
pub use policy::FilterPolicy;
pub use privacy::{ADDRESS_POPULATION, PrivacyReport};
pub use stats::{ELEMENTS_PER_TRANSACTION, MatchStats, RefreshReason, expected_match_rate};

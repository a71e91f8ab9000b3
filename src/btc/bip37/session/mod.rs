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
//! An answer is used as evidence against a node only with the filter as it was loaded, and only
//! under three conditions. No filter was sent between request and answer. The node answered every
//! request exactly once. A `pong` shows that the node had finished all its answers.
//!
//! # Starting over
//! A transaction can be missed in two ways, and both lead to [`Finding::Refilter`]:
//!
//! - The wallet derives a key only after a transaction that uses an earlier key. The caller adds
//!   scripts after [`Finding::KeychainAdvanced`].
//! - A filter without the outpoint of an output was loaded while the block with the output was in
//!   flight.
//!
//! If a key is used in a block before the block that advanced its keychain, this use is found only
//! by requesting earlier blocks again.

mod advance;
mod answers;
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

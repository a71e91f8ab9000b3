//! The wallet's side of BIP37, as a state machine without input and output.
//!
//! A [`Session`] takes events (what the wallet watches, the blocks it wants, the node's messages,
//! the time) and returns actions: messages to send, and findings. It owns a
//! [`Watch`](crate::btc::wallet::Watch), makes the filter by a [`FilterPolicy`], checks every answer
//! as [`Proof`](super::Proof) does under the strict policy, and compares every transaction exactly
//! with what is watched.
//!
//! # What a finding is worth
//! A relevant transaction is in its block as far as the block's proof goes. That a block holds no
//! other is the node's word: a merkle block proves inclusion only. Someone who has the block can
//! show that the node left something out ([`OmissionEvidence`]); a transaction announced but
//! not delivered, a block not answered, a message out of turn are no proof of anything, since
//! honest nodes meet them too: Core has not sent again what it knows the wallet to have.
//!
//! # The node's filter
//! The node inserts outpoints into its filter for transactions in blocks and for those that it
//! announces. The session follows it through the blocks alone, so its copy is a lower bound. An answer
//! is held against a node only with the filter as it was loaded; and only if no filter was sent
//! between request and answer, the node answered every request once, and a `pong` shows that it
//! had come to the end of its answers.
//!
//! # Starting over
//! A transaction can be missed in two ways, and both end in [`Finding::Refilter`]: the wallet
//! learns of a key only from the transaction that uses the one before (the caller adds scripts
//! after [`Finding::KeychainAdvanced`]), or a filter without an output's outpoint was loaded
//! while the block with the output was on its way. A key used in an earlier block than the one
//! that advanced its keychain is found only by going back further.

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

//! The wallet's side of BIP37, as a state machine without input and output.
//!
//! A [`Session`] takes events (what the wallet watches, the blocks it wants, the node's messages,
//! the time) and returns actions: messages to send, and findings. It keeps the watched keys,
//! scripts and outpoints, makes the filter by a [`FilterPolicy`], checks every answer as
//! [`Proof`] does under the strict policy, and compares every transaction exactly
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

mod blocks;
mod claims;
mod config;
mod evidence;
#[cfg(feature = "std")]
mod messages;
mod policy;
mod recent;
mod session;
#[cfg(test)]
mod tests;
mod watch;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::{BlockHash, ScriptBuf, Transaction, Txid};

pub use config::{Config, Limits};
pub use evidence::{
    EvidenceError, Ground, HeightEvidence, Omission, OmissionEvidence, TransactionInBlock,
};
pub use policy::{
    ADDRESS_POPULATION, ELEMENTS_PER_TRANSACTION, FilterPolicy, MatchStats, PrivacyReport,
    RefreshReason, expected_match_rate,
};
pub use session::Session;
pub use watch::{Label, Received, Relevance, Spent, Watched};

use super::{AddedData, BloomFilter, MerkleBlock, Proof, ProofError, SizingError};
use crate::btc::headers::BlockAt;

/// What a session is told. With the feature `std` it converts from `bitcoin`'s messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection to a node that offers bloom filters is ready.
    Connected,
    /// The connection is gone. Blocks not answered are asked for again on the next one.
    Disconnected,
    /// The wallet watches more. After [`Finding::KeychainAdvanced`], all new scripts of that
    /// keychain in one event.
    Watch(Vec<Watched>),
    /// The wallet wants these blocks filtered, in this order.
    Request(Vec<BlockAt>),
    /// The height of the best header. With it, proofs say how deep a block is.
    Tip(u32),
    /// The chain of headers has changed from this height on: requests from there are dropped.
    /// The wallet's transactions from there are unconfirmed, and are reported so if they come.
    Reorganized(u32),
    /// The wallet knows this index of a keychain, and all before it, to be used.
    Used(Label),
    /// Load the filter afresh.
    Refresh,
    /// The node sent a merkle block.
    MerkleBlock(MerkleBlock),
    /// The node sent a transaction. Its witnesses are dropped: nodes send none here.
    Tx(Transaction),
    /// The node sent a `pong`: to a ping of the session, or of the caller, which is passed over.
    Pong(u64),
    /// The node sent any other message.
    Other,
    /// Someone shows a transaction of a block that the node answered for.
    OmissionClaim(BlockHash, TransactionInBlock),
    /// Someone shows the coinbase transaction of a block that the node answered for.
    HeightClaim(BlockHash, TransactionInBlock),
    /// Time has passed.
    Tick,
}

/// What a session wants done or known.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this to the node.
    Send(Message),
    /// Know this.
    Report(Finding),
}

/// A message to the node. With the feature `std` it converts into `bitcoin`'s.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// `filterload`.
    FilterLoad(BloomFilter),
    /// `filteradd`.
    FilterAdd(AddedData),
    /// `getdata` for filtered blocks.
    GetFilteredBlocks(Vec<BlockHash>),
    /// `ping`, which fences off the answers before its `pong`. The caller's own pings must not
    /// use its nonce; random ones do not.
    Ping(u64),
}

/// What a session has found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A transaction of the wallet.
    Relevant(Box<RelevantTransaction>),
    /// A transaction that is not the wallet's; with the block that it came with.
    FalsePositive(Txid, Option<BlockHash>),
    /// A block was answered and is closed: what it proves. Follows the findings about its
    /// transactions.
    Block(Box<Proof>),
    /// A transaction in a block's tree that was not delivered before the block was closed.
    ///
    /// No proof of anything: nodes may pass over what they sent long ago. If it comes later, it
    /// is reported then.
    NotDelivered {
        /// The block.
        block: BlockHash,
        /// The position in the block.
        index: u32,
        /// The transaction's id.
        txid: Txid,
    },
    /// A transaction that came while a block's were outstanding, and is not in its tree.
    NotInTree {
        /// The block.
        block: BlockHash,
        /// The transaction's id.
        txid: Txid,
    },
    /// A merkle block for a requested block that proves nothing. The request is done with.
    ///
    /// Only a node that is broken or lies sends a malformed tree. If the proof of work is
    /// missing, the caller asked for a block of another network, since the hash is what was
    /// asked for. An inner node that reads as a transaction is chance once in about 10^13, or the
    /// work of who ground two ids: the full block settles it.
    InvalidMerkleBlock(BlockHash, ProofError),
    /// A matched transaction of 64 bytes, which cannot be told from an inner node, and was passed
    /// over. An honest node sends it if a miner has put one into a block.
    Refused {
        /// The block.
        block: BlockHash,
        /// The position in the block.
        index: u32,
        /// The transaction's id.
        txid: Txid,
    },
    /// Transactions of one block that are larger together than a block can be.
    OversizedBlock(BlockHash),
    /// A merkle block that was not asked for. Answers that no `pong` has fenced off yet, and any
    /// to come on this connection, are not held against the node.
    Unrequested(BlockHash),
    /// A request that the node passed over, as a later `pong` shows. It is done with.
    Unanswered(BlockHash),
    /// The oldest request has waited this long.
    Stalled(BlockHash, Duration),
    /// A script further along a keychain is used than any before: look ahead and add scripts.
    KeychainAdvanced {
        /// What was used.
        label: Label,
        /// The block; `None` for an unconfirmed transaction.
        block: Option<BlockHash>,
    },
    /// Transactions may have been missed from here on. Request this block and all after it;
    /// requests not answered yet are dropped.
    Refilter(BlockAt),
    /// The filter should be loaded afresh.
    RefreshAdvised(RefreshReason),
    /// What the filter just loaded tells an observer. On the first filter of a session, and
    /// whenever its parameters change.
    Privacy(PrivacyReport),
    /// A script that BIP37 cannot watch: it pushes no data.
    Unwatchable(ScriptBuf),
    /// No filter has room for what is watched. The one before stays.
    NoFilter(SizingError),
    /// So many outputs or requests were over the limit and are not kept.
    LimitReached(usize),
    /// An answer left out a transaction that matches the filter.
    ///
    /// The node on the connection with this number gave it, which need not be the present one:
    /// answers outlive their connection. See [`Session::connection`].
    Omission {
        /// The number of the connection.
        connection: u64,
        /// What shows it to anyone.
        evidence: Box<OmissionEvidence>,
        /// What it shows.
        omission: Omission,
    },
    /// An answer gave the block's tree another height than it has. As with an omission, the
    /// connection tells whose answer it was.
    FalseHeight {
        /// The number of the connection.
        connection: u64,
        /// What shows it to anyone.
        evidence: Box<HeightEvidence>,
        /// The height that the tree has.
        height: u32,
    },
    /// What was shown is no evidence.
    NoEvidence(BlockHash, EvidenceError),
}

/// A transaction of the wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelevantTransaction {
    /// The transaction, without witness.
    pub transaction: Transaction,
    /// Its id.
    pub txid: Txid,
    /// The block and the position there; `None` while unconfirmed.
    pub place: Option<(BlockHash, u32)>,
    /// What of it is the wallet's.
    pub relevance: Relevance,
}

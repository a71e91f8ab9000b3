//! What goes into a session and what comes out.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::{BlockHash, OutPoint, ScriptBuf, Transaction, Txid};

use super::evidence::{
    EvidenceError, HeightEvidence, Omission, OmissionEvidence, TransactionInBlock,
};
use super::privacy::PrivacyReport;
use super::stats::RefreshReason;
use crate::btc::bip37::{AddedData, BloomFilter, MerkleBlock, Proof, ProofError, SizingError};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::{Label, RelevantTransaction, Watched};

/// What a session takes. With the feature `std`, `bitcoin`'s messages convert into it.
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
    /// Blocks from this height on are to be requested again: the chain has changed, or the caller
    /// starts over. Queued requests from there are dropped, answers in flight no longer count, and
    /// the wallet's transactions from there are unconfirmed.
    Reorganized(u32),
    /// The wallet knows this index of a keychain, and all before it, to be used.
    Used(Label),
    /// The wallet watches less: the scripts with these indices of [`Session::watch`] go, with
    /// their outputs, and these outputs. The node's filter keeps them until [`Event::Refresh`].
    ///
    /// [`Session::watch`]: super::Session::watch
    Unwatch {
        /// Indices of scripts.
        scripts: Vec<usize>,
        /// Outputs added by hand.
        outpoints: Vec<OutPoint>,
    },
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

/// What a session returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this to the node.
    Send(Message),
    /// A finding for the caller.
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

/// A block that was answered: no more transactions of it are waited for.
#[derive(Debug, Clone, PartialEq)]
pub struct ClosedBlock {
    proof: Proof,
    block: BlockAt,
    counts: bool,
    undelivered: Option<Txid>,
}

impl ClosedBlock {
    pub(super) fn new(
        proof: Proof,
        block: BlockAt,
        counts: bool,
        undelivered: Option<Txid>,
    ) -> Self {
        Self { proof, block, counts, undelivered }
    }

    /// What the answer proves.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// The block, at the height that it was requested with.
    pub fn block(&self) -> BlockAt {
        self.block
    }

    /// Whether the answer counts. `false` if it was given under a filter that lacked something, or
    /// the block has left the chain: a request after [`Finding::Refilter`] or
    /// [`Event::Reorganized`] takes its place.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// A transaction of the block's tree that did not come, if any; [`Finding::NotDelivered`] named
    /// each of them. The block is not answered wholly then.
    pub fn undelivered(&self) -> Option<Txid> {
        self.undelivered
    }
}

/// What a session has found.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A transaction of the wallet.
    Relevant(Box<RelevantTransaction>),
    /// A transaction that is not the wallet's; with the block that it came with.
    FalsePositive(Txid, Option<BlockHash>),
    /// A block was answered and is closed. Follows the findings about its transactions.
    Block(Box<ClosedBlock>),
    /// A transaction in a block's tree that was not delivered before the block was closed; see
    /// [`ClosedBlock::undelivered`].
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
    /// A request that the node passed over, as a later `pong` shows. It is done with. Not reported
    /// where the answer would not count: the block will be asked for again.
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
    /// A script that BIP37 cannot watch, since it pushes no data. [`is_watchable`] tells so before
    /// any session.
    ///
    /// [`is_watchable`]: super::is_watchable
    Unwatchable(ScriptBuf),
    /// No filter has room for what is watched. The one before stays.
    NoFilter(SizingError),
    /// So many outputs or requests were over the limit and are not kept.
    LimitReached(usize),
    /// An answer left out a transaction that matches the filter.
    ///
    /// The node on the connection with this number gave it, which need not be the present one:
    /// answers outlive their connection. See [`Session::connection`](super::Session::connection).
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

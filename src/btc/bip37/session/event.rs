//! Inputs and outputs of a session: events, actions, messages and findings.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

#[cfg(feature = "std")]
use bitcoin::hashes::Hash as _;
#[cfg(feature = "std")]
use bitcoin::p2p::{message::NetworkMessage, message_blockdata::Inventory};
use bitcoin::{BlockHash, OutPoint, ScriptBuf, Transaction, Txid};

use super::report::{PrivacyReport, RefreshReason};
#[cfg(feature = "std")]
use crate::btc::bip37::PayloadError;
use crate::btc::bip37::{
    AddedData, BloomFilter, FilterError, MerkleBlock, MerkleBlockError, Proof,
};
use crate::btc::headers::BlockAt;
#[cfg(feature = "std")]
use crate::btc::protocol::MSG_FILTERED_BLOCK;
use crate::btc::wallet::{Label, RelevantTransaction, WatchItem};

/// Input of a session. With the feature `std`, `bitcoin`'s messages convert into it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection to a node that offers Bloom filters is ready.
    Connected,
    /// The connection is closed. Blocks that were not answered are requested again on the next
    /// connection.
    Disconnected,
    /// The wallet watches more items. After [`Finding::KeychainAdvanced`], add all new scripts of
    /// that keychain in one event.
    Watch(Vec<WatchItem>),
    /// The wallet requests these blocks as filtered blocks, in this order.
    Request(Vec<BlockAt>),
    /// The height of the best header. This height lets proofs state how many confirmations a block
    /// has.
    Tip(u32),
    /// Blocks from this height on must be requested again, because of a reorganisation or because
    /// the caller starts over.
    ///
    /// Queued requests from that height on are dropped, answers in flight become invalid, and the
    /// wallet's transactions from that height on become unconfirmed.
    Reorganized(u32),
    /// The wallet knows that this index of a keychain, and all indices before it, are used.
    Used(Label),
    /// The wallet stops watching scripts and outpoints: the scripts with these indices of
    /// [`Session::watch`], with their outputs, and the given outpoints. The elements of these
    /// scripts and outpoints stay in the node's filter until [`Event::Refresh`].
    ///
    /// [`Session::watch`]: super::Session::watch
    Unwatch {
        /// Indices of the scripts, as in [`Session::watch`](super::Session::watch).
        scripts: Vec<usize>,
        /// Outpoints that the caller added with [`Event::Watch`].
        outpoints: Vec<OutPoint>,
    },
    /// The caller asks the session to send a new filter of everything watched.
    Refresh,
    /// The node sent a merkle block.
    MerkleBlock(MerkleBlock),
    /// The node sent a transaction. Witnesses are dropped: nodes send none by BIP37, and a txid does
    /// not commit to them.
    Tx(Transaction),
    /// The node sent a `pong`. A `pong` to a ping of the caller's own is ignored.
    Pong(u64),
    /// The node sent any other message.
    Other,
    /// Time has passed; nothing else has happened.
    Tick,
}

/// Output of a session.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Send this message to the node.
    Send(Message),
    /// A finding for the caller.
    Report(Finding),
}

/// A message to the node. With the feature `std`, it converts into `bitcoin`'s type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// `filterload`: the filter of everything watched.
    FilterLoad(BloomFilter),
    /// `filteradd`: one more element for the node's filter.
    FilterAdd(AddedData),
    /// `getdata` for filtered blocks.
    GetFilteredBlocks(Vec<BlockHash>),
    /// `ping` after requests: its `pong` shows that the node has answered all requests before it.
    /// The caller's own pings must not use the same nonces; random nonces do not collide.
    Ping(u64),
}

/// A result that a session reports.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// A transaction of the wallet.
    Relevant(Box<RelevantTransaction>),
    /// A transaction that is not the wallet's, with the block that contained it; `None` for an
    /// unconfirmed transaction.
    FalsePositive(Txid, Option<BlockHash>),
    /// A block was answered and is closed: the session waits for no further transactions of it. This
    /// finding follows the findings about the block's transactions.
    Block {
        /// The proof of the answer.
        proof: Box<Proof>,
        /// The block, with the height that its request gave.
        block: BlockAt,
        /// `true` if the answer is valid.
        ///
        /// `false` if the answer was given with a filter that lacked an element, or if the block has
        /// left the chain. An invalid answer is replaced by a new request, after
        /// [`Finding::Refilter`] or [`Event::Reorganized`].
        counts: bool,
        /// A transaction of the block's tree that was not delivered, if any.
        /// [`Finding::NotDelivered`] reported each such transaction. The answer is then incomplete.
        undelivered: Option<Txid>,
    },
    /// A transaction of a block's tree was not delivered before the block was closed.
    ///
    /// This finding proves nothing against the node: nodes may skip transactions that they sent
    /// long ago. If the transaction arrives later, it is reported when it arrives.
    NotDelivered {
        /// Hash of the block.
        block: BlockHash,
        /// Position of the transaction in the block.
        index: u32,
        /// Txid of the transaction.
        txid: Txid,
    },
    /// A transaction was received while transactions of a block were outstanding, but the block's
    /// tree does not contain it.
    NotInTree {
        /// Hash of the block.
        block: BlockHash,
        /// Txid of the transaction.
        txid: Txid,
    },
    /// The merkle block for a requested block fails verification. The request is closed.
    ///
    /// Only a faulty or lying node sends a malformed tree. The header has the requested hash, so if
    /// its proof of work is invalid, the caller requested a block of another network. An inner node
    /// has the bytes of a transaction by chance once in about 10^13, or if someone searched for two
    /// fitting txids. The full block shows whether the tree is the block's own tree.
    InvalidMerkleBlock(BlockHash, MerkleBlockError),
    /// A matched transaction of 64 bytes was ignored, because it cannot be distinguished from an
    /// inner node. An honest node sends such a transaction if a miner has put it into a block.
    Refused {
        /// Hash of the block.
        block: BlockHash,
        /// Position of the transaction in the block.
        index: u32,
        /// Txid of the transaction.
        txid: Txid,
    },
    /// The transactions delivered for one block are together larger than a block can be.
    OversizedBlock(BlockHash),
    /// The node sent a merkle block that was not requested.
    ///
    /// Answers that no `pong` has confirmed yet, and all later answers on this connection, are no
    /// evidence against the node: each could belong to another request.
    Unrequested(BlockHash),
    /// The node skipped a request, as a later `pong` shows. The request is closed. This finding is
    /// left out if the answer would be invalid anyway, because the block will then be requested
    /// again.
    Unanswered(BlockHash),
    /// The oldest request is overdue: it has waited for this time.
    Stalled(BlockHash, Duration),
    /// A script with a higher index than all used scripts of its keychain was used. Derive further
    /// scripts of the keychain and add them.
    KeychainAdvanced {
        /// The keychain and the index of the used script.
        label: Label,
        /// The block of the transaction; `None` for an unconfirmed transaction.
        block: Option<BlockHash>,
    },
    /// Transactions may have been missed from this block on. Request this block and all blocks
    /// after it. Requests that are not answered yet are dropped.
    Refilter(BlockAt),
    /// Scripts of a keychain were added after blocks were answered. This is the lowest of these
    /// blocks. By the gap limit, the blocks may pay to the scripts too: request the blocks again,
    /// from the wallet's birthday on. Reported once no request is pending.
    RefilterEarlier(BlockAt),
    /// A new filter should be loaded ([`Event::Refresh`]).
    RefreshAdvised(RefreshReason),
    /// The information that the new filter reveals to an observer. This finding is reported for the
    /// first filter of a session, and whenever the filter's parameters change.
    Privacy(PrivacyReport),
    /// BIP37 cannot watch this script, because it pushes no data. [`is_watchable`] tests that
    /// without a session.
    ///
    /// [`is_watchable`]: super::is_watchable
    Unwatchable(ScriptBuf),
    /// No filter is large enough for all watched elements. The earlier filter stays loaded, and no block is
    /// requested until a filter fits: remove watched items, and load one ([`Event::Refresh`]).
    NoFilter(FilterError),
    /// The number of outputs or requests that exceeded a limit and were dropped.
    LimitReached(usize),
}

/// Converts a message from the node. Messages that a session does not use become [`Event::Other`].
#[cfg(feature = "std")]
impl From<NetworkMessage> for Event {
    fn from(message: NetworkMessage) -> Self {
        match message {
            NetworkMessage::MerkleBlock(block) => Self::MerkleBlock((&block).into()),
            NetworkMessage::Tx(tx) => Self::Tx(tx),
            NetworkMessage::Pong(nonce) => Self::Pong(nonce),
            _ => Self::Other,
        }
    }
}

#[cfg(feature = "std")]
impl TryFrom<Message> for NetworkMessage {
    type Error = PayloadError;

    /// # Errors
    /// Returns an error for a filter with reserved flags, which no session sends.
    fn try_from(message: Message) -> Result<Self, PayloadError> {
        Ok(match message {
            Message::FilterLoad(filter) => Self::FilterLoad(filter.try_into()?),
            Message::FilterAdd(data) => Self::FilterAdd(data.into()),
            Message::Ping(nonce) => Self::Ping(nonce),
            Message::GetFilteredBlocks(blocks) => Self::GetData(
                blocks
                    .iter()
                    .map(|block| Inventory::Unknown {
                        inv_type: MSG_FILTERED_BLOCK,
                        hash: block.to_byte_array(),
                    })
                    .collect(),
            ),
        })
    }
}

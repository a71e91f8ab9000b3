//! The Bitcoin light client as one state machine: header sync, block scanning by BIP157 or BIP37,
//! peer failover, wallets and broadcast. The machine opens no sockets, reads no clock and writes no
//! files.
//!
//! # What you call
//! - [`LightClient`] with its [`Config`]: one value, whose [`handle`](LightClient::handle) does
//!   everything. Its other methods only read.
//! - [`Wallet`] with its [`Item`]s and its [`Birthday`]: what the client searches for.
//! - [`Update`] with its [`News`]: the reports to a reader, above all each [`Hit`], and the
//!   [`Graded`] ranges of blocks in which nothing else was found.
//!
//! # What you drive
//! - [`Event`] goes in, [`Action`] comes out.
//! - [`Write`], [`File`] and [`StoredFiles`] are for the storage.
//!
//! # How to drive it
//! 1. Create a [`LightClient`] from a [`Config`] and the files of an earlier run ([`StoredFiles`]).
//! 2. Pass in each event as an [`Event`]: connections, messages of peers, wallets, and an
//!    [`Event::Tick`] a few times a second. `now` is the [current time](crate#time).
//! 3. Carry out each [`Action`], **in order**. Never carry out an [`Action::Write`] before an
//!    earlier [`Action::Write`]. Once a write is durable, report it with [`Event::Stored`]. Several
//!    writes may be made durable together: reporting the last id covers all writes before it.
//! 4. Deliver each [`Action::Update`] to its reader. Pass in [`Event::Acknowledged`] once the
//!    reader has processed the update. After a restart, the client delivers unacknowledged hits and
//!    withdrawals once more and marks them with [`Update::again`].
//!
//! # Crash safety
//! A hit is durable before its update is delivered. The progress of the scan becomes durable only
//! after the hits that the scan found. A height is [settled](LightClient::settled_to) only while a
//! valid filter excludes everything watched, or after its block was scanned. The client does not
//! record this itself: it asks [`FilterSync`](crate::btc::bip157::FilterSync) (BIP157) or
//! [`Session`](crate::btc::bip37::session::Session) (BIP37).
//!
//! # Files
//! The machine encodes all files itself. The storage treats a file as a sequence of bytes and needs
//! the three operations of [`Write`]. [`File`] lists the files.

mod blocks_asked;
mod bloom;
mod broadcast;
mod filter_cache;
mod filters;
mod follower;
mod header_sync;
mod hits;
mod journal;
mod machine;
mod outbox;
mod start;
mod state;
mod wallets;
mod words;

use core::fmt;
use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::block::Header;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::{Magic, ServiceFlags};
use bitcoin::{
    Amount, Block, BlockHash, FeeRate, Network, OutPoint, ScriptBuf, Transaction, Txid, Work,
};
use thiserror::Error;

use crate::btc::bip37::MerkleBlockError;
use crate::btc::bip157;
use crate::btc::headers::{BLOCK_TIME, BlockAt, HeaderError, MAX_HEADERS};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::protocol::MAX_INV_SIZE;
use crate::btc::wallet::TxPosition;

pub use blocks_asked::BlockError;
pub use broadcast::BroadcastNews;
pub use header_sync::minimum_work;
pub use machine::LightClient;
pub use start::OpenError;
pub use state::RestoreError;
pub use wallets::{Birthday, Item, ItemCause, ItemError, Wallet};
#[cfg(feature = "serde")]
use words::json;

/// The protocol by which the client finds the transactions of wallets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// Compact block filters (BIP157): peers learn only which blocks the client downloads.
    #[default]
    Bip157,
    /// Bloom filters (BIP37): the serving peer learns most of the watched addresses and can omit
    /// transactions unnoticed.
    Bip37,
    /// Headers only: the client does not search for transactions of wallets.
    HeadersOnly,
}

/// Configuration of a [`LightClient`].
#[derive(Debug, Clone)]
pub struct Config {
    /// The Bitcoin network to follow.
    pub network: Network,
    /// Network magic, the four bytes at the start of each message: that of
    /// [`network`](Self::network), except on a custom signet.
    pub magic: Magic,
    /// Block time in seconds at which the difficulty of the network aims: 600, except on a custom
    /// signet whose nodes run with another `-signetblocktime`. With the wrong block time, the
    /// client refuses the headers of every honest peer.
    pub block_time: u32,
    /// The protocol by which the client finds the transactions of wallets.
    pub protocol: Protocol,
    /// Block from which the client scans even if no wallet asks for it; a wallet with an earlier
    /// birthday lowers this first height. `None`: only the birthdays of the wallets determine the
    /// first height.
    pub first: Option<Birthday>,
    /// Height of the last block to scan. `None`: no limit, so new blocks and, with BIP37,
    /// unconfirmed transactions are followed too.
    pub last: Option<u32>,
    /// Minimum work of a chain. With less work, the client is not caught up and starts no scan: such
    /// a chain is not that of the network. So a birthday that is given as a time is not resolved too
    /// early. The default is [`minimum_work`].
    pub minimum_work: Work,
    /// Secret random bytes that no peer may know. The seed selects the blocks of the spot audits
    /// and the tweak of a new BIP37 filter.
    pub seed: [u8; 16],
    /// Time that a peer has to answer before the client asks another peer.
    pub timeout: Duration,
    /// BIP157: filter headers that the caller trusts, keyed by height. Each height must be a
    /// multiple of 1,000.
    pub checkpoints: BTreeMap<u32, FilterHeader>,
    /// BIP157: on average, one block in this many is downloaded to audit its filter. 0: no spot
    /// audits.
    pub spot_audits: u32,
    /// BIP157: limits on downloads and memory. The timeout in these limits is ignored;
    /// [`timeout`](Self::timeout) replaces it.
    pub filter_limits: bip157::Limits,
    /// BIP157: bytes of filters to store, so that a rescan need not download the same filters
    /// again. 0: no filters are stored.
    pub kept_filters: u64,
    /// BIP37: target false-positive rate, the fraction of unrelated elements that match the filter.
    /// Must be in (0, 1); 1e-5 by default. If no filter meets the rate, the client reports
    /// [`Finding::NoFilter`].
    pub fpr: f64,
    /// BIP37: maximum number of block requests in flight, from 1 to 2,000; 100 by default. With 0,
    /// the client requests no block. A number above 2,000 has the same effect as 2,000.
    pub in_flight: usize,
}

impl Config {
    /// Creates the default configuration: BIP157, a timeout of 30 s, one spot audit in 1,000
    /// blocks, no stored filters, no first and no last height.
    pub fn new(network: Network, seed: [u8; 16]) -> Self {
        Self {
            network,
            magic: network.magic(),
            block_time: BLOCK_TIME,
            protocol: Protocol::Bip157,
            first: None,
            last: None,
            minimum_work: minimum_work(network),
            seed,
            timeout: Duration::from_secs(30),
            checkpoints: BTreeMap::new(),
            spot_audits: 1_000,
            filter_limits: bip157::Limits::default(),
            kept_filters: 0,
            fpr: 1e-5,
            in_flight: 100,
        }
    }
}

/// Identifier of a wallet, chosen by the caller; [`is_valid`](Self::is_valid) states the rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WalletId(
    /// The text of the id.
    pub String,
);

impl WalletId {
    /// First character of internal ids. Internal ids belong to wallets that the client creates to
    /// find broadcast transactions in blocks. A caller's id must not begin with this character, so
    /// that internal ids and callers' ids never collide.
    const INTERNAL: char = '\0';
    /// Maximum length of an id in bytes. The journal repeats the id in the record of each hit, so
    /// the limit keeps the journal small.
    pub const MAX_BYTES: usize = 255;

    /// Returns `true` if a caller may use this id: it has 1 to [`MAX_BYTES`](Self::MAX_BYTES) bytes
    /// and does not begin with a zero byte, which marks the client's internal ids.
    pub fn is_valid(&self) -> bool {
        (1..=Self::MAX_BYTES).contains(&self.0.len()) && !self.is_internal()
    }

    fn is_internal(&self) -> bool {
        self.0.starts_with(Self::INTERNAL)
    }

    /// Returns the internal id of the wallet that finds the broadcast transaction `txid` in blocks.
    fn of_broadcast(txid: &Txid) -> Self {
        Self(std::format!("{}{txid}", Self::INTERNAL))
    }
}

impl fmt::Display for WalletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for WalletId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// The unverified claims of a peer about itself, from its `version` message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Printable name of the peer, such as its address.
    pub name: String,
    /// Services that the peer claims to offer.
    pub services: ServiceFlags,
    /// Height of the best block that the peer claims to have.
    pub start_height: u32,
}

/// Input of the [`LightClient`]: something that has happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A connection to a peer is ready: the version handshake is complete.
    Connected(PeerId, PeerInfo),
    /// The connection to the peer has closed.
    Disconnected(PeerId),
    /// The peer sent this message.
    Message(PeerId, NetworkMessage),
    /// Add a wallet. If a wallet with this id exists, the items are added to the items that the
    /// wallet already has. The number must be higher than that of every earlier event of this kind.
    Watch(WatchId, WalletId, Box<Wallet>),
    /// Remove a wallet and its hits. If the process crashes before the resulting writes are
    /// [`Stored`](Self::Stored), the restarted client still treats the old acknowledged hits as
    /// acknowledged and does not deliver them again. Wait for these writes before adding a wallet
    /// with the same id for a reader that has not seen the old hits.
    Forget(WalletId),
    /// Scan the blocks from this height on again, for all wallets.
    Rescan(u32),
    /// The write with this id and all writes before it are durable.
    Stored(WriteId),
    /// The reader has processed the update with this id.
    Acknowledged(UpdateId),
    /// Contents of a file that [`Action::Read`] asked for; `None` if the file does not exist.
    Contents(File, Option<Vec<u8>>),
    /// Broadcast a transaction. If its fee rate is given, the transaction is not announced to peers
    /// whose minimum fee rate (BIP133) is higher.
    Broadcast(Box<Transaction>, Option<FeeRate>),
    /// Download a block of the best chain; [`Action::Block`] returns the result.
    GetBlock(BlockHash),
    /// Write the scan state now, for example before the program exits.
    Save,
    /// For this time, up to now, the caller read no messages of peers, because the reader of
    /// updates was slow; or the clock that gives `now` was set forward by this much since the last
    /// event. The pause does not count towards the timeouts of peers.
    Paused(Duration),
    /// Time has passed: the client checks its timeouts.
    Tick,
}

/// Output of the [`LightClient`]: something that the caller must do.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Send this message to the peer.
    Send(PeerId, NetworkMessage),
    /// Close the connection. The caller need not pass in [`Event::Disconnected`] for this peer.
    Disconnect(PeerId, Reason),
    /// Change a file of the storage; report [`Event::Stored`] with this id once the change is
    /// durable.
    Write(WriteId, Write),
    /// Read a file of the storage and pass in [`Event::Contents`].
    Read(File),
    /// Deliver this update to its reader.
    Update(Update),
    /// Result of [`Event::GetBlock`].
    Block(BlockHash, Result<Box<Block>, BlockError>),
}

/// Sequence number of a write. The numbers ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteId(
    /// The number.
    pub u64,
);

/// Sequence number of an update. The numbers ascend within a run. Each run starts again with the
/// first number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UpdateId(
    /// The number.
    pub u64,
);

/// Sequence number of a call that adds items to a wallet, chosen by the caller. The numbers ascend
/// within a run; 0 is the number of no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchId(
    /// The number.
    pub u64,
);

/// A file of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum File {
    /// Network magic, 4 bytes. The magic distinguishes custom signets, which the header file cannot
    /// tell apart.
    Network,
    /// Chain of block headers in the format of
    /// [`HeaderChain::encode`](crate::btc::headers::HeaderChain::encode).
    Headers,
    /// Journal of hits, withdrawals and acknowledgements, and of the items that are searched for.
    Journal,
    /// Copy of a journal that was found damaged. The client never reads it.
    DamagedJournal,
    /// Progress of the scan.
    State,
    /// Filters of heights 1,000·(n−1)+1 to 1,000·n. File 0 contains the filter of the genesis
    /// block.
    Filters(u32),
}

/// A change of a file in the storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// Truncates the file to `at` bytes and appends `bytes`. After a crash, the file may end with
    /// any part of `bytes`.
    Append {
        /// The file to change; created if it does not exist.
        file: File,
        /// Length of the file in bytes before `bytes` are appended.
        at: u64,
        /// Bytes to append.
        bytes: Vec<u8>,
    },
    /// Replaces the whole file atomically: after a crash, the file has either the old contents or
    /// the new contents. All earlier writes must be durable first.
    Replace {
        /// The file to change; created if it does not exist.
        file: File,
        /// New contents of the whole file.
        bytes: Vec<u8>,
    },
    /// Removes the file.
    Remove(File),
}

/// Files that the storage kept from an earlier run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// Contents of [`File::Network`]; `None` if the file does not exist.
    pub network: Option<Vec<u8>>,
    /// Contents of [`File::Headers`]; `None` if the file does not exist.
    pub headers: Option<Vec<u8>>,
    /// Contents of [`File::Journal`]; `None` if the file does not exist.
    pub journal: Option<Vec<u8>>,
    /// Contents of [`File::State`]; `None` if the file does not exist.
    pub state: Option<Vec<u8>>,
    /// Number and size in bytes of each [`File::Filters`] that exists.
    pub filters: Vec<(u32, u64)>,
}

/// An update: news for a reader.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Update {
    /// Sequence number of the update, used to acknowledge it.
    pub id: UpdateId,
    /// The wallet that the update concerns; `None` if the update is for all readers.
    pub wallet: Option<WalletId>,
    /// `true` if the update may repeat an earlier update: an update that an earlier run delivered,
    /// or an update with fewer outputs or inputs of the same hit.
    pub again: bool,
    /// Content of the update.
    pub news: News,
}

impl Update {
    /// Adjusts a queue of updates before the updates of `wallet` are removed from it.
    ///
    /// Each [`News::Reorganized`] in the queue announces a number of withdrawals. This function
    /// subtracts the withdrawals of `wallet` that follow such an update. No other update is
    /// changed, and none is removed.
    pub fn discount<'a>(queue: impl DoubleEndedIterator<Item = &'a mut Self>, wallet: &WalletId) {
        let mut dropped = 0;
        for update in queue.rev() {
            match &mut update.news {
                News::Withdrawn(hit) if hit.place.is_some() => {
                    dropped += usize::from(update.wallet.as_ref() == Some(wallet));
                }
                News::Reorganized { withdrawn, .. } => {
                    *withdrawn = withdrawn.saturating_sub(core::mem::take(&mut dropped));
                }
                _ => dropped = 0,
            }
        }
    }
}

/// Content of an [`Update`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "event", rename_all = "snake_case")
)]
pub enum News {
    /// A transaction that concerns the wallet.
    Hit(Box<Hit>),
    /// A hit is withdrawn. A hit in a block is withdrawn because the block has left the chain. The
    /// withdrawal follows the [`Reorganized`](Self::Reorganized) that caused it. An unconfirmed hit
    /// is withdrawn because a transaction in a block spends one of its coins, or because it was not
    /// confirmed for 2,016 blocks.
    Withdrawn(Box<Hit>),
    /// Blocks have left the chain. If [`Update::again`] is set, the update is for one wallet and
    /// repeats only the withdrawals of that wallet.
    Reorganized {
        /// Highest block that stayed in the chain.
        fork: BlockAt,
        /// The blocks that left, highest first; empty if they left while no client was running.
        disconnected: Vec<BlockAt>,
        /// Number of [`Withdrawn`](Self::Withdrawn) updates that follow directly. Fewer of these
        /// updates follow if a wallet is removed in the meantime.
        withdrawn: usize,
    },
    /// New grade of a range of blocks: the evidence that these blocks contain nothing for the
    /// wallets beyond the reported hits.
    Graded(Graded),
    /// Filter answers about this range of heights, both ends included, are invalid until the
    /// heights are graded again.
    Reopened {
        /// First height of the range.
        from: u32,
        /// Last height of the range, included.
        to: u32,
    },
    /// An observation about peers, filters, wallets or stored files.
    Finding(Finding),
    /// Progress of a broadcast transaction.
    Broadcast {
        /// The transaction.
        txid: Txid,
        /// The event that happened to the transaction.
        news: BroadcastNews,
    },
    /// Progress of the client; reported at most once a second.
    Progress(Progress),
    /// The client has processed everything that the connected peers have, for all items that were
    /// added up to [`Progress::watched`]. Each connected peer that has the whole chain has answered,
    /// or has had its time to answer, and no two peers dispute the filter of a block: while no peer
    /// sends the block that would decide such a dispute, this update is not sent. It is repeated
    /// after further progress, and after a change of the wallets.
    CaughtUp(Progress),
    /// The records of all items that were added up to this call are durable. After a restart, blocks
    /// that the client has searched for these items are not searched again. Items of later calls may
    /// be unknown after a crash, as if they had never been added.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::watched"))]
    Watched(WatchId),
}

/// Progress of a [`LightClient`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Progress {
    /// Tip of the chain of headers.
    pub tip: BlockAt,
    /// Total proof of work of the chain.
    pub work: Work,
    /// Height of the last block to scan: [`Config::last`], or the tip if that is lower.
    pub end: u32,
    /// Height up to which everything is settled: see [`LightClient::settled_to`].
    pub settled_to: Option<u32>,
    /// The last call that added items to a wallet, among the calls that the client has processed.
    /// The progress includes the items of all calls up to this call.
    pub watched: WatchId,
}

/// A range of heights that have the same grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Graded {
    /// First height of the range.
    pub from: u32,
    /// Last height of the range, included.
    pub to: u32,
    /// Evidence that these heights contain no further transactions of the wallets.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub grade: Grade,
}

/// A transaction that concerns a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hit {
    /// Transaction id.
    pub txid: Txid,
    /// The transaction. The transaction lacks its witnesses if BIP37 delivered it.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus"))]
    pub transaction: Transaction,
    /// The block and the position in the block; `None` if unconfirmed.
    pub place: Option<TxPosition>,
    /// The header of the block; `None` if unconfirmed.
    pub header: Option<Header>,
    /// Outputs that pay to the wallet.
    pub received: Vec<OwnedOutput>,
    /// Inputs that spend from the wallet.
    pub spent: Vec<OwnedSpend>,
    /// Proof that the transaction is in its block.
    pub evidence: InclusionEvidence,
    /// The reason why the client examined the transaction.
    pub why: HitReason,
    /// Name of the peer that sent the transaction; `None` if unknown.
    pub peer: Option<String>,
}

/// An output that pays to a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnedOutput {
    /// Index of the output in its transaction.
    pub vout: u32,
    /// Amount of the output.
    pub value: Amount,
    /// The script of the output, and the item of the wallet to which it belongs.
    pub owner: Owner,
}

/// An input that spends from a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnedSpend {
    /// Index of the input in its transaction.
    pub vin: u32,
    /// The coin that the input spends.
    pub outpoint: OutPoint,
    /// The item of the wallet to which the coin belongs; `None` if unknown.
    pub owner: Option<Owner>,
    /// `true` if the outpoint is known to belong to the wallet. `false` if the input only contains
    /// a watched key or script: anyone who knows the key or script can put it into an input.
    pub certain: bool,
}

/// The item of a wallet to which a script or coin belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// Number of the item in the wallet, from 0, in the order in which items were added. An item
    /// that is added again keeps its number.
    pub item: u32,
    /// Number of the alternative in a multipath descriptor; `None` for other items.
    pub path: Option<u32>,
    /// Derivation index in a ranged descriptor; `None` for other items.
    pub index: Option<u32>,
    /// The script, if it is known.
    pub script: Option<ScriptBuf>,
}

/// Proof that a transaction is in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InclusionEvidence {
    /// The whole block was received and its transactions match the merkle root of its header.
    Block,
    /// A merkle path leads from the transaction to the merkle root of the header.
    MerkleProof,
    /// No proof: the transaction is unconfirmed.
    Unconfirmed,
}

/// Reason why the client examined a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HitReason {
    /// The compact filter of the block matches.
    Matched,
    /// Peers claim different filters for the block, so the client scanned the block itself.
    Disputed,
    /// The block was downloaded for a spot audit of its filter.
    SpotAudit,
    /// The merkle block with which a peer answered a filtered-block request includes the
    /// transaction.
    FilteredBlock,
    /// A peer relayed the unconfirmed transaction.
    Relayed,
}

/// An observation about peers, filters, wallets or stored files that the user may want to know.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum Finding {
    /// Peers claim different filters for a block. The client downloads the block.
    Disputed {
        /// The disputed block.
        at: BlockAt,
        /// Each claimed filter hash with the names of the connected peers that claim it.
        #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::claims"))]
        claims: Vec<(FilterHash, Vec<String>)>,
    },
    /// The named peer claimed a filter that is not the filter of its block. The peer is
    /// disconnected. A peer that leaves before its claim is refuted is not reported.
    FalseFilter {
        /// Name of the peer.
        peer: String,
        /// The claimed filter, and the proof that it is false.
        #[cfg_attr(feature = "serde", serde(flatten))]
        filter: Box<bip157::FalseFilter>,
    },
    /// The block does not decide which of the claimed filters is correct. The block was scanned.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::at"))]
    Undecided(BlockAt),
    /// All peers claim the same filter, and the filter seems wrong but is not proven wrong. The
    /// block was scanned.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::at"))]
    Suspicious(BlockAt),
    /// No peer delivers this block. The client keeps trying.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::at"))]
    BlockUnavailable(BlockAt),
    /// The chain of headers begins above this height, which is the first height to scan.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::height"))]
    FirstUnknown(u32),
    /// The filter of the block matches, but the client recognises no transaction in the block that
    /// concerns a wallet. An input that reveals no script may spend a coin that the client does not
    /// know.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::at"))]
    NoneSeen(BlockAt),
    /// A transaction of 64 bytes in this block was ignored: 64 bytes may also be an inner node of
    /// the merkle tree (CVE-2017-12842).
    Refused {
        /// The block.
        at: BlockAt,
        /// The ignored transaction.
        txid: Txid,
    },
    /// BIP37: the limit of stored unconfirmed transactions, this many or 16 MiB, is reached.
    /// Further unconfirmed transactions are ignored until they are in a block.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::limit"))]
    UnconfirmedLimit(usize),
    /// BIP37: this many coins exceed the limit of watched coins, so that their spends are not
    /// detected.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::count"))]
    CoinLimit(usize),
    /// BIP37: how much the filter reveals to the peer.
    Privacy(crate::btc::bip37::session::PrivacyReport),
    /// BIP37: no filter fits the watched elements at the configured false-positive rate. The client
    /// accepts no more answers to the old filter until fewer elements are watched.
    NoFilter(crate::btc::bip37::FilterError),
    /// BIP37: the client sends a newly built filter, for this reason.
    FilterRefreshed(crate::btc::bip37::session::RefreshReason),
    /// The named peer lacks these services that the protocol needs. The client uses the peer only
    /// for headers.
    LacksService {
        /// Name of the peer.
        peer: String,
        /// The services that the peer lacks.
        #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::services"))]
        services: ServiceFlags,
    },
    /// The named peer claims a greater height than that of the chain, but sends no headers: it is
    /// probably in its initial download. The client does not wait for this peer, and asks it again
    /// from time to time.
    NotReady {
        /// Name of the peer.
        peer: String,
        /// The height that the peer claims.
        height: u32,
    },
    /// The stored header file ended with an incomplete or invalid header. The client cut off this
    /// many bytes when it was created.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::bytes"))]
    HeadersCut(u64),
    /// An item of this wallet cannot be watched. No item of the same [`Event::Watch`] is added.
    ItemRefused {
        /// The wallet.
        wallet: WalletId,
        /// The item that was refused, and the reason.
        error: ItemError,
    },
    /// The wallet was not added because its id is invalid: see [`WalletId::is_valid`].
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::wallet"))]
    WalletRefused(WalletId),
    /// An earlier run has searched for other indices of this descriptor, because its range or its
    /// gap was different. Known indices are continued; the further items are searched for from the
    /// birthday on.
    FurtherIndices {
        /// The wallet.
        wallet: WalletId,
        /// Number of the descriptor in the wallet.
        item: u32,
    },
    /// The journal, of this many bytes, was damaged before its end, and records are lost. A copy of it
    /// is kept as [`File::DamagedJournal`]. All blocks are searched again, and hits that may have been
    /// delivered before are marked with [`Update::again`].
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::bytes"))]
    JournalDamaged(u64),
    /// The stored state of the scan cannot be used. The scan starts over.
    StartedOver(RestoreError),
    /// The headers of most peers are more than two hours ahead of the clock, so the clock is
    /// probably slow. The client refuses these headers until the clock is corrected. The finding is
    /// reported once.
    ClockBehind,
    /// No new block has arrived for three block times, at least half an hour: the peers may
    /// withhold blocks, or the network is down. About one honest block in twenty takes this long.
    /// The finding is repeated whenever the time has doubled. It is not reported on regtest.
    StaleTip {
        /// Time in seconds since the last new block arrived. If none has arrived since the client
        /// was created, time since the creation.
        seconds: u64,
    },
}

/// Reason why a peer is disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The peer sent more headers in one message than the protocol allows.
    #[error("{0} headers in one message, the limit is {MAX_HEADERS}")]
    TooManyHeaders(usize),
    /// The peer sent a message in which a header is not the child of the header before it.
    #[error("headers that do not build on each other")]
    HeadersNotLinked,
    /// The peer sent a header that breaks a consensus rule.
    #[error("invalid header: {0}")]
    InvalidHeader(HeaderError),
    /// The chain refuses a header of the peer, but the peer may be honest: the branch forks off
    /// below the start of the chain.
    #[error("refused header: {0}")]
    RefusedHeader(HeaderError),
    /// The peer sent a branch of this many headers with less work than the chain.
    #[error("a branch of {0} headers with less work than the chain")]
    LessWork(usize),
    /// The number of full `headers` messages that the peer sent in a row without changing the
    /// chain.
    #[error("{0} full `headers` messages in a row that do not change the chain")]
    Fruitless(u32),
    /// The peer did not answer `getheaders` within this time.
    #[error("no headers for {} seconds", .0.as_secs())]
    HeadersStalled(Duration),
    /// The peer broke a rule of filter sync (BIP157) or stalled in it.
    #[error(transparent)]
    Filters(bip157::Reason),
    /// BIP37: the peer answered later requests but not the request for this block.
    #[error("block {0}: no answer, though later requests were answered")]
    Unanswered(BlockHash),
    /// BIP37: the peer did not deliver a transaction that its merkle block lists.
    #[error("block {0}: transaction {1} of its merkle block was not delivered")]
    Undelivered(BlockHash, Txid),
    /// BIP37: the peer sent an invalid merkle block for this block.
    #[error("invalid merkle block for block {0}: {1}")]
    InvalidMerkleBlock(BlockHash, MerkleBlockError),
    /// BIP37: the transactions that the peer sent for this block exceed the size of a block.
    #[error("transactions of block {0} exceed the size of a block")]
    OversizedBlock(BlockHash),
    /// The peer sent more items in one `inv`, `getdata` or `notfound` than the protocol allows.
    #[error("{0} items in one message, the limit is {MAX_INV_SIZE}")]
    Inventory(usize),
    /// The peer sent a block with the requested hash whose transactions do not match its header.
    #[error("block {0} has transactions that do not match its header")]
    FalseBlock(BlockHash),
    /// The request for this block had no answer for this time, and the peer delivered no other
    /// requested block for four timeouts.
    #[error("no answer for block {0} in {secs} s", secs = .1.as_secs())]
    BlockStalled(BlockHash, Duration),
}

impl Reason {
    /// Returns `true` if the peer violated the protocol or lied, so that it should be banned.
    /// `false` for a peer that may be honest but slow.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Filters(reason) => reason.is_misbehaviour(),
            Self::TooManyHeaders(_)
            | Self::HeadersNotLinked
            | Self::InvalidHeader(_)
            | Self::InvalidMerkleBlock(..)
            | Self::OversizedBlock(_)
            | Self::Inventory(_)
            | Self::FalseBlock(_) => true,
            // Honest nodes may be slow, far behind or on a weak branch. Core does not send a
            // transaction that it has sent before.
            Self::RefusedHeader(_)
            | Self::LessWork(_)
            | Self::Fruitless(_)
            | Self::HeadersStalled(_)
            | Self::Unanswered(_)
            | Self::Undelivered(..)
            | Self::BlockStalled(..) => false,
        }
    }
}

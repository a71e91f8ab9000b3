//! The light client: headers, one follower of the chain (BIP157 or BIP37), its peers and their
//! failover, wallets, broadcast. One machine without sockets, clock and files.
//!
//! # How to drive it
//! 1. Make a [`Client`] from a [`Config`] and what the storage [kept](Kept).
//! 2. Hand over what happens as [`Event`]s: peers, their messages, wallets, [`Event::Tick`] a few
//!    times a second. `now` is the time since the Unix epoch.
//! 3. Carry out each [`Action`], **in order**. [`Action::Write`] must not be carried out before
//!    all earlier ones; once one is durable, say so with [`Event::Stored`]. Many may be made
//!    durable at once: the last id of a group stands for all before it.
//! 4. Hand [`Action::Update`]s to their readers, and [`Event::Acknowledged`] back once an update is
//!    dealt with. Hits and withdrawals that were not acknowledged come again after a restart,
//!    marked with [`Update::again`].
//!
//! # What is never lost
//! A hit is durable before its update is given out, and the progress of the scan is durable only
//! after the hits that it led to. A height counts as [settled](Client::settled_to) only while its
//! filter's "no" counts or its block was scanned; the one keeper of that is
//! [`FilterSync`](crate::btc::bip157::FilterSync), or [`Session`](crate::btc::bip37::session::Session).
//!
//! # Files
//! The machine encodes everything itself; the storage knows files as sequences of bytes and two
//! operations ([`Write`]). See [`File`] for which there are.

mod blocks_asked;
mod bloom;
mod broadcast;
mod bytes;
mod filter_cache;
mod filters;
mod follower;
pub mod header_sync;
mod hits;
mod journal;
mod machine;
mod outbox;
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
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::{Magic, ServiceFlags};
use bitcoin::{
    Amount, Block, BlockHash, FeeRate, Network, OutPoint, ScriptBuf, Transaction, Txid, Work,
};
use thiserror::Error;

use crate::btc::bip157;
use crate::btc::headers::BlockAt;
use crate::btc::peer::{Grade, PeerId};
use crate::btc::protocol::MAX_INV_SIZE;

pub use blocks_asked::BlockError;
pub use bloom::Reason as BloomReason;
pub use broadcast::BroadcastNews;
pub use machine::{Client, OpenError};
pub use state::RestoreError;
pub use wallets::{Birthday, Item, ItemCause, ItemError, Wallet};

/// How blocks are looked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// Compact block filters: peers learn only which blocks are fetched.
    #[default]
    Bip157,
    /// Bloom filters: the peer learns most of what is watched, and can leave out what it likes.
    Bip37,
    /// Headers alone: wallets are not looked for.
    HeadersOnly,
}

/// What a client is set up with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The network.
    pub network: Network,
    /// What begins each message: that of [`network`](Self::network), but for a signet of one's own.
    pub magic: Magic,
    /// How blocks are looked through.
    pub protocol: Protocol,
    /// The first height wanted even without a wallet; wallets with an earlier birthday lower it.
    /// `None`: wallets alone decide.
    pub first: Option<Birthday>,
    /// The last height wanted; `None`: every block, live ones too.
    pub last: Option<u32>,
    /// Random bytes that no peer knows: they choose which blocks are audited, and a new BIP37
    /// filter's tweak.
    pub seed: [u8; 16],
    /// How long an answer may take before another peer is asked.
    pub timeout: Duration,
    /// BIP157: filter headers that the caller trusts, by height, at multiples of 1,000.
    pub checkpoints: BTreeMap<u32, FilterHeader>,
    /// BIP157: one block in this many is fetched to audit its filter; 0 for none.
    pub spot_audits: u32,
    /// BIP157: how much is fetched and kept at a time. Its timeout is [`timeout`](Self::timeout).
    pub filter_limits: bip157::Limits,
    /// BIP157: bytes of filters that are kept, so that a rescan downloads nothing twice; 0 keeps
    /// none.
    pub kept_filters: u64,
    /// BIP37: share of foreign elements that match the filter. In (0, 1), 1e-5 by default; a rate
    /// that no filter meets is reported as [`Finding::NoFilter`].
    pub fpr: f64,
    /// BIP37: requests in flight at a time, from 1 to 2,000; 100 by default. With 0 no block is
    /// requested, and a larger number has no further effect.
    pub in_flight: usize,
}

impl Config {
    /// BIP157 with 30 s to answer, one audit in 1,000 blocks, no filters kept, every block wanted.
    pub fn new(network: Network, seed: [u8; 16]) -> Self {
        Self {
            network,
            magic: network.magic(),
            protocol: Protocol::Bip157,
            first: None,
            last: None,
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

/// A wallet's name, chosen by the caller: see [`is_valid`](Self::is_valid).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalletId(pub String);

impl WalletId {
    /// What the ids begin with of wallets that find broadcast transactions in blocks.
    const INTERNAL: char = '\0';
    /// The most bytes of an id, so that files hold few bytes for it in each hit.
    pub const MAX_BYTES: usize = 255;

    /// Returns `true` if a caller's wallet can have this id: it has 1 to
    /// [`MAX_BYTES`](Self::MAX_BYTES) bytes and does not begin with a zero byte, as the client's
    /// own ids do.
    pub fn is_valid(&self) -> bool {
        (1..=Self::MAX_BYTES).contains(&self.0.len()) && !self.is_internal()
    }

    fn is_internal(&self) -> bool {
        self.0.starts_with(Self::INTERNAL)
    }

    /// The wallet that finds a broadcast transaction in blocks.
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

/// What a peer says of itself in its `version`. Nothing shows that it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// The name of its address, for people.
    pub name: String,
    /// The services that it offers.
    pub services: ServiceFlags,
    /// The height of its chain.
    pub start_height: u32,
}

/// What the client is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A connection is ready: the handshake is done.
    Connected(PeerId, PeerInfo),
    /// The connection is gone.
    Disconnected(PeerId),
    /// The peer sent this message.
    Message(PeerId, NetworkMessage),
    /// Watch for a wallet. One that is there already gets the items in addition to its own.
    Watch(WalletId, Box<Wallet>),
    /// Forget a wallet, with its hits. Until the writes that follow are [`Stored`](Self::Stored), a
    /// crash brings its acknowledged hits back as such: before that, do not watch under the same id
    /// with a reader that knows nothing of them.
    Forget(WalletId),
    /// Go over the blocks again for all wallets, from this height on.
    Rescan(u32),
    /// The write with this id, and all before it, are durable.
    Stored(WriteId),
    /// The reader has dealt with this update.
    Acknowledged(UpdateId),
    /// The contents of a file that [`Action::Read`] asked for; `None` if it is not there.
    Contents(File, Option<Vec<u8>>),
    /// Offer a transaction to the peers. With its fee rate, peers that want more are known.
    Broadcast(Box<Transaction>, Option<FeeRate>),
    /// Fetch a block of the chain; [`Action::Block`] answers.
    GetBlock(BlockHash),
    /// Have the state written now, as before an end.
    Save,
    /// For so long, until now, the caller has taken nothing from the peers, since a reader was slow:
    /// nobody is overdue through that.
    Paused(Duration),
    /// Time has passed.
    Tick,
}

/// What the client wants done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// Send this to the peer.
    Send(PeerId, NetworkMessage),
    /// Close the connection. [`Event::Disconnected`] is not needed.
    Disconnect(PeerId, Reason),
    /// Write to the storage: see [`Write`].
    Write(WriteId, Write),
    /// Read a file of the storage; [`Event::Contents`] answers.
    Read(File),
    /// Tell the reader of updates.
    Update(Update),
    /// The answer to [`Event::GetBlock`].
    Block(BlockHash, Result<Box<Block>, BlockError>),
}

/// The number of a write. They ascend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WriteId(pub u64);

/// The number of an update. They ascend, and start over with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpdateId(pub u64);

/// A file of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum File {
    /// What begins each message of the network, 4 bytes: it tells a signet of one's own from others,
    /// which headers alone do not.
    Network,
    /// Headers, as [`HeaderChain::encode`](crate::btc::headers::HeaderChain::encode) has them.
    Headers,
    /// Hits, withdrawals and acknowledgements.
    Journal,
    /// How far the scan is.
    State,
    /// Filters of heights 1,000·(n−1)+1 to 1,000·n; file 0 holds the genesis block's.
    Filters(u32),
}

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// Cuts the file to `at` bytes and appends `bytes`. A crash may leave any part of `bytes`.
    Append {
        /// The file, made if it is not there.
        file: File,
        /// Its length before the bytes.
        at: u64,
        /// What is appended.
        bytes: Vec<u8>,
    },
    /// Replaces the file: after a crash it is the old one or the new one, whole. Everything
    /// written before must be durable first.
    Replace {
        /// The file, made if it is not there.
        file: File,
        /// All of it.
        bytes: Vec<u8>,
    },
    /// Removes the file.
    Remove(File),
}

/// What a storage has kept of an earlier run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// [`File::Network`], if it is there.
    pub network: Option<Vec<u8>>,
    /// [`File::Headers`], if it is there.
    pub headers: Option<Vec<u8>>,
    /// [`File::Journal`].
    pub journal: Option<Vec<u8>>,
    /// [`File::State`].
    pub state: Option<Vec<u8>>,
    /// The files of filters that are there, with their sizes in bytes.
    pub filters: Vec<(u32, u64)>,
}

/// News for the reader of updates.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// Its number, to acknowledge it by.
    pub id: UpdateId,
    /// The wallet that it is for; `None` if it is for all.
    pub wallet: Option<WalletId>,
    /// It may have been given out before: by an earlier run, or with less.
    pub again: bool,
    /// What it is.
    pub news: News,
}

impl Update {
    /// Prepares a queue for dropping a wallet's updates: a reorganisation in it announces as many
    /// withdrawals less as the wallet has there.
    pub fn discount<'a>(queue: impl DoubleEndedIterator<Item = &'a mut Self>, wallet: &WalletId) {
        let mut dropped = 0;
        for update in queue.rev() {
            match &mut update.news {
                News::Withdrawn(_) => {
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

/// What an update tells.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum News {
    /// A transaction of the wallet.
    Hit(Box<Hit>),
    /// The block of a hit has left the chain, and the hit with it. Comes after the
    /// [`Reorganized`](Self::Reorganized) that it belongs to.
    Withdrawn(Box<Hit>),
    /// Blocks have left the chain. With [`Update::again`], only what it withdraws is told again, to
    /// the wallet whose hits these are.
    Reorganized {
        /// The last block that stayed.
        fork: BlockAt,
        /// The blocks that left, the highest first; empty if they left while nothing ran.
        disconnected: Vec<BlockAt>,
        /// How many [`Withdrawn`](Self::Withdrawn) follow, with nothing in between; fewer if their
        /// wallet is forgotten meanwhile.
        withdrawn: usize,
    },
    /// What a "no" about these blocks is worth, from now on.
    Graded(Graded),
    /// What was said about these blocks, both included, counts no more, until they are graded
    /// again.
    Reopened(u32, u32),
    /// What was found out about peers.
    Finding(Finding),
    /// What became of a transaction that was broadcast.
    Broadcast(Txid, BroadcastNews),
    /// How far the client is; at most once a second.
    Progress(Progress),
    /// Everything that the connected peers have is seen. Told again once there was progress, or
    /// the wallets changed.
    CaughtUp(Progress),
}

/// How far the client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The last block of the chain.
    pub tip: BlockAt,
    /// The work of the chain.
    pub work: Work,
    /// The last height wanted.
    pub end: u32,
    /// See [`Client::settled_to`].
    pub settled_to: Option<u32>,
}

/// Consecutive heights with one grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graded {
    /// The first.
    pub from: u32,
    /// The last.
    pub to: u32,
    /// What a "no" is worth there.
    pub grade: Grade,
}

/// A transaction of a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// Its id.
    pub txid: Txid,
    /// The transaction; without witnesses where BIP37 delivered it.
    pub transaction: Transaction,
    /// The block and the position there; `None` while unconfirmed.
    pub place: Option<(BlockAt, u32)>,
    /// Outputs that pay to the wallet.
    pub received: Vec<Received>,
    /// Inputs that spend from it.
    pub spent: Vec<Spent>,
    /// What shows that it is in its block.
    pub evidence: Evidence,
    /// Why it was looked at.
    pub why: Why,
    /// The name of the peer that it came from.
    pub peer: Option<String>,
}

/// An output that pays to a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The output.
    pub vout: u32,
    /// What it is worth.
    pub value: Amount,
    /// Its script, and where it stands in the wallet.
    pub owner: Owner,
}

/// An input that spends from a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// The input.
    pub vin: u32,
    /// What it spends.
    pub outpoint: OutPoint,
    /// Where it stands in the wallet, as far as is known.
    pub owner: Option<Owner>,
    /// The outpoint is known to be the wallet's. Else the input shows a watched key or script,
    /// which anyone who knows it can do.
    pub certain: bool,
}

/// Where a script or coin stands in a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The item of the wallet, counted from 0 in the order in which items were given; one that was
    /// given before is not counted again.
    pub item: u32,
    /// Which of a multipath descriptor's alternatives.
    pub path: Option<u32>,
    /// The index of a ranged descriptor.
    pub index: Option<u32>,
    /// The script, where it is known.
    pub script: Option<ScriptBuf>,
}

/// What shows that a transaction is in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// The whole block, bound to its header.
    Block,
    /// A path to the header's merkle root.
    MerkleProof,
    /// Nothing: it is in no block.
    Unconfirmed,
}

/// Why a transaction was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The filter of its block matches.
    Matched,
    /// Peers claim different filters for its block.
    Disputed,
    /// Its block was fetched to audit a filter.
    SpotAudit,
    /// A peer's answer to a filtered block named it.
    FilteredBlock,
    /// A peer relayed it.
    Relayed,
}

/// What was found out about peers, or is not certain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// Peers claim different filters for a block; it is fetched. Each hash with the names of the
    /// connected peers that claim it.
    Disputed {
        /// The block.
        at: BlockAt,
        /// The claims.
        claims: Vec<(FilterHash, Vec<String>)>,
    },
    /// The block does not show which filter is its own: it was scanned.
    Undecided(BlockAt),
    /// The filter that all peers claim looks wrong: the block was scanned.
    Suspicious(BlockAt),
    /// No peer delivers this block.
    BlockUnavailable(BlockAt),
    /// The chain of headers begins above this height, the first wanted.
    FirstUnknown(u32),
    /// The filter of the block matches, and no transaction is seen to concern what is watched. An
    /// input that shows no script may spend a coin from before.
    NoneSeen(BlockAt),
    /// A transaction of 64 bytes in this block, which cannot be told from an inner node of the
    /// merkle tree, was passed over.
    Refused(BlockAt, Txid),
    /// BIP37: more unconfirmed transactions than are kept, at most this many and 16 MB. Further
    /// ones are passed over until a block has them.
    UnconfirmedLimit(usize),
    /// BIP37: this many coins are over the limit. Their spends are not seen.
    CoinLimit(usize),
    /// BIP37: what the filter tells its peer.
    Privacy(crate::btc::bip37::session::PrivacyReport),
    /// BIP37: no filter has room for what is watched, or the rate asked for. No block is answered
    /// any more.
    NoFilter(crate::btc::bip37::SizingError),
    /// BIP37: the filter is loaded afresh.
    FilterRefreshed(crate::btc::bip37::session::RefreshReason),
    /// A peer lacks a service that the client needs: it is asked for headers only.
    LacksService(String, ServiceFlags),
    /// This many bytes of headers that were not written whole were cut off at the start.
    HeadersCut(u64),
    /// An item of this wallet cannot be watched, so that nothing new of it is.
    ItemRefused(WalletId, ItemError),
    /// A wallet with this id cannot be watched: see [`WalletId::is_valid`].
    WalletRefused(WalletId),
    /// What was kept of the scan is of no use, and the scan starts over.
    StartedOver(RestoreError),
    /// The headers of most peers are more than two hours ahead of the clock, which is likely wrong:
    /// they are refused until it is set. Reported once.
    ClockBehind,
}

/// Why a peer is disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// Its headers.
    #[error(transparent)]
    Headers(header_sync::Reason),
    /// Its filters and blocks.
    #[error(transparent)]
    Filters(bip157::Reason),
    /// Its filtered blocks.
    #[error(transparent)]
    Bloom(bloom::Reason),
    /// More items in one `inv`, `getdata` or `notfound` than the protocol allows.
    #[error("{0} items in one message, the limit is {MAX_INV_SIZE}")]
    Inventory(usize),
    /// A block with the hash asked for, and not with its transactions.
    #[error("it sent a block {0} whose transactions are not those of its header")]
    FalseBlock(BlockHash),
    /// A block that it was asked for did not come in time.
    #[error("no answer for block {0} in {secs} s", secs = .1.as_secs())]
    BlockStalled(BlockHash, Duration),
}

impl Reason {
    /// Returns `true` if the peer broke the protocol or lied, so that it is to be banned.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Headers(reason) => reason.is_misbehaviour(),
            Self::Filters(reason) => reason.is_misbehaviour(),
            Self::Bloom(reason) => reason.is_misbehaviour(),
            Self::Inventory(_) | Self::FalseBlock(_) => true,
            Self::BlockStalled(..) => false,
        }
    }
}

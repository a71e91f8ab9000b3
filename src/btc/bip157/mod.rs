//! BIP157: compact block filters from peers, for a client. The node's side is in
//! [`server`](crate::btc::server).
//!
//! A [`FilterSync`] is a state machine without I/O. The events are connections and messages of
//! peers, changes of the header chain, and the time. The actions are messages to send, filters to
//! match, blocks to scan, and findings. The caller gets a filter once the filter's hash equals the
//! claims of all peers that have answered. At heights where the peers' filters prove nothing, the
//! caller gets the block instead.
//!
//! # What you call, and what you drive
//! You call [`FilterSync`] with its [`Config`]. You drive it with [`Event`] in and [`Action`] out: each
//! message is sent, each [`VerifiedFilter`] is matched, and each [`Action::Block`] is scanned.
//! [`Finding`] and [`Reason`] are for the log.
//!
//! # Terms
//! - A peer **claims** a filter hash for a height in `cfheaders`, and **vouches for** a height if
//!   its claim is the accepted claim.
//! - A height is **answered** once its filter or its block was handed to the caller. The answer by
//!   a filter is valid while some peer vouches for the height, or a trusted filter header or an
//!   audit confirms it. Otherwise the answer is withdrawn: the height is **reopened**.
//! - Peers **dispute** a height if their claims for it differ.
//! - An **interval** is the 1,000 heights from one `cfcheckpt` header to the next.
//!
//! # How to drive it
//! 1. Keep a [`HeaderChain`](crate::btc::headers::HeaderChain) and pass it to every call of
//!    [`handle`](FilterSync::handle). Apply changes to the chain first, then pass all
//!    [`ChainEvent`]s of one change in one [`Event::Chain`].
//! 2. Pass [`Event::PeerConnected`] for each peer that offers `NODE_COMPACT_FILTERS` and full
//!    blocks. Pass [`Event::PeerTip`] whenever a peer shows a block of the chain (in `headers` or
//!    `inv`). A peer without a known tip gets no requests, because Bitcoin Core disconnects peers
//!    that ask for an unknown block.
//! 3. Send the message of each [`Action::Send`], and pass the answers as events. Close the
//!    connection on [`Action::Disconnect`]; for this connection, [`Event::PeerDisconnected`] is not
//!    needed.
//! 4. Match every [`Action::Filter`] with the wallet's scripts. On a hit, **and if the filter is
//!    malformed**, return the filter in [`Event::Matched`]. The sync then fetches the block,
//!    verifies that it belongs to its header, checks it against the filter, and hands it over in
//!    [`Action::Block`].
//! 5. Scan every [`Action::Block`] for all scripts, whatever the filters say.
//! 6. Pass [`Event::Tick`] from time to time, at least once per half of the timeout.
//!
//! When a wallet gets more scripts, the caller matches stored filters with them, or requests the
//! filters again with [`Event::Rescan`].
//!
//! [`FilterSync::encode`] stores the state between runs, and [`FilterSync::restore`] continues from
//! it. After a restore, the caller treats the answers about the heights in
//! [`FilterSync::unanswered`] as withdrawn. A peer that connects later is asked about all heights
//! from the first wanted one on, however long ago they were answered.
//!
//! # What an answer is worth
//! Filter headers are not part of consensus. A filter's "no" has a [`Grade`], and
//! [`Action::Reopened`] can withdraw this "no". If peers disagree and the block cannot decide, the
//! block is scanned, and the result of a scan is certain. With one honest peer, nothing is missed
//! permanently, however many peers lie: wherever a liar contradicts the honest peer, the block
//! decides.
//!
//! An audit of a filter uses only the block of the filter. The filter is [`Grade::Audited`] if the
//! block reveals all scripts that the block spends, for example because the block spends only its
//! own outputs. A caller that has previous transactions can prove a filter false with
//! [`Event::Refuted`]. There is no event to confirm a filter.
//!
//! # What a liar costs
//! A peer that claims a hash must send a filter with that hash, or it loses all its claims. To
//! settle a dispute, at most one block per height is fetched, and one filter for each claimed hash.
//! Once a block has been scanned, later claims about its height cause no downloads. All liars
//! together therefore cause at most one download of all blocks, and one more for each rescan. A
//! single liar causes only the downloads up to the first block that proves one of its lies.
//!
//! Liars cannot fill the memory by reconnecting. For each interval, 32 departed peers are
//! remembered individually. Further departed peers share one counter: if any of them is convicted,
//! the claims of all are dropped. For each height, 16 refuted hashes are remembered; if more hashes
//! are refuted, the block itself is fetched. If the peers that dispute a height exceed twice the
//! peer limit, all claims about the height are dropped and the block decides. The sync waits for
//! the disputed filters of a block for at most four timeouts.
//!
//! # How blocks are fetched
//! Each peer has at most 4 MB of blocks in flight, estimated from the size of recent blocks, and at
//! most 64 blocks. When half of the blocks have arrived, the peer is asked for more blocks, with
//! several blocks in one `getdata`. The download of many small blocks therefore does not wait for
//! one round trip per block, and large blocks do not pile up.
//!
//! Sources: BIP157; Bitcoin Core 28.1, `net_processing.cpp`.

mod claims;
mod dispute;
mod filters;
mod interval;
mod peers;
mod persist;
mod sync;
#[cfg(test)]
mod tests;

use core::fmt;
use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter};
use bitcoin::{Block, BlockHash, Network};
use thiserror::Error;

use crate::btc::bip158::BlockFilter;
use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::headers::{BlockAt, ChainEvent};
use crate::btc::names::names;
use crate::btc::peer::{Grade, PeerId};
use crate::btc::protocol::MAX_INV_SIZE;

pub use crate::btc::pace::SILENT_TIMEOUTS;
pub use persist::RestoreError;
pub use sync::FilterSync;

/// The filter type of basic filters (BIP158).
pub const BASIC_FILTER: u8 = 0;
/// Maximum number of filters in one `getcfilters` (BIP157, Core's `MAX_GETCFILTERS_SIZE`).
pub const MAX_FILTERS: u32 = 1_000;
/// Maximum number of hashes in one `getcfheaders` (BIP157, Core's `MAX_GETCFHEADERS_SIZE`).
pub const MAX_HASHES: u32 = 2_000;
/// Number of blocks between two filter headers of a `cfcheckpt` (BIP157, Core's
/// `CFCHECKPT_INTERVAL`).
pub const CHECKPOINT_INTERVAL: u32 = 1_000;
/// Maximum size in bytes of a valid block's filter, rounded up.
///
/// A block of 4,000,000 weight units has fewer than 100,000 elements: an output has at least 40
/// weight units, and an input at least 164. Each element takes 20 bits and its quotient in unary.
/// All quotients together take at most 1.5 bits for each element. The result is less than 269,000
/// bytes.
pub const MAX_FILTER_SIZE: usize = 300_000;

/// Configuration of a [`FilterSync`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The network, which determines the genesis block and the rules for blocks.
    pub network: Network,
    /// The first height whose filter is wanted: the wallet's birthday. Values above `i32::MAX`,
    /// which no block height reaches, are treated as `i32::MAX`.
    ///
    /// While the header chain begins above this height, nothing is requested
    /// ([`Finding::FirstUnknown`]).
    pub first: u32,
    /// Filter headers that the caller trusts, by height. A peer that claims another header is
    /// disconnected at once, and its claims are not compared.
    checkpoints: BTreeMap<u32, FilterHeader>,
    /// Average number of blocks for each spot audit, which fetches one block to check its filter.
    /// The value 0 turns spot audits off. The seed determines which blocks are audited.
    pub spot_audits: u32,
    /// The last height wanted; `None` for all heights, including future ones. No height above the
    /// last height is requested or answered.
    pub last: Option<u32>,
    /// Seed for the choice of spot audits. The seed must be unknown to peers.
    pub seed: [u8; 16],
    /// Limits on memory, and the timeout.
    pub limits: Limits,
}

impl Config {
    /// Creates a configuration without checkpoints, with the default limits and one spot audit in
    /// 1,000 blocks.
    pub fn new(network: Network, first: u32, seed: [u8; 16]) -> Self {
        Self {
            network,
            first,
            checkpoints: BTreeMap::new(),
            spot_audits: 1_000,
            last: None,
            seed,
            limits: Limits::default(),
        }
    }

    /// Adds a trusted filter header at `height`.
    ///
    /// Returns `false`, and adds nothing, if `height` is 0 or not a multiple of 1,000: `cfcheckpt`
    /// contains no other heights.
    #[must_use = "a header at another height is not trusted"]
    pub fn trust(&mut self, height: u32, header: FilterHeader) -> bool {
        let is_possible = height > 0 && height.is_multiple_of(CHECKPOINT_INTERVAL);
        if is_possible {
            self.checkpoints.insert(height, header);
        }
        is_possible
    }
}

/// Limits on the memory and on the waiting times of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connected peers; 8 by default.
    pub peers: usize,
    /// Maximum number of intervals of 1,000 blocks that are processed at a time; 4 by default. The
    /// filters of one interval are requested from one peer, so at most this many peers send filters
    /// at the same time.
    pub intervals: usize,
    /// Maximum number of blocks that are being fetched for disputes, spot audits and hits. With
    /// each of these blocks, one filter is kept, which has at most
    /// [`MAX_FILTER_SIZE`] bytes, usually about 20 kB. The default is 128,
    /// which bounds these filters to 38 MB.
    pub inspections: usize,
    /// Maximum number of blocks that are being fetched for disputes. For each of these blocks, up
    /// to two filters are kept for each peer that the limit `peers` allows, because peers that have
    /// left may have sent some of them. The default is 16, which bounds these filters to 77 MB with
    /// 8 peers.
    pub disputes: usize,
    /// Maximum total bytes of the filters of hits whose blocks are queued. A filter that exceeds
    /// the limit is dropped and fetched again. The default is 64 MiB.
    pub kept_bytes: usize,
    /// Time that an answer may take before other peers are asked; 30 s by default.
    ///
    /// If an answer has several filters or blocks, each of them may take one timeout after the
    /// previous filter or block. All filters of an answer together may take one timeout, plus one
    /// for each 100 filters. If blocks were requested before an answer, the answer may take one
    /// more timeout for each 8 of these blocks or for each 1 MB, whichever gives more time. A
    /// silent peer is disconnected after four timeouts, or after one if it owes a filter in a
    /// dispute.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peers: 8,
            // One request covers the filters of one interval, so four peers can send at once. With
            // a higher limit, the sync would only store claims further above the answered heights.
            intervals: 4,
            // The default is enough for two peers, each with the maximum of 64 blocks in flight.
            // 128 filters of at most 300 kB are 38 MB.
            inspections: 128,
            // The default bounds the memory for filters: 16 heights, two filters for each of 8
            // peers, and 300 kB for each filter make 77 MB.
            disputes: 16,
            // An estimate: enough for about 3,000 filters of 20 kB.
            kept_bytes: 64 << 20,
            timeout: Duration::from_secs(30),
        }
    }
}

/// Input of [`FilterSync::handle`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A peer that offers compact filters is connected, and its handshake is complete.
    PeerConnected(PeerId),
    /// The peer has shown, by the last of its `headers` or by an `inv`, that it has this block and
    /// all blocks below it.
    PeerTip(PeerId, BlockHash),
    /// The connection to the peer is closed.
    PeerDisconnected(PeerId),
    /// The header chain has changed. All events of one change are passed together.
    Chain(Vec<ChainEvent>),
    /// The peer sent `cfcheckpt`: its filter headers at heights 1,000, 2,000, ….
    CFCheckpt(PeerId, CFCheckpt),
    /// The peer sent `cfheaders`: its filter hashes of a range of heights.
    CFHeaders(PeerId, CFHeaders),
    /// The peer sent `cfilter`: the filter of one block.
    CFilter(PeerId, CFilter),
    /// A block arrived from the peer, or, with `None`, from another source of the caller.
    Block(Option<PeerId>, Box<Block>),
    /// The peer sent `notfound` for a block.
    BlockUnavailable(PeerId, BlockHash),
    /// A filter may match the wallet, or is malformed, so its block is needed.
    Matched(Box<VerifiedFilter>),
    /// The caller has matched a stored filter of this block, whose hash is given, with further
    /// scripts, and the filter does not match them. If the height was answered by its block, the
    /// filter is its answer from now on, so that the answer can be withdrawn. No effect if the hash
    /// is not the accepted hash, or if no filter of the block is evidence.
    Unmatched(BlockAt, FilterHash),
    /// Proof that a filter is not the filter of its block, with transactions that the block alone
    /// does not contain.
    Refuted(Box<InvalidFilter>),
    /// The filters of these heights are needed again, to match more scripts.
    Rescan(RangeInclusive<u32>),
    /// Extends the wanted heights down to this height, for a wallet with an earlier birthday.
    ///
    /// The state of the heights that were already wanted does not change, with one exception: in
    /// the interval of the previous first height, answers by filters are
    /// [reopened](Action::Reopened) until peers have been compared again in this interval.
    ///
    /// The event has no effect if the height is not below the current first height. The event also
    /// has no effect if the header chain begins above the height; this is
    /// [reported](Finding::FirstUnknown).
    Extend(u32),
    /// Time has passed. The sync checks its timeouts.
    Tick,
}

/// Output of [`FilterSync::handle`]: what the caller must do, or should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send this message to the peer: a request for filter headers (`getcfcheckpt`), for the filter
    /// hashes or the filters of a range of heights (`getcfheaders`, `getcfilters`), or for at most 64
    /// blocks with their witnesses (`getdata`).
    Send(PeerId, NetworkMessage),
    /// Close the connection to the peer.
    Disconnect(PeerId, Reason),
    /// Match this filter. Filters are handed over in the order of their heights, except the filters
    /// of heights that were [reopened](Action::Reopened) or whose filter was delayed.
    Filter(Box<VerifiedFilter>),
    /// Scan this block for all scripts. The block is verified against its header, so the result is
    /// certain and does not depend on the filter.
    Block {
        /// The height and the hash of the block.
        at: BlockAt,
        /// The block, whose hash is in the chain of headers and whose transactions match the merkle
        /// root.
        block: Box<Block>,
        /// The reason why the block was fetched.
        why: ScanReason,
        /// The filter of the block, which the caller can store to match scripts that are added later.
        /// With `None`, no filter of this height is evidence, including filters that were handed over
        /// before. To look for scripts that are added later, the caller then needs the block again.
        filter: Option<BlockFilter>,
    },
    /// The answers by filters about these heights, both ends included, are withdrawn. Each height
    /// will be [confirmed](Action::Graded) or answered again once a further peer has made claims
    /// about it.
    ///
    /// There are four possible reasons: the peers that vouched for the heights were convicted; the
    /// only peer that vouched for them left while a lower height of the interval had no answer; the
    /// only peer that vouched for them changed its claim; or the number of differing claims exceeds
    /// the limit.
    Reopened(u32, u32),
    /// The answers about these heights, both ends included, now have at least this grade.
    Graded(u32, u32, Grade),
    /// The blocks above this height have left the chain. All answers about these blocks are void.
    Rollback(u32),
    /// A finding that the caller may log.
    Report(Finding),
}

/// A filter whose hash equals the claims of all peers that have answered about its height.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedFilter {
    /// The height and the hash of the filter's block.
    pub at: BlockAt,
    /// The filter. The encoding of the filter is not checked, so decoding may fail.
    pub filter: BlockFilter,
    /// The certainty that the block has nothing for a wallet if this filter does not match.
    pub grade: Grade,
}

/// Reason why a block is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanReason {
    /// The caller reported that the filter matches.
    Matched,
    /// Peers claim different filters for the block.
    Disputed,
    /// The block was chosen at random for an audit of its filter.
    SpotAudit,
}

names! {
    ScanReason, "a reason for a scan":
    Matched = "matched",
    Disputed = "disputed",
    SpotAudit = "spot_audit",
}

/// Observation that is reported in [`Action::Report`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Peers claim different filters for a block. The block is fetched.
    Disputed {
        /// The height and the hash of the block.
        at: BlockAt,
        /// The claimed hashes, each with the connected peers that claim it.
        claims: Vec<(FilterHash, Vec<PeerId>)>,
    },
    /// The block does not reveal which of the claimed filters is correct. The block is scanned, and
    /// no peer is disconnected.
    Undecided(BlockAt),
    /// The only claimed filter looks wrong, but the block does not prove it wrong. The block is
    /// scanned.
    Suspicious(BlockAt),
    /// An answer of the peer is overdue by this duration. Other peers are asked instead, and
    /// nothing waits for this peer any longer.
    Slow(PeerId, Duration),
    /// No connected peer has this block. The block will be requested from peers that connect later.
    BlockUnavailable(BlockAt),
    /// The header chain begins above this height, which is the first wanted one. Until the chain
    /// reaches down to it, nothing is requested and nothing is answered. If the height is that of
    /// an [extension](Event::Extend), the extension has no effect.
    FirstUnknown(u32),
}

impl Event {
    /// Converts a message of a peer into events.
    ///
    /// Messages that the sync does not process give no events. For example, `headers` and `inv`
    /// give no events: the caller derives [`Event::PeerTip`] from them. Of a `notfound`, only the
    /// items within the protocol's limit are converted.
    pub fn from_message(peer: PeerId, message: NetworkMessage) -> Vec<Self> {
        match message {
            NetworkMessage::CFCheckpt(message) => vec![Self::CFCheckpt(peer, message)],
            NetworkMessage::CFHeaders(message) => vec![Self::CFHeaders(peer, message)],
            NetworkMessage::CFilter(message) => vec![Self::CFilter(peer, message)],
            NetworkMessage::Block(block) => vec![Self::Block(Some(peer), Box::new(block))],
            NetworkMessage::NotFound(items) => items
                .iter()
                .take(MAX_INV_SIZE)
                .filter_map(|item| match item {
                    Inventory::WitnessBlock(hash) | Inventory::Block(hash) => {
                        Some(Self::BlockUnavailable(peer, *hash))
                    }
                    _ => None,
                })
                .collect(),
            _ => vec![],
        }
    }
}

/// Reason why a peer must be disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The peer claimed a filter that is not the filter of its block.
    #[error("the peer's {0}")]
    FalseFilter(Box<FalseFilter>),
    /// The peer contradicted itself: it sent a filter with another hash than it claimed.
    #[error("the peer claimed filter {claimed} of {at}, and sent {sent}")]
    OtherFilter {
        /// The height and the hash of the filter's block.
        at: BlockAt,
        /// The filter hash that the peer claimed.
        claimed: FilterHash,
        /// The hash of the filter that the peer sent.
        sent: FilterHash,
    },
    /// The peer contradicted itself: it sent filter hashes that do not lead to the filter header that
    /// it claimed.
    #[error("the peer claimed filter header {claimed} at height {height}, and later {sent}")]
    OtherHeader {
        /// The height of the contradictory filter header.
        height: u32,
        /// The filter header that the peer claimed first.
        claimed: FilterHeader,
        /// The filter header that follows from the peer's hashes, or that the peer sent as the
        /// header before its hashes.
        sent: FilterHeader,
    },
    /// The peer contradicted a filter header that the caller trusts, or the filter header that
    /// follows from the genesis block.
    #[error("the peer claims filter header {claimed} at height {height}, {trusted} is trusted")]
    ContradictsCheckpoint {
        /// The height of the filter header.
        height: u32,
        /// The filter header that the peer claims.
        claimed: FilterHeader,
        /// The trusted filter header.
        trusted: FilterHeader,
    },
    /// The peer sent an answer that was not requested.
    #[error("the peer sent an answer about filters without a request")]
    Unsolicited,
    /// The answer is for another filter type than requested.
    #[error("the peer answered with filters of type {0}, which were not requested")]
    FilterType(u8),
    /// The answer is for a block that was not requested, or is out of order.
    #[error("the peer answered about block {0}, which was not requested")]
    WrongBlock(BlockHash),
    /// The answer has another number of hashes or headers than requested.
    #[error("the peer sent {sent} filter hashes or headers, {expected} were requested")]
    Count {
        /// The number of hashes or headers sent.
        sent: usize,
        /// The number of hashes or headers that were requested.
        expected: usize,
    },
    /// The filter is larger than that of any valid block.
    #[error("the peer sent a filter of {bytes} bytes, the limit is {limit}")]
    OversizedFilter {
        /// The size of the filter in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The peer sent a block with the requested hash whose transactions do not match its header.
    #[error("the peer sent a block {0} whose transactions do not match its header")]
    FalseBlock(BlockHash),
    /// An answer of the peer is overdue by this duration.
    #[error("an answer of the peer is overdue by {} s", .0.as_secs())]
    Stalled(Duration),
    /// The limit on connected peers is reached.
    #[error("more than {0} peers")]
    TooManyPeers(usize),
}

/// A claimed filter that is not the filter of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct FalseFilter {
    /// The height and the hash of the block.
    pub at: BlockAt,
    /// The hash of the false filter.
    #[cfg_attr(feature = "serde", serde(rename = "filter_hash"))]
    pub hash: FilterHash,
    /// Proof that the filter is false. `None` if there is no proof for others: the sync knows the
    /// block's true filter, or has refuted the hash before.
    pub proof: Option<InvalidFilter>,
}

impl fmt::Display for FalseFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, hash, proof } = self;
        let how = match proof {
            Some(_) => "the block proves it",
            None => "an audit of the block shows it",
        };
        write!(f, "filter {hash} of {at} is false: {how}")
    }
}

impl Reason {
    /// Returns `true` if the peer lied or broke the protocol and should be banned. Returns `false`
    /// if the peer was only slow or exceeded the limit on peers.
    pub fn is_misbehaviour(&self) -> bool {
        match self {
            Self::Stalled(_) | Self::TooManyPeers(_) => false,
            Self::FalseFilter(_)
            | Self::OtherFilter { .. }
            | Self::OtherHeader { .. }
            | Self::ContradictsCheckpoint { .. }
            | Self::Unsolicited
            | Self::FilterType(_)
            | Self::WrongBlock(_)
            | Self::Count { .. }
            | Self::OversizedFilter { .. }
            | Self::FalseBlock(_) => true,
        }
    }
}

//! BIP157: compact block filters from peers, for a client. The node's side is in
//! [`server`](crate::btc::server).
//!
//! A [`FilterSync`] is a state machine without I/O. The events are connections and messages of
//! peers, changes of the header chain, and the time. The actions are messages to send, filters to
//! match, blocks to scan, and findings. The caller gets a filter once the filter's hash equals the
//! claims of all peers that have answered. At heights where the peers' filters prove nothing, the
//! caller gets the block instead.
//!
//! # Terms
//! - A peer **claims** a filter hash for a height in `cfheaders`, and **vouches for** a height if
//!   its claim is the accepted one.
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
//! A filter is audited with nothing but its block. The filter is [`Grade::Audited`] if the block
//! reveals all scripts that the block spends, for example because the block spends only its own
//! outputs. A caller that has previous transactions can prove a filter false with
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
mod config;
mod dispute;
mod filter_headers;
mod filters;
mod inspections;
mod interval;
mod messages;
mod parts;
mod peers;
mod persist;
mod reason;
mod requests;
mod sync;
#[cfg(test)]
mod tests;
mod turn;

use std::boxed::Box;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::p2p::message_filter::{
    CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters,
};
use bitcoin::{Block, BlockHash};
use core::time::Duration;

use crate::btc::bip158::BlockFilter;
use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::headers::{BlockAt, ChainEvent};
use crate::btc::names::names;
use crate::btc::peer::{Grade, PeerId};

pub use crate::btc::pace::SILENT_TIMEOUTS;
pub use config::{Config, ConfigError, Limits};
pub use persist::RestoreError;
pub use reason::{Contradiction, FalseFilter, Reason, Violation};
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
    /// is not the accepted one, or if no filter of the block is evidence.
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
    /// Send this message to the peer.
    Send(PeerId, Message),
    /// Close the connection to the peer.
    Disconnect(PeerId, Reason),
    /// Match this filter. Filters are handed over in the order of their heights, except the filters
    /// of heights that were [reopened](Action::Reopened) or whose filter was delayed.
    Filter(Box<VerifiedFilter>),
    /// Scan this block for all scripts. The block is verified against its header, so the result is
    /// certain and does not depend on the filter.
    Block(Box<BlockToScan>),
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

/// A message to a peer. Converts into the `NetworkMessage` of `bitcoin`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// `getcfcheckpt`: requests filter headers at heights 1,000, 2,000, ….
    GetCFCheckpt(GetCFCheckpt),
    /// `getcfheaders`: requests the filter hashes of a range of heights.
    GetCFHeaders(GetCFHeaders),
    /// `getcfilters`: requests the filters of a range of heights.
    GetCFilters(GetCFilters),
    /// `getdata` for at most 64 blocks with their witnesses.
    GetBlocks(Vec<BlockHash>),
}

/// A filter whose hash equals the claims of all peers that have answered about its height.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedFilter {
    /// The height and the hash of the filter's block.
    pub at: BlockAt,
    /// The filter. The encoding of the filter is not checked, so decoding may fail.
    pub filter: BlockFilter,
    /// How certain it is that the block has nothing for a wallet if this filter does not match.
    pub grade: Grade,
}

/// A block that the caller must scan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockToScan {
    /// The height and the hash of the block.
    pub at: BlockAt,
    /// The block, whose hash is in the chain of headers and whose transactions match the merkle
    /// root.
    pub block: Block,
    /// The reason why the block was fetched.
    pub why: ScanReason,
    /// The filter of the block, which the caller can store to match scripts that are added later.
    /// With `None`, no filter of this height is evidence, including filters that were handed over
    /// before. To look for scripts that are added later, the caller then needs the block again.
    pub filter: Option<BlockFilter>,
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

/// Observations that are reported in [`Action::Report`].
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

//! BIP157: compact block filters between peers, as state machines without input and output: the
//! client's side here, the node's in [`server`](crate::btc::server).
//!
//! A [`FilterSync`] takes events (peers, their messages, changes of the chain of headers, the
//! time) and returns actions: messages to send, filters whose hash meets the claim of everyone
//! who was heard, blocks to scan where the filters are no evidence, and findings.
//!
//! # How to drive it
//! 1. Keep a [`HeaderChain`](crate::btc::headers::HeaderChain) and hand it to every
//!    [`handle`](FilterSync::handle), already changed; hand the [`ChainEvent`]s of one change
//!    over in one [`Event::Chain`].
//! 2. [`Event::PeerConnected`] for each peer that offers `NODE_COMPACT_FILTERS` and full blocks,
//!    and [`Event::PeerTip`] whenever it shows a block of the chain (its `headers` or `inv`):
//!    Bitcoin Core disconnects who asks for a block that it does not know, so that a peer
//!    without a tip is asked nothing.
//! 3. Send what [`Action::Send`] says, hand over what comes back, close the connection on
//!    [`Action::Disconnect`]; for such a peer [`Event::PeerDisconnected`] is not needed.
//! 4. Ask every [`Action::Filter`] for the wallet's scripts. On a hit, **and on a filter that
//!    cannot be read**, give it back with [`Event::Matched`]: its block is fetched, bound to its
//!    header and to the filter, and comes with [`Action::Block`].
//! 5. Scan every [`Action::Block`] for all scripts, whatever the filters say.
//! 6. [`Event::Tick`] now and then, at least once per half of the timeout.
//!
//! A wallet that has learnt of more scripts asks the filters that it keeps, or has them sent again
//! with [`Event::Rescan`].
//!
//! [`FilterSync::encode`] keeps what is known between runs, and [`FilterSync::restore`] continues
//! from it; what [`FilterSync::unanswered`] lists then counts as reopened. A peer that comes later
//! is asked about everything from the first height wanted on, however long ago it was answered.
//!
//! # What an answer is worth
//! Filter headers are no part of consensus. A "no" of a filter is worth its [`Grade`], and may be
//! taken back by [`Action::Reopened`]. Where peers differ and the block does not decide, the
//! block is scanned, which is certain. So with one honest peer nothing is missed for good, however
//! many lie: each height on which it is contradicted is decided by the block.
//!
//! Blocks are audited with what they hold themselves: a filter is [`Grade::Audited`] where its
//! block spends nothing but its own outputs. Who has previous transactions shows that a filter is
//! false with [`Event::Refuted`]; that one is true cannot be told to the sync.
//!
//! # What a liar costs
//! A claim counts only with its filter: a peer that claims a hash must send a filter with that
//! hash, or loses all its claims. For each height at most one block is fetched to settle
//! a dispute, and one filter for each hash that is claimed; once a block has been scanned, claims
//! about its height cost nothing more. So all liars together cost at most one download of the
//! blocks (again for each rescan that the caller asks for), and each only up to the first lie
//! that a block proves.
//!
//! Nor can they fill the memory by reconnecting. Per 1,000 blocks, 32 departed peers are remembered
//! one by one; further departed peers share one counter: if any of them is convicted, the claims of
//! all are dropped. Per height, 16 refuted hashes are remembered; beyond that, the block itself is
//! fetched. If more peers differ about a height than twice the peer limit, all claims about it are
//! dropped and the block decides. A block waits for disputed filters at most four timeouts.
//!
//! # How blocks are fetched
//! Each peer has at most 4 MB of blocks in flight, estimated by the size of recent ones, and at most
//! 64 blocks. Once half of them have come it is asked for more, several in one `getdata`. So a
//! history of many small blocks does not wait a round trip for each, and large ones do not pile up.
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
use crate::btc::peer::{Grade, PeerId};

pub use config::{Config, ConfigError, Limits, SILENT_TIMEOUTS};
pub use persist::RestoreError;
pub use reason::{Contradiction, FalseFilter, Reason, Violation};
pub use sync::FilterSync;

/// The filter type of basic filters (BIP158).
pub const BASIC_FILTER: u8 = 0;
/// The most filters that one `getcfilters` may ask for (BIP157, Core's `MAX_GETCFILTERS_SIZE`).
pub const MAX_FILTERS: u32 = 1_000;
/// The most hashes that one `getcfheaders` may ask for (BIP157, Core's `MAX_GETCFHEADERS_SIZE`).
pub const MAX_HASHES: u32 = 2_000;
/// Blocks from one filter header of a `cfcheckpt` to the next (BIP157, Core's `CFCHECKPT_INTERVAL`).
pub const CHECKPOINT_INTERVAL: u32 = 1_000;
/// The largest filter in bytes that a block can have, rounded up.
///
/// A block of 4,000,000 weight units has less than 100,000 outputs of 40 and more, or inputs of
/// 164 and more; each element takes 20 bits and its quotient, and the quotients sum up to at most
/// 1.5 times the elements: less than 269,000 bytes.
pub const MAX_FILTER_SIZE: usize = 300_000;

/// What the sync is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection to a peer that offers compact filters is ready.
    PeerConnected(PeerId),
    /// The peer has shown that it has this block and those below: the last of its `headers`, or
    /// an `inv`.
    PeerTip(PeerId, BlockHash),
    /// The connection is gone.
    PeerDisconnected(PeerId),
    /// The chain of headers has changed. All events of one change together.
    Chain(Vec<ChainEvent>),
    /// The peer sent `cfcheckpt`.
    CFCheckpt(PeerId, CFCheckpt),
    /// The peer sent `cfheaders`.
    CFHeaders(PeerId, CFHeaders),
    /// The peer sent `cfilter`.
    CFilter(PeerId, CFilter),
    /// The peer, or with `None` another source of the caller's, sent a block.
    Block(Option<PeerId>, Box<Block>),
    /// The peer said `notfound` for a block.
    BlockUnavailable(PeerId, BlockHash),
    /// A filter may match what the wallet watches, or cannot be read: its block is wanted.
    Matched(Box<VerifiedFilter>),
    /// Someone shows that a filter is not that of a block, with transactions that the block alone
    /// does not show.
    Refuted(Box<InvalidFilter>),
    /// The filters of these heights are wanted again, for more scripts.
    Rescan(RangeInclusive<u32>),
    /// Every height from this one on is wanted, which is below the first so far: a wallet with an
    /// earlier birthday is to be looked for. What is known of the others stays; of the 1,000 blocks
    /// around the first height so far, what filters said is [reopened](Action::Reopened) until peers
    /// have been compared there again.
    ///
    /// Nothing happens where it is not below, and where the chain of headers begins above it, which
    /// is [reported](Finding::FirstUnknown).
    Extend(u32),
    /// Time has passed.
    Tick,
}

/// What the sync wants done or known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send this to the peer.
    Send(PeerId, Message),
    /// Close the connection.
    Disconnect(PeerId, Reason),
    /// A filter to be asked. Heights ascend, but for what is [reopened](Action::Reopened) or
    /// waits for others.
    Filter(Box<VerifiedFilter>),
    /// A block, bound to its header, to be scanned for everything watched: what it holds is
    /// certain, and its filter is not needed.
    Block(Box<ScanBlock>),
    /// What filters said about these heights, both included, counts no more: those who vouched
    /// for them have been convicted, or were one peer that left before all around them was
    /// answered, or more claims differ than are kept. Each height is [confirmed](Action::Graded) or answered again once another peer is
    /// heard.
    Reopened(u32, u32),
    /// What was said about these heights, both included, is worth this now, at the least.
    Graded(u32, u32, Grade),
    /// The blocks above this height are gone, and what was said about them.
    Rollback(u32),
    /// Know this.
    Report(Finding),
}

/// A message to a peer. It converts into `bitcoin`'s.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// `getcfcheckpt`.
    GetCFCheckpt(GetCFCheckpt),
    /// `getcfheaders`.
    GetCFHeaders(GetCFHeaders),
    /// `getcfilters`.
    GetCFilters(GetCFilters),
    /// `getdata` for blocks with their witnesses, 64 at most.
    GetBlocks(Vec<BlockHash>),
}

/// A filter whose hash meets the claims of everyone heard about its height.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedFilter {
    /// Its block.
    pub at: BlockAt,
    /// The filter. Whether it can be read is found out by reading it.
    pub filter: BlockFilter,
    /// What a "no" of it is worth.
    pub grade: Grade,
}

/// A block to be scanned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanBlock {
    /// Its place.
    pub at: BlockAt,
    /// The block. Its hash is that of the chain, its transactions those of its merkle root.
    pub block: Block,
    /// Why it was fetched.
    pub why: Why,
    /// Its filter, to keep for other scripts. With `None`, no filter of this height is evidence,
    /// whatever was handed over before: for other scripts, the block is needed again.
    pub filter: Option<BlockFilter>,
}

/// Why a block is scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The caller said that its filter matches.
    Matched,
    /// Peers claim different filters.
    Disputed,
    /// It was drawn for an audit.
    SpotAudit,
}

/// What the sync has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// Peers claim different filters for a block; it is fetched.
    Disputed {
        /// The block.
        at: BlockAt,
        /// The hashes, each with the peers that are connected and claim it.
        claims: Vec<(FilterHash, Vec<PeerId>)>,
    },
    /// The block does not say which filter is its: it is scanned, all peers stay.
    Undecided(BlockAt),
    /// The filter that all claim looks wrong, and it is not proven: the block is scanned.
    Suspicious(BlockAt),
    /// An answer of the peer is overdue by this long: others take over, and nobody waits for it.
    Slow(PeerId, Duration),
    /// No peer has this block. It is asked of whoever connects.
    BlockUnavailable(BlockAt),
    /// The chain of headers begins above this height, the first wanted: as long as it does,
    /// nothing is asked and nothing answered. If it is that of an [extension](Event::Extend), that
    /// has no effect.
    FirstUnknown(u32),
}

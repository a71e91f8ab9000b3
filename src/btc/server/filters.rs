//! Server of compact filters: answers `getcfilters`, `getcfheaders` and `getcfcheckpt` as Bitcoin
//! Core does.
//!
//! [`FilterServer`] reads the chain of headers and a [`FilterStore`]. For each request, the server
//! returns the messages to send, or the reason to disconnect the peer. The server has no state. A
//! [`Reply`] returns its filters one by one, as fast as the peer receives them, so 1,000 filters
//! are never in memory together. The caller finishes one reply before it reads the next request of
//! the peer, as Core does, so requests cannot accumulate.
//!
//! | request | answer | limit |
//! |---|---|---|
//! | `getcfilters` | one `cfilter` per block, in the order of the chain | [`MAX_FILTERS`] |
//! | `getcfheaders` | one `cfheaders`: the filter header before the range, and the filter hashes of the range | [`MAX_HASHES`] |
//! | `getcfcheckpt` | one `cfcheckpt`: the filter header at every [`CHECKPOINT_INTERVAL`] blocks | none |
//!
//! # Blocks that left the chain
//! A client may ask for a block that a reorganisation has just removed. As Core does, the server
//! answers a request for a block off the active chain only under three conditions. The header of
//! the block must be among the side branches of the chain. The node must have found the block valid
//! earlier: here, the store must have the filter of the block. The block must also be less than 30
//! days behind the tip, by time and by work: older blocks could identify the node, so they are
//! treated as unknown. The answer follows the branch that ends in the block.
//!
//! # Missing filters
//! While the store still catches up, it may lack a filter of the requested range. A request that
//! needs a missing filter gets no answer, and the peer stays connected, as in Core.
//!
//! Source: BIP157; Bitcoin Core 28.1, `net_processing.cpp` (`PrepareBlockFilterRequest`,
//! `BlockRequestAllowed`) and `index/blockfilterindex.cpp`.

mod memory;

use alloc::vec;
use alloc::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_filter::{
    CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters,
};
use bitcoin::{BlockHash, Work};
use thiserror::Error;

pub use memory::{MemoryFilterStore, StoreError};

use crate::btc::bip157::{BASIC_FILTER, CHECKPOINT_INTERVAL, MAX_FILTERS, MAX_HASHES};
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::protocol::STALE_RELAY_AGE_LIMIT;

/// Number of blocks expected in [`STALE_RELAY_AGE_LIMIT`]: one every ten minutes on every network.
const STALE_BLOCK_LIMIT: u32 = 4320;

/// The compact filters of a node, by block hash.
///
/// For each block, a store has the filter, the filter hash and the filter header, or none of the
/// three. A store that reads from a disk should compare a filter with its hash before returning it,
/// as Core does: a client treats a wrong filter as a lie.
pub trait FilterStore {
    /// Returns the encoded basic filter of `block`; `None` if the store lacks it.
    fn filter(&self, block: &BlockHash) -> Option<Vec<u8>>;
    /// Returns the hash of the filter of `block`; `None` if the store lacks it.
    fn filter_hash(&self, block: &BlockHash) -> Option<FilterHash>;
    /// Returns the filter header of `block`; `None` if the store lacks it.
    fn filter_header(&self, block: &BlockHash) -> Option<FilterHeader>;
}

/// Answers requests for compact filters. This type is `Send` only if the store is `Sync`.
#[derive(Debug)]
pub struct FilterServer<'a, S: ?Sized> {
    chain: &'a HeaderChain,
    store: &'a S,
    services: ServiceFlags,
}

impl<'a, S: FilterStore + ?Sized> FilterServer<'a, S> {
    /// Creates a server for a node that offers `services` to the peer.
    pub fn new(chain: &'a HeaderChain, store: &'a S, services: ServiceFlags) -> Self {
        Self { chain, store, services }
    }

    /// Returns the answer to `message`; `None` if `message` is no request for compact filters
    /// (`getcfilters`, `getcfheaders` or `getcfcheckpt`).
    ///
    /// As in Core, a peer is disconnected for each [`RequestViolation`], and a request is not
    /// answered if the store lacks a filter. The server also answers requests for branches that
    /// recently left the active chain.
    ///
    /// # Cost
    /// One look-up per block of the range, and at most two hashes per look-up.
    pub fn answer(&self, message: &NetworkMessage) -> Option<FilterResponse> {
        let answer = match message {
            NetworkMessage::GetCFilters(request) => self.filters(request),
            NetworkMessage::GetCFHeaders(request) => self.headers(request),
            NetworkMessage::GetCFCheckpt(request) => self.checkpoints(request),
            _ => return None,
        };
        Some(answer.map_or_else(FilterResponse::from, FilterResponse::Send))
    }

    /// Answers `getcfilters`.
    fn filters(&self, request: &GetCFilters) -> Result<Reply, Refusal> {
        let GetCFilters { filter_type, start_height, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        branch.check_range(start_height, MAX_FILTERS)?;
        let blocks = (start_height..=branch.stop.height)
            .map(|height| {
                let block = branch.hash_at(height)?;
                self.store.filter_hash(&block).map(|_| block).ok_or(Refusal::Silent { height })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Reply(Messages::Filters(blocks.into_iter())))
    }

    /// Answers `getcfheaders`.
    fn headers(&self, request: &GetCFHeaders) -> Result<Reply, Refusal> {
        let GetCFHeaders { filter_type, start_height, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        branch.check_range(start_height, MAX_HASHES)?;
        let previous_filter_header = match start_height.checked_sub(1) {
            Some(height) => self.filter_header_at(&branch, height)?,
            // BIP157: the filter header before genesis is zero.
            None => FilterHeader::all_zeros(),
        };
        let filter_hashes = (start_height..=branch.stop.height)
            .map(|height| {
                let block = branch.hash_at(height)?;
                self.store.filter_hash(&block).ok_or(Refusal::Silent { height })
            })
            .collect::<Result<_, _>>()?;
        let message = CFHeaders { filter_type, stop_hash, previous_filter_header, filter_hashes };
        Ok(Reply::one(NetworkMessage::CFHeaders(message)))
    }

    /// Answers `getcfcheckpt`.
    fn checkpoints(&self, request: &GetCFCheckpt) -> Result<Reply, Refusal> {
        let GetCFCheckpt { filter_type, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        let filter_headers = (1..=branch.stop.height / CHECKPOINT_INTERVAL)
            .map(|number| self.filter_header_at(&branch, number * CHECKPOINT_INTERVAL))
            .collect::<Result<_, _>>()?;
        let message = CFCheckpt { filter_type, stop_hash, filter_headers };
        Ok(Reply::one(NetworkMessage::CFCheckpt(message)))
    }

    /// Returns the filter header at a height of a branch.
    fn filter_header_at(&self, branch: &Branch<'_>, height: u32) -> Result<FilterHeader, Refusal> {
        let block = branch.hash_at(height)?;
        self.store.filter_header(&block).ok_or(Refusal::Silent { height })
    }

    /// Returns the chain of blocks that ends in `stop`, if the peer may request it.
    fn branch(&self, filter_type: u8, stop: BlockHash) -> Result<Branch<'a>, RequestViolation> {
        if !self.services.has(ServiceFlags::COMPACT_FILTERS) {
            return Err(RequestViolation::NotOffered);
        }
        if filter_type != BASIC_FILTER {
            return Err(RequestViolation::FilterType(filter_type));
        }
        let chain = self.chain;
        if let Some(height) = chain.height_of(&stop) {
            let stop = BlockAt { height, hash: stop };
            return Ok(Branch { chain, stop, stale: Vec::new() });
        }
        self.stale_branch(stop).ok_or(RequestViolation::UnknownStop(stop))
    }

    /// Returns the branch that ends in a block off the active chain, if the block is recent enough:
    /// Core's `BlockRequestAllowed`.
    fn stale_branch(&self, stop: BlockHash) -> Option<Branch<'a>> {
        let chain = self.chain;
        let side = chain.side_header(&stop)?;
        // Core requires that the block was found valid earlier. Here, a stored filter shows that
        // the block was valid.
        self.store.filter_hash(&stop)?;
        let tip = chain.header_at(chain.tip().height)?;
        let age = i64::from(tip.time) - i64::from(side.header.time);
        // Old stale blocks could identify the node (fingerprinting).
        if age >= i64::from(STALE_RELAY_AGE_LIMIT)
            || has_30_days_more_work(chain.work(), side.work, tip.work())
        {
            return None;
        }
        let stop = BlockAt { height: side.height, hash: stop };
        let mut stale = vec![stop.hash];
        let mut previous = side.header.prev_blockhash;
        while let Some(side) = chain.side_header(&previous) {
            stale.push(previous);
            previous = side.header.prev_blockhash;
        }
        Some(Branch { chain, stop, stale })
    }
}

/// Returns `true` if the work `tip` minus the work `block` is at least the work of 30 days of
/// mining, in which each block adds the work `proof`. This is Core's `GetBlockProofEquivalentTime`,
/// with repeated subtraction instead of a division.
fn has_30_days_more_work(tip: Work, block: Work, proof: Work) -> bool {
    if block > tip {
        return false;
    }
    let mut ahead = tip - block;
    for _ in 0..STALE_BLOCK_LIMIT {
        if ahead < proof {
            return false;
        }
        ahead = ahead - proof;
    }
    true
}

/// The chain of blocks that ends in the stop block of a request.
struct Branch<'a> {
    chain: &'a HeaderChain,
    stop: BlockAt,
    /// The blocks off the active chain, from the stop block downwards.
    stale: Vec<BlockHash>,
}

impl Branch<'_> {
    /// Checks the size of a range. As in Core, `stop - start` must be less than `limit`.
    fn check_range(&self, start: u32, limit: u32) -> Result<(), RequestViolation> {
        let stop = self.stop.height;
        match stop.checked_sub(start) {
            None => Err(RequestViolation::StartAfterStop { start, stop }),
            Some(more) if more >= limit => Err(RequestViolation::TooMany { start, stop, limit }),
            Some(_) => Ok(()),
        }
    }

    /// Returns the block at `height`, which must not be above the stop block. A chain that does not
    /// begin with genesis lacks its first blocks.
    fn hash_at(&self, height: u32) -> Result<BlockHash, Refusal> {
        let below = (self.stop.height - height) as usize;
        let hash = self.stale.get(below).copied().or_else(|| self.chain.hash_at(height));
        hash.ok_or(Refusal::Silent { height })
    }
}

/// Result of a request for compact filters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterResponse {
    /// Send the messages of this reply, in order.
    Send(Reply),
    /// Send nothing: the store has no filter of the block at `height`. The peer is not at fault.
    Silent {
        /// Height of the first block whose filter was found to be missing.
        height: u32,
    },
    /// Disconnect the peer, for this reason.
    Disconnect(RequestViolation),
}

/// A [`FilterResponse`] that sends no messages.
enum Refusal {
    Silent { height: u32 },
    Disconnect(RequestViolation),
}

impl From<RequestViolation> for Refusal {
    fn from(violation: RequestViolation) -> Self {
        Self::Disconnect(violation)
    }
}

impl From<Refusal> for FilterResponse {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Silent { height } => Self::Silent { height },
            Refusal::Disconnect(violation) => Self::Disconnect(violation),
        }
    }
}

/// The messages that answer a request. A reply borrows nothing: if the chain changes between two
/// messages, the reply continues with the same blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Messages);

#[derive(Debug, Clone)]
enum Messages {
    Filters(vec::IntoIter<BlockHash>),
    One(Option<NetworkMessage>),
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Filters(own), Self::Filters(other)) => own.as_slice() == other.as_slice(),
            (Self::One(own), Self::One(other)) => own == other,
            _ => false,
        }
    }
}

impl Eq for Messages {}

impl Reply {
    fn one(message: NetworkMessage) -> Self {
        Self(Messages::One(Some(message)))
    }

    /// Returns the number of messages that are not sent yet.
    pub fn remaining(&self) -> usize {
        match &self.0 {
            Messages::Filters(blocks) => blocks.len(),
            Messages::One(message) => usize::from(message.is_some()),
        }
    }

    /// Returns the next message, with the filter read from `store`. Returns `None` at the end of
    /// the reply. Also returns `None` if the store has lost the filter since the request; the reply
    /// then ends early.
    #[must_use = "a dropped message leaves a gap in the reply"]
    pub fn next_message<S: FilterStore + ?Sized>(&mut self, store: &S) -> Option<NetworkMessage> {
        let blocks = match &mut self.0 {
            Messages::Filters(blocks) => blocks,
            Messages::One(message) => return message.take(),
        };
        let block_hash = blocks.next()?;
        let Some(filter) = store.filter(&block_hash) else {
            *blocks = Vec::new().into_iter();
            return None;
        };
        let filter_type = BASIC_FILTER;
        Some(NetworkMessage::CFilter(CFilter { filter_type, block_hash, filter }))
    }
}

/// Violation of BIP157 in a request, for which the peer is disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestViolation {
    /// The node does not offer `NODE_COMPACT_FILTERS` to the peer.
    #[error("the node does not offer compact filters")]
    NotOffered,
    /// The filter type does not exist.
    #[error("filter type {0}, the only supported type is {BASIC_FILTER}")]
    FilterType(u8),
    /// The stop block is unknown, or it left the active chain too long ago.
    #[error("unknown stop block {0}")]
    UnknownStop(BlockHash),
    /// The start height is above the height of the stop block.
    #[error("start height {start} is above the stop block at height {stop}")]
    StartAfterStop {
        /// First requested height.
        start: u32,
        /// Height of the stop block.
        stop: u32,
    },
    /// The requested range has more blocks than are allowed in a request of this kind.
    #[error("heights {start} to {stop}, the limit is {limit} blocks")]
    TooMany {
        /// First requested height.
        start: u32,
        /// Height of the stop block.
        stop: u32,
        /// Maximum number of blocks in a request of this kind.
        limit: u32,
    },
}

#[cfg(test)]
mod tests;

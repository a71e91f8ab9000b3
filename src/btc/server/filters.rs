//! Compact filters: `getcfilters`, `getcfheaders` and `getcfcheckpt` answered as Bitcoin Core does.
//!
//! [`FilterServer`] knows the chain of headers and a [`FilterStore`], and says of each request
//! what to send, or that the peer is to be disconnected. It has no state: filters are sent from a
//! [`Reply`] one by one, as fast as the peer takes them, and a thousand of them are never in
//! memory together. A caller finishes one reply before it reads the peer's next request, as Core
//! does, so that requests cannot pile up.
//!
//! | request | answer | limit |
//! |---|---|---|
//! | `getcfilters` | a `cfilter` for each block, in the order of the chain | [`MAX_FILTERS`] |
//! | `getcfheaders` | one `cfheaders`: the filter header before the range, and its filter hashes | [`MAX_HASHES`] |
//! | `getcfcheckpt` | one `cfcheckpt`: the filter header at every [`CHECKPOINT_INTERVAL`] blocks | none |
//!
//! # Blocks that left the chain
//! A client may ask for a block that a reorganization has just removed. As Core does, the server
//! answers up to a block off the active chain if the node once had it checked, which here means
//! that the store has its filter, and if it is less than 30 days behind the tip, by its time and
//! by its work. Older ones could tell one node from another, and count as unknown. The header has
//! to be among the chain's side branches, and the answer is for the branch that ends in it.
//!
//! # Where Core is silent
//! A block that the store has no filter of, because it still catches up, gets no answer, and the
//! peer stays. Core sends nothing then of a range either, nor does the server.
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

/// The blocks that the network finds in [`STALE_RELAY_AGE_LIMIT`], one in ten minutes on every
/// network.
const STALE_BLOCK_LIMIT: u32 = 4320;

/// The filters that a node has, by the hashes of their blocks.
///
/// A block has all three or none of them. A store that reads from a disk should compare a filter
/// with its hash before it gives it, as Core does: clients take a wrong one for a lie.
pub trait FilterStore {
    /// The bytes of the basic filter of `block`.
    fn filter(&self, block: &BlockHash) -> Option<Vec<u8>>;
    /// The hash of the filter of `block`.
    fn filter_hash(&self, block: &BlockHash) -> Option<FilterHash>;
    /// The filter header at `block`.
    fn filter_header(&self, block: &BlockHash) -> Option<FilterHeader>;
}

/// Answers requests for filters.
#[derive(Debug)]
pub struct FilterServer<'a, S: ?Sized> {
    chain: &'a HeaderChain,
    store: &'a S,
    services: ServiceFlags,
}

impl<'a, S: FilterStore + ?Sized> FilterServer<'a, S> {
    /// A server for a node that offers `services` to the peer.
    pub fn new(chain: &'a HeaderChain, store: &'a S, services: ServiceFlags) -> Self {
        Self { chain, store, services }
    }

    /// What to do about `message`; `None` of one that is no request for filters.
    ///
    /// # Cost
    /// A look-up for each block of the range, for two hashes at most each.
    pub fn answer(&self, message: &NetworkMessage) -> Option<Answer> {
        let answer = match message {
            NetworkMessage::GetCFilters(request) => self.filters(request),
            NetworkMessage::GetCFHeaders(request) => self.headers(request),
            NetworkMessage::GetCFCheckpt(request) => self.checkpoints(request),
            _ => return None,
        };
        Some(answer.map_or_else(Answer::from, Answer::Send))
    }

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

    fn headers(&self, request: &GetCFHeaders) -> Result<Reply, Refusal> {
        let GetCFHeaders { filter_type, start_height, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        branch.check_range(start_height, MAX_HASHES)?;
        let previous_filter_header = match start_height.checked_sub(1) {
            Some(height) => self.filter_header_at(&branch, height)?,
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

    fn checkpoints(&self, request: &GetCFCheckpt) -> Result<Reply, Refusal> {
        let GetCFCheckpt { filter_type, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        let filter_headers = (1..=branch.stop.height / CHECKPOINT_INTERVAL)
            .map(|number| self.filter_header_at(&branch, number * CHECKPOINT_INTERVAL))
            .collect::<Result<_, _>>()?;
        let message = CFCheckpt { filter_type, stop_hash, filter_headers };
        Ok(Reply::one(NetworkMessage::CFCheckpt(message)))
    }

    fn filter_header_at(&self, branch: &Branch<'_>, height: u32) -> Result<FilterHeader, Refusal> {
        let block = branch.hash_at(height)?;
        self.store.filter_header(&block).ok_or(Refusal::Silent { height })
    }

    /// The chain of blocks that ends in `stop`, if the peer may ask for it.
    fn branch(&self, filter_type: u8, stop: BlockHash) -> Result<Branch<'a>, Violation> {
        if !self.services.has(ServiceFlags::COMPACT_FILTERS) {
            return Err(Violation::NotOffered);
        }
        if filter_type != BASIC_FILTER {
            return Err(Violation::FilterType(filter_type));
        }
        let chain = self.chain;
        if let Some(height) = chain.height_of(&stop) {
            let stop = BlockAt { height, hash: stop };
            return Ok(Branch { chain, stop, stale: Vec::new() });
        }
        self.stale_branch(stop).ok_or(Violation::UnknownStop(stop))
    }

    /// The same for a block off the active chain: Core's `BlockRequestAllowed`.
    fn stale_branch(&self, stop: BlockHash) -> Option<Branch<'a>> {
        let chain = self.chain;
        let side = chain.side_header(&stop)?;
        self.store.filter_hash(&stop)?;
        let tip = chain.header_at(chain.tip().height)?;
        let age = i64::from(tip.time) - i64::from(side.header.time);
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

/// Whether a chain with work `tip` is ahead of one with work `block` by what the network does in
/// 30 days, at `proof` a block: Core's `GetBlockProofEquivalentTime`, with the division turned
/// into steps.
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

/// The blocks up to the one that a request ends with.
struct Branch<'a> {
    chain: &'a HeaderChain,
    stop: BlockAt,
    /// The blocks off the active chain, the stop first.
    stale: Vec<BlockHash>,
}

impl Branch<'_> {
    /// Core's comparison: `stop - start >= limit` is too much.
    fn check_range(&self, start: u32, limit: u32) -> Result<(), Violation> {
        let stop = self.stop.height;
        match stop.checked_sub(start) {
            None => Err(Violation::StartAfterStop { start, stop }),
            Some(more) if more >= limit => Err(Violation::TooMany { start, stop, limit }),
            Some(_) => Ok(()),
        }
    }

    /// The block at `height`, which is not above the stop. A chain that does not begin with
    /// genesis lacks its first ones.
    fn hash_at(&self, height: u32) -> Result<BlockHash, Refusal> {
        let below = (self.stop.height - height) as usize;
        let hash = self.stale.get(below).copied().or_else(|| self.chain.hash_at(height));
        hash.ok_or(Refusal::Silent { height })
    }
}

/// What to do about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// Send the messages of this reply, in their order.
    Send(Reply),
    /// Send nothing: the store has no filter of the block at `height`. No fault of the peer.
    Silent {
        /// The lowest height found missing.
        height: u32,
    },
    /// Disconnect the peer.
    Disconnect(Violation),
}

/// An [`Answer`] without messages.
enum Refusal {
    Silent { height: u32 },
    Disconnect(Violation),
}

impl From<Violation> for Refusal {
    fn from(violation: Violation) -> Self {
        Self::Disconnect(violation)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Silent { height } => Self::Silent { height },
            Refusal::Disconnect(violation) => Self::Disconnect(violation),
        }
    }
}

/// The messages that answer a request. It borrows nothing: the chain may go on between two of
/// them, and the filters asked for stay those of the same blocks.
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

    /// The messages still to send.
    pub fn remaining(&self) -> usize {
        match &self.0 {
            Messages::Filters(blocks) => blocks.len(),
            Messages::One(message) => usize::from(message.is_some()),
        }
    }

    /// The next message, read from `store`. `None` at the end, and early if the store has lost a
    /// filter since the request: the rest is not sent then.
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

/// Why a peer is to be disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The node does not offer `NODE_COMPACT_FILTERS` to the peer.
    #[error("filters asked of a node that does not offer them")]
    NotOffered,
    /// A type of filter that there is not.
    #[error("filter type {0}, the only one is {BASIC_FILTER}")]
    FilterType(u8),
    /// A block that is not known, or too far off the active chain.
    #[error("no block {0} to stop at")]
    UnknownStop(BlockHash),
    /// A range that ends before it starts.
    #[error("a range from height {start}, its stop is at height {stop}")]
    StartAfterStop {
        /// The first height asked for.
        start: u32,
        /// The height of the stop block.
        stop: u32,
    },
    /// More than a request may ask for.
    #[error("heights {start} to {stop}, the limit is {limit} blocks")]
    TooMany {
        /// The first height asked for.
        start: u32,
        /// The height of the stop block.
        stop: u32,
        /// The most that a request of this kind may ask for.
        limit: u32,
    },
}

#[cfg(test)]
mod tests;

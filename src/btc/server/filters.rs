//! Server of compact filters: answers `getcfilters`, `getcfheaders` and `getcfcheckpt` as Bitcoin
//! Core does.
//!
//! A [`FilterStore`] has the filters of a node. For each request, [`FilterStore::answer`] returns the
//! messages to send, or the reason to disconnect the peer. A [`Reply`] returns its filters one by one, as fast as the peer receives them, so 1,000 filters
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

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
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

use super::{BlockError, Reason};
use crate::btc::bip157::{BASIC_FILTER, CHECKPOINT_INTERVAL, MAX_FILTERS, MAX_HASHES};
use crate::btc::bip158::BlockFilter;
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::protocol::STALE_RELAY_AGE_LIMIT;

/// Number of blocks expected in [`STALE_RELAY_AGE_LIMIT`]: one every ten minutes on every network.
const STALE_BLOCK_LIMIT: u32 = 4320;

/// The parts that answer one request.
struct Server<'a> {
    chain: &'a HeaderChain,
    store: &'a FilterStore,
    services: ServiceFlags,
}

impl<'a> Server<'a> {
    /// Answers `getcfilters`.
    fn filters(&self, request: &GetCFilters) -> Result<Reply, FilterResponse> {
        let GetCFilters { filter_type, start_height, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        branch.check_range(start_height, MAX_FILTERS)?;
        let blocks = (start_height..=branch.stop.height)
            .map(|height| {
                let block = branch.hash_at(height)?;
                self.store
                    .filter_hash(&block)
                    .map(|_| block)
                    .ok_or(FilterResponse::Silent { height })
            })
            .collect::<Result<_, FilterResponse>>()?;
        Ok(Reply(Messages::Filters(blocks)))
    }

    /// Answers `getcfheaders`.
    fn headers(&self, request: &GetCFHeaders) -> Result<Reply, FilterResponse> {
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
                self.store.filter_hash(&block).ok_or(FilterResponse::Silent { height })
            })
            .collect::<Result<_, _>>()?;
        let message = CFHeaders { filter_type, stop_hash, previous_filter_header, filter_hashes };
        Ok(Reply::one(NetworkMessage::CFHeaders(message)))
    }

    /// Answers `getcfcheckpt`.
    fn checkpoints(&self, request: &GetCFCheckpt) -> Result<Reply, FilterResponse> {
        let GetCFCheckpt { filter_type, stop_hash } = *request;
        let branch = self.branch(filter_type, stop_hash)?;
        let filter_headers = (1..=branch.stop.height / CHECKPOINT_INTERVAL)
            .map(|number| self.filter_header_at(&branch, number * CHECKPOINT_INTERVAL))
            .collect::<Result<_, _>>()?;
        let message = CFCheckpt { filter_type, stop_hash, filter_headers };
        Ok(Reply::one(NetworkMessage::CFCheckpt(message)))
    }

    /// Returns the filter header at a height of a branch.
    fn filter_header_at(
        &self,
        branch: &Branch<'_>,
        height: u32,
    ) -> Result<FilterHeader, FilterResponse> {
        let block = branch.hash_at(height)?;
        self.store.filter_header(&block).ok_or(FilterResponse::Silent { height })
    }

    /// Returns the chain of blocks that ends in `stop`, if the peer may request it.
    fn branch(&self, filter_type: u8, stop: BlockHash) -> Result<Branch<'a>, Reason> {
        if !self.services.has(ServiceFlags::COMPACT_FILTERS) {
            return Err(Reason::NotOffered("a request for filters"));
        }
        if filter_type != BASIC_FILTER {
            return Err(Reason::FilterType(filter_type));
        }
        let chain = self.chain;
        if let Some(height) = chain.height_of(&stop) {
            let stop = BlockAt { height, hash: stop };
            return Ok(Branch { chain, stop, stale: Vec::new() });
        }
        self.stale_branch(stop).ok_or(Reason::UnknownStop(stop))
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
    fn check_range(&self, start: u32, limit: u32) -> Result<(), Reason> {
        let stop = self.stop.height;
        match stop.checked_sub(start) {
            None => Err(Reason::StartAfterStop { start, stop }),
            Some(more) if more >= limit => Err(Reason::TooManyBlocks { start, stop, limit }),
            Some(_) => Ok(()),
        }
    }

    /// Returns the block at `height`, which must not be above the stop block. A chain that does not
    /// begin with genesis lacks its first blocks.
    fn hash_at(&self, height: u32) -> Result<BlockHash, FilterResponse> {
        let below = (self.stop.height - height) as usize;
        let hash = self.stale.get(below).copied().or_else(|| self.chain.hash_at(height));
        hash.ok_or(FilterResponse::Silent { height })
    }
}

/// The reaction to a request for compact filters.
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
    Disconnect(Reason),
}

impl From<Reason> for FilterResponse {
    fn from(reason: Reason) -> Self {
        Self::Disconnect(reason)
    }
}

/// The messages that answer a request. A reply borrows nothing: if the chain changes between two
/// messages, the reply continues with the same blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Messages);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Messages {
    Filters(VecDeque<BlockHash>),
    One(Option<Box<NetworkMessage>>),
}

impl Reply {
    fn one(message: NetworkMessage) -> Self {
        Self(Messages::One(Some(Box::new(message))))
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
    pub fn next_message(&mut self, store: &FilterStore) -> Option<NetworkMessage> {
        let blocks = match &mut self.0 {
            Messages::Filters(blocks) => blocks,
            Messages::One(message) => return message.take().map(|message| *message),
        };
        let block_hash = blocks.pop_front()?;
        let Some(filter) = store.filter(&block_hash) else {
            blocks.clear();
            return None;
        };
        let filter_type = BASIC_FILTER;
        let filter = filter.to_vec();
        Some(NetworkMessage::CFilter(CFilter { filter_type, block_hash, filter }))
    }
}

/// The compact filters of a node, in memory, filled in the order of the chain. The store is meant for
/// tests of wallets and for small chains.
///
/// [`rollback`](Self::rollback) keeps the filters of the removed blocks, as Core's index does. A
/// client that does not know the reorganisation yet can therefore still request these filters.
#[derive(Debug, Clone)]
pub struct FilterStore {
    /// The filters of all blocks, on the chain and off the chain.
    filters: BTreeMap<BlockHash, Indexed>,
    /// The blocks of the chain, from the lowest on.
    active: Vec<BlockHash>,
    /// The filter header before the lowest block.
    before: FilterHeader,
}

#[derive(Debug, Clone)]
struct Indexed {
    /// Position of the block in the chain. If the block has left the chain, this is the position
    /// that it had.
    index: usize,
    content: Vec<u8>,
    hash: FilterHash,
    header: FilterHeader,
}

impl FilterStore {
    /// Creates an empty store for a chain that starts with genesis.
    pub fn new() -> Self {
        Self::behind(FilterHeader::all_zeros())
    }

    /// Creates an empty store for a chain without its first blocks. `before` is the filter header
    /// of the block before the first block in the store.
    pub fn behind(before: FilterHeader) -> Self {
        Self { filters: BTreeMap::new(), active: Vec::new(), before }
    }

    /// Returns the answer of a node with this `chain` to `message`; `None` if `message` is no request
    /// for compact filters (`getcfilters`, `getcfheaders` or `getcfcheckpt`). `services` are the
    /// services that the node offers to the peer.
    ///
    /// As in Core, a peer is disconnected for each violation of the protocol, and a request is not answered if
    /// the store lacks a filter. Requests for branches that recently left the active chain are
    /// answered, too.
    ///
    /// # Cost
    /// One look-up per block of the range, and at most two hashes per look-up.
    pub fn answer(
        &self,
        chain: &HeaderChain,
        services: ServiceFlags,
        message: &NetworkMessage,
    ) -> Option<FilterResponse> {
        let server = Server { chain, store: self, services };
        let answer = match message {
            NetworkMessage::GetCFilters(request) => server.filters(request),
            NetworkMessage::GetCFHeaders(request) => server.headers(request),
            NetworkMessage::GetCFCheckpt(request) => server.checkpoints(request),
            _ => return None,
        };
        Some(answer.map_or_else(|refusal| refusal, FilterResponse::Send))
    }

    /// Returns the encoded basic filter of `block`; `None` if the store lacks it.
    pub fn filter(&self, block: &BlockHash) -> Option<&[u8]> {
        self.filters.get(block).map(|indexed| &indexed.content[..])
    }

    /// Returns the hash of the filter of `block`; `None` if the store lacks it.
    pub fn filter_hash(&self, block: &BlockHash) -> Option<FilterHash> {
        self.filters.get(block).map(|indexed| indexed.hash)
    }

    /// Returns the filter header of `block`; `None` if the store lacks it.
    pub fn filter_header(&self, block: &BlockHash) -> Option<FilterHeader> {
        self.filters.get(block).map(|indexed| indexed.header)
    }

    /// Adds the filter of the next block and returns its filter header. The bytes are not
    /// validated: a test may serve arbitrary bytes.
    ///
    /// # Errors
    /// [`BlockError::AlreadyThere`] if the block is in the chain already.
    ///
    /// # Cost
    /// One double SHA-256 of the filter.
    pub fn append(&mut self, filter: BlockFilter) -> Result<FilterHeader, BlockError> {
        let block = filter.block_hash;
        if self.index(&block).is_some() {
            return Err(BlockError::AlreadyThere(block));
        }
        let hash = filter.filter_hash();
        let header = filter.filter_header(&self.tip_header());
        let index = self.active.len();
        self.filters.insert(block, Indexed { index, content: filter.content, hash, header });
        self.active.push(block);
        Ok(header)
    }

    /// Removes the blocks after `block` from the chain, which then ends in `block`.
    ///
    /// # Errors
    /// [`BlockError::NotThere`] if the block is not in the chain. After an error, the store is
    /// unchanged.
    pub fn rollback(&mut self, block: &BlockHash) -> Result<(), BlockError> {
        let index = self.index(block).ok_or(BlockError::NotThere(*block))?;
        self.active.truncate(index + 1);
        Ok(())
    }

    /// Removes the filters of all blocks that left the chain.
    pub fn drop_stale(&mut self) {
        let mut stale = core::mem::take(&mut self.filters);
        let kept = |block: &BlockHash| stale.remove(block).map(|indexed| (*block, indexed));
        self.filters = self.active.iter().filter_map(kept).collect();
    }

    /// Returns the position of `block`, if it is in the chain.
    fn index(&self, block: &BlockHash) -> Option<usize> {
        let index = self.filters.get(block)?.index;
        (self.active.get(index) == Some(block)).then_some(index)
    }

    /// Returns the last block of the chain; `None` if the chain is empty.
    pub fn tip(&self) -> Option<BlockHash> {
        self.active.last().copied()
    }

    /// Returns the filter header of the last block. For an empty chain, returns the filter header
    /// before the first block.
    pub fn tip_header(&self) -> FilterHeader {
        let tip = self.active.last().and_then(|tip| self.filters.get(tip));
        tip.map_or(self.before, |tip| tip.header)
    }

    /// Returns the number of blocks in the chain.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Returns `true` if the chain has no block.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }
}

impl Default for FilterStore {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

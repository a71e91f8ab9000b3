//! Requests for filtered blocks: queued, in flight, and the block whose transactions are being
//! received.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::BlockHash;

use super::config::Limits;
use super::open_block::OpenBlock;
use super::request::Request;
use crate::btc::headers::BlockAt;
use crate::btc::protocol::MAX_INV_SIZE;

/// Requests, from the queue until the block is closed.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    max_queued: usize,
    max_in_flight: usize,
    timeout: Duration,
    queue: VecDeque<BlockAt>,
    in_flight: VecDeque<Request>,
    /// The block whose transactions are being received.
    open: Option<OpenBlock>,
    /// The lowest block from which transactions may have been missed.
    refilter: Option<BlockAt>,
    is_stall_reported: bool,
}

impl Requests {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            max_queued: limits.queued,
            max_in_flight: limits.in_flight.min(MAX_INV_SIZE),
            timeout: limits.timeout,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            open: None,
            refilter: None,
            is_stall_reported: false,
        }
    }

    /// Returns the number of requests that are not closed, sent or not.
    pub(super) fn num_pending(&self) -> usize {
        self.queue.len() + self.in_flight.len() + usize::from(self.open.is_some())
    }

    /// Queues blocks, in their order. Returns the number of blocks that exceeded the limit and were
    /// dropped.
    pub(super) fn enqueue(&mut self, blocks: Vec<BlockAt>) -> usize {
        let room = self.max_queued.saturating_sub(self.queue.len());
        let excess = blocks.len().saturating_sub(room);
        self.queue.extend(blocks.into_iter().take(room));
        excess
    }

    /// Handles a closed connection: blocks that were requested and are still valid are queued
    /// again, lowest first.
    pub(super) fn disconnect(&mut self) {
        let open = self.open.take().map(|open| *open.request());
        let sent = self.in_flight.drain(..).chain(open);
        let mut again: Vec<_> = sent.filter(Request::counts).map(|it| it.block()).collect();
        again.sort_by_key(|block| block.height);
        for block in again.into_iter().rev() {
            self.queue.push_front(block);
        }
        self.is_stall_reported = false;
    }

    /// Drops queued requests from `height` on, because these blocks have left the chain. Requests
    /// that were sent are marked, because the node still answers them.
    pub(super) fn reorganize(&mut self, height: u32) {
        self.queue.retain(|block| block.height < height);
        let sent = self.sent_mut().filter(|request| request.block().height >= height);
        sent.for_each(Request::leave_chain);
    }

    fn sent(&self) -> impl Iterator<Item = &Request> {
        self.in_flight.iter().chain(self.open.iter().map(OpenBlock::request))
    }

    fn sent_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.in_flight.iter_mut().chain(self.open.iter_mut().map(OpenBlock::request_mut))
    }

    /// Records that transactions may have been missed from `block` on.
    pub(super) fn refilter_from(&mut self, block: BlockAt) {
        if self.refilter.is_none_or(|lowest| block.height < lowest.height) {
            self.refilter = Some(block);
        }
    }

    /// Records that blocks in flight are answered without the elements that the node's filter
    /// receives only now.
    pub(super) fn refilter_in_flight(&mut self) {
        let blocks = self.sent().filter(|request| request.counts()).map(Request::block);
        if let Some(lowest) = blocks.min_by_key(|block| block.height) {
            self.refilter_from(lowest);
        }
    }

    /// Drops the record that transactions may have been missed.
    pub(super) fn forget_refilter(&mut self) {
        self.refilter = None;
    }

    /// Returns the block from which to filter again, if transactions may have been missed.
    ///
    /// Drops all requests that are not answered yet. The returned block is the lowest of the
    /// dropped blocks and the recorded block.
    pub(super) fn take_refilter(&mut self) -> Option<BlockAt> {
        let mut from = self.refilter.take()?;
        let sent = self.sent().filter(|request| request.counts()).map(Request::block);
        for block in sent.chain(self.queue.iter().copied()) {
            if block.height < from.height {
                from = block;
            }
        }
        // Everything from the returned block on is requested again by the caller.
        self.queue.clear();
        self.sent_mut().for_each(Request::supersede);
        Some(from)
    }

    /// Removes as many blocks from the queue as may be in flight, to be sent under filter
    /// `generation` and before this fence.
    ///
    /// Returns no block while less than half of the limit is free. Otherwise, the session would
    /// send one message for each block.
    pub(super) fn send(&mut self, generation: u64, fence: u64, now: Duration) -> Vec<BlockHash> {
        let room = self.max_in_flight.saturating_sub(self.in_flight.len());
        let mut blocks = Vec::new();
        // Each message then requests several blocks. Otherwise, one message would be sent for each
        // answered block.
        if room * 2 < self.max_in_flight {
            return blocks;
        }
        while blocks.len() < room {
            let Some(&block) = self.queue.front() else { break };
            // Two answers for the same block could not be told apart.
            if self.sent().any(|request| request.block().hash == block.hash) {
                break;
            }
            self.queue.pop_front();
            blocks.push(block.hash);
            self.in_flight.push_back(Request::new(block, generation, fence, now));
        }
        blocks
    }

    /// Removes and returns the request in flight for a block that is now answered.
    pub(super) fn take(&mut self, hash: &BlockHash) -> Option<Request> {
        let asked = self.in_flight.iter().position(|request| request.block().hash == *hash);
        asked.and_then(|place| self.in_flight.remove(place))
    }

    /// Removes and returns the requests before this fence that were not answered.
    pub(super) fn take_passed_over(&mut self, fence: u64) -> Vec<Request> {
        let passed_over = |request: &&Request| request.fence() <= fence;
        let taken = self.in_flight.iter().filter(passed_over).copied().collect();
        self.in_flight.retain(|request| request.fence() > fence);
        taken
    }

    pub(super) fn open(&mut self, block: OpenBlock) {
        self.open = Some(block);
    }

    pub(super) fn open_mut(&mut self) -> Option<&mut OpenBlock> {
        self.open.as_mut()
    }

    /// Removes and returns the block whose transactions are being received.
    pub(super) fn close(&mut self) -> Option<OpenBlock> {
        self.open.take()
    }

    /// Returns the oldest request and its waiting time if it is overdue. Each stall is reported
    /// once.
    pub(super) fn check_timeout(&mut self, now: Duration) -> Option<(BlockHash, Duration)> {
        let open = self.open.as_mut().map(OpenBlock::request_mut);
        let Some(oldest) = open.or(self.in_flight.front_mut()) else {
            self.is_stall_reported = false;
            return None;
        };
        let waited = oldest.waited(now);
        let is_stalled = waited > self.timeout;
        let stalled = (is_stalled && !self.is_stall_reported).then_some(oldest.block().hash);
        self.is_stall_reported = is_stalled;
        stalled.map(|hash| (hash, waited))
    }
}

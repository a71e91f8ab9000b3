//! A request for a filtered block.

use core::time::Duration;

use crate::btc::headers::BlockAt;

/// A block that was requested on the present connection and is not completely answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    block: BlockAt,
    generation: u64,
    fence: u64,
    is_superseded: bool,
    is_in_chain: bool,
    sent: Duration,
}

impl Request {
    pub(super) fn new(block: BlockAt, generation: u64, fence: u64, sent: Duration) -> Self {
        Self { block, generation, fence, is_superseded: false, is_in_chain: true, sent }
    }

    pub(super) fn block(&self) -> BlockAt {
        self.block
    }

    /// Returns the number of the filter under which the block was requested.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the fence whose `pong` follows the answer.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// Returns `true` if the answer is valid. Otherwise the block will be requested again, and
    /// transactions missing from this answer do not matter.
    pub(super) fn counts(&self) -> bool {
        !self.is_superseded
    }

    /// Returns `true` if the caller's chain still contains the block.
    pub(super) fn is_in_chain(&self) -> bool {
        self.is_in_chain
    }

    pub(super) fn supersede(&mut self) {
        self.is_superseded = true;
    }

    /// Marks the request, because the block has left the caller's chain.
    pub(super) fn leave_chain(&mut self) {
        self.is_superseded = true;
        self.is_in_chain = false;
    }

    /// Returns the time that the request has waited.
    pub(super) fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.sent)
    }
}

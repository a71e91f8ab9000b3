//! A block that the node was asked for.

use core::time::Duration;

use crate::btc::headers::BlockAt;

/// A block asked for on the present connection and not answered wholly.
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

    /// The number of the filter under which it was sent.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The fence before whose `pong` its answer comes.
    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// Whether its answer counts: otherwise the block will be asked for again, and what this
    /// answer misses does not matter.
    pub(super) fn counts(&self) -> bool {
        !self.is_superseded
    }

    /// Whether the caller's chain has kept the block since.
    pub(super) fn is_in_chain(&self) -> bool {
        self.is_in_chain
    }

    pub(super) fn supersede(&mut self) {
        self.is_superseded = true;
    }

    /// The caller's chain has dropped the block.
    pub(super) fn leave_chain(&mut self) {
        self.is_superseded = true;
        self.is_in_chain = false;
    }

    /// How long it has waited.
    pub(super) fn waited(&mut self, now: Duration) -> Duration {
        // The clock may have been set back: waiting then counts from there.
        self.sent = self.sent.min(now);
        now.saturating_sub(self.sent)
    }
}

//! When a provider is asked again, and when it is given up.

use alloc::collections::BTreeMap;
use core::time::Duration;

use alloy_primitives::B256;

use super::Config;

/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How often a provider is asked which block is final: about as often as one is made.
const FINALITY: Duration = Duration::from_secs(12);

/// Waits and counts.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    poll: Duration,
    tries: u32,
    once: bool,
    /// When the head is asked for next.
    poll_at: Duration,
    /// Whether it was asked for last: then something else comes first, however long that took.
    has_polled: bool,
    /// Whether the head was given since the last wait.
    pub(super) has_seen_head: bool,
    /// When the final block is asked for next; `None` once the provider has said that it cannot.
    finality_at: Option<Duration>,
    /// Failures in a row, of any kind, and of answers.
    failures: u32,
    wrong_answers: u32,
    /// Failures with the receipts of a block.
    of_block: BTreeMap<B256, u32>,
}

impl Pace {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            poll: config.poll,
            tries: config.tries,
            once: config.once,
            poll_at: Duration::ZERO,
            has_polled: false,
            has_seen_head: false,
            finality_at: Some(Duration::ZERO),
            failures: 0,
            wrong_answers: 0,
            of_block: BTreeMap::new(),
        }
    }

    pub(super) fn poll_at(&self) -> Duration {
        self.poll_at
    }

    /// Whether the head is asked for now.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        self.has_polled = now >= self.poll_at && !self.has_polled;
        if self.has_polled {
            self.poll_at = now.saturating_add(self.poll);
        }
        self.has_polled
    }

    pub(super) fn is_finality_due(&self, now: Duration) -> bool {
        self.finality_at.is_some_and(|at| now >= at)
    }

    /// The final block was given, or, if `again` is false, never will be.
    pub(super) fn finality_came(&mut self, again: bool, now: Duration) {
        let wait = FINALITY.min(self.poll.saturating_mul(4));
        self.finality_at = again.then(|| now.saturating_add(wait));
    }

    pub(super) fn went_well(&mut self) {
        self.failures = 0;
        self.wrong_answers = 0;
    }

    /// An answer failed. Returns how long to wait before the next one.
    ///
    /// # Errors
    /// The number of failures in a row, if that is enough.
    pub(super) fn failed(&mut self, is_transient: bool, now: Duration) -> Result<Duration, u32> {
        self.wrong_answers = self.wrong_answers.saturating_add(u32::from(!is_transient));
        let count = self.failures.saturating_add(1);
        if self.wrong_answers >= self.tries || (self.once && count >= self.tries) {
            return Err(count);
        }
        Ok(self.wait(now))
    }

    /// The wait after one more failure; afterwards the head is asked for first.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures.min(16)).unwrap_or(u32::MAX);
        let wait = self.poll.saturating_mul(doubled).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        self.has_seen_head = false;
        self.poll_at = now.saturating_add(wait);
        wait
    }

    /// Receipts of a block were wrong. Returns how often they were, with this time.
    pub(super) fn wrong_receipts(&mut self, block: B256) -> u32 {
        let count = self.of_block.entry(block).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// How often receipts of a block were wrong.
    pub(super) fn tries_of(&self, block: B256) -> u32 {
        self.of_block.get(&block).copied().unwrap_or(0)
    }

    /// The receipts of all blocks that were asked for came.
    pub(super) fn all_receipts_came(&mut self) {
        self.of_block.clear();
    }
}

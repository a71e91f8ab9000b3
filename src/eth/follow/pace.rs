//! Timing of requests, and limits on failed requests.

use alloc::collections::BTreeMap;
use core::time::Duration;

use alloy_primitives::B256;

use super::Config;

/// Longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Interval between requests for the finalised block: about one slot of Ethereum.
const FINALITY: Duration = Duration::from_secs(12);

/// Timers and failure counters of a follower.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    poll: Duration,
    tries: u32,
    once: bool,
    /// Time of the next request for the head.
    pub(super) poll_at: Duration,
    /// End of the wait after the last failure.
    rests_until: Duration,
    /// `true` if the last request was for the head. Another question must then come before the next
    /// request for the head, even if that request is already due.
    has_polled: bool,
    /// `true` if the head was received since the last wait.
    pub(super) has_seen_head: bool,
    /// Time of the next request for the finalised block; `None` if the provider does not report
    /// that block.
    finality_at: Option<Duration>,
    /// Number of failures in a row, of any kind.
    failures: u32,
    /// Number of wrong or missing answers in a row.
    wrong_answers: u32,
    /// Number of failures with the receipts of each block.
    of_block: BTreeMap<B256, u32>,
}

impl Pace {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            poll: config.poll,
            tries: config.tries,
            once: config.once,
            poll_at: Duration::ZERO,
            rests_until: Duration::ZERO,
            has_polled: false,
            has_seen_head: false,
            finality_at: Some(Duration::ZERO),
            failures: 0,
            wrong_answers: 0,
            of_block: BTreeMap::new(),
        }
    }

    /// Returns `true` if the head is due to be requested now, and schedules the next request.
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

    /// Schedules the next request for the finalised block; if `again` is `false`, there is no next
    /// request.
    pub(super) fn finality_came(&mut self, again: bool, now: Duration) {
        let wait = FINALITY.min(self.poll.saturating_mul(4));
        self.finality_at = again.then(|| now.saturating_add(wait));
    }

    pub(super) fn went_well(&mut self) {
        self.failures = 0;
        self.wrong_answers = 0;
    }

    /// Counts a failed answer; returns the wait before the next attempt.
    ///
    /// # Errors
    /// Returns the number of failures in a row if the limit is reached.
    pub(super) fn failed(&mut self, is_transient: bool, now: Duration) -> Result<Duration, u32> {
        self.wrong_answers = self.wrong_answers.saturating_add(u32::from(!is_transient));
        let count = self.failures.saturating_add(1);
        // With `once`, a lost connection also ends the run. Without `once`, the follower waits
        // until the provider can be reached again.
        if self.wrong_answers >= self.tries || (self.once && count >= self.tries) {
            return Err(count);
        }
        Ok(self.wait(now))
    }

    /// Counts one more failure and returns the wait after that failure. After the wait, the head is
    /// requested first.
    pub(super) fn wait(&mut self, now: Duration) -> Duration {
        let wait = self.nth_wait(self.failures);
        self.failures = self.failures.saturating_add(1);
        // The head may have changed during the wait.
        self.has_seen_head = false;
        self.poll_at = now.saturating_add(wait);
        self.rests_until = self.poll_at;
        wait
    }

    /// Returns the wait before the next attempt to get data that are not essential, after this number of
    /// failures. The wait does not count as a failure.
    pub(super) fn pause(&mut self, failures: u32, now: Duration) -> Duration {
        let wait = self.nth_wait(failures);
        self.has_seen_head = false;
        self.poll_at = now.saturating_add(wait);
        self.rests_until = self.poll_at;
        wait
    }

    /// Returns the wait after a failure that follows this many failures in a row.
    pub(super) fn nth_wait(&self, failures: u32) -> Duration {
        // The exponent is limited only to avoid overflow: `LONGEST_WAIT` caps the wait.
        let doubled = 1_u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX);
        self.poll.saturating_mul(doubled).min(LONGEST_WAIT)
    }

    /// Returns the end of the wait after the last failure, if it is in the future.
    pub(super) fn rests_until(&self, now: Duration) -> Option<Duration> {
        Some(self.rests_until).filter(|&until| now < until)
    }

    /// Counts wrong receipts of a block; returns the number of failures with this block so far.
    pub(super) fn wrong_receipts(&mut self, block: B256) -> u32 {
        let count = self.of_block.entry(block).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Returns the number of failures with the receipts of a block.
    pub(super) fn tries_of(&self, block: B256) -> u32 {
        self.of_block.get(&block).copied().unwrap_or(0)
    }

    /// Resets the counters after the receipts of all requested blocks were received.
    pub(super) fn all_receipts_came(&mut self) {
        self.of_block.clear();
    }
}

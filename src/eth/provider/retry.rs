//! Waits between the attempts of a request.

use core::time::Duration;

/// First wait; each wait after it is twice as long as the preceding one, up to `LONGEST_WAIT`. The
/// value is an estimate: a short failure costs little time, and a longer failure causes few
/// requests.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait if the provider asks for none. The value is an estimate: it limits how late a
/// request notices that the provider answers again.
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// Longest wait that is granted when a provider asks for a wait: a hostile provider could ask for
/// hours.
const LONGEST_ASKED: Duration = Duration::from_secs(2 * 60);

/// Counts the attempts of one request and computes the waits between them.
///
/// ```
/// use core::time::Duration;
/// use chainsieve::eth::provider::Retry;
/// let mut retry = Retry::new(1);
/// // The provider asked for three seconds.
/// assert_eq!(retry.failed(Some(Duration::from_secs(3)), 0), Some(Duration::from_secs(3)));
/// assert_eq!(retry.failed(None, 0), None);
/// assert_eq!(retry.tries(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    retries: u32,
    failures: u32,
}

impl Retry {
    /// Allows at most `retries` attempts after the first.
    pub fn new(retries: u32) -> Self {
        Self { retries, failures: 0 }
    }

    /// Records a failed attempt; returns the wait before the next attempt, or `None` if no attempt
    /// is left.
    ///
    /// `asked` is the wait that the provider asks for; at most two minutes are granted. If `asked`
    /// is `None`, the wait starts at 250 ms and doubles each time, up to 15 s. Half of the wait is
    /// random, so that many clients do not return at once. `random` must be a uniformly distributed
    /// random number.
    #[must_use]
    pub fn failed(&mut self, asked: Option<Duration>, random: u32) -> Option<Duration> {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        if before >= self.retries {
            return None;
        }
        // The wait that the provider asks for replaces the back-off.
        if let Some(asked) = asked {
            return Some(asked.min(LONGEST_ASKED));
        }
        let factor = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
        let half = FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT) / 2;
        Some(half + half.mul_f64(f64::from(random) / f64::from(u32::MAX)))
    }

    /// Returns the number of failed attempts.
    pub fn tries(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_end() {
        let mut retry = Retry::new(40);
        let mut waits = Vec::new();
        while let Some(wait) = retry.failed(None, u32::MAX) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits[..8], [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
        assert_eq!((waits.len(), waits[39], retry.tries()), (40, 15_000, 41));
        assert_eq!(Retry::new(1).failed(None, 0), Some(Duration::from_millis(125)));
        let asked = Some(Duration::from_secs(1_000_000));
        assert_eq!(Retry::new(1).failed(asked, 0), Some(Duration::from_secs(2 * 60)));
        assert_eq!(Retry::new(0).failed(None, 0), None);
    }
}

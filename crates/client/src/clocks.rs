//! The two clocks of the client's thread, and the difference between them.
//!
//! The machine takes the system's time, because headers have timestamps. Its timeouts must not
//! expire because the system's clock is set forward, for example by NTP after the start of a
//! computer, or because the computer wakes up.

use std::time::Duration;

/// Smallest step that is reported. Smaller steps are shorter than any timeout, and the two clocks
/// are not read at exactly the same time.
const SMALLEST_STEP: Duration = Duration::from_secs(1);

/// A reading of both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Monotonic time since a fixed moment of this run. On most systems, this clock stands still
    /// while the computer sleeps.
    pub(crate) steady: Duration,
    /// Time since the Unix epoch by the system's clock.
    pub(crate) unix: Duration,
}

/// Finds the steps by which the system's clock is set forward.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardSteps {
    /// The reading from which the next step is measured.
    from: Reading,
}

impl ForwardSteps {
    pub(crate) fn new(now: Reading) -> Self {
        Self { from: now }
    }

    /// Returns the time by which the system's clock has run ahead of the monotonic clock since the
    /// last step. `None` if this time is less than a second.
    ///
    /// A clock that is set back gives `None`. What is set forward afterwards counts in full.
    pub(crate) fn read(&mut self, now: Reading) -> Option<Duration> {
        let from = self.from;
        // Sums instead of differences, since either clock may show less than the other.
        let (expected, found) =
            (from.unix.saturating_add(now.steady), now.unix.saturating_add(from.steady));
        if found < expected {
            self.from = now;
        }
        let ahead = found.saturating_sub(expected);
        if ahead < SMALLEST_STEP {
            return None;
        }
        self.from = now;
        Some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the clocks at these milliseconds, and returns the reported steps in milliseconds.
    fn steps(readings: &[(u64, u64)]) -> Vec<u64> {
        let reading = |&(steady, unix)| Reading {
            steady: Duration::from_millis(steady),
            unix: Duration::from_millis(unix),
        };
        let mut steps = ForwardSteps::new(reading(&readings[0]));
        let steps = readings.iter().map(|it| steps.read(reading(it)).unwrap_or_default());
        steps.map(|step| u64::try_from(step.as_millis()).unwrap()).collect()
    }

    #[test]
    fn time_that_passes_on_both_clocks_is_no_step() {
        assert_eq!(steps(&[(0, 5_000), (10, 5_010), (90_000, 95_000)]), [0, 0, 0]);
    }

    #[test]
    fn a_step_forward_is_reported_once_without_the_time_that_passed() {
        assert_eq!(steps(&[(0, 5_000), (200, 605_200), (400, 605_400)]), [0, 600_000, 0]);
    }

    /// Slews and unequal readings do not add up while they are undone, and a series of small steps
    /// is reported once it amounts to a second.
    #[test]
    fn small_steps_count_once_they_add_up() {
        assert_eq!(steps(&[(0, 5_000), (200, 6_199), (400, 5_400)]), [0, 0, 0]);
        assert_eq!(
            steps(&[(0, 5_000), (200, 5_700), (400, 6_400), (600, 6_600)]),
            [0, 0, 1_000, 0]
        );
    }

    #[test]
    fn a_clock_set_back_is_no_step_and_what_is_set_forward_later_counts() {
        let readings = [(0, 900_000), (200, 200), (400, 400), (600, 900_600)];
        assert_eq!(steps(&readings), [0, 0, 0, 900_000]);
    }

    #[test]
    fn a_clock_at_its_end_is_no_panic() {
        let mut steps = ForwardSteps::new(Reading::default());
        let last = Reading { steady: Duration::ZERO, unix: Duration::MAX };
        assert_eq!(steps.read(last), Some(Duration::MAX));
        assert_eq!(steps.read(Reading { steady: Duration::MAX, unix: Duration::MAX }), None);
    }
}

//! Time that only goes forward, of a clock that may be set back.

use core::time::Duration;

/// A clock that counts on from where it was when the caller's is set back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SteadyClock {
    /// What the caller's clock said last.
    last: Duration,
    /// How far it was set back, all together.
    lag: Duration,
    /// How much of the time counts for nothing, all together.
    paused: Duration,
    /// What was read last.
    read: Duration,
}

impl SteadyClock {
    /// The time when the caller's clock says `now`: never less than the time before.
    pub(crate) fn read(&mut self, now: Duration) -> Duration {
        self.lag = self.lag.saturating_add(self.last.saturating_sub(now));
        self.last = now;
        self.read = self.read.max(now.saturating_add(self.lag).saturating_sub(self.paused));
        self.read
    }

    /// So much of the time that passes until the next reading counts for nothing.
    #[cfg(any(test, feature = "descriptors"))] // Only the client can be paused.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.paused = self.paused.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_counts_and_setting_back_does_not() {
        let mut clock = SteadyClock::default();
        let mut read = |seconds| clock.read(Duration::from_secs(seconds)).as_secs();
        assert_eq!([100, 105, 5, 6, 6, 0, 2].map(&mut read), [100, 105, 105, 106, 106, 106, 108]);
        // Seven seconds pass, of which five count for nothing; more than passes cannot be taken away.
        clock.pause(Duration::from_secs(5));
        assert_eq!(clock.read(Duration::from_secs(9)).as_secs(), 110);
        clock.pause(Duration::from_secs(50));
        assert_eq!(clock.read(Duration::from_secs(10)).as_secs(), 110);
        clock.read(Duration::MAX);
        clock.read(Duration::ZERO);
        let paused = Duration::from_secs(55);
        assert_eq!(clock.read(Duration::MAX), Duration::MAX.saturating_sub(paused));
    }
}

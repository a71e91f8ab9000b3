//! Monotonic time, computed from a caller's clock that may be set back.

use core::time::Duration;

/// Clock that never runs backwards, even when the caller's clock is set back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SteadyClock {
    /// The latest reading of the caller's clock.
    last: Duration,
    /// Total time by which the caller's clock was set back.
    lag: Duration,
    /// Total time that was paused and is not counted.
    paused: Duration,
    /// The latest reading of this clock.
    read: Duration,
}

impl SteadyClock {
    /// Returns the time of this clock when the caller's clock gives `now`. The result is never less
    /// than the previous result.
    pub(crate) fn read(&mut self, now: Duration) -> Duration {
        self.lag = self.lag.saturating_add(self.last.saturating_sub(now));
        self.last = now;
        self.read = self.read.max(now.saturating_add(self.lag).saturating_sub(self.paused));
        self.read
    }

    /// Returns the latest reading of the caller's clock.
    #[cfg(all(feature = "std", feature = "btc"))]
    pub(crate) fn unix(self) -> Duration {
        self.last
    }

    /// Returns the time that the caller's clock will show when this clock shows `at`, unless the
    /// caller's clock is set back again.
    #[cfg(feature = "eth")]
    pub(crate) fn to_callers(self, at: Duration) -> Duration {
        self.last.saturating_add(at.saturating_sub(self.read))
    }

    /// Subtracts `time` from the time that will have passed at the next reading.
    #[cfg(any(test, all(feature = "std", feature = "descriptors")))] // Only the client can be paused.
    pub(crate) fn pause(&mut self, time: Duration) {
        self.paused = self.paused.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use crate::steady_clock::SteadyClock;

    #[test]
    fn what_passes_counts_and_setting_back_does_not() {
        let mut clock = SteadyClock::default();
        let mut read = |seconds| clock.read(Duration::from_secs(seconds)).as_secs();
        assert_eq!([100, 105, 5, 6, 6, 0, 2].map(&mut read), [100, 105, 105, 106, 106, 106, 108]);
        #[cfg(feature = "eth")]
        for (at, callers) in [(108, 2), (110, 4), (50, 2)] {
            assert_eq!(clock.to_callers(Duration::from_secs(at)).as_secs(), callers);
        }
        // Seven seconds pass, and five of them are paused. A pause longer than the time that passed
        // does not move the clock back.
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

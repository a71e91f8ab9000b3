//! Permits for long answers of a node, of which a few are held at the same time.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::stop::Stop;

/// Number of bytes of an answer that need no permit.
pub(super) const FREE: u64 = 1 << 20;
/// Time after which whoever waits looks whether the operation was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// Permits for answers of more than [`FREE`] bytes. Each node has its own, so that one with long or slow
/// answers delays no other.
///
/// A permit is held while an answer is read and parsed, and nobody asks for a second one meanwhile, so that
/// those who wait always get one.
#[derive(Debug)]
pub(super) struct Large {
    left: Mutex<usize>,
    freed: Condvar,
}

/// The right to read a long answer, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<Large>);

impl Drop for Permit {
    fn drop(&mut self) {
        *self.0.left() += 1;
        self.0.freed.notify_one();
    }
}

impl Large {
    #[cfg(any(feature = "server", test))]
    pub(super) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { left: Mutex::new(permits), freed: Condvar::new() })
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit, at most so long and until the operation is stopped.
    pub(super) fn wait(self: &Arc<Self>, timeout: Duration, stop: &Stop) -> Option<Permit> {
        let began = Instant::now();
        let mut left = self.left();
        while *left == 0 {
            if stop.is_set() || began.elapsed() >= timeout {
                return None;
            }
            let waited = self.freed.wait_timeout(left, LOOK);
            left = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *left -= 1;
        drop(left);
        Some(Permit(Arc::clone(self)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Large;
    use crate::stop::Stop;

    #[test]
    fn a_permit_is_free_again_when_it_is_dropped() {
        let (large, stop) = (Large::new(1), Stop::new());
        let short = Duration::from_millis(1);
        let permit = large.wait(short, &stop).expect("one is free");
        assert!(large.wait(short, &stop).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| large.wait(Duration::from_secs(60), &stop).is_some());
            drop(permit);
            assert!(waiting.join().expect("no panic"));
        });
        let _permit = large.wait(short, &stop).expect("it is free again");
        stop.set();
        assert!(large.wait(Duration::from_secs(60), &stop).is_none());
    }
}

//! One piece of work for all that ask for it at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Work in progress, by what it is for.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    open: Mutex<HashMap<K, Arc<OnceLock<V>>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<K, Arc<OnceLock<V>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of `work`. If another thread does the same work now, its result is awaited
    /// instead.
    pub(crate) fn run(&self, key: &K, work: impl FnOnce() -> V) -> V {
        let flight = Arc::clone(self.open().entry(key.clone()).or_default());
        let value = flight.get_or_init(work).clone();
        let mut open = self.open();
        if open.get(key).is_some_and(|now| Arc::ptr_eq(now, &flight)) {
            open.remove(key);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::Flights;

    #[test]
    fn all_that_ask_together_get_one_result() {
        let (flights, count) = (Flights::new(), AtomicU32::new(0));
        let waiting = || flights.open().get(&7).map_or(0, Arc::strong_count);
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                flights.run(&7, || {
                    // The map and eight others hold it beside this one.
                    while waiting() < 10 {
                        thread::yield_now();
                    }
                    count.fetch_add(1, Ordering::SeqCst) + 1
                })
            });
            while waiting() < 2 {
                thread::yield_now();
            }
            let others: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| flights.run(&7, || panic!("the first one is at work"))))
                .collect();
            assert_eq!(first.join().expect("no panic"), 1);
            for other in others {
                assert_eq!(other.join().expect("no panic"), 1);
            }
        });
        // Later, the work is done again.
        assert_eq!(flights.run(&7, || 2), 2);
    }
}

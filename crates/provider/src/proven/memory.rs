//! Data that is kept in memory, the division of one budget among its kinds, and work that is shared by all
//! threads that need it at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock};

use chainsieve::alloy_primitives::B256;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::stop::lock;

/// The shares of a budget in bytes.
///
/// Receipts get the largest share, because every query for logs needs them. A body is needed for whole
/// blocks, and for the hashes of transactions. These hashes have a share of their own: logs need no other
/// part of a body, and the hashes of a block take a tenth of the space of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) receipts: u64,
    pub(super) bodies: u64,
    pub(super) hashes: u64,
    pub(super) headers: u64,
    pub(super) places: u64,
}

impl Shares {
    pub(super) const fn of(budget: u64) -> Self {
        let sixteenth = budget / 16;
        Self {
            receipts: budget - 7 * sixteenth,
            bodies: 4 * sixteenth,
            hashes: sixteenth,
            headers: sixteenth,
            places: sixteenth,
        }
    }
}

/// Approximate number of bytes that a value takes in memory.
pub(super) trait Size {
    fn size(&self) -> u64;
}

/// Weighs values by their size.
#[derive(Debug, Clone)]
pub(super) struct BySize;

/// Approximate number of bytes of a key and of the links of the cache.
const ENTRY: u64 = 100;

impl<K, V: Size> Weighter<K, V> for BySize {
    fn weight(&self, _: &K, value: &V) -> u64 {
        value.size() + ENTRY
    }
}

/// Values of one kind in memory, up to a number of bytes. Values that are not used are removed
/// first.
pub(super) type Kept<K, V> = Cache<K, V, BySize>;

/// Number of values for which a cache is laid out. A cache keeps more values if they are small.
const ESTIMATED: usize = 4096;

/// Creates a cache for values of at most `bytes` together.
pub(super) fn kept<K: Eq + Hash, V: Size + Clone>(bytes: u64) -> Kept<K, V> {
    // In one piece: of several, each would have a part of the budget, and a large block fits into none.
    let options = OptionsBuilder::new()
        .shards(1)
        .estimated_items_capacity(ESTIMATED)
        .weight_capacity(bytes)
        .build()
        .expect("both capacities are set");
    let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
    Cache::with_options(options, BySize, hasher, lifecycle)
}

/// Work in progress, by the key of its result.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    open: Mutex<HashMap<K, Arc<OnceLock<V>>>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default() }
    }

    /// Returns the result of `work`. If another thread does the same work now, its result is awaited
    /// instead.
    pub(crate) fn run(&self, key: &K, work: impl FnOnce() -> V) -> V {
        let flight = Arc::clone(lock(&self.open).entry(key.clone()).or_default());
        let value = flight.get_or_init(work).clone();
        let mut open = lock(&self.open);
        if open.get(key).is_some_and(|now| Arc::ptr_eq(now, &flight)) {
            open.remove(key);
        }
        value
    }
}

impl Size for B256 {
    fn size(&self) -> u64 {
        32
    }
}

/// The block of each transaction that was found, by the hash of the transaction. A block may have left the
/// chain since then: the caller must check that.
#[derive(Debug)]
pub(crate) struct Places(Kept<B256, B256>);

impl Places {
    pub(super) fn new(bytes: u64) -> Self {
        Self(kept(bytes))
    }

    pub(crate) fn get(&self, transaction: B256) -> Option<B256> {
        self.0.get(&transaction)
    }

    pub(crate) fn set(&self, transaction: B256, block: B256) {
        self.0.insert(transaction, block);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::{Flights, Shares};
    use crate::stop::lock;

    #[test]
    fn the_shares_are_the_budget() {
        for budget in [0, 1, 15, 16, 1000, 256 << 20] {
            let Shares { receipts, bodies, hashes, headers, places } = Shares::of(budget);
            assert_eq!(receipts + bodies + hashes + headers + places, budget);
        }
    }

    #[test]
    fn all_that_ask_together_get_one_result() {
        let (flights, count) = (Flights::new(), AtomicU32::new(0));
        let waiting = || lock(&flights.open).get(&7).map_or(0, Arc::strong_count);
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

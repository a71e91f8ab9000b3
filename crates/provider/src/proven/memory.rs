//! How one budget of memory is divided among what is kept.

use std::hash::Hash;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

/// The shares of a budget in bytes.
///
/// Receipts get the largest one, because every question about logs needs them. A body is needed for whole
/// blocks, and for the hashes of transactions. These hashes have a share of their own: logs need nothing
/// else of a body, and the hashes of a block take a tenth of its space.
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

/// Number of bytes that a value takes in memory, about.
pub(super) trait Size {
    fn size(&self) -> u64;
}

/// Weighs values by their size.
#[derive(Debug, Clone)]
pub(super) struct BySize;

/// Bytes of a key and of the links of the cache, about.
const ENTRY: u64 = 100;

impl<K, V: Size> Weighter<K, V> for BySize {
    fn weight(&self, _: &K, value: &V) -> u64 {
        value.size() + ENTRY
    }
}

/// Values of one kind in memory, up to a number of bytes. Those that are not used leave first.
pub(super) type Kept<K, V> = Cache<K, V, BySize>;

/// Number of values that a cache is laid out for. More are kept if they are small.
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

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn the_shares_are_the_budget() {
        for budget in [0, 1, 15, 16, 1000, 256 << 20] {
            let Shares { receipts, bodies, hashes, headers, places } = Shares::of(budget);
            assert_eq!(receipts + bodies + hashes + headers + places, budget);
        }
    }
}

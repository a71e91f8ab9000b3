//! Policy for building a wallet's filters.

use crate::btc::bip37::UpdateMode;

/// Policy for building a wallet's filters.
///
/// Two filters of one wallet that differ in tweak or size have different false positives, so a
/// transaction that matches both filters almost certainly belongs to the wallet. Keep `tweak`
/// permanently, and restore `capacity` with it. Store both values in the wallet's file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FilterPolicy {
    /// Random number of this wallet's filters, which is added to the seed of each hash function.
    pub tweak: u32,
    /// Number of elements that the last filter was sized for; 0 for a new wallet. When more
    /// elements are needed, the capacity grows to their number plus [`spare`](Self::spare). The
    /// capacity never shrinks.
    pub capacity: u32,
    /// Number of spare elements that are added to the capacity whenever it must grow.
    pub spare: u32,
    /// False-positive rate per element, when the filter contains as many elements as its capacity.
    pub fpr: f64,
    /// Rule for what the node inserts when an output matches.
    pub update: UpdateMode,
    /// `true` to insert public keys beside their hashes. P2PK outputs then match, and spends of
    /// P2PKH match without their outpoint. An observer can then tell the wallet's own keys from
    /// false positives.
    pub insert_keys: bool,
    /// `true` to insert the null outpoint, so that every block's coinbase transaction matches and
    /// proves the height of the block's tree. The option costs one transaction per block, and
    /// reveals that the wallet uses this option.
    pub insert_null_outpoint: bool,
    /// `true` to send new elements as `filteradd` while the capacity suffices. `filteradd` saves
    /// bandwidth, but reveals each new element itself to the node. With `false`, the whole filter
    /// is sent again.
    pub use_filteradd: bool,
}

impl FilterPolicy {
    /// Returns the policy for a new wallet with this random number: a false-positive rate of 1 in
    /// 100,000, capacity in steps of 100 elements, outpoints inserted by the node, and key hashes
    /// without public keys.
    pub fn new(tweak: u32) -> Self {
        Self {
            tweak,
            capacity: 0,
            spare: 100,
            fpr: 1e-5,
            update: UpdateMode::All,
            insert_keys: false,
            insert_null_outpoint: false,
            use_filteradd: false,
        }
    }

    /// Raises the capacity if `elements` exceeds it.
    pub(super) fn grow(&mut self, elements: u32) {
        if elements > self.capacity {
            self.capacity = elements.saturating_add(self.spare);
        }
    }
}

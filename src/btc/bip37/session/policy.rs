//! How a wallet's filter is made.

use crate::btc::bip37::UpdateMode;

/// How a wallet's filter is made.
///
/// Two filters of one wallet that differ in tweak or size have different false positives, so
/// that what matches both is the wallet. Keep `tweak` for good and restore `capacity` with it:
/// both belong into the wallet's file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPolicy {
    /// The random number of this wallet's filters.
    pub tweak: u32,
    /// The elements that the last filter had room for; 0 for a new wallet. It grows by
    /// [`spare`](Self::spare) beyond what is needed, and never shrinks.
    pub capacity: u32,
    /// The room to add when the capacity is exceeded.
    pub spare: u32,
    /// The false-positive rate of an element when the filter is full to its capacity.
    pub fpr: f64,
    /// What the node inserts when an output matches.
    pub update: UpdateMode,
    /// Whether to insert keys beside their hashes: P2PK outputs are then seen, and P2PKH spends
    /// without their outpoint. An observer can tell the wallet's own keys from false positives.
    pub insert_keys: bool,
    /// Whether to insert the null outpoint, so that every block's coinbase transaction matches
    /// and proves the height of its tree. It costs a transaction per block, and shows that the
    /// wallet is one of this kind.
    pub insert_null_outpoint: bool,
    /// Whether to send what is added as `filteradd` while there is room. It saves bandwidth and
    /// shows the node each element as it is; otherwise the whole filter is sent again.
    pub use_filteradd: bool,
}

impl FilterPolicy {
    /// The policy for a new wallet with this random number: a rate of 1 in 100,000, room for 100
    /// elements at a time, outpoints updated by the node, key hashes alone.
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

    /// Makes room for `elements`.
    pub(super) fn grow(&mut self, elements: u32) {
        if elements > self.capacity {
            self.capacity = elements.saturating_add(self.spare);
        }
    }
}

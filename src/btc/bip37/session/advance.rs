//! Keychains that have advanced, and what is to be asked again once their new scripts are watched.

use alloc::collections::BTreeMap;

use crate::btc::headers::BlockAt;
use crate::btc::wallet::Label;

/// The indices used of each keychain, and keychains whose new scripts are awaited.
#[derive(Debug, Clone, Default)]
pub(super) struct Advance {
    /// The highest index used of each keychain.
    used: BTreeMap<u32, u32>,
    /// Keychains that have advanced and got no scripts since; with the lowest block of the chain
    /// that was answered since, from the one that advanced it on.
    awaiting: BTreeMap<u32, Option<BlockAt>>,
}

impl Advance {
    /// The caller knows this index and all before it to be used.
    pub(super) fn set_used(&mut self, label: Label) {
        let used = self.used.entry(label.keychain).or_insert(label.index);
        *used = label.index.max(*used);
    }

    /// A transaction uses this index. Returns whether the keychain has advanced by it.
    pub(super) fn note(&mut self, label: Label) -> bool {
        if self.used.get(&label.keychain).is_some_and(|&used| used >= label.index) {
            return false;
        }
        self.used.insert(label.keychain, label.index);
        self.awaiting.entry(label.keychain).or_insert(None);
        true
    }

    /// `block` was answered without the scripts to come: in it, before it, or by a transaction
    /// outside of blocks, keychains have advanced.
    pub(super) fn answered(&mut self, block: BlockAt) {
        for lowest in self.awaiting.values_mut() {
            if lowest.is_none_or(|lowest| block.height < lowest.height) {
                *lowest = Some(block);
            }
        }
    }

    /// Blocks from `height` on have left the chain. The blocks in their place are noted as they
    /// are answered.
    pub(super) fn reorganize(&mut self, height: u32) {
        for block in self.awaiting.values_mut() {
            block.take_if(|block| block.height >= height);
        }
    }

    /// The keychain has got its scripts. Returns the lowest block that was answered without them.
    pub(super) fn scripts_came(&mut self, keychain: u32) -> Option<BlockAt> {
        self.awaiting.remove(&keychain).flatten()
    }
}

//! Keychains that have advanced, and the blocks to filter again once their new scripts are watched.

use alloc::collections::BTreeMap;

use crate::btc::headers::BlockAt;
use crate::btc::wallet::Label;

/// The highest used indices of keychains, and the keychains whose new scripts are awaited.
#[derive(Debug, Clone, Default)]
pub(super) struct Advance {
    /// The highest used index of each keychain.
    used: BTreeMap<u32, u32>,
    /// Keychains that have advanced and whose new scripts have not been added yet. The value is the
    /// lowest block that was answered without these scripts, which may be the block that advanced
    /// the keychain.
    awaiting: BTreeMap<u32, Option<BlockAt>>,
    /// The lowest block that was answered.
    first: Option<BlockAt>,
    /// `true` if scripts came after blocks were answered that no [`scripts_came`] returned. By the
    /// gap limit, these blocks may pay to the scripts too.
    ///
    /// [`scripts_came`]: Self::scripts_came
    is_behind: bool,
}

impl Advance {
    /// Records that this index and all indices before it are used.
    pub(super) fn set_used(&mut self, label: Label) {
        let used = self.used.entry(label.keychain).or_insert(label.index);
        *used = label.index.max(*used);
    }

    /// Records that a transaction uses this index. Returns `true` if the keychain has advanced.
    pub(super) fn note(&mut self, label: Label) -> bool {
        // The caller has already derived scripts after this index.
        if self.used.get(&label.keychain).is_some_and(|&used| used >= label.index) {
            return false;
        }
        self.used.insert(label.keychain, label.index);
        self.awaiting.entry(label.keychain).or_insert(None);
        true
    }

    /// Records that `block` was answered. Scripts of advanced keychains may not be watched yet.
    pub(super) fn answered(&mut self, block: BlockAt) {
        for lowest in self.awaiting.values_mut().chain([&mut self.first]) {
            // Filtering again from the lowest block covers all later blocks.
            if lowest.is_none_or(|lowest| block.height < lowest.height) {
                *lowest = Some(block);
            }
        }
    }

    /// Drops recorded blocks from `height` on, because they have left the chain. The blocks that
    /// replace them are recorded when they are answered.
    pub(super) fn reorganize(&mut self, height: u32) {
        for block in self.awaiting.values_mut().chain([&mut self.first]) {
            block.take_if(|block| block.height >= height);
        }
    }

    /// Records that the keychain has received its scripts. Returns the lowest block that was
    /// answered without these scripts since the keychain advanced.
    pub(super) fn scripts_came(&mut self, keychain: u32) -> Option<BlockAt> {
        let since = self.awaiting.remove(&keychain)?;
        // Blocks that were answered before the keychain advanced may pay to the scripts as well.
        let is_lower = |first: BlockAt| since.is_none_or(|block| first.height < block.height);
        self.is_behind |= self.first.is_some_and(is_lower);
        since
    }

    /// Drops the record that scripts came after blocks were answered.
    pub(super) fn forget_behind(&mut self) {
        self.is_behind = false;
    }

    /// Returns the lowest block that was answered, if scripts came after it since the last call.
    pub(super) fn take_behind(&mut self) -> Option<BlockAt> {
        core::mem::take(&mut self.is_behind).then_some(self.first).flatten()
    }
}

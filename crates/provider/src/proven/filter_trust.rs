//! Trust in filters: what the profile of a chain assumes, and the blocks that refute it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::BlockRef;

use super::observer::Observer;

/// Number of blocks after which no further ones are noted that refute filters.
const MOST_REFUTING: usize = 64;

/// What the chain's profile assumes of filters, and the blocks that refute it.
#[derive(Debug)]
pub(super) struct FilterTrust {
    profile: ChainProfile,
    /// `true` once the filter of a proven block lacked bits of a log, although the profile rules that out.
    are_refuted: AtomicBool,
    /// Such blocks of the chain; not all, if there are many.
    refuting: Mutex<Vec<BlockRef>>,
}

impl FilterTrust {
    pub(super) fn new(profile: ChainProfile) -> Self {
        Self { profile, are_refuted: AtomicBool::new(false), refuting: Mutex::default() }
    }

    pub(super) fn profile(&self) -> &ChainProfile {
        &self.profile
    }

    pub(super) fn prove_absence(&self, number: u64) -> bool {
        self.profile.at(number).bloom.proves_absence() && !self.are_refuted()
    }

    pub(super) fn are_refuted(&self) -> bool {
        self.are_refuted.load(Ordering::SeqCst)
    }

    fn refuting(&self) -> MutexGuard<'_, Vec<BlockRef>> {
        self.refuting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a block whose filter lacks bits of a log. Where the profile does not rule that out, it says
    /// nothing.
    pub(super) fn lacks_bits(&self, block: BlockRef, log_index: u64, observer: &dyn Observer) {
        if !self.profile.at(block.number).bloom.proves_absence() {
            return;
        }
        let mut refuting = self.refuting();
        if refuting.contains(&block) {
            return;
        }
        if refuting.len() < MOST_REFUTING {
            refuting.push(block);
        }
        let is_first = !self.are_refuted.swap(true, Ordering::SeqCst);
        drop(refuting);
        observer.filter_lacks_bits(block, log_index, is_first);
    }

    /// Believes the filters again, if all blocks that refuted them have left the chain: under a head that a
    /// node names, such a block may be made up. Returns those that have left now.
    pub(super) fn forget(&self, removed: &[B256]) -> Vec<B256> {
        let mut refuting = self.refuting();
        if refuting.is_empty() || refuting.len() >= MOST_REFUTING {
            return Vec::new();
        }
        let left = refuting.iter().map(|block| block.hash).filter(|hash| removed.contains(hash));
        let left: Vec<B256> = left.collect();
        refuting.retain(|block| !left.contains(&block.hash));
        if refuting.is_empty() {
            self.are_refuted.store(false, Ordering::SeqCst);
        }
        left
    }
}

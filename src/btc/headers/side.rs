//! Headers of branches with less work than the active chain.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use bitcoin::block::Header;
use bitcoin::{BlockHash, Work};

use super::rules::PeriodFirst;

/// A header that is not in the active chain.
#[derive(Debug, Clone, Copy)]
pub(in crate::btc) struct SideHeader {
    pub(in crate::btc) header: Header,
    pub(in crate::btc) height: u32,
    /// The total work of the header's branch up to and including the header.
    pub(in crate::btc) work: Work,
    /// Time and bits of the first block of the header's period. The time and bits are stored here
    /// because the rules for a child need them. Otherwise, a walk back through the period would be
    /// needed.
    pub(super) first: PeriodFirst,
}

/// Side headers by hash. The parent of each is another side header or an active header.
#[derive(Clone)]
pub(super) struct SideBranches {
    headers: BTreeMap<BlockHash, SideHeader>,
    pub(super) limit: usize,
}

impl SideBranches {
    pub(super) fn new(limit: usize) -> Self {
        Self { headers: BTreeMap::new(), limit }
    }

    pub(super) fn len(&self) -> usize {
        self.headers.len()
    }

    pub(super) fn get(&self, hash: &BlockHash) -> Option<&SideHeader> {
        self.headers.get(hash)
    }

    pub(super) fn insert(&mut self, hash: BlockHash, header: SideHeader) {
        self.headers.insert(hash, header);
    }

    /// Removes and returns the branch that ends with `tip`, down to the active chain, highest
    /// first.
    pub(super) fn take_branch(&mut self, tip: BlockHash) -> Vec<(BlockHash, SideHeader)> {
        let mut branch = Vec::new();
        let mut hash = tip;
        while let Some(side) = self.headers.remove(&hash) {
            branch.push((hash, side));
            hash = side.header.prev_blockhash;
        }
        branch
    }

    /// If the limit is exceeded, drops the tips with the least work until a quarter of the room is
    /// free.
    pub(super) fn trim(&mut self) {
        if self.headers.len() <= self.limit {
            return;
        }
        // Only tips are dropped, so that the parent of each side header stays known.
        let mut children = BTreeMap::<BlockHash, usize>::new();
        for side in self.headers.values() {
            *children.entry(side.header.prev_blockhash).or_default() += 1;
        }
        let tips = self.headers.iter().filter(|(hash, _)| !children.contains_key(*hash));
        let mut tips: BinaryHeap<_> =
            tips.map(|(hash, side)| Reverse((side.work, *hash))).collect();
        // This function visits every side header. A quarter of the room is freed, so that the
        // function does not run for every new header.
        let kept = self.limit - self.limit / 4;
        while self.headers.len() > kept {
            let Some(Reverse((_, hash))) = tips.pop() else { return };
            let Some(side) = self.headers.remove(&hash) else { return };
            let parent = side.header.prev_blockhash;
            if let Some(count) = children.get_mut(&parent) {
                *count -= 1;
                if let (0, Some(side)) = (*count, self.headers.get(&parent)) {
                    tips.push(Reverse((side.work, parent)));
                }
            }
        }
    }
}

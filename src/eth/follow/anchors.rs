//! The anchors that the caller trusts, and the highest one that the chain contains.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Fault, Source};
use crate::eth::header::{BlockRef, LinkedHeaders};

#[derive(Debug, Clone)]
pub(super) struct Anchors {
    /// Anchors that are compared with linked headers. Anchors in the range of the index are not in
    /// this list, because they are compared with the index.
    linked: Vec<BlockRef>,
    /// Highest anchor that the chain contains.
    held: Option<BlockRef>,
    is_reported: bool,
}

impl Anchors {
    /// Creates the set of anchors; `held` is the highest anchor that an earlier run found on the
    /// chain.
    pub(super) fn new(linked: Vec<BlockRef>, held: Option<BlockRef>) -> Self {
        Self { linked, held, is_reported: true }
    }

    pub(super) fn linked(&self) -> &[BlockRef] {
        &self.linked
    }

    /// Returns the highest anchor that the chain contains: no branch may leave the chain before
    /// this anchor.
    pub(super) fn held(&self) -> Option<BlockRef> {
        self.held
    }

    /// Records that the chain contains this anchor.
    pub(super) fn hold(&mut self, anchor: BlockRef) {
        if self.held.is_none_or(|before| before.number <= anchor.number) {
            self.held = Some(anchor);
            self.is_reported = false;
        }
    }

    /// Returns `true` if the reader has not been told of the highest anchor yet.
    pub(super) fn is_unreported(&self) -> bool {
        !self.is_reported
    }

    /// Returns the highest anchor if the reader has not been told of it yet, and marks it as
    /// reported.
    pub(super) fn take_unreported(&mut self) -> Option<BlockRef> {
        let was_reported = core::mem::replace(&mut self.is_reported, true);
        self.held.filter(|_| !was_reported)
    }

    /// Returns an error if a block of this part of the chain has the number of an anchor but
    /// another hash.
    pub(super) fn check(&self, chain: &LinkedHeaders) -> Result<(), Box<Fault>> {
        for &anchor in &self.linked {
            if let Some(block) = chain.block(anchor.number)
                && block.hash != anchor.hash
            {
                let (found, of) = (block.hash, Source::Provider);
                return Err(Fault::OtherThanAnchor { anchor, found, of }.into());
            }
        }
        Ok(())
    }

    /// Returns the number of the last block that must be linked to prove block `number` authentic:
    /// the lowest anchor at or after that block, or the block itself if there is no such anchor.
    pub(super) fn needed_for(&self, number: u64) -> u64 {
        let above = self.linked.iter().map(|anchor| anchor.number).filter(|&at| at >= number);
        above.min().unwrap_or(number)
    }
}

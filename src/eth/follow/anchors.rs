//! The blocks that the caller trusts, and which of them the chain holds.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Fault, Source};
use crate::eth::header::{BlockRef, HeaderChain};

#[derive(Debug, Clone)]
pub(super) struct Anchors {
    /// Those that are compared with linked blocks: an index holds the others.
    linked: Vec<BlockRef>,
    /// The highest that the chain holds, and whether the reader was told in this run.
    held: Option<BlockRef>,
    is_reported: bool,
}

impl Anchors {
    /// `held`: the highest that an earlier run found on the chain.
    pub(super) fn new(linked: Vec<BlockRef>, held: Option<BlockRef>) -> Self {
        Self { linked, held, is_reported: true }
    }

    pub(super) fn linked(&self) -> &[BlockRef] {
        &self.linked
    }

    /// The highest that the chain holds: no branch may leave the chain before it.
    pub(super) fn held(&self) -> Option<BlockRef> {
        self.held
    }

    /// The chain holds this one.
    pub(super) fn hold(&mut self, anchor: BlockRef) {
        if self.held.is_none_or(|before| before.number <= anchor.number) {
            self.held = Some(anchor);
            self.is_reported = false;
        }
    }

    /// Whether the reader is still to be told of the highest.
    pub(super) fn is_unreported(&self) -> bool {
        !self.is_reported
    }

    /// The highest, if the reader is still to be told of it.
    pub(super) fn take_unreported(&mut self) -> Option<BlockRef> {
        let was_reported = core::mem::replace(&mut self.is_reported, true);
        self.held.filter(|_| !was_reported)
    }

    /// Whether no block of this part of the chain stands in the place of an anchor.
    pub(super) fn check(&self, chain: &HeaderChain) -> Result<(), Box<Fault>> {
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

    /// The last block that is linked for this one to be authentic: the lowest anchor from it on, or
    /// itself if there is none.
    pub(super) fn needed_for(&self, number: u64) -> u64 {
        let above = self.linked.iter().map(|anchor| anchor.number).filter(|&at| at >= number);
        above.min().unwrap_or(number)
    }
}

//! The anchors that the caller trusts, and the highest anchor that the chain contains.

use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::B256;

use super::pace::Pace;
use super::rules::Refused;
use super::{AnswerError, Fault};
use crate::eth::header::{BlockRef, LinkedHeaders};

/// A newer anchor, which arrived while the follower runs and is not on the chain yet.
#[derive(Debug, Clone)]
struct Newer {
    hash: B256,
    /// Number of the block; `None` until the provider sends its header.
    number: Option<u64>,
    /// Time of the next request for the header.
    ask_at: Duration,
    /// Number of requests without the header as their answer.
    misses: u32,
}

impl Newer {
    fn at(&self) -> Option<BlockRef> {
        Some(BlockRef { number: self.number?, hash: self.hash })
    }
}

#[derive(Debug, Clone)]
pub(super) struct Anchors {
    /// Anchors that are compared with linked headers. Anchors in the range of the index are not in
    /// this list, because they are compared with the index.
    pub(super) linked: Vec<BlockRef>,
    /// Newer anchors that are not on the chain yet: the anchor that has waited longest, and the
    /// newest anchor.
    ///
    /// The anchor that has waited longest is never replaced. Otherwise a provider that always lags
    /// behind the newest anchor would never reach any anchor.
    newer: Vec<Newer>,
    /// Highest anchor that the chain contains: no branch may leave the chain before it.
    pub(super) held: Option<BlockRef>,
    /// The anchor that was last reported to the reader in this run.
    reported: Option<BlockRef>,
    is_reported: bool,
}

impl Anchors {
    /// Creates the set of anchors; `held` is the highest anchor that an earlier run found on the
    /// chain.
    pub(super) fn new(linked: Vec<BlockRef>, held: Option<BlockRef>) -> Self {
        Self { linked, newer: Vec::new(), held, reported: None, is_reported: true }
    }

    /// Records that the chain contains this anchor.
    pub(super) fn hold(&mut self, anchor: BlockRef) {
        self.forget(anchor.hash);
        if self.held.is_none_or(|before| before.number <= anchor.number) {
            self.held = Some(anchor);
            // The caller may name the same anchor again.
            self.is_reported = self.reported == self.held;
        }
    }

    /// Returns `true` if the highest anchor has not been reported to the reader yet.
    pub(super) fn is_unreported(&self) -> bool {
        !self.is_reported
    }

    /// Returns the highest anchor if it has not been reported to the reader yet, and marks it as
    /// reported.
    pub(super) fn take_unreported(&mut self) -> Option<BlockRef> {
        if core::mem::replace(&mut self.is_reported, true) {
            return None;
        }
        self.reported = self.held;
        self.held
    }

    /// Adds a newer anchor that is not among the known blocks.
    pub(super) fn add(&mut self, hash: B256) {
        let is_known = self.linked.iter().any(|anchor| anchor.hash == hash)
            || self.held.is_some_and(|held| held.hash == hash)
            || self.newer.iter().any(|newer| newer.hash == hash);
        if !is_known {
            self.newer.truncate(1);
            self.newer.push(Newer { hash, number: None, ask_at: Duration::ZERO, misses: 0 });
        }
    }

    /// Removes a newer anchor.
    pub(super) fn forget(&mut self, hash: B256) {
        self.newer.retain(|newer| newer.hash != hash);
    }

    fn newer_mut(&mut self, hash: B256) -> Option<&mut Newer> {
        self.newer.iter_mut().find(|newer| newer.hash == hash)
    }

    /// Returns the newer anchor whose header is to be requested now.
    pub(super) fn to_ask(&self, now: Duration) -> Option<B256> {
        let is_due = |newer: &&Newer| newer.number.is_none() && now >= newer.ask_at;
        self.newer.iter().find(is_due).map(|newer| newer.hash)
    }

    /// Postpones the next request for the header of a newer anchor. Returns the wait if this was
    /// the first request.
    pub(super) fn postpone(&mut self, hash: B256, pace: &Pace, now: Duration) -> Option<Duration> {
        let newer = self.newer_mut(hash)?;
        let wait = pace.nth_wait(newer.misses);
        let is_first = newer.misses == 0;
        newer.misses = newer.misses.saturating_add(1);
        newer.ask_at = now.saturating_add(wait);
        is_first.then_some(wait)
    }

    /// Sets the number of a newer anchor.
    pub(super) fn locate(&mut self, at: BlockRef) {
        if let Some(newer) = self.newer_mut(at.hash) {
            newer.number = Some(at.number);
        }
    }

    /// Returns `true` if the hash is that of a newer anchor that is not on the chain yet.
    pub(super) fn is_newer(&self, hash: B256) -> bool {
        self.newer.iter().any(|newer| newer.hash == hash)
    }

    /// Returns the newer anchors whose number is known.
    pub(super) fn located(&self) -> impl Iterator<Item = BlockRef> + '_ {
        self.newer.iter().filter_map(Newer::at)
    }

    /// Returns `true` if a linked block is an anchor.
    pub(super) fn contains(&self, at: BlockRef) -> bool {
        self.linked.contains(&at) || self.is_newer(at.hash)
    }

    /// Returns an error if a block of this part of the chain has the number of an anchor but
    /// another hash.
    ///
    /// A newer anchor is only a reason to refuse the answer: a provider that lags may need some
    /// time to leave a branch that is not final.
    pub(super) fn check(&self, chain: &LinkedHeaders) -> Result<(), Refused> {
        for anchor in self.located() {
            if let Some(block) = chain.block(anchor.number)
                && block.hash != anchor.hash
            {
                return Err(AnswerError::OtherThanAnchor { anchor, found: block.hash }.into());
            }
        }
        for &anchor in &self.linked {
            if let Some(block) = chain.block(anchor.number)
                && block.hash != anchor.hash
            {
                let (found, of) = (block.hash, "the provider");
                return Err(Fault::OtherThanAnchor { anchor, found, of }.into());
            }
        }
        Ok(())
    }

    /// Returns the number of the last block that must be linked to prove block `number` authentic:
    /// the lowest anchor at or after that block, or the block itself if there is no such anchor or
    /// if the block is already proven.
    pub(super) fn needed_for(&self, number: u64) -> u64 {
        // Otherwise each newer anchor would delay the end of a range.
        if self.held.is_some_and(|held| held.number >= number) {
            return number;
        }
        let anchors = self.linked.iter().copied().chain(self.located());
        anchors.map(|anchor| anchor.number).filter(|&at| at >= number).min().unwrap_or(number)
    }
}

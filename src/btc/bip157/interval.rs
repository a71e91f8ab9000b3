//! The claims about 1,000 blocks.

use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use core::time::Duration;

use super::CHECKPOINT_INTERVAL;
use crate::btc::bip158::filter_header;
use crate::btc::peer::PeerId;

/// Heights of an interval: those above one checkpoint, up to the next. Interval 1 begins at
/// height 1; the filter of the genesis block is known.
pub(super) const SPAN: usize = CHECKPOINT_INTERVAL as usize;

/// How the caller was answered about a height.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Not yet.
    None,
    /// By a filter.
    Filter,
    /// By the block: nothing is more certain.
    Block,
    /// Not asked for.
    Unwanted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Height {
    /// The hash that those who vouch for the interval claim, but for those who differ here.
    /// All zeros after everyone's claim was refuted.
    pub(super) hash: FilterHash,
    pub(super) answer: Answer,
    /// Peers claim others, which the block did not refute.
    pub(super) ambiguous: bool,
    /// The filter equals that built from the block.
    pub(super) audited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Voucher {
    pub(super) peer: PeerId,
    /// It vouches for so many heights from the first on.
    pub(super) heights: usize,
}

/// Peers of an earlier run, of whom no more is known, and those that have left and are not
/// remembered one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) peers: u32,
    pub(super) heights: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) heights: Vec<Height>,
    pub(super) vouchers: Vec<Voucher>,
    pub(super) earlier: Earlier,
    /// The headers before and at the end of one who vouches for all heights.
    pub(super) ends: Option<[FilterHeader; 2]>,
    /// A header that is trusted commits to the hashes.
    pub(super) committed: bool,
    /// Heights without an answer.
    pub(super) open: usize,
    /// Since when these could be asked for, if all claims were in.
    pub(super) waits_since: Option<Duration>,
}

impl Interval {
    /// How many heights someone vouches for, from the first on.
    pub(super) fn vouched(&self) -> usize {
        let heights = self.vouchers.iter().map(|voucher| voucher.heights);
        heights.max().unwrap_or(0).max(self.earlier.heights)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.open == 0 && self.heights.len() == SPAN && self.vouched() == SPAN
    }

    /// A hash is another now.
    pub(super) fn change(&mut self) {
        self.ends = None;
        self.committed = false;
    }

    /// Whether the hashes of a complete interval lead from one header to the other.
    pub(super) fn leads(&mut self, ends: [FilterHeader; 2]) -> bool {
        if self.heights.len() < SPAN {
            return false;
        }
        if self.ends == Some(ends) {
            return true;
        }
        let fold = |header, height: &Height| filter_header(&height.hash, &header);
        let leads = self.heights.iter().fold(ends[0], fold) == ends[1];
        if leads {
            self.ends = Some(ends);
        }
        leads
    }
}

/// The number of the interval of a height, which is not 0.
pub(super) fn interval_of(height: u32) -> u32 {
    height.div_ceil(CHECKPOINT_INTERVAL)
}

/// The first height of an interval.
pub(super) fn first_of(interval: u32) -> u32 {
    (interval - 1) * CHECKPOINT_INTERVAL + 1
}

/// The place of a height in its interval.
pub(super) fn place_of(height: u32) -> usize {
    (height - first_of(interval_of(height))) as usize
}

/// Ascending heights as runs.
pub(super) fn runs(heights: impl Iterator<Item = u32>) -> Vec<RangeInclusive<u32>> {
    let mut runs: Vec<RangeInclusive<u32>> = Vec::new();
    for height in heights {
        match runs.last_mut() {
            Some(run) if *run.end() + 1 == height => *run = *run.start()..=height,
            _ => runs.push(height..=height),
        }
    }
    runs
}

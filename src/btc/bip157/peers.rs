//! One peer: what it has shown, what it was asked, and how long it waits.

use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use core::time::Duration;

use super::interval::interval_of;
use super::{CHECKPOINT_INTERVAL, Reason};
use crate::btc::headers::{BlockAt, HeaderChain};

/// Blocks shown that are not in the chain, yet or any more.
const STRANGE_TIPS: usize = 4;
/// Patience for an overdue answer, over which the peer is disconnected.
const LAST_PATIENCE: u32 = 3;
/// Stale requests for filters that are kept for each peer, for what may still come.
const MAX_STALE: usize = 64;
/// So many filters are a request's worth of patience.
const FILTERS_PER_PATIENCE: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// Filter headers up to the stop, every 1,000 blocks.
    Checkpoints,
    /// Filter hashes from this height to the stop.
    Headers { start: u32 },
    /// Filters from this height to the stop; with the hashes that the peer claims.
    Filters {
        start: u32,
        expected: Vec<FilterHash>,
        done: usize,
        for_dispute: bool,
        /// Where a reorganisation made the request stale: the last height whose block stayed.
        holds_to: Option<u32>,
    },
    /// The block at the stop.
    Block,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) asked: Asked,
    pub(super) stop: BlockAt,
    sent: Duration,
    progress: Duration,
    reported: bool,
}

impl Request {
    /// Whether the chain has left the block meanwhile: the answer tells nothing.
    pub(super) fn is_stale(&self, chain: &HeaderChain) -> bool {
        chain.hash_at(self.stop.height) != Some(self.stop.hash)
    }

    pub(super) fn is_for_filters(&self) -> bool {
        matches!(self.asked, Asked::Filters { .. })
    }

    /// A request for filters whose stop has left the chain.
    fn is_stale_for_filters(&self) -> bool {
        matches!(self.asked, Asked::Filters { holds_to: Some(_), .. })
    }

    /// Whether a stale request for filters may be what this filter answers: one of a block that has
    /// left the chain, or of one that stayed. No more is known of it: a node answers it with the
    /// blocks as they were, or passes over it.
    fn may_explain(&self, height: Option<u32>, hash: FilterHash) -> bool {
        let Asked::Filters { start, expected, holds_to: Some(_), .. } = &self.asked else {
            return false;
        };
        let Some(height) = height else { return true };
        let place = height.checked_sub(*start).map(|place| place as usize);
        place.and_then(|place| expected.get(place)) == Some(&hash)
    }

    /// The height and the hash of the next filter that a request in force is to bring.
    fn next_filter(&self) -> Option<(u32, FilterHash)> {
        match &self.asked {
            Asked::Filters { start, expected, done, holds_to: None, .. } => {
                let height = start.checked_add(u32::try_from(*done).ok()?)?;
                Some((height, *expected.get(*done)?))
            }
            _ => None,
        }
    }

    /// How long it is overdue; a stale request never is.
    fn overdue(&self, now: Duration, patience: Duration) -> Option<Duration> {
        if self.is_stale_for_filters() {
            return None;
        }
        let parts = match &self.asked {
            Asked::Filters { expected, .. } => 1 + expected.len() / FILTERS_PER_PATIENCE,
            _ => 1,
        };
        let whole = patience.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX));
        let due = self.progress.saturating_add(patience).min(self.sent.saturating_add(whole));
        now.checked_sub(due).filter(|overdue| *overdue > Duration::ZERO)
    }

    /// Whether the filter of this height is still to come.
    pub(super) fn brings_filter(&self, height: u32) -> bool {
        match &self.asked {
            // A node need not answer a stale request: what it covers is asked for again.
            Asked::Filters { start, expected, done, holds_to: None, .. } => {
                let place = height.checked_sub(*start).map(|place| place as usize);
                place.is_some_and(|place| (*done..expected.len()).contains(&place))
            }
            _ => false,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Peer {
    tips: Vec<BlockHash>,
    /// Its filter headers at heights 1,000, 2,000, ….
    pub(super) checkpoints: Vec<FilterHeader>,
    /// The lowest interval whose hashes it has not claimed completely.
    pub(super) next: u32,
    /// How many hashes of that interval it has claimed, and the header after them.
    pub(super) reported: u32,
    pub(super) end: Option<FilterHeader>,
    pub(super) requests: Vec<Request>,
    /// Others are asked before it until then.
    rests_until: Duration,
    strikes: u32,
}

impl Peer {
    pub(super) fn new(first_interval: u32) -> Self {
        Self {
            tips: Vec::new(),
            checkpoints: Vec::new(),
            next: first_interval,
            reported: 0,
            end: None,
            requests: Vec::new(),
            rests_until: Duration::ZERO,
            strikes: 0,
        }
    }

    /// The highest block of the chain that it has shown.
    pub(super) fn height(&self, chain: &HeaderChain) -> Option<u32> {
        self.tips.iter().filter_map(|hash| chain.height_of(hash)).max()
    }

    pub(super) fn show_tip(&mut self, hash: BlockHash, chain: &HeaderChain) {
        match chain.height_of(&hash) {
            Some(height) if self.height(chain).is_some_and(|highest| highest > height) => {}
            Some(_) => self.tips = vec![hash],
            None => {
                self.tips.retain(|tip| *tip != hash);
                self.tips.push(hash);
                if self.tips.len() > STRANGE_TIPS {
                    let strange = self.tips.iter().position(|tip| chain.height_of(tip).is_none());
                    self.tips.remove(strange.expect("only one tip is kept of the chain"));
                }
            }
        }
    }

    /// Its filter header at the end of an interval.
    pub(super) fn checkpoint(&self, interval: u32) -> Option<FilterHeader> {
        self.checkpoints.get(interval.checked_sub(1)? as usize).copied()
    }

    /// Learns its filter header at the end of an interval; returns the one that it claimed before
    /// and that differs.
    pub(super) fn learn(&mut self, interval: u32, header: FilterHeader) -> Option<FilterHeader> {
        if self.checkpoints.len() + 1 == interval as usize {
            self.checkpoints.push(header);
        }
        self.checkpoint(interval).filter(|claimed| *claimed != header)
    }

    /// Moves on to the next interval.
    pub(super) fn advance(&mut self) {
        self.next += 1;
        self.reported = 0;
        self.end = None;
    }

    /// Forgets what it claimed above a height, and asks again for the interval there: headers
    /// between checkpoints are not kept.
    pub(super) fn truncate(&mut self, height: u32, first_interval: u32) {
        self.checkpoints.truncate((height / CHECKPOINT_INTERVAL) as usize);
        let interval = interval_of(height + 1).max(first_interval);
        if interval <= self.next {
            self.next = interval;
            self.reported = 0;
            self.end = None;
        }
        for request in &mut self.requests {
            if let Asked::Filters { holds_to, .. } = &mut request.asked
                && request.stop.height > height
            {
                *holds_to = Some(holds_to.map_or(height, |before| before.min(height)));
            }
        }
        // A node that never answers them must not fill the memory.
        while self.requests.iter().filter(|request| request.is_stale_for_filters()).count()
            > MAX_STALE
        {
            self.take(Request::is_stale_for_filters);
        }
    }

    /// The request that a filter of a block at `height`, or of none in the chain, answers.
    ///
    /// Nodes answer in the order of the requests, and pass over a stale one or answer it with the
    /// blocks as they were. So the requests in force take what they are due, whichever fits the
    /// hash, and what is left over is of the stale ones: where they come first and overlap with
    /// one in force, the later copy is left over.
    ///
    /// # Errors
    /// Where no request explains it: the height and hash that was due instead, if it is a filter of
    /// a block that is due.
    pub(super) fn explain_filter(
        &self,
        height: Option<u32>,
        hash: FilterHash,
    ) -> Result<usize, Option<(u32, FilterHash)>> {
        let next = |request: &Request| request.next_filter();
        let due = height.map(|height| (height, hash));
        if due.is_some()
            && let Some(place) = self.requests.iter().position(|request| next(request) == due)
        {
            return Ok(place);
        }
        let stale = |request: &Request| request.may_explain(height, hash);
        if let Some(place) = self.requests.iter().position(stale) {
            return Ok(place);
        }
        let mut in_force = self.requests.iter().filter_map(next);
        let expected = in_force.find(|&(due, _)| Some(due) == height);
        // What a stale request asked for is no evidence against anyone.
        let stale = self.requests.iter().position(Request::is_stale_for_filters);
        match (expected, stale) {
            (None, Some(place)) => Ok(place),
            (expected, _) => Err(expected),
        }
    }

    pub(super) fn ask(&mut self, asked: Asked, stop: BlockAt, now: Duration) {
        self.requests.push(Request { asked, stop, sent: now, progress: now, reported: false });
    }

    pub(super) fn take(&mut self, is: impl Fn(&Request) -> bool) -> Option<Request> {
        let place = self.requests.iter().position(is)?;
        Some(self.requests.remove(place))
    }

    pub(super) fn is_asked_for_claims(&self) -> bool {
        let claims = |r: &Request| matches!(r.asked, Asked::Headers { .. } | Asked::Checkpoints);
        self.requests.iter().any(claims)
    }

    pub(super) fn is_asked_for_filters(&self) -> bool {
        let bulk = |asked: &Asked| {
            matches!(asked, Asked::Filters { for_dispute: false, holds_to: None, .. })
        };
        self.requests.iter().any(|request| bulk(&request.asked))
    }

    pub(super) fn num_blocks(&self) -> usize {
        self.requests.iter().filter(|request| request.asked == Asked::Block).count()
    }

    pub(super) fn is_asked_for_block(&self, hash: BlockHash) -> bool {
        self.requests.iter().any(|r| r.asked == Asked::Block && r.stop.hash == hash)
    }

    /// Counts a filter as come; the request is done with the last.
    pub(super) fn count_filter(&mut self, request: usize, now: Duration) {
        let Some(open) = self.requests.get_mut(request) else { return };
        open.progress = now;
        if let Asked::Filters { expected, done, .. } = &mut open.asked {
            *done += 1;
            if *done >= expected.len() {
                self.requests.remove(request);
            }
        }
    }

    /// Whether an answer of it is overdue.
    pub(super) fn is_slow(&self, now: Duration, patience: Duration) -> bool {
        self.requests.iter().any(|request| request.overdue(now, patience).is_some())
    }

    /// Whether others are to be asked first.
    pub(super) fn rests(&self, now: Duration, patience: Duration) -> bool {
        self.rests_until > now || self.is_slow(now, patience)
    }

    /// Looks at the clock: how long an answer is overdue that was not before, and why the peer
    /// is to go.
    pub(super) fn check_patience(
        &mut self,
        now: Duration,
        patience: Duration,
    ) -> (Option<Duration>, Option<Reason>) {
        let (mut slow, mut gone) = (None, None);
        for request in &mut self.requests {
            // The clock may have been set back.
            request.sent = request.sent.min(now);
            request.progress = request.progress.min(now);
            let Some(overdue) = request.overdue(now, patience) else { continue };
            let urgent = matches!(request.asked, Asked::Filters { for_dispute: true, .. });
            let last = patience.saturating_mul(LAST_PATIENCE);
            let stalled = now.saturating_sub(request.progress.saturating_add(patience));
            if urgent || stalled > last {
                gone = Some(Reason::Stalled(overdue));
            } else if !request.reported {
                request.reported = true;
                slow = Some(overdue);
            }
        }
        if slow.is_some() {
            self.strikes = (self.strikes + 1).min(10);
            self.rests_until = now.saturating_add(patience.saturating_mul(1 << self.strikes));
        }
        (slow, gone)
    }
}

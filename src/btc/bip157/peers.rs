//! One peer: what it has shown, what it was asked, and how long it waits.

use std::collections::BTreeMap;
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
/// So many blocks too, or bytes of them: 35 kB/s with the usual 30 s. A node that reads each small
/// block from a slow disk, one after the other, is not overdue with the last.
const BLOCKS_PER_PATIENCE: usize = 8;
const BYTES_PER_PATIENCE: usize = 1_000_000;
/// Bytes of blocks in flight from one peer: on a line of 100 Mbit/s with 300 ms to the peer and back,
/// as many are on their way.
const BYTES_PER_PEER: usize = 4_000_000;
/// Blocks in flight from one peer, however small. Bitcoin Core takes 50,000 in one `getdata`, and
/// has 16 in flight as a client.
const MAX_BLOCKS_PER_PEER: usize = 64;

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
}

/// A block that a peer was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRequest {
    height: u32,
    sent: Duration,
    /// Blocks in flight before it: a node sends them in the order asked for.
    before: usize,
    reported: bool,
}

impl BlockRequest {
    /// When it is overdue: when none of the blocks asked for has come in as long as the patience, or
    /// when this one has not come in the time that those before it may take.
    fn due(&self, last_block: Duration, limits: Pace) -> Duration {
        let next = last_block.max(self.sent).saturating_add(limits.patience);
        next.min(self.sent.saturating_add(limits.patience).saturating_add(limits.of(self.before)))
    }
}

/// How long peers may take, and how much they are asked for at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) patience: Duration,
    /// The estimate of a block's size in bytes.
    pub(super) block_size: usize,
}

impl Pace {
    /// What so many blocks may take.
    fn of(self, blocks: usize) -> Duration {
        let bytes = blocks.saturating_mul(self.block_size);
        let parts = (bytes / BYTES_PER_PATIENCE).max(blocks / BLOCKS_PER_PATIENCE);
        self.patience.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX))
    }

    /// How many blocks one peer is asked for at a time.
    pub(super) fn blocks_per_peer(self) -> usize {
        (BYTES_PER_PEER / self.block_size.max(1)).clamp(1, MAX_BLOCKS_PER_PEER)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) asked: Asked,
    pub(super) stop: BlockAt,
    sent: Duration,
    progress: Duration,
    /// Blocks in flight before it, which the peer sends first.
    before: usize,
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
    fn overdue(&self, now: Duration, pace: Pace) -> Option<Duration> {
        if self.is_stale_for_filters() {
            return None;
        }
        let parts = match &self.asked {
            Asked::Filters { expected, .. } => 1 + expected.len() / FILTERS_PER_PATIENCE,
            _ => 1,
        };
        let whole = pace.patience.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX));
        let next = self.progress.saturating_add(pace.patience);
        let due = next.min(self.sent.saturating_add(whole)).saturating_add(pace.of(self.before));
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
    /// The blocks it was asked for.
    blocks: BTreeMap<BlockHash, BlockRequest>,
    /// When the last of them came.
    last_block: Duration,
    /// It had as many blocks in flight as it may.
    drains: bool,
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
            blocks: BTreeMap::new(),
            last_block: Duration::ZERO,
            drains: false,
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
        let before = self.blocks.len();
        self.requests.push(Request {
            asked,
            stop,
            sent: now,
            progress: now,
            before,
            reported: false,
        });
    }

    /// Whether it may be asked for another block, of `most` at a time. Once it has had so many, half
    /// of them are to come first: then it gets few messages with several blocks each, and one that
    /// takes its time for each message is as fast.
    pub(super) fn has_room(&self, most: usize) -> bool {
        let blocks = self.blocks.len();
        blocks < most && (!self.drains || blocks <= most / 2)
    }

    pub(super) fn ask_for_block(&mut self, at: BlockAt, now: Duration, most: usize) {
        let before = self.blocks.len();
        self.drains = before + 1 >= most || self.drains && before > most / 2;
        let request = BlockRequest { height: at.height, sent: now, before, reported: false };
        self.blocks.insert(at.hash, request);
    }

    /// Takes a request for a block; returns its height.
    pub(super) fn take_block(&mut self, hash: BlockHash, now: Duration) -> Option<u32> {
        let request = self.blocks.remove(&hash)?;
        self.last_block = now;
        Some(request.height)
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

    pub(super) fn num_requests(&self) -> usize {
        self.requests.len() + self.blocks.len()
    }

    pub(super) fn is_asked_for_block(&self, hash: BlockHash) -> bool {
        self.blocks.contains_key(&hash)
    }

    /// Whether it was asked for a block, which is not overdue.
    pub(super) fn brings_block(&self, hash: BlockHash, now: Duration, pace: Pace) -> bool {
        self.blocks.get(&hash).is_some_and(|block| block.due(self.last_block, pace) >= now)
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
    pub(super) fn is_slow(&self, now: Duration, pace: Pace) -> bool {
        self.requests.iter().any(|request| request.overdue(now, pace).is_some())
            || self.blocks.values().any(|block| block.due(self.last_block, pace) < now)
    }

    /// Whether others are to be asked first.
    pub(super) fn rests(&self, now: Duration, pace: Pace) -> bool {
        self.rests_until > now || self.is_slow(now, pace)
    }

    /// Looks at the clock: how long an answer is overdue that was not before, and why the peer
    /// is to go.
    pub(super) fn check_patience(
        &mut self,
        now: Duration,
        pace: Pace,
    ) -> (Option<Duration>, Option<Reason>) {
        let (mut slow, mut gone) = (None, None);
        let (patience, last) = (pace.patience, pace.patience.saturating_mul(LAST_PATIENCE));
        self.last_block = self.last_block.min(now);
        for block in self.blocks.values_mut() {
            block.sent = block.sent.min(now);
            let overdue = now.saturating_sub(block.due(self.last_block, pace));
            if overdue == Duration::ZERO {
                continue;
            }
            let stalled = self.last_block.max(block.sent).saturating_add(patience);
            if now.saturating_sub(stalled) > last {
                gone = Some(Reason::Stalled(overdue));
            } else if !block.reported {
                block.reported = true;
                slow = slow.max(Some(overdue));
            }
        }
        for request in &mut self.requests {
            // The clock may have been set back.
            request.sent = request.sent.min(now);
            request.progress = request.progress.min(now);
            let Some(overdue) = request.overdue(now, pace) else { continue };
            let urgent = matches!(request.asked, Asked::Filters { for_dispute: true, .. });
            let due = request.progress.saturating_add(patience);
            let stalled = now.saturating_sub(due.saturating_add(pace.of(request.before)));
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

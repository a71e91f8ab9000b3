//! What one peer was asked and has not answered, and when that is overdue.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::FilterHash;
use core::time::Duration;

use super::config::SILENT_TIMEOUTS;
use crate::btc::headers::{BlockAt, HeaderChain};

/// Stale requests for filters that are kept, for what may still come.
const MAX_STALE: usize = 64;
/// Filters of a request that have one timeout together. An estimate: some 65 kB/s with filters of
/// 20 kB and 30 s.
const FILTERS_PER_TIMEOUT: usize = 100;
/// Blocks in flight that have one timeout together, or their bytes: 35 kB/s with the usual 30 s. A node
/// that reads each small block from a slow disk, one after the other, is not overdue with the last.
const BLOCKS_PER_TIMEOUT: usize = 8;
const BYTES_PER_TIMEOUT: usize = 1_000_000;
/// Bytes of blocks in flight from one peer: about what a line of 100 Mbit/s holds at a round trip of
/// 300 ms.
const BYTES_PER_PEER: usize = 4_000_000;
/// Blocks in flight from one peer, however small. Bitcoin Core takes 50,000 in one `getdata`, and
/// has 16 in flight as a client.
const MAX_BLOCKS_PER_PEER: usize = 64;

/// How long peers may take, and how much they are asked for at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) timeout: Duration,
    /// The estimate of a block's size in bytes.
    pub(super) block_size: usize,
}

impl Pace {
    /// How long this many blocks may take that come first.
    fn of(self, blocks: usize) -> Duration {
        let bytes = blocks.saturating_mul(self.block_size);
        self.times((bytes / BYTES_PER_TIMEOUT).max(blocks / BLOCKS_PER_TIMEOUT))
    }

    fn times(self, count: usize) -> Duration {
        self.timeout.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// How many blocks one peer is asked for at a time.
    fn blocks_per_peer(self) -> usize {
        (BYTES_PER_PEER / self.block_size.max(1)).clamp(1, MAX_BLOCKS_PER_PEER)
    }
}

/// A range of filters that a peer was asked for, all in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filters {
    pub(super) start: u32,
    /// The hashes that the peer claims, from the start on.
    pub(super) expected: Vec<FilterHash>,
    /// Whether a dispute waits for it.
    pub(super) for_dispute: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// Filter headers up to the stop, every 1,000 blocks.
    Checkpoints,
    /// Filter hashes from this height to the stop.
    Headers { start: u32 },
    /// Filters up to the stop, of which the first `done` have come; `stale` once the stop has left
    /// the chain.
    Filters { filters: Filters, done: usize, stale: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    asked: Asked,
    stop: BlockAt,
    sent: Duration,
    progress: Duration,
    /// Blocks in flight before it, which the peer sends first.
    before: usize,
    reported: bool,
}

impl Request {
    fn is_for_filters(&self) -> bool {
        matches!(self.asked, Asked::Filters { .. })
    }

    fn is_stale(&self) -> bool {
        matches!(self.asked, Asked::Filters { stale: true, .. })
    }

    fn is_urgent(&self) -> bool {
        matches!(&self.asked, Asked::Filters { filters, stale: false, .. } if filters.for_dispute)
    }

    /// Whether a stale request may be what this filter answers: one of a block that has left the
    /// chain, or of one that stayed. No more is known of it: a node answers it with the blocks as
    /// they were, or passes over it.
    fn may_explain(&self, height: Option<u32>, hash: FilterHash) -> bool {
        let Asked::Filters { filters, stale: true, .. } = &self.asked else { return false };
        let Some(height) = height else { return true };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.and_then(|place| filters.expected.get(place)) == Some(&hash)
    }

    /// The height and the hash of the next filter that a request in force is to bring.
    fn next_filter(&self) -> Option<(u32, FilterHash)> {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return None };
        let height = filters.start.checked_add(u32::try_from(*done).ok()?)?;
        Some((height, *filters.expected.get(*done)?))
    }

    /// Whether the filter of this height is still to come. A node need not answer a stale request,
    /// so that what it covers is asked for again.
    fn brings_filter(&self, height: u32) -> bool {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return false };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.is_some_and(|place| (*done..filters.expected.len()).contains(&place))
    }

    /// When it is overdue; a stale request never is. The blocks that were asked for first may take
    /// their time.
    fn due(&self, pace: Pace) -> Option<Duration> {
        let parts = match &self.asked {
            Asked::Filters { stale: true, .. } => return None,
            Asked::Filters { filters, .. } => 1 + filters.expected.len() / FILTERS_PER_TIMEOUT,
            Asked::Checkpoints | Asked::Headers { .. } => 1,
        };
        let next = self.progress.saturating_add(pace.timeout);
        let all = self.sent.saturating_add(pace.times(parts));
        Some(next.min(all).saturating_add(pace.of(self.before)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockRequest {
    height: u32,
    sent: Duration,
    /// Blocks in flight before it: a node sends them in the order asked for.
    before: usize,
    reported: bool,
}

impl BlockRequest {
    /// When it is overdue: when none of the blocks asked for has come for a timeout, or when this
    /// one has not come in the time that those before it may take.
    fn due(&self, last_block: Duration, pace: Pace) -> Duration {
        let next = last_block.max(self.sent).saturating_add(pace.timeout);
        let all = self.sent.saturating_add(pace.timeout).saturating_add(pace.of(self.before));
        next.min(all)
    }
}

/// What the clock says of a peer's answers.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// How long an answer is overdue that was not at the last look.
    pub(super) slow: Option<Duration>,
    /// How long one is overdue for which the peer is given up.
    pub(super) gone: Option<Duration>,
}

/// The requests that one peer has not answered yet, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    asked: Vec<Request>,
    blocks: BTreeMap<BlockHash, BlockRequest>,
    /// When the last block came.
    last_block: Duration,
    /// It had as many blocks in flight as it may.
    drains: bool,
}

impl Requests {
    fn ask(&mut self, asked: Asked, stop: BlockAt, now: Duration) {
        let before = self.blocks.len();
        let (sent, progress) = (now, now);
        self.asked.push(Request { asked, stop, sent, progress, before, reported: false });
    }

    pub(super) fn ask_for_checkpoints(&mut self, stop: BlockAt, now: Duration) {
        self.ask(Asked::Checkpoints, stop, now);
    }

    pub(super) fn ask_for_headers(&mut self, start: u32, stop: BlockAt, now: Duration) {
        self.ask(Asked::Headers { start }, stop, now);
    }

    pub(super) fn ask_for_filters(&mut self, filters: Filters, stop: BlockAt, now: Duration) {
        self.ask(Asked::Filters { filters, done: 0, stale: false }, stop, now);
    }

    pub(super) fn ask_for_block(&mut self, at: BlockAt, now: Duration, pace: Pace) {
        let (before, most) = (self.blocks.len(), pace.blocks_per_peer());
        self.drains = before + 1 >= most || self.drains && before > most / 2;
        let request = BlockRequest { height: at.height, sent: now, before, reported: false };
        self.blocks.insert(at.hash, request);
    }

    /// Takes the request for checkpoints, which an answer has come to; returns its stop.
    pub(super) fn take_checkpoints(&mut self) -> Option<BlockAt> {
        let is_it = |request: &Request| request.asked == Asked::Checkpoints;
        let place = self.asked.iter().position(is_it)?;
        Some(self.asked.remove(place).stop)
    }

    /// The same for filter hashes; returns the first height and the stop.
    pub(super) fn take_headers(&mut self) -> Option<(u32, BlockAt)> {
        let start = |request: &Request| match request.asked {
            Asked::Headers { start } => Some(start),
            _ => None,
        };
        let mut places = self.asked.iter().enumerate();
        let (place, start) = places.find_map(|(place, it)| Some((place, start(it)?)))?;
        Some((start, self.asked.remove(place).stop))
    }

    /// Takes a request for a block, which came or will not; returns its height.
    pub(super) fn take_block(&mut self, hash: BlockHash, now: Duration) -> Option<u32> {
        let request = self.blocks.remove(&hash)?;
        self.last_block = now;
        Some(request.height)
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.blocks.len()
    }

    pub(super) fn has_headers(&self) -> bool {
        self.asked.iter().any(|request| matches!(request.asked, Asked::Headers { .. }))
    }

    pub(super) fn has_claims(&self) -> bool {
        self.has_headers() || self.asked.iter().any(|it| it.asked == Asked::Checkpoints)
    }

    /// Whether filters were asked for that no dispute waits for.
    pub(super) fn has_filters_in_bulk(&self) -> bool {
        self.asked.iter().any(|request| {
            let Asked::Filters { filters, stale: false, .. } = &request.asked else { return false };
            !filters.for_dispute
        })
    }

    pub(super) fn has_filters(&self) -> bool {
        self.asked.iter().any(Request::is_for_filters)
    }

    pub(super) fn has_block(&self, hash: BlockHash) -> bool {
        self.blocks.contains_key(&hash)
    }

    /// Whether a filter is to come; of peers that are slow, only where a dispute waits for it, since
    /// they are disconnected if it does not.
    pub(super) fn brings_filter(&self, height: u32, is_slow: bool) -> bool {
        let mut requests = self.asked.iter();
        requests.any(|request| request.brings_filter(height) && (!is_slow || request.is_urgent()))
    }

    /// Whether a block was asked for and is not overdue.
    pub(super) fn brings_block(&self, hash: BlockHash, now: Duration, pace: Pace) -> bool {
        self.blocks.get(&hash).is_some_and(|block| block.due(self.last_block, pace) >= now)
    }

    /// Whether the peer may be asked for another block. Once it has had as many in flight as it may,
    /// half of them are to come first: then it gets few messages with several blocks each, and one
    /// that takes its time for each message is as fast.
    pub(super) fn has_room_for_block(&self, pace: Pace) -> bool {
        let (blocks, most) = (self.blocks.len(), pace.blocks_per_peer());
        blocks < most && (!self.drains || blocks <= most / 2)
    }

    /// The request that a filter of a block at `height`, or of none in the chain, answers.
    ///
    /// Nodes answer in the order of the requests, and pass over a stale one or answer it with the
    /// blocks as they were. So the requests in force take what they are due, whichever fits the
    /// hash, and what is left over is of the stale ones: where they come first and overlap with
    /// one in force, the later copy is left over. Nothing of a stale request is evidence against
    /// the peer, whose claims were about other blocks then.
    ///
    /// # Errors
    /// Where no request explains it: the hash that was due instead, if it is a filter of a block
    /// that is due.
    fn explain_filter(
        &self,
        height: Option<u32>,
        hash: FilterHash,
    ) -> Result<usize, Option<FilterHash>> {
        let next = |request: &Request| request.next_filter();
        let due = height.map(|height| (height, hash));
        let in_force = || self.asked.iter().position(|it| due.is_some() && next(it) == due);
        let stale = || self.asked.iter().position(|it| it.may_explain(height, hash));
        if let Some(place) = in_force().or_else(stale) {
            return Ok(place);
        }
        let mut expected = self.asked.iter().filter_map(next);
        let expected = expected.find(|&(due, _)| Some(due) == height).map(|(_, hash)| hash);
        match (expected, self.asked.iter().position(Request::is_stale)) {
            (None, Some(place)) => Ok(place),
            (expected, _) => Err(expected),
        }
    }

    /// Counts a filter as come, of the block at `height` or of none in the chain; a request is done
    /// with its last.
    ///
    /// # Errors
    /// Where no request explains it: the hash that was due instead, if it is a filter of a block
    /// that is due.
    pub(super) fn take_filter(
        &mut self,
        height: Option<u32>,
        hash: FilterHash,
        now: Duration,
    ) -> Result<(), Option<FilterHash>> {
        let place = self.explain_filter(height, hash)?;
        let Some(request) = self.asked.get_mut(place) else { return Ok(()) };
        request.progress = now;
        if let Asked::Filters { filters, done, .. } = &mut request.asked {
            *done += 1;
            if *done >= filters.expected.len() {
                self.asked.remove(place);
            }
        }
        Ok(())
    }

    /// The blocks above a height have left the chain.
    pub(super) fn truncate(&mut self, height: u32) {
        for request in self.asked.iter_mut().filter(|request| request.stop.height > height) {
            if let Asked::Filters { stale, .. } = &mut request.asked {
                *stale = true;
            }
        }
        // A node that never answers them must not fill the memory.
        let stale = self.asked.iter().filter(|request| request.is_stale()).count();
        let mut over = stale.saturating_sub(MAX_STALE);
        self.asked.retain(|request| {
            let drop = over > 0 && request.is_stale();
            over -= usize::from(drop);
            !drop
        });
    }

    /// Whether an answer is overdue.
    pub(super) fn is_slow(&self, now: Duration, pace: Pace) -> bool {
        let mut due = self.asked.iter().filter_map(|request| request.due(pace));
        let mut blocks = self.blocks.values().map(|block| block.due(self.last_block, pace));
        due.any(|due| due < now) || blocks.any(|due| due < now)
    }

    /// Looks at the clock.
    pub(super) fn check(&mut self, now: Duration, pace: Pace) -> Overdue {
        let mut found = Overdue::default();
        let last = pace.timeout.saturating_mul(SILENT_TIMEOUTS - 1);
        // The clock may have been set back.
        self.last_block = self.last_block.min(now);
        for block in self.blocks.values_mut() {
            block.sent = block.sent.min(now);
            let overdue = now.saturating_sub(block.due(self.last_block, pace));
            let next = self.last_block.max(block.sent).saturating_add(pace.timeout);
            found.note(overdue, now.saturating_sub(next) > last, &mut block.reported);
        }
        for request in &mut self.asked {
            request.sent = request.sent.min(now);
            request.progress = request.progress.min(now);
            let Some(due) = request.due(pace) else { continue };
            let next = request.progress.saturating_add(pace.timeout);
            let next = next.saturating_add(pace.of(request.before));
            // Who owes the filter that it claims would put off a dispute for as long as it likes.
            let is_gone = request.is_urgent() || now.saturating_sub(next) > last;
            found.note(now.saturating_sub(due), is_gone, &mut request.reported);
        }
        found
    }
}

impl Overdue {
    fn note(&mut self, overdue: Duration, is_gone: bool, reported: &mut bool) {
        if overdue == Duration::ZERO {
            return;
        }
        if is_gone {
            self.gone = Some(overdue);
        } else if !core::mem::replace(reported, true) {
            self.slow = Some(overdue);
        }
    }
}

/// Whether the chain has left a block since it was the stop of a request: the answer tells nothing
/// about the chain as it is.
pub(super) fn is_stale(stop: BlockAt, chain: &HeaderChain) -> bool {
    chain.hash_at(stop.height) != Some(stop.hash)
}

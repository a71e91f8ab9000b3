//! The open requests to one peer, and when their answers are overdue.

use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::FilterHash;
use core::time::Duration;

use super::config::SILENT_TIMEOUTS;
use crate::btc::headers::{BlockAt, HeaderChain};

/// Maximum number of stale requests for filters that are remembered, because their answers may
/// still arrive.
const MAX_STALE: usize = 64;
/// Number of filters of a request that together may take one timeout. An estimate: about 65 kB/s
/// with filters of 20 kB and a timeout of 30 s.
const FILTERS_PER_TIMEOUT: usize = 100;
/// Number of blocks in flight that together may take one timeout. This limit gives more time to a
/// node with a slow disk, which reads many small blocks one after another: the last of these blocks
/// does not become overdue.
const BLOCKS_PER_TIMEOUT: usize = 8;
/// Bytes of blocks in flight that together may take one timeout: about 35 kB/s with the default of
/// 30 s.
const BYTES_PER_TIMEOUT: usize = 1_000_000;
/// Maximum bytes of blocks in flight from one peer: about the capacity of a 100 Mbit/s link with a
/// round trip of 300 ms.
const BYTES_PER_PEER: usize = 4_000_000;
/// Maximum number of blocks in flight from one peer, however small they are. Bitcoin Core accepts
/// 50,000 items in one `getdata`. As a client, Bitcoin Core has at most 16 blocks in flight from
/// one peer.
const MAX_BLOCKS_PER_PEER: usize = 64;

/// The time that answers may take, and the number of blocks that are requested at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) timeout: Duration,
    /// The estimated size of a block in bytes.
    pub(super) block_size: usize,
}

impl Pace {
    /// Returns the time that a peer may take for `blocks` blocks that it must send before an
    /// answer.
    fn of(self, blocks: usize) -> Duration {
        let bytes = blocks.saturating_mul(self.block_size);
        self.times((bytes / BYTES_PER_TIMEOUT).max(blocks / BLOCKS_PER_TIMEOUT))
    }

    fn times(self, count: usize) -> Duration {
        self.timeout.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Returns the maximum number of blocks in flight from one peer.
    fn blocks_per_peer(self) -> usize {
        (BYTES_PER_PEER / self.block_size.max(1)).clamp(1, MAX_BLOCKS_PER_PEER)
    }
}

/// The range of filters of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filters {
    pub(super) start: u32,
    /// The hashes that the peer claims, from `start` on.
    pub(super) expected: Vec<FilterHash>,
    /// `true` if a dispute waits for the filters.
    pub(super) for_dispute: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// Filter headers up to the stop, one for each 1,000 blocks.
    Checkpoints,
    /// Filter hashes from `start` up to the stop.
    Headers { start: u32 },
    /// Filters up to the stop. The first `done` of them have arrived. `stale` is set once the stop
    /// has left the chain.
    Filters { filters: Filters, done: usize, stale: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    asked: Asked,
    stop: BlockAt,
    sent: Duration,
    progress: Duration,
    /// The number of blocks in flight at the time of the request. The peer sends these blocks
    /// before it answers the request.
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

    /// Returns `true` if a filter may be the answer to this request, which must be stale: a filter
    /// of a block that has left the chain, or the expected filter of a block that is still in the
    /// chain. A node either answers a stale request for the blocks of the old chain, or skips the
    /// request.
    fn may_explain(&self, height: Option<u32>, hash: FilterHash) -> bool {
        let Asked::Filters { filters, stale: true, .. } = &self.asked else { return false };
        // A block outside the chain has no height to compare.
        let Some(height) = height else { return true };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.and_then(|place| filters.expected.get(place)) == Some(&hash)
    }

    /// Returns the height and the hash of the next filter that is expected from a current request.
    fn next_filter(&self) -> Option<(u32, FilterHash)> {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return None };
        let height = filters.start.checked_add(u32::try_from(*done).ok()?)?;
        Some((height, *filters.expected.get(*done)?))
    }

    /// Returns `true` if the filter of this height is still expected. Returns `false` for a stale
    /// request: a node need not answer it, and its filters are requested again.
    fn brings_filter(&self, height: u32) -> bool {
        let Asked::Filters { filters, done, stale: false } = &self.asked else { return false };
        let place = height.checked_sub(filters.start).map(|place| place as usize);
        place.is_some_and(|place| (*done..filters.expected.len()).contains(&place))
    }

    /// Returns the time at which the request is overdue; `None` for a stale request, which is never
    /// overdue. The timeout is extended for the blocks that were requested before this request.
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
    /// The number of blocks in flight at the time of the request. A node sends blocks in the order
    /// of the requests.
    before: usize,
    reported: bool,
}

impl BlockRequest {
    /// Returns the time at which the block is overdue. A block is overdue in two cases: no
    /// requested block has arrived for one timeout, or more time has passed since the request than
    /// one timeout plus the time that the blocks before it may take together.
    fn due(&self, last_block: Duration, pace: Pace) -> Duration {
        let next = last_block.max(self.sent).saturating_add(pace.timeout);
        let all = self.sent.saturating_add(pace.timeout).saturating_add(pace.of(self.before));
        next.min(all)
    }
}

/// Overdue answers of a peer.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    /// The delay of an answer that has become overdue since the last check.
    pub(super) slow: Option<Duration>,
    /// The delay of an answer for which the peer must be disconnected.
    pub(super) gone: Option<Duration>,
}

/// The requests that one peer has not answered yet, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    asked: Vec<Request>,
    blocks: BTreeMap<BlockHash, BlockRequest>,
    /// The time at which the last block arrived.
    last_block: Duration,
    /// `true` if the maximum of blocks was in flight. Further blocks are then requested only when
    /// at most half of the maximum is pending.
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

    /// Removes the request for checkpoints that was answered. Returns the stop block of the
    /// request.
    pub(super) fn take_checkpoints(&mut self) -> Option<BlockAt> {
        let is_it = |request: &Request| request.asked == Asked::Checkpoints;
        let place = self.asked.iter().position(is_it)?;
        Some(self.asked.remove(place).stop)
    }

    /// Removes the request for filter hashes that was answered. Returns the first height and the
    /// stop block of the request.
    pub(super) fn take_headers(&mut self) -> Option<(u32, BlockAt)> {
        let start = |request: &Request| match request.asked {
            Asked::Headers { start } => Some(start),
            _ => None,
        };
        let mut places = self.asked.iter().enumerate();
        let (place, start) = places.find_map(|(place, it)| Some((place, start(it)?)))?;
        Some((start, self.asked.remove(place).stop))
    }

    /// Removes a request for a block that has arrived or that the peer does not have. Returns the
    /// height of the block.
    pub(super) fn take_block(&mut self, hash: BlockHash, now: Duration) -> Option<u32> {
        let request = self.blocks.remove(&hash)?;
        self.last_block = now;
        Some(request.height)
    }

    /// Returns the number of open requests.
    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.blocks.len()
    }

    pub(super) fn has_headers(&self) -> bool {
        self.asked.iter().any(|request| matches!(request.asked, Asked::Headers { .. }))
    }

    pub(super) fn has_claims(&self) -> bool {
        self.has_headers() || self.asked.iter().any(|it| it.asked == Asked::Checkpoints)
    }

    /// Returns `true` if there is a current request for filters that no dispute waits for.
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

    /// Returns `true` if the filter of a height is expected. From a slow peer, only filters for
    /// disputes are expected, because the peer is disconnected if such a filter does not arrive.
    pub(super) fn brings_filter(&self, height: u32, is_slow: bool) -> bool {
        let mut requests = self.asked.iter();
        requests.any(|request| request.brings_filter(height) && (!is_slow || request.is_urgent()))
    }

    /// Returns `true` if a block was requested and is not overdue.
    pub(super) fn brings_block(&self, hash: BlockHash, now: Duration, pace: Pace) -> bool {
        self.blocks.get(&hash).is_some_and(|block| block.due(self.last_block, pace) >= now)
    }

    /// Returns `true` if the peer may be asked for another block.
    ///
    /// Once the peer has had the maximum in flight, half of the blocks must arrive first. The peer
    /// then gets few messages, each for several blocks, so a delay for each message hardly slows
    /// the download.
    pub(super) fn has_room_for_block(&self, pace: Pace) -> bool {
        let (blocks, most) = (self.blocks.len(), pace.blocks_per_peer());
        blocks < most && (!self.drains || blocks <= most / 2)
    }

    /// Returns the index of the request that a filter answers. `height` is the height of the
    /// filter's block, or `None` if that block is not in the chain.
    ///
    /// Nodes answer requests in order. A node skips a stale request, or answers it for the blocks
    /// of the old chain. An arriving filter is therefore assigned to a current request that expects
    /// this filter next, and only otherwise to a stale request. If a stale request and a current
    /// request include the same block, the filter of this block can arrive twice. The first copy
    /// completes the current request, and the second copy is assigned to the stale request. Nothing
    /// about a stale request is evidence against the peer, because the peer's claims were about
    /// other blocks when it got the request.
    ///
    /// # Errors
    /// Returns an error if no request explains the filter. The error contains the hash that was
    /// expected, if a filter of this block was expected next.
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
        // No current request expects a filter of this block. If there is a stale request, the
        // filter may answer it, so the peer is not blamed.
        match (expected, self.asked.iter().position(Request::is_stale)) {
            (None, Some(place)) => Ok(place),
            (expected, _) => Err(expected),
        }
    }

    /// Records that a filter has arrived. `height` is the height of the filter's block, or `None`
    /// if that block is not in the chain. Removes the request if this was its last filter.
    ///
    /// # Errors
    /// Returns an error if no request explains the filter. The error contains the hash that was
    /// expected, if a filter of this block was expected next.
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
            // BIP157: one `cfilter` answers each block of the range, so the last `cfilter`
            // completes the request.
            if *done >= filters.expected.len() {
                self.asked.remove(place);
            }
        }
        Ok(())
    }

    /// Marks the requests whose stop is above `height` as stale, because the blocks above `height`
    /// have left the chain.
    pub(super) fn truncate(&mut self, height: u32) {
        for request in self.asked.iter_mut().filter(|request| request.stop.height > height) {
            if let Asked::Filters { stale, .. } = &mut request.asked {
                *stale = true;
            }
        }
        // A node that never answers stale requests must not fill the memory.
        let stale = self.asked.iter().filter(|request| request.is_stale()).count();
        let mut over = stale.saturating_sub(MAX_STALE);
        self.asked.retain(|request| {
            let drop = over > 0 && request.is_stale();
            over -= usize::from(drop);
            !drop
        });
    }

    /// Returns `true` if an answer is overdue.
    pub(super) fn is_slow(&self, now: Duration, pace: Pace) -> bool {
        let mut due = self.asked.iter().filter_map(|request| request.due(pace));
        let mut blocks = self.blocks.values().map(|block| block.due(self.last_block, pace));
        due.any(|due| due < now) || blocks.any(|due| due < now)
    }

    /// Checks all requests against the clock.
    pub(super) fn check(&mut self, now: Duration, pace: Pace) -> Overdue {
        let mut found = Overdue::default();
        let last = pace.timeout.saturating_mul(SILENT_TIMEOUTS - 1);
        // The clock may have been set back. A block whose stored time is in the future would not
        // become overdue.
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
            // A peer that owes a filter in a dispute is not given more time. Otherwise it could
            // delay the dispute as long as it likes.
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
            // Each request is reported as slow only once.
            self.slow = Some(overdue);
        }
    }
}

/// Returns `true` if the stop of a request has left the chain since the request. The answer then
/// says nothing about the current chain.
pub(super) fn is_stale(stop: BlockAt, chain: &HeaderChain) -> bool {
    chain.hash_at(stop.height) != Some(stop.hash)
}

//! The open requests to one peer, and when their answers are overdue.

use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use core::time::Duration;

use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::pace::{BlockRequests, Overdue, Pace, SILENT_TIMEOUTS};

/// Maximum number of stale requests for filters that are remembered, because their answers may
/// still arrive.
const MAX_STALE: usize = 64;
/// Number of filters of a request that together may take one timeout. An estimate: about 65 kB/s
/// with filters of 20 kB and a timeout of 30 s.
const FILTERS_PER_TIMEOUT: usize = 100;

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

/// The requests that one peer has not answered yet, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    asked: Vec<Request>,
    pub(super) blocks: BlockRequests,
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

    /// Returns `true` if the filter of a height is expected. From a slow peer, only filters for
    /// disputes are expected, because the peer is disconnected if such a filter does not arrive.
    pub(super) fn brings_filter(&self, height: u32, is_slow: bool) -> bool {
        let mut requests = self.asked.iter();
        requests.any(|request| request.brings_filter(height) && (!is_slow || request.is_urgent()))
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
        due.any(|due| due < now) || self.blocks.is_slow(now, pace)
    }

    /// Checks all requests against the clock.
    pub(super) fn check(&mut self, now: Duration, pace: Pace) -> Overdue {
        let mut found = Overdue::default();
        let last = pace.timeout.saturating_mul(SILENT_TIMEOUTS - 1);
        self.blocks.check(now, pace, &mut found);
        // The clock may have been set back, as for blocks.
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

/// Returns `true` if the stop of a request has left the chain since the request. The answer then
/// says nothing about the current chain.
pub(super) fn is_stale(stop: BlockAt, chain: &HeaderChain) -> bool {
    chain.hash_at(stop.height) != Some(stop.hash)
}

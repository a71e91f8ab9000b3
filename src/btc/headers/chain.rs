//! The chain: headers in, events out.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::block::Header;
use bitcoin::{BlockHash, Network, Work};

use super::active::ActiveChain;
use super::rules::{Context, MEDIAN_SPAN, PERIOD, PeriodFirst, median};
use super::side::{SideBranches, SideHeader};
use super::{Anchor, AnchorError, BlockAt, ChainEvent, HeaderError};
use crate::btc::proof_of_work::check_proof_of_work;

/// How many headers a `headers` message has at most: Core's `MAX_HEADERS_RESULTS`.
pub const MAX_HEADERS: usize = 2000;

/// How many headers of side branches are kept unless stated otherwise: up to some 20 MB.
pub const SIDE_HEADERS: usize = 131_072;

/// The chain of headers with most work, and side branches. The [module](super) says what is
/// checked.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::block::Header;
/// use chainsieve::bitcoin::consensus::encode::deserialize_hex;
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::headers::{ChainEvent, HeaderChain, HeaderError};
///
/// let mut chain = HeaderChain::new(Network::Bitcoin);
/// let block_1: Header = deserialize_hex("010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299")?;
/// let events = chain.accept(&[block_1], 1_231_470_000)?;
/// assert_eq!(events, [ChainEvent::Connected { at: chain.tip(), header: block_1 }]);
/// assert_eq!(chain.tip().height, 1);
/// // Again: known already, and no error.
/// assert_eq!(chain.accept(&[block_1], 1_231_470_000)?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HeaderChain {
    network: Network,
    anchor: Anchor,
    active: ActiveChain,
    side: SideBranches,
}

/// New headers, each on top of the one before, that are checked and not yet in the chain.
struct Run {
    /// The place of the first in the message.
    index: usize,
    /// The block that the first builds on.
    parent: BlockHash,
    context: Context,
    headers: Vec<(BlockHash, SideHeader)>,
}

impl HeaderChain {
    /// The chain of `network` with nothing but its genesis block.
    pub fn new(network: Network) -> Self {
        Self::from_anchor(network, Anchor::genesis(network)).expect("genesis is a start")
    }

    /// A chain that starts from a block that the user trusts. It never leaves that block.
    ///
    /// # Errors
    /// An anchor that contradicts itself: see [`AnchorError`].
    pub fn from_anchor(network: Network, anchor: Anchor) -> Result<Self, AnchorError> {
        let start = anchor.check(network)?;
        let active = ActiveChain::new(&anchor, start);
        Ok(Self { network, anchor, active, side: SideBranches::new(SIDE_HEADERS) })
    }

    /// The same chain, keeping at most `limit` headers of side branches. Those over it go.
    #[must_use]
    pub fn with_side_limit(mut self, limit: usize) -> Self {
        self.side.limit = limit;
        self.side.trim();
        self
    }

    /// Takes headers: one `headers` message or many, in the order in which they build on each
    /// other. `now` is the time, in Unix seconds.
    ///
    /// Headers that are known already are passed over. Returned is what became of the active
    /// chain: without a reorganization, one [`ChainEvent::Connected`] per new header on the tip.
    /// Of two branches with the same work the one that had it first is active.
    ///
    /// # Errors
    /// The first header that is refused, by its place. **Those before it are taken, and their
    /// events are in the error**; those behind it are not looked at.
    pub fn accept(
        &mut self,
        headers: &[Header],
        now: u32,
    ) -> Result<Vec<ChainEvent>, HeadersError> {
        let mut events = Vec::new();
        let mut run = None;
        let refused = headers
            .iter()
            .enumerate()
            .try_for_each(|(index, header)| self.take(index, header, now, &mut run, &mut events));
        // The run's headers come before the refused one, and so does their error.
        match self.settle(run, &mut events).and(refused) {
            Ok(()) => Ok(events),
            Err((index, cause)) => Err(HeadersError { index, cause, events }),
        }
    }

    /// Checks a header and adds it to `run`; one that doesn't build on it begins another.
    fn take(
        &mut self,
        index: usize,
        header: &Header,
        now: u32,
        run: &mut Option<Run>,
        events: &mut Vec<ChainEvent>,
    ) -> Result<(), (usize, HeaderError)> {
        let refuse = |cause| (index, cause);
        let hash = check_proof_of_work(header, self.network).map_err(|e| refuse(e.into()))?;
        let parent = header.prev_blockhash;
        if run.as_ref().is_none_or(|run| run.context.at.hash != parent) {
            self.settle(run.take(), events)?;
            if self.contains(&hash) {
                return Ok(());
            }
            let context = self.context(&parent).map_err(refuse)?;
            *run = Some(Run { index, parent, context, headers: Vec::new() });
        }
        let run = run.as_mut().expect("begun if there was none");
        run.context.check(header, self.network, now).map_err(refuse)?;
        run.context.advance(header, hash);
        let Context { at, work, first, .. } = run.context;
        run.headers.push((hash, SideHeader { header: *header, height: at.height, work, first }));
        Ok(())
    }

    /// Puts a run where it belongs: into the active chain if it ends with more work.
    fn settle(
        &mut self,
        run: Option<Run>,
        events: &mut Vec<ChainEvent>,
    ) -> Result<(), (usize, HeaderError)> {
        let Some(run) = run else { return Ok(()) };
        if run.context.work > self.active.work() {
            self.activate(run, events);
            return Ok(());
        }
        for &(hash, side) in &run.headers {
            self.side.insert(hash, side);
        }
        self.side.trim();
        let mut places = (run.index..).zip(&run.headers);
        match places.find(|(_, (hash, _))| self.side.get(hash).is_none()) {
            None => Ok(()),
            Some((index, (_, SideHeader { height, .. }))) => {
                let (height, limit) = (*height, self.side.limit);
                Err((index, HeaderError::SideBranchesFull { height, limit }))
            }
        }
    }

    /// Makes a run the tip of the active chain, with the side branch that it builds on.
    fn activate(&mut self, run: Run, events: &mut Vec<ChainEvent>) {
        let mut branch = self.side.take_branch(run.parent);
        let fork = branch.last().map_or(run.parent, |(_, side)| side.header.prev_blockhash);
        while self.active.tip().hash != fork {
            let first = self.period_first(self.active.tip().height);
            let Some((at, header, work)) = self.active.pop() else { break };
            self.side.insert(at.hash, SideHeader { header, height: at.height, work, first });
            events.push(ChainEvent::Disconnected { at });
        }
        branch.reverse();
        for (hash, SideHeader { header, work, .. }) in branch.into_iter().chain(run.headers) {
            self.active.push(header, hash, work);
            events.push(ChainEvent::Connected { at: self.active.tip(), header });
        }
        self.side.trim();
    }

    /// Of the period of a block of the active chain, which is not below the start.
    fn period_first(&self, height: u32) -> PeriodFirst {
        let first = self.header_at(height - height % PERIOD);
        let first = first.unwrap_or(&self.anchor.period_first);
        (first.time, first.bits)
    }

    /// The context of a known block. Looks at no more than eleven blocks, and at those of the
    /// active chain behind the last kept sum of work.
    fn context(&self, hash: &BlockHash) -> Result<Context, HeaderError> {
        let (height, work, first) = match (self.side.get(hash), self.active.height_of(hash)) {
            (Some(side), _) => (side.height, side.work, side.first),
            (None, Some(height)) => match self.active.start() {
                start if height < start => {
                    return Err(HeaderError::BelowStart { parent: height, start });
                }
                _ => (height, self.active.work_at(height), self.period_first(height)),
            },
            (None, None) => return Err(HeaderError::Orphan { parent: *hash }),
        };
        Ok(Context::new(BlockAt { height, hash: *hash }, work, self.back_from(*hash), first))
    }

    /// The header of a known block and those before it, the highest first.
    fn back_from(&self, hash: BlockHash) -> impl Iterator<Item = &Header> {
        let mut side = Some(hash);
        let mut active = None;
        core::iter::from_fn(move || {
            if let Some(hash) = side {
                if let Some(found) = self.side.get(&hash) {
                    side = Some(found.header.prev_blockhash);
                    return Some(&found.header);
                }
                side = None;
                active = self.active.height_of(&hash).map(|height| self.active.back_from(height));
            }
            active.as_mut()?.next()
        })
    }

    /// Whether the header is in the active chain or a side branch.
    pub fn contains(&self, hash: &BlockHash) -> bool {
        self.active.height_of(hash).is_some() || self.side.get(hash).is_some()
    }

    /// The last block of the active chain.
    pub fn tip(&self) -> BlockAt {
        self.active.tip()
    }

    /// The network.
    pub fn network(&self) -> Network {
        self.network
    }

    /// The block that the chain started from: genesis or the anchor.
    pub fn start(&self) -> BlockAt {
        let height = self.active.start();
        BlockAt { height, hash: self.active.hash_at(height).expect("the start is in the chain") }
    }

    /// What the chain started from.
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The header at `height` of the active chain; also the anchor's below the start.
    pub fn header_at(&self, height: u32) -> Option<&Header> {
        self.active.header_at(height)
    }

    /// The headers of the active chain from `height` on, up to the tip. None where `height` is
    /// above the tip or below the lowest header of the anchor.
    pub fn headers_from(&self, height: u32) -> &[Header] {
        self.active.headers_from(height)
    }

    /// The hash of the header at `height` of the active chain; also the anchor's below the start.
    pub fn hash_at(&self, height: u32) -> Option<BlockHash> {
        self.active.hash_at(height)
    }

    /// The height of a header of the active chain, found by its hash; also the anchor's below
    /// the start. `None` for side branches.
    pub fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.active.height_of(hash)
    }

    /// A header of a side branch.
    #[cfg(feature = "std")]
    pub(in crate::btc) fn side_header(&self, hash: &BlockHash) -> Option<&SideHeader> {
        self.side.get(hash)
    }

    /// How many headers of side branches are kept.
    pub fn side_headers(&self) -> usize {
        self.side.len()
    }

    /// The work of the active chain: Core's `nChainWork`.
    pub fn work(&self) -> Work {
        self.active.work()
    }

    /// The median time of the eleven blocks that end at `height`, or of all from genesis where
    /// there are fewer, in Unix seconds: Core's `GetMedianTimePast`. A block above has to be later.
    ///
    /// `None` above the tip and below the start.
    pub fn median_time_past(&self, height: u32) -> Option<u32> {
        if height < self.active.start() || height > self.tip().height {
            return None;
        }
        let mut times = [0; MEDIAN_SPAN as usize];
        let mut count = 0;
        for (slot, header) in times.iter_mut().zip(self.active.back_from(height)) {
            *slot = header.time;
            count += 1;
        }
        Some(median(&mut times[..count]))
    }

    /// Hashes for a `getheaders` message: the last eleven or so, then ever larger steps back, and
    /// the lowest header. Core's `GetLocator`.
    pub fn locator(&self) -> Vec<BlockHash> {
        let (base, mut height) = (self.active.base(), self.tip().height);
        let mut step = 1;
        let mut hashes = Vec::new();
        while let Some(hash) = self.hash_at(height) {
            hashes.push(hash);
            if height == base {
                break;
            }
            height = height.saturating_sub(step).max(base);
            if hashes.len() > 10 {
                step = step.saturating_mul(2);
            }
        }
        hashes
    }

    /// The answer to a `getheaders` message, as Core gives it: the headers behind the first hash
    /// of `locator` that is in the active chain, or behind the lowest header if none is; up to
    /// the one with hash `stop`, [`MAX_HEADERS`] at most. Without a locator, the header with hash
    /// `stop` alone, if it is in the active chain.
    ///
    /// Core disconnects peers whose locator has more than 101 hashes; that is up to the caller.
    pub fn headers_after(&self, locator: &[BlockHash], stop: BlockHash) -> &[Header] {
        let stop = self.height_of(&stop);
        let first = if locator.is_empty() {
            stop
        } else {
            let common = locator.iter().find_map(|hash| self.height_of(hash));
            Some(common.unwrap_or(self.active.base()) + 1)
        };
        let Some(first) = first else { return &[] };
        let headers = self.headers_from(first);
        let count = match stop {
            Some(stop) if stop >= first => (stop - first) as usize + 1,
            _ => headers.len(),
        };
        &headers[..count.min(MAX_HEADERS).min(headers.len())]
    }
}

impl fmt::Debug for HeaderChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderChain")
            .field("network", &self.network)
            .field("start", &self.start())
            .field("tip", &self.tip())
            .field("work", &self.work())
            .field("side_headers", &self.side_headers())
            .finish_non_exhaustive()
    }
}

/// A header that was refused, and what the headers before it did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header {index} of the message: {cause}")]
pub struct HeadersError {
    /// The place in the message of the first header that was refused.
    pub index: usize,
    /// Why it was refused.
    #[source]
    pub cause: HeaderError,
    /// The events of the headers before it, which are taken.
    pub events: Vec<ChainEvent>,
}

#[cfg(test)]
mod tests;

//! The chain of headers: it takes headers and returns chain events.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use bitcoin::block::Header;
use bitcoin::{BlockHash, Network, Work};

use super::branches::{ActiveChain, SideBranches, SideHeader};
use super::rules::{Context, MEDIAN_SPAN, PeriodFirst, median};
use super::{BlockAt, ChainEvent, HeaderChainError, HeaderError, HeaderRules, TrustedStart};
use crate::btc::proof_of_work::check_proof_of_work;

/// Maximum number of headers in a `headers` message: Core's `MAX_HEADERS_RESULTS`.
pub const MAX_HEADERS: usize = 2000;

/// Default limit on the number of side-branch headers that are kept: 131,072, about 20 MB.
///
/// Beyond the limit, the tips with the least work are dropped until a quarter of the room is free.
pub const SIDE_HEADERS: usize = 131_072;

/// The chain of headers with the most work, and the known side branches.
///
/// The [module documentation](super) lists the rules against which headers are checked.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use chainsieve::bitcoin::block::Header;
/// use chainsieve::bitcoin::consensus::encode::deserialize_hex;
/// use chainsieve::bitcoin::Network;
/// use chainsieve::btc::headers::{ChainEvent, HeaderChain, HeaderError};
///
/// let mut chain = HeaderChain::new(Network::Bitcoin);
/// let block_1: Header = deserialize_hex("010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299")?;
/// let events = chain.accept(&[block_1], Duration::from_secs(1_231_470_000))?;
/// assert_eq!(events, [ChainEvent::Connected { at: chain.tip(), header: block_1 }]);
/// assert_eq!(chain.tip().height, 1);
/// // A header that is already known is not an error.
/// assert_eq!(chain.accept(&[block_1], Duration::from_secs(1_231_470_000))?, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HeaderChain {
    rules: HeaderRules,
    trusted_start: TrustedStart,
    active: ActiveChain,
    side: SideBranches,
}

/// Consecutive new headers that are checked and not yet added to the chain.
struct Run {
    /// Index of the first header in the message.
    index: usize,
    /// Hash of the block on which the first header builds.
    parent: BlockHash,
    context: Context,
    headers: Vec<(BlockHash, SideHeader)>,
}

/// A branch whose headers are checked one after the other, and not added to the chain.
#[cfg(all(feature = "std", feature = "descriptors"))]
#[derive(Debug, Clone)]
pub(in crate::btc) struct Candidate {
    /// Height and total work of the block on which the branch builds.
    fork: (u32, Work),
    context: Context,
    /// The headers of the branch.
    pub(in crate::btc) headers: Vec<Header>,
}

#[cfg(all(feature = "std", feature = "descriptors"))]
impl Candidate {
    /// Returns the hash of the last header, or of the block on which the branch builds.
    pub(in crate::btc) fn tip(&self) -> BlockHash {
        self.context.at.hash
    }
}

impl HeaderChain {
    /// Creates the chain that contains only the genesis block. `rules` is a [`Network`], or the
    /// [`HeaderRules`] of a custom signet.
    pub fn new(rules: impl Into<HeaderRules>) -> Self {
        let rules = rules.into();
        Self::from_trusted_start(rules, TrustedStart::genesis(rules.network()))
            .expect("genesis is a start")
    }

    /// Creates a chain that starts from a block that the caller trusts. Reorganisations never go
    /// below that block.
    ///
    /// # Errors
    /// Returns an error if the trusted start contradicts itself: see [`HeaderChainError`].
    pub fn from_trusted_start(
        rules: impl Into<HeaderRules>,
        trusted_start: TrustedStart,
    ) -> Result<Self, HeaderChainError> {
        let rules = rules.into();
        let start = trusted_start.check(rules)?;
        let active = ActiveChain::new(&trusted_start, start);
        Ok(Self { rules, trusted_start, active, side: SideBranches::new(SIDE_HEADERS) })
    }

    /// Limits the number of side-branch headers to `limit`. If there are more, the tips with the
    /// least work are dropped until a quarter of the room is free.
    #[must_use]
    pub fn with_side_limit(mut self, limit: usize) -> Self {
        self.side.limit = limit;
        self.side.trim();
        self
    }

    /// Adds headers, for example those of one or more `headers` messages, in the order in which
    /// they build on each other. `now` is the [current time](crate#time).
    ///
    /// Headers that are already known are skipped. The result lists the changes of the active
    /// chain: without a reorganisation, one [`ChainEvent::Connected`] for each new header on the
    /// tip. Of two branches with the same work, the branch that reached this work first stays
    /// active.
    ///
    /// # Errors
    /// Returns the first header that is refused, with its index. **The headers before it are added,
    /// and the error contains their events**; the headers after it are not read.
    pub fn accept(
        &mut self,
        headers: &[Header],
        now: Duration,
    ) -> Result<Vec<ChainEvent>, HeadersError> {
        // The timestamps of headers have 32 bits.
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let mut events = Vec::new();
        let mut run = None;
        let refused = headers
            .iter()
            .enumerate()
            .try_for_each(|(index, header)| self.take(index, header, now, &mut run, &mut events));
        // The headers of the last run precede the refused header, so an error of the run is
        // returned first.
        match self.settle(run, &mut events).and(refused) {
            Ok(()) => Ok(events),
            Err((index, cause)) => Err(HeadersError { index, cause, events }),
        }
    }

    /// Checks a header and adds it to `run`. A header that does not build on `run` begins a new
    /// run.
    fn take(
        &mut self,
        index: usize,
        header: &Header,
        now: u32,
        run: &mut Option<Run>,
        events: &mut Vec<ChainEvent>,
    ) -> Result<(), (usize, HeaderError)> {
        let refuse = |cause| (index, cause);
        let hash = check_proof_of_work(header, self.network()).map_err(|e| refuse(e.into()))?;
        let parent = header.prev_blockhash;
        if run.as_ref().is_none_or(|run| run.context.at.hash != parent) {
            self.settle(run.take(), events)?;
            // Only the first header of a run can be known: the children of a new header are new
            // too.
            if self.contains(&hash) {
                return Ok(());
            }
            let context = self.context(&parent).map_err(refuse)?;
            *run = Some(Run { index, parent, context, headers: Vec::new() });
        }
        let run = run.as_mut().expect("begun if there was none");
        run.context.check(header, now).map_err(refuse)?;
        run.context.advance(header, hash);
        let Context { at, work, first, .. } = run.context;
        run.headers.push((hash, SideHeader { header: *header, height: at.height, work, first }));
        Ok(())
    }

    /// Moves a run to the active chain if the run ends with more work than the active chain,
    /// otherwise to the side branches.
    fn settle(
        &mut self,
        run: Option<Run>,
        events: &mut Vec<ChainEvent>,
    ) -> Result<(), (usize, HeaderError)> {
        let Some(run) = run else { return Ok(()) };
        // Strictly more work is required: of two equal branches, the earlier one stays active.
        if run.context.work > self.active.work {
            self.activate(run, events);
            return Ok(());
        }
        for &(hash, side) in &run.headers {
            self.side.insert(hash, side);
        }
        self.side.trim();
        // If `trim` has dropped a header of this run, the caller must learn that the header is
        // missing.
        let mut indexed = (run.index..).zip(&run.headers);
        match indexed.find(|(_, (hash, _))| self.side.get(hash).is_none()) {
            None => Ok(()),
            Some((index, (_, SideHeader { height, .. }))) => {
                let (height, limit) = (*height, self.side.limit);
                Err((index, HeaderError::SideBranchesFull { height, limit }))
            }
        }
    }

    /// Makes a run the end of the active chain, together with the side branch on which the run
    /// builds.
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

    /// Returns the time and bits of the first block of the period that contains `height`. The block
    /// at `height` is in the active chain and not below the start.
    fn period_first(&self, height: u32) -> PeriodFirst {
        let first = self.header_at(height - height % self.rules.period());
        let first = first.unwrap_or(&self.trusted_start.period_first);
        (first.time, first.bits)
    }

    /// Returns the context of a known block. Reads at most eleven headers, plus the headers of the
    /// active chain above the last stored sum of work.
    fn context(&self, hash: &BlockHash) -> Result<Context, HeaderError> {
        let (height, work, first) = match (self.side.get(hash), self.active.height_of(hash)) {
            (Some(side), _) => (side.height, side.work, side.first),
            // Headers of the trusted start below its block are known, but a branch from such a
            // header would not contain the trusted block.
            (None, Some(height)) => match self.active.start {
                start if height < start => {
                    return Err(HeaderError::BelowStart { parent: height, start });
                }
                _ => (height, self.active.work_at(height), self.period_first(height)),
            },
            (None, None) => return Err(HeaderError::Orphan { parent: *hash }),
        };
        let at = BlockAt { height, hash: *hash };
        Ok(Context::new(self.rules, at, work, self.back_from(*hash), first))
    }

    /// Iterates over the header of a known block and those of its ancestors, highest first.
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

    /// Returns `true` if the header is in the active chain or in a side branch.
    pub fn contains(&self, hash: &BlockHash) -> bool {
        self.active.height_of(hash).is_some() || self.side.get(hash).is_some()
    }

    /// Returns the last block of the active chain.
    pub fn tip(&self) -> BlockAt {
        self.active.tip()
    }

    /// Returns the network that the chain belongs to.
    pub fn network(&self) -> Network {
        self.rules.network()
    }

    /// Returns the network and the block time, which determine the rules for the headers.
    pub fn rules(&self) -> HeaderRules {
        self.rules
    }

    /// Returns the block from which the chain started: genesis or the trusted start's block.
    pub fn start(&self) -> BlockAt {
        let height = self.active.start;
        BlockAt { height, hash: self.active.hash_at(height).expect("the start is in the chain") }
    }

    /// Returns the trusted start of the chain.
    pub fn trusted_start(&self) -> &TrustedStart {
        &self.trusted_start
    }

    /// Returns the header at `height` of the active chain, including the trusted start's headers
    /// below the start.
    pub fn header_at(&self, height: u32) -> Option<&Header> {
        self.active.header_at(height)
    }

    /// Returns the headers of the active chain from `height` to the tip. Empty if `height` is above
    /// the tip or below the lowest header of the trusted start.
    pub fn headers_from(&self, height: u32) -> &[Header] {
        self.active.headers_from(height)
    }

    /// Returns the hash of the header at `height` of the active chain, including the trusted
    /// start's headers below the start.
    pub fn hash_at(&self, height: u32) -> Option<BlockHash> {
        self.active.hash_at(height)
    }

    /// Returns the height of an active header with this hash, including the trusted start's headers
    /// below the start. `None` for headers of side branches.
    pub fn height_of(&self, hash: &BlockHash) -> Option<u32> {
        self.active.height_of(hash)
    }

    /// Returns a header of a side branch.
    #[cfg(feature = "std")]
    pub(in crate::btc) fn side_header(&self, hash: &BlockHash) -> Option<&SideHeader> {
        self.side.get(hash)
    }

    /// Returns the number of side-branch headers that are kept.
    pub fn side_headers(&self) -> usize {
        self.side.len()
    }

    /// Returns the total work of the active chain: Core's `nChainWork`.
    pub fn work(&self) -> Work {
        self.active.work
    }

    /// Begins the check of a branch that builds on a known block.
    ///
    /// # Errors
    /// Returns an error if the block is unknown or below the start.
    #[cfg(all(feature = "std", feature = "descriptors"))]
    pub(in crate::btc) fn candidate(&self, parent: BlockHash) -> Result<Candidate, HeaderError> {
        let context = self.context(&parent)?;
        Ok(Candidate { fork: (context.at.height, context.work), context, headers: Vec::new() })
    }

    /// Checks headers that continue a branch, and adds them to it, but not to the chain.
    ///
    /// # Errors
    /// Returns the first header that is refused. The headers before it are added.
    #[cfg(all(feature = "std", feature = "descriptors"))]
    pub(in crate::btc) fn extend(
        &self,
        branch: &mut Candidate,
        headers: &[Header],
        now: Duration,
    ) -> Result<(), HeaderError> {
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        for header in headers {
            let hash = check_proof_of_work(header, self.network())?;
            let parent = header.prev_blockhash;
            if parent != branch.context.at.hash {
                return Err(HeaderError::Orphan { parent });
            }
            branch.context.check(header, now)?;
            branch.context.advance(header, hash);
            branch.headers.push(*header);
        }
        Ok(())
    }

    /// Returns `true` if a branch has less than a quarter of the work that the active chain has from
    /// the fork up to the same height.
    #[cfg(all(feature = "std", feature = "descriptors"))]
    pub(in crate::btc) fn is_weak(&self, branch: &Candidate) -> bool {
        let (fork, fork_work) = branch.fork;
        let height = branch.context.at.height.min(self.tip().height);
        // The fork may be in a side branch that is longer than the active chain.
        if height <= fork || fork < self.active.start {
            return false;
        }
        let own = self.active.work_at(height) - self.active.work_at(fork);
        let twice = |work: Work| work + work;
        twice(twice(branch.context.work - fork_work)) < own
    }

    /// Returns the median time of the eleven blocks that end at `height`, in Unix seconds: Core's
    /// `GetMedianTimePast`. Near genesis, fewer than eleven blocks exist, and the median covers
    /// these. The next block's time must be later than this median.
    ///
    /// Returns `None` above the tip and below the start.
    pub fn median_time_past(&self, height: u32) -> Option<u32> {
        if height < self.active.start || height > self.tip().height {
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

    /// Returns the block hashes for a `getheaders` message: about eleven hashes from the tip down,
    /// then hashes at steps that double, and the hash of the lowest header. Core's `GetLocator`.
    pub fn locator(&self) -> Vec<BlockHash> {
        let (base, mut height) = (self.active.base, self.tip().height);
        let mut step = 1;
        let mut hashes = Vec::new();
        while let Some(hash) = self.hash_at(height) {
            hashes.push(hash);
            if height == base {
                break;
            }
            height = height.saturating_sub(step).max(base);
            // Ten steps of one, then doubling: Core's `LocatorEntries`.
            if hashes.len() > 10 {
                step = step.saturating_mul(2);
            }
        }
        hashes
    }

    /// Returns the answer to a `getheaders` message, as Core sends it: at most [`MAX_HEADERS`]
    /// headers, up to the header with hash `stop`.
    ///
    /// The headers start after the first hash of `locator` that is in the active chain, or after
    /// the lowest header if the active chain contains none of these hashes. If `locator` is empty
    /// and the header with hash `stop` is in the active chain, the answer contains only this
    /// header.
    ///
    /// Core disconnects peers whose locator has more than 101 hashes; this check is left to the
    /// caller.
    pub fn headers_after(&self, locator: &[BlockHash], stop: BlockHash) -> &[Header] {
        let stop = self.height_of(&stop);
        let first = if locator.is_empty() {
            stop
        } else {
            let common = locator.iter().find_map(|hash| self.height_of(hash));
            Some(common.unwrap_or(self.active.base) + 1)
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
            .field("rules", &self.rules)
            .field("start", &self.start())
            .field("tip", &self.tip())
            .field("work", &self.work())
            .field("side_headers", &self.side_headers())
            .finish_non_exhaustive()
    }
}

/// Error for a refused header, with the events of the headers before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header {index} of the message: {cause}")]
#[non_exhaustive]
pub struct HeadersError {
    /// Index in the message of the first header that was refused.
    pub index: usize,
    /// The reason why the header was refused.
    #[source]
    pub cause: HeaderError,
    /// The events of the headers before the refused header, which were added.
    pub events: Vec<ChainEvent>,
}

#[cfg(test)]
mod tests;

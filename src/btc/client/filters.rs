//! The BIP157 follower. The follower compares the filters of several peers, matches them against
//! the watched scripts, and downloads and scans the blocks of matching filters.
//!
//! [`FilterSync`] decides which heights are answered, which grades they have, and which requests
//! are pending. The follower itself stores only two things. First, it stores the blocks that wait
//! until all blocks before them are scanned: a spend is recognised only if its coin is known.
//! Second, it stores the heights whose stored filters must be matched again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use bitcoin::{BlockHash, OutPoint};

use super::filter_cache;
use super::follower::{Action, Event, Turn, blocks_that_left};
use super::{Finding, Graded, HitReason, InclusionEvidence, Reason};
use crate::btc::bip157::{self, BlockToScan, Config, FilterSync, SILENT_TIMEOUTS, VerifiedFilter};
use crate::btc::bip158::{
    Acceptance, BlockFilter, BoundBlock, Matcher, PreparedScripts, filter_hash,
};
use crate::btc::headers::{ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::wallet::{Outcome, WatchedItems};

/// Maximum total size in bytes of the waiting blocks. Above this size, blocks are scanned out of
/// order, and heights at which a spend may have been missed are searched again.
const MAX_HELD: usize = 64 << 20;
/// Shortest interval between two checks whether all peers have answered, if there are more than
/// [`FEW`] heights. The value is an estimate. Each check visits every height, so a check at every
/// event would be too slow.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Up to this many heights, `is_caught_up` checks at every call. With more heights, it checks at
/// most once per [`LOOK_EVERY`].
const FEW: u32 = 2_000;

/// A block that waits to be scanned, and the peer that sent it.
#[derive(Debug)]
struct Held {
    scan: BlockToScan,
    /// Size of the block.
    bytes: usize,
    from: Option<PeerId>,
}

/// The BIP157 follower: matches the filters of several peers against the watched scripts.
#[derive(Debug)]
pub(super) struct FilterFollower {
    sync: FilterSync,
    /// The watched scripts and coins.
    watch: WatchedItems,
    /// The scripts to match filters against, prepared for repeated matching.
    prepared: PreparedScripts,
    matcher: Matcher,
    /// Last height to scan; `None` for no limit.
    last: Option<u32>,
    timeout: Duration,
    /// The connected peers, each with the height of the last block that it has shown.
    peers: BTreeMap<PeerId, Option<u32>>,
    /// Blocks that wait to be scanned, by height.
    held: BTreeMap<u32, Held>,
    /// Total size of the waiting blocks.
    held_bytes: usize,
    /// `true` while every block must wait.
    holds_all: bool,
    /// Files of stored filters to match again, each with the first height to match.
    rereads: BTreeMap<u32, u32>,
    /// The file of stored filters that is being read.
    reading: Option<u32>,
    /// Height of the highest scanned block.
    scanned: Option<u32>,
    /// A range of heights with one grade that is not reported yet.
    run: Option<Graded>,
    /// Time at which [`FilterSync`] last returned an action.
    active: Duration,
    /// Time of the next check whether all peers have answered.
    look: Duration,
    /// State at the last check that found answers of all peers: the progress, the value of `active`
    /// and the last height.
    heard: Option<(u64, Duration, u32)>,
    /// Set while everything is settled: the progress, the last height, and the time since which
    /// both are unchanged.
    settled: Option<(u64, u32, Duration)>,
    /// Number of steps of progress.
    progress: u64,
}

impl FilterFollower {
    /// Creates a follower that continues from the state of `sync`.
    pub(super) fn new(sync: FilterSync, config: &Config) -> Self {
        Self {
            sync,
            watch: WatchedItems::new(),
            prepared: PreparedScripts::new(),
            matcher: Matcher::new(),
            last: config.last,
            timeout: config.limits.timeout,
            peers: BTreeMap::new(),
            held: BTreeMap::new(),
            held_bytes: 0,
            holds_all: false,
            rereads: BTreeMap::new(),
            reading: None,
            scanned: None,
            run: None,
            active: Duration::ZERO,
            look: Duration::ZERO,
            heard: None,
            settled: None,
            progress: 0,
        }
    }

    pub(super) fn sync(&self) -> &FilterSync {
        &self.sync
    }

    /// Watches the new items of the wallets and the given coins.
    fn watch_with(&mut self, coins: Vec<(OutPoint, bitcoin::ScriptBuf)>, turn: &mut Turn<'_>) {
        self.take_new(turn);
        for (outpoint, script) in coins {
            self.watch.add_outpoint(outpoint, Some(script));
        }
    }

    pub(super) fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        match event {
            Event::Start { coins, .. } => {
                self.watch_with(coins, turn);
                // A coin found below a block that an earlier run scanned may be spent in that
                // block, so find the highest scanned block.
                let highest = self.sync.highest_known().unwrap_or(0);
                let is_scanned = |height: &u32| self.sync.grade(*height) == Some(Grade::Scanned);
                self.scanned = (self.sync.first()..=highest).rev().find(is_scanned);
            }
            Event::Connected(id, _) => {
                self.peers.insert(id, None);
                self.feed(bip157::Event::PeerConnected(id), turn);
            }
            Event::Disconnected(id) => {
                self.peers.remove(&id);
                self.feed(bip157::Event::PeerDisconnected(id), turn);
            }
            Event::Shows(id, hash) => self.shows(id, hash, turn),
            Event::Chain(events) => self.chain_changed(events, turn),
            Event::Message(id, message) => {
                let events = bip157::Event::from_message(id, message);
                // Ignore peers without the needed services, and messages that BIP157 does not use.
                if self.peers.contains_key(&id) && !events.is_empty() {
                    self.feed_all(events.into(), turn);
                }
            }
            Event::Watch(from, coins) => self.watch_new(from, coins, turn),
            Event::Rescan(from) => self.rescan(from, turn),
            Event::Contents(file, bytes) => self.contents(file, bytes, turn),
            Event::Flush => self.flush(turn),
            Event::Tick => self.feed(bip157::Event::Tick, turn),
        }
    }

    /// Updates the watched set after the wallets changed. `from` is the height from which to search
    /// again, or `None` if items were only removed.
    fn watch_new(
        &mut self,
        from: Option<u32>,
        coins: Vec<(OutPoint, bitcoin::ScriptBuf)>,
        turn: &mut Turn<'_>,
    ) {
        let dropped = turn.wallets.take_dropped();
        if !dropped.is_empty() {
            let indices: Vec<_> =
                dropped.iter().filter_map(|script| self.watch.index_of(script)).collect();
            self.watch.remove_scripts(indices);
            // Prepared scripts cannot be removed one by one, so prepare the remaining ones again.
            self.prepared = PreparedScripts::new();
            for (_, watched) in self.watch.scripts() {
                self.prepared.push(watched.script().as_bytes());
            }
        }
        self.watch_with(coins, turn);
        if let Some(from) = from {
            self.rescan(from, turn);
        }
    }

    /// Watches the new items of the wallets. Returns `true` if there were any.
    fn take_new(&mut self, turn: &mut Turn<'_>) -> bool {
        let new = turn.wallets.take_new();
        let any = !new.is_empty();
        for new in new {
            // Filters contain scripts only, so a coin without its script cannot be found.
            let Some(script) = new.script else { continue };
            self.prepared.push(script.as_bytes());
            match new.outpoint {
                Some(outpoint) => self.watch.add_outpoint(outpoint, Some(script)),
                None => Some(self.watch.add_script(script, new.label, new.history)),
            };
        }
        any
    }

    /// Searches everything from a height on again for the items watched now. Stored filters are
    /// used where [`FilterSync`] confirms their hashes; other heights are requested from the peers.
    fn rescan(&mut self, from: u32, turn: &mut Turn<'_>) {
        // If the range grows downwards, the sync must know the new first height before the rescan.
        if from < self.sync.first() {
            self.feed(bip157::Event::Extend(from), turn);
        }
        let Some(highest) = self.sync.highest_known().filter(|highest| *highest >= from) else {
            return;
        };
        // Adjacent files without stored filters are requested as one range.
        let mut missing: Option<(u32, u32)> = None;
        for file in filter_cache::file_of(from)..=filter_cache::file_of(highest) {
            let first = (file.saturating_sub(1) * bip157::CHECKPOINT_INTERVAL + 1).max(from);
            // File 0 contains height 0 only.
            let first = if file == 0 { 0 } else { first };
            let last = (file * bip157::CHECKPOINT_INTERVAL).min(highest);
            if turn.keeps(file) {
                let known = self.rereads.entry(file).or_insert(first);
                *known = first.min(*known);
            } else {
                missing = Some(missing.map_or((first, last), |(start, _)| (start, last)));
                continue;
            }
            if let Some((first, last)) = missing.take() {
                self.feed(bip157::Event::Rescan(first..=last), turn);
            }
        }
        if let Some((first, last)) = missing {
            self.feed(bip157::Event::Rescan(first..=last), turn);
        }
        self.read_next(turn);
    }

    /// Starts to read the next file of stored filters, unless one is being read.
    fn read_next(&mut self, turn: &mut Turn<'_>) {
        if self.reading.is_none()
            && let Some((&file, _)) = self.rereads.first_key_value()
        {
            self.reading = Some(file);
            turn.actions.push(Action::Read(file));
        }
    }

    /// Matches the filters of a file that was read. Heights without a valid stored filter are
    /// requested from the peers.
    fn contents(&mut self, file: u32, bytes: Option<&[u8]>, turn: &mut Turn<'_>) {
        // The file was not requested.
        if self.reading != Some(file) {
            return;
        }
        self.reading = None;
        let Some(first) = self.rereads.remove(&file) else { return };
        let (kept, _) = filter_cache::decode(bytes.unwrap_or_default());
        let last = (file * bip157::CHECKPOINT_INTERVAL).min(self.end(turn.chain));
        let mut missing: Vec<core::ops::RangeInclusive<u32>> = Vec::new();
        let mut matched = Vec::new();
        for height in first..=last {
            let at = turn
                .chain
                .hash_at(height)
                .map(|hash| crate::btc::headers::BlockAt { height, hash });
            let Some(at) = at else { break };
            let filter = kept.get(&height).filter(|(block, _)| *block == at.hash);
            // A stored filter is used only while the grade of its height comes from filters. If the
            // block was scanned, the block may have proven the stored filter wrong.
            let grade = self.sync.grade(height).filter(|grade| *grade != Grade::Scanned);
            match (filter, grade) {
                // The stored filter is valid if [`FilterSync`] has accepted its hash.
                (Some((_, content)), Some(grade))
                    if self.sync.filter_hash(height) == Some(filter_hash(content)) =>
                {
                    let filter = BlockFilter { block_hash: at.hash, content: content.clone() };
                    if self.may_concern(&filter) {
                        matched.push(VerifiedFilter { at, filter, grade });
                    }
                }
                _ => match missing.last_mut() {
                    Some(run) if *run.end() + 1 == height => *run = *run.start()..=height,
                    _ => missing.push(height..=height),
                },
            }
        }
        // Scan no block until [`FilterSync`] knows of all matches and missing heights. Otherwise a
        // block could seem to have no unsearched height below it.
        self.holds_all = true;
        for filter in matched {
            self.feed(bip157::Event::Matched(filter.into()), turn);
        }
        for run in missing {
            self.feed(bip157::Event::Rescan(run), turn);
        }
        self.holds_all = false;
        self.progress += 1;
        self.read_next(turn);
        self.scan_ready(turn);
    }

    /// Passes an event to [`FilterSync`] and carries out its actions.
    fn feed(&mut self, event: bip157::Event, turn: &mut Turn<'_>) {
        self.feed_all(VecDeque::from([event]), turn);
    }

    /// Passes several events to [`FilterSync`], then scans the blocks that are ready. The scan
    /// comes last because a `notfound` may cause 50,000 events.
    fn feed_all(&mut self, mut events: VecDeque<bip157::Event>, turn: &mut Turn<'_>) {
        while let Some(event) = events.pop_front() {
            let from = match &event {
                bip157::Event::Block(Some(peer), _) => Some(*peer),
                _ => None,
            };
            for action in self.sync.handle(turn.chain, event, turn.now) {
                self.active = turn.now;
                self.act(action, from, turn, &mut events);
            }
        }
        self.scan_ready(turn);
    }

    /// Carries out one action of [`FilterSync`]. Events for it are added to `events`.
    fn act(
        &mut self,
        action: bip157::Action,
        from: Option<PeerId>,
        turn: &mut Turn<'_>,
        events: &mut VecDeque<bip157::Event>,
    ) {
        match action {
            bip157::Action::Send(peer, message) => {
                turn.actions.push(Action::Send(peer, message.into()));
            }
            bip157::Action::Disconnect(peer, reason) => {
                self.peers.remove(&peer);
                turn.actions.push(Action::Disconnect(peer, Reason::Filters(reason)));
            }
            bip157::Action::Filter(filter) => {
                self.progress += 1;
                let VerifiedFilter { at, filter: content, grade } = &*filter;
                turn.actions.push(Action::Keep(*at, content.content.clone()));
                // A match may concern a wallet: the block is needed.
                if self.may_concern(content) {
                    events.push_back(bip157::Event::Matched(filter));
                } else {
                    self.note(at.height, *grade, turn);
                }
            }
            bip157::Action::Block(block) => {
                self.progress += 1;
                self.note(block.at.height, Grade::Scanned, turn);
                if let Some(filter) = &block.filter {
                    turn.actions.push(Action::Keep(block.at, filter.content.clone()));
                }
                let bytes = block.block.total_size();
                // A block that waits at this height is replaced.
                self.release(block.at.height);
                self.held_bytes += bytes;
                self.held.insert(block.at.height, Held { scan: *block, bytes, from });
            }
            bip157::Action::Reopened(first, last) => {
                // Report the recorded grades before some of them are withdrawn.
                self.flush(turn);
                turn.actions.push(Action::Reopened(first, last));
            }
            bip157::Action::Graded(from, to, grade) => {
                self.flush(turn);
                turn.actions.push(Action::Graded(Graded { from, to, grade }));
            }
            bip157::Action::Report(finding) => Self::report(finding, turn),
            // `chain_changed` has handled the reorganisation already.
            bip157::Action::Rollback(_) => {}
        }
    }

    /// Translates a finding of [`FilterSync`].
    fn report(finding: bip157::Finding, turn: &mut Turn<'_>) {
        let finding = match finding {
            bip157::Finding::Disputed { at, claims } => {
                return turn.actions.push(Action::Disputed(at, claims));
            }
            bip157::Finding::Undecided(at) => Finding::Undecided(at),
            bip157::Finding::Suspicious(at) => Finding::Suspicious(at),
            bip157::Finding::BlockUnavailable(at) => Finding::BlockUnavailable(at),
            bip157::Finding::FirstUnknown(first) => Finding::FirstUnknown(first),
            // Other peers have taken over. If the peer stays slow, it is disconnected.
            bip157::Finding::Slow(..) => return,
        };
        turn.actions.push(Action::Report(finding));
    }

    /// Returns `true` if a filter matches a watched script, or if the filter is malformed: a
    /// malformed filter proves nothing, so its block must be scanned.
    fn may_concern(&mut self, filter: &BlockFilter) -> bool {
        let matches = filter
            .gcs(Acceptance::Strict)
            .and_then(|filter| self.matcher.match_any(&filter, &self.prepared));
        matches.unwrap_or(true)
    }

    /// Scans the waiting blocks that no unsearched height precedes.
    fn scan_ready(&mut self, turn: &mut Turn<'_>) {
        // `contents` has not yet passed all matches and missing heights to [`FilterSync`]. Until
        // then, a block could seem to have no unsearched height below it.
        if self.holds_all {
            return;
        }
        while let Some((&height, _)) = self.held.first_key_value() {
            let settled = self.sync_settled_to();
            let reached = settled.map_or(self.sync.first(), |settled| settled.saturating_add(1));
            let waits = height > reached || self.rereads_below(height);
            // Over the limit, the lowest block is scanned even though heights before it are
            // unsearched. `scan` returns the height from which spends may have been missed.
            if waits && self.held_bytes <= MAX_HELD {
                return;
            }
            let Some(held) = self.release(height) else { return };
            if let Some(from) = self.scan(&held, turn) {
                self.rescan(from, turn);
            }
        }
    }

    /// Returns `true` if stored filters below `height` are still to be matched, so that a lower
    /// block may have to be scanned first.
    fn rereads_below(&self, height: u32) -> bool {
        self.rereads.values().next().is_some_and(|first| *first < height)
    }

    /// Removes the waiting block at a height.
    fn release(&mut self, height: u32) -> Option<Held> {
        let held = self.held.remove(&height)?;
        self.held_bytes -= held.bytes;
        Some(held)
    }

    /// Scans a block. Returns the height from which everything must be searched again, if any:
    /// because the block has led to new watched scripts, or because it has a new coin that an
    /// already scanned block may spend.
    fn scan(&mut self, held: &Held, turn: &mut Turn<'_>) -> Option<u32> {
        let BlockToScan { at, block, why, .. } = &held.scan;
        // [`FilterSync`] has checked the block against the header of the chain already.
        let bound = BoundBlock::bind(block, at.hash, turn.chain.network()).ok()?;
        let mut again: Option<u32> = None;
        loop {
            let known = self.watch.outputs().len();
            let scan = self.watch.scan(at.height, &bound);
            let new_coin = self.watch.outputs().len() > known;
            let why = match why {
                bip157::ScanReason::Matched => HitReason::Matched,
                bip157::ScanReason::Disputed => HitReason::Disputed,
                bip157::ScanReason::SpotAudit => HitReason::SpotAudit,
            };
            let mut hits = Vec::new();
            let mut labels = BTreeSet::new();
            for found in &scan.transactions {
                hits.extend(turn.wallets.hits(found, &self.watch, InclusionEvidence::Block, why));
                for received in &found.relevance.received {
                    let script = self.watch.script(received.script);
                    labels.extend(script.iter().flat_map(|it| turn.wallets.labels(it.script())));
                }
            }
            turn.actions.push(Action::Found(held.from, hits));
            // A false positive of the filter looks the same as a spend of an unknown coin.
            if scan.outcome() == Outcome::NoneSeen && held.scan.why == bip157::ScanReason::Matched {
                turn.actions.push(Action::Report(Finding::NoneSeen(*at)));
            }
            // A higher block was scanned without this coin.
            if new_coin && self.scanned.is_some_and(|scanned| scanned > at.height) {
                again = Some(at.height + 1);
            }
            self.scanned = self.scanned.max(Some(at.height));
            let mut is_ahead = false;
            for label in labels {
                is_ahead |= turn.wallets.advance(label);
            }
            // No further scripts are watched, so the block needs no further scan.
            if !is_ahead || !self.take_new(turn) {
                return again;
            }
            // The new scripts may occur in this block too.
            again = Some(at.height);
        }
    }

    /// Records the grade of an answered height. Consecutive heights with one grade are reported as
    /// a range.
    fn note(&mut self, height: u32, grade: Grade, turn: &mut Turn<'_>) {
        match &mut self.run {
            Some(run) if run.grade == grade && run.to.checked_add(1) == Some(height) => {
                run.to = height;
            }
            _ => {
                self.flush(turn);
                self.run = Some(Graded { from: height, to: height, grade });
            }
        }
    }

    /// Reports the recorded range of grades.
    fn flush(&mut self, turn: &mut Turn<'_>) {
        turn.actions.extend(self.run.take().map(Action::Graded));
    }

    /// Applies a change of the chain: drops blocks and coins above the fork.
    fn chain_changed(&mut self, events: &[ChainEvent], turn: &mut Turn<'_>) {
        let gone = blocks_that_left(events);
        if let Some(lowest) = gone.iter().map(|at| at.height).min() {
            self.flush(turn);
            while let Some((&height, _)) = self.held.range(lowest..).next() {
                self.release(height);
            }
            self.watch.rewind(lowest.saturating_sub(1));
            self.scanned = self.scanned.map(|scanned| scanned.min(lowest.saturating_sub(1)));
        }
        self.feed(bip157::Event::Chain(events.to_vec()), turn);
    }

    /// Records that a peer announced or sent a block of the best chain, so the peer has that block.
    fn shows(&mut self, id: PeerId, hash: BlockHash, turn: &mut Turn<'_>) {
        let Some(shown) = self.peers.get_mut(&id) else { return };
        let Some(height) = turn.chain.height_of(&hash) else { return };
        *shown = Some(height);
        self.feed(bip157::Event::PeerTip(id, hash), turn);
    }

    /// Last height to scan: the limit or the tip, whichever is lower.
    pub(super) fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    fn sync_settled_to(&self) -> Option<u32> {
        self.sync.settled_to()
    }

    /// Height up to which all heights are settled. A height is settled if a valid filter or the
    /// scanned block gives the answer for everything watched. `None` if the first height is not
    /// settled.
    pub(super) fn settled_to(&self) -> Option<u32> {
        let settled = self.sync_settled_to()?;
        // Blocks that wait, and stored filters to be matched again, are not settled.
        let settled = match self.again() {
            Some(open) => settled.min(open.checked_sub(1)?),
            None => settled,
        };
        (settled >= self.sync.first()).then_some(settled)
    }

    /// Lowest height that [`FilterSync`] treats as settled, but that must not be stored as settled:
    /// the height of a waiting block or of a stored filter to be matched again.
    pub(super) fn again(&self) -> Option<u32> {
        let held = self.held.first_key_value().map(|(height, _)| *height);
        held.into_iter().chain(self.rereads.values().next().copied()).min()
    }

    /// Returns `true` if everything is settled, and every peer that has the whole chain has
    /// answered or had enough time to answer.
    pub(super) fn is_caught_up(&mut self, chain: &HeaderChain, now: Duration) -> bool {
        let end = self.end(chain);
        let first = self.sync.first();
        if end >= first && self.settled_to().is_none_or(|settled| settled < end) {
            self.settled = None;
            return false;
        }
        let since = match self.settled {
            Some((progress, to, since)) if (progress, to) == (self.progress, end) => since,
            _ => now,
        };
        self.settled = Some((self.progress, end, since));
        // The sync has returned no action for a whole timeout, so no further answer is expected.
        if now.saturating_sub(self.active) > self.timeout {
            return true;
        }
        // A silent peer is disconnected after this time. Without this limit, a peer that reconnects
        // again and again could keep the client from ever catching up.
        if now.saturating_sub(since) > self.timeout.saturating_mul(SILENT_TIMEOUTS) {
            return true;
        }
        // A check of many heights at every event would be too slow.
        if now < self.look && end.saturating_sub(first) > FEW {
            return false;
        }
        let key = (self.progress, self.active, end);
        if self.heard != Some(key) {
            self.look = now.saturating_add(LOOK_EVERY);
            self.heard = self.all_heard(end).then_some(key);
        }
        self.heard.is_some()
    }

    /// Returns `true` if each height has a claim of every peer that has the block at `end`, or
    /// stronger evidence.
    fn all_heard(&self, end: u32) -> bool {
        let able = self.peers.values().filter(|height| height.is_some_and(|at| at >= end));
        let able = u32::try_from(able.count()).unwrap_or(u32::MAX);
        (self.sync.first()..=end).all(|height| match self.sync.grade(height) {
            Some(Grade::OnePeer) => able <= 1,
            Some(Grade::Peers(peers)) => peers >= able,
            // A checkpoint, an audit or a scan is stronger evidence than any number of peers.
            Some(_) => true,
            None => false,
        })
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress
    }
}

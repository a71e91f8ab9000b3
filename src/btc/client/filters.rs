//! The follower by BIP157: filters are compared between the peers and asked for what is watched,
//! and the blocks of hits are fetched and scanned.
//!
//! [`FilterSync`] is the one keeper of what is answered, graded and awaited. What is kept here is
//! only what comes after it: blocks that are held until those before them have been scanned, since
//! a block shows a spend only of a coin that is known; and heights whose kept filters are to be
//! asked again.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use bitcoin::{BlockHash, OutPoint};

use super::filter_cache;
use super::follower::{Action, Event, Turn, blocks_that_left};
use super::{Evidence, Finding, Graded, Reason, Why};
use crate::btc::bip157::{self, Config, FilterSync, SILENT_TIMEOUTS, ScanBlock, VerifiedFilter};
use crate::btc::bip158::{
    Acceptance, BlockFilter, BoundBlock, Matcher, PreparedScripts, filter_hash,
};
use crate::btc::headers::{ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::wallet::{Outcome, Watch};

/// Bytes of blocks that are held. Over them, blocks are scanned out of order, and what that may
/// miss is asked again.
const MAX_HELD: usize = 64 << 20;
/// How often many heights are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Up to this many heights, `is_caught_up` checks every time; above, at most once per `LOOK_EVERY`.
const FEW: u32 = 2_000;

/// A block to scan, and who sent it.
#[derive(Debug)]
struct Held {
    scan: ScanBlock,
    bytes: usize,
    from: Option<PeerId>,
}

/// The filters of several peers, asked for what is watched.
#[derive(Debug)]
pub(super) struct FilterFollower {
    sync: FilterSync,
    watch: Watch,
    prepared: PreparedScripts,
    matcher: Matcher,
    last: Option<u32>,
    timeout: Duration,
    /// The connected peers, each with the height that it has shown.
    peers: BTreeMap<PeerId, Option<u32>>,
    held: BTreeMap<u32, Held>,
    held_bytes: usize,
    /// Whether every block is held for now.
    holds_all: bool,
    /// Files of kept filters to ask again, each from a height on.
    rereads: BTreeMap<u32, u32>,
    /// The file that is being read.
    reading: Option<u32>,
    /// The highest block that was scanned.
    scanned: Option<u32>,
    /// Consecutive heights that were answered with one grade and are not reported yet.
    run: Option<Graded>,
    /// When the state machine last wanted something.
    active: Duration,
    /// When to look again whether everyone was heard.
    look: Duration,
    /// When everyone had been heard: the progress, when something was last wanted, up to where.
    heard: Option<(u64, Duration, u32)>,
    /// Since when everything up to a height was settled with this progress.
    settled: Option<(u64, u32, Duration)>,
    progress: u64,
}

impl FilterFollower {
    pub(super) fn new(sync: FilterSync, config: &Config) -> Self {
        Self {
            sync,
            watch: Watch::new(),
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

    /// Watches what the wallets have added, and coins that are known.
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
                // A coin that is found below a block scanned in an earlier run may be spent there.
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

    /// Watches what the wallets have added, for which everything from a height on is asked again.
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
            // Prepared scripts cannot be taken out one by one.
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

    /// Watches what the wallets have added. Returns `true` if there was anything.
    fn take_new(&mut self, turn: &mut Turn<'_>) -> bool {
        let new = turn.wallets.take_new();
        let any = !new.is_empty();
        for new in new {
            let Some(script) = new.script else { continue };
            self.prepared.push(script.as_bytes());
            match new.outpoint {
                Some(outpoint) => self.watch.add_outpoint(outpoint, Some(script)),
                None => Some(self.watch.add_script(script, new.label, new.history)),
            };
        }
        any
    }

    /// Has everything from a height on answered again for what is watched now: by kept filters
    /// where they are known to be those that count, else by the peers.
    fn rescan(&mut self, from: u32, turn: &mut Turn<'_>) {
        if from < self.sync.first() {
            self.feed(bip157::Event::Extend(from), turn);
        }
        let Some(highest) = self.sync.highest_known().filter(|highest| *highest >= from) else {
            return;
        };
        let mut missing: Option<(u32, u32)> = None;
        for file in filter_cache::file_of(from)..=filter_cache::file_of(highest) {
            let first = (file.saturating_sub(1) * bip157::CHECKPOINT_INTERVAL + 1).max(from);
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

    fn read_next(&mut self, turn: &mut Turn<'_>) {
        if self.reading.is_none()
            && let Some((&file, _)) = self.rereads.first_key_value()
        {
            self.reading = Some(file);
            turn.actions.push(Action::Read(file));
        }
    }

    /// A file of kept filters was read.
    fn contents(&mut self, file: u32, bytes: Option<&[u8]>, turn: &mut Turn<'_>) {
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
            // A kept filter counts only while its height has a grade from filters: after a scan it
            // may be a refuted one.
            let grade = self.sync.grade(height).filter(|grade| *grade != Grade::Scanned);
            match (filter, grade) {
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
        // Until all of it is known to be open, no block is one before which nothing is awaited.
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

    /// Tells the state machine, and does what it wants.
    fn feed(&mut self, event: bip157::Event, turn: &mut Turn<'_>) {
        self.feed_all(VecDeque::from([event]), turn);
    }

    /// The same with several events, after which blocks are scanned once: a `notfound` may have
    /// 50,000 items.
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
                self.release(block.at.height);
                self.held_bytes += bytes;
                self.held.insert(block.at.height, Held { scan: *block, bytes, from });
            }
            bip157::Action::Reopened(first, last) => {
                self.flush(turn);
                turn.actions.push(Action::Reopened(first, last));
            }
            bip157::Action::Graded(from, to, grade) => {
                self.flush(turn);
                turn.actions.push(Action::Graded(Graded { from, to, grade }));
            }
            bip157::Action::Report(finding) => Self::report(finding, turn),
            // Already handled in `chain_changed`.
            bip157::Action::Rollback(_) => {}
        }
    }

    fn report(finding: bip157::Finding, turn: &mut Turn<'_>) {
        let finding = match finding {
            bip157::Finding::Disputed { at, claims } => {
                return turn.actions.push(Action::Disputed(at, claims));
            }
            bip157::Finding::Undecided(at) => Finding::Undecided(at),
            bip157::Finding::Suspicious(at) => Finding::Suspicious(at),
            bip157::Finding::BlockUnavailable(at) => Finding::BlockUnavailable(at),
            bip157::Finding::FirstUnknown(first) => Finding::FirstUnknown(first),
            // Others have taken over; if it stays slow, it is disconnected.
            bip157::Finding::Slow(..) => return,
        };
        turn.actions.push(Action::Report(finding));
    }

    /// Returns `true` if a filter may hold one of the scripts watched, or cannot be read.
    fn may_concern(&mut self, filter: &BlockFilter) -> bool {
        let matches = filter
            .gcs(Acceptance::Strict)
            .and_then(|filter| self.matcher.match_any(&filter, &self.prepared));
        matches.unwrap_or(true)
    }

    /// Scans the blocks before which nothing is awaited.
    fn scan_ready(&mut self, turn: &mut Turn<'_>) {
        if self.holds_all {
            return;
        }
        while let Some((&height, _)) = self.held.first_key_value() {
            let settled = self.sync_settled_to();
            let reached = settled.map_or(self.sync.first(), |settled| settled.saturating_add(1));
            let waits = height > reached || self.rereads_below(height);
            if waits && self.held_bytes <= MAX_HELD {
                return;
            }
            let Some(held) = self.release(height) else { return };
            if let Some(from) = self.scan(&held, turn) {
                self.rescan(from, turn);
            }
        }
    }

    /// Whether the block of a lower height may be wanted once a kept filter was asked.
    fn rereads_below(&self, height: u32) -> bool {
        self.rereads.values().next().is_some_and(|first| *first < height)
    }

    fn release(&mut self, height: u32) -> Option<Held> {
        let held = self.held.remove(&height)?;
        self.held_bytes -= held.bytes;
        Some(held)
    }

    /// Scans a block. Returns the height from which everything is to be answered again: for scripts
    /// that the block has led to, or since a coin was found after a block that may spend it.
    fn scan(&mut self, held: &Held, turn: &mut Turn<'_>) -> Option<u32> {
        let ScanBlock { at, block, why, .. } = &held.scan;
        // The state machine has bound it before: the header is the chain's.
        let bound = BoundBlock::bind(block, at.hash, turn.chain.network()).ok()?;
        let mut again: Option<u32> = None;
        loop {
            let known = self.watch.outputs().len();
            let scan = self.watch.scan(at.height, &bound);
            let new_coin = self.watch.outputs().len() > known;
            let why = match why {
                bip157::Why::Matched => Why::Matched,
                bip157::Why::Disputed => Why::Disputed,
                bip157::Why::SpotAudit => Why::SpotAudit,
            };
            let mut hits = Vec::new();
            let mut labels = BTreeSet::new();
            for found in &scan.transactions {
                hits.extend(turn.wallets.hits(found, &self.watch, Evidence::Block, why));
                for received in &found.relevance.received {
                    let script = self.watch.script(received.script);
                    labels.extend(script.iter().flat_map(|it| turn.wallets.labels(it.script())));
                }
            }
            turn.actions.push(Action::Found(held.from, hits));
            if scan.outcome() == Outcome::NoneSeen && held.scan.why == bip157::Why::Matched {
                turn.actions.push(Action::Report(Finding::NoneSeen(*at)));
            }
            if new_coin && self.scanned.is_some_and(|scanned| scanned > at.height) {
                again = Some(at.height + 1);
            }
            self.scanned = self.scanned.max(Some(at.height));
            let mut is_ahead = false;
            for label in labels {
                is_ahead |= turn.wallets.advance(label);
            }
            if !is_ahead || !self.take_new(turn) {
                return again;
            }
            // The block itself may hold the new scripts too.
            again = Some(at.height);
        }
    }

    /// A height is answered.
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

    fn flush(&mut self, turn: &mut Turn<'_>) {
        turn.actions.extend(self.run.take().map(Action::Graded));
    }

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

    fn shows(&mut self, id: PeerId, hash: BlockHash, turn: &mut Turn<'_>) {
        let Some(shown) = self.peers.get_mut(&id) else { return };
        let Some(height) = turn.chain.height_of(&hash) else { return };
        *shown = Some(height);
        self.feed(bip157::Event::PeerTip(id, hash), turn);
    }

    /// The last height wanted, as far as the chain goes.
    pub(super) fn end(&self, chain: &HeaderChain) -> u32 {
        self.last.unwrap_or(u32::MAX).min(chain.tip().height)
    }

    fn sync_settled_to(&self) -> Option<u32> {
        self.sync.settled_to()
    }

    /// The height up to which everything is settled: answered by filters that count or by scanned
    /// blocks, for everything watched.
    pub(super) fn settled_to(&self) -> Option<u32> {
        let settled = self.sync_settled_to()?;
        // What comes after the filters: blocks held, and kept filters to ask again.
        let settled = match self.again() {
            Some(open) => settled.min(open.checked_sub(1)?),
            None => settled,
        };
        (settled >= self.sync.first()).then_some(settled)
    }

    /// The lowest height that an encoded state must not count as answered.
    pub(super) fn again(&self) -> Option<u32> {
        let held = self.held.first_key_value().map(|(height, _)| *height);
        held.into_iter().chain(self.rereads.values().next().copied()).min()
    }

    /// Everything that the connected peers have is seen.
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
        if now.saturating_sub(self.active) > self.timeout {
            return true;
        }
        // A peer that sends nothing is disconnected after so long, and would be waited for again
        // each time that it comes back.
        if now.saturating_sub(since) > self.timeout.saturating_mul(SILENT_TIMEOUTS) {
            return true;
        }
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

    /// Whether every peer that could was heard about every height.
    fn all_heard(&self, end: u32) -> bool {
        let able = self.peers.values().filter(|height| height.is_some_and(|at| at >= end));
        let able = u32::try_from(able.count()).unwrap_or(u32::MAX);
        (self.sync.first()..=end).all(|height| match self.sync.grade(height) {
            Some(Grade::OnePeer) => able <= 1,
            Some(Grade::Peers(peers)) => peers >= able,
            Some(_) => true,
            None => false,
        })
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress
    }
}

//! The BIP157 follower. The follower compares the filters of several peers, matches them against
//! the watched scripts, and downloads and scans the blocks of matching filters.
//!
//! [`FilterSync`] decides which heights are answered, which grades they have, and which requests
//! are pending. The follower itself stores two things. It stores the blocks that wait until all
//! blocks before them are scanned, since a spend is recognised only if its coin is known. And it
//! stores the scripts for which each height was searched ([`Searched`]).
//!
//! Scripts are added while the scan runs: new addresses, and further indices of descriptors. Heights
//! that were answered without them are searched again for these scripts alone, in passes: a pass
//! begins once the scan has reached the last height, so that one pass serves all scripts that were
//! added meanwhile. A pass uses filters in memory first, then stored filters, then filters of peers.

use core::time::Duration;
use std::boxed::Box;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, OutPoint};

use super::filter_cache::{self, RecentFilters};
use super::follower::Searched;
use super::follower::{Action, Event, Turn, blocks_that_left, group};
use super::{Finding, Graded, HitReason, InclusionEvidence, Reason};
use crate::btc::bip157::{self, Config, FilterSync, ScanReason, VerifiedFilter};
use crate::btc::bip158::{
    Acceptance, BlockFilter, BoundBlock, Matcher, PreparedScripts, filter_hash,
};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::btc::wallet::{Outcome, WatchedItems};

/// Maximum total size in bytes of the waiting blocks. Above this size, blocks are scanned out of
/// order, and scanned blocks in which a spend may have been missed are searched again.
const MAX_WAITING: usize = 64 << 20;

/// A block that waits to be scanned, and the peer that sent it.
#[derive(Debug)]
struct WaitingBlock {
    at: BlockAt,
    block: Box<Block>,
    why: ScanReason,
    /// Size of the block.
    bytes: usize,
    from: Option<PeerId>,
}

/// The BIP157 follower: matches the filters of several peers against the watched scripts.
#[derive(Debug)]
pub(super) struct FilterFollower {
    pub(super) sync: FilterSync,
    /// The watched scripts and coins.
    watch: WatchedItems,
    /// The scripts to match filters against, prepared for repeated matching: one for each entry of
    /// `searched`.
    prepared: PreparedScripts,
    /// The scripts for which each height was searched.
    pub(super) searched: Searched,
    recent: RecentFilters,
    /// For each height whose filter was requested from the peers to match further scripts, the first
    /// bytes of the hash of the filter that was matched before. If another filter arrives, it is matched
    /// with all scripts.
    asked: BTreeMap<u32, [u8; 8]>,
    matcher: Matcher,
    /// Last height to scan; `None` for no limit.
    last: Option<u32>,
    timeout: Duration,
    /// The connected peers, each with the height of the last block that it has shown.
    peers: BTreeMap<PeerId, Option<u32>>,
    /// Blocks that wait to be scanned, by height.
    waiting: BTreeMap<u32, WaitingBlock>,
    /// Total size of the waiting blocks.
    waiting_bytes: usize,
    /// `true` while every block must wait.
    all_wait: bool,
    /// The lowest height that was answered or reopened in this run.
    pub(super) answered_from: u32,
    /// Files of stored filters to match again.
    rereads: BTreeSet<u32>,
    /// The file of stored filters that is being read.
    reading: Option<u32>,
    /// The last height of the present pass over heights that must be searched again.
    pass_to: Option<u32>,
    /// A range of heights with one grade that is not reported yet.
    run: Option<Graded>,
    /// Time at which [`FilterSync`] last returned an action.
    active: Duration,
    /// Number of steps of progress, and the time of the last step.
    pub(super) progress: u64,
    progressed: Duration,
}

impl FilterFollower {
    /// Creates a follower that continues from the state of `sync`.
    pub(super) fn new(sync: FilterSync, config: &Config) -> Self {
        Self {
            sync,
            watch: WatchedItems::new(),
            prepared: PreparedScripts::new(),
            searched: Searched::default(),
            recent: RecentFilters::default(),
            asked: BTreeMap::new(),
            matcher: Matcher::new(),
            last: config.last,
            timeout: config.limits.timeout,
            peers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            all_wait: false,
            answered_from: u32::MAX,
            rereads: BTreeSet::new(),
            reading: None,
            pass_to: None,
            run: None,
            active: Duration::ZERO,
            progress: 0,
            progressed: Duration::ZERO,
        }
    }

    pub(super) fn handle(&mut self, event: Event<'_>, turn: &mut Turn<'_>) {
        let before = self.progress;
        match event {
            Event::Start { first, coins, late, .. } => self.start(first, coins, late, turn),
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
            Event::Watch(coins) => self.watch_new(coins, turn),
            Event::Rescan(from) => self.rescan(from, turn),
            Event::Contents(file, bytes) => self.contents(file, bytes, turn),
            Event::Flush => self.flush(turn),
            Event::Tick => self.feed(bip157::Event::Tick, turn),
        }
        if self.progress != before {
            self.progressed = turn.now;
        }
        self.begin_pass(turn);
    }

    /// Starts with the heights that an earlier run has answered, and with the items and coins of
    /// the wallets.
    fn start(
        &mut self,
        first: u32,
        coins: Vec<(OutPoint, bitcoin::ScriptBuf)>,
        late: Vec<(bitcoin::ScriptBuf, u32)>,
        turn: &mut Turn<'_>,
    ) {
        (self.progressed, self.active) = (turn.now, turn.now);
        let highest = self.sync.highest_known().unwrap_or(0);
        let mut answered: Option<core::ops::RangeInclusive<u32>> = None;
        let mut withdrawn = Vec::new();
        for height in (self.sync.first()..=highest).filter(|it| self.sync.was_answered(*it)) {
            if self.sync.was_scanned(height) {
                self.searched.was_scanned(height);
            }
            if self.sync.grade(height).is_none() {
                withdrawn.push(height);
            }
            answered = match answered {
                Some(run) if *run.end() + 1 == height => Some(*run.start()..=height),
                run => {
                    if let Some(run) = run {
                        self.searched.answer(run, 0);
                    }
                    Some(height..=height)
                }
            };
        }
        if let Some(run) = answered {
            self.searched.answer(run, 0);
        }
        for height in withdrawn {
            self.searched.withdraw(&(height..=height));
        }
        self.take_new(turn);
        self.know(coins);
        // Before these coins were known, the earlier run may have scanned blocks that spend them.
        for (script, from) in late {
            self.look_for_spends(&script, from);
        }
        // The restored sync may begin above the first height that is wanted now.
        if first < self.sync.first() {
            self.feed(bip157::Event::Extend(first), turn);
        }
    }

    /// Watches the given coins.
    fn know(&mut self, coins: Vec<(OutPoint, bitcoin::ScriptBuf)>) {
        for (outpoint, script) in coins {
            self.watch.add_outpoint(outpoint, Some(script));
        }
    }

    /// Updates the watched set after the wallets changed.
    fn watch_new(&mut self, coins: Vec<(OutPoint, bitcoin::ScriptBuf)>, turn: &mut Turn<'_>) {
        let dropped = core::mem::take(&mut turn.wallets.dropped);
        if !dropped.is_empty() {
            let indices: Vec<_> =
                dropped.iter().filter_map(|script| self.watch.index_of(script)).collect();
            self.watch.remove_scripts(indices);
            self.searched.retain(|script| !dropped.contains(script));
            // Prepared scripts cannot be removed one by one, so prepare the remaining ones again.
            self.prepared = self.searched.scripts().map(bitcoin::Script::as_bytes).collect();
        }
        let lowest = self.take_new(turn);
        self.know(coins);
        if let Some(lowest) = lowest.filter(|lowest| *lowest < self.sync.first()) {
            self.feed(bip157::Event::Extend(lowest), turn);
        }
    }

    /// Watches the new items of the wallets. Returns the lowest height from which any of them is
    /// wanted; `None` if there are none.
    fn take_new(&mut self, turn: &mut Turn<'_>) -> Option<u32> {
        let mut lowest: Option<u32> = None;
        for group in group(core::mem::take(&mut turn.wallets.new), self.answered_from, turn.chain) {
            let mut scripts = Vec::new();
            for (new, from) in group.new {
                // Filters contain scripts only, so a coin without its script cannot be found.
                let Some(script) = new.script else { continue };
                self.prepared.push(script.as_bytes());
                match new.outpoint {
                    Some(outpoint) => self.watch.add_outpoint(outpoint, Some(script.clone())),
                    None => Some(self.watch.add_script(script.clone(), new.label, new.history)),
                };
                scripts.push((script, from));
                lowest = Some(from.min(lowest.unwrap_or(from)));
            }
            self.searched.add_known(scripts, group.below);
        }
        lowest
    }

    /// Searches the scanned blocks from a height on for a script whose coin was just found: these
    /// blocks may spend the coin.
    fn look_for_spends(&mut self, script: &bitcoin::Script, from: u32) {
        if self.searched.add_coin(script, from) {
            self.prepared.push(script.as_bytes());
        }
    }

    /// Searches everything from a height on again for the items watched now.
    fn rescan(&mut self, from: u32, turn: &mut Turn<'_>) {
        self.answered_from = self.answered_from.min(from);
        self.searched.reopen(&(from..=u32::MAX));
        if from < self.sync.first() {
            self.feed(bip157::Event::Extend(from), turn);
        }
    }

    /// Begins a pass over the heights that must be searched again, once the scan has reached the
    /// last height.
    fn begin_pass(&mut self, turn: &mut Turn<'_>) {
        let end = self.end(turn.chain);
        if self.reading.is_some() || !self.rereads.is_empty() || self.all_wait {
            return;
        }
        let first = self.sync.first();
        let Some(open) = self.searched.open(first..=end) else {
            if self.waiting.is_empty() {
                self.pass_to = None;
            }
            return;
        };
        let is_settled =
            self.sync.settled_to().is_some_and(|settled| settled >= end) && self.waiting.is_empty();
        // A block that nobody delivers must not keep the client from searching for new scripts.
        let is_stuck = turn.now.saturating_sub(self.progressed) > self.timeout;
        if !is_settled && !is_stuck {
            return;
        }
        self.progressed = turn.now;
        self.searched.tidy();
        let mut files = Vec::new();
        let mut next = Some(open);
        while let Some(height) = next {
            let file = filter_cache::file_of(height);
            files.push(file);
            let last = file.saturating_mul(bip157::CHECKPOINT_INTERVAL).min(end);
            self.pass_to = Some(last);
            next = self.searched.open(last + 1..=end);
        }
        // Scan no block until all matches and all missing heights are known. Otherwise a block could
        // seem to have no unsearched height below it.
        self.all_wait = true;
        for file in files {
            if turn.cache.contains(file) && !self.has_in_memory(file, turn) {
                self.rereads.insert(file);
            } else {
                self.search(file, &BTreeMap::new(), turn);
            }
        }
        self.all_wait = false;
        self.read_next(turn);
        self.scan_ready(turn);
    }

    /// Returns the heights of a file of stored filters that are wanted.
    fn heights_of(&self, file: u32, chain: &HeaderChain) -> core::ops::RangeInclusive<u32> {
        // File 0 contains height 0 only.
        let before = file.saturating_sub(1).saturating_mul(bip157::CHECKPOINT_INTERVAL);
        let first = if file == 0 { 0 } else { before + 1 };
        let last = file.saturating_mul(bip157::CHECKPOINT_INTERVAL);
        first.max(self.sync.first())..=last.min(self.end(chain))
    }

    /// Returns `true` if the filters of all heights of a file that must be searched again are in
    /// memory.
    fn has_in_memory(&self, file: u32, turn: &Turn<'_>) -> bool {
        let heights = self.heights_of(file, turn.chain);
        let mut next = self.searched.open(heights.clone());
        while let Some(height) = next {
            let at = turn.chain.hash_at(height).map(|hash| BlockAt { height, hash });
            if at.is_none_or(|at| self.recent.get(at).is_none()) {
                return false;
            }
            next = self.searched.open(height + 1..=*heights.end());
        }
        true
    }

    /// Starts to read the next file of stored filters, unless one is being read.
    fn read_next(&mut self, turn: &mut Turn<'_>) {
        if self.reading.is_none()
            && let Some(&file) = self.rereads.first()
        {
            self.reading = Some(file);
            turn.actions.push(Action::Read(file));
        }
    }

    /// Matches the filters of a file that was read.
    fn contents(&mut self, file: u32, bytes: Option<&[u8]>, turn: &mut Turn<'_>) {
        // The file was not requested.
        if self.reading != Some(file) {
            return;
        }
        self.reading = None;
        self.rereads.remove(&file);
        let (kept, _) = filter_cache::decode(bytes.unwrap_or_default());
        self.all_wait = true;
        self.search(file, &kept, turn);
        self.all_wait = false;
        self.progress += 1;
        self.read_next(turn);
        self.scan_ready(turn);
    }

    /// Searches those heights of a file that must be searched again, with filters in memory and
    /// filters that were stored. Heights without a valid filter are requested from the peers.
    fn search(
        &mut self,
        file: u32,
        kept: &BTreeMap<u32, (BlockHash, Vec<u8>)>,
        turn: &mut Turn<'_>,
    ) {
        let heights = self.heights_of(file, turn.chain);
        let mut missing: Vec<core::ops::RangeInclusive<u32>> = Vec::new();
        let mut events = VecDeque::new();
        let mut next = self.searched.open(heights.clone());
        while let Some(height) = next {
            let Some(hash) = turn.chain.hash_at(height) else { break };
            let at = BlockAt { height, hash };
            match (self.searched.first_wanted(height), self.stored(at, kept)) {
                (Some(first), Some((filter, grade, is_scanned))) => {
                    self.searched.answer(height..=height, self.prepared.len());
                    if self.may_concern(&filter, first) {
                        let matched = VerifiedFilter { at, filter, grade };
                        events.push_back(bip157::Event::Matched(matched.into()));
                    } else if is_scanned {
                        let hash = filter_hash(&filter.content);
                        events.push_back(bip157::Event::Unmatched(at, hash));
                    }
                }
                _ => match missing.last_mut() {
                    Some(run) if *run.end() + 1 == height => *run = *run.start()..=height,
                    _ => missing.push(height..=height),
                },
            }
            next = self.searched.open(height + 1..=*heights.end());
        }
        for height in missing.iter().cloned().flatten() {
            // If the filter was requested before and has not arrived, another hash may be accepted since.
            if let Some(hash) = self.sync.filter_hash(height) {
                self.asked.entry(height).or_insert(short(hash));
            }
        }
        events.extend(missing.into_iter().map(bip157::Event::Rescan));
        for event in events {
            self.feed(event, turn);
        }
    }

    /// Returns the filter of a block that is in memory or was stored, if the filter is evidence:
    /// [`FilterSync`] has accepted its hash. Also returns the grade of its "no", and `true` if the
    /// height was answered by its block.
    fn stored(
        &self,
        at: BlockAt,
        kept: &BTreeMap<u32, (BlockHash, Vec<u8>)>,
    ) -> Option<(BlockFilter, Grade, bool)> {
        let of_file = kept.get(&at.height).filter(|(block, _)| *block == at.hash);
        let content = self.recent.get(at).or(of_file.map(|(_, content)| &**content))?;
        let answer = self.sync.grade(at.height)?;
        let grade = self.sync.filter_grade(at.height)?;
        if self.sync.filter_hash(at.height) != Some(filter_hash(content)) {
            return None;
        }
        let filter = BlockFilter { block_hash: at.hash, content: content.to_vec() };
        Some((filter, grade, answer == Grade::Scanned))
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
                turn.actions.push(Action::Send(peer, message));
            }
            bip157::Action::Disconnect(peer, reason) => {
                self.peers.remove(&peer);
                turn.actions.push(Action::Disconnect(peer, Reason::Filters(reason)));
            }
            bip157::Action::Filter(filter) => {
                self.progress += 1;
                let VerifiedFilter { at, filter: content, grade } = &*filter;
                self.keep(*at, &content.content, turn);
                self.answered_from = self.answered_from.min(at.height);
                let is_other = self
                    .asked
                    .remove(&at.height)
                    .is_some_and(|asked| asked != short(filter_hash(&content.content)));
                let first = self.searched.first_wanted(at.height);
                let first = if is_other { Some(0) } else { first };
                self.searched.answer(at.height..=at.height, self.prepared.len());
                // A match may concern a wallet: the block is needed.
                if first.is_some_and(|first| self.may_concern(content, first)) {
                    events.push_back(bip157::Event::Matched(filter));
                } else {
                    self.note(at.height, *grade, turn);
                }
            }
            bip157::Action::Block { at, block, why, filter } => {
                self.progress += 1;
                self.note(at.height, Grade::Scanned, turn);
                self.answered_from = self.answered_from.min(at.height);
                if let Some(filter) = &filter {
                    self.keep(at, &filter.content, turn);
                }
                let bytes = block.total_size();
                // A block that waits at this height is replaced.
                self.release(at.height);
                self.waiting_bytes += bytes;
                self.waiting.insert(at.height, WaitingBlock { at, block, why, bytes, from });
            }
            bip157::Action::Reopened(first, last) => {
                // Report the recorded grades before some of them are withdrawn.
                self.flush(turn);
                self.searched.withdraw(&(first..=last));
                turn.actions.push(Action::Reopened(first, last));
            }
            bip157::Action::Graded(from, to, grade) => {
                self.flush(turn);
                self.searched.confirm(&(from..=to));
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

    /// Stores the filter of a block, in memory and in a file.
    fn keep(&mut self, at: BlockAt, content: &[u8], turn: &mut Turn<'_>) {
        self.recent.insert(at, content.to_vec());
        turn.actions.push(Action::Keep(at, content.to_vec()));
    }

    /// Returns `true` if a filter matches a watched script whose entry has the number `first` or a
    /// higher number, or if the filter is malformed: a malformed filter proves nothing, so its
    /// block must be scanned.
    fn may_concern(&mut self, filter: &BlockFilter, first: usize) -> bool {
        let matches = filter
            .gcs(Acceptance::Strict)
            .and_then(|filter| self.matcher.match_any_from(&filter, &self.prepared, first));
        matches.unwrap_or(true)
    }

    /// Scans the waiting blocks that no unsearched height precedes.
    fn scan_ready(&mut self, turn: &mut Turn<'_>) {
        // Not all matches and missing heights are passed to [`FilterSync`] yet. Until then, a block
        // could seem to have no unsearched height below it.
        if self.all_wait {
            return;
        }
        while let Some((&height, _)) = self.waiting.first_key_value() {
            let settled = self.sync.settled_to();
            let reached = settled.map_or(self.sync.first(), |settled| settled.saturating_add(1));
            let waits = height > reached || self.rereads_below(height);
            // Over the limit, the lowest block is scanned even though heights before it are
            // unsearched.
            if waits && self.waiting_bytes <= MAX_WAITING {
                break;
            }
            let Some(waiting) = self.release(height) else { return };
            self.scan(&waiting, turn);
        }
        // New blocks above a pass do not wait for it: the pass may take long. If it finds a coin
        // that such a block spends, the block is searched again.
        while let Some(pass_to) = self.pass_to
            && let Some((&height, _)) = self.waiting.range(pass_to.saturating_add(1)..).next()
        {
            let Some(waiting) = self.release(height) else { return };
            self.scan(&waiting, turn);
        }
    }

    /// Returns `true` if stored filters below `height` are still to be matched, so that a lower
    /// block may have to be scanned first.
    fn rereads_below(&self, height: u32) -> bool {
        self.rereads.first().is_some_and(|file| *file < filter_cache::file_of(height))
    }

    /// Removes the waiting block at a height.
    fn release(&mut self, height: u32) -> Option<WaitingBlock> {
        let waiting = self.waiting.remove(&height)?;
        self.waiting_bytes -= waiting.bytes;
        Some(waiting)
    }

    /// Scans a block for everything watched.
    fn scan(&mut self, waiting: &WaitingBlock, turn: &mut Turn<'_>) {
        let WaitingBlock { at, block, why, from, .. } = waiting;
        // [`FilterSync`] has checked the block against the header of the chain already.
        let Ok(bound) = BoundBlock::bind(block, at.hash, turn.chain.network()) else { return };
        loop {
            let known = self.watch.outputs().len();
            let scan = self.watch.scan(at.height, &bound);
            let has_new_coin = self.watch.outputs().len() > known;
            let why = match why {
                ScanReason::Matched => HitReason::Matched,
                ScanReason::Disputed => HitReason::Disputed,
                ScanReason::SpotAudit => HitReason::SpotAudit,
            };
            let mut hits = Vec::new();
            let mut labels = BTreeSet::new();
            let mut paid = BTreeSet::new();
            for found in &scan.transactions {
                hits.extend(turn.wallets.hits(found, &self.watch, InclusionEvidence::Block, why));
                for received in &found.relevance.received {
                    let Some(watched) = self.watch.script(received.script) else { continue };
                    labels.extend(turn.wallets.labels(&watched.script));
                    paid.insert(watched.script.clone());
                }
            }
            turn.actions.push(Action::Found(*from, hits));
            // A false positive of the filter looks the same as a spend of an unknown coin.
            if scan.outcome() == Outcome::NoneSeen && why == HitReason::Matched {
                turn.actions.push(Action::Report(Finding::NoneSeen(*at)));
            }
            // Higher blocks may have been scanned without this coin.
            if has_new_coin {
                for script in paid {
                    self.look_for_spends(&script, at.height.saturating_add(1));
                }
            }
            let mut is_ahead = false;
            for label in labels {
                is_ahead |= turn.wallets.advance(label);
            }
            // No further scripts are watched, so the block needs no further scan.
            if !is_ahead || self.take_new(turn).is_none() {
                break;
            }
            // The new scripts may occur in this block too.
        }
        self.searched.scan(at.height);
        self.asked.remove(&at.height);
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
            while let Some((&height, _)) = self.waiting.range(lowest..).next() {
                self.release(height);
            }
            self.watch.rewind(lowest.saturating_sub(1));
            self.searched.truncate(lowest);
            drop(self.asked.split_off(&lowest));
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

    /// Height up to which all heights are settled. A height is settled if a valid filter or the
    /// scanned block gives the answer for everything watched. `None` if the first height is not
    /// settled.
    pub(super) fn settled_to(&self) -> Option<u32> {
        let settled = self.sync.settled_to()?;
        let first = self.sync.first();
        // Blocks that wait, and heights to be searched again, are not settled.
        let waiting = self.waiting.first_key_value().map(|(height, _)| *height);
        let open = self.searched.open(first..=settled);
        let settled = match waiting.into_iter().chain(open).min() {
            Some(open) => settled.min(open.checked_sub(1)?),
            None => settled,
        };
        (settled >= first).then_some(settled)
    }

    /// Lowest height that [`FilterSync`] treats as settled, but that the next run must search again
    /// for everything: the height of a waiting block, or of a scanned block that may spend a coin.
    pub(super) fn again(&self) -> Option<u32> {
        let waiting = self.waiting.first_key_value().map(|(height, _)| *height);
        waiting.into_iter().chain(self.searched.open_for_coins()).min()
    }

    /// Returns `true` if everything is settled, and every connected peer that has the whole chain
    /// has made its claims or had enough time to make them.
    ///
    /// Each new connection gets this time, even if everything has been settled for long: a peer that
    /// connects late may be the first honest one. Waiting for it costs few requests: if it disagrees,
    /// the dispute ends with a conviction.
    pub(super) fn is_caught_up(&self, chain: &HeaderChain, now: Duration) -> bool {
        let end = self.end(chain);
        let first = self.sync.first();
        // Nothing is wanted yet.
        if end < first {
            return true;
        }
        // While peers dispute a filter, the answer may be the false one. So a dispute must end,
        // however long a peer holds the deciding block back.
        if self.settled_to().is_none_or(|settled| settled < end) || self.sync.is_disputed(end) {
            return false;
        }
        // The sync has returned no action for a whole timeout, so no further answer is expected.
        if now.saturating_sub(self.active) > self.timeout {
            return true;
        }
        // The claims of peers that have left, and of those of an earlier run, do not count: what
        // matters is whether a connected peer may still contradict.
        let able = self.peers.iter().filter(|(_, shown)| shown.is_some_and(|shown| shown >= end));
        let mut able = able.map(|(id, _)| *id);
        able.all(|id| self.sync.is_heard(id, end))
    }
}

/// Returns the first bytes of a filter hash.
fn short(hash: FilterHash) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = hash.to_byte_array();
    [a, b, c, d, e, f, g, h]
}

//! The state machine of a filter sync: events in, actions out.

use std::boxed::Box;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, ScriptBuf};
use core::time::Duration;

use super::claims::Claims;
use super::dispute::{Inspections, Look, Parts, Settled};
use super::interval::{HeightAnswer, runs};
use super::peers::{Lateness, Peers, Turn, Verdict};
use super::persist::{self, RestoreError, StoredSync};
use super::{Action, Config, Event, Finding, Reason, ScanReason, VerifiedFilter};
use crate::btc::bip158::audit::InvalidFilter;
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};
use crate::steady_clock::SteadyClock;

/// The client's side of BIP157, with several peers. The [module documentation](super) explains how
/// to drive it.
///
/// Three private parts store the facts: the claims and the answers, the requests to each peer, and
/// the blocks that are wanted. Decisions that concern several parts are made here.
#[derive(Debug, Clone)]
pub struct FilterSync {
    pub(super) config: Config,
    /// The filter of the genesis block, which spends nothing.
    genesis: BlockFilter,
    genesis_header: FilterHeader,
    genesis_answered: bool,
    pub(super) claims: Claims,
    peers: Peers,
    pub(super) inspections: Inspections,
    /// The inspections that the current event may have changed.
    look: Look,
    clock: SteadyClock,
    /// The time of the last event.
    now: Duration,
}

impl FilterSync {
    /// Creates a sync without any state.
    pub fn new(config: Config) -> Self {
        let genesis =
            BlockFilter::from_prevout_scripts::<ScriptBuf>(&genesis_block(config.network), &[]);
        let genesis = genesis.expect("the block spends nothing and has one script");
        Self {
            genesis_header: genesis.filter_header(&FilterHeader::all_zeros()),
            genesis,
            genesis_answered: config.first > 0,
            claims: Claims::new(config.first),
            peers: Peers::new(config.limits, config.last),
            inspections: Inspections::new(config.limits),
            look: Look::All,
            clock: SteadyClock::default(),
            now: Duration::ZERO,
            config,
        }
    }

    /// Returns the first height wanted.
    pub fn first(&self) -> u32 {
        self.config.first
    }

    /// Returns the highest height about which any peer has made a claim; `None` if no peer has made
    /// a claim.
    pub fn highest_known(&self) -> Option<u32> {
        self.claims.end().checked_sub(1)
    }

    /// Processes an event, and returns the actions for the caller, in order.
    ///
    /// `chain` is the header chain after the event. `now` is the [current
    /// time](crate#time).
    ///
    /// Messages from peers that are not connected are ignored.
    ///
    /// # Cost
    /// Proportional to the size of the message. Comparing a peer's filter headers with known hashes
    /// takes at most one hash per height. Convicting a liar looks at each height once.
    #[must_use]
    pub fn handle(&mut self, chain: &HeaderChain, event: Event, now: Duration) -> Vec<Action> {
        // A `notfound` may have 50,000 items, and each would make the sync look at every open
        // inspection.
        if let Event::BlockUnavailable(peer, hash) = &event
            && !self.peers.get(*peer).is_some_and(|peer| peer.requests.blocks.has(*hash))
        {
            return Vec::new();
        }
        self.now = self.clock.read(now);
        let mut turn = Turn::new(chain, self.now);
        let sender = match &event {
            Event::CFilter(peer, _) => Some(*peer),
            _ => None,
        };
        self.look = self.concerned(&event, chain);
        self.take(event, &mut turn);
        self.check_timeouts(&mut turn);
        self.answer_genesis(&mut turn);
        // The comparison of peers begins at the first wanted height, which must be in the header
        // chain.
        if !self.is_before_chain(chain) {
            self.parts().ask_for_claims(&mut turn);
        }
        let look = self.look;
        self.parts().go_on(look, &mut turn);
        // A message changes only the state of its sender. While the sender still owes filters of a
        // bulk request, no peer has become free.
        let sender = sender.and_then(|sender| self.peers.get(sender));
        if !sender.is_some_and(|sender| sender.requests.has_filters_in_bulk()) {
            self.parts().ask_for_filters(&mut turn);
        }
        turn.actions
    }

    fn take(&mut self, event: Event, turn: &mut Turn<'_>) {
        match event {
            Event::PeerConnected(peer) => self.connect(peer, turn),
            Event::PeerTip(peer, hash) => self.peers.show_tip(peer, hash, turn.chain),
            Event::PeerDisconnected(peer) => self.remove(peer, turn),
            Event::Chain(events) => self.change_chain(&events, turn),
            Event::CFCheckpt(peer, message) => {
                let taken = self.parts().take_checkpoints(peer, &message, turn);
                self.judge(peer, taken, turn);
            }
            Event::CFHeaders(peer, message) => {
                let taken = self.parts().take_headers(peer, &message, turn);
                self.judge(peer, taken, turn);
            }
            Event::CFilter(peer, message) => {
                let taken = self.parts().take_filter(peer, message, turn);
                self.judge(peer, taken, turn);
            }
            Event::Block(peer, block) => self.take_block(peer, *block, turn),
            Event::BlockUnavailable(peer, hash) => self.parts().miss_block(peer, hash, turn),
            Event::Matched(filter) => self.want_block(*filter, turn),
            Event::Unmatched(at, hash) => self.take_unmatched(at, hash, turn),
            Event::Refuted(proof) => self.take_proof(&proof, turn),
            Event::Rescan(heights) => self.rescan(&heights, turn),
            Event::Extend(first) => self.extend(first, turn),
            Event::Tick => {}
        }
    }

    /// Returns the height up to which every block, from the first wanted one on, has a valid
    /// answer; `None` if the first wanted block has no valid answer.
    ///
    /// While peers dispute a height, the answer counts as valid, although it may be false:
    /// [`is_disputed`](Self::is_disputed) then returns `true`.
    ///
    /// The block of a hit from [`Event::Matched`] may still be pending:
    /// [`settled_to`](Self::settled_to) stays below such a block.
    pub fn answered_to(&self) -> Option<u32> {
        if !self.genesis_answered {
            return None;
        }
        self.claims.answered_to().or((self.config.first == 0).then_some(0))
    }

    /// Returns the last height of the settled range, which begins at the first wanted height: each
    /// height in it has a valid answer, and no block of a match is pending. Returns `None` if the
    /// first wanted height is not settled.
    ///
    /// A caller that has scanned each [`Action::Block`] up to this height has seen everything. The
    /// height can decrease: by [`Action::Reopened`], [`Event::Rescan`], [`Event::Extend`] or a
    /// reorganisation.
    ///
    /// # Cost
    /// About 1,000 look-ups, whatever the length of the chain.
    pub fn settled_to(&self) -> Option<u32> {
        let answered = self.answered_to()?;
        // While the block is pending, the answer may be withdrawn and become valid again. The
        // caller does not get the filter a second time, so only the block shows what the wallet has
        // at this height.
        let below = match self.first_awaited() {
            Some(awaited) => awaited.checked_sub(1)?,
            None => answered,
        };
        Some(answered.min(below)).filter(|settled| *settled >= self.config.first)
    }

    /// Returns the lowest height whose filter [matched](Event::Matched) and whose block is still
    /// pending.
    ///
    /// The height is returned even if its answer has been withdrawn since. Until the block arrives,
    /// a higher block may spend a coin that the pending block creates.
    pub fn first_awaited(&self) -> Option<u32> {
        self.inspections.first_awaited()
    }

    /// Returns the ranges of heights without a valid answer, which are those without a
    /// [`grade`](Self::grade). The last range ends at `u32::MAX`, and includes all heights above
    /// the peers' claims.
    ///
    /// A caller that stored answers of an earlier run calls this after [`FilterSync::restore`]. The
    /// stored answers about these heights are void, as if the heights had been
    /// [reopened](Action::Reopened), until the heights are [graded](Action::Graded) or answered
    /// again.
    ///
    /// # Cost
    /// For each height, looks at each peer that claims a filter hash for it.
    pub fn unanswered(&self) -> Vec<RangeInclusive<u32>> {
        let first = self.config.first;
        let end = self.claims.end().max(first).max(1);
        let known = (first..end).filter(|&height| self.grade(height).is_none());
        let mut unanswered = runs(known);
        match unanswered.last_mut() {
            Some(run) if *run.end() + 1 == end => *run = *run.start()..=u32::MAX,
            _ => unanswered.push(end..=u32::MAX),
        }
        unanswered
    }

    /// Returns the grade of the answer about a height; `None` if the height has no valid answer.
    ///
    /// # Cost
    /// Looks at each peer that claims a filter hash for the height.
    pub fn grade(&self, height: u32) -> Option<Grade> {
        if height == 0 {
            return self.genesis_answered.then_some(Grade::Audited);
        }
        match self.claims.at(height)?.answer {
            HeightAnswer::Block => Some(Grade::Scanned),
            HeightAnswer::Filter => self.claims.grade(height),
            HeightAnswer::None | HeightAnswer::Unwanted => None,
        }
    }

    /// Returns the grade that a "no" of the accepted filter of a height has. `None` if no filter of
    /// the height is evidence, or if peers dispute it. Unlike [`grade`](Self::grade), the result
    /// does not depend on how the height was answered.
    pub fn filter_grade(&self, height: u32) -> Option<Grade> {
        if height == 0 {
            return Some(Grade::Audited);
        }
        let at = self.claims.at(height).filter(|at| !at.ambiguous)?;
        let is_disputed = self.claims.differing_at(height).next().is_some();
        let is_wanted = at.answer != HeightAnswer::Unwanted && !is_disputed;
        self.claims.grade(height).filter(|_| is_wanted)
    }

    /// Returns `true` if a filter or a block has answered a height, even if the answer is withdrawn
    /// at the moment.
    pub fn was_answered(&self, height: u32) -> bool {
        match self.claims.at(height) {
            Some(at) => matches!(at.answer, HeightAnswer::Filter | HeightAnswer::Block),
            None => height == 0 && self.genesis_answered,
        }
    }

    /// Returns `true` if the block of a height was handed to the caller, in this run or an earlier
    /// run, even if a filter has answered the height since.
    pub fn was_scanned(&self, height: u32) -> bool {
        self.claims.at(height).is_some_and(|at| at.scanned)
    }

    /// Returns `true` if peers dispute the filter of a height up to `end`, and its block has not
    /// decided the dispute yet.
    pub fn is_disputed(&self, end: u32) -> bool {
        self.claims.disputed().next().is_some_and(|height| height <= end)
    }

    /// Returns `true` if a connected peer has made claims about all wanted heights up to `end`, or
    /// has had its time to make them.
    pub fn is_heard(&self, peer: PeerId, end: u32) -> bool {
        let Some(peer_state) = self.peers.get(peer) else { return true };
        peer_state.next_height() > end
            || self.peers.is_slow(peer_state, self.now)
            // Such a peer is asked for no further hashes.
            || self.claims.differs_at_many(peer, super::filters::MAX_DIFFERING)
    }

    /// Returns the accepted filter hash of a height. If peers claim several hashes, the accepted
    /// hash is a hash that is not refuted. `None` if no peer has made a claim.
    pub fn filter_hash(&self, height: u32) -> Option<FilterHash> {
        match height {
            0 => Some(self.genesis.filter_hash()),
            _ => self.claims.at(height).map(|at| at.hash),
        }
    }

    /// Returns the number of blocks that the peer was asked for and has not sent yet.
    pub fn blocks_in_flight(&self, id: PeerId) -> usize {
        self.peers.get(id).map_or(0, |peer| peer.requests.blocks.len())
    }

    /// Iterates over the connected peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.ids()
    }

    /// Encodes the state for [`restore`](Self::restore): about 33 bytes for each height.
    ///
    /// A height whose filter matched and whose block is still pending is stored as unanswered.
    pub fn encode(&self, chain: &HeaderChain) -> Vec<u8> {
        let kept = StoredSync {
            network: self.config.network,
            first: self.config.first,
            genesis_answered: self.genesis_answered,
        };
        persist::encode(kept, &self.claims, |height| self.inspections.awaits(height), chain)
    }

    /// Restores a sync from the bytes of [`encode`](Self::encode).
    ///
    /// `config.first` must be that of the stored sync. For a lower first height, pass
    /// [`Event::Extend`] afterwards.
    ///
    /// Intervals whose blocks were reorganised away are dropped and answered again. Peers of the
    /// earlier run are only counted: the sync knows how many agreed, but not which peers they were.
    /// If one of the claims of these peers is refuted, every answer for which only these peers
    /// vouched is withdrawn.
    ///
    /// Answers of the earlier run may have become invalid: the caller must treat the heights in
    /// [`unanswered`](FilterSync::unanswered) as [reopened](Action::Reopened).
    ///
    /// # Errors
    /// Returns a [`RestoreError`] if the bytes cannot be used. The caller then starts with
    /// [`FilterSync::new`].
    pub fn restore(
        config: Config,
        chain: &HeaderChain,
        bytes: &[u8],
    ) -> Result<Self, RestoreError> {
        let (kept, intervals) = persist::decode(bytes, config.network, chain)?;
        if kept.first != config.first {
            return Err(RestoreError::First { kept: kept.first, wanted: config.first });
        }
        let mut sync = Self::new(config);
        sync.genesis_answered |= kept.genesis_answered;
        for interval in intervals {
            sync.claims.intervals.push(interval);
        }
        // Filters are no evidence at these heights, so their blocks are needed.
        for height in sync.claims.ambiguous_open() {
            if let Some(hash) = chain.hash_at(height) {
                sync.inspections.want(BlockAt { height, hash });
            }
        }
        Ok(sync)
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts {
            config: &self.config,
            genesis: self.genesis_header,
            claims: &mut self.claims,
            peers: &mut self.peers,
            inspections: &mut self.inspections,
        }
    }

    /// Returns the inspections that an event may change, assuming that the event disconnects no
    /// peer.
    fn concerned(&self, event: &Event, chain: &HeaderChain) -> Look {
        let is_open = |height: u32| self.inspections.open(height).is_some();
        match event {
            // A filter can complete an open inspection only if the inspection is of the filter's
            // height.
            Event::CFilter(_, filter) => match chain.height_of(&filter.block_hash) {
                Some(height) if is_open(height) => Look::All,
                _ => Look::New,
            },
            Event::Matched(filter) if !is_open(filter.at.height) => Look::New,
            Event::Block(..) => Look::Waiting,
            _ => Look::All,
        }
    }

    fn connect(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        if !self.peers.connect(id, self.claims.first_interval) {
            let reason = Reason::TooManyPeers(self.config.limits.peers);
            turn.act(Action::Disconnect(id, reason));
            return;
        }
        if self.is_before_chain(turn.chain) {
            turn.report(Finding::FirstUnknown(self.config.first));
        }
    }

    /// Returns `true` if the header chain begins above the first height wanted.
    fn is_before_chain(&self, chain: &HeaderChain) -> bool {
        begins_above(self.claims.first, chain)
    }

    /// Executes the verdict on a peer whose message was not a valid answer.
    fn judge(&mut self, id: PeerId, taken: Result<(), Verdict>, turn: &mut Turn<'_>) {
        match taken {
            Ok(()) => {}
            Err(Verdict::Disconnect(reason)) => self.disconnect(id, reason, turn),
            Err(Verdict::Convict(reason)) => self.convict(&[id], false, &reason, turn),
        }
    }

    /// Removes a disconnected peer, and those of its claims for which it has sent no filter. If
    /// these claims stayed, a peer could make any claims and disconnect.
    fn remove(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        // The sync may have removed the peer already, when it disconnected the peer.
        if !self.peers.remove(id) {
            return;
        }
        self.look = Look::All;
        let inspections = &self.inspections;
        let reopened = self.claims.depart(id, |height, hash| inspections.holds(height, hash));
        turn.reopen(reopened);
    }

    fn disconnect(&mut self, id: PeerId, reason: Reason, turn: &mut Turn<'_>) {
        turn.act(Action::Disconnect(id, reason));
        self.remove(id, turn);
    }

    /// Disconnects liars, and withdraws everything that only they vouched for. `earlier` is `true`
    /// if peers of an earlier run are among the liars.
    fn convict(&mut self, liars: &[PeerId], earlier: bool, reason: &Reason, turn: &mut Turn<'_>) {
        for &liar in liars {
            // A claim outlives the connection of its peer, so a liar may have disconnected already.
            // The claims of a liar are withdrawn below in any case.
            if self.peers.remove(liar) {
                turn.act(Action::Disconnect(liar, reason.clone()));
            }
        }
        self.look = Look::All;
        turn.reopen(self.claims.convict(liars, earlier));
    }

    fn change_chain(&mut self, events: &[ChainEvent], turn: &mut Turn<'_>) {
        let gone = events.iter().filter_map(|event| match event {
            ChainEvent::Disconnected { at, .. } => Some(at.height),
            ChainEvent::Connected { .. } => None,
        });
        // A chain that only grows leaves all claims valid.
        let Some(lowest) = gone.min() else { return };
        let height = lowest.saturating_sub(1);
        let reopened = self.claims.truncate(height);
        self.inspections.truncate(height);
        self.peers.truncate(height, self.claims.first_interval);
        turn.act(Action::Rollback(height));
        turn.reopen(reopened);
    }

    fn rescan(&mut self, heights: &RangeInclusive<u32>, turn: &Turn<'_>) {
        self.genesis_answered &= *heights.start() > 0 || self.config.first > 0;
        // At these heights no filter is evidence, so the rescan needs their blocks.
        for height in self.claims.reopen(heights) {
            if let Some(at) = turn.block_at(height) {
                self.inspections.want(at);
            }
        }
    }

    /// Extends the wanted heights down to `first`.
    fn extend(&mut self, first: u32, turn: &mut Turn<'_>) {
        if first >= self.config.first {
            return;
        }
        // Below the start of the header chain, nothing can be requested, and the heights above
        // would have to wait.
        if begins_above(first, turn.chain) {
            turn.report(Finding::FirstUnknown(first));
            return;
        }
        self.genesis_answered &= first > 0;
        self.config.first = first;
        turn.reopen(self.claims.extend(first));
        // The comparison of each peer starts again at the lowest interval. In the higher intervals,
        // the filter headers of the peers show that the peers still claim the known hashes, so
        // nothing is requested again.
        self.peers.begin_at(self.claims.first_interval);
    }

    fn answer_genesis(&mut self, turn: &mut Turn<'_>) {
        if self.genesis_answered {
            return;
        }
        self.genesis_answered = true;
        let at = BlockAt { height: 0, hash: self.genesis.block_hash };
        let filter = VerifiedFilter { at, filter: self.genesis.clone(), grade: Grade::Audited };
        turn.act(Action::Filter(Box::new(filter)));
    }

    fn check_timeouts(&mut self, turn: &mut Turn<'_>) {
        for (id, lateness) in self.peers.check(turn.now) {
            match lateness {
                Lateness::InTime => {}
                Lateness::Slow(overdue) => turn.report(Finding::Slow(id, overdue)),
                Lateness::Gone(reason) => self.disconnect(id, reason, turn),
            }
        }
    }

    fn take_block(&mut self, from: Option<PeerId>, block: Block, turn: &mut Turn<'_>) {
        let settled = match self.parts().take_block(from, block, turn) {
            Ok(settled) => settled,
            Err(verdict) => {
                // A block from another source of the caller has no peer to judge.
                if let Some(id) = from {
                    self.judge(id, Err(verdict), turn);
                }
                return;
            }
        };
        let Some(Settled { mut inspection, block, lies }) = settled else { return };
        let at = inspection.at;
        for lie in lies {
            // Remember the hash, because a peer that claims it later is a liar too.
            self.claims.refute(at.height, lie.filter.hash);
            let reason = Reason::FalseFilter(Box::new(lie.filter));
            self.convict(&lie.liars, lie.earlier, &reason, turn);
        }
        let known = self.claims.at(at.height).filter(|known| !known.ambiguous);
        let content = known.and_then(|known| inspection.contents.remove(&known.hash));
        let filter = content.map(|content| BlockFilter { block_hash: at.hash, content });
        turn.act(Action::Block { at, block: Box::new(block), why: inspection.why, filter });
    }

    /// Queues the block of a filter that matched.
    fn want_block(&mut self, filter: VerifiedFilter, turn: &mut Turn<'_>) {
        let VerifiedFilter { at, filter, .. } = filter;
        // The genesis block is known, and peers do not send its filter.
        if at.height == 0 {
            let block = Box::new(genesis_block(self.config.network));
            let (why, filter) = (ScanReason::Matched, Some(filter));
            turn.act(Action::Block { at, block, why, filter });
            return;
        }
        // A hit is valid even if its answer was withdrawn meanwhile: other peers may claim a false
        // filter.
        if self.claims.at(at.height).is_none() || turn.block_at(at.height) != Some(at) {
            return;
        }
        let hash = filter_hash(&filter.content);
        let is_claimed = self.claims.hashes(at.height).contains(&hash);
        let content = is_claimed.then_some((hash, filter.content));
        self.inspections.want_with(at, ScanReason::Matched, content);
    }

    /// Makes the accepted filter the answer of a height that was answered by its block.
    fn take_unmatched(&mut self, at: BlockAt, hash: FilterHash, turn: &mut Turn<'_>) {
        let Some(grade) = self.filter_grade(at.height) else { return };
        let known = self.claims.at(at.height).filter(|known| known.hash == hash);
        let is_scanned = known.is_some_and(|known| known.answer == HeightAnswer::Block);
        if is_scanned && turn.block_at(at.height) == Some(at) {
            self.claims.answer(at.height, HeightAnswer::Filter);
            turn.act(Action::Graded(at.height, at.height, grade));
        }
    }

    /// Processes a proof that a filter is false.
    fn take_proof(&mut self, proof: &InvalidFilter, turn: &mut Turn<'_>) {
        let Some(height) = turn.chain.height_of(&proof.block_hash) else { return };
        // The proof may come from a stranger, so it is verified here.
        if proof.verify(proof.block_hash, self.config.network).is_err() {
            return;
        }
        // Without claims about the height, there is nothing to refute. The genesis block has none.
        if self.claims.at(height).is_none() {
            return;
        }
        let hash = filter_hash(&proof.filter);
        let at = BlockAt { height, hash: proof.block_hash };
        let liars = self.claims.claimants(height, hash);
        let earlier = self.claims.is_claimed_earlier(height, hash);
        let is_remembered = self.claims.refute(height, hash);
        turn.reopen(self.claims.distrust(height, hash));
        let filter = super::FalseFilter { at, hash, proof: Some(proof.clone()) };
        self.convict(&liars, earlier, &Reason::FalseFilter(Box::new(filter)), turn);
        let Some(known) = self.claims.at(height).copied() else { return };
        // If another hash is accepted and a later claim of the refuted hash would be recognised,
        // the filter can answer the height. Otherwise the height needs its block.
        if known.audited || known.hash != hash && is_remembered {
            return;
        }
        match known.answer {
            HeightAnswer::Unwanted => {}
            HeightAnswer::Block => {
                // The block was scanned already. The block's filter is no evidence for later
                // rescans.
                if known.hash == hash {
                    self.claims.set_ambiguous(height);
                }
            }
            // The height may have been answered by the false filter. Only the block can answer now.
            HeightAnswer::None | HeightAnswer::Filter => {
                if self.grade(height).is_some() {
                    turn.act(Action::Reopened(height, height));
                }
                self.claims.answer(height, HeightAnswer::None);
                self.claims.set_ambiguous(height);
                self.inspections.want(at);
            }
        }
    }
}

/// Returns `true` if the header chain reaches the height `first` but does not contain it, because
/// the chain begins above this height.
fn begins_above(first: u32, chain: &HeaderChain) -> bool {
    let first = first.max(1);
    first <= chain.tip().height && chain.hash_at(first).is_none()
}

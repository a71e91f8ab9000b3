//! The state machine: events in, actions out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::vec::Vec;

use bitcoin::BlockHash;
use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use core::time::Duration;

use super::claims::Claims;
use super::dispute::Inspection;
use super::interval::{Answer, runs};
use super::peers::{Pace, Peer};
use super::{Action, Config, Event, Finding, Reason, VerifiedFilter, Why};
use crate::btc::bip158::BlockFilter;
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain};
use crate::btc::peer::{Grade, PeerId};

/// Before any block has come: four are asked for at first, of a full one's usual size.
const FIRST_BLOCK_SIZE: usize = 1_000_000;

/// The client's side of BIP157 with several peers. The [module](super) says how to drive it.
#[derive(Debug, Clone)]
pub struct FilterSync {
    pub(super) config: Config,
    /// The filter of the genesis block, which spends nothing.
    genesis: BlockFilter,
    pub(super) genesis_answered: bool,
    pub(super) claims: Claims,
    pub(super) peers: BTreeMap<PeerId, Peer>,
    /// Heights whose block is being fetched.
    pub(super) inspections: BTreeMap<u32, Inspection>,
    /// Heights whose block is wanted as soon as there is room.
    pub(super) wanted: BTreeMap<u32, Inspection>,
    /// Bytes of filters kept with those wanted.
    pub(super) kept_bytes: usize,
    /// The estimate of a block's size in bytes: the largest of late.
    pub(super) block_size: usize,
}

/// What an event leads to.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) now: Duration,
    pub(super) actions: Vec<Action>,
    /// Blocks to ask for, by peer.
    pub(super) blocks: BTreeMap<PeerId, Vec<BlockHash>>,
    /// What is to be looked at of the blocks wanted.
    pub(super) look: Look,
}

/// Which inspections an event may have changed: all are many to look at for each filter and block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Those that are begun.
    New,
    /// And those whose block has not been asked for.
    Waiting,
    All,
}

impl Turn<'_> {
    pub(super) fn report(&mut self, finding: Finding) {
        self.actions.push(Action::Report(finding));
    }

    pub(super) fn reopen(&mut self, runs: Vec<RangeInclusive<u32>>) {
        let actions = runs.into_iter().map(|run| Action::Reopened(*run.start(), *run.end()));
        self.actions.extend(actions);
    }

    pub(super) fn block_at(&self, height: u32) -> Option<BlockAt> {
        self.chain.hash_at(height).map(|hash| BlockAt { height, hash })
    }
}

impl FilterSync {
    /// A sync that has heard nothing.
    pub fn new(config: Config) -> Self {
        let genesis = BlockFilter::from_prevout_scripts::<bitcoin::ScriptBuf>(
            &genesis_block(config.network),
            &[],
        );
        Self {
            genesis: genesis.expect("the block spends nothing and has one script"),
            genesis_answered: config.first > 0,
            claims: Claims::new(config.first),
            peers: BTreeMap::new(),
            inspections: BTreeMap::new(),
            wanted: BTreeMap::new(),
            kept_bytes: 0,
            block_size: FIRST_BLOCK_SIZE,
            config,
        }
    }

    /// Takes an event at the time `now`, counted from any one moment, and returns what to do, in
    /// order. `chain` is the chain of headers after the event. Where `now` is less than before,
    /// waiting counts from there.
    ///
    /// Messages from peers that are not connected are passed over.
    ///
    /// # Cost
    /// In proportion to the message. When a peer's filter headers are compared with what is known,
    /// a hash for each height at most; when a liar is convicted, a look at each height.
    pub fn handle(&mut self, chain: &HeaderChain, event: Event, now: Duration) -> Vec<Action> {
        let look = match &event {
            Event::CFilter(..) | Event::Matched(_) => Look::New,
            Event::Block(..) => Look::Waiting,
            _ => Look::All,
        };
        let mut turn = Turn { chain, now, actions: Vec::new(), blocks: BTreeMap::new(), look };
        let sender = match &event {
            Event::CFilter(peer, _) => Some(*peer),
            _ => None,
        };
        match event {
            Event::PeerConnected(peer) => self.connect(peer, &mut turn),
            Event::PeerTip(peer, hash) => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.show_tip(hash, chain);
                }
            }
            Event::PeerDisconnected(peer) => self.remove(peer, &mut turn),
            Event::Chain(events) => self.change_chain(&events, &mut turn),
            Event::CFCheckpt(peer, message) => self.take_checkpoints(peer, &message, &mut turn),
            Event::CFHeaders(peer, message) => self.take_headers(peer, &message, &mut turn),
            Event::CFilter(peer, message) => self.take_filter(peer, message, &mut turn),
            Event::Block(peer, block) => self.take_block(peer, *block, &mut turn),
            Event::BlockUnavailable(peer, hash) => self.miss_block(peer, hash, now),
            Event::Matched(filter) => self.want_block(*filter, &mut turn),
            Event::Refuted(proof) => self.take_proof(&proof, &mut turn),
            Event::Rescan(height) => self.rescan(height, &turn),
            Event::Tick => {}
        }
        self.check_patience(&mut turn);
        self.answer_genesis(&mut turn);
        self.ask_for_claims(&mut turn);
        self.inspect(&mut turn);
        // A filter with which its peer is not done leaves nobody free who was not.
        let sender = sender.and_then(|sender| self.peers.get(&sender));
        if !sender.is_some_and(Peer::is_asked_for_filters) {
            self.ask_for_filters(&mut turn);
        }
        turn.actions
    }

    /// The height up to which every block, from the first wanted on, is answered; `None` if the
    /// first is not.
    ///
    /// The block of a hit given back with [`Event::Matched`] may still be awaited:
    /// [`settled_to`](Self::settled_to) stays below it.
    pub fn answered_to(&self) -> Option<u32> {
        if !self.genesis_answered {
            return None;
        }
        self.claims.answered_to().or((self.config.first == 0).then_some(0))
    }

    /// The height up to which everything is settled, from the first wanted on: each height has an
    /// answer that counts now, and no block is awaited for a match at or below it. `None` if that
    /// does not hold for the first.
    ///
    /// A caller that has scanned each [`Action::Block`] up to this height has seen everything. It
    /// can fall: by [`Action::Reopened`], [`Event::Rescan`], a reorganisation.
    ///
    /// # Cost
    /// In the order of 1,000 looks, however long the chain.
    pub fn settled_to(&self) -> Option<u32> {
        let answered = self.answered_to()?;
        // The answer of such a height may count, be withdrawn and count again meanwhile: the filter
        // is not handed over a second time, so that only the block tells what the wallet has there.
        let below = match self.first_awaited() {
            Some(awaited) => awaited.checked_sub(1)?,
            None => answered,
        };
        Some(answered.min(below)).filter(|settled| *settled >= self.config.first)
    }

    /// The lowest height whose block is awaited since its filter [matched](Event::Matched), whatever
    /// has become of its answer since: until it comes, a block above it may spend a coin that it
    /// holds.
    pub fn first_awaited(&self) -> Option<u32> {
        let lowest = |open: &BTreeMap<u32, Inspection>| {
            let matched = |(_, open): &(&u32, &Inspection)| open.why == Why::Matched;
            open.iter().find(matched).map(|(height, _)| *height)
        };
        lowest(&self.inspections).into_iter().chain(lowest(&self.wanted)).min()
    }

    /// The heights, in runs, whose answer does not count, or has not come: those without a
    /// [`grade`](Self::grade). The last is all above what peers were heard about, to `u32::MAX`.
    ///
    /// Who kept answers of an earlier run asks this after [`FilterSync::restore`]: what was said
    /// about these heights counts no more, as if [reopened](Action::Reopened), until they are
    /// [graded](Action::Graded) or answered again.
    ///
    /// # Cost
    /// A look at each height, and there at each peer that was heard about it.
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

    /// What the answer about a height is worth; `None` if there is none, or none that counts.
    ///
    /// # Cost
    /// A look at each peer that was heard about the height.
    pub fn grade(&self, height: u32) -> Option<Grade> {
        if height == 0 {
            return self.genesis_answered.then_some(Grade::Audited);
        }
        match self.claims.at(height)?.answer {
            Answer::Block => Some(Grade::Scanned),
            Answer::Filter => self.grade_of_claim(height),
            Answer::None | Answer::Unwanted => None,
        }
    }

    /// The filter hash that is claimed for a height: of several, one that is not refuted. `None` if
    /// nobody was heard about it.
    pub fn filter_hash(&self, height: u32) -> Option<FilterHash> {
        match height {
            0 => Some(self.genesis.filter_hash()),
            _ => self.claims.at(height).map(|at| at.hash),
        }
    }

    /// The peers that are connected.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.keys().copied()
    }

    /// The filter header of the genesis block.
    pub(super) fn genesis_header(&self) -> FilterHeader {
        self.genesis.filter_header(&FilterHeader::all_zeros())
    }

    pub(super) fn grade_of_claim(&self, height: u32) -> Option<Grade> {
        let at = self.claims.at(height)?;
        match self.claims.num_vouchers(height) {
            _ if at.audited => Some(Grade::Audited),
            _ if self.claims.is_committed(height) => Some(Grade::Checkpoint),
            0 => None,
            1 => Some(Grade::OnePeer),
            peers => Some(Grade::Peers(peers)),
        }
    }

    fn connect(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        let limit = self.config.limits.peers;
        if self.peers.len() >= limit && !self.peers.contains_key(&id) {
            turn.actions.push(Action::Disconnect(id, Reason::TooManyPeers(limit)));
            return;
        }
        if self.is_before_chain(turn) {
            turn.report(Finding::FirstUnknown(self.config.first));
        }
        let first = self.claims.first_interval;
        self.peers.entry(id).or_insert_with(|| Peer::new(first));
    }

    /// Whether the chain of headers begins above the first height wanted.
    pub(super) fn is_before_chain(&self, turn: &Turn<'_>) -> bool {
        let first = self.claims.first.max(1);
        first <= turn.chain.tip().height && turn.chain.hash_at(first).is_none()
    }

    /// A peer is gone, and with it the claims for which it has sent no filter.
    fn remove(&mut self, id: PeerId, turn: &mut Turn<'_>) {
        if self.peers.remove(&id).is_none() {
            return;
        }
        turn.look = Look::All;
        let inspections = &self.inspections;
        let reopened = self.claims.depart(id, |height, hash| {
            inspections.get(&height).is_some_and(|open| open.contents.contains_key(&hash))
        });
        turn.reopen(reopened);
    }

    pub(super) fn disconnect(&mut self, id: PeerId, reason: Reason, turn: &mut Turn<'_>) {
        turn.actions.push(Action::Disconnect(id, reason));
        self.remove(id, turn);
    }

    /// Disconnects liars, and trusts nothing that only they vouched for. With `earlier`, peers of
    /// an earlier run are among them.
    pub(super) fn convict(
        &mut self,
        liars: &[PeerId],
        earlier: bool,
        reason: &Reason,
        turn: &mut Turn<'_>,
    ) {
        for liar in liars {
            if self.peers.remove(liar).is_some() {
                turn.actions.push(Action::Disconnect(*liar, reason.clone()));
            }
        }
        turn.look = Look::All;
        turn.reopen(self.claims.convict(liars, earlier));
    }

    fn change_chain(&mut self, events: &[ChainEvent], turn: &mut Turn<'_>) {
        let gone = events.iter().filter_map(|event| match event {
            ChainEvent::Disconnected { at, .. } => Some(at.height),
            ChainEvent::Connected { .. } => None,
        });
        let Some(lowest) = gone.min() else { return };
        self.truncate(lowest.saturating_sub(1));
        turn.actions.push(Action::Rollback(lowest.saturating_sub(1)));
    }

    /// Forgets everything above a height.
    pub(super) fn truncate(&mut self, height: u32) {
        self.claims.truncate(height);
        self.inspections.retain(|&at, _| at <= height);
        self.wanted.retain(|&at, _| at <= height);
        self.kept_bytes = self.wanted.values().map(Inspection::bytes).sum();
        for peer in self.peers.values_mut() {
            peer.truncate(height, self.claims.first_interval);
        }
    }

    fn rescan(&mut self, from: u32, turn: &Turn<'_>) {
        self.genesis_answered &= from > 0 || self.config.first > 0;
        for height in self.claims.reopen(from) {
            if let Some(at) = turn.block_at(height) {
                self.want(at);
            }
        }
    }

    fn answer_genesis(&mut self, turn: &mut Turn<'_>) {
        if self.genesis_answered {
            return;
        }
        self.genesis_answered = true;
        let at = BlockAt { height: 0, hash: self.genesis.block_hash };
        let filter = VerifiedFilter { at, filter: self.genesis.clone(), grade: Grade::Audited };
        turn.actions.push(Action::Filter(Box::new(filter)));
    }

    fn check_patience(&mut self, turn: &mut Turn<'_>) {
        let pace = self.pace();
        let checked: Vec<_> = self
            .peers
            .iter_mut()
            .map(|(&id, peer)| (id, peer.check_patience(turn.now, pace)))
            .collect();
        for (id, (slow, gone)) in checked {
            if let Some(reason) = gone {
                self.disconnect(id, reason, turn);
            } else if let Some(overdue) = slow {
                turn.report(Finding::Slow(id, overdue));
            }
        }
    }

    pub(super) fn pace(&self) -> Pace {
        Pace { patience: self.config.limits.patience, block_size: self.block_size }
    }

    /// Whether a height is one of those whose block is fetched whatever is found.
    pub(super) fn is_spot(&self, at: BlockAt) -> bool {
        use crate::hash::{SipKey, siphash_2_4};
        let every = u64::from(self.config.spot_audits);
        let draw = siphash_2_4(SipKey::from_bytes(self.config.seed), at.hash.as_byte_array());
        draw.checked_rem(every) == Some(0)
    }
}

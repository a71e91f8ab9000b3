//! Inspections: heights whose block is wanted, because peers dispute the filter, the filter
//! matched, or a spot audit is due. Fetches the blocks, and settles disputes about filters with
//! them. A limited number of blocks is fetched at a time; the other inspections wait in a queue.

use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

use bitcoin::bip158::{FilterHash, FilterHeader};
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{Block, BlockHash};

use super::claims::Claims;
use super::interval::HeightAnswer;
use super::peers::{Peers, Turn, Verdict};
use super::{Action, Config, FalseFilter, Finding, Limits, Reason, ScanReason, VerifiedFilter};
use crate::btc::bip158::audit::{InvalidFilter, Prevouts, Refutation, Verdict as Audit, audit};
use crate::btc::bip158::{BlockFilter, BoundBlock, Witnesses};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// The parts of a sync, borrowed together for decisions that concern several of them.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) config: &'a Config,
    /// The filter header of the genesis block.
    pub(super) genesis: FilterHeader,
    pub(super) claims: &'a mut Claims,
    pub(super) peers: &'a mut Peers,
    pub(super) inspections: &'a mut Inspections,
}

/// A height whose block is wanted.
#[derive(Debug, Clone)]
pub(super) struct Inspection {
    pub(super) at: BlockAt,
    pub(super) why: ScanReason,
    /// The claimed filters that have been received from peers or from the caller, by hash.
    pub(super) contents: BTreeMap<FilterHash, Vec<u8>>,
    /// The peers that did not deliver the block, with the time of their answer.
    pub(super) without_block: BTreeMap<PeerId, Duration>,
    /// `true` if it was reported that no peer has the block.
    pub(super) reported: bool,
    /// The time at which the inspection was first processed.
    since: Option<Duration>,
    /// `true` if the block was requested and not overdue when the inspection was last processed.
    pub(super) is_asked: bool,
    /// `true` if the inspection has one of the places for heights with several filters.
    is_disputed: bool,
}

impl Inspection {
    fn new(at: BlockAt) -> Self {
        Self {
            at,
            why: ScanReason::Disputed,
            contents: BTreeMap::new(),
            without_block: BTreeMap::new(),
            reported: false,
            since: None,
            is_asked: false,
            is_disputed: false,
        }
    }

    /// Changes the reason of the inspection. The reason `Matched` is never replaced, because the
    /// caller waits for the block of a match.
    fn set_why(&mut self, why: ScanReason) {
        if self.why != ScanReason::Matched {
            self.why = why;
        }
    }

    /// Returns the time since the first call of this function.
    pub(super) fn waited(&mut self, now: Duration) -> Duration {
        now.saturating_sub(*self.since.get_or_insert(now))
    }

    /// Returns the total size of the stored filters in bytes.
    fn bytes(&self) -> usize {
        self.contents.values().map(Vec::len).sum()
    }
}

/// The set of open inspections that an event may have changed. Processing all open inspections for
/// every filter and block would be too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// The inspections that the current event opened.
    New,
    /// The inspections whose block has not been requested.
    Waiting,
    /// All open inspections.
    All,
}

/// All inspections. Each is either open (its block is being fetched) or waits in the queue.
#[derive(Debug, Clone)]
pub(super) struct Inspections {
    open: BTreeMap<u32, Inspection>,
    waiting: BTreeMap<u32, Inspection>,
    /// The total size in bytes of the filters of waiting inspections.
    kept: usize,
    limits: Limits,
}

impl Inspections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { open: BTreeMap::new(), waiting: BTreeMap::new(), kept: 0, limits }
    }

    /// Returns `true` if the block of a height is being fetched or queued.
    pub(super) fn contains(&self, height: u32) -> bool {
        self.open.contains_key(&height) || self.waiting.contains_key(&height)
    }

    pub(super) fn open(&self, height: u32) -> Option<&Inspection> {
        self.open.get(&height)
    }

    pub(super) fn open_mut(&mut self, height: u32) -> Option<&mut Inspection> {
        self.open.get_mut(&height)
    }

    /// Number of filters that are stored with open inspections.
    #[cfg(test)]
    pub(super) fn num_filters(&self) -> usize {
        self.open.values().map(|open| open.contents.len()).sum()
    }

    /// Removes and returns an open inspection.
    pub(super) fn remove(&mut self, height: u32) -> Option<Inspection> {
        self.open.remove(&height)
    }

    /// Returns `true` if the filter with a claimed hash is stored with an open inspection. The
    /// inspection will check the claim with this filter, even if the peer that made the claim has
    /// left.
    pub(super) fn holds(&self, height: u32, hash: FilterHash) -> bool {
        self.open(height).is_some_and(|open| open.contents.contains_key(&hash))
    }

    /// Returns `true` if the caller waits for the block of a height.
    pub(super) fn awaits(&self, height: u32) -> bool {
        let wanted = self.open.get(&height).or_else(|| self.waiting.get(&height));
        wanted.is_some_and(|wanted| wanted.why == ScanReason::Matched)
    }

    /// Returns the lowest height for whose block the caller waits.
    pub(super) fn first_awaited(&self) -> Option<u32> {
        let lowest = |wanted: &BTreeMap<u32, Inspection>| {
            let matched = |(_, wanted): &(&u32, &Inspection)| wanted.why == ScanReason::Matched;
            wanted.iter().find(matched).map(|(height, _)| *height)
        };
        lowest(&self.open).into_iter().chain(lowest(&self.waiting)).min()
    }

    /// Queues the block of a height, unless it is already queued or being fetched.
    pub(super) fn want(&mut self, at: BlockAt) {
        if !self.contains(at.height) {
            self.waiting.insert(at.height, Inspection::new(at));
        }
    }

    /// Queues the block of a height for a reason, with its filter if it is at hand. A queued filter
    /// is kept only if there is room for it; otherwise it is requested again from a peer that
    /// claims it.
    pub(super) fn want_with(
        &mut self,
        at: BlockAt,
        why: ScanReason,
        content: Option<(FilterHash, Vec<u8>)>,
    ) {
        if let Some(open) = self.open.get_mut(&at.height) {
            open.set_why(why);
            open.contents.extend(content);
            return;
        }
        let waiting = self.waiting.entry(at.height).or_insert_with(|| Inspection::new(at));
        waiting.set_why(why);
        let room = self.limits.kept_bytes.saturating_sub(self.kept);
        // Many hits at once, as in a recovery, must not fill the memory with filters.
        if let Some((hash, content)) = content
            && content.len() <= room
            && !waiting.contents.contains_key(&hash)
        {
            self.kept += content.len();
            waiting.contents.insert(hash, content);
        }
    }

    /// Returns the number of further inspections that can be opened.
    pub(super) fn room(&self) -> usize {
        self.limits.inspections.max(1).saturating_sub(self.open.len())
    }

    /// Opens queued inspections while there is room, lowest height first. Returns the heights of
    /// the opened inspections.
    pub(super) fn begin(&mut self) -> Vec<u32> {
        let mut begun = Vec::new();
        for _ in 0..self.room() {
            let Some((height, inspection)) = self.waiting.pop_first() else { break };
            self.kept -= inspection.bytes();
            self.open.insert(height, inspection);
            begun.push(height);
        }
        begun
    }

    /// Returns the heights of open inspections that may have changed, in ascending order. `begun`
    /// contains the heights whose inspections the current event opened.
    pub(super) fn to_look_at(&self, look: Look, begun: Vec<u32>) -> Vec<u32> {
        let open = self.open.iter();
        match look {
            Look::New => begun,
            Look::Waiting => {
                open.filter(|(_, open)| !open.is_asked).map(|(height, _)| *height).collect()
            }
            Look::All => open.map(|(height, _)| *height).collect(),
        }
    }

    /// Gives an open inspection one of the limited places for heights with several filters. Returns
    /// `true` if the inspection now has such a place.
    pub(super) fn take_dispute_place(&mut self, height: u32) -> bool {
        let disputed = self.open.values().filter(|open| open.is_disputed).count();
        let limit = self.limits.disputes.max(1);
        let Some(open) = self.open.get_mut(&height) else { return false };
        open.is_disputed |= disputed < limit;
        open.is_disputed
    }

    /// Drops all inspections above a height.
    pub(super) fn truncate(&mut self, height: u32) {
        self.open.retain(|&at, _| at <= height);
        self.waiting.retain(|&at, _| at <= height);
        self.kept = self.waiting.values().map(Inspection::bytes).sum();
    }
}

/// Maximum number of timeouts for which a block waits for disputed filters.
const DISPUTE_TIMEOUTS: u32 = 4;

/// A claimed filter that its block refutes, with the peers that claim it.
#[derive(Debug)]
pub(super) struct Lie {
    pub(super) liars: Vec<PeerId>,
    /// `true` if peers that are not known individually are among the liars.
    pub(super) earlier: bool,
    pub(super) filter: FalseFilter,
}

/// A block that arrived, with the inspection that it completes and the lies that it reveals.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) inspection: Inspection,
    pub(super) block: Block,
    pub(super) lies: Vec<Lie>,
}

/// Results of auditing the claimed filters of a block.
#[derive(Debug, Default)]
struct Judgement {
    refuted: Vec<(FilterHash, Option<InvalidFilter>)>,
    valid: Option<FilterHash>,
    suspicious: bool,
}

impl Parts<'_> {
    /// Begins inspections of disputed heights and wanted blocks, and continues those that may have
    /// changed.
    pub(super) fn go_on(&mut self, look: Look, turn: &mut Turn<'_>) {
        self.want_disputed(turn);
        let begun = self.inspections.begin();
        let mut wanted = BTreeMap::new();
        for height in self.inspections.to_look_at(look, begun) {
            self.go_on_with(height, &mut wanted, turn);
        }
        for (id, blocks) in wanted {
            let blocks = blocks.into_iter().map(Inventory::WitnessBlock).collect();
            turn.send(id, NetworkMessage::GetData(blocks));
        }
    }

    fn want_disputed(&mut self, turn: &mut Turn<'_>) {
        let new = self.claims.disputed().filter(|height| !self.inspections.contains(*height));
        let mut new: Vec<_> = new.take(self.inspections.room()).collect();
        new.dedup();
        for height in new {
            // A height without a block is above the tip and needs no inspection.
            let Some(at) = turn.block_at(height) else { continue };
            let claims = self.claims.hashes(height).into_iter().map(|hash| {
                let mut claimants = self.claims.claimants(height, hash);
                claimants.retain(|peer| self.peers.contains(*peer));
                (hash, claimants)
            });
            turn.report(Finding::Disputed { at, claims: claims.collect() });
            self.inspections.want(at);
        }
    }

    /// Requests what an inspection lacks: every claimed filter, then the block. The block is
    /// requested last, because a claim can be proven a lie only if its filter was received.
    fn go_on_with(
        &mut self,
        height: u32,
        wanted: &mut BTreeMap<PeerId, Vec<BlockHash>>,
        turn: &mut Turn<'_>,
    ) {
        self.limit_claims(height, turn);
        let hashes = self.claims.hashes(height);
        let known = self.claims.at(height).copied();
        let Some(inspection) = self.inspections.open_mut(height) else { return };
        let waited = inspection.waited(turn.now);
        let is_ambiguous = known.is_some_and(|known| known.ambiguous);
        // At most one claim is left, so there is no dispute to settle.
        if inspection.why == ScanReason::Disputed && !is_ambiguous && hashes.len() < 2 {
            return self.dissolve(height, turn);
        }
        // Filters that no peer claims any longer decide nothing.
        let accepted = known.map(|known| known.hash);
        inspection.contents.retain(|hash, _| hashes.contains(hash) || accepted == Some(*hash));
        let missing = hashes.iter().filter(|hash| !inspection.contents.contains_key(*hash));
        let missing: Vec<_> = missing.copied().collect();
        // Each dispute keeps one filter per claim, so the number of disputes at a time is limited.
        if hashes.len() > 1 && !self.inspections.take_dispute_place(height) {
            return;
        }
        let mut waits = false;
        for hash in missing {
            waits |= self.ask_for_claimed(height, hash, turn);
        }
        // After this time the block is fetched even without the filters. Otherwise liars that
        // appear one after another could delay the block forever.
        if !waits || waited > self.peers.pace.timeout.saturating_mul(DISPUTE_TIMEOUTS) {
            self.ask_for_block(height, wanted, turn);
        }
    }

    /// Drops all claims about a height if they exceed the limit. The height is then answered by its
    /// block, and by no filter.
    fn limit_claims(&mut self, height: u32, turn: &mut Turn<'_>) {
        // The limit allows one claim for each connected peer, and as many for departed peers. A
        // filter is kept for each claim, and peers that connect one after another can make new
        // claims without end.
        let limit = self.config.limits.peers.saturating_mul(2);
        if self.claims.differing_at(height).count() <= limit {
            return;
        }
        let told = self.claims.at(height).is_some_and(|at| at.answer == HeightAnswer::Filter);
        self.claims.drop_differing(height, |_| true);
        self.claims.set_ambiguous(height);
        self.claims.answer(height, HeightAnswer::None);
        if let Some(inspection) = self.inspections.open_mut(height) {
            inspection.contents.clear();
        }
        // The caller was given a filter that is not evidence any longer.
        if told {
            turn.act(Action::Reopened(height, height));
        }
    }

    /// Ends an inspection without its block, because no claims differ any longer. If the filter has
    /// arrived, hands it over to the caller.
    fn dissolve(&mut self, height: u32, turn: &mut Turn<'_>) {
        let Some(mut inspection) = self.inspections.remove(height) else { return };
        let peers = &self.peers;
        self.claims.drop_differing(height, |peer| !peers.contains(peer));
        let Some(known) = self.claims.at(height).copied() else { return };
        // The remaining filter is at hand, and the height waits for an answer.
        if let Some(content) = inspection.contents.remove(&known.hash)
            && known.answer == HeightAnswer::None
            && !known.ambiguous
        {
            hand_over(self.claims, inspection.at, content, turn);
        }
    }

    /// Requests a claimed filter from one of the peers that claim it. Returns `true` if the filter
    /// may still arrive.
    fn ask_for_claimed(&mut self, height: u32, hash: FilterHash, turn: &mut Turn<'_>) -> bool {
        let claimants = self.claims.claimants(height, hash);
        let connected = self.peers.iter().filter(|(id, _)| claimants.contains(id));
        let able = connected.filter(|(_, peer)| peer.height(turn.chain) >= Some(height));
        let able: Vec<_> = able.collect();
        let is_coming = able.iter().any(|(_, peer)| {
            peer.requests.brings_filter(height, self.peers.is_slow(peer, turn.now))
        });
        // One request is enough while its answer may still arrive.
        if is_coming {
            return true;
        }
        let chosen = able
            .into_iter()
            .min_by_key(|(_, peer)| (self.peers.rests(peer, turn.now), peer.requests.len()));
        let Some((id, _)) = chosen else { return false };
        self.peers.ask_for_filters(id, height, vec![hash], true, turn);
        true
    }

    fn ask_for_block(
        &mut self,
        height: u32,
        wanted: &mut BTreeMap<PeerId, Vec<BlockHash>>,
        turn: &mut Turn<'_>,
    ) {
        let is_ambiguous = self.claims.at(height).is_some_and(|at| at.ambiguous);
        let is_needed = is_ambiguous || self.claims.hashes(height).len() > 1;
        let Some(inspection) = self.inspections.open_mut(height) else { return };
        // A peer that lacks a block now may have it later: it is still downloading the chain, or
        // reads from a slow disk. Without another request, a match would wait until a new peer
        // connects.
        let (peers, timeout) = (&*self.peers, self.peers.pace.timeout);
        inspection.without_block.retain(|&peer, &mut since| {
            peers.contains(peer) && turn.now.saturating_sub(since) <= timeout
        });
        let at = inspection.at;
        inspection.is_asked = self.peers.brings_block(at.hash, turn.now);
        // One download is enough: the block is already requested and not overdue.
        if inspection.is_asked {
            return;
        }
        let able = self.peers.iter().filter(|(id, peer)| {
            !inspection.without_block.contains_key(id)
                && peer.height(turn.chain) >= Some(height)
                && !peer.requests.blocks.has(at.hash)
        });
        let keyed = able.map(|(id, peer)| {
            let is_busy = !self.peers.has_room_for_block(peer);
            (is_busy, self.peers.rests(peer, turn.now), peer.requests.len(), id)
        });
        match keyed.min() {
            // The best peer already has the maximum number of blocks in flight. The block is
            // requested at a later event.
            Some((true, ..)) => {}
            Some((false, .., id)) => {
                inspection.is_asked = true;
                self.peers.ask_for_block(id, at, turn.now);
                wanted.entry(id).or_default().push(at.hash);
            }
            // Nothing depends on this block, and no peer has it. The audit is skipped.
            None if inspection.why == ScanReason::SpotAudit && !is_needed => {
                self.dissolve(height, turn);
            }
            // The finding is reported once for each inspection.
            None if inspection.reported => {}
            None => {
                inspection.reported = true;
                turn.report(Finding::BlockUnavailable(at));
            }
        }
    }

    /// Records that a peer does not have a block.
    pub(super) fn miss_block(&mut self, id: PeerId, hash: BlockHash, turn: &Turn<'_>) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let Some(height) = peer.requests.blocks.take(hash, turn.now) else { return };
        // After a reorganisation, the height may belong to another block.
        if let Some(inspection) = self.inspections.open_mut(height)
            && inspection.at.hash == hash
        {
            inspection.without_block.insert(id, turn.now);
        }
    }

    /// Processes a block. Returns the inspection that the block completes, if any.
    ///
    /// # Errors
    /// Returns a verdict on the peer if it was asked for the block and sent transactions that do
    /// not match the header.
    pub(super) fn take_block(
        &mut self,
        from: Option<PeerId>,
        block: Block,
        turn: &mut Turn<'_>,
    ) -> Result<Option<Settled>, Verdict> {
        let hash = block.block_hash();
        let sender = from.and_then(|id| self.peers.get_mut(id));
        let was_asked =
            sender.is_some_and(|peer| peer.requests.blocks.take(hash, turn.now).is_some());
        // The block is not in the chain, or nothing waits for it.
        let Some(height) = turn.chain.height_of(&hash) else { return Ok(None) };
        let Some(open) = self.inspections.open_mut(height).filter(|open| open.at.hash == hash)
        else {
            return Ok(None);
        };
        let Ok(bound) = BoundBlock::bind(&block, hash, self.config.network) else {
            // If the peer was not asked for this block, the peer may be relaying a false block that
            // others made up, so the peer is not blamed.
            let reason = was_asked.then_some(Reason::FalseBlock(hash));
            return reason.map_or(Ok(None), |reason| Err(Verdict::Disconnect(reason)));
        };
        // Missing witnesses cannot be proven to be a lie, because txids do not commit to witnesses.
        // Without witnesses, the scan would miss spends whose script only a witness reveals. So
        // another peer is asked.
        if bound.witnesses() == Witnesses::Stripped
            && let Some(id) = from
        {
            open.without_block.insert(id, turn.now);
            open.is_asked = false;
            return Ok(None);
        }
        let judgement = judge(&bound, &open.contents);
        drop(bound);
        self.peers.pace.saw_block(block.total_size());
        let Some(inspection) = self.inspections.remove(height) else { return Ok(None) };
        let lies = self.settle(inspection.at, judgement, turn);
        Ok(Some(Settled { inspection, block, lies }))
    }

    /// Settles the claims about a height with the audit results of its block.
    fn settle(&mut self, at: BlockAt, judgement: Judgement, turn: &mut Turn<'_>) -> Vec<Lie> {
        let mut left = self.claims.hashes(at.height);
        let mut refuted = judgement.refuted;
        if let Some(valid) = judgement.valid {
            // A block has exactly one filter. Once this filter is known, all other claims are
            // false.
            let known = |hash: &FilterHash| refuted.iter().any(|(other, _)| other == hash);
            let others = left.iter().filter(|&hash| *hash != valid && !known(hash));
            let others: Vec<_> = others.map(|&hash| (hash, None)).collect();
            refuted.extend(others);
        }
        left.retain(|hash| refuted.iter().all(|(other, _)| other != hash));
        // The block leaves at least two claims unrefuted.
        if left.len() > 1 {
            turn.report(Finding::Undecided(at));
        } else if judgement.suspicious {
            turn.report(Finding::Suspicious(at));
        }
        let lies: Vec<_> = refuted
            .into_iter()
            .map(|(hash, proof)| Lie {
                liars: self.claims.claimants(at.height, hash),
                earlier: self.claims.is_claimed_earlier(at.height, hash),
                filter: FalseFilter { at, hash, proof },
            })
            .collect();
        let hashes: Vec<_> = lies.iter().map(|lie| lie.filter.hash).collect();
        turn.reopen(self.claims.settle(at.height, &hashes, judgement.valid));
        // An honest filter can look suspicious too. So no peer is blamed, and the filter is no
        // evidence.
        if judgement.suspicious {
            self.claims.set_ambiguous(at.height);
        }
        lies
    }
}

fn judge(block: &BoundBlock<'_>, contents: &BTreeMap<FilterHash, Vec<u8>>) -> Judgement {
    let mut judgement = Judgement::default();
    // The audits get no previous outputs, because the sync knows only what the block itself
    // reveals.
    for (&hash, content) in contents {
        match audit(block, content, Prevouts::None) {
            Audit::Valid(_) => judgement.valid = Some(hash),
            Audit::Invalid(refutation) => {
                let proof = match refutation {
                    Refutation::Proof(proof) => Some(*proof),
                    _ => None,
                };
                judgement.refuted.push((hash, proof));
            }
            Audit::Suspicious { .. } => judgement.suspicious = true,
            Audit::Undecidable(_) => {}
        }
    }
    judgement
}

/// Hands the filter of a height to the caller, and records this as the answer of the height.
pub(super) fn hand_over(claims: &mut Claims, at: BlockAt, content: Vec<u8>, turn: &mut Turn<'_>) {
    // If the height has no grade, no peer vouches for the filter any longer.
    let Some(grade) = claims.grade(at.height) else { return };
    claims.answer(at.height, HeightAnswer::Filter);
    let filter = BlockFilter { block_hash: at.hash, content };
    turn.act(Action::Filter(Box::new(VerifiedFilter { at, filter, grade })));
}

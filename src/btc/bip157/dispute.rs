//! Fetching blocks: where peers dispute a filter, where the caller has a hit, where a spot audit
//! is due; and what the block says of the filters.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use bitcoin::bip158::FilterHash;
use bitcoin::constants::genesis_block;
use bitcoin::{Block, BlockHash};
use core::time::Duration;

use super::interval::Answer;
use super::peers::Asked;
use super::sync::{FilterSync, Look, Turn};
use super::{Action, FalseFilter, Finding, Message, Reason, ScanBlock, VerifiedFilter, Why};
use crate::btc::bip158::audit::{InvalidFilter, Prevouts, Refutation, Verdict, audit};
use crate::btc::bip158::{BlockFilter, BoundBlock, Witnesses, filter_hash};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// Patience over which a block waits for no filter more.
const DISPUTE_PATIENCE: u32 = 4;

/// A height whose block is wanted.
#[derive(Debug, Clone)]
pub(super) struct Inspection {
    pub(super) at: BlockAt,
    pub(super) why: Why,
    /// Filters claimed for it, by hash; from one who claims it, or the caller.
    pub(super) contents: BTreeMap<FilterHash, Vec<u8>>,
    /// Who does not have the block.
    pub(super) without_block: BTreeSet<PeerId>,
    reported: bool,
    /// When it was taken up.
    since: Option<Duration>,
    /// Its block was asked for, when it was last looked at.
    is_asked: bool,
    /// It has one of the places for heights with several filters.
    is_disputed: bool,
}

impl Inspection {
    pub(super) fn new(at: BlockAt, why: Why) -> Self {
        let (contents, without_block) = (BTreeMap::new(), BTreeSet::new());
        Self {
            at,
            why,
            contents,
            without_block,
            reported: false,
            since: None,
            is_asked: false,
            is_disputed: false,
        }
    }

    /// Bytes of its filters.
    pub(super) fn bytes(&self) -> usize {
        self.contents.values().map(Vec::len).sum()
    }
}

/// What a block says of the filters claimed for it.
#[derive(Debug, Default)]
struct Judgement {
    refuted: Vec<(FilterHash, Option<InvalidFilter>)>,
    valid: Option<FilterHash>,
    suspicious: bool,
}

impl FilterSync {
    /// Takes disputes and wanted blocks up, and goes on with those taken up.
    pub(super) fn inspect(&mut self, turn: &mut Turn<'_>) {
        let new = self.begin_inspections(turn);
        let heights: Vec<_> = match turn.look {
            Look::New => new,
            Look::Waiting => {
                let waits = |(_, open): &(&u32, &Inspection)| !open.is_asked;
                self.inspections.iter().filter(waits).map(|(height, _)| *height).collect()
            }
            Look::All => self.inspections.keys().copied().collect(),
        };
        for height in heights {
            self.go_on(height, turn);
        }
        for (id, hashes) in std::mem::take(&mut turn.blocks) {
            turn.actions.push(Action::Send(id, Message::GetBlocks(hashes)));
        }
    }

    /// Takes up as many as there is room for, and returns them.
    fn begin_inspections(&mut self, turn: &mut Turn<'_>) -> Vec<u32> {
        let limit = self.config.limits.inspections.max(1);
        let room = limit.saturating_sub(self.inspections.len());
        let mut new = Vec::new();
        if room == 0 {
            return new;
        }
        let disputed = self.claims.differing.keys().map(|(height, _)| *height);
        let mut disputed: Vec<_> =
            disputed.filter(|height| !self.is_wanted(*height)).take(room).collect();
        disputed.dedup();
        for height in disputed {
            let Some(at) = turn.block_at(height) else { continue };
            self.report_dispute(at, turn);
            self.want(at);
        }
        for _ in 0..room {
            let Some((height, inspection)) = self.wanted.pop_first() else { break };
            self.kept_bytes -= inspection.bytes();
            self.inspections.insert(height, inspection);
            new.push(height);
        }
        new
    }

    fn report_dispute(&self, at: BlockAt, turn: &mut Turn<'_>) {
        let claims = self.claims.hashes(at.height).into_iter().map(|hash| {
            let mut claimants = self.claims.claimants(at.height, hash);
            claimants.retain(|peer| self.peers.contains_key(peer));
            (hash, claimants)
        });
        turn.report(Finding::Disputed { at, claims: claims.collect() });
    }

    /// Fetches what is missing of an inspection: first each filter claimed, then the block.
    fn go_on(&mut self, height: u32, turn: &mut Turn<'_>) {
        self.limit_claims(height, turn);
        let pace = self.pace();
        let hashes = self.claims.hashes(height);
        // Each keeps a filter of every peer, so that only so many are settled at a time.
        let has_place = hashes.len() < 2 || {
            let others = self.inspections.iter().filter(|(other, _)| **other != height);
            let disputed = others.filter(|(_, open)| open.is_disputed).count();
            disputed < self.config.limits.disputes.max(1)
        };
        let Some(inspection) = self.inspections.get_mut(&height) else { return };
        let waited = turn.now.saturating_sub(*inspection.since.get_or_insert(turn.now));
        let is_ambiguous = self.claims.at(height).is_some_and(|at| at.ambiguous);
        if inspection.why == Why::Disputed && !is_ambiguous && hashes.len() < 2 {
            return self.dissolve(height, turn);
        }
        // What nobody claims any more is of no use.
        let accepted = self.claims.at(height).map(|at| at.hash);
        inspection.contents.retain(|hash, _| hashes.contains(hash) || accepted == Some(*hash));
        if !has_place && !inspection.is_disputed {
            return;
        }
        inspection.is_disputed |= hashes.len() > 1;
        let missing = hashes.iter().filter(|hash| !inspection.contents.contains_key(*hash));
        let missing: Vec<_> = missing.copied().collect();
        let mut waits = false;
        for hash in missing {
            waits |= self.ask_for_claimed(height, hash, turn);
        }
        // Else liars that come one after the other would put it off for ever.
        if !waits || waited > pace.patience.saturating_mul(DISPUTE_PATIENCE) {
            self.ask_for_block(height, turn);
        }
    }

    /// Where more claims came, one after the other, than are kept, none counts, and the block
    /// alone answers.
    fn limit_claims(&mut self, height: u32, turn: &mut Turn<'_>) {
        let limit = self.config.limits.peers.saturating_mul(2);
        if self.claims.differing_at(height).count() <= limit {
            return;
        }
        let told = self.claims.at(height).is_some_and(|at| at.answer == Answer::Filter);
        self.claims.drop_differing(height, |_| true);
        self.claims.doubt(height);
        self.claims.answer(height, Answer::None);
        if let Some(inspection) = self.inspections.get_mut(&height) {
            inspection.contents.clear();
        }
        if told {
            turn.actions.push(Action::Reopened(height, height));
        }
    }

    /// Nobody differs any more.
    fn dissolve(&mut self, height: u32, turn: &mut Turn<'_>) {
        let Some(mut inspection) = self.inspections.remove(&height) else { return };
        let peers = &self.peers;
        self.claims.drop_differing(height, |peer| !peers.contains_key(&peer));
        let Some(known) = self.claims.at(height).copied() else { return };
        if let Some(content) = inspection.contents.remove(&known.hash)
            && known.answer == Answer::None
            && !known.ambiguous
        {
            self.hand_over(inspection.at, content, turn);
        }
    }

    /// Asks one of those who claim a filter for it; returns whether it may come.
    fn ask_for_claimed(&mut self, height: u32, hash: FilterHash, turn: &mut Turn<'_>) -> bool {
        let pace = self.pace();
        let claimants = self.claims.claimants(height, hash);
        let connected = self.peers.iter().filter(|(id, _)| claimants.contains(id));
        let able = connected.filter(|(_, peer)| peer.height(turn.chain) >= Some(height));
        let able: Vec<_> = able.collect();
        let is_coming = able.iter().any(|(_, peer)| {
            let is_slow = peer.is_slow(turn.now, pace);
            peer.requests.iter().any(|request| {
                let urgent = matches!(request.asked, Asked::Filters { for_dispute: true, .. });
                request.brings_filter(height) && (urgent || !is_slow)
            })
        });
        if is_coming {
            return true;
        }
        let chosen = able
            .into_iter()
            .min_by_key(|(_, peer)| (peer.rests(turn.now, pace), peer.requests.len()));
        let Some((&id, _)) = chosen else { return false };
        self.ask_peer_for_filters(id, height, vec![hash], true, turn);
        true
    }

    fn ask_for_block(&mut self, height: u32, turn: &mut Turn<'_>) {
        let pace = self.pace();
        let most = pace.blocks_per_peer();
        let Some(inspection) = self.inspections.get_mut(&height) else { return };
        inspection.without_block.retain(|peer| self.peers.contains_key(peer));
        let at = inspection.at;
        let mut peers = self.peers.values();
        inspection.is_asked = peers.any(|peer| peer.brings_block(at.hash, turn.now, pace));
        if inspection.is_asked {
            return;
        }
        let able = self.peers.iter_mut().filter(|(id, peer)| {
            !inspection.without_block.contains(id)
                && peer.height(turn.chain) >= Some(height)
                && !peer.is_asked_for_block(at.hash)
        });
        let choice = able.min_by_key(|(_, peer)| {
            (!peer.has_room(most), peer.rests(turn.now, pace), peer.num_requests())
        });
        match choice {
            Some((_, peer)) if !peer.has_room(most) => {}
            Some((id, peer)) => {
                inspection.is_asked = true;
                peer.ask_for_block(at, turn.now, most);
                turn.blocks.entry(*id).or_default().push(at.hash);
            }
            // Nobody disputes it, and nobody has the block.
            None if inspection.why == Why::SpotAudit => self.dissolve(height, turn),
            None if inspection.reported => {}
            None => {
                inspection.reported = true;
                turn.report(Finding::BlockUnavailable(at));
            }
        }
    }

    pub(super) fn miss_block(&mut self, id: PeerId, hash: BlockHash, now: Duration) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(height) = peer.take_block(hash, now) else { return };
        if let Some(inspection) = self.inspections.get_mut(&height)
            && inspection.at.hash == hash
        {
            inspection.without_block.insert(id);
        }
    }

    pub(super) fn take_block(&mut self, from: Option<PeerId>, block: Block, turn: &mut Turn<'_>) {
        let hash = block.block_hash();
        let asked = from.and_then(|id| Some((id, self.peers.get_mut(&id)?)));
        let asked = asked.and_then(|(id, peer)| peer.take_block(hash, turn.now).map(|_| id));
        let Some(height) = turn.chain.height_of(&hash) else { return };
        if self.inspections.get(&height).is_none_or(|open| open.at.hash != hash) {
            return;
        }
        let Ok(bound) = BoundBlock::bind(&block, hash, self.config.network) else {
            if let Some(id) = asked {
                self.disconnect(id, Reason::FalseBlock(hash), turn);
            }
            return;
        };
        if bound.witnesses() == Witnesses::Stripped
            && let Some(id) = from
        {
            let open = self.inspections.get_mut(&height).expect("found above");
            open.without_block.insert(id);
            open.is_asked = false;
            return;
        }
        // A larger block counts at once, smaller ones slowly: too few in flight cost time, too many
        // the timeouts of what comes after them.
        let size = block.total_size();
        self.block_size = size.max(self.block_size - self.block_size / 8 + size / 8);
        let inspection = self.inspections.remove(&height).expect("found above");
        let judgement = judge(&bound, &inspection.contents);
        drop(bound);
        self.settle(inspection, judgement, block, turn);
    }

    fn settle(
        &mut self,
        mut inspection: Inspection,
        judgement: Judgement,
        block: Block,
        turn: &mut Turn<'_>,
    ) {
        let (at, why) = (inspection.at, inspection.why);
        let mut left = self.claims.hashes(at.height);
        let mut refuted = judgement.refuted;
        if let Some(valid) = judgement.valid {
            let known = |hash: &FilterHash| refuted.iter().any(|(other, _)| other == hash);
            let others = left.iter().filter(|&hash| *hash != valid && !known(hash));
            let others: Vec<_> = others.map(|&hash| (hash, None)).collect();
            refuted.extend(others);
        }
        left.retain(|hash| refuted.iter().all(|(other, _)| other != hash));
        if left.len() > 1 {
            turn.report(Finding::Undecided(at));
        } else if judgement.suspicious {
            turn.report(Finding::Suspicious(at));
        }
        let convicted: Vec<_> = refuted
            .into_iter()
            .map(|(hash, proof)| {
                let liars = self.claims.claimants(at.height, hash);
                let earlier = self.claims.is_claimed_earlier(at.height, hash);
                (liars, earlier, FalseFilter { at, hash, proof })
            })
            .collect();
        let hashes: Vec<_> = convicted.iter().map(|(.., false_filter)| false_filter.hash).collect();
        self.claims.settle(at.height, &hashes, judgement.valid);
        if judgement.suspicious {
            self.claims.doubt(at.height);
        }
        for (liars, earlier, false_filter) in convicted {
            self.claims.refute(at.height, false_filter.hash);
            let reason = Reason::FalseFilter(Box::new(false_filter));
            self.convict(&liars, earlier, &reason, turn);
        }
        let known = self.claims.at(at.height).filter(|known| !known.ambiguous);
        let content = known.and_then(|known| inspection.contents.remove(&known.hash));
        let filter = content.map(|content| BlockFilter { block_hash: at.hash, content });
        turn.actions.push(Action::Block(Box::new(ScanBlock { at, block, why, filter })));
    }

    /// The caller has a hit.
    pub(super) fn want_block(&mut self, filter: VerifiedFilter, turn: &mut Turn<'_>) {
        let VerifiedFilter { at, filter, .. } = filter;
        if at.height == 0 {
            let block = genesis_block(self.config.network);
            let scan = ScanBlock { at, block, why: Why::Matched, filter: Some(filter) };
            turn.actions.push(Action::Block(Box::new(scan)));
            return;
        }
        // What has been reopened meanwhile, others may answer otherwise: a hit is not given up.
        if self.claims.at(at.height).is_none() || turn.block_at(at.height) != Some(at) {
            return;
        }
        let hash = filter_hash(&filter.content);
        let content = self.claims.hashes(at.height).contains(&hash).then_some(filter.content);
        let content = content.map(|content| (hash, content));
        match self.inspections.get_mut(&at.height) {
            Some(open) => {
                open.why = Why::Matched;
                open.contents.extend(content);
                turn.look = Look::All;
            }
            None => self.want_with(at, Why::Matched, content),
        }
    }

    /// Has a block fetched as soon as there is room. Its filter is kept, if there is room for it;
    /// else it is fetched again from one who claims it.
    pub(super) fn want_with(
        &mut self,
        at: BlockAt,
        why: Why,
        content: Option<(FilterHash, Vec<u8>)>,
    ) {
        let before = self.wanted.get(&at.height).map_or(0, Inspection::bytes);
        let limit = self.config.limits.kept_bytes;
        let kept = self.kept_bytes;
        let has_room =
            content.as_ref().is_some_and(|(_, filter)| filter.len() <= limit.saturating_sub(kept));
        let wanted = self.want(at);
        // A match stays one: the caller waits for the block, whatever else it is good for.
        if wanted.why != Why::Matched {
            wanted.why = why;
        }
        wanted.contents.extend(content.filter(|_| has_room));
        let bytes = wanted.bytes();
        if self.wanted.contains_key(&at.height) {
            self.kept_bytes += bytes - before;
        }
    }

    /// Whether the block of a height is being fetched, or will be.
    pub(super) fn is_wanted(&self, height: u32) -> bool {
        self.inspections.contains_key(&height) || self.wanted.contains_key(&height)
    }

    /// Has a block fetched as soon as there is room, if it is not being fetched.
    pub(super) fn want(&mut self, at: BlockAt) -> &mut Inspection {
        let new = || Inspection::new(at, Why::Disputed);
        match self.inspections.get_mut(&at.height) {
            Some(open) => open,
            None => self.wanted.entry(at.height).or_insert_with(new),
        }
    }

    /// Someone shows that a filter is false.
    pub(super) fn take_proof(&mut self, proof: &InvalidFilter, turn: &mut Turn<'_>) {
        let Some(height) = turn.chain.height_of(&proof.block_hash) else { return };
        if proof.verify(proof.block_hash, self.config.network).is_err() {
            return;
        }
        let hash = filter_hash(&proof.filter);
        let at = BlockAt { height, hash: proof.block_hash };
        let liars = self.claims.claimants(height, hash);
        let earlier = self.claims.is_claimed_earlier(height, hash);
        if self.claims.at(height).is_none() {
            return;
        }
        let is_remembered = self.claims.refute(height, hash);
        let false_filter = FalseFilter { at, hash, proof: Some(proof.clone()) };
        self.convict(&liars, earlier, &Reason::FalseFilter(Box::new(false_filter)), turn);
        let Some(known) = self.claims.at(height).copied() else { return };
        // Nobody claims another filter, or someone may claim this one unnoticed.
        if known.audited || known.hash != hash && is_remembered {
            return;
        }
        match known.answer {
            Answer::Unwanted => {}
            Answer::Block => {
                if known.hash == hash {
                    self.claims.doubt(height);
                }
            }
            Answer::None | Answer::Filter => {
                self.claims.answer(height, Answer::None);
                self.claims.doubt(height);
                self.want(at);
            }
        }
    }
}

fn judge(block: &BoundBlock<'_>, contents: &BTreeMap<FilterHash, Vec<u8>>) -> Judgement {
    let mut judgement = Judgement::default();
    for (&hash, content) in contents {
        match audit(block, content, Prevouts::None) {
            Verdict::Valid(_) => judgement.valid = Some(hash),
            Verdict::Invalid(refutation) => {
                let proof = match refutation {
                    Refutation::Proof(proof) => Some(*proof),
                    _ => None,
                };
                judgement.refuted.push((hash, proof));
            }
            Verdict::Suspicious(_) => judgement.suspicious = true,
            Verdict::Undecidable(_) => {}
        }
    }
    judgement
}

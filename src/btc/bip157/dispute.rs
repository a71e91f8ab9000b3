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
use super::sync::{FilterSync, Turn};
use super::{Action, FalseFilter, Finding, Message, Reason, ScanBlock, VerifiedFilter, Why};
use crate::btc::bip158::audit::{InvalidFilter, Prevouts, Refutation, Verdict, audit};
use crate::btc::bip158::{BlockFilter, BoundBlock, Witnesses, filter_hash};
use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// Blocks that one peer is asked for at a time.
const BLOCKS_PER_PEER: usize = 4;

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
}

impl Inspection {
    pub(super) fn new(at: BlockAt, why: Why) -> Self {
        let (contents, without_block) = (BTreeMap::new(), BTreeSet::new());
        Self { at, why, contents, without_block, reported: false, since: None }
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
        self.begin_inspections(turn);
        let heights: Vec<_> = self.inspections.keys().copied().collect();
        for height in heights {
            self.go_on(height, turn);
        }
    }

    fn begin_inspections(&mut self, turn: &mut Turn<'_>) {
        let limit = self.config.limits.inspections.max(1);
        let room = limit.saturating_sub(self.inspections.len());
        if room == 0 {
            return;
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
            self.inspections.insert(height, inspection);
        }
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
        let Some(inspection) = self.inspections.get_mut(&height) else { return };
        let waited = turn.now.saturating_sub(*inspection.since.get_or_insert(turn.now));
        let is_ambiguous = self.claims.at(height).is_some_and(|at| at.ambiguous);
        let hashes = self.claims.hashes(height);
        if inspection.why == Why::Disputed && !is_ambiguous && hashes.len() < 2 {
            return self.dissolve(height, turn);
        }
        let missing = hashes.iter().filter(|hash| !inspection.contents.contains_key(*hash));
        let missing: Vec<_> = missing.copied().collect();
        let mut waits = false;
        for hash in missing {
            waits |= self.ask_for_claimed(height, hash, turn);
        }
        // Else liars that come one after the other would put it off for ever.
        if !waits || waited > self.config.limits.patience.saturating_mul(DISPUTE_PATIENCE) {
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
        let patience = self.config.limits.patience;
        let claimants = self.claims.claimants(height, hash);
        let connected = self.peers.iter().filter(|(id, _)| claimants.contains(id));
        let able = connected.filter(|(_, peer)| peer.height(turn.chain) >= Some(height));
        let able: Vec<_> = able.collect();
        let is_coming = able.iter().any(|(_, peer)| {
            let is_slow = peer.is_slow(turn.now, patience);
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
            .min_by_key(|(_, peer)| (peer.rests(turn.now, patience), peer.requests.len()));
        let Some((&id, _)) = chosen else { return false };
        self.ask_peer_for_filters(id, height, vec![hash], true, turn);
        true
    }

    fn ask_for_block(&mut self, height: u32, turn: &mut Turn<'_>) {
        let patience = self.config.limits.patience;
        let Some(inspection) = self.inspections.get_mut(&height) else { return };
        inspection.without_block.retain(|peer| self.peers.contains_key(peer));
        let at = inspection.at;
        let is_coming = self
            .peers
            .values()
            .any(|peer| peer.is_asked_for_block(at.hash) && !peer.is_slow(turn.now, patience));
        if is_coming {
            return;
        }
        let able = self.peers.iter_mut().filter(|(id, peer)| {
            !inspection.without_block.contains(id)
                && peer.height(turn.chain) >= Some(height)
                && !peer.is_asked_for_block(at.hash)
        });
        let choice = able.min_by_key(|(_, peer)| {
            let is_busy = peer.num_blocks() >= BLOCKS_PER_PEER;
            (is_busy, peer.rests(turn.now, patience), peer.requests.len())
        });
        match choice {
            Some((_, peer)) if peer.num_blocks() >= BLOCKS_PER_PEER => {}
            Some((&id, peer)) => {
                peer.ask(Asked::Block, at, turn.now);
                turn.actions.push(Action::Send(id, Message::GetBlock(at.hash)));
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

    pub(super) fn miss_block(&mut self, id: PeerId, hash: BlockHash) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let is_it = |request: &super::peers::Request| {
            request.asked == Asked::Block && request.stop.hash == hash
        };
        let Some(request) = peer.take(is_it) else { return };
        if let Some(inspection) = self.inspections.get_mut(&request.stop.height)
            && inspection.at == request.stop
        {
            inspection.without_block.insert(id);
        }
    }

    pub(super) fn take_block(&mut self, from: Option<PeerId>, block: Block, turn: &mut Turn<'_>) {
        let hash = block.block_hash();
        let asked = from.and_then(|id| Some((id, self.peers.get_mut(&id)?)));
        let asked = asked.and_then(|(id, peer)| {
            let is_it = |request: &super::peers::Request| {
                request.asked == Asked::Block && request.stop.hash == hash
            };
            peer.take(is_it).map(|_| id)
        });
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
            return;
        }
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
        let kept = self.wanted.values().map(|wanted| wanted.contents.len()).sum::<usize>();
        let has_room = kept < self.config.limits.kept_filters;
        let wanted = self.want(at);
        // A match stays one: the caller waits for the block, whatever else it is good for.
        if wanted.why != Why::Matched {
            wanted.why = why;
        }
        wanted.contents.extend(content.filter(|_| has_room));
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

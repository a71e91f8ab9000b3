//! The answers: a merkle block, its transactions, and what closes it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use bitcoin::{BlockHash, Transaction, Txid, Witness};

use super::claims::Answer;
use super::recent::Standing;
use super::session::{Actions, InFlight, Session, report};
use super::{Finding, Relevance, RelevantTransaction};
use crate::btc::bip37::{BloomFilter, Inclusion, MerkleBlock, Policy, Proof, ProofError};
use crate::btc::headers::BlockAt;

/// The most that the transactions of a block have without witness: a quarter of
/// `MAX_BLOCK_WEIGHT`.
const MAX_BLOCK_BASE_SIZE: usize = 1_000_000;

/// How many blocks passed over are told apart.
const MAX_PASSED_OVER: usize = 1_000;

/// A merkle block whose transactions are coming.
#[derive(Debug, Clone)]
pub(super) struct OpenBlock {
    pub(super) request: InFlight,
    merkle_block: MerkleBlock,
    proof: Proof,
    /// By position, with the ids.
    pub(super) delivered: BTreeMap<u32, (Txid, Transaction)>,
    /// Transactions that came and are passed over.
    refused: BTreeSet<Txid>,
    bytes: usize,
    /// The filter that the answer can be held against.
    filter: Option<Arc<BloomFilter>>,
}

/// Where a confirmed transaction stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    block: BlockAt,
    index: u32,
    /// What the node's filter lacks of it is a reason to start over.
    counts: bool,
    /// The caller's chain has the block.
    in_chain: bool,
}

/// What became of a transaction for an open block.
enum Delivery {
    Taken,
    /// The transaction alone is passed over.
    Refused(Finding),
    /// The block cannot be what the node says.
    Impossible(Finding),
}

impl OpenBlock {
    fn deliver(&mut self, txid: Txid, tx: Transaction) -> Delivery {
        let block = self.proof.block_hash;
        match self.proof.deliver(&tx) {
            Ok(Some(index)) => {
                self.bytes += tx.base_size();
                self.delivered.insert(index, (txid, tx));
            }
            Ok(None) => {}
            Err(ProofError::TransactionOf64Bytes { index, txid }) => {
                self.refused.insert(txid);
                return Delivery::Refused(Finding::Refused { block, index, txid });
            }
            Err(error) => {
                return Delivery::Impossible(Finding::InvalidMerkleBlock(block, error));
            }
        }
        if self.bytes > MAX_BLOCK_BASE_SIZE {
            return Delivery::Impossible(Finding::OversizedBlock(block));
        }
        Delivery::Taken
    }

    fn is_complete(&self) -> bool {
        self.delivered.len() + self.refused.len() == self.proof.inclusions.len()
    }
}

impl Session {
    pub(super) fn merkle_block(&mut self, merkle_block: MerkleBlock, actions: &mut Actions) {
        self.close(actions);
        let hash = merkle_block.header.block_hash();
        let Some(connection) = &mut self.connection else { return };
        let asked = connection.in_flight.iter().position(|request| request.block.hash == hash);
        let Some(request) = asked.and_then(|place| connection.in_flight.remove(place)) else {
            // Which answer belongs to which request is no longer certain; but before a pong that
            // has come, or on a connection before, there was none too many.
            connection.out_of_turn = true;
            self.answers.retain(|answer| answer.settled);
            return report(actions, Finding::Unrequested(hash));
        };
        let proof = match Proof::verify(&merkle_block, Policy::Strict(self.config.network), []) {
            Ok(proof) => proof,
            Err(error) => return report(actions, Finding::InvalidMerkleBlock(hash, error)),
        };
        let can_be_held = request.generation == connection.generation
            && !connection.out_of_turn
            && !connection.passed_over.contains(&hash);
        let filter = connection.filter.as_ref().map(|(loaded, _)| loaded.clone());
        let nothing_to_come = proof.inclusions.is_empty();
        connection.open = Some(OpenBlock {
            request,
            merkle_block,
            proof,
            delivered: BTreeMap::new(),
            refused: BTreeSet::new(),
            bytes: 0,
            filter: filter.filter(|_| can_be_held),
        });
        if nothing_to_come {
            self.close(actions);
        }
    }

    /// A transaction, of an open block or not. Witnesses are dropped: what BIP37 delivers has
    /// none, no id commits to them, and no limit counts them.
    pub(super) fn transaction(&mut self, mut tx: Transaction, actions: &mut Actions) {
        for input in &mut tx.input {
            input.witness = Witness::new();
        }
        let txid = tx.compute_txid();
        let slot = self.connection.as_mut().map(|connection| &mut connection.open);
        if let Some(slot) = slot
            && let Some(open) = slot
        {
            match open.proof.inclusion(txid).map(|leaf| leaf.delivered) {
                Some(true) => return,
                Some(false) if open.refused.contains(&txid) => return,
                Some(false) => {
                    self.missing.remove(&txid);
                    match open.deliver(txid, tx) {
                        Delivery::Taken => {}
                        Delivery::Refused(finding) => report(actions, finding),
                        Delivery::Impossible(finding) => {
                            *slot = None;
                            return report(actions, finding);
                        }
                    }
                    if open.is_complete() {
                        self.close(actions);
                    }
                    return;
                }
                None if !self.missing.contains_key(&txid) => {
                    let block = open.proof.block_hash;
                    report(actions, Finding::NotInTree { block, txid });
                }
                None => {}
            }
        }
        match self.missing.remove(&txid) {
            Some((block, index)) if tx.base_size() == 64 => {
                report(actions, Finding::Refused { block: block.hash, index, txid });
            }
            Some((block, index)) => {
                let place = Place { block, index, counts: true, in_chain: true };
                self.confirmed(place, txid, tx, actions);
            }
            None => self.unconfirmed(txid, tx, actions),
        }
    }

    /// Closes the block whose transactions are coming: what is outstanding now was not delivered.
    pub(super) fn close(&mut self, actions: &mut Actions) {
        let Some(connection) = &mut self.connection else { return };
        let Some(mut open) = connection.open.take() else { return };
        let OpenBlock { request, .. } = open;
        let hash = request.block.hash;
        for leaf in open.proof.inclusions.clone() {
            let Inclusion { index, txid, delivered } = leaf;
            if delivered || open.refused.contains(&txid) {
                continue;
            }
            if let Some(copy) = self.recent.get(&txid) {
                match open.deliver(txid, copy.clone()) {
                    Delivery::Taken => {}
                    Delivery::Refused(finding) => report(actions, finding),
                    Delivery::Impossible(finding) => return report(actions, finding),
                }
                continue;
            }
            report(actions, Finding::NotDelivered { block: hash, index, txid });
            if self.missing.len() < self.config.limits.missing {
                self.missing.insert(txid, (request.block, index));
            }
        }
        if request.generation == connection.generation
            && !request.superseded
            && let Some((_, mirror)) = &mut connection.filter
        {
            for (_, tx) in open.delivered.values() {
                mirror.match_transaction(tx);
            }
        }
        for (index, (txid, tx)) in open.delivered {
            let place = Place {
                block: request.block,
                index,
                counts: !request.superseded,
                in_chain: request.in_chain,
            };
            self.confirmed(place, txid, tx, actions);
        }
        if !request.superseded {
            self.lowest_since_advance(request.block);
        }
        let transactions = u64::from(open.proof.num_transactions);
        self.stats.transactions = self.stats.transactions.saturating_add(transactions);
        let link = self.link(&request);
        report(actions, Finding::Block(Box::new(open.proof.linked(link))));
        self.advise_refresh(actions);
        if let Some(filter) = open.filter {
            self.keep_answer(Answer {
                block_hash: hash,
                merkle_block: open.merkle_block,
                filter,
                connection: self.connections,
                fence: request.fence,
                settled: false,
            });
        }
    }

    /// A transaction in a block: the wallet's, or a false positive.
    fn confirmed(
        &mut self,
        place: Place,
        txid: Txid,
        transaction: Transaction,
        actions: &mut Actions,
    ) {
        let Place { block, index, counts, in_chain } = place;
        let relevance = self.watch.relevance(&transaction);
        let standing = if in_chain {
            Standing::InBlock { height: block.height, reported: !relevance.is_empty() }
        } else {
            Standing::Dropped
        };
        // Asked again for the block, the node may not send it again.
        self.recent.insert(txid, &transaction, standing, self.config.limits.cached_bytes);
        if relevance.is_empty() {
            let is_null_outpoint = self.config.filter.insert_null_outpoint && index == 0;
            if !is_null_outpoint {
                self.stats.false_positives += 1;
                report(actions, Finding::FalsePositive(txid, Some(block.hash)));
            }
            return;
        }
        self.stats.relevant += 1;
        let limit = self.config.limits.outpoints;
        let (needed, dropped) = self.watch.learn(&transaction, txid, &relevance, limit);
        if dropped > 0 {
            report(actions, Finding::LimitReached(dropped));
        }
        let lacks = |mirror: &BloomFilter| needed.iter().any(|o| !mirror.contains_outpoint(o));
        if counts && self.mirrored_filter().is_some_and(lacks) {
            self.filter_is_behind = true;
            self.refilter_from(block);
        }
        self.advance(&relevance, Some(block.hash), actions);
        if counts {
            self.lowest_since_advance(block);
        }
        let place = Some((block.hash, index));
        let relevant = RelevantTransaction { transaction, txid, place, relevance };
        report(actions, Finding::Relevant(Box::new(relevant)));
    }

    fn unconfirmed(&mut self, txid: Txid, tx: Transaction, actions: &mut Actions) {
        let standing = self.recent.standing(&txid);
        if standing.is_some_and(Standing::is_reported) {
            return;
        }
        // The node may have announced it under a filter before this one: the copy of the node's
        // filter, a lower bound, does not take it in.
        let relevance = self.watch.relevance(&tx);
        if !relevance.is_empty() {
            return self.report_unconfirmed(txid, tx, relevance, actions);
        }
        if standing.is_none() {
            let limit = self.config.limits.cached_bytes;
            self.recent.insert(txid, &tx, Standing::Foreign, limit);
            report(actions, Finding::FalsePositive(txid, None));
        }
    }

    fn report_unconfirmed(
        &mut self,
        txid: Txid,
        transaction: Transaction,
        relevance: Relevance,
        actions: &mut Actions,
    ) {
        let limit = self.config.limits.cached_bytes;
        self.recent.insert(txid, &transaction, Standing::Reported, limit);
        self.watch.learn_unconfirmed(txid, &relevance);
        self.advance(&relevance, None, actions);
        let relevant = RelevantTransaction { transaction, txid, place: None, relevance };
        report(actions, Finding::Relevant(Box::new(relevant)));
    }

    /// Reports what came outside of blocks before it was known to be the wallet's.
    pub(super) fn compare_again(&mut self, actions: &mut Actions) {
        let is_own = |(txid, tx)| (!self.watch.relevance(tx).is_empty()).then_some(txid);
        let own: Vec<Txid> = self.recent.foreign().filter_map(is_own).collect();
        for txid in own {
            if let Some(tx) = self.recent.get(&txid).cloned() {
                let relevance = self.watch.relevance(&tx);
                self.report_unconfirmed(txid, tx, relevance, actions);
            }
        }
    }

    /// Notes the highest index used of each keychain.
    fn advance(&mut self, relevance: &Relevance, block: Option<BlockHash>, actions: &mut Actions) {
        for label in relevance.received.iter().filter_map(|received| received.label) {
            let used = self.used.get(&label.keychain);
            if used.is_some_and(|&used| used >= label.index) {
                continue;
            }
            self.used.insert(label.keychain, label.index);
            self.advanced.entry(label.keychain).or_insert(None);
            report(actions, Finding::KeychainAdvanced { label, block });
        }
    }

    /// Notes that `block` was answered without the scripts to come of keychains that have
    /// advanced: in it, before it, or by a transaction outside of blocks.
    fn lowest_since_advance(&mut self, block: BlockAt) {
        for lowest in self.advanced.values_mut() {
            if lowest.is_none_or(|lowest| block.height < lowest.height) {
                *lowest = Some(block);
            }
        }
    }

    fn advise_refresh(&mut self, actions: &mut Actions) {
        let Some(mirror) = self.mirrored_filter() else { return };
        let reason = self.stats.refresh(mirror.false_positive_rate(), self.config.filter.fpr);
        if let Some(reason) = reason
            && !self.refresh_advised
        {
            self.refresh_advised = true;
            report(actions, Finding::RefreshAdvised(reason));
        }
    }

    /// The node has come to the end of what was asked before this fence.
    pub(super) fn fence(&mut self, fence: u64, actions: &mut Actions) {
        let Some(connection) = &mut self.connection else { return };
        if !self.fences.contains(&fence) {
            return;
        }
        for request in &connection.in_flight {
            if request.fence > fence {
                continue;
            }
            if connection.passed_over.len() < MAX_PASSED_OVER {
                connection.passed_over.insert(request.block.hash);
            } else {
                connection.out_of_turn = true;
            }
            if !request.superseded {
                report(actions, Finding::Unanswered(request.block.hash));
            }
        }
        connection.in_flight.retain(|request| request.fence > fence);
        if !connection.out_of_turn {
            for answer in &mut self.answers {
                answer.settled |= answer.fence <= fence;
            }
        }
    }
}

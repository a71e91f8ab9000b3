//! The session: events are taken, and its parts asked what follows.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::{Network, OutPoint, Transaction, Txid, Witness};

use super::advance::Advance;
use super::answers::{Answer, Answers};
use super::config::Config;
use super::elements::{FilterElements, is_watchable};
use super::event::{Action, ClosedBlock, Event, Finding, Message};
use super::fences::Fences;
use super::missing::Missing;
use super::node_filter::NodeFilter;
use super::open_block::{Delivery, Leaf, OpenBlock, Parts};
use super::policy::FilterPolicy;
use super::recent::{Recent, Standing};
use super::request::Request;
use super::requests::Requests;
use super::stats::{MatchStats, Stats};
use crate::btc::bip37::{BloomFilter, HeaderLink, MerkleBlock, Policy, Proof};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::{History, Place, Relevance, RelevantTransaction, Watch, Watched};

/// A wallet's connection to a node with bloom filters, one at a time.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use chainsieve::bitcoin::{Network, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::session::*;
/// use chainsieve::btc::wallet::{Label, Watched};
///
/// let policy = FilterPolicy::new(0x5eed);
/// let mut session = Session::new(Config::new(Network::Bitcoin, policy));
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// let label = Some(Label { keychain: 0, index: 0 });
/// session.handle(Event::Watch(vec![Watched::Script { script, label }]), Duration::ZERO);
/// let actions = session.handle(Event::Connected, Duration::ZERO);
/// let loads = |action: &Action| matches!(action, Action::Send(Message::FilterLoad(_)));
/// assert!(actions.iter().any(loads));
/// // To be kept with the tweak: room for this script and 100 elements more.
/// assert_eq!(session.filter_policy().capacity, 101);
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    network: Network,
    watch: Watch,
    elements: FilterElements,
    filter: NodeFilter,
    stats: Stats,
    requests: Requests,
    fences: Fences,
    answers: Answers,
    recent: Recent,
    missing: Missing,
    advance: Advance,
    tip: Option<u32>,
    is_connected: bool,
    /// Connections so far.
    connections: u64,
}

/// Where a confirmed transaction stands.
#[derive(Debug, Clone, Copy)]
struct Confirmed {
    place: Place,
    /// If the node's filter lacks something of it, that is a reason to start over.
    counts: bool,
    /// The caller's chain has the block.
    is_in_chain: bool,
}

/// Collects actions.
type Actions = Vec<Action>;

fn report(actions: &mut Actions, finding: Finding) {
    actions.push(Action::Report(finding));
}

impl Session {
    /// A session that watches nothing and is not connected.
    pub fn new(config: Config) -> Self {
        let Config { network, filter, address_population, limits } = config;
        let watch = Watch::with_output_limit(limits.outpoints);
        Self {
            network,
            elements: FilterElements::of(&watch, &filter),
            watch,
            filter: NodeFilter::new(filter, address_population),
            stats: Stats::new(),
            requests: Requests::new(&limits),
            fences: Fences::new(filter.tweak),
            answers: Answers::new(&limits),
            recent: Recent::new(limits.cached_bytes),
            missing: Missing::new(limits.missing),
            advance: Advance::default(),
            tip: None,
            is_connected: false,
            connections: 0,
        }
    }

    /// What is watched, and the coins found.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The policy with the capacity as it is now. Keep tweak and capacity with the wallet.
    pub fn filter_policy(&self) -> &FilterPolicy {
        self.filter.policy()
    }

    /// The number of the present connection, or of the last: they count from 1, one for each
    /// [`Event::Connected`], and it is 0 before the first.
    ///
    /// Findings about an answer name the connection that it came on. Note which node each was to:
    /// answers that can be held against a node outlive its connection.
    pub fn connection(&self) -> u64 {
        self.connections
    }

    /// The node's filter as far as it can be followed: it may hold more.
    pub fn mirrored_filter(&self) -> Option<&BloomFilter> {
        self.filter.mirror()
    }

    /// How often foreign transactions matched since the filter was loaded.
    pub fn match_stats(&self) -> &MatchStats {
        self.stats.matches()
    }

    /// Requests not closed yet: sent or not.
    pub fn pending_requests(&self) -> usize {
        self.requests.num_pending()
    }

    /// Takes an event at the time `now`, counted from any one moment, and returns what to do, in
    /// order. Where `now` is less than before, waiting counts from there.
    ///
    /// # Cost
    /// In proportion to the event: an answer's tree and transactions, a claim's path. Loading a
    /// filter inserts everything watched; watching more compares the transactions kept of those
    /// that came outside of blocks.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Connected => self.connect(&mut actions),
            Event::Disconnected => self.disconnect(),
            Event::Watch(watched) => self.add_watched(watched, &mut actions),
            Event::Unwatch { scripts, outpoints } => self.remove_watched(scripts, &outpoints),
            Event::Request(blocks) => {
                let excess = self.requests.enqueue(blocks);
                if excess > 0 {
                    report(&mut actions, Finding::LimitReached(excess));
                }
            }
            Event::Tip(height) => self.tip = Some(height),
            Event::Reorganized(height) => self.reorganize(height),
            Event::Used(label) => self.advance.set_used(label),
            Event::Refresh => self.load(&mut actions),
            Event::MerkleBlock(block) => self.merkle_block(block, &mut actions),
            Event::Tx(tx) => self.transaction(tx, &mut actions),
            Event::Pong(nonce) => {
                self.close(&mut actions);
                self.pong(nonce, &mut actions);
            }
            // Transactions of a block follow its tree at once, so any other message closes it.
            Event::Other => self.close(&mut actions),
            Event::OmissionClaim(block, shown) => {
                report(&mut actions, self.answers.omission(self.network, block, &shown));
            }
            Event::HeightClaim(block, shown) => {
                report(&mut actions, self.answers.false_height(self.network, block, &shown));
            }
            Event::Tick => {}
        }
        self.catch_up(&mut actions);
        self.send_requests(now, &mut actions);
        if let Some((block, waited)) = self.requests.check_timeout(now) {
            report(&mut actions, Finding::Stalled(block, waited));
        }
        actions
    }

    fn connect(&mut self, actions: &mut Actions) {
        self.disconnect();
        self.is_connected = true;
        self.connections += 1;
        self.fences.connect();
        self.load(actions);
    }

    fn disconnect(&mut self) {
        self.is_connected = false;
        self.filter.disconnect();
        self.requests.disconnect();
        self.answers.disconnect();
    }

    fn add_watched(&mut self, watched: Vec<Watched>, actions: &mut Actions) {
        let mut keychains = BTreeSet::new();
        let mut is_any_new = false;
        for item in watched {
            if !is_watchable(&item) {
                if let Watched::Script { script, .. } = item {
                    report(actions, Finding::Unwatchable(script));
                }
                continue;
            }
            let label = match &item {
                Watched::Key { label, .. } | Watched::Script { label, .. } => *label,
                Watched::OutPoint { .. } => None,
            };
            let new_element = self.elements.add(&item);
            let (scripts, labelled) = (self.watch.num_scripts(), self.watch.num_labelled());
            self.watch.add(item, History::Unknown);
            let is_labelled = self.watch.num_labelled() > labelled;
            let is_new = new_element || self.watch.num_scripts() > scripts || is_labelled;
            if new_element {
                self.filter.set_behind();
            }
            // Also if the filter had the element before: what pays to the new script was taken
            // for foreign, or, of a script known by its coin alone, for no use of the keychain.
            keychains.extend(label.filter(|_| is_new).map(|label| label.keychain));
            is_any_new |= is_new;
        }
        for keychain in keychains {
            if let Some(block) = self.advance.scripts_came(keychain) {
                self.requests.refilter_from(block);
            }
        }
        if is_any_new {
            self.compare_again(actions);
        }
    }

    fn remove_watched(&mut self, scripts: Vec<usize>, outpoints: &[OutPoint]) {
        self.watch.remove_scripts(scripts);
        for outpoint in outpoints {
            self.watch.remove_outpoint(outpoint);
        }
        // The node's filter is left as it is: a filter cannot forget, and one sent now would only
        // show by the difference what was removed.
        self.elements = FilterElements::of(&self.watch, self.filter.policy());
    }

    fn reorganize(&mut self, height: u32) {
        self.requests.reorganize(height);
        self.missing.reorganize(height);
        self.recent.reorganize(height);
        self.advance.reorganize(height);
        self.watch.unconfirm_from(height);
    }

    /// Loads the filter of everything watched, if that is anything.
    fn load(&mut self, actions: &mut Actions) {
        if !self.is_connected {
            return;
        }
        match self.filter.load(&self.elements) {
            Ok(None) => {}
            Ok(Some(load)) => {
                self.stats = Stats::loaded(load.filter.false_positive_rate());
                if let Some(privacy) = load.privacy {
                    report(actions, Finding::Privacy(privacy));
                }
                actions.push(Action::Send(Message::FilterLoad(load.filter)));
                if load.is_late {
                    self.requests.refilter_in_flight();
                }
            }
            Err(error) => {
                // Starting over with the same filter would never end.
                self.requests.forget_refilter();
                report(actions, Finding::NoFilter(error));
            }
        }
    }

    /// Brings the node's filter up to date, and starts over where that came too late.
    fn catch_up(&mut self, actions: &mut Actions) {
        if self.filter.is_behind() {
            match self.filter.add(&self.elements) {
                Some(added) => {
                    if !added.is_empty() {
                        self.requests.refilter_in_flight();
                    }
                    let added = added.into_iter().map(Message::FilterAdd);
                    actions.extend(added.map(Action::Send));
                }
                None => self.load(actions),
            }
        }
        if let Some(from) = self.requests.take_refilter() {
            report(actions, Finding::Refilter(from));
        }
    }

    /// Asks for as many blocks as may be in flight, with a fence after them.
    fn send_requests(&mut self, now: Duration, actions: &mut Actions) {
        // Without a filter a node answers no filtered block.
        if self.filter.mirror().is_none() {
            return;
        }
        let blocks = self.requests.send(self.filter.generation(), self.fences.next(), now);
        if !blocks.is_empty() {
            actions.push(Action::Send(Message::GetFilteredBlocks(blocks)));
            actions.push(Action::Send(Message::Ping(self.fences.send())));
        }
    }

    fn merkle_block(&mut self, merkle_block: MerkleBlock, actions: &mut Actions) {
        self.close(actions);
        if !self.is_connected {
            return;
        }
        let hash = merkle_block.header.block_hash();
        let Some(request) = self.requests.take(&hash) else {
            self.answers.lose_turn();
            return report(actions, Finding::Unrequested(hash));
        };
        let proof = match Proof::verify(&merkle_block, Policy::Strict(self.network), []) {
            Ok(proof) => proof,
            Err(error) => return report(actions, Finding::InvalidMerkleBlock(hash, error)),
        };
        // A filter sent between request and answer leaves open which of the two was asked.
        let is_held =
            request.generation() == self.filter.generation() && self.answers.is_in_turn(&hash);
        let held_against = self.filter.sent().filter(|_| is_held).cloned();
        let has_all = proof.inclusions.is_empty();
        self.requests.open(OpenBlock::new(request, merkle_block, proof, held_against));
        if has_all {
            self.close(actions);
        }
    }

    /// A transaction, of an open block or not. Witnesses are dropped: what BIP37 delivers has
    /// none, no id commits to them, and no limit counts them.
    fn transaction(&mut self, mut tx: Transaction, actions: &mut Actions) {
        for input in &mut tx.input {
            input.witness = Witness::new();
        }
        let txid = tx.compute_txid();
        if let Some(open) = self.requests.open_mut() {
            match open.leaf(txid) {
                Leaf::Came => return,
                Leaf::Awaited => {
                    self.missing.remove(&txid);
                    match open.deliver(txid, tx) {
                        Delivery::Taken => {}
                        Delivery::Refused(finding) => report(actions, finding),
                        Delivery::Impossible(finding) => {
                            self.requests.close();
                            return report(actions, finding);
                        }
                    }
                    if open.is_complete() {
                        self.close(actions);
                    }
                    return;
                }
                Leaf::Absent if !self.missing.contains(&txid) => {
                    let block = open.request().block().hash;
                    report(actions, Finding::NotInTree { block, txid });
                }
                Leaf::Absent => {}
            }
        }
        match self.missing.remove(&txid) {
            // It may be an inner node of the tree.
            Some((block, index)) if tx.base_size() == 64 => {
                report(actions, Finding::Refused { block: block.hash, index, txid });
            }
            Some((block, index)) => {
                let place = Place { block, index };
                let confirmed = Confirmed { place, counts: true, is_in_chain: true };
                self.confirmed(confirmed, txid, tx, actions);
            }
            None => self.unconfirmed(txid, tx, actions),
        }
    }

    /// Closes the block whose transactions are coming: what is outstanding now was not delivered.
    fn close(&mut self, actions: &mut Actions) {
        let Some(mut open) = self.requests.close() else { return };
        let request = *open.request();
        let block = request.block();
        let mut undelivered = None;
        for (index, txid) in open.outstanding() {
            // Core does not send what it knows the wallet to have.
            if let Some(copy) = self.recent.get(&txid) {
                match open.deliver(txid, copy.clone()) {
                    Delivery::Taken => {}
                    Delivery::Refused(finding) => report(actions, finding),
                    Delivery::Impossible(finding) => return report(actions, finding),
                }
                continue;
            }
            report(actions, Finding::NotDelivered { block: block.hash, index, txid });
            self.missing.insert(txid, block, index);
            undelivered = undelivered.or(Some(txid));
        }
        if request.counts() {
            self.filter.follow(request.generation(), open.transactions());
        }
        let Parts { merkle_block, proof, transactions, held_against } = open.into_parts();
        for (index, (txid, tx)) in transactions {
            let place = Place { block, index };
            let (counts, is_in_chain) = (request.counts(), request.is_in_chain());
            self.confirmed(Confirmed { place, counts, is_in_chain }, txid, tx, actions);
        }
        if request.counts() {
            self.advance.answered(block);
        }
        self.stats.count_block(proof.num_transactions);
        let proof = proof.linked(self.link(&request));
        let closed = ClosedBlock::new(proof, block, request.counts(), undelivered);
        report(actions, Finding::Block(Box::new(closed)));
        self.advise_refresh(actions);
        if let Some(filter) = held_against {
            let fence = request.fence();
            let answer = Answer::new(block.hash, merkle_block, filter, self.connections, fence);
            self.answers.keep(answer);
        }
    }

    /// A transaction in a block: the wallet's, or a false positive.
    fn confirmed(
        &mut self,
        confirmed: Confirmed,
        txid: Txid,
        transaction: Transaction,
        actions: &mut Actions,
    ) {
        let Confirmed { place, counts, is_in_chain } = confirmed;
        let Place { block, index } = place;
        let relevance = self.watch.relevance(&transaction);
        let standing = if is_in_chain {
            Standing::InBlock { height: block.height, reported: !relevance.is_empty() }
        } else {
            Standing::Dropped
        };
        // Asked again for the block, the node may not send it again.
        self.recent.insert(txid, &transaction, standing);
        if relevance.is_empty() {
            // With the null outpoint in the filter each coinbase matches, as it should.
            let is_null_outpoint = self.filter.policy().insert_null_outpoint && index == 0;
            if !is_null_outpoint {
                self.stats.count_false_positive();
                report(actions, Finding::FalsePositive(txid, Some(block.hash)));
            }
            return;
        }
        self.stats.count_relevant();
        let height = is_in_chain.then_some(block.height);
        let over_limit = self.watch.learn(txid, &relevance, height);
        if over_limit > 0 {
            report(actions, Finding::LimitReached(over_limit));
        }
        let needed = self.elements.learn(&self.watch, txid, &relevance);
        // The node did not insert them, so that a later block was answered without their spends.
        if counts && self.filter.lacks(&needed) {
            self.filter.set_behind();
            self.requests.refilter_from(block);
        }
        self.advance(&relevance, Some(block), actions);
        if counts {
            self.advance.answered(block);
        }
        let relevant = RelevantTransaction { transaction, txid, place: Some(place), relevance };
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
            self.recent.insert(txid, &tx, Standing::Foreign);
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
        self.recent.insert(txid, &transaction, Standing::Reported);
        self.watch.learn_unconfirmed(txid, &relevance);
        self.advance(&relevance, None, actions);
        let relevant = RelevantTransaction { transaction, txid, place: None, relevance };
        report(actions, Finding::Relevant(Box::new(relevant)));
    }

    /// Reports what came outside of blocks before it was known to be the wallet's.
    fn compare_again(&mut self, actions: &mut Actions) {
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
    fn advance(&mut self, relevance: &Relevance, block: Option<BlockAt>, actions: &mut Actions) {
        let block = block.map(|block| block.hash);
        for label in relevance.received.iter().filter_map(|received| received.label) {
            if self.advance.note(label) {
                report(actions, Finding::KeychainAdvanced { label, block });
            }
        }
    }

    fn advise_refresh(&mut self, actions: &mut Actions) {
        let Some(mirror) = self.filter.mirror() else { return };
        let target = self.filter.policy().fpr;
        if let Some(reason) = self.stats.advise(mirror.false_positive_rate(), target) {
            report(actions, Finding::RefreshAdvised(reason));
        }
    }

    /// The node has come to the end of what was asked before a fence, if the nonce is one's.
    fn pong(&mut self, nonce: u64, actions: &mut Actions) {
        let Some(fence) = self.fences.passed(nonce).filter(|_| self.is_connected) else { return };
        for request in self.requests.take_passed_over(fence) {
            let block = request.block().hash;
            self.answers.pass_over(block);
            if request.counts() {
                report(actions, Finding::Unanswered(block));
            }
        }
        self.answers.settle(fence);
    }

    /// The header's place in the chain, once the tip is known.
    fn link(&self, request: &Request) -> HeaderLink {
        let height = request.block().height;
        match self.tip.and_then(|tip| tip.checked_sub(height)) {
            Some(above) if request.is_in_chain() => {
                HeaderLink::InChain { height, confirmations: above.saturating_add(1) }
            }
            _ => HeaderLink::Unlinked,
        }
    }

    /// Whether a transaction is kept for a while, as it is kept.
    #[cfg(test)]
    pub(super) fn kept(&self, txid: &Txid) -> Option<&Transaction> {
        self.recent.get(txid)
    }

    /// The transactions that have come of the block that is open.
    #[cfg(test)]
    pub(super) fn delivered(&mut self) -> Vec<Transaction> {
        self.requests.open_mut().map_or(Vec::new(), |open| open.transactions().cloned().collect())
    }
}

//! The session: handles events, and delegates to the parts of the session.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::{Network, OutPoint, Transaction, Txid, Witness};

use super::Config;
use super::blocks::{
    Advance, Fences, Leaf, Missing, OpenBlock, Recent, Request, Requests, Standing,
};
use super::event::{Action, Event, Finding, Message};
use super::filter::{Behind, FilterElements, FilterPolicy, NodeFilter, is_watchable};
use super::report::{MatchStats, Stats};
use crate::btc::bip37::{BloomFilter, HeaderLink, MerkleBlock, Policy, Proof};
use crate::btc::headers::BlockAt;
use crate::btc::wallet::{
    History, Relevance, RelevantTransaction, TxPosition, WatchItem, WatchedItems,
};
use crate::steady_clock::SteadyClock;

/// A wallet's connections to nodes with Bloom filters, one connection at a time.
///
/// # Examples
/// ```
/// use core::time::Duration;
/// use chainsieve::bitcoin::{Network, ScriptBuf, WPubkeyHash, hashes::Hash};
/// use chainsieve::btc::bip37::session::*;
/// use chainsieve::btc::wallet::{Label, WatchItem};
///
/// let policy = FilterPolicy::new(0x5eed);
/// let mut session = Session::new(Config::new(Network::Bitcoin, policy));
/// let script = ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([7; 20]));
/// let label = Some(Label { keychain: 0, index: 0 });
/// let mut actions =
///     session.handle(Event::Watch(vec![WatchItem::Script { script, label }]), Duration::ZERO);
/// actions.extend(session.handle(Event::Connected, Duration::ZERO));
/// let loads = |action: &Action| matches!(action, Action::Send(Message::FilterLoad(_)));
/// assert!(actions.iter().any(loads));
/// // Store the capacity with the tweak: it covers this script and 100 more elements.
/// assert_eq!(session.filter_policy().capacity, 101);
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    network: Network,
    watch: WatchedItems,
    elements: FilterElements,
    filter: NodeFilter,
    stats: Stats,
    requests: Requests,
    fences: Fences,
    recent: Recent,
    missing: Missing,
    advance: Advance,
    /// `true` from a [`Finding::Refilter`] or [`Finding::RefilterEarlier`] until the caller requests blocks.
    is_refilter_open: bool,
    tip: Option<u32>,
    is_connected: bool,
    clock: SteadyClock,
}

/// Position of a confirmed transaction, and the validity of the answer that contained it.
#[derive(Debug, Clone, Copy)]
struct Confirmed {
    place: TxPosition,
    /// `true` if the answer is still valid: an outpoint that the node's filter lacks is then a
    /// reason to filter again.
    counts: bool,
    /// `true` if the caller's chain contains the block.
    is_in_chain: bool,
}

/// The actions that result from an event, in order.
type Actions = Vec<Action>;

fn report(actions: &mut Actions, finding: Finding) {
    actions.push(Action::Report(finding));
}

impl Session {
    /// Returns a session that watches nothing and is not connected.
    pub fn new(config: Config) -> Self {
        let Config { network, filter, .. } = config;
        let watch = WatchedItems::with_output_limit(config.outpoints);
        Self {
            network,
            elements: FilterElements::of(&watch, &filter),
            watch,
            filter: NodeFilter::new(filter, config.address_population),
            stats: Stats::loaded(0.0),
            requests: Requests::new(&config),
            fences: Fences::new(filter.tweak),
            recent: Recent::new(config.cached_bytes),
            missing: Missing::new(config.missing),
            advance: Advance::default(),
            is_refilter_open: false,
            tip: None,
            is_connected: false,
            clock: SteadyClock::default(),
        }
    }

    /// Returns the watched items and the coins that were found.
    pub fn watch(&self) -> &WatchedItems {
        &self.watch
    }

    /// Returns the filter policy with its current capacity. Store tweak and capacity with the
    /// wallet.
    pub fn filter_policy(&self) -> &FilterPolicy {
        &self.filter.policy
    }

    /// Returns the session's copy of the filter that the node has loaded; `None` if no filter is
    /// loaded. The node's own filter may contain more elements.
    pub fn mirrored_filter(&self) -> Option<&BloomFilter> {
        self.filter.mirror.as_ref()
    }

    /// Returns the statistics of matches of foreign transactions since the filter was loaded.
    pub fn match_stats(&self) -> &MatchStats {
        &self.stats.matches
    }

    /// Returns the number of requests that are not closed yet, sent or not.
    pub fn pending_requests(&self) -> usize {
        self.requests.num_pending()
    }

    /// Handles an event at the time `now`, and returns the actions to take, in order.
    ///
    /// `now` is the [current time](crate#time).
    ///
    /// # Cost
    /// The cost is proportional to the event: the tree and the transactions of an answer. Loading a
    /// filter inserts all watched elements. New watched items are compared with the stored transactions that were received outside of blocks.
    #[must_use = "the caller must carry out the actions"]
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let now = self.clock.read(now);
        let mut actions = Vec::new();
        match event {
            Event::Connected => self.connect(&mut actions),
            Event::Disconnected => self.disconnect(),
            Event::Watch(watched) => self.add_watched(watched, &mut actions),
            Event::Unwatch { scripts, outpoints } => self.remove_watched(scripts, &outpoints),
            Event::Request(blocks) => {
                self.is_refilter_open = false;
                let excess = self.requests.enqueue(blocks);
                if excess > 0 {
                    report(&mut actions, Finding::LimitReached(excess));
                }
            }
            Event::Tip(height) => self.tip = Some(height),
            Event::Reorganized(height) => self.reorganize(height),
            Event::Used(label) => self.advance.set_used(label),
            Event::Refresh => self.load(&mut actions),
            Event::MerkleBlock(block) => self.merkle_block(&block, &mut actions),
            Event::Tx(tx) => self.transaction(tx, &mut actions),
            Event::Pong(nonce) => {
                self.close(&mut actions);
                self.pong(nonce, &mut actions);
            }
            // A node sends the transactions of a block directly after its tree, so any other
            // message closes the block.
            Event::Other => self.close(&mut actions),
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
        self.fences.connect();
        self.load(actions);
    }

    fn disconnect(&mut self) {
        self.is_connected = false;
        self.filter.disconnect();
        self.requests.disconnect();
    }

    fn add_watched(&mut self, watched: Vec<WatchItem>, actions: &mut Actions) {
        let mut keychains = BTreeSet::new();
        let mut is_any_new = false;
        for item in watched {
            // A script without a push has no element for the filter.
            if !is_watchable(&item) {
                if let WatchItem::Script { script, .. } = item {
                    report(actions, Finding::Unwatchable(script));
                }
                continue;
            }
            let label = match &item {
                WatchItem::Key { label, .. } | WatchItem::Script { label, .. } => *label,
                WatchItem::OutPoint { .. } => None,
            };
            let new_element = self.elements.add(&item);
            let (scripts, labelled) = (self.watch.num_scripts(), self.watch.num_labelled());
            self.watch.add(item, History::Unknown);
            let is_labelled = self.watch.num_labelled() > labelled;
            let is_new = new_element || self.watch.num_scripts() > scripts || is_labelled;
            if new_element {
                self.filter.behind = Behind::Unknown;
            }
            // Blocks are filtered again even if the filter already contained the element, because
            // payments to the new script were treated as foreign. If the script was known only from
            // its coin, payments to the script did not advance the keychain.
            keychains.extend(label.filter(|_| is_new).map(|label| label.keychain));
            is_any_new |= is_new;
        }
        for keychain in keychains {
            // Blocks were answered since the keychain advanced. The node matched these blocks
            // without the new scripts.
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
        // The node's filter is left as it is. Elements cannot be removed from a filter, and a new
        // filter sent now would only reveal the removed elements by its difference from the earlier
        // filter.
        self.elements = FilterElements::of(&self.watch, &self.filter.policy);
    }

    fn reorganize(&mut self, height: u32) {
        self.requests.reorganize(height);
        self.missing.positions.retain(|_, (block, _)| block.height < height);
        self.recent.reorganize(height);
        self.advance.reorganize(height);
        self.watch.unconfirm_from(height);
    }

    /// Sends a filter of everything watched, if anything is watched.
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
            }
            Err(error) => report(actions, Finding::NoFilter(error)),
        }
    }

    /// Sends the elements that the node's filter lacks, and reports from which block to filter
    /// again if blocks are answered without them.
    fn catch_up(&mut self, actions: &mut Actions) {
        if self.filter.behind == Behind::Unknown {
            self.filter.behind = Behind::No;
            if self.filter.lacks_any(&self.elements) {
                self.filter.behind = Behind::Yes;
                self.requests.refilter_in_flight();
            }
        }
        let is_idle = self.requests.num_pending() == 0 && !self.is_refilter_open;
        let refilter = self.requests.take_refilter();
        if self.filter.behind == Behind::Yes && !self.requests.has_superseded() {
            self.send_elements(actions);
        }
        // The gap limit is a rule about indices: blocks that were answered before a keychain
        // advanced may pay to its new scripts. They are filtered again only after all pending
        // blocks, which may advance keychains further. Otherwise, a wallet would start over at
        // each step of a keychain.
        if is_idle && let Some(first) = self.advance.take_behind() {
            self.is_refilter_open = true;
            report(actions, Finding::RefilterEarlier(first));
        }
        if let Some(from) = refilter {
            self.is_refilter_open = true;
            report(actions, Finding::Refilter(from));
        }
    }

    /// Sends the elements that the node's filter lacks.
    fn send_elements(&mut self, actions: &mut Actions) {
        // An element may have been removed since. A filter without it would reveal it by the difference.
        if !self.filter.lacks_any(&self.elements) {
            self.filter.behind = Behind::No;
            return;
        }
        match self.filter.add(&self.elements) {
            Some(added) => {
                actions.extend(added.into_iter().map(Message::FilterAdd).map(Action::Send));
            }
            // The policy or the sizes do not allow `filteradd`, so the whole filter is sent.
            None => self.load(actions),
        }
    }

    /// Requests as many blocks as may be in flight, followed by a fence.
    fn send_requests(&mut self, now: Duration, actions: &mut Actions) {
        // Without a filter, Core does not answer requests for filtered blocks. Answers to one that lacks
        // elements would not count.
        if self.filter.mirror.is_none() || self.filter.behind != Behind::No || !self.filter.fits {
            return;
        }
        let blocks = self.requests.send(self.filter.generation, self.fences.next(), now);
        // The pong to the ping after the requests shows that all their answers have arrived.
        if !blocks.is_empty() {
            actions.push(Action::Send(Message::GetFilteredBlocks(blocks)));
            actions.push(Action::Send(Message::Ping(self.fences.send())));
        }
    }

    fn merkle_block(&mut self, merkle_block: &MerkleBlock, actions: &mut Actions) {
        self.close(actions);
        // A message that was queued before the connection closed belongs to no request.
        if !self.is_connected {
            return;
        }
        let hash = merkle_block.header.block_hash();
        let Some(request) = self.requests.take(&hash) else {
            return report(actions, Finding::Unrequested(hash));
        };
        let proof = match Proof::verify(merkle_block, Policy::Strict(self.network), []) {
            Ok(proof) => proof,
            Err(error) => return report(actions, Finding::InvalidMerkleBlock(hash, error)),
        };
        let has_all = proof.inclusions.is_empty();
        self.requests.open = Some(OpenBlock::new(request, proof));
        // No transactions follow a tree without matches.
        if has_all {
            self.close(actions);
        }
    }

    /// Handles a transaction, which may or may not belong to the open block. Witnesses are dropped:
    /// transactions sent by BIP37 have none, no txid commits to them, and no size limit includes
    /// them.
    fn transaction(&mut self, mut tx: Transaction, actions: &mut Actions) {
        for input in &mut tx.input {
            input.witness = Witness::new();
        }
        let txid = tx.compute_txid();
        // Core sends the matching transactions of a block directly after its `merkleblock` (BIP37),
        // so a transaction most likely belongs to the open block.
        if let Some(open) = &mut self.requests.open {
            match open.leaf(txid) {
                // A repeated transaction is ignored.
                Leaf::Came => return,
                Leaf::Awaited => {
                    self.missing.positions.remove(&txid);
                    match open.deliver(txid, tx) {
                        Ok(ignored) => actions.extend(ignored.map(Action::Report)),
                        // An invalid answer ends the request: none of its transactions is reported.
                        Err(finding) => {
                            self.requests.open = None;
                            return report(actions, finding);
                        }
                    }
                    // With all transactions delivered, there is no need to wait for another
                    // message.
                    if open.is_complete() {
                        self.close(actions);
                    }
                    return;
                }
                // A late transaction of an earlier block is expected, so it is not reported as an
                // irregularity.
                Leaf::Absent if !self.missing.positions.contains_key(&txid) => {
                    let block = open.request.block.hash;
                    report(actions, Finding::NotInTree { block, txid });
                }
                Leaf::Absent => {}
            }
        }
        match self.missing.positions.remove(&txid) {
            // The txid may be an inner node of the tree (CVE-2017-12842).
            Some((block, index)) if tx.base_size() == 64 => {
                report(actions, Finding::Refused { block: block.hash, index, txid });
            }
            Some((block, index)) => {
                let place = TxPosition { block, index };
                let confirmed = Confirmed { place, counts: true, is_in_chain: true };
                self.confirmed(confirmed, txid, tx, actions);
            }
            None => self.unconfirmed(txid, tx, actions),
        }
    }

    /// Closes the open block. Transactions that are still outstanding were not delivered.
    fn close(&mut self, actions: &mut Actions) {
        let Some(mut open) = self.requests.open.take() else { return };
        let request = open.request;
        let block = request.block;
        let mut undelivered = None;
        for (index, txid) in open.outstanding() {
            // Core does not send a transaction if it knows that the wallet has the transaction, so
            // a stored copy is used instead.
            if let Some(copy) = self.recent.get(&txid) {
                match open.deliver(txid, copy.clone()) {
                    Ok(ignored) => actions.extend(ignored.map(Action::Report)),
                    Err(finding) => return report(actions, finding),
                }
                continue;
            }
            report(actions, Finding::NotDelivered { block: block.hash, index, txid });
            // A missing transaction may arrive later. That of a block which left the chain is unconfirmed.
            if request.is_in_chain {
                self.missing.insert(txid, block, index);
            }
            undelivered = undelivered.or(Some(txid));
        }
        // The node inserted outpoints for these transactions when it matched the block.
        self.filter.follow(request.generation, open.transactions());
        let OpenBlock { proof, delivered, .. } = open;
        for (index, (txid, tx)) in delivered {
            let place = TxPosition { block, index };
            let Request { counts, is_in_chain, .. } = request;
            self.confirmed(Confirmed { place, counts, is_in_chain }, txid, tx, actions);
        }
        // The block is also recorded for keychains that were advanced by earlier blocks or by
        // unconfirmed transactions, because the new scripts of these keychains are still awaited.
        if request.counts {
            self.advance.answered(block);
        }
        let counted = &mut self.stats.matches.transactions;
        *counted = counted.saturating_add(proof.num_transactions.into());
        let proof = Box::new(proof.linked(self.link(&request)));
        report(actions, Finding::Block { proof, block, counts: request.counts, undelivered });
        self.advise_refresh(actions);
    }

    /// Handles a transaction in a block: either the wallet's or a false positive.
    fn confirmed(
        &mut self,
        confirmed: Confirmed,
        txid: Txid,
        transaction: Transaction,
        actions: &mut Actions,
    ) {
        let Confirmed { place, counts, is_in_chain } = confirmed;
        let TxPosition { block, index } = place;
        let relevance = self.watch.relevance(&transaction);
        // The transaction of a block that left the chain is unconfirmed again, and may be reported
        // as such.
        let standing = if is_in_chain {
            Standing::InBlock { height: block.height, reported: !relevance.is_empty() }
        } else {
            Standing::Dropped
        };
        // If the block is requested again, the node may not send the transaction again.
        self.recent.insert(txid, &transaction, standing);
        if relevance.is_empty() {
            // With the null outpoint in the filter, each coinbase is expected to match.
            let is_null_outpoint = self.filter.policy.insert_null_outpoint && index == 0;
            if !is_null_outpoint {
                self.stats.matches.false_positives += 1;
                report(actions, Finding::FalsePositive(txid, Some(block.hash)));
            }
            return;
        }
        self.stats.matches.relevant += 1;
        let height = is_in_chain.then_some(block.height);
        let over_limit = self.watch.learn(txid, &relevance, height);
        if over_limit > 0 {
            report(actions, Finding::LimitReached(over_limit));
        }
        let needed = self.elements.learn(&self.watch, txid, &relevance);
        // The node's filter lacks these outpoints, so later blocks may have been answered without
        // their spends. A superseded block is requested again.
        if self.filter.lacks(&needed) {
            self.filter.behind = Behind::Yes;
            self.requests.refilter_in_flight();
            if counts {
                self.requests.refilter_from(block);
            }
        }
        self.advance(&relevance, Some(block), actions);
        // If the transaction advanced a keychain, this block was answered without the keychain's
        // new scripts. A superseded answer needs no record, because its block is requested again.
        if counts {
            self.advance.answered(block);
        }
        let relevant = RelevantTransaction { transaction, txid, place: Some(place), relevance };
        report(actions, Finding::Relevant(Box::new(relevant)));
    }

    fn unconfirmed(&mut self, txid: Txid, tx: Transaction, actions: &mut Actions) {
        let standing = self.recent.standing(&txid);
        // The transaction was already reported as the wallet's.
        if standing.is_some_and(Standing::is_reported) {
            return;
        }
        // The transaction is not matched against the mirror: the mirror may lack elements of the
        // node's filter, and the node may have announced the transaction under an earlier filter.
        let relevance = self.watch.relevance(&tx);
        // Only the watched items decide whether a transaction is the wallet's: the node's filter
        // has false positives.
        if !relevance.is_empty() {
            return self.report_unconfirmed(txid, tx, relevance, actions);
        }
        // Foreign transactions are stored once, because a script that is added later may make them
        // the wallet's.
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

    /// Reports transactions that were received outside of blocks before they were known to be the
    /// wallet's.
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

    /// Records the highest used index of each keychain, and reports keychains that have advanced.
    fn advance(&mut self, relevance: &Relevance, block: Option<BlockAt>, actions: &mut Actions) {
        let block = block.map(|block| block.hash);
        for label in relevance.received.iter().filter_map(|received| received.label) {
            // Only an index above all used indices makes the caller derive further scripts.
            if self.advance.note(label) {
                report(actions, Finding::KeychainAdvanced { label, block });
            }
        }
    }

    fn advise_refresh(&mut self, actions: &mut Actions) {
        // Without a loaded filter there is nothing to refresh.
        let Some(mirror) = &self.filter.mirror else { return };
        let target = self.filter.policy.fpr;
        if let Some(reason) = self.stats.advise(mirror.false_positive_rate(), target) {
            report(actions, Finding::RefreshAdvised(reason));
        }
    }

    /// Handles a `pong`. If its nonce belongs to a fence, the node has finished all answers to
    /// requests before that fence.
    fn pong(&mut self, nonce: u64, actions: &mut Actions) {
        // Pongs of the caller's own pings are ignored.
        let Some(fence) = self.fences.passed(nonce).filter(|_| self.is_connected) else { return };
        for request in self.requests.take_passed_over(fence) {
            // A superseded block will be requested again anyway.
            if request.counts {
                report(actions, Finding::Unanswered(request.block.hash));
            }
        }
    }

    /// Returns the header's position in the chain, if the height of the tip is known.
    fn link(&self, request: &Request) -> HeaderLink {
        let height = request.block.height;
        match self.tip.and_then(|tip| tip.checked_sub(height)) {
            Some(above) if request.is_in_chain => {
                HeaderLink::InChain { height, confirmations: above.saturating_add(1) }
            }
            _ => HeaderLink::Unlinked,
        }
    }

    /// Returns a received transaction in the form in which the session stores it.
    #[cfg(test)]
    pub(super) fn kept(&self, txid: &Txid) -> Option<&Transaction> {
        self.recent.get(txid)
    }

    /// Returns the transactions of the open block that have been delivered.
    #[cfg(test)]
    pub(super) fn delivered(&mut self) -> Vec<Transaction> {
        self.requests
            .open
            .as_ref()
            .map_or(Vec::new(), |open| open.transactions().cloned().collect())
    }
}

//! Broadcast of transactions: announces them to peers, sends them on request and checks whether the
//! network relays them.
//!
//! At first, a transaction is announced to a few peers only. If a peer that got no announcement
//! later has the transaction, then the network has relayed it. The client learns this if the peer
//! announces the transaction itself, or delivers it when probed with `getdata`.
//!
//! The client tells its peers that it wants no transactions announced (`relay` in its `version`).
//! Bitcoin Core then ignores a `getdata` for transactions, unless it offers Bloom filters
//! (`NODE_BLOOM`, off by default): `ProcessGetData` needs the state of transaction relay that Core
//! creates on `version` (Bitcoin Core 28.1, `net_processing.cpp`). So only peers with Bloom filters
//! are probed, and only they show that the network has relayed a transaction.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::vec::Vec;

use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{FeeRate, Transaction, Txid};

use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// Maximum number of broadcast transactions, which bounds the memory. A new transaction beyond this
/// number replaces the oldest.
const MAX_OFFERS: usize = 100;
/// Number of peers to which a transaction is announced at first. The other peers can then show
/// whether the network relays the transaction.
const FIRST_OFFERS: usize = 3;
/// Time after which a transaction is announced to every peer if no peer has requested it. An
/// estimate: nodes relay a transaction to most of the network within seconds.
const OFFER_ALL_AFTER: Duration = Duration::from_secs(30);
/// Time after which a transaction is announced to every peer if peers have requested it, but no
/// other peer has shown that it has the transaction: the first two probes, and 30 s for answers.
const SEEN_WITHIN: Duration =
    Duration::from_secs(PROBE_AFTER.as_secs() + PROBE_EVERY.as_secs() + 30);
/// Time until the first probe: a `getdata` to the peers to which the transaction was not announced.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// Time between two probes. Up to version 25, Bitcoin Core delivers an unconfirmed transaction that
/// it has not announced only after two minutes (`UNCONDITIONAL_RELAY_DELAY`).
const PROBE_EVERY: Duration = Duration::from_secs(130);
/// Maximum number of probes per transaction, so that probing ends if the transaction is never
/// relayed.
const MAX_PROBES: u32 = 10;
/// Maximum number of times that one peer is sent the same transaction. An honest peer seldom asks
/// again.
const MAX_ANSWERS: u32 = 3;

/// Progress of a broadcast transaction. Peers are given by their names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "what", rename_all = "snake_case")
)]
pub enum BroadcastNews {
    /// The transaction was announced to this peer.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::peer"))]
    Offered(String),
    /// This peer requested the transaction, and the transaction was sent to it.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::peer"))]
    Requested(String),
    /// The transaction was not announced to this peer, because the peer accepts no transaction with
    /// a fee rate below this rate (BIP133).
    FeeTooLow {
        /// Name of the peer.
        peer: String,
        /// The lowest fee rate that the peer accepts.
        fee_rate: FeeRate,
    },
    /// This peer has the transaction, although the client did not announce it to this peer: the
    /// network has relayed it.
    ///
    /// Only peers that offer Bloom filters can show this, and few nodes offer them. Other nodes
    /// announce no transactions to this client and answer no request for one, as in Bitcoin Core.
    /// If this news does not arrive, it says nothing about the transaction.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::peer"))]
    Seen(String),
    /// This peer rejected the transaction for this reason (BIP61 `reject`, which few nodes still
    /// send).
    Rejected {
        /// Name of the peer.
        peer: String,
        /// The reason in the peer's words, escaped ([`str::escape_debug`]), of at most 200 characters.
        reason: String,
    },
    /// The transaction is in this block.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::client::json::at"))]
    Mined(BlockAt),
    /// The block with the transaction has left the chain. The transaction is offered again.
    Unmined,
}

#[derive(Debug)]
struct Offer {
    transaction: Transaction,
    fee_rate: Option<FeeRate>,
    /// Position in the order of broadcasts.
    number: u64,
    /// Time at which the transaction was broadcast.
    since: Duration,
    /// State of each connected peer that was considered so far.
    states: BTreeMap<PeerId, OfferState>,
    /// `true` if a peer has requested the transaction, even if that peer has disconnected since.
    requested: bool,
    /// `true` if a peer that got no announcement has the transaction.
    seen: bool,
    /// Time of the last probe, or of the broadcast if there was no probe yet.
    probed: Duration,
    /// Number of probes so far.
    probes: u32,
    /// The block that contains the transaction.
    mined: Option<BlockAt>,
}

/// State of a connected peer with regard to one transaction.
#[derive(Debug)]
enum OfferState {
    /// The transaction was not announced, because it pays less than the minimum fee rate of the
    /// peer.
    Refused,
    /// The transaction was not announced, and yet the peer has it.
    Seen,
    /// The transaction was announced. `answers` is the number of times that it was sent; `rejected`
    /// is `true` if the peer sent `reject`.
    Told { answers: u32, rejected: bool },
}

impl Offer {
    /// Returns `true` if the transaction is to be announced to every peer.
    fn is_for_all(&self, now: Duration) -> bool {
        // The first peers do not want the transaction, or have not received the announcement.
        if !self.requested {
            return now.saturating_sub(self.since) > OFFER_ALL_AFTER;
        }
        // The first peers may be hostile: they request the transaction and do not relay it. A peer
        // that got no announcement and yet has the transaction shows that others relay it.
        !self.seen && now.saturating_sub(self.since) > SEEN_WITHIN
    }

    /// Returns the number of connected peers to which the transaction was announced.
    fn num_told(&self) -> usize {
        let told = |state: &&OfferState| matches!(state, OfferState::Told { .. });
        self.states.values().filter(told).count()
    }

    /// Returns `true` if the transaction pays at least this rate, or if its rate is unknown.
    fn pays(&self, least: FeeRate) -> bool {
        self.fee_rate.is_none_or(|rate| rate >= least)
    }
}

/// Output of [`Broadcasts`]: a message to send, or news about a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(PeerId, NetworkMessage),
    News(Txid, News),
}

/// Progress of a broadcast transaction, with peers by id: see [`BroadcastNews`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Offered(PeerId),
    Requested(PeerId),
    FeeTooLow(PeerId, FeeRate),
    Seen(PeerId),
    Rejected(PeerId, String),
}

/// The broadcast transactions.
#[derive(Debug, Default)]
pub(super) struct Broadcasts {
    offers: BTreeMap<Txid, Offer>,
    /// Number of broadcasts so far.
    count: u64,
    /// Minimum fee rate of each peer (BIP133).
    fee_filters: BTreeMap<PeerId, FeeRate>,
}

impl Broadcasts {
    /// Starts the broadcast of a transaction, or starts it again. Returns the transactions that
    /// were dropped because of the limit.
    pub(super) fn add(
        &mut self,
        transaction: Transaction,
        fee_rate: Option<FeeRate>,
        now: Duration,
    ) -> Vec<Txid> {
        let txid = transaction.compute_txid();
        self.count += 1;
        // Keep the known block, so that it is not reported again.
        let mined = self.offers.get(&txid).and_then(|offer| offer.mined);
        self.offers.insert(
            txid,
            Offer {
                transaction,
                fee_rate,
                number: self.count,
                since: now,
                states: BTreeMap::new(),
                requested: false,
                seen: false,
                probed: now,
                probes: 0,
                mined,
            },
        );
        let mut dropped = Vec::new();
        while self.offers.len() > MAX_OFFERS {
            let oldest = self.offers.iter().min_by_key(|(_, offer)| offer.number);
            let Some(oldest) = oldest.map(|(txid, _)| *txid) else { break };
            self.offers.remove(&oldest);
            dropped.push(oldest);
        }
        dropped
    }

    /// Removes a peer.
    pub(super) fn disconnected(&mut self, id: PeerId) {
        self.fee_filters.remove(&id);
        for offer in self.offers.values_mut() {
            offer.states.remove(&id);
        }
    }

    /// Records that a transaction is in this block. Returns `true` if the transaction is a
    /// broadcast transaction and was not recorded in this block before.
    pub(super) fn set_mined(&mut self, txid: &Txid, at: BlockAt) -> bool {
        let offer = self.offers.get_mut(txid);
        offer.is_some_and(|offer| offer.mined.replace(at) != Some(at))
    }

    /// Records that the blocks above `height` have left the chain. Returns the broadcast
    /// transactions in these blocks, which are offered again.
    pub(super) fn roll_back(&mut self, height: u32) -> Vec<Txid> {
        let mut unmined = Vec::new();
        for (txid, offer) in &mut self.offers {
            if offer.mined.take_if(|at| at.height > height).is_some() {
                unmined.push(*txid);
            }
        }
        unmined
    }

    /// Returns the announcements and probes that are due. `peers` are the connected peers with the
    /// services that they offer.
    pub(super) fn next(
        &mut self,
        peers: &BTreeMap<PeerId, ServiceFlags>,
        now: Duration,
    ) -> Vec<Step> {
        // One message per peer: with one message per transaction, there could be more messages than
        // fit into the queue of a connection.
        let mut told: BTreeMap<PeerId, Vec<Inventory>> = BTreeMap::new();
        let mut asked: BTreeMap<PeerId, Vec<Inventory>> = BTreeMap::new();
        let mut news = Vec::new();
        let offers = self.offers.iter_mut().filter(|(_, offer)| offer.mined.is_none());
        let mut offers: Vec<_> = offers.collect();
        // Keep the order of the broadcasts, so that a parent is announced before its child.
        offers.sort_by_key(|(_, offer)| offer.number);
        for (&txid, offer) in offers {
            let limit = if offer.is_for_all(now) { usize::MAX } else { FIRST_OFFERS };
            let mut num_told = offer.num_told();
            for &id in peers.keys() {
                if num_told >= limit {
                    break;
                }
                // The state of this peer is settled: announced, refused or seen.
                if offer.states.contains_key(&id) {
                    continue;
                }
                // BIP133: the peer would ignore the announcement.
                if let Some(&least) = self.fee_filters.get(&id)
                    && !offer.pays(least)
                {
                    offer.states.insert(id, OfferState::Refused);
                    news.push(Step::News(txid, News::FeeTooLow(id, least)));
                    continue;
                }
                offer.states.insert(id, OfferState::Told { answers: 0, rejected: false });
                num_told += 1;
                told.entry(id).or_default().push(Inventory::Transaction(txid));
                news.push(Step::News(txid, News::Offered(id)));
            }
            let wait = if offer.probes == 0 { PROBE_AFTER } else { PROBE_EVERY };
            // No peer can have the transaction before a peer has requested it, so there is nothing
            // to probe.
            let is_due = now.saturating_sub(offer.probed) >= wait && offer.probes < MAX_PROBES;
            if is_due && offer.requested {
                let mut is_asked = false;
                // Core ignores the probe unless it offers Bloom filters.
                let answering = peers.iter().filter(|(_, it)| it.has(ServiceFlags::BLOOM));
                for (&id, _) in answering {
                    if matches!(offer.states.get(&id), None | Some(OfferState::Refused)) {
                        is_asked = true;
                        let item = Inventory::WitnessTransaction(txid);
                        asked.entry(id).or_default().push(item);
                    }
                }
                // A probe is recorded only if it was sent to at least one peer.
                if is_asked {
                    offer.probed = now;
                    offer.probes += 1;
                }
            }
        }
        let told = told.into_iter().map(|(id, items)| Step::Send(id, NetworkMessage::Inv(items)));
        let asked =
            asked.into_iter().map(|(id, items)| Step::Send(id, NetworkMessage::GetData(items)));
        told.chain(news).chain(asked).collect()
    }

    /// Handles a message of a peer as far as it concerns broadcast transactions.
    pub(super) fn take(&mut self, id: PeerId, message: &NetworkMessage) -> Vec<Step> {
        let mut steps = Vec::new();
        match message {
            NetworkMessage::FeeFilter(rate) => {
                // Core ignores a negative rate. Here, a negative rate means no minimum.
                let per_kvb = u64::try_from(*rate).unwrap_or(0);
                // BIP133 gives satoshis per 1,000 virtual bytes, and a virtual byte is four weight
                // units.
                let least = FeeRate::from_sat_per_kwu(per_kvb / 4);
                self.fee_filters.insert(id, least);
                for offer in self.offers.values_mut() {
                    let is_refused = matches!(offer.states.get(&id), Some(OfferState::Refused));
                    // The transaction now meets the lower minimum, so it may be announced.
                    if is_refused && offer.pays(least) {
                        offer.states.remove(&id);
                    }
                }
            }
            NetworkMessage::Inv(items) => {
                for txid in items.iter().filter_map(txid_of) {
                    self.seen(id, &txid, &mut steps);
                }
            }
            NetworkMessage::Tx(tx) if !self.offers.is_empty() => {
                self.seen(id, &tx.compute_txid(), &mut steps);
            }
            NetworkMessage::GetData(items) => {
                let mut answered = BTreeSet::new();
                for txid in items.iter().filter_map(txid_of) {
                    // A transaction is sent once per message, even if the message repeats the item.
                    if self.offers.contains_key(&txid) && answered.insert(txid) {
                        self.answer(id, txid, &mut steps);
                    }
                }
            }
            NetworkMessage::Reject(reject) => {
                let txid = Txid::from_raw_hash(reject.hash);
                let offer = self.offers.get_mut(&txid);
                let state = offer.and_then(|offer| offer.states.get_mut(&id));
                // A rejection is reported only once for each peer, and only from a peer that got
                // the announcement, so that a peer cannot flood the reader.
                if let Some(OfferState::Told { rejected, .. }) = state
                    && !*rejected
                {
                    *rejected = true;
                    // The text is untrusted: control characters could manipulate a terminal.
                    let text: String = reject.reason.chars().take(200).collect();
                    let text = text.escape_debug().collect();
                    steps.push(Step::News(txid, News::Rejected(id, text)));
                }
            }
            _ => {}
        }
        steps
    }

    /// Sends a transaction to a peer to which it was announced.
    fn answer(&mut self, id: PeerId, txid: Txid, steps: &mut Vec<Step>) {
        let Some(offer) = self.offers.get_mut(&txid) else { return };
        // A peer to which the transaction was not announced need not learn that this client has it.
        let Some(OfferState::Told { answers, .. }) = offer.states.get_mut(&id) else { return };
        // A hostile peer could otherwise make the client send the transaction again and again.
        if *answers >= MAX_ANSWERS {
            return;
        }
        *answers += 1;
        offer.requested = true;
        // The transaction is always sent with its witnesses. Core requests `MSG_TX` from a peer
        // that does not offer witnesses, yet cannot use a transaction without them.
        steps.push(Step::Send(id, NetworkMessage::Tx(offer.transaction.clone())));
        if *answers == 1 {
            steps.push(Step::News(txid, News::Requested(id)));
        }
    }

    /// Records that a peer has the transaction. This is reported only if the transaction was not
    /// announced to the peer.
    fn seen(&mut self, id: PeerId, txid: &Txid, steps: &mut Vec<Step>) {
        let Some(offer) = self.offers.get_mut(txid) else { return };
        let state = offer.states.get(&id);
        // If a peer that got our announcement (`Told`) names the transaction, this proves nothing.
        // A `Refused` peer got no announcement (BIP133), so it has the transaction from the
        // network. `Seen` is reported only once.
        if matches!(state, None | Some(OfferState::Refused)) {
            offer.states.insert(id, OfferState::Seen);
            offer.seen = true;
            steps.push(Step::News(*txid, News::Seen(id)));
        }
    }
}

/// Returns the txid that an inventory item names. An item by wtxid (BIP339) is ignored, since the
/// client does not negotiate `wtxidrelay`.
fn txid_of(item: &Inventory) -> Option<Txid> {
    match item {
        Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid) => Some(*txid),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

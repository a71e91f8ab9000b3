//! Transactions that are offered to peers, and what became of each.
//!
//! A transaction is announced to a few peers at first. The others are left to announce it
//! themselves or to be asked for it: a peer that was not told and has it shows that it was relayed.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::vec::Vec;

use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{FeeRate, Transaction, Txid};

use crate::btc::headers::BlockAt;
use crate::btc::peer::PeerId;

/// Most transactions that are offered at a time; the oldest is dropped for a new one.
const MAX_OFFERS: usize = 100;
/// Peers that are told at first.
const FIRST_OFFERS: usize = 3;
/// After this long without a request, or without a peer that has it after [`ENOUGH_PROBES`], every
/// peer is told.
const OFFER_ALL_AFTER: Duration = Duration::from_secs(30);
/// When the peers that were not told are first asked for it.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// How often they are asked again. Bitcoin Core gives out an unconfirmed transaction that it has
/// not announced only after two minutes (`UNCONDITIONAL_RELAY_DELAY`, up to version 25).
const PROBE_EVERY: Duration = Duration::from_secs(130);
/// How often they are asked at most.
const MAX_PROBES: u32 = 10;
/// If no peer has it after this many probes, those that asked for it have not relayed it.
const ENOUGH_PROBES: u32 = 2;
/// How often one peer is sent the same transaction at most. An honest peer seldom asks again.
const MAX_ANSWERS: u32 = 3;

/// What became of a transaction that was broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BroadcastNews {
    /// It was announced to this peer.
    Offered(String),
    /// This peer asked for it and was sent it.
    Requested(String),
    /// This peer takes no transaction that pays less than this rate (BIP133), and was not told.
    FeeTooLow(String, FeeRate),
    /// This peer, which was not told, has it.
    Seen(String),
    /// This peer refused it, for this reason (BIP61, which few nodes still send).
    Rejected(String, String),
    /// It is in this block.
    Mined(BlockAt),
    /// The block that it was in has left the chain.
    Unmined,
}

#[derive(Debug)]
struct Offer {
    transaction: Transaction,
    fee_rate: Option<FeeRate>,
    number: u64,
    since: Duration,
    /// Connected peers that were told or were passed over.
    standings: BTreeMap<PeerId, Standing>,
    /// A peer, perhaps one that is gone, has asked for it.
    requested: bool,
    /// A peer that was not told has it.
    seen: bool,
    probed: Duration,
    probes: u32,
    mined: Option<BlockAt>,
}

/// How a connected peer stands to an offer.
#[derive(Debug)]
enum Standing {
    /// The offer pays less than the peer takes, and the peer was not told.
    Refused,
    /// The peer was not told and has it.
    Seen,
    /// The peer was told, was sent it this often, and may have rejected it.
    Told { answers: u32, rejected: bool },
}

impl Offer {
    /// Returns `true` if every peer is to be told.
    fn is_for_all(&self, now: Duration) -> bool {
        if !self.requested {
            return now.saturating_sub(self.since) > OFFER_ALL_AFTER;
        }
        // Hostile peers may be the first told. They would ask for it, to drop it.
        let waited = now.saturating_sub(self.probed) > OFFER_ALL_AFTER;
        let is_probed = self.probes > ENOUGH_PROBES || (self.probes == ENOUGH_PROBES && waited);
        !self.seen && is_probed
    }

    fn num_told(&self) -> usize {
        let told = |standing: &&Standing| matches!(standing, Standing::Told { .. });
        self.standings.values().filter(told).count()
    }

    /// Returns `true` if the offer pays no less than this.
    fn pays(&self, least: FeeRate) -> bool {
        self.fee_rate.is_none_or(|rate| rate >= least)
    }
}

/// What a broadcast wants: a message to send, or news about a transaction. Peers by their ids.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(PeerId, NetworkMessage),
    News(Txid, News),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Offered(PeerId),
    Requested(PeerId),
    FeeTooLow(PeerId, FeeRate),
    Seen(PeerId),
    Rejected(PeerId, String),
}

/// The transactions offered.
#[derive(Debug, Default)]
pub(super) struct Broadcasts {
    offers: BTreeMap<Txid, Offer>,
    count: u64,
    /// The least fee rate that each peer takes.
    fee_filters: BTreeMap<PeerId, FeeRate>,
}

impl Broadcasts {
    /// Offers a transaction. Returns those that are dropped for it.
    pub(super) fn add(
        &mut self,
        transaction: Transaction,
        fee_rate: Option<FeeRate>,
        now: Duration,
    ) -> Vec<Txid> {
        let txid = transaction.compute_txid();
        self.count += 1;
        // The block that it is in is told of once.
        let mined = self.offers.get(&txid).and_then(|offer| offer.mined);
        self.offers.insert(
            txid,
            Offer {
                transaction,
                fee_rate,
                number: self.count,
                since: now,
                standings: BTreeMap::new(),
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

    pub(super) fn disconnected(&mut self, id: PeerId) {
        self.fee_filters.remove(&id);
        for offer in self.offers.values_mut() {
            offer.standings.remove(&id);
        }
    }

    /// A transaction is in this block. Returns `true` if it is offered and that is new.
    pub(super) fn set_mined(&mut self, txid: &Txid, at: BlockAt) -> bool {
        let offer = self.offers.get_mut(txid);
        offer.is_some_and(|offer| offer.mined.replace(at) != Some(at))
    }

    /// The blocks above a height have left the chain. Returns the transactions that they held,
    /// which are offered again.
    pub(super) fn roll_back(&mut self, height: u32) -> Vec<Txid> {
        let mut unmined = Vec::new();
        for (txid, offer) in &mut self.offers {
            if offer.mined.take_if(|at| at.height > height).is_some() {
                unmined.push(*txid);
            }
        }
        unmined
    }

    /// Offers to whom it is time to offer, and asks whom it is time to ask.
    pub(super) fn next(&mut self, peers: &BTreeSet<PeerId>, now: Duration) -> Vec<Step> {
        // One message for each peer: a message for each offer could be more than may be queued.
        let mut told: BTreeMap<PeerId, Vec<Inventory>> = BTreeMap::new();
        let mut asked: BTreeMap<PeerId, Vec<Inventory>> = BTreeMap::new();
        let mut news = Vec::new();
        let offers = self.offers.iter_mut().filter(|(_, offer)| offer.mined.is_none());
        let mut offers: Vec<_> = offers.collect();
        // A parent was broadcast before its child, and comes first in the message.
        offers.sort_by_key(|(_, offer)| offer.number);
        for (&txid, offer) in offers {
            let limit = if offer.is_for_all(now) { usize::MAX } else { FIRST_OFFERS };
            let mut num_told = offer.num_told();
            for &id in peers {
                if num_told >= limit {
                    break;
                }
                if offer.standings.contains_key(&id) {
                    continue;
                }
                if let Some(&least) = self.fee_filters.get(&id)
                    && !offer.pays(least)
                {
                    offer.standings.insert(id, Standing::Refused);
                    news.push(Step::News(txid, News::FeeTooLow(id, least)));
                    continue;
                }
                offer.standings.insert(id, Standing::Told { answers: 0, rejected: false });
                num_told += 1;
                told.entry(id).or_default().push(Inventory::Transaction(txid));
                news.push(Step::News(txid, News::Offered(id)));
            }
            let wait = if offer.probes == 0 { PROBE_AFTER } else { PROBE_EVERY };
            let is_due = now.saturating_sub(offer.probed) >= wait && offer.probes < MAX_PROBES;
            if is_due && offer.requested {
                let mut is_asked = false;
                for &id in peers {
                    if matches!(offer.standings.get(&id), None | Some(Standing::Refused)) {
                        is_asked = true;
                        let item = Inventory::WitnessTransaction(txid);
                        asked.entry(id).or_default().push(item);
                    }
                }
                // A probe that nobody got shows nothing.
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

    /// Takes a message of a peer, if it is about a transaction that is offered.
    pub(super) fn take(&mut self, id: PeerId, message: &NetworkMessage) -> Vec<Step> {
        let mut steps = Vec::new();
        match message {
            NetworkMessage::FeeFilter(rate) => {
                let per_kvb = u64::try_from(*rate).unwrap_or(0);
                // BIP133 counts by 1,000 virtual bytes, of four weight units each.
                let least = FeeRate::from_sat_per_kwu(per_kvb / 4);
                self.fee_filters.insert(id, least);
                for offer in self.offers.values_mut() {
                    let is_refused = matches!(offer.standings.get(&id), Some(Standing::Refused));
                    if is_refused && offer.pays(least) {
                        offer.standings.remove(&id);
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
                    if self.offers.contains_key(&txid) && answered.insert(txid) {
                        self.answer(id, txid, &mut steps);
                    }
                }
            }
            NetworkMessage::Reject(reject) => {
                let txid = Txid::from_raw_hash(reject.hash);
                let offer = self.offers.get_mut(&txid);
                let standing = offer.and_then(|offer| offer.standings.get_mut(&id));
                if let Some(Standing::Told { rejected, .. }) = standing
                    && !*rejected
                {
                    *rejected = true;
                    let text = reject.reason.chars().filter(|c| !c.is_control()).take(200);
                    steps.push(Step::News(txid, News::Rejected(id, text.collect())));
                }
            }
            _ => {}
        }
        steps
    }

    /// Sends a transaction to a peer that was told of it.
    fn answer(&mut self, id: PeerId, txid: Txid, steps: &mut Vec<Step>) {
        let Some(offer) = self.offers.get_mut(&txid) else { return };
        // Whom it was not offered need not learn that it is here.
        let Some(Standing::Told { answers, .. }) = offer.standings.get_mut(&id) else { return };
        if *answers >= MAX_ANSWERS {
            return;
        }
        *answers += 1;
        offer.requested = true;
        // With its witnesses, whichever kind was asked for: Core asks a peer that does not serve
        // witnesses for MSG_TX, and can make no use of a transaction without them.
        steps.push(Step::Send(id, NetworkMessage::Tx(offer.transaction.clone())));
        if *answers == 1 {
            steps.push(Step::News(txid, News::Requested(id)));
        }
    }

    fn seen(&mut self, id: PeerId, txid: &Txid, steps: &mut Vec<Step>) {
        let Some(offer) = self.offers.get_mut(txid) else { return };
        let standing = offer.standings.get(&id);
        if matches!(standing, None | Some(Standing::Refused)) {
            offer.standings.insert(id, Standing::Seen);
            offer.seen = true;
            steps.push(Step::News(*txid, News::Seen(id)));
        }
    }
}

/// The transaction that an item names. An item with a wtxid (BIP339) needs an agreement that the
/// client does not make.
fn txid_of(item: &Inventory) -> Option<Txid> {
    match item {
        Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid) => Some(*txid),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

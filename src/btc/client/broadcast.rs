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
/// After this long without a request, every peer is told.
const OFFER_ALL_AFTER: Duration = Duration::from_secs(30);
/// When the peers that were not told are first asked for it.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// How often they are asked again. Bitcoin Core gives out an unconfirmed transaction that it has
/// not announced only after two minutes (`UNCONDITIONAL_RELAY_DELAY`).
const PROBE_EVERY: Duration = Duration::from_secs(130);
/// How often they are asked at most.
const MAX_PROBES: u32 = 10;

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
    told: BTreeSet<PeerId>,
    refused: BTreeSet<PeerId>,
    requested: BTreeSet<PeerId>,
    seen: BTreeSet<PeerId>,
    probed: Duration,
    probes: u32,
    mined: Option<BlockAt>,
}

/// What a broadcast wants: a message to send, or news about a transaction. Peers by their ids.
#[derive(Debug)]
pub(super) enum Step {
    Send(PeerId, NetworkMessage),
    News(Txid, News),
}

#[derive(Debug)]
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
        self.offers.insert(
            txid,
            Offer {
                transaction,
                fee_rate,
                number: self.count,
                since: now,
                told: BTreeSet::new(),
                refused: BTreeSet::new(),
                requested: BTreeSet::new(),
                seen: BTreeSet::new(),
                probed: now,
                probes: 0,
                mined: None,
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
            offer.told.remove(&id);
            offer.refused.remove(&id);
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
        let mut steps = Vec::new();
        for (&txid, offer) in &mut self.offers {
            if offer.mined.is_some() {
                continue;
            }
            let since = now.saturating_sub(offer.since);
            let is_unheard = offer.requested.is_empty() && since > OFFER_ALL_AFTER;
            let limit = if is_unheard { usize::MAX } else { FIRST_OFFERS };
            for &id in peers {
                if offer.told.len() >= limit {
                    break;
                }
                if offer.told.contains(&id)
                    || offer.refused.contains(&id)
                    || offer.seen.contains(&id)
                {
                    continue;
                }
                let least = self.fee_filters.get(&id).copied();
                if let (Some(rate), Some(least)) = (offer.fee_rate, least)
                    && rate < least
                {
                    offer.refused.insert(id);
                    steps.push(Step::News(txid, News::FeeTooLow(id, least)));
                    continue;
                }
                offer.told.insert(id);
                let items = std::vec![Inventory::Transaction(txid)];
                steps.push(Step::Send(id, NetworkMessage::Inv(items)));
                steps.push(Step::News(txid, News::Offered(id)));
            }
            let wait = if offer.probes == 0 { PROBE_AFTER } else { PROBE_EVERY };
            let is_due = now.saturating_sub(offer.probed) >= wait && offer.probes < MAX_PROBES;
            if is_due && !offer.requested.is_empty() {
                offer.probed = now;
                offer.probes += 1;
                for &id in peers.iter().filter(|id| !offer.told.contains(id)) {
                    if !offer.seen.contains(&id) {
                        let items = std::vec![Inventory::WitnessTransaction(txid)];
                        steps.push(Step::Send(id, NetworkMessage::GetData(items)));
                    }
                }
            }
        }
        steps
    }

    /// Takes a message of a peer, if it is about a transaction that is offered.
    pub(super) fn take(&mut self, id: PeerId, message: &NetworkMessage) -> Vec<Step> {
        let mut steps = Vec::new();
        match message {
            NetworkMessage::FeeFilter(rate) => {
                let per_kvb = u64::try_from(*rate).unwrap_or(0);
                // BIP133 counts by 1,000 virtual bytes, of four weight units each.
                self.fee_filters.insert(id, FeeRate::from_sat_per_kwu(per_kvb / 4));
            }
            NetworkMessage::Inv(items) => {
                for item in items {
                    let (Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid)) = item
                    else {
                        continue;
                    };
                    self.seen(id, txid, &mut steps);
                }
            }
            NetworkMessage::Tx(tx) if !self.offers.is_empty() => {
                self.seen(id, &tx.compute_txid(), &mut steps);
            }
            NetworkMessage::GetData(items) => {
                for item in items {
                    let (Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid)) = item
                    else {
                        continue;
                    };
                    let Some(offer) = self.offers.get_mut(txid) else { continue };
                    // Whom it was not offered need not learn that it is here.
                    if !offer.told.contains(&id) {
                        continue;
                    }
                    let transaction = offer.transaction.clone();
                    steps.push(Step::Send(id, NetworkMessage::Tx(transaction)));
                    if offer.requested.insert(id) {
                        steps.push(Step::News(*txid, News::Requested(id)));
                    }
                }
            }
            NetworkMessage::Reject(reject) => {
                let txid = Txid::from_raw_hash(reject.hash);
                if self.offers.get(&txid).is_some_and(|offer| offer.told.contains(&id)) {
                    let text = reject.reason.chars().filter(|c| !c.is_control()).take(200);
                    steps.push(Step::News(txid, News::Rejected(id, text.collect())));
                }
            }
            _ => {}
        }
        steps
    }

    fn seen(&mut self, id: PeerId, txid: &Txid, steps: &mut Vec<Step>) {
        let Some(offer) = self.offers.get_mut(txid) else { return };
        if !offer.told.contains(&id) && offer.seen.insert(id) {
            steps.push(Step::News(*txid, News::Seen(id)));
        }
    }
}

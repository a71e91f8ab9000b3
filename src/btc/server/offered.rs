//! Transactions that a peer offers by `inv`, and the requests for them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::Transaction;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;

use super::ServedChain;
use super::outbox::TxName;

/// Maximum number of transactions that a peer may have offered but not delivered (`txrequest.h`,
/// `MAX_PEER_TX_ANNOUNCEMENTS`). Further offers are ignored.
const MAX_OFFERS: usize = 5_000;
/// Maximum number of transactions requested at a time (`net_processing.cpp`,
/// `MAX_PEER_TX_REQUEST_IN_FLIGHT`).
const MAX_IN_FLIGHT: usize = 100;
/// Time after which a request is treated as refused (`net_processing.cpp`, `GETDATA_TX_INTERVAL`).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The offers of one peer.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Offers not requested yet, in order: parents are offered before their children.
    waiting: VecDeque<TxName>,
    /// The offers in `waiting`, as a set for look-ups.
    is_waiting: BTreeSet<TxName>,
    /// Pending requests, each with the time at which it was sent.
    in_flight: BTreeMap<TxName, Duration>,
}

impl Offered {
    /// Adds the transactions that an `inv` offers and that the chain does not have.
    pub(super) fn add(&mut self, items: &[Inventory], chain: &ServedChain) {
        for tx in items.iter().filter_map(|item| TxName::of(*item)) {
            if self.waiting.len() + self.in_flight.len() >= MAX_OFFERS {
                // As in Core, further offers are ignored. An honest wallet offers its transactions
                // again later.
                return;
            }
            let is_new = !tx.is_in(chain) && !self.in_flight.contains_key(&tx);
            if is_new && self.is_waiting.insert(tx) {
                self.waiting.push_back(tx);
            }
        }
    }

    /// Notes that the peer delivered a transaction, requested or not.
    pub(super) fn delivered(&mut self, tx: &Transaction) {
        self.remove(TxName::Txid(tx.compute_txid()));
        self.remove(TxName::Wtxid(tx.compute_wtxid()));
    }

    /// Notes that the peer does not have these transactions.
    pub(super) fn not_found(&mut self, items: &[Inventory]) {
        items.iter().filter_map(|item| TxName::of(*item)).for_each(|tx| self.remove(tx));
    }

    fn remove(&mut self, tx: TxName) {
        self.in_flight.remove(&tx);
        if self.is_waiting.remove(&tx) {
            self.waiting.retain(|other| *other != tx);
        }
    }

    /// Returns the next `getdata`, if one is due.
    ///
    /// Without `witness` (the peer does not offer `NODE_WITNESS`), transactions are requested
    /// without witnesses, as in Core's `GetFetchFlags`. Wallets send the witnesses nevertheless.
    pub(super) fn request(
        &mut self,
        chain: &ServedChain,
        witness: bool,
        now: Duration,
    ) -> Option<NetworkMessage> {
        self.in_flight.retain(|_, asked| now.saturating_sub(*asked) < REQUEST_TIMEOUT);
        let mut items = Vec::new();
        while self.in_flight.len() < MAX_IN_FLIGHT
            && let Some(tx) = self.waiting.pop_front()
        {
            self.is_waiting.remove(&tx);
            // Another peer may have delivered the transaction in the meantime.
            if !tx.is_in(chain) {
                self.in_flight.insert(tx, now);
                items.push(tx.request(witness));
            }
        }
        (!items.is_empty()).then_some(NetworkMessage::GetData(items))
    }
}

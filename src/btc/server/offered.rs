//! Transactions that a peer offers, and which of them it is asked for.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::Transaction;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;

use super::ServedChain;
use super::outbox::TxName;

/// The most transactions that a peer may have offered and not delivered (`txrequest.h`,
/// `MAX_PEER_TX_ANNOUNCEMENTS`). More offers are not kept.
const MAX_OFFERS: usize = 5_000;
/// The most transactions asked for at a time (`net_processing.cpp`,
/// `MAX_PEER_TX_REQUEST_IN_FLIGHT`).
const MAX_IN_FLIGHT: usize = 100;
/// After this time a request counts as refused (`net_processing.cpp`, `GETDATA_TX_INTERVAL`).
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The offers of one peer.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// Not asked for yet, in the order of the offers: parents come before their children.
    waiting: VecDeque<TxName>,
    is_waiting: BTreeSet<TxName>,
    /// Asked for, and when.
    in_flight: BTreeMap<TxName, Duration>,
}

impl Offered {
    /// Takes the transactions of an `inv` that the chain does not have.
    pub(super) fn add(&mut self, items: &[Inventory], chain: &ServedChain) {
        for tx in items.iter().filter_map(|item| TxName::of(*item)) {
            if self.waiting.len() + self.in_flight.len() >= MAX_OFFERS {
                // Core drops them too; an honest wallet offers again.
                return;
            }
            let is_new = !tx.is_in(chain) && !self.in_flight.contains_key(&tx);
            if is_new && self.is_waiting.insert(tx) {
                self.waiting.push_back(tx);
            }
        }
    }

    /// The peer delivered a transaction, asked for or not.
    pub(super) fn delivered(&mut self, tx: &Transaction) {
        self.remove(TxName::Txid(tx.compute_txid()));
        self.remove(TxName::Wtxid(tx.compute_wtxid()));
    }

    /// The peer does not have these.
    pub(super) fn not_found(&mut self, items: &[Inventory]) {
        items.iter().filter_map(|item| TxName::of(*item)).for_each(|tx| self.remove(tx));
    }

    fn remove(&mut self, tx: TxName) {
        self.in_flight.remove(&tx);
        if self.is_waiting.remove(&tx) {
            self.waiting.retain(|other| *other != tx);
        }
    }

    /// The next request, if one is due. A peer without `witness` (`NODE_WITNESS`) is asked for
    /// transactions without witnesses, as Core's `GetFetchFlags` has it; wallets answer with the
    /// witnesses all the same.
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
            // Another peer may have delivered it since.
            if !tx.is_in(chain) {
                self.in_flight.insert(tx, now);
                items.push(tx.request(witness));
            }
        }
        (!items.is_empty()).then_some(NetworkMessage::GetData(items))
    }
}

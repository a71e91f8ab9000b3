//! The contents of `inv` messages: the new blocks and transactions that are announced to a peer,
//! and the transactions that the peer offers, with the requests for these transactions.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;
use std::collections::HashSet;

use bitcoin::block::Header;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{BlockHash, Transaction, Txid, Wtxid};

use super::ServedChain;
use super::outbox::Outbox;
use crate::btc::bip37::BloomFilter;

/// Maximum number of new blocks announced by `headers`. If there are more new blocks, only the last
/// block is announced, by `inv` (`net_processing.cpp`, `MAX_BLOCKS_TO_ANNOUNCE`).
const MAX_HEADERS_ANNOUNCED: usize = 8;
/// Maximum number of transactions in one `inv`.
const MAX_INV_ANNOUNCED: usize = 1000;
/// Maximum number of remembered transactions that came from the peer itself. The oldest
/// transaction is forgotten first.
const MAX_OWN: usize = 5_000;

/// The announcements that were sent to a peer so far.
#[derive(Debug)]
pub(super) struct Announcer {
    /// Version number of the chain at the last check.
    version: u64,
    /// The last announced tip, or the tip at the time of the connection.
    tip: BlockHash,
    /// The last header that was sent to the peer.
    pub(super) best_sent: Option<BlockHash>,
    /// `true` if the peer wants blocks announced by `headers` (BIP130).
    pub(super) send_headers: bool,
    /// `true` if the peer wants transactions announced.
    pub(super) relay: bool,
    /// Transactions of the mempool that were announced to the peer or need no announcement.
    told: HashSet<Txid>,
    /// The last transactions that came from the peer, which are not announced back to it.
    own: BTreeSet<Txid>,
    /// The transactions of [`own`](Self::own), oldest first.
    own_order: VecDeque<Txid>,
}

impl Announcer {
    /// Creates the state for a peer that connects now. Existing transactions are not announced; the
    /// peer can request them by `mempool` (BIP35).
    pub(super) fn new(chain: &ServedChain, relay: bool) -> Self {
        Self {
            version: chain.version(),
            tip: chain.tip().hash,
            best_sent: None,
            send_headers: false,
            relay,
            told: chain.mempool().iter().map(|(txid, _)| txid).collect(),
            own: BTreeSet::new(),
            own_order: VecDeque::new(),
        }
    }

    /// Records that a transaction came from the peer.
    pub(super) fn came_from_peer(&mut self, txid: Txid) {
        if self.own.insert(txid) {
            self.own_order.push_back(txid);
        }
        if self.own_order.len() > MAX_OWN
            && let Some(oldest) = self.own_order.pop_front()
        {
            self.own.remove(&oldest);
        }
    }

    /// Queues announcements of everything new since the last call. Returns `true` if the chain or
    /// the mempool has changed since that call, even if nothing was queued.
    pub(super) fn announce(
        &mut self,
        chain: &ServedChain,
        filter: Option<&mut BloomFilter>,
        outbox: &mut Outbox,
    ) -> bool {
        // One check covers all changes since the last check, so that a slow peer causes no queue.
        if mem::replace(&mut self.version, chain.version()) == chain.version() {
            return false;
        }
        self.announce_tip(chain, outbox);
        if self.relay {
            self.announce_transactions(chain, filter, outbox);
        } else {
            // If the peer loads a filter later, only transactions that arrive after the filter are
            // announced to it.
            self.told = chain.mempool().iter().map(|(txid, _)| txid).collect();
        }
        true
    }

    /// Queues the announcement of a new tip, by `headers` if possible, else by `inv`.
    fn announce_tip(&mut self, chain: &ServedChain, outbox: &mut Outbox) {
        let tip = chain.tip();
        // The version of the chain also changes if only the mempool has changed. Each tip is
        // announced once.
        if mem::replace(&mut self.tip, tip.hash) == tip.hash {
            return;
        }
        match self.headers_to_announce(chain) {
            Some(headers) => {
                self.best_sent = Some(tip.hash);
                outbox.push(NetworkMessage::Headers(headers));
            }
            None => outbox.push(NetworkMessage::Inv(vec![Inventory::Block(tip.hash)])),
        }
    }

    /// Returns the headers up to the tip, if the peer wants headers and has the parent of the first
    /// of these headers. `None` if the tip must be announced by `inv`.
    fn headers_to_announce(&self, chain: &ServedChain) -> Option<Vec<Header>> {
        let known = chain.fork_height(self.best_sent.filter(|_| self.send_headers)?)?;
        let headers = chain.headers().headers_from(known.checked_add(1)?);
        (1..=MAX_HEADERS_ANNOUNCED).contains(&headers.len()).then(|| headers.to_vec())
    }

    /// Queues the ids of all transactions of the mempool that the filter matches. Without a filter,
    /// queues the ids of all transactions. Transactions that were announced before are included
    /// (BIP35).
    pub(super) fn name_mempool(
        &mut self,
        chain: &ServedChain,
        filter: Option<&mut BloomFilter>,
        outbox: &mut Outbox,
    ) {
        self.told.clear();
        // The answer to `mempool` also lists the transactions that came from the peer itself.
        let own = mem::take(&mut self.own);
        self.announce_transactions(chain, filter, outbox);
        self.own = own;
    }

    /// Queues the ids of the transactions that were not announced before.
    fn announce_transactions(
        &mut self,
        chain: &ServedChain,
        mut filter: Option<&mut BloomFilter>,
        outbox: &mut Outbox,
    ) {
        let mempool = chain.mempool();
        self.told.retain(|txid| mempool.contains(txid));
        let mut items = Vec::new();
        for (txid, tx) in mempool.iter() {
            if !self.told.insert(txid) {
                continue;
            }
            // Also match the transactions that came from the peer itself, so that the filter grows
            // by their outputs.
            let matches = filter.as_mut().is_none_or(|filter| filter.is_relevant_and_update(tx));
            if matches && !self.own.contains(&txid) {
                items.push(Inventory::Transaction(txid));
            }
        }
        for items in items.chunks(MAX_INV_ANNOUNCED) {
            outbox.push(NetworkMessage::Inv(items.to_vec()));
        }
    }
}

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

    /// Records that the peer delivered a transaction, requested or not.
    pub(super) fn delivered(&mut self, tx: &Transaction) {
        self.remove(TxName::Txid(tx.compute_txid()));
        self.remove(TxName::Wtxid(tx.compute_wtxid()));
    }

    /// Records that the peer does not have these transactions.
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

/// A transaction id: txid or wtxid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TxName {
    Txid(Txid),
    Wtxid(Wtxid),
}

impl TxName {
    /// Returns the id of the transaction that an inventory item names.
    pub(super) fn of(item: Inventory) -> Option<Self> {
        match item {
            Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid) => {
                Some(Self::Txid(txid))
            }
            Inventory::WTx(wtxid) => Some(Self::Wtxid(wtxid)),
            _ => None,
        }
    }

    /// Returns the item that requests this transaction in a `getdata`.
    fn request(self, witness: bool) -> Inventory {
        match self {
            Self::Txid(txid) if witness => Inventory::WitnessTransaction(txid),
            Self::Txid(txid) => Inventory::Transaction(txid),
            Self::Wtxid(wtxid) => Inventory::WTx(wtxid),
        }
    }

    /// Returns `true` if the mempool of the chain has the transaction.
    fn is_in(&self, chain: &ServedChain) -> bool {
        self.find(chain).is_some()
    }

    pub(super) fn find<'a>(&self, chain: &'a ServedChain) -> Option<&'a Arc<Transaction>> {
        match self {
            Self::Txid(txid) => chain.mempool().get(txid),
            Self::Wtxid(wtxid) => chain.mempool().get_by_wtxid(wtxid),
        }
    }
}

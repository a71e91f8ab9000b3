//! Announcements of new blocks and transactions to a peer.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use std::collections::HashSet;

use bitcoin::block::Header;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{BlockHash, Txid};

use super::ServedChain;
use super::outbox::Outbox;
use crate::btc::bip37::BloomFilter;

/// Maximum number of new blocks announced by `headers`. If there are more new blocks, only the last
/// one is announced, by `inv` (`net_processing.cpp`, `MAX_BLOCKS_TO_ANNOUNCE`).
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
    best_sent: Option<BlockHash>,
    /// `true` if the peer wants blocks announced by `headers` (BIP130).
    send_headers: bool,
    /// `true` if the peer wants transactions announced.
    relay: bool,
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

    /// Notes that the peer wants blocks announced by `headers` (BIP130).
    pub(super) fn send_headers(&mut self) {
        self.send_headers = true;
    }

    /// Notes that the peer wants transactions announced.
    pub(super) fn relay(&mut self) {
        self.relay = true;
    }

    /// Notes that the peer was sent the headers up to this header.
    pub(super) fn sent_header(&mut self, hash: BlockHash) {
        self.best_sent = Some(hash);
    }

    /// Notes that a transaction came from the peer.
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

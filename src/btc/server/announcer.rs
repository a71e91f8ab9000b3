//! What a peer is told of without asking: new blocks and transactions.

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

/// More new blocks are announced by the last one alone (`net_processing.cpp`,
/// `MAX_BLOCKS_TO_ANNOUNCE`).
const MAX_HEADERS_ANNOUNCED: usize = 8;
/// The most transactions that one announcement names.
const MAX_INV_ANNOUNCED: usize = 1000;
/// Transactions of the peer itself that are remembered, the last ones.
const MAX_OWN: usize = 5_000;

/// What a peer knows of the chain.
#[derive(Debug)]
pub(super) struct Announcer {
    /// The version of the chain at the last look.
    version: u64,
    /// The tip that it was told of, or that was there when it came.
    tip: BlockHash,
    /// The last header that it was sent.
    best_sent: Option<BlockHash>,
    /// Whether it wants headers and no `inv` (BIP130).
    send_headers: bool,
    /// Whether it wants transactions.
    relay: bool,
    /// Transactions of the mempool that it was told of, or was not to be told of.
    told: HashSet<Txid>,
    /// The last transactions that came from it: nobody is told of what he told.
    own: BTreeSet<Txid>,
    own_order: VecDeque<Txid>,
}

impl Announcer {
    /// For a peer that comes now: what is there already is not announced. To know it, the peer
    /// has to ask (BIP35).
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

    pub(super) fn send_headers(&mut self) {
        self.send_headers = true;
    }

    pub(super) fn relay(&mut self) {
        self.relay = true;
    }

    /// The peer was sent headers up to this one.
    pub(super) fn sent_header(&mut self, hash: BlockHash) {
        self.best_sent = Some(hash);
    }

    /// The transaction came from the peer.
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

    /// Queues what is new since the last call. Returns `true` if the chain has changed since; it
    /// may be that nothing was queued.
    pub(super) fn announce(
        &mut self,
        chain: &ServedChain,
        filter: Option<&mut BloomFilter>,
        outbox: &mut Outbox,
    ) -> bool {
        // One look for all changes since the last one: a peer that reads slowly makes no queue.
        if mem::replace(&mut self.version, chain.version()) == chain.version() {
            return false;
        }
        self.announce_tip(chain, outbox);
        if self.relay {
            self.announce_transactions(chain, filter, outbox);
        } else {
            // Who loads a filter later is not told of what came before it.
            self.told = chain.mempool().iter().map(|(txid, _)| txid).collect();
        }
        true
    }

    fn announce_tip(&mut self, chain: &ServedChain, outbox: &mut Outbox) {
        let tip = chain.tip();
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

    /// The headers up to the tip, if the peer wants headers and has the one before them.
    fn headers_to_announce(&self, chain: &ServedChain) -> Option<Vec<Header>> {
        let known = chain.fork_height(self.best_sent.filter(|_| self.send_headers)?)?;
        let headers = chain.headers().headers_from(known.checked_add(1)?);
        (1..=MAX_HEADERS_ANNOUNCED).contains(&headers.len()).then(|| headers.to_vec())
    }

    /// Queues the names of all transactions of the mempool, or of those that the filter matches,
    /// whatever was named before (BIP35).
    pub(super) fn name_mempool(
        &mut self,
        chain: &ServedChain,
        filter: Option<&mut BloomFilter>,
        outbox: &mut Outbox,
    ) {
        self.told.clear();
        let own = mem::take(&mut self.own);
        self.announce_transactions(chain, filter, outbox);
        self.own = own;
    }

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
            // Asked of the peer's own ones too, so that the filter takes up their outputs.
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

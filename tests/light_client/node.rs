//! A node for tests, as a function of messages: it answers as Core does, or with a fault.

use std::collections::BTreeSet;
use std::rc::Rc;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::p2p::message_filter::{CFCheckpt, CFHeaders, CFilter};
use chainsieve::bitcoin::{BlockHash, Transaction, Txid};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};
use chainsieve::btc::bip158::filter_header;
use chainsieve::btc::client::PeerInfo;

use super::mined::{Chain, Mined};

/// A way in which a node differs from Core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answers no request for filtered blocks, filters or blocks, and no ping.
    Silent,
    /// Skips every filtered block, and answers the ping that follows.
    PassesOver,
    /// Sends no transactions after its merkle blocks.
    NoTransactions,
    /// Sends merkle blocks with a malformed tree.
    BadTree,
    /// From this height on, claims and sends filters that hide the scripts of the blocks.
    HidesFrom(u32),
    /// At this height, claims and sends a filter that hides the scripts of the block.
    HidesAt(u32),
    /// As `HidesAt`, and answers no request for blocks.
    HidesAndHolds(u32),
    /// Claims the true filters, and from this height on sends false ones.
    SwapsFrom(u32),
    /// Has filters but no blocks.
    NoBlocks,
}

impl Fault {
    /// Returns `true` if the node may be the only peer that vouches for a false "no".
    pub(crate) fn is_lie(self) -> bool {
        matches!(
            self,
            Self::HidesFrom(_) | Self::HidesAt(_) | Self::HidesAndHolds(_) | Self::SwapsFrom(_)
        )
    }
}

/// A node with a chain of blocks.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) chain: Chain,
    pub(crate) mempool: Vec<Transaction>,
    pub(crate) fault: Option<Fault>,
    /// The last blocks of the branches that the node has left.
    left: Vec<Rc<Mined>>,
    /// `true` if the node answers for blocks of branches that it has left.
    pub(crate) answers_left: bool,
    /// Blocks that the node currently claims not to have.
    pub(crate) withheld: BTreeSet<BlockHash>,
    pub(crate) asked_blocks: usize,
    pub(crate) asked_filters: usize,
    /// Number of filtered blocks that the client has asked for.
    pub(crate) asked_filtered: usize,
    /// `false` while the node is in its initial download: it answers without any header, as Core
    /// does.
    pub(crate) is_ready: bool,
    /// Transactions that the client has sent.
    pub(crate) received: Vec<Txid>,
    /// Transactions that the client has announced.
    pub(crate) told: Vec<Txid>,
    filter: Option<BloomFilter>,
}

impl Node {
    pub(crate) fn new(chain: &Chain, fault: Option<Fault>) -> Self {
        Self {
            chain: chain.clone(),
            mempool: Vec::new(),
            fault,
            left: Vec::new(),
            answers_left: true,
            withheld: BTreeSet::new(),
            asked_blocks: 0,
            asked_filters: 0,
            asked_filtered: 0,
            is_ready: true,
            received: Vec::new(),
            told: Vec::new(),
            filter: None,
        }
    }

    /// Puts the node on this chain.
    pub(crate) fn switch(&mut self, chain: &Chain) {
        let last = core::mem::replace(&mut self.chain, chain.clone()).tip().clone();
        if self.chain.height_of(&last.hash).is_none() {
            self.left.push(last);
        }
    }

    pub(crate) fn info(&self, name: &str) -> PeerInfo {
        PeerInfo {
            name: name.into(),
            services: ServiceFlags::NETWORK
                | ServiceFlags::WITNESS
                | ServiceFlags::BLOOM
                | ServiceFlags::COMPACT_FILTERS,
            start_height: self.chain.height(),
        }
    }

    /// Resets the state of the connection, when a new one begins.
    pub(crate) fn connected(&mut self) {
        self.filter = None;
    }

    pub(crate) fn answer(&mut self, message: &NetworkMessage) -> Vec<NetworkMessage> {
        let is_silent = self.fault == Some(Fault::Silent);
        match message {
            NetworkMessage::GetHeaders(_) if !self.is_ready => {
                vec![NetworkMessage::Headers(Vec::new())]
            }
            NetworkMessage::GetHeaders(request) => {
                let known = request.locator_hashes.iter().find_map(|it| self.chain.height_of(it));
                let after = self.chain.blocks().iter().skip(known.unwrap_or(0) as usize + 1);
                let headers = after.map(|mined| mined.block.header).take(2_000).collect();
                vec![NetworkMessage::Headers(headers)]
            }
            NetworkMessage::Ping(nonce) if !is_silent => vec![NetworkMessage::Pong(*nonce)],
            NetworkMessage::FilterLoad(load) => {
                self.filter = Some(load.clone().try_into().unwrap());
                Vec::new()
            }
            NetworkMessage::FilterAdd(added) => {
                if let Some(filter) = &mut self.filter {
                    filter.insert(&added.data);
                }
                Vec::new()
            }
            NetworkMessage::MemPool => {
                let items = self.mempool.iter().map(|tx| Inventory::Transaction(tx.compute_txid()));
                vec![NetworkMessage::Inv(items.collect())]
            }
            NetworkMessage::GetData(items) => {
                items.iter().flat_map(|item| self.item(item)).collect()
            }
            NetworkMessage::Inv(items) => {
                let mut wanted = Vec::new();
                for item in items {
                    let Inventory::Transaction(txid) = item else { continue };
                    self.told.push(*txid);
                    if self.mempool.iter().all(|tx| tx.compute_txid() != *txid) {
                        wanted.push(Inventory::WitnessTransaction(*txid));
                    }
                }
                if wanted.is_empty() { vec![] } else { vec![NetworkMessage::GetData(wanted)] }
            }
            NetworkMessage::Tx(tx) => {
                self.received.push(tx.compute_txid());
                self.mempool.push(tx.clone());
                Vec::new()
            }
            request if !is_silent => self.filters(request),
            _ => Vec::new(),
        }
    }

    /// Returns the chain that contains this block, if the node answers for the block.
    fn chain_with(&self, hash: &BlockHash) -> Option<Chain> {
        if self.chain.height_of(hash).is_some() {
            return Some(self.chain.clone());
        }
        let left = self.left.iter().filter(|_| self.answers_left);
        left.map(Chain::up_to).find(|chain| chain.height_of(hash).is_some())
    }

    /// Returns the filter that the node claims for a block.
    fn claimed<'a>(&self, mined: &'a Mined) -> &'a (Vec<u8>, FilterHash) {
        match self.fault {
            Some(Fault::HidesFrom(from)) if mined.height >= from.max(1) => &mined.lie,
            Some(Fault::HidesAt(height) | Fault::HidesAndHolds(height))
                if mined.height == height =>
            {
                &mined.lie
            }
            _ => &mined.filter,
        }
    }

    fn filters(&mut self, request: &NetworkMessage) -> Vec<NetworkMessage> {
        match request {
            NetworkMessage::GetCFCheckpt(request) => {
                vec![NetworkMessage::CFCheckpt(CFCheckpt {
                    filter_type: 0,
                    stop_hash: request.stop_hash,
                    filter_headers: Vec::new(),
                })]
            }
            NetworkMessage::GetCFHeaders(request) => {
                let Some(chain) = self.chain_with(&request.stop_hash) else { return Vec::new() };
                let stop = chain.height_of(&request.stop_hash).unwrap();
                let blocks = &chain.blocks()[..=stop as usize];
                let (below, asked) = blocks.split_at(request.start_height as usize);
                let previous = below.iter().fold(FilterHeader::all_zeros(), |previous, mined| {
                    filter_header(&self.claimed(mined).1, &previous)
                });
                vec![NetworkMessage::CFHeaders(CFHeaders {
                    filter_type: 0,
                    stop_hash: request.stop_hash,
                    previous_filter_header: previous,
                    filter_hashes: asked.iter().map(|mined| self.claimed(mined).1).collect(),
                })]
            }
            NetworkMessage::GetCFilters(request) => {
                let Some(chain) = self.chain_with(&request.stop_hash) else { return Vec::new() };
                let stop = chain.height_of(&request.stop_hash).unwrap();
                let asked = &chain.blocks()[request.start_height as usize..=stop as usize];
                self.asked_filters += asked.len();
                let message = |mined: &Rc<Mined>| {
                    let filter = match self.fault {
                        Some(Fault::SwapsFrom(from)) if mined.height >= from => &mined.lie.0,
                        _ => &self.claimed(mined).0,
                    };
                    NetworkMessage::CFilter(CFilter {
                        filter_type: 0,
                        block_hash: mined.hash,
                        filter: filter.clone(),
                    })
                };
                asked.iter().map(message).collect()
            }
            _ => Vec::new(),
        }
    }

    fn item(&mut self, item: &Inventory) -> Vec<NetworkMessage> {
        match item {
            Inventory::WitnessBlock(hash) => {
                if matches!(self.fault, Some(Fault::Silent | Fault::HidesAndHolds(_))) {
                    return Vec::new();
                }
                self.asked_blocks += 1;
                let has = !self.withheld.contains(hash) && self.fault != Some(Fault::NoBlocks);
                let block = self.chain_with(hash).filter(|_| has);
                let block = block.and_then(|chain| Some(chain.find(hash)?.block.clone()));
                let missing = || NetworkMessage::NotFound(vec![*item]);
                vec![block.map_or_else(missing, NetworkMessage::Block)]
            }
            Inventory::Transaction(txid) | Inventory::WitnessTransaction(txid) => {
                let found = self.mempool.iter().find(|tx| tx.compute_txid() == *txid);
                found.map(|tx| NetworkMessage::Tx(tx.clone())).into_iter().collect()
            }
            Inventory::Unknown { inv_type: 3, hash } => {
                self.asked_filtered += 1;
                let hash = BlockHash::from_byte_array(*hash);
                let Some(chain) = self.chain_with(&hash) else { return Vec::new() };
                chain.find(&hash).map_or_else(Vec::new, |mined| self.filtered(mined))
            }
            _ => Vec::new(),
        }
    }

    fn filtered(&mut self, mined: &Mined) -> Vec<NetworkMessage> {
        let is_withheld = self.withheld.contains(&mined.hash);
        if is_withheld || matches!(self.fault, Some(Fault::Silent | Fault::PassesOver)) {
            return Vec::new();
        }
        let Some(filter) = &mut self.filter else { return Vec::new() };
        let elements = BlockElements::from_block(&mined.block);
        let matched: Vec<_> =
            filter.match_block(&elements).iter().map(|found| found.index).collect();
        let mut answer = MerkleBlock::new(elements.header(), elements.txids(), &matched).unwrap();
        if self.fault == Some(Fault::BadTree) {
            answer.num_transactions += 1_000;
        }
        let mut messages = vec![NetworkMessage::MerkleBlock((&answer).try_into().unwrap())];
        if self.fault != Some(Fault::NoTransactions) {
            let matched = matched.iter().map(|&index| mined.block.txdata[index as usize].clone());
            messages.extend(matched.map(NetworkMessage::Tx));
        }
        messages
    }

    /// Returns an announcement of the last block.
    pub(crate) fn announcement(&self) -> NetworkMessage {
        NetworkMessage::Headers(vec![self.chain.tip().block.header])
    }
}

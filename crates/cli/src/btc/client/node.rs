//! A node for tests, as a function of messages: what Core answers, or what a liar does.

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};
use chainsieve::btc::bip157::server::{Answer, FilterServer, MemoryFilterStore};
use chainsieve::btc::bip158::BlockFilter;
use chainsieve::btc::headers::HeaderChain;

use super::mined::UNIX;
use crate::btc::p2p::handshake::Theirs;

/// How a node is not as Core is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It says nothing about filtered blocks and filters.
    Silent,
    /// It passes over every filtered block, and goes on to the ping.
    PassesOver,
    /// It delivers no transaction behind its merkleblocks.
    NoTransactions,
    /// Its merkleblocks have a tree that is none.
    BadTree,
    /// Its filters have one script, which no block pays.
    EmptyFilters,
    /// Its filters lack every script but the coinbase's: false where a block has more.
    CoinbaseFilters,
}

/// A node with a chain of blocks.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) blocks: Vec<Block>,
    pub(crate) mempool: Vec<Transaction>,
    chain: HeaderChain,
    store: MemoryFilterStore,
    filter: Option<BloomFilter>,
    pub(crate) fault: Option<Fault>,
    services: ServiceFlags,
}

impl Node {
    /// Blocks from height 1 on.
    pub(crate) fn new(blocks: &[Block], fault: Option<Fault>) -> Self {
        let mut chain = HeaderChain::new(Network::Regtest);
        let headers: Vec<_> = blocks.iter().map(|block| block.header).collect();
        chain.accept(&headers, UNIX).unwrap();
        let mut node = Self {
            blocks: blocks.to_vec(),
            mempool: Vec::new(),
            chain,
            store: MemoryFilterStore::new(),
            filter: None,
            fault,
            services: ServiceFlags::NETWORK
                | ServiceFlags::WITNESS
                | ServiceFlags::BLOOM
                | ServiceFlags::COMPACT_FILTERS,
        };
        node.index();
        node
    }

    fn index(&mut self) {
        let genesis = chainsieve::bitcoin::constants::genesis_block(Network::Regtest);
        let all: Vec<_> = [&[genesis], &self.blocks[..]].concat();
        for block in &all {
            let mut spent = Vec::new();
            for input in block.txdata.iter().skip(1).flat_map(|tx| &tx.input) {
                spent.push(script_of(&all, input.previous_output));
            }
            // Of the genesis block everyone knows it.
            let is_genesis = block.header.prev_blockhash == BlockHash::all_zeros();
            let fault = self.fault.filter(|_| !is_genesis);
            let empty = fault == Some(Fault::EmptyFilters);
            let filter = if empty || fault == Some(Fault::CoinbaseFilters) {
                let mut honest = block.clone();
                honest.txdata.truncate(1);
                if empty {
                    honest.txdata[0].output[0].script_pubkey = ScriptBuf::from(vec![0x51]);
                }
                let filter = BlockFilter::from_prevout_scripts::<ScriptBuf>(&honest, &[]).unwrap();
                BlockFilter { block_hash: block.block_hash(), content: filter.content }
            } else {
                BlockFilter::from_prevout_scripts(block, &spent).unwrap()
            };
            self.store.append(filter).unwrap();
        }
    }

    pub(crate) fn theirs(&self) -> Theirs {
        Theirs {
            services: self.services,
            start_height: self.chain.tip().height,
            user_agent: "/test/".into(),
            protocol: 70_016,
            relay: true,
        }
    }

    /// A connection has begun.
    pub(crate) fn connected(&mut self) {
        self.filter = None;
    }

    pub(crate) fn answer(&mut self, message: &NetworkMessage) -> Vec<NetworkMessage> {
        match message {
            NetworkMessage::GetHeaders(request) => {
                let headers = self.chain.headers_after(&request.locator_hashes, request.stop_hash);
                vec![NetworkMessage::Headers(headers.to_vec())]
            }
            NetworkMessage::Ping(nonce) if self.fault != Some(Fault::Silent) => {
                vec![NetworkMessage::Pong(*nonce)]
            }
            NetworkMessage::FilterLoad(load) => {
                self.filter = Some(load.clone().try_into().unwrap());
                Vec::new()
            }
            NetworkMessage::MemPool => {
                let items = self.mempool.iter().map(|tx| Inventory::Transaction(tx.compute_txid()));
                vec![NetworkMessage::Inv(items.collect())]
            }
            NetworkMessage::GetData(items) => {
                items.iter().flat_map(|item| self.item(item)).collect()
            }
            request if self.fault != Some(Fault::Silent) => self.filters(request),
            _ => Vec::new(),
        }
    }

    fn filters(&self, request: &NetworkMessage) -> Vec<NetworkMessage> {
        let server = FilterServer::new(&self.chain, &self.store, self.services);
        let Some(Answer::Send(mut reply)) = server.answer(request) else { return Vec::new() };
        std::iter::from_fn(|| reply.next_message(&self.store)).collect()
    }

    fn item(&mut self, item: &Inventory) -> Vec<NetworkMessage> {
        match item {
            Inventory::WitnessBlock(hash) => {
                let block = self.block(hash);
                block.map_or_else(
                    || vec![NetworkMessage::NotFound(vec![*item])],
                    |block| vec![NetworkMessage::Block(block)],
                )
            }
            Inventory::Transaction(txid) => {
                let found = self.mempool.iter().find(|tx| tx.compute_txid() == *txid);
                found.map(|tx| NetworkMessage::Tx(tx.clone())).into_iter().collect()
            }
            Inventory::Unknown { inv_type: 3, hash } => {
                let hash = BlockHash::from_byte_array(*hash);
                let block = self.block(&hash);
                block.map_or_else(Vec::new, |block| self.filtered(&block))
            }
            _ => Vec::new(),
        }
    }

    fn filtered(&mut self, block: &Block) -> Vec<NetworkMessage> {
        if matches!(self.fault, Some(Fault::Silent | Fault::PassesOver)) {
            return Vec::new();
        }
        let Some(filter) = &mut self.filter else { return Vec::new() };
        let elements = BlockElements::from_block(block);
        let matched: Vec<_> =
            filter.match_block(&elements).iter().map(|found| found.index).collect();
        let mut answer = MerkleBlock::new(elements.header(), elements.txids(), &matched).unwrap();
        if self.fault == Some(Fault::BadTree) {
            answer.num_transactions += 1_000;
        }
        let mut messages = vec![NetworkMessage::MerkleBlock((&answer).try_into().unwrap())];
        if self.fault != Some(Fault::NoTransactions) {
            let matched = matched.iter().map(|&index| block.txdata[index as usize].clone());
            messages.extend(matched.map(NetworkMessage::Tx));
        }
        messages
    }

    fn block(&self, hash: &BlockHash) -> Option<Block> {
        let genesis = chainsieve::bitcoin::constants::genesis_block(Network::Regtest);
        let mut blocks = std::iter::once(&genesis).chain(&self.blocks);
        blocks.find(|block| block.block_hash() == *hash).cloned()
    }

    /// The last block, as an announcement.
    pub(crate) fn announcement(&self) -> NetworkMessage {
        NetworkMessage::Headers(self.blocks.last().map(|block| block.header).into_iter().collect())
    }
}

fn script_of(blocks: &[Block], coin: OutPoint) -> ScriptBuf {
    let txs = blocks.iter().flat_map(|block| &block.txdata);
    let tx = txs.into_iter().find(|tx| tx.compute_txid() == coin.txid).unwrap();
    tx.output[coin.vout as usize].script_pubkey.clone()
}

//! The messages that answer a peer, made one by one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::vec;

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::address::Address;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::bitcoin::p2p::message_network::VersionMessage;
use chainsieve::bitcoin::{self, Block, BlockHash, Transaction, Txid, Wtxid};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};
use chainsieve::btc::bip157::server;

/// Core 28's protocol version.
const PROTOCOL: u32 = 70_016;
/// `MSG_FILTERED_BLOCK` of BIP37, for which `bitcoin` has no name.
const FILTERED_BLOCK: u32 = 3;

/// Messages that are still to be made.
pub(super) enum Reply {
    One(Box<NetworkMessage>),
    Filters(server::Reply),
    /// What a `getdata` names.
    Items {
        items: vec::IntoIter<Inventory>,
        missing: Vec<Inventory>,
    },
    /// The transactions behind a merkle block.
    Matched {
        block: Arc<Block>,
        indices: vec::IntoIter<usize>,
    },
}

impl Reply {
    pub(super) fn items(items: Vec<Inventory>) -> Self {
        Self::Items { items: items.into_iter(), missing: Vec::new() }
    }
}

/// What an item of a `getdata` asks for.
pub(super) enum Wanted {
    Transaction { tx: TxName, witness: bool },
    Block { hash: BlockHash, witness: bool },
    Filtered(BlockHash),
    Unknown,
}

pub(super) enum TxName {
    Txid(Txid),
    Wtxid(Wtxid),
}

impl Wanted {
    pub(super) fn of(item: Inventory) -> Self {
        match item {
            Inventory::Transaction(txid) => {
                Self::Transaction { tx: TxName::Txid(txid), witness: false }
            }
            Inventory::WitnessTransaction(txid) => {
                Self::Transaction { tx: TxName::Txid(txid), witness: true }
            }
            Inventory::WTx(wtxid) => Self::Transaction { tx: TxName::Wtxid(wtxid), witness: true },
            Inventory::Block(hash) => Self::Block { hash, witness: false },
            // Core, too, sends the whole of a block that is not one of the last.
            Inventory::WitnessBlock(hash) | Inventory::CompactBlock(hash) => {
                Self::Block { hash, witness: true }
            }
            Inventory::Unknown { inv_type: FILTERED_BLOCK, hash } => {
                Self::Filtered(BlockHash::from_byte_array(hash))
            }
            Inventory::Unknown { .. } | Inventory::Error => Self::Unknown,
        }
    }

    pub(super) fn block_hash(&self) -> Option<BlockHash> {
        match self {
            Self::Block { hash, .. } | Self::Filtered(hash) => Some(*hash),
            _ => None,
        }
    }
}

pub(super) fn version(services: ServiceFlags, height: u32, nonce: u64, now: i64) -> NetworkMessage {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    NetworkMessage::Version(VersionMessage {
        version: PROTOCOL,
        services,
        timestamp: now,
        receiver: Address::new(&nowhere, ServiceFlags::NONE),
        sender: Address::new(&nowhere, services),
        nonce,
        user_agent: concat!("/chainsieve:", env!("CARGO_PKG_VERSION"), "/").into(),
        start_height: i32::try_from(height).unwrap_or(i32::MAX),
        relay: true,
    })
}

pub(super) fn transaction(tx: &Transaction, witness: bool) -> NetworkMessage {
    let mut tx = tx.clone();
    if !witness {
        strip(&mut tx);
    }
    NetworkMessage::Tx(tx)
}

pub(super) fn block(block: &Block, witness: bool) -> NetworkMessage {
    let mut block = block.clone();
    if !witness {
        block.txdata.iter_mut().for_each(strip);
    }
    NetworkMessage::Block(block)
}

fn strip(tx: &mut Transaction) {
    tx.input.iter_mut().for_each(|input| input.witness.clear());
}

/// The merkle block for a filter, which takes up what it matches, and the places of the
/// transactions that are to follow.
pub(super) fn filtered(
    filter: &mut BloomFilter,
    block: &Block,
) -> Option<(NetworkMessage, Vec<usize>)> {
    let elements = BlockElements::from_block(block);
    let matches = filter.match_block(&elements);
    let matched: Vec<u32> = matches.iter().map(|found| found.index).collect();
    // A block that is linked has transactions, and no more than a block can have.
    let merkle_block = MerkleBlock::new(&block.header, elements.txids(), &matched).ok()?;
    let message = bitcoin::MerkleBlock::try_from(&merkle_block).ok()?;
    let indices = matched.into_iter().map(|index| index as usize).collect();
    Some((NetworkMessage::MerkleBlock(message), indices))
}

/// The next transaction behind a merkle block, without its witness as Core sends it.
pub(super) fn next_matched(
    block: &Block,
    indices: &mut vec::IntoIter<usize>,
) -> Option<NetworkMessage> {
    Some(transaction(block.txdata.get(indices.next()?)?, false))
}

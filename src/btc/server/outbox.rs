//! Queue of answers to a peer, which creates one message at a time.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;
use bitcoin::p2p::message_blockdata::Inventory;
use bitcoin::{Block, BlockHash, Transaction};

use super::inventory::TxName;
use super::{ServedChain, filters};
use crate::btc::bip37::{BlockElements, BloomFilter, MerkleBlock};
use crate::btc::protocol::MSG_FILTERED_BLOCK;

/// The answers whose messages are not all created yet, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    /// Last block of a `getblocks` answer that was cut at its limit. When the peer requests this
    /// block, the peer is told that more blocks follow.
    continue_at: Option<BlockHash>,
}

#[derive(Debug)]
enum Queued {
    One(Box<NetworkMessage>),
    Filters(filters::Reply),
    /// The items of a `getdata`, and the items that were not found.
    Items {
        items: vec::IntoIter<Inventory>,
        missing: Vec<Inventory>,
    },
    /// The matched transactions that follow a merkle block.
    Matched {
        block: Arc<Block>,
        indices: vec::IntoIter<usize>,
    },
}

impl Outbox {
    /// Returns the number of answers that are not complete.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues a single message.
    pub(super) fn push(&mut self, message: NetworkMessage) {
        self.queue.push_back(Queued::One(Box::new(message)));
    }

    /// Queues compact filters.
    pub(super) fn push_filters(&mut self, reply: filters::Reply) {
        self.queue.push_back(Queued::Filters(reply));
    }

    /// Queues the answer to the items of a `getdata`.
    pub(super) fn push_items(&mut self, items: Vec<Inventory>) {
        self.queue.push_back(Queued::Items { items: items.into_iter(), missing: Vec::new() });
    }

    /// Records that a `getblocks` answer was cut after this block, and that more blocks follow.
    pub(super) fn continue_at(&mut self, hash: BlockHash) {
        self.continue_at = Some(hash);
    }

    /// Creates the next message. `filter` is the Bloom filter of the peer. The outpoints that match
    /// are added to the filter.
    pub(super) fn next(
        &mut self,
        chain: &ServedChain,
        mut filter: Option<&mut BloomFilter>,
    ) -> Option<NetworkMessage> {
        loop {
            match self.queue.front_mut()? {
                Queued::One(_) => {
                    let Some(Queued::One(message)) = self.queue.pop_front() else { continue };
                    return Some(*message);
                }
                Queued::Filters(reply) => {
                    let store = chain.filters();
                    if let Some(message) = store.and_then(|store| reply.next_message(store)) {
                        return Some(message);
                    }
                    self.queue.pop_front();
                }
                Queued::Matched { block, indices } => {
                    if let Some(message) = next_matched(block, indices) {
                        return Some(message);
                    }
                    self.queue.pop_front();
                }
                Queued::Items { items, missing } => {
                    let Some(item) = items.next() else {
                        let missing = mem::take(missing);
                        self.queue.pop_front();
                        if missing.is_empty() {
                            continue;
                        }
                        return Some(NetworkMessage::NotFound(missing));
                    };
                    if let Some(message) = self.item(item, chain, filter.as_deref_mut()) {
                        return Some(message);
                    }
                }
            }
        }
    }

    /// Returns the message that answers an item of a `getdata`, and queues the messages that must
    /// follow it. `None` if the item has no answer.
    fn item(
        &mut self,
        item: Inventory,
        chain: &ServedChain,
        filter: Option<&mut BloomFilter>,
    ) -> Option<NetworkMessage> {
        let wanted = Wanted::of(item);
        let message = match &wanted {
            Wanted::Transaction { tx, witness } => {
                let Some(found) = tx.find(chain) else {
                    if let Some(Queued::Items { missing, .. }) = self.queue.front_mut() {
                        missing.push(item);
                    }
                    return None;
                };
                return Some(transaction(found, *witness));
            }
            // Core lists no missing blocks in a `notfound`.
            Wanted::Block { hash, witness } => whole_block(chain.block(hash)?, *witness),
            // Without a loaded filter, Core gives no answer to a request for a filtered block.
            Wanted::Filtered(hash) => {
                let block = chain.block(hash)?;
                let (message, indices) = filtered(filter?, block)?;
                let (block, indices) = (Arc::clone(block), indices.into_iter());
                self.queue.push_front(Queued::Matched { block, indices });
                message
            }
            Wanted::Unknown => return None,
        };
        // `continue_at` is Core's `hashContinue`. The peer has requested the last block that
        // `getblocks` listed, so an `inv` with the tip makes the peer ask again.
        if let Some(hash) = wanted.block_hash()
            && self.continue_at == Some(hash)
        {
            // The `inv` comes after the block and its matched transactions, and before the next
            // item.
            let more = NetworkMessage::Inv(vec![Inventory::Block(chain.tip().hash)]);
            let index = usize::from(matches!(self.queue.front(), Some(Queued::Matched { .. })));
            self.queue.insert(index, Queued::One(Box::new(more)));
            self.continue_at = None;
        }
        Some(message)
    }
}

/// The object that an item of a `getdata` requests.
enum Wanted {
    Transaction { tx: TxName, witness: bool },
    Block { hash: BlockHash, witness: bool },
    Filtered(BlockHash),
    Unknown,
}

impl Wanted {
    fn of(item: Inventory) -> Self {
        if let Some(tx) = TxName::of(item) {
            return Self::Transaction { tx, witness: !matches!(item, Inventory::Transaction(_)) };
        }
        match item {
            Inventory::Block(hash) => Self::Block { hash, witness: false },
            // Core, too, answers `MSG_CMPCT_BLOCK` with the full block if the block is not recent.
            Inventory::WitnessBlock(hash) | Inventory::CompactBlock(hash) => {
                Self::Block { hash, witness: true }
            }
            Inventory::Unknown { inv_type: MSG_FILTERED_BLOCK, hash } => {
                Self::Filtered(BlockHash::from_byte_array(hash))
            }
            _ => Self::Unknown,
        }
    }

    fn block_hash(&self) -> Option<BlockHash> {
        match self {
            Self::Block { hash, .. } | Self::Filtered(hash) => Some(*hash),
            _ => None,
        }
    }
}

fn transaction(tx: &Transaction, witness: bool) -> NetworkMessage {
    let mut tx = tx.clone();
    if !witness {
        strip(&mut tx);
    }
    NetworkMessage::Tx(tx)
}

fn whole_block(block: &Block, witness: bool) -> NetworkMessage {
    let mut block = block.clone();
    if !witness {
        block.txdata.iter_mut().for_each(strip);
    }
    NetworkMessage::Block(block)
}

fn strip(tx: &mut Transaction) {
    tx.input.iter_mut().for_each(|input| input.witness.clear());
}

/// Creates the merkle block for a filter. Also returns the indices of the transactions that must
/// follow the merkle block. The outpoints that match are added to the filter.
fn filtered(filter: &mut BloomFilter, block: &Block) -> Option<(NetworkMessage, Vec<usize>)> {
    let elements = BlockElements::from_block(block);
    let matches = filter.match_block(&elements);
    let matched: Vec<u32> = matches.iter().map(|found| found.index).collect();
    // A linked block has at least one transaction and does not exceed the maximum number of
    // transactions, so the merkle block can always be created.
    let merkle_block = MerkleBlock::new(&block.header, elements.txids(), &matched).ok()?;
    let message = bitcoin::MerkleBlock::try_from(&merkle_block).ok()?;
    let indices = matched.into_iter().map(|index| index as usize).collect();
    Some((NetworkMessage::MerkleBlock(message), indices))
}

/// Returns the next transaction after a merkle block. As in Core, the transaction has no witnesses.
fn next_matched(block: &Block, indices: &mut vec::IntoIter<usize>) -> Option<NetworkMessage> {
    Some(transaction(block.txdata.get(indices.next()?)?, false))
}

//! The data that a node serves: blocks, the best chain, compact filters and the mempool.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use std::collections::{HashMap, HashSet};

use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, Txid};
use thiserror::Error;

use super::filters::FilterStore;
use super::mempool::{Mempool, TransactionError};
use crate::btc::bip158::{BindError, BlockFilter, BoundBlock, BuildError};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain, HeaderError, HeaderRules};
use crate::btc::protocol::STALE_RELAY_AGE_LIMIT;

/// The blocks that a node serves, with the best chain among them, their compact filters and the
/// [mempool](Mempool). All connections of a node share one such chain.
///
/// The operator of the node adds the blocks, in any order. All blocks stay in memory, so the type
/// suits tests of wallets and small chains. A block is checked as far as its own bytes allow: proof
/// of work, difficulty, time, merkle root and witness commitment. Scripts, signatures and amounts
/// are not checked.
#[derive(Debug)]
pub struct ServedChain {
    headers: HeaderChain,
    /// The linked blocks of all branches.
    blocks: HashMap<BlockHash, StoredBlock>,
    /// Blocks with a missing parent, by the hash of the parent.
    waiting: HashMap<BlockHash, Vec<Incoming>>,
    /// The scripts of all outputs of all blocks. A txid determines its outputs on every branch, so
    /// no entry ever has to be removed.
    outputs: HashMap<OutPoint, ScriptBuf>,
    /// The outputs that blocks of the active chain spend, each with the spending transaction.
    spent: HashMap<OutPoint, Txid>,
    filters: Option<FilterStore>,
    mempool: Mempool,
    /// Number of changes of the chain or the mempool.
    version: u64,
}

#[derive(Debug)]
struct StoredBlock {
    block: Arc<Block>,
    prevouts: Option<Vec<ScriptBuf>>,
    /// `true` if the block is in the active chain, or was in it earlier. Off the active chain, Core
    /// serves only blocks that were in it earlier.
    was_active: bool,
}

/// A block to add, with the scripts that it spends if they are given.
type Incoming = (Block, Option<Vec<ScriptBuf>>);

/// Result of adding a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Added {
    /// Number of blocks that are newly linked to genesis: this block and those that waited for it.
    pub linked: usize,
    /// Number of blocks that left the active chain.
    pub disconnected: usize,
    /// Errors of the added block and of the blocks that waited for it. A block with
    /// [`BlockError::NoFilter`] is still linked.
    pub errors: Vec<BlockError>,
}

impl ServedChain {
    /// Creates the chain with the genesis block of its network. `rules` is a [`Network`], or the
    /// [`HeaderRules`] of a custom signet. The chain has compact filters if `with_filters` is
    /// `true`; without filters, a node does not offer BIP157, whatever
    /// [`Config::bip157`](super::Config::bip157) states.
    ///
    /// # Cost
    /// Building a filter hashes the scripts that its block creates and spends.
    pub fn new(rules: impl Into<HeaderRules>, with_filters: bool) -> Self {
        let rules = rules.into();
        let mut chain = Self {
            headers: HeaderChain::new(rules),
            blocks: HashMap::new(),
            waiting: HashMap::new(),
            outputs: HashMap::new(),
            spent: HashMap::new(),
            filters: with_filters.then(FilterStore::new),
            mempool: Mempool::default(),
            version: 0,
        };
        let hash = chain.tip().hash;
        chain.store(hash, (genesis_block(rules.network()), None));
        let mut added = Added::default();
        chain.connect(BlockAt { height: 0, hash }, &mut added);
        debug_assert_eq!(added.errors, [], "genesis spends nothing");
        chain
    }

    /// Adds the outputs of a transaction that is in no added block. This is needed if added blocks
    /// spend these outputs, because the filters of such blocks contain the scripts of the outputs.
    pub fn add_outputs(&mut self, tx: &Transaction) {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            self.outputs.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
        }
    }

    /// Adds a block, and the blocks that waited for it.
    ///
    /// `prevouts` are the scripts of the spent outputs, in the order of the inputs and without the
    /// coinbase, if the source of the block has them. With `None`, the scripts are looked up in the
    /// outputs that the chain knows. `now` is the [current time](crate#time). A block whose header is more than two hours ahead
    /// of `now` is refused. A block whose parent is missing waits for its parent. Adding a
    /// known block has no effect.
    ///
    /// # Cost
    /// The cost is proportional to the size of the newly linked blocks. If any block is linked, the
    /// cost is also proportional to the size of the mempool.
    pub fn add_block(
        &mut self,
        block: Block,
        prevouts: Option<Vec<ScriptBuf>>,
        now: Duration,
    ) -> Added {
        let mut added = Added::default();
        let mut next = vec![(block, prevouts)];
        while let Some(incoming) = next.pop() {
            let hash = incoming.0.block_hash();
            // Only now can the children that waited for this block be linked.
            if self.link(hash, incoming, now, &mut added) {
                next.extend(self.waiting.remove(&hash).into_iter().flatten());
            }
        }
        if added.linked > 0 {
            self.version += 1;
            self.mempool.settle(&self.spent);
        }
        added
    }

    /// Links a block to its parent. Returns `true` if the block was new and is linked now.
    fn link(
        &mut self,
        hash: BlockHash,
        incoming: Incoming,
        now: Duration,
        added: &mut Added,
    ) -> bool {
        if self.blocks.contains_key(&hash) {
            return false;
        }
        let header = incoming.0.header;
        // The transactions must match the header before the block is stored under the hash of the
        // header.
        if let Err(error) = BoundBlock::bind(&incoming.0, hash, self.network()) {
            added.errors.push(BlockError::Block { block: hash, error });
            return false;
        }
        let events = match self.headers.accept(&[header], now) {
            Ok(events) => events,
            Err(error) if matches!(error.cause, HeaderError::Orphan { .. }) => {
                let waiting = self.waiting.entry(header.prev_blockhash).or_default();
                // A block that is added twice waits only once.
                if waiting.iter().all(|other| other.0.block_hash() != hash) {
                    waiting.push(incoming);
                }
                return false;
            }
            Err(error) => {
                added.errors.push(BlockError::Header { block: hash, error: error.cause });
                return false;
            }
        };
        self.store(hash, incoming);
        added.linked += 1;
        for event in events {
            match event {
                ChainEvent::Connected { at, .. } => self.connect(at, added),
                ChainEvent::Disconnected { at } => self.disconnect(at, added),
            }
        }
        true
    }

    /// Stores a block and the scripts of its outputs.
    fn store(&mut self, hash: BlockHash, (block, prevouts): Incoming) {
        block.txdata.iter().for_each(|tx| self.add_outputs(tx));
        let block = Arc::new(block);
        self.blocks.insert(hash, StoredBlock { block, prevouts, was_active: false });
    }

    /// Adds a block to the active chain and builds its filter.
    fn connect(&mut self, at: BlockAt, added: &mut Added) {
        let Some(stored) = self.blocks.get_mut(&at.hash) else { return };
        stored.was_active = true;
        self.spent.extend(spends(&stored.block));
        let Some(filters) = &mut self.filters else { return };
        // A filter header depends on the filter header before it. There can be no further filter
        // headers after a missing filter.
        let previous = filters.tip().unwrap_or_else(BlockHash::all_zeros);
        if previous != stored.block.header.prev_blockhash {
            return;
        }
        let filter = match &stored.prevouts {
            Some(scripts) => BlockFilter::from_prevout_scripts(&stored.block, scripts),
            None => BlockFilter::new(&stored.block, |outpoint| self.outputs.get(outpoint).cloned()),
        };
        match filter {
            Ok(filter) => {
                added.errors.extend(filters.append(filter).err());
            }
            Err(error) => added.errors.push(BlockError::NoFilter { at, error }),
        }
    }

    /// Removes the last block from the active chain.
    fn disconnect(&mut self, at: BlockAt, added: &mut Added) {
        added.disconnected += 1;
        let Some(stored) = self.blocks.get(&at.hash) else { return };
        for (outpoint, _) in spends(&stored.block) {
            self.spent.remove(&outpoint);
        }
        if let Some(filters) = &mut self.filters
            // If the block has no filter, the last filter belongs to an earlier block and is kept.
            && filters.tip() == Some(at.hash)
            && let Err(error) = filters.rollback(&stored.block.header.prev_blockhash)
        {
            added.errors.push(error);
        }
    }

    /// Replaces the transactions of the operator in the mempool. The transactions of peers stay.
    ///
    /// # Cost
    /// The cost is proportional to the size of the mempool.
    pub fn set_transactions(&mut self, transactions: impl IntoIterator<Item = Arc<Transaction>>) {
        self.mempool.set_given(transactions);
        self.mempool.settle(&self.spent);
        self.version += 1;
    }

    /// Adds a transaction of a peer to the mempool, as [`Action::Accept`](super::Action::Accept)
    /// requires. The node then announces the transaction to its peers.
    ///
    /// The checks cover the inputs (each spends an output of a block or of the mempool that nothing
    /// else spends), the weight, and the limits ([`MAX_ACCEPTED`](super::MAX_ACCEPTED)).
    /// Signatures, amounts and fees are not checked. A new transaction never replaces an older
    /// transaction (BIP125 is not implemented).
    ///
    /// # Errors
    /// [`TransactionError`] that names the failed check. After an error, the mempool is unchanged.
    pub fn add_transaction(
        &mut self,
        tx: impl Into<Arc<Transaction>>,
    ) -> Result<(), TransactionError> {
        let tx = tx.into();
        // As in Core, a coinbase is valid only in its block (`coinbase`).
        if tx.is_coinbase() {
            return Err(TransactionError::Coinbase);
        }
        // Consensus rules of Core (`bad-txns-vin-empty` and `bad-txns-vout-empty`).
        if tx.input.is_empty() || tx.output.is_empty() {
            return Err(TransactionError::Empty);
        }
        for input in &tx.input {
            let outpoint = input.previous_output;
            // The spender in the chain may be this transaction itself: then the transaction is
            // confirmed already.
            if let Some(&by) = self.spent.get(&outpoint) {
                let txid = tx.compute_txid();
                let in_block = TransactionError::InBlock(txid);
                let spent = TransactionError::Spent { outpoint, by };
                return Err(if by == txid { in_block } else { spent });
            }
        }
        let outputs = &self.outputs;
        self.mempool.accept(tx, |outpoint| outputs.contains_key(outpoint))?;
        self.version += 1;
        Ok(())
    }

    /// Returns a number that increases with each change of the chain or of the mempool.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the network of the chain.
    pub fn network(&self) -> Network {
        self.headers.network()
    }

    /// Returns the chain of headers.
    pub fn headers(&self) -> &HeaderChain {
        &self.headers
    }

    /// Returns the last block of the active chain.
    pub fn tip(&self) -> BlockAt {
        self.headers.tip()
    }

    /// Returns the compact filters; `None` if the chain was created without filters.
    pub fn filters(&self) -> Option<&FilterStore> {
        self.filters.as_ref()
    }

    /// Returns `true` if every block of the active chain has its filter.
    pub fn has_all_filters(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.tip() == Some(self.tip().hash))
    }

    /// Returns the mempool. The mempool lists the transactions that no block of the active chain
    /// contains or conflicts with, parents first.
    pub fn mempool(&self) -> &Mempool {
        &self.mempool
    }

    /// Returns a block that a peer may request: a block of the active chain, or a block that was in
    /// this chain and is less than [`STALE_RELAY_AGE_LIMIT`] older than the tip (the time limit of
    /// Core's `BlockRequestAllowed`). `None` for any other block.
    pub fn block(&self, hash: &BlockHash) -> Option<&Arc<Block>> {
        let stored = self.blocks.get(hash)?;
        let tip = self.headers.header_at(self.tip().height)?;
        let is_recent = tip.time.saturating_sub(stored.block.header.time) < STALE_RELAY_AGE_LIMIT;
        let allowed = self.headers.height_of(hash).is_some() || (stored.was_active && is_recent);
        allowed.then_some(&stored.block)
    }

    /// Returns the height of the highest block of the active chain that is `hash` or one of its
    /// ancestors. `None` if `hash` is unknown.
    pub fn fork_height(&self, mut hash: BlockHash) -> Option<u32> {
        loop {
            if let Some(height) = self.headers.height_of(&hash) {
                return Some(height);
            }
            hash = self.blocks.get(&hash)?.block.header.prev_blockhash;
        }
    }

    /// Returns the number of blocks that wait for their parent, and the hash of a missing block
    /// that some of them wait for. `None` if no block waits.
    pub fn waiting(&self) -> Option<(usize, BlockHash)> {
        let count = self.waiting.values().map(Vec::len).sum();
        // Only a parent that does not itself wait is really missing.
        let here: HashSet<BlockHash> =
            self.waiting.values().flatten().map(|(block, _)| block.block_hash()).collect();
        let missing = self.waiting.keys().filter(|parent| !here.contains(*parent)).min();
        missing.map(|missing| (count, *missing))
    }

    /// Returns the number of blocks that are linked to genesis on all branches, genesis included.
    #[expect(clippy::len_without_is_empty, reason = "genesis is always there")]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }
}

/// Returns the outputs that a block spends, each with the spending transaction.
fn spends(block: &Block) -> impl Iterator<Item = (OutPoint, Txid)> {
    // The coinbase spends no output.
    block.txdata.iter().skip(1).flat_map(|tx| {
        let txid = tx.compute_txid();
        tx.input.iter().map(move |input| (input.previous_output, txid))
    })
}

/// Reason why a block or its filter cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The transactions of the block do not match its header. The block is not added.
    #[error("block {block}: {error}")]
    Block {
        /// Hash of the block.
        block: BlockHash,
        /// The difference between the block and its header.
        error: BindError,
    },
    /// The header of the block breaks a consensus rule. The block is not added.
    #[error("block {block}: {error}")]
    Header {
        /// Hash of the block.
        block: BlockHash,
        /// The broken rule.
        error: HeaderError,
    },
    /// The block is added, but a script that it spends is unknown. This block and all blocks after
    /// it have no filter.
    #[error("block {}, height {}: no filters from here on: {error}", at.hash, at.height)]
    NoFilter {
        /// The first block without a filter.
        at: BlockAt,
        /// The reason why the filter cannot be built.
        error: BuildError,
    },
    /// The store of filters has the filter of the block in its chain already.
    #[error("block {0} is in the chain already")]
    AlreadyThere(BlockHash),
    /// The store of filters does not have the block in its chain.
    #[error("block {0} is not in the chain")]
    NotThere(BlockHash),
}

#[cfg(test)]
mod tests;

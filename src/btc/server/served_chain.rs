//! What a node serves: blocks, the best chain among them, its filters, and transactions that no
//! block has.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::collections::{HashMap, HashSet};

use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, Txid};
use thiserror::Error;

use super::filters::{MemoryFilterStore, StoreError};
use super::mempool::{Mempool, TransactionError};
use crate::btc::bip158::{BindError, BlockFilter, BoundBlock, BuildError};
use crate::btc::headers::{BlockAt, ChainEvent, HeaderChain, HeaderError};
use crate::btc::protocol::STALE_RELAY_AGE_LIMIT;

/// The blocks that a node serves, with the best chain among them, their compact filters, and the
/// [mempool](Mempool). All connections of a node share one.
///
/// Blocks come from the node's operator, in any order, and are all kept in memory: it is for
/// wallets' tests and for chains that are small. A block is checked as far as its bytes go (proof
/// of work, difficulty, time, merkle root, witness commitment); scripts, signatures and amounts
/// are not.
#[derive(Debug)]
pub struct ServedChain {
    headers: HeaderChain,
    blocks: HashMap<BlockHash, Held>,
    /// Blocks whose parent is not there yet, by the parent.
    waiting: HashMap<BlockHash, Vec<IncomingBlock>>,
    /// The scripts of all outputs of all blocks. A txid stands for its outputs on every branch,
    /// so that none is ever taken back.
    outputs: HashMap<OutPoint, ScriptBuf>,
    /// What blocks of the active chain spend, and the transaction that does.
    spent: HashMap<OutPoint, Txid>,
    filters: Option<MemoryFilterStore>,
    mempool: Mempool,
    version: u64,
}

#[derive(Debug)]
struct Held {
    block: Arc<Block>,
    prevouts: Option<Vec<ScriptBuf>>,
    /// Core gives no block away that it never had in its chain.
    was_active: bool,
}

/// A block for a [`ServedChain`]. A [`Block`] converts into one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingBlock {
    /// The block.
    pub block: Block,
    /// The scripts of the outputs that it spends, in the order of its inputs without the
    /// coinbase's, if its source has them. Without them they are looked up in the other blocks.
    pub prevouts: Option<Vec<ScriptBuf>>,
}

impl From<Block> for IncomingBlock {
    fn from(block: Block) -> Self {
        Self { block, prevouts: None }
    }
}

/// What became of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Added {
    /// The blocks that are linked to genesis now: this one and those that waited for it.
    pub linked: usize,
    /// The blocks that left the active chain.
    pub disconnected: usize,
    /// What is wrong with any of them. A block may be linked and have no filter.
    pub errors: Vec<BlockError>,
}

impl ServedChain {
    /// The chain of `network` with its genesis block, and filters if `with_filters`.
    ///
    /// # Cost
    /// A filter takes the time to hash what its block pays and spends.
    pub fn new(network: Network, with_filters: bool) -> Self {
        let mut chain = Self {
            headers: HeaderChain::new(network),
            blocks: HashMap::new(),
            waiting: HashMap::new(),
            outputs: HashMap::new(),
            spent: HashMap::new(),
            filters: with_filters.then(MemoryFilterStore::new),
            mempool: Mempool::default(),
            version: 0,
        };
        let hash = chain.tip().hash;
        chain.hold(hash, genesis_block(network).into());
        let mut added = Added::default();
        chain.connect(BlockAt { height: 0, hash }, &mut added);
        debug_assert_eq!(added.errors, [], "genesis spends nothing");
        chain
    }

    /// Adds the outputs of a transaction that no block here has and that blocks spend: their
    /// filters need the scripts.
    pub fn add_outputs(&mut self, tx: &Transaction) {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            self.outputs.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
        }
    }

    /// Adds a block, and those that waited for it. `now` is the time in Unix seconds: a block
    /// whose header is more than two hours ahead of it is refused. A block whose parent is not
    /// there waits; one that is there already changes nothing.
    ///
    /// # Cost
    /// In proportion to the blocks that are linked, and to the mempool if there are any.
    pub fn add_block(&mut self, block: impl Into<IncomingBlock>, now: u32) -> Added {
        let mut added = Added::default();
        let mut next = vec![block.into()];
        while let Some(incoming) = next.pop() {
            let hash = incoming.block.block_hash();
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

    /// Returns `true` if the block was new and is linked now.
    fn link(
        &mut self,
        hash: BlockHash,
        incoming: IncomingBlock,
        now: u32,
        added: &mut Added,
    ) -> bool {
        if self.blocks.contains_key(&hash) {
            return false;
        }
        let header = incoming.block.header;
        if let Err(error) = BoundBlock::bind(&incoming.block, hash, self.network()) {
            added.errors.push(BlockError::Block { block: hash, error });
            return false;
        }
        let events = match self.headers.accept(&[header], now) {
            Ok(events) => events,
            Err(error) if matches!(error.cause, HeaderError::Orphan { .. }) => {
                let waiting = self.waiting.entry(header.prev_blockhash).or_default();
                if waiting.iter().all(|other| other.block.block_hash() != hash) {
                    waiting.push(incoming);
                }
                return false;
            }
            Err(error) => {
                added.errors.push(BlockError::Header { block: hash, error: error.cause });
                return false;
            }
        };
        self.hold(hash, incoming);
        added.linked += 1;
        for event in events {
            match event {
                ChainEvent::Connected { at, .. } => self.connect(at, added),
                ChainEvent::Disconnected { at } => self.disconnect(at, added),
            }
        }
        true
    }

    fn hold(&mut self, hash: BlockHash, IncomingBlock { block, prevouts }: IncomingBlock) {
        block.txdata.iter().for_each(|tx| self.add_outputs(tx));
        self.blocks.insert(hash, Held { block: Arc::new(block), prevouts, was_active: false });
    }

    fn connect(&mut self, at: BlockAt, added: &mut Added) {
        let Some(held) = self.blocks.get_mut(&at.hash) else { return };
        held.was_active = true;
        self.spent.extend(spends(&held.block));
        let Some(filters) = &mut self.filters else { return };
        // A filter header goes on from the one before: where one is missing, none can follow.
        let previous = filters.tip().unwrap_or_else(BlockHash::all_zeros);
        if previous != held.block.header.prev_blockhash {
            return;
        }
        let filter = match &held.prevouts {
            Some(scripts) => BlockFilter::from_prevout_scripts(&held.block, scripts),
            None => BlockFilter::new(&held.block, |outpoint| self.outputs.get(outpoint).cloned()),
        };
        match filter {
            Ok(filter) => {
                added.errors.extend(filters.append(filter).err().map(BlockError::Filters));
            }
            Err(error) => added.errors.push(BlockError::NoFilter { at, error }),
        }
    }

    fn disconnect(&mut self, at: BlockAt, added: &mut Added) {
        added.disconnected += 1;
        let Some(held) = self.blocks.get(&at.hash) else { return };
        for (outpoint, _) in spends(&held.block) {
            self.spent.remove(&outpoint);
        }
        if let Some(filters) = &mut self.filters
            && filters.tip() == Some(at.hash)
            && let Err(error) = filters.rollback(&held.block.header.prev_blockhash)
        {
            added.errors.push(BlockError::Filters(error));
        }
    }

    /// Replaces the operator's transactions in the mempool. Those of peers stay.
    ///
    /// # Cost
    /// In proportion to the mempool.
    pub fn set_transactions(&mut self, transactions: impl IntoIterator<Item = Arc<Transaction>>) {
        self.mempool.set_given(transactions);
        self.mempool.settle(&self.spent);
        self.version += 1;
    }

    /// Adds a transaction of a peer to the mempool: what
    /// [`Action::Accept`](super::Action::Accept) asks for. All peers are then told of it.
    ///
    /// Checked are its inputs (each is an output of a block or of the mempool, and nothing else
    /// spends it), its weight, and the room ([`MAX_ACCEPTED`](super::MAX_ACCEPTED)). Signatures,
    /// amounts and fees are not, and no transaction replaces another (BIP125).
    ///
    /// # Errors
    /// Returns what is wrong with the transaction; the mempool is as before.
    pub fn add_transaction(
        &mut self,
        tx: impl Into<Arc<Transaction>>,
    ) -> Result<(), TransactionError> {
        let tx = tx.into();
        if tx.is_coinbase() {
            return Err(TransactionError::Coinbase);
        }
        if tx.input.is_empty() || tx.output.is_empty() {
            return Err(TransactionError::Empty);
        }
        for input in &tx.input {
            let outpoint = input.previous_output;
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

    /// A number that grows with each change of the chain or of the mempool.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The network.
    pub fn network(&self) -> Network {
        self.headers.network()
    }

    /// The chain of headers.
    pub fn headers(&self) -> &HeaderChain {
        &self.headers
    }

    /// The last block of the active chain.
    pub fn tip(&self) -> BlockAt {
        self.headers.tip()
    }

    /// The filters, unless none are to be served.
    pub fn filters(&self) -> Option<&MemoryFilterStore> {
        self.filters.as_ref()
    }

    /// Returns `true` if every block of the active chain has its filter.
    pub fn has_all_filters(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.tip() == Some(self.tip().hash))
    }

    /// The transactions that no block of the active chain has nor conflicts with, parents first.
    pub fn mempool(&self) -> &Mempool {
        &self.mempool
    }

    /// A block that a peer may ask for: one of the active chain, or one that left it less than
    /// [`STALE_RELAY_AGE_LIMIT`] ago (Core's `BlockRequestAllowed`, its limit on time).
    pub fn block(&self, hash: &BlockHash) -> Option<&Arc<Block>> {
        let held = self.blocks.get(hash)?;
        let tip = self.headers.header_at(self.tip().height)?;
        let is_recent = tip.time.saturating_sub(held.block.header.time) < STALE_RELAY_AGE_LIMIT;
        let allowed = self.headers.height_of(hash).is_some() || (held.was_active && is_recent);
        allowed.then_some(&held.block)
    }

    /// The height of the last block of the active chain that is `hash` or before it.
    pub fn fork_height(&self, mut hash: BlockHash) -> Option<u32> {
        loop {
            if let Some(height) = self.headers.height_of(&hash) {
                return Some(height);
            }
            hash = self.blocks.get(&hash)?.block.header.prev_blockhash;
        }
    }

    /// The number of blocks that wait for their parent, and a missing block that some of them
    /// wait for. `None` if none waits.
    pub fn waiting(&self) -> Option<(usize, BlockHash)> {
        let count = self.waiting.values().map(Vec::len).sum();
        // One that waits for no other that waits.
        let here: HashSet<BlockHash> =
            self.waiting.values().flatten().map(|incoming| incoming.block.block_hash()).collect();
        let missing = self.waiting.keys().filter(|parent| !here.contains(*parent)).min();
        missing.map(|missing| (count, *missing))
    }

    /// The number of blocks that are linked to genesis, on all branches; genesis counts.
    #[expect(clippy::len_without_is_empty, reason = "genesis is always there")]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }
}

/// What a block spends, and which transaction of it does.
fn spends(block: &Block) -> impl Iterator<Item = (OutPoint, Txid)> {
    block.txdata.iter().skip(1).flat_map(|tx| {
        let txid = tx.compute_txid();
        tx.input.iter().map(move |input| (input.previous_output, txid))
    })
}

/// What is wrong with a block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Its transactions are not those of its header. It is not added.
    #[error("block {block}: {error}")]
    Block {
        /// The block.
        block: BlockHash,
        /// Why.
        error: BindError,
    },
    /// Its header breaks a rule. It is not added.
    #[error("block {block}: {error}")]
    Header {
        /// The block.
        block: BlockHash,
        /// The rule.
        error: HeaderError,
    },
    /// It is added, but a script that it spends is not known: this block and all after it have
    /// no filter.
    #[error("block {}, height {}: no filters from here on: {error}", at.hash, at.height)]
    NoFilter {
        /// The block.
        at: BlockAt,
        /// What its filter lacks.
        error: BuildError,
    },
    /// The filters do not follow the chain.
    #[error("filters: {0}")]
    Filters(StoreError),
}

#[cfg(test)]
mod tests;

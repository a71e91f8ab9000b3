//! What the node serves: blocks, the best chain among them, its filters, and transactions that no
//! block has.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{
    Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, Txid, Wtxid,
};
use chainsieve::btc::bip157::server::MemoryFilterStore;
use chainsieve::btc::bip158::{BlockFilter, BoundBlock};
use chainsieve::btc::headers::{BlockAt, ChainEvent, HeaderChain, HeaderError};

use super::pool::Pool;

/// Core's `STALE_RELAY_AGE_LIMIT`: blocks that left the chain are answered for 30 days.
const STALE_AGE_LIMIT: u32 = 30 * 24 * 60 * 60;

/// The state that all connections share.
pub(super) struct Chain {
    headers: HeaderChain,
    blocks: HashMap<BlockHash, Held>,
    /// Blocks whose parent is not there yet, by the parent.
    waiting: HashMap<BlockHash, Vec<Incoming>>,
    /// The scripts of all outputs of all blocks. A txid stands for its outputs on every branch,
    /// so that none is ever taken back.
    outputs: HashMap<OutPoint, ScriptBuf>,
    /// What blocks of the active chain spend, and the transaction that does.
    spent: HashMap<OutPoint, Txid>,
    filters: Option<MemoryFilterStore>,
    pool: Pool,
    version: u64,
}

struct Held {
    block: Arc<Block>,
    prevouts: Option<Vec<ScriptBuf>>,
    /// Core gives no block away that it never had in its chain.
    was_active: bool,
}

/// A block, and the scripts that it spends where its source says them.
pub(super) struct Incoming {
    pub(super) block: Block,
    pub(super) prevouts: Option<Vec<ScriptBuf>>,
}

/// What became of a block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The blocks that are linked to genesis now: this one and those that waited for it.
    pub(super) linked: usize,
    /// The blocks that left the active chain.
    pub(super) disconnected: usize,
    /// What is wrong with any of them, in words.
    pub(super) complaints: Vec<String>,
}

impl Chain {
    /// The chain of `network` with its genesis block, and filters if `with_filters`.
    pub(super) fn new(network: Network, with_filters: bool) -> Self {
        let mut chain = Self {
            headers: HeaderChain::new(network),
            blocks: HashMap::new(),
            waiting: HashMap::new(),
            outputs: HashMap::new(),
            spent: HashMap::new(),
            filters: with_filters.then(MemoryFilterStore::new),
            pool: Pool::default(),
            version: 0,
        };
        let hash = chain.tip().hash;
        chain.hold(hash, Incoming { block: genesis_block(network), prevouts: None });
        let mut taken = Taken::default();
        chain.connect(BlockAt { height: 0, hash }, &mut taken);
        debug_assert_eq!(taken.complaints, [""; 0], "genesis spends nothing");
        chain
    }

    /// The scripts of a transaction whose outputs blocks spend.
    pub(super) fn learn(&mut self, tx: &Transaction) {
        let txid = tx.compute_txid();
        for (vout, output) in (0..).zip(&tx.output) {
            self.outputs.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
        }
    }

    /// Takes a block, and those that waited for it. `now` is the time in Unix seconds.
    pub(super) fn take(&mut self, incoming: Incoming, now: u32) -> Taken {
        let mut taken = Taken::default();
        let mut next = vec![incoming];
        while let Some(incoming) = next.pop() {
            let hash = incoming.block.block_hash();
            if self.link(hash, incoming, now, &mut taken) {
                next.extend(self.waiting.remove(&hash).into_iter().flatten());
            }
        }
        if taken.linked > 0 {
            self.version += 1;
            self.pool.settle(&self.spent);
        }
        taken
    }

    /// Whether the block was new and is linked now.
    fn link(&mut self, hash: BlockHash, incoming: Incoming, now: u32, taken: &mut Taken) -> bool {
        if self.blocks.contains_key(&hash) {
            return false;
        }
        let header = incoming.block.header;
        if let Err(error) = BoundBlock::bind(&incoming.block, hash, self.network()) {
            taken.complaints.push(format!("block {hash}: {error}"));
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
                taken.complaints.push(format!("block {hash}: {}", error.cause));
                return false;
            }
        };
        self.hold(hash, incoming);
        taken.linked += 1;
        for event in events {
            match event {
                ChainEvent::Connected { at, .. } => self.connect(at, taken),
                ChainEvent::Disconnected { at } => self.disconnect(at, taken),
            }
        }
        true
    }

    fn hold(&mut self, hash: BlockHash, Incoming { block, prevouts }: Incoming) {
        block.txdata.iter().for_each(|tx| self.learn(tx));
        self.blocks.insert(hash, Held { block: Arc::new(block), prevouts, was_active: false });
    }

    fn connect(&mut self, at: BlockAt, taken: &mut Taken) {
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
        let appended = filter
            .map_err(|error| error.to_string())
            .and_then(|filter| filters.append(filter).map_err(|error| error.to_string()));
        if let Err(error) = appended {
            taken.complaints.push(format!(
                "block {}, height {}: no filters from here on: {error}",
                at.hash, at.height
            ));
        }
    }

    fn disconnect(&mut self, at: BlockAt, taken: &mut Taken) {
        taken.disconnected += 1;
        let Some(held) = self.blocks.get(&at.hash) else { return };
        for (outpoint, _) in spends(&held.block) {
            self.spent.remove(&outpoint);
        }
        if let Some(filters) = &mut self.filters
            && filters.tip() == Some(at.hash)
            && let Err(error) = filters.rollback(&held.block.header.prev_blockhash)
        {
            taken.complaints.push(format!("filters: {error}"));
        }
    }

    /// Replaces the transactions that may be announced: all that the folder has.
    pub(super) fn set_pool(&mut self, transactions: impl IntoIterator<Item = Arc<Transaction>>) {
        self.pool = Pool::new(transactions);
        self.pool.settle(&self.spent);
        self.version += 1;
    }

    /// Changes whenever there may be something to announce.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn network(&self) -> Network {
        self.headers.network()
    }

    pub(super) fn headers(&self) -> &HeaderChain {
        &self.headers
    }

    pub(super) fn tip(&self) -> BlockAt {
        self.headers.tip()
    }

    /// The filters, unless none are to be served.
    pub(super) fn filters(&self) -> Option<&MemoryFilterStore> {
        self.filters.as_ref()
    }

    /// Whether every block of the active chain has its filter.
    pub(super) fn has_all_filters(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.tip() == Some(self.tip().hash))
    }

    /// The transactions that no block of the active chain has nor conflicts with, parents first.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A block that a peer may have: Core's `BlockRequestAllowed`, its limit on time.
    pub(super) fn block(&self, hash: &BlockHash) -> Option<&Arc<Block>> {
        let held = self.blocks.get(hash)?;
        let tip = self.headers.header_at(self.tip().height)?;
        let is_recent = tip.time.saturating_sub(held.block.header.time) < STALE_AGE_LIMIT;
        let allowed = self.headers.height_of(hash).is_some() || (held.was_active && is_recent);
        allowed.then_some(&held.block)
    }

    /// The height of the last block of the active chain that is `hash` or before it.
    pub(super) fn fork_height(&self, mut hash: BlockHash) -> Option<u32> {
        loop {
            if let Some(height) = self.headers.height_of(&hash) {
                return Some(height);
            }
            hash = self.blocks.get(&hash)?.block.header.prev_blockhash;
        }
    }

    /// The blocks that wait, and one that they wait for.
    pub(super) fn waiting(&self) -> Option<(usize, BlockHash)> {
        let count = self.waiting.values().map(Vec::len).sum();
        // One that waits for no other that waits.
        let here: HashSet<BlockHash> =
            self.waiting.values().flatten().map(|incoming| incoming.block.block_hash()).collect();
        let missing = self.waiting.keys().filter(|parent| !here.contains(*parent)).min();
        missing.map(|missing| (count, *missing))
    }

    /// The blocks that are linked, genesis included.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// A transaction that may be announced.
    pub(super) fn transaction(&self, txid: &Txid) -> Option<&Arc<Transaction>> {
        self.pool.get(txid)
    }

    /// The same by the id that commits to witnesses.
    pub(super) fn witness_transaction(&self, wtxid: &Wtxid) -> Option<&Arc<Transaction>> {
        self.pool.get_by_wtxid(wtxid)
    }
}

/// What a block spends, and which transaction of it does.
fn spends(block: &Block) -> impl Iterator<Item = (OutPoint, Txid)> {
    block.txdata.iter().skip(1).flat_map(|tx| {
        let txid = tx.compute_txid();
        tx.input.iter().map(move |input| (input.previous_output, txid))
    })
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;

//! Verified blocks: the header by its hash, the receipts and the body by the roots in the header.
//!
//! [`Blocks`] asks the nodes for data that is not known. Data to which a trusted header does not commit is
//! never returned as proven. Proven data may be kept in memory and on disk. Data that several threads need
//! at the same time is fetched once. Counters and logs belong to the caller: an [`Observer`] receives the
//! events.
//!
//! | file | contents |
//! |---|---|
//! | `header`, `receipts`, `body` | one part of a block: kept, fetched, proven |
//! | `kept` | what is kept in memory and on disk |
//! | `source` | the nodes and the disk, whether filters are believed, and what the caller is told |

mod body;
mod header;
mod kept;
mod receipts;
mod source;

use std::sync::Arc;

use alloy_consensus::EMPTY_OMMER_ROOT_HASH;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::transactions::VerifiedTransactions;

use crate::error::FetchError;
use crate::nodes::ask::{first_error, in_turn, index_of};
use crate::nodes::{Node, ReceiptRoom, ReceiptsAndBody, Wanted};
use body::{Bodies, Hashes};
use header::Headers;
use kept::{Kind, Places, Shares};
use receipts::{ProvenReceipts, Receipts};
use source::Source;

pub(crate) use body::Body;
pub(crate) use header::BlockHeader;
pub(crate) use kept::{Flights, Store};
pub(crate) use source::{FilterTrust, Found, Missing, Observer, Part, Wrong};

/// Settings for the data that is kept, and the observer that receives the events.
#[derive(Debug)]
pub(crate) struct Options {
    /// Maximum number of bytes in memory; if this is 0, nothing is kept.
    pub(crate) memory: u64,
    /// The store on disk; `None` if nothing is kept on disk.
    pub(crate) store: Option<Store>,
    pub(crate) observer: Arc<dyn Observer>,
}

/// Proven blocks in memory and on disk, and the nodes that serve the others.
///
/// A caller passes only headers that it trusts. Receipts and bodies are then proven by the roots in
/// these headers.
#[derive(Debug)]
pub(crate) struct Blocks {
    source: Source,
    /// The fact about a block that a "no" of its filter proves.
    pub(crate) filters: FilterTrust,
    headers: Headers,
    receipts: Receipts,
    bodies: Bodies,
    /// The blocks of transactions that were found before. Such a block may have left the chain since then.
    pub(crate) places: Places,
    /// Groups of blocks that are being fetched together, by the hash of the first block.
    together_in_flight: Flights<B256, ()>,
}

impl Blocks {
    pub(crate) fn new(nodes: Vec<Node>, profile: ChainProfile, options: Options) -> Self {
        let Options { memory, store, observer } = options;
        let shares = Shares::of(memory);
        Self {
            source: Source { nodes, store, observer },
            filters: FilterTrust::new(profile),
            headers: Headers::new(shares.headers),
            receipts: Receipts::new(shares.receipts),
            bodies: Bodies::new(shares.bodies, shares.hashes),
            places: Places::new(shares.places),
            together_in_flight: Flights::new(),
        }
    }

    /// Returns the nodes, in the order in which they were given.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.source.nodes
    }

    /// Returns the place of a node among [`nodes`](Self::nodes).
    pub(crate) fn index_of(&self, node: &Node) -> usize {
        index_of(self.nodes(), node)
    }

    /// Believes the filters again, if all blocks that refuted them have left the chain.
    pub(crate) fn forget_refuting(&self, removed: &[B256]) {
        for hash in self.filters.forget(removed) {
            self.receipts.drop_block(hash);
        }
    }

    /// Returns the header of a block.
    pub(crate) fn header(&self, at: BlockRef) -> Result<Arc<BlockHeader>, Missing> {
        let header = self.headers.get(&self.source, at.hash, true);
        header.map_err(|why| Missing::new(at, Part::Header, &why))
    }

    /// Returns the header with this hash and any number; `None` if a node answers that it does not have the
    /// header, and no other node has it. The hash proves the header, but not that its block is on the chain.
    ///
    /// `exists` is `true` if a source names the block. Nodes that fail are then asked again.
    pub(crate) fn header_with(
        &self,
        hash: B256,
        exists: bool,
    ) -> Result<Option<Arc<BlockHeader>>, FetchError> {
        match self.headers.get(&self.source, hash, exists) {
            Ok(header) => Ok(Some(header)),
            Err(unanswered) if unanswered.has_none() && !exists => Ok(None),
            Err(unanswered) => {
                first_error(unanswered, || format!("block {hash}")).map_or(Ok(None), Err)
            }
        }
    }

    /// Returns `true` if the receipts of a block are in memory.
    pub(crate) fn has_receipts_in_memory(&self, hash: B256) -> bool {
        self.receipts.peek(hash).is_some()
    }

    /// Returns all receipts of a block of the chain.
    pub(crate) fn receipts(&self, block: &ChainBlock<'_>) -> Result<Arc<ProvenReceipts>, Missing> {
        self.receipts.get(&self.source, &self.filters, block)
    }

    /// Returns the hashes of a block's transactions, in order.
    pub(crate) fn hashes(&self, block: &ChainBlock<'_>) -> Result<Hashes, Missing> {
        self.bodies.hashes(&self.source, block)
    }

    /// Returns the transactions of a block of the chain.
    pub(crate) fn transactions(
        &self,
        block: &ChainBlock<'_>,
    ) -> Result<Arc<VerifiedTransactions>, Missing> {
        self.bodies.transactions(&self.source, block)
    }

    /// Returns the data to which the header of a block commits, except receipts and state.
    pub(crate) fn body(&self, block: &BlockHeader) -> Result<Body, Missing> {
        self.bodies.body(&self.source, block)
    }

    /// Returns the headers of a block's ommers, which are kept with its body.
    pub(crate) fn ommers(&self, block: &BlockHeader) -> Result<Vec<HeaderBuf>, Missing> {
        if block.header.view().ommers_hash() == EMPTY_OMMER_ROOT_HASH {
            return Ok(Vec::new());
        }
        Ok(self.body(block)?.ommers)
    }

    /// Returns `true` if the filter in the header rules out any log.
    fn has_no_logs(&self, block: &ChainBlock<'_>) -> bool {
        block.bloom.is_zero() && self.filters.prove_absence(&(block.number..=block.number))
    }

    /// Fetches the unknown receipts and transactions of these blocks in one request, and keeps the data
    /// that is proven. The other data is fetched later, when it is needed, and errors are reported then.
    pub(crate) fn fetch_together(&self, blocks: &[ChainBlock<'_>]) {
        // Without memory, nothing could be kept until it is asked for.
        if self.receipts.keep_nothing() {
            return;
        }
        let source = &self.source;
        let is_unknown = |block: &&ChainBlock<'_>| {
            let is_stored = || source.store.as_ref()?.get(Kind::Receipts, block.receipts_root);
            let is_known = self.has_receipts_in_memory(block.hash) || self.has_no_logs(block);
            !is_known && is_stored().is_none()
        };
        let unknown: Vec<_> = blocks.iter().filter(is_unknown).collect();
        let Some(first) = unknown.first() else { return };
        self.together_in_flight.run(&first.hash, || {
            let wanted = |block: &&ChainBlock<'_>| {
                let room = ReceiptRoom::of_gas(block.gas_used);
                Wanted { block: BlockRef::from(**block), room }
            };
            let wanted: Vec<_> = unknown.iter().map(wanted).collect();
            // A call that needs one of them repeats the request, if necessary at another node.
            let first = in_turn(self.nodes()).first().map(|node| node.with_retries(0));
            let found = first.map(|node| node.receipts_and_bodies(&wanted)).unwrap_or_default();
            for ReceiptsAndBody { block: at, receipts, body } in found {
                let Some(block) = unknown.iter().find(|block| block.hash == at.hash) else {
                    continue;
                };
                if let Some(body) = body {
                    self.bodies.take_ahead(source, block, body);
                }
                if let Some(receipts) = receipts {
                    self.receipts.take_ahead(source, &self.filters, block, receipts);
                }
            }
        });
    }

    /// Returns the matching logs of a block, in order, with all members proven. The hash of a transaction is
    /// only a claim if the block has a transaction of an unknown type, and no node sends the encoding of that
    /// transaction.
    pub(crate) fn logs(
        &self,
        block: &ChainBlock<'_>,
        query: &LogQuery,
        semantics: Semantics,
    ) -> Result<Vec<LocatedLog>, Missing> {
        if self.has_no_logs(block) {
            return Ok(Vec::new());
        }
        let receipts = self.receipts(block)?;
        let mut logs = receipts.matching(query, semantics);
        // Without a match, nobody asks for the hashes of transactions.
        if logs.is_empty() {
            return Ok(logs);
        }
        let at = |log: &LocatedLog, hashes: &[B256]| {
            let index = usize::try_from(log.transaction_index).ok()?;
            hashes.get(index).copied()
        };
        let missing = match self.hashes(block) {
            Ok(hashes) => {
                for log in &mut logs {
                    log.transaction_hash = at(log, &hashes);
                }
                if logs.iter().all(|log| log.transaction_hash.is_some()) {
                    return Ok(logs);
                }
                let why = format!("the block has {} transactions, and more receipts", hashes.len());
                return Err(Missing::of(BlockRef::from(*block), Part::Transactions, vec![why]));
            }
            Err(missing) => missing,
        };
        match &missing.claimed {
            Some(claimed) if claimed.fit(receipts.receipts()) => {
                for log in &mut logs {
                    log.claimed_transaction_hash = at(log, &claimed.hashes);
                }
                self.source.observer.hashes_claimed(BlockRef::from(*block));
                Ok(logs)
            }
            _ => Err(missing),
        }
    }
}

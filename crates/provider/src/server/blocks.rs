//! Receipts and transactions of blocks, proven by the roots of trusted headers, and kept.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alloy_rpc_types_eth::Withdrawal;
use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, ChainBlock, HeaderBuf};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, VerifyError};
use chainsieve::eth::transactions::{BlockTransactions, VerifiedTransactions};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::events::{Events, RpcServerEvent};
use super::flight::Flights;
use super::journal::{BlockHeader, Journal};
use super::metrics::{Kept, Metrics, Wrong};
use super::store::{Kind, Store};
use crate::node::{Node, ReceiptsAndBody, ReceivedReceipts};
use crate::nodes::{Unaccepted, Unanswered, ask, in_turn, index_of};

/// All receipts of a block, which its header commits to.
#[derive(Debug)]
pub(super) struct ProvenReceipts {
    at: BlockRef,
    timestamp: u64,
    receipts: BlockReceipts,
    bytes: u64,
    /// `true` if they were fetched before anybody asked for them, and until somebody does.
    is_ahead: AtomicBool,
}

/// Hashes of all transactions of a block, which its header commits to.
type Hashes = Arc<[B256]>;

/// Reason why a block is not proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) block: BlockRef,
    /// Reasons, one for each upstream that was asked.
    pub(super) why: Vec<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: {}", self.block.number, self.why.join("; "))
    }
}

/// Why a node was of no use for receipts.
const NO_RECEIPTS: &str = "the node does not have the receipts";

fn missing(block: BlockRef, unanswered: &Unanswered, absent: &str) -> Missing {
    Missing { block, why: unanswered.lines(absent) }
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<B256, Arc<ProvenReceipts>> for ByBytes {
    fn weight(&self, _: &B256, receipts: &Arc<ProvenReceipts>) -> u64 {
        receipts.bytes
    }
}

impl Weighter<B256, Arc<BlockHeader>> for ByBytes {
    fn weight(&self, _: &B256, block: &Arc<BlockHeader>) -> u64 {
        block.header.rlp().len() as u64 + 100
    }
}

impl Weighter<B256, Hashes> for ByBytes {
    fn weight(&self, _: &B256, hashes: &Hashes) -> u64 {
        32 * hashes.len() as u64 + 100
    }
}

/// Proven blocks in memory and on disk, and the upstreams that serve the others.
#[derive(Debug)]
pub(super) struct Blocks {
    nodes: Vec<Node>,
    profile: ChainProfile,
    /// `true` once the filter of a proven block lacked bits of a log, although the profile rules that out.
    are_filters_refuted: AtomicBool,
    /// Such blocks of the chain; not all, if there are many.
    refuting: Mutex<Vec<BlockRef>>,
    receipts: Cache<B256, Arc<ProvenReceipts>, ByBytes>,
    hashes: Cache<B256, Hashes, ByBytes>,
    /// Headers of candidates that the index names.
    headers: Cache<B256, Arc<BlockHeader>, ByBytes>,
    store: Option<Store>,
    receipts_in_flight: Flights<B256, Result<Arc<ProvenReceipts>, Missing>>,
    /// Blocks that are fetched together, by the first one.
    together_in_flight: Flights<B256, ()>,
    headers_in_flight: Flights<B256, Result<Arc<BlockHeader>, Missing>>,
    transactions_in_flight: Flights<B256, Result<Arc<VerifiedTransactions>, Missing>>,
    /// Told when filters are refuted, because what was sent by them may lack logs.
    journal: Arc<Journal>,
    metrics: Arc<Metrics>,
    events: Events,
}

/// Number of blocks after which no further ones are noted that refute filters.
const MOST_REFUTING: usize = 64;
/// Number of blocks that the caches in memory are laid out for. More are kept if they are small.
const ESTIMATED_BLOCKS: usize = 4096;

impl ProvenReceipts {
    pub(super) fn receipts(&self) -> &BlockReceipts {
        &self.receipts
    }

    /// Returns the matching logs, in order, without the hashes of their transactions.
    pub(super) fn matching(&self, query: &LogQuery, semantics: Semantics) -> Vec<LocatedLog> {
        let mut matching = Vec::new();
        let mut log_index = 0;
        for (receipt, transaction_index) in self.receipts.iter().zip(0..) {
            for log in &receipt.logs {
                if query.matches(log, semantics) {
                    matching.push(LocatedLog {
                        log: log.clone(),
                        block_number: self.at.number,
                        block_hash: self.at.hash,
                        block_timestamp: Some(self.timestamp),
                        transaction_hash: None,
                        claimed_transaction_hash: None,
                        transaction_index,
                        log_index,
                        removed: false,
                    });
                }
                log_index += 1;
            }
        }
        matching
    }
}

impl Blocks {
    /// `memory` is the maximum number of bytes in memory.
    pub(super) fn new(
        nodes: Vec<Node>,
        profile: ChainProfile,
        memory: u64,
        store: Option<Store>,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
        events: Events,
    ) -> Self {
        let small = memory / 8;
        Self {
            nodes,
            profile,
            are_filters_refuted: AtomicBool::new(false),
            refuting: Mutex::default(),
            receipts: Cache::with_weighter(ESTIMATED_BLOCKS, memory - 2 * small, ByBytes),
            hashes: Cache::with_weighter(ESTIMATED_BLOCKS, small, ByBytes),
            headers: Cache::with_weighter(ESTIMATED_BLOCKS, small, ByBytes),
            store,
            receipts_in_flight: Flights::new(),
            together_in_flight: Flights::new(),
            headers_in_flight: Flights::new(),
            transactions_in_flight: Flights::new(),
            journal,
            metrics,
            events,
        }
    }

    /// Returns the nodes, in the order in which they were given.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the place of a node among [`nodes`](Self::nodes).
    pub(super) fn index_of(&self, node: &Node) -> usize {
        index_of(&self.nodes, node)
    }

    pub(super) fn profile(&self) -> &ChainProfile {
        &self.profile
    }

    /// Returns `true` if a "no" of the filter of the block with this number proves that the block has no
    /// matching log: the profile says so, and no block refuted it.
    pub(super) fn filters_prove_absence(&self, number: u64) -> bool {
        self.profile.at(number).bloom.proves_absence() && !self.are_filters_refuted()
    }

    /// Returns `true` if the filter of a block of the chain lacks bits of a log, so that filters of this
    /// chain prove nothing.
    pub(super) fn are_filters_refuted(&self) -> bool {
        self.are_filters_refuted.load(Ordering::SeqCst)
    }

    /// Returns the receipts of a block if they are in memory.
    pub(super) fn receipts_in_memory(&self, hash: B256) -> Option<Arc<ProvenReceipts>> {
        self.receipts.get(&hash)
    }

    /// Returns all receipts of a block of the chain.
    pub(super) fn receipts(&self, block: &ChainBlock<'_>) -> Result<Arc<ProvenReceipts>, Missing> {
        let in_memory = || {
            let known = self.receipts.get(&block.hash)?;
            let is_ahead = known.is_ahead.swap(false, Ordering::Relaxed);
            self.metrics.found(if is_ahead { Kept::Nowhere } else { Kept::Memory });
            Some(known)
        };
        if let Some(known) = in_memory() {
            return Ok(known);
        }
        self.receipts_in_flight.run(&block.hash, || {
            // A flight that ended since the look above leaves its receipts in memory.
            if let Some(known) = in_memory() {
                return Ok(known);
            }
            let stored = self.stored(Kind::Receipts, block.receipts_root, |encodings| {
                self.proven(block, BlockReceipts::from_encodings(&encodings).ok()?).ok()
            });
            let receipts = if let Some(receipts) = stored {
                self.metrics.found(Kept::Disk);
                receipts
            } else {
                self.metrics.found(Kept::Nowhere);
                let receipts = self.fetch_receipts(block)?;
                self.store_receipts(block, &receipts);
                receipts
            };
            Ok(self.hold(block, receipts, false))
        })
    }

    fn store_receipts(&self, block: &ChainBlock<'_>, receipts: &BlockReceipts) {
        if let (Some(store), Some(encodings)) = (&self.store, receipts.encodings()) {
            store.put(Kind::Receipts, block.receipts_root, &encodings);
        }
    }

    /// Keeps proven receipts in memory.
    fn hold(
        &self,
        block: &ChainBlock<'_>,
        receipts: BlockReceipts,
        is_ahead: bool,
    ) -> Arc<ProvenReceipts> {
        let bytes = crate::held::bytes_of_receipts(&receipts);
        let (at, timestamp) = (BlockRef::from(*block), block.timestamp);
        let proven =
            Arc::new(ProvenReceipts { at, timestamp, receipts, bytes, is_ahead: is_ahead.into() });
        self.receipts.insert(block.hash, Arc::clone(&proven));
        proven
    }

    /// Fetches the receipts and the transactions of these blocks in one request, as far as they are not
    /// known, and keeps what is proven. The rest is fetched, and its errors are told, when somebody asks
    /// for it.
    pub(super) fn fetch_together(&self, blocks: &[ChainBlock<'_>]) {
        // Without memory, nothing could be kept until it is asked for.
        if self.receipts.capacity() == 0 {
            return;
        }
        let is_unknown = |block: &&ChainBlock<'_>| {
            let is_stored = || self.store.as_ref()?.get(Kind::Receipts, block.receipts_root);
            let is_known = self.receipts.get(&block.hash).is_some() || self.has_no_logs(block);
            !is_known && is_stored().is_none()
        };
        let unknown: Vec<_> = blocks.iter().filter(is_unknown).collect();
        let Some(first) = unknown.first() else { return };
        self.together_in_flight.run(&first.hash, || {
            let at: Vec<_> = unknown.iter().map(|block| BlockRef::from(**block)).collect();
            // Whoever asks for one of them repeats the request, if necessary at another node.
            let first = in_turn(&self.nodes).first().map(|node| node.with_retries(0));
            let found = first.map(|node| node.receipts_and_bodies(&at)).unwrap_or_default();
            for ReceiptsAndBody { block: at, receipts, body } in found {
                let Some(block) = unknown.iter().find(|block| block.hash == at.hash) else {
                    continue;
                };
                let transactions =
                    body.and_then(|body| body.transactions.verify(block.transactions_root).ok());
                if let Some(transactions) = transactions {
                    self.keep(block, &transactions);
                }
                if let Some(receipts) = receipts.and_then(|it| self.proven(block, it).ok()) {
                    self.store_receipts(block, &receipts);
                    self.hold(block, receipts, true);
                }
            }
        });
    }

    /// Returns `true` if the filter in the header rules out any log.
    fn has_no_logs(&self, block: &ChainBlock<'_>) -> bool {
        block.bloom.is_zero() && self.filters_prove_absence(block.number)
    }

    /// Returns what is on disk under a root, if `proven` finds that it has this root.
    fn stored<T>(
        &self,
        kind: Kind,
        root: B256,
        proven: impl FnOnce(Vec<Vec<u8>>) -> Option<T>,
    ) -> Option<T> {
        proven(self.store.as_ref()?.get(kind, root)?)
    }

    /// Returns the header of a block.
    pub(super) fn header(&self, at: BlockRef) -> Result<Arc<BlockHeader>, Missing> {
        if let Some(known) = self.headers.get(&at.hash) {
            return Ok(known);
        }
        self.headers_in_flight.run(&at.hash, || {
            // A flight that ended since the look above leaves its header in memory.
            if let Some(known) = self.headers.get(&at.hash) {
                return Ok(known);
            }
            let stored = self.stored(Kind::Header, at.hash, |mut encodings| {
                HeaderBuf::from_rlp(encodings.pop()?).ok().filter(|header| header.hash() == at.hash)
            });
            let header = match stored {
                Some(header) => header,
                None => self.fetch_header(at)?,
            };
            let block = Arc::new(BlockHeader::new(header));
            self.headers.insert(at.hash, Arc::clone(&block));
            Ok(block)
        })
    }

    fn fetch_header(&self, at: BlockRef) -> Result<HeaderBuf, Missing> {
        let asked = ask(&self.nodes, |node| Ok(node.header_by_hash(at.hash)?));
        let header = asked.map_err(|why| missing(at, &why, "the node does not have the header"))?;
        if let Some(store) = &self.store {
            store.put(Kind::Header, at.hash, &[Bytes::copy_from_slice(header.rlp())]);
        }
        Ok(header)
    }

    /// Checks receipts against the root in the header. If the filter in the header lacks bits of their
    /// logs, filters prove nothing from now on.
    fn proven(
        &self,
        block: &ChainBlock<'_>,
        receipts: BlockReceipts,
    ) -> Result<BlockReceipts, VerifyError> {
        let (number, root) = (block.number, block.receipts_root);
        let verified =
            receipts.verify_by_profile(&self.profile, number, root, block.bloom.into())?;
        if let BloomAgreement::Missing { log_index, .. } = verified.header_bloom()
            && self.profile.at(number).bloom.proves_absence()
        {
            self.refute_filters(BlockRef::from(*block), log_index);
        }
        Ok(receipts)
    }

    fn refuting(&self) -> MutexGuard<'_, Vec<BlockRef>> {
        self.refuting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refute_filters(&self, block: BlockRef, log_index: u64) {
        let mut refuting = self.refuting();
        if refuting.contains(&block) {
            return;
        }
        self.metrics.lacking_filter();
        if refuting.len() < MOST_REFUTING {
            refuting.push(block);
        }
        if !self.are_filters_refuted.swap(true, Ordering::SeqCst) {
            drop(refuting);
            self.events.log(&RpcServerEvent::FiltersRefuted { block, log_index });
            // Whatever filters and subscriptions got so far may lack logs.
            self.journal.push(&[], Vec::new(), true);
        }
    }

    /// Believes the filters again, if all blocks that refuted them have left the chain: under a head that a
    /// node names, such a block may be made up. With `restarted`, the whole chain was replaced.
    pub(super) fn forget_refuting(&self, removed: &[B256], restarted: bool) {
        let mut refuting = self.refuting();
        if refuting.is_empty() || refuting.len() >= MOST_REFUTING && !restarted {
            return;
        }
        refuting.retain(|block| !restarted && !removed.contains(&block.hash));
        if refuting.is_empty() {
            self.are_filters_refuted.store(false, Ordering::SeqCst);
        }
    }

    fn fetch_receipts(&self, block: &ChainBlock<'_>) -> Result<BlockReceipts, Missing> {
        let at = BlockRef::from(*block);
        let checked = |node: &Node, received: ReceivedReceipts| {
            self.proven(block, received.receipts).map_err(|error| {
                // After a reorganisation, an honest node has another block with this number.
                if !received.is_of_block {
                    let why =
                        format!("the receipts may be of another block {}: {error}", at.number);
                    return Unaccepted::Answer(why);
                }
                if !error.is_undecidable() {
                    self.metrics.wrong(node, Wrong::Receipts);
                }
                Unaccepted::Answer(error.to_string())
            })
        };
        let asked = ask(&self.nodes, |node| {
            node.received_receipts(at)?.map(|received| checked(node, received)).transpose()
        });
        let unanswered = match asked {
            Err(unanswered) if !unanswered.is_stopped() => unanswered,
            asked => return asked.map_err(|why| missing(at, &why, NO_RECEIPTS)),
        };
        // Another method of a node may have what its first one lacks.
        let asked = ask(&self.nodes, |node| {
            let (mut found, mut failed) = (None, None);
            node.received_by_each_method(at, |_, received| {
                // The other methods of a silent node would cost a timeout each.
                failed = received.as_ref().err().filter(|error| error.is_silence()).cloned();
                let received = received.ok().flatten();
                found = received.and_then(|receipts| checked(node, receipts).ok());
                found.is_some() || failed.is_some()
            });
            failed.map_or(Ok(found), |error| Err(error.into()))
        });
        asked.map_err(|_| missing(at, &unanswered, NO_RECEIPTS))
    }

    /// Returns the hashes of a block's transactions, in order.
    pub(super) fn hashes(&self, block: &ChainBlock<'_>) -> Result<Hashes, Missing> {
        if let Some(known) = self.hashes.get(&block.hash) {
            return Ok(known);
        }
        let transactions = self.transactions(block)?;
        let hashes: Hashes = transactions.hashes().into();
        self.hashes.insert(block.hash, Arc::clone(&hashes));
        Ok(hashes)
    }

    /// Keeps the transactions of a block on disk, and their hashes in memory.
    fn keep(&self, block: &ChainBlock<'_>, transactions: &VerifiedTransactions) {
        if let Some(store) = &self.store {
            store.put(Kind::Transactions, block.transactions_root, transactions.encodings());
        }
        self.hashes.insert(block.hash, transactions.hashes().into());
    }

    /// Returns the transactions of a block of the chain.
    pub(super) fn transactions(
        &self,
        block: &ChainBlock<'_>,
    ) -> Result<Arc<VerifiedTransactions>, Missing> {
        let root = block.transactions_root;
        self.transactions_in_flight.run(&block.hash, || {
            let stored = self.stored(Kind::Transactions, root, |encodings| {
                let encodings = encodings.into_iter().map(Bytes::from).collect();
                BlockTransactions::from_encodings(encodings).verify(root).ok()
            });
            if let Some(transactions) = stored {
                return Ok(Arc::new(transactions));
            }
            // Logs and receipts do not depend on the withdrawals.
            let (transactions, _) = self.fetch_body(BlockRef::from(*block), root, |_| true)?;
            self.keep(block, &transactions);
            Ok(Arc::new(transactions))
        })
    }

    /// Returns the transactions of a block under their root, and its withdrawals if `fits` takes them.
    /// `None` are the withdrawals before Shanghai.
    pub(super) fn fetch_body(
        &self,
        at: BlockRef,
        transactions_root: B256,
        fits: impl Fn(Option<&[Withdrawal]>) -> bool,
    ) -> Result<(VerifiedTransactions, Option<Vec<Withdrawal>>), Missing> {
        let asked = ask(&self.nodes, |node| {
            let Some(body) = node.body(at.hash)? else { return Ok(None) };
            let verified = body.transactions.verify(transactions_root);
            let (wrong, why) = match verified {
                Ok(transactions) if fits(body.withdrawals.as_deref()) => {
                    return Ok(Some((transactions, body.withdrawals)));
                }
                Ok(_) => {
                    let why = "the withdrawals have another root than the header";
                    (Wrong::Withdrawals, why.to_owned())
                }
                Err(error) => (Wrong::Transactions, error.to_string()),
            };
            self.metrics.wrong(node, wrong);
            Err(Unaccepted::Answer(why))
        });
        asked.map_err(|why| missing(at, &why, "the node does not have the block"))
    }

    /// Returns the matching logs of a block, in order, with all members proven.
    pub(super) fn logs(
        &self,
        block: &ChainBlock<'_>,
        query: &LogQuery,
        semantics: Semantics,
    ) -> Result<Vec<LocatedLog>, Missing> {
        if self.has_no_logs(block) {
            return Ok(Vec::new());
        }
        let mut logs = self.receipts(block)?.matching(query, semantics);
        // Without a match, nobody asks for the hashes of transactions.
        if !logs.is_empty() {
            let hashes = self.hashes(block)?;
            for log in &mut logs {
                let hash =
                    usize::try_from(log.transaction_index).ok().and_then(|at| hashes.get(at));
                log.transaction_hash = hash.copied();
                if log.transaction_hash.is_none() {
                    let why =
                        format!("the block has {} transactions, and more receipts", hashes.len());
                    return Err(Missing { block: BlockRef::from(*block), why: vec![why] });
                }
            }
        }
        Ok(logs)
    }
}

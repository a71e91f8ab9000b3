//! Receipts of blocks, under the receipts root of a trusted header.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::header::{BlockRef, ChainBlock};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement, ReceiptsError};

use super::kept::{Flights, Kept, Kind, Size, kept};
use super::source::{FilterTrust, Found, Missing, Part, Source, Wrong};
use crate::nodes::ask::{Unaccepted, ask};
use crate::nodes::{Node, ReceiptRoom, ReceivedReceipts};

/// All receipts of a block, which its header commits to.
#[derive(Debug)]
pub(crate) struct ProvenReceipts {
    at: BlockRef,
    timestamp: u64,
    receipts: BlockReceipts,
    bytes: u64,
    /// `true` if the receipts were fetched before they were requested, until the first request.
    is_ahead: AtomicBool,
}

impl ProvenReceipts {
    pub(crate) fn receipts(&self) -> &BlockReceipts {
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

impl Size for Arc<ProvenReceipts> {
    fn size(&self) -> u64 {
        self.bytes
    }
}

/// Receipts in memory, and receipts that are being fetched.
#[derive(Debug)]
pub(super) struct Receipts {
    kept: Kept<B256, Arc<ProvenReceipts>>,
    in_flight: Flights<B256, Result<Arc<ProvenReceipts>, Missing>>,
}

impl Receipts {
    pub(super) fn new(bytes: u64) -> Self {
        Self { kept: kept(bytes), in_flight: Flights::new() }
    }

    /// Returns `true` if nothing is kept in memory.
    pub(super) fn keep_nothing(&self) -> bool {
        self.kept.capacity() == 0
    }

    /// Returns the receipts of a block if they are in memory, without a report to the observer.
    pub(super) fn peek(&self, hash: B256) -> Option<Arc<ProvenReceipts>> {
        self.kept.get(&hash)
    }

    /// Drops the receipts of a block, so that they are verified again if the block returns to the
    /// chain.
    pub(super) fn drop_block(&self, hash: B256) {
        self.kept.remove(&hash);
    }

    pub(super) fn get(
        &self,
        source: &Source,
        filters: &FilterTrust,
        block: &ChainBlock<'_>,
    ) -> Result<Arc<ProvenReceipts>, Missing> {
        let in_memory = || {
            let known = self.kept.get(&block.hash)?;
            let is_ahead = known.is_ahead.swap(false, Ordering::Relaxed);
            source.observer.found(if is_ahead { Found::Nodes } else { Found::Memory });
            Some(known)
        };
        if let Some(known) = in_memory() {
            return Ok(known);
        }
        self.in_flight.run(&block.hash, || {
            // A flight that ended since the look above leaves its receipts in memory.
            if let Some(known) = in_memory() {
                return Ok(known);
            }
            let stored = source.stored(Kind::Receipts, block.receipts_root, |encodings| {
                let room = ReceiptRoom::of_gas(block.gas_used);
                let receipts = room.reader().encodings(&encodings).ok()?;
                verify(source, filters, block, receipts).ok()
            });
            let receipts = if let Some(receipts) = stored {
                source.observer.found(Found::Disk);
                receipts
            } else {
                source.observer.found(Found::Nodes);
                let receipts = fetch(source, filters, block)?;
                store(source, block, &receipts);
                receipts
            };
            Ok(self.hold(block, receipts, false))
        })
    }

    /// Keeps receipts that were fetched before they were requested, if the header commits to them.
    pub(super) fn take_ahead(
        &self,
        source: &Source,
        filters: &FilterTrust,
        block: &ChainBlock<'_>,
        receipts: BlockReceipts,
    ) {
        if let Ok(receipts) = verify(source, filters, block, receipts) {
            store(source, block, &receipts);
            self.hold(block, receipts, true);
        }
    }

    /// Keeps proven receipts in memory.
    fn hold(
        &self,
        block: &ChainBlock<'_>,
        receipts: BlockReceipts,
        is_ahead: bool,
    ) -> Arc<ProvenReceipts> {
        let bytes = receipts.size() as u64;
        let (at, timestamp) = (BlockRef::from(*block), block.timestamp);
        let proven =
            Arc::new(ProvenReceipts { at, timestamp, receipts, bytes, is_ahead: is_ahead.into() });
        self.kept.insert(block.hash, Arc::clone(&proven));
        proven
    }
}

fn store(source: &Source, block: &ChainBlock<'_>, receipts: &BlockReceipts) {
    source.put(Kind::Receipts, block.receipts_root, || receipts.encodings());
}

/// Checks receipts against the root in the header, and the filter in the header against their logs.
fn verify(
    source: &Source,
    filters: &FilterTrust,
    block: &ChainBlock<'_>,
    receipts: BlockReceipts,
) -> Result<BlockReceipts, ReceiptsError> {
    let (number, root) = (block.number, block.receipts_root);
    let profile = &filters.profile;
    let verified = receipts.verify_by_profile(profile, number, root, block.bloom.into())?;
    if let BloomAgreement::Missing { log_index, .. } = verified.header_bloom() {
        filters.lacks_bits(BlockRef::from(*block), log_index, &*source.observer);
    }
    Ok(receipts)
}

fn fetch(
    source: &Source,
    filters: &FilterTrust,
    block: &ChainBlock<'_>,
) -> Result<BlockReceipts, Missing> {
    let at = BlockRef::from(*block);
    let room = ReceiptRoom::of_gas(block.gas_used);
    let accused = RefCell::new(Vec::new());
    let checked = |node: &Node, received: ReceivedReceipts| {
        verify(source, filters, block, received.receipts).map_err(|error| {
            // After a reorganisation, an honest node has another block with this number.
            if !received.is_of_block {
                let why = format!("the receipts may be of another block {}: {error}", at.number);
                return Unaccepted::Answer(why);
            }
            // Of a chain whose headers need not commit to its receipts, a mismatch says nothing. A node that
            // tells the same by several methods tells it once.
            let commits = filters.profile.at(at.number).receipts == ReceiptsScope::EveryLog;
            if commits && !error.is_undecidable() {
                let mut accused = accused.borrow_mut();
                if !accused.iter().any(|own: &Node| own.is_same(node)) {
                    source.observer.wrong(node, Wrong::Receipts);
                    accused.push(node.clone());
                }
            }
            Unaccepted::Answer(error.to_string())
        })
    };
    let asked = ask(&source.nodes, |node| {
        node.receipts_within(at, &room)?.map(|received| checked(node, received)).transpose()
    });
    let unanswered = match asked {
        Err(unanswered) if !unanswered.is_stopped() => unanswered,
        asked => return asked.map_err(|why| Missing::new(at, Part::Receipts, &why)),
    };
    let is_silence = |why: &Option<Unaccepted>| matches!(why, Some(Unaccepted::Rpc(error)) if error.is_silence());
    if unanswered.0.iter().all(|(_, why)| is_silence(why)) {
        return Err(Missing::new(at, Part::Receipts, &unanswered));
    }
    // Another method of a node may have what its first one lacks.
    let nodes: Vec<Node> = source.nodes.iter().map(|node| node.with_retries(0)).collect();
    let asked = ask(&nodes, |node| {
        let (mut found, mut failed) = (None, None);
        node.receipts_within_by_each_method(at, &room, |_, received| {
            // The other methods of a silent node would cost a timeout each.
            failed = received.as_ref().err().filter(|error| error.is_silence()).cloned();
            let received = received.ok().flatten();
            found = received.and_then(|receipts| checked(node, receipts).ok());
            found.is_some() || failed.is_some()
        });
        failed.map_or(Ok(found), |error| Err(error.into()))
    });
    asked.map_err(|_| Missing::new(at, Part::Receipts, &unanswered))
}

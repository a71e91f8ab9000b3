//! The thread that moves the verified head.

use std::mem::replace;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, ChainBlock};
use chainsieve::eth::log_query::BlockTag;

use super::Proven;
use super::chain::{BlockHeader, HeadSource};
use super::operator::RpcServerEvent;
use crate::error::FetchError;
use crate::nodes::ask::{first_of, trusted_header};
use crate::nodes::{Node, RpcError};
use crate::stop::lock;

/// The blocks that an anchor trusts now, kept so that each header is fetched only once: one block for each
/// hash of the anchor.
#[derive(Debug, Default)]
pub(super) struct TrustedBlocks(Mutex<Vec<BlockRef>>);

impl TrustedBlocks {
    /// Replaces the trusted blocks by the blocks with these hashes, and returns the highest of them;
    /// `None` if there are none.
    fn highest(
        &self,
        hashes: &[B256],
        fetch: impl Fn(B256) -> Result<BlockRef, String>,
    ) -> Result<Option<BlockRef>, String> {
        let mut known = lock(&self.0);
        known.retain(|block| hashes.contains(&block.hash));
        for &hash in hashes {
            if !known.iter().any(|block| block.hash == hash) {
                known.push(fetch(hash)?);
            }
        }
        Ok(known.iter().copied().max_by_key(|block| block.number))
    }
}

/// The newest trusted block.
struct Newest {
    head: B256,
    /// The newest final block, if it is known.
    finalized: Option<BlockRef>,
    /// Index of the node that named the head; 0 if an anchor named it.
    named_by: usize,
}

impl Proven {
    /// Moves the head until the endpoint is stopped.
    pub(super) fn follow_head(self: Arc<Self>, poll: Duration) {
        while !self.stop.is_set() {
            let failure = self.advance().err();
            if failure.is_some() && self.stop.is_set() {
                return;
            }
            let before = replace(&mut *lock(&self.head_failure), failure.clone());
            if let Some(why) = failure {
                self.metrics.head_failures.inc();
                // The same reason is said once.
                if before.as_ref() != Some(&why) {
                    self.events.log(&RpcServerEvent::HeadFailed { why });
                }
            }
            self.stop.wait_timeout(poll);
        }
    }

    /// Asks for the newest trusted block, and links it to the chain.
    pub(super) fn advance(&self) -> Result<(), String> {
        let Newest { head, finalized, named_by } = self.newest()?;
        let nodes = self.blocks.nodes();
        let before = self.head_named_by.load(Ordering::Relaxed);
        let source = HeadSource {
            name: self.blocks.nodes().get(named_by).map_or_else(String::new, Node::name),
            is_stronger: named_by < before,
            is_weaker: named_by > before,
        };
        let mut branch = self.chain.fetch(nodes, head, &source);
        // Nodes may not have the newest signed block yet. The final one is a start.
        if let (Err(_), None, Some(finalized)) = (&branch, self.chain.head(), finalized) {
            branch = self.chain.fetch(nodes, finalized.hash, &source);
        }
        let branch = branch.map_err(|error| error.to_string())?;
        if !branch.blocks.is_empty() {
            self.head_named_by.store(named_by, Ordering::Relaxed);
        }
        let newest = branch.blocks.last().cloned();
        let (mut removed, mut has_left, mut is_restarted) = (0, false, false);
        let added = branch.blocks.clone();
        // Before anybody sees the new head: a head and the reason why there is none do not go together.
        *lock(&self.head_failure) = None;
        self.chain.advance(branch, |moved| {
            removed = moved.removed.len();
            is_restarted = moved.restarted;
            self.blocks.forget_refuting(&moved.removed);
            has_left = removed > 0 || is_restarted;
            // This must happen before any call sees the new head.
            if let Some(index) = self.index.as_ref().filter(|_| has_left) {
                index.distrust();
            }
            self.journal.push(&moved.removed, moved.added, moved.restarted);
        });
        for block in added {
            // A full queue only means that a client waits for what it asks for.
            let _ = self.ahead.try_send(block);
        }
        let now = self.chain.head().ok_or("no head")?;
        // A node whose chain changes between two calls may name a final block of another branch.
        let fits = |block: &BlockRef| {
            let own = self.chain.hash(block.number);
            block.number <= now.number && own.is_none_or(|own| own == block.hash)
        };
        // A node that lags names an earlier one. Of another chain, nothing is known.
        let known = self.chain.finalized().filter(|_| !is_restarted).filter(fits);
        let finalized = match (known, finalized.filter(fits)) {
            (Some(known), Some(newer)) => higher(Some(known), newer),
            (known, newer) => known.or(newer),
        };
        let is_newly_final = self.chain.set_finalized(finalized);
        if is_newly_final || has_left {
            // If it is full, the thread is woken already.
            let _ = self.newly_final.try_send(());
        }
        let finalized = finalized.map(|block| block.number);
        if newest.is_some() || is_newly_final {
            self.events.log(&RpcServerEvent::Head { head: now, finalized, removed });
        }
        Ok(())
    }

    /// Returns the newest trusted block.
    fn newest(&self) -> Result<Newest, String> {
        let nodes = self.blocks.nodes();
        let failed = |error: FetchError| error.to_string();
        let Some(anchor) = &self.anchor else {
            let named = |tag: BlockTag| {
                first_of(
                    nodes,
                    || crate::nodes::named(tag),
                    |node| {
                        let header = node.header_at(tag)?;
                        Ok(header.map(|header| (header, self.blocks.index_of(node))))
                    },
                )
            };
            let head = named(BlockTag::Latest).map_err(failed)?;
            let (head, named_by) = head.ok_or("no node has a block")?;
            // A node that fails says nothing about what is final: the known block stays.
            let finalized = named(BlockTag::Finalized).unwrap_or_default();
            let finalized = finalized.map(|(block, _)| BlockRef::from(&block));
            return Ok(Newest { head: head.hash(), finalized, named_by });
        };
        let highest = self.trusted.highest(&anchor.blocks()?, |hash| {
            let header = trusted_header(nodes, hash).map_err(failed)?;
            let missing = || {
                let error = RpcError::NotFound { what: format!("block {hash}") };
                format!("the trusted block: {error}")
            };
            Ok(BlockRef::from(&header.ok_or_else(missing)?))
        });
        let highest = highest?.ok_or("no block is trusted")?;
        let head = anchor.head().unwrap_or(highest.hash);
        Ok(Newest { head, finalized: Some(highest), named_by: 0 })
    }

    /// Fetches the data of a block that installed filters will need, if the block may match one of
    /// them.
    pub(super) fn look_ahead(&self, block: &BlockHeader) {
        let block = ChainBlock::from(block);
        let proves_absence = self.blocks.filters.prove_absence(&(block.number..=block.number));
        if self.filters.len() > 0 && self.filters.may_match(&block, proves_absence) {
            // A failure shows when a client asks.
            self.blocks.fetch_together(&[block]);
            let _ = self.blocks.receipts(&block).and_then(|_| self.blocks.hashes(&block));
        }
    }
}

fn higher(before: Option<BlockRef>, block: BlockRef) -> Option<BlockRef> {
    before.filter(|before| before.number >= block.number).or(Some(block))
}

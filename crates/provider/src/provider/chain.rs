//! Fetches the headers of a node and links them to a chain, even if the node's chain is reorganised
//! meanwhile.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::{B256, Log};
use chainsieve::eth::audit::AuditError;
use chainsieve::eth::header::{ChainError, HeaderBuf, Linked, LinkedHeaders};
use chainsieve::eth::receipts::BlockReceipts;

use super::query::Needed;
use crate::error::FetchError;
use crate::nodes::ask::{Unaccepted, ask, ask_if_any, index_of};
use crate::nodes::{Node, RpcError};
use crate::report::{Note, Stage, Warning};

/// Maximum number of attempts to fetch a chain that is reorganised meanwhile.
const TRIES: u32 = 6;
/// If a header is not a child of the header before it, this many earlier blocks are fetched again.
/// Each further attempt goes back four times as far, so that deep reorganisations need few
/// attempts.
const STEP_BACK: u64 = 8;

/// A chain of linked headers of consecutive blocks.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FetchedChain {
    /// The linked headers.
    pub chain: LinkedHeaders,
    /// The RLP of each header, if evidence is kept.
    pub rlp: Option<Vec<Vec<u8>>>,
    held: Held,
}

/// Reason why headers could not be fetched and linked.
enum Failed {
    Rpc(RpcError),
    /// The header with this number is not a child of the header before it.
    Misfit(u64, ChainError),
    TooMuch(FetchError),
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl FetchedChain {
    /// Creates an empty chain. `keep_rlp` sets whether the RLP of headers is kept.
    pub fn new(keep_rlp: bool) -> Self {
        Self { rlp: keep_rlp.then(Vec::new), ..Self::default() }
    }

    /// Fetches the headers of these blocks from a node, and links them to the chain.
    ///
    /// If the node's chain was reorganised during the call, or since the earlier headers were
    /// fetched, headers of earlier blocks are fetched again, as far back as necessary. `progress`
    /// sets whether progress is reported by notes.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if a request fails, if a limit is exceeded, or if the headers still
    /// form no chain after six attempts.
    pub fn fetch(
        &mut self,
        node: &Node,
        blocks: RangeInclusive<u64>,
        progress: bool,
    ) -> Result<(), FetchError> {
        let (first, last) = blocks.into_inner();
        let bottom = self.chain.numbers().map_or(first, |numbers| *numbers.start());
        let total = last.saturating_sub(bottom).saturating_add(1);
        let mut from = first;
        for tries in 1.. {
            let fetched = node.headers(from..=last, |headers| {
                for header in &headers {
                    self.link(node, header)?;
                }
                // A scan fetches its chain in parts and reports the progress over all parts itself.
                if let Some(header) = headers.last().filter(|_| progress) {
                    let done = header.view().number().saturating_sub(bottom).saturating_add(1);
                    node.note(&Note::Progress { stage: Stage::Headers, done, total });
                }
                Ok::<_, Failed>(())
            });
            let (block, error) = match fetched {
                Ok(()) => break,
                Err(Failed::Misfit(block, error)) => (block, error),
                Err(Failed::Rpc(error)) => {
                    return Err(FetchError::rpc(node.name(), "headers", error));
                }
                Err(Failed::TooMuch(error)) => return Err(error),
            };
            if tries == TRIES {
                return Err(FetchError::NoOneChain { node: node.name(), block, error, tries });
            }
            let back = STEP_BACK << (2 * (tries - 1));
            from = block.saturating_sub(back).max(bottom);
            node.note(&Note::Reorganized { block, from });
            if from == bottom {
                // The reorganisation may have replaced the first block too.
                *self = Self::new(self.rlp.is_some());
            }
        }
        Ok(())
    }

    fn link(&mut self, node: &Node, header: &HeaderBuf) -> Result<(), Failed> {
        let view = header.view();
        let linked = self.chain.push(&view);
        let linked = linked.map_err(|error| Failed::Misfit(view.number(), error))?;
        if let Some(rlp) = &mut self.rlp {
            if let Linked::Reorganised { removed } = &linked {
                let left = rlp.drain(rlp.len().saturating_sub(removed.len())..);
                self.held.sub(left.as_slice().iter().map(|rlp| rlp.len() as u64).sum());
            }
            if linked != Linked::Known {
                let bytes = header.rlp().len() as u64;
                self.held.add(node, "headers", bytes).map_err(Failed::TooMuch)?;
                rlp.push(header.rlp().to_vec());
            }
        }
        Ok(())
    }
}

/// A fetched chain, and the node that provided it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) fetched: FetchedChain,
    /// Index of the node that provided the chain.
    pub(crate) node: usize,
}

/// Fetches the needed headers. Without anchors, the first node that has all of these headers
/// provides them.
///
/// With anchors, the chain of the node whose chain contains the highest anchor is used. If several
/// nodes are equally good, the first of them is used.
pub(crate) fn fetch(
    nodes: &[Node],
    anchors: &[B256],
    needed: &Needed,
    keep_rlp: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Source, FetchError> {
    let mut failed: Option<FetchError> = None;
    let mut best: Option<(Option<u64>, Source)> = None;
    let fetch = |node: &Node| {
        let index = index_of(nodes, node);
        let mut fetched = FetchedChain::new(keep_rlp);
        let came = fetched.fetch(node, needed.blocks.clone(), true);
        let error = match came.and_then(|()| begins(needed, &fetched)) {
            Ok(()) => {
                let anchored_to = fetched.chain.anchored_to(anchors);
                let source = Source { fetched, node: index };
                // Without anchors, no node's chain is better than another's. With anchors, this
                // chain is authentic as far as the query needs, so no other node can have a better
                // chain.
                if anchors.is_empty() || anchored_to >= Some(needed.anchored_to) {
                    return Ok(Some(source));
                }
                if anchored_to.is_none() && nodes.len() > 1 {
                    warnings.push(Warning::WithoutAnchor { node: node.name() });
                }
                // The chain with the highest anchor makes the most blocks authentic. The first of several
                // equally good nodes is kept.
                let is_better = |(most, before): &(Option<u64>, Source)| {
                    anchored_to > *most || anchored_to == *most && index < before.node
                };
                if best.as_ref().is_none_or(is_better) {
                    best = Some((anchored_to, source));
                }
                return Ok(None);
            }
            Err(error) => error,
        };
        let why = unaccepted(&error);
        if error != FetchError::Stopped && nodes.len() > 1 {
            node.note(&Note::NoChain(error.to_string()));
            warnings.push(Warning::NoChain { blocks: needed.blocks.clone(), error: error.clone() });
        }
        // If one node failed and another node's chain lacks the query's block, the failure is the reported
        // error.
        if failed.is_none() || !matches!(error, FetchError::Audit(_)) {
            failed = Some(error);
        }
        Err(why)
    };
    // A chain without an anchor is accepted too, unless another node may have the chain with the
    // anchor.
    let asked = if needed.has_anchor { ask(nodes, fetch) } else { ask_if_any(nodes, fetch) };
    let unanswered = match asked {
        Ok(source) => return Ok(source),
        Err(unanswered) => unanswered,
    };
    if unanswered.is_stopped() {
        return Err(FetchError::Stopped);
    }
    let best = best.map(|(_, source)| source);
    best.ok_or_else(|| failed.expect("a provider has at least one node"))
}

/// Returns the reason why a node's headers cannot be used.
pub(crate) fn unaccepted(error: &FetchError) -> Unaccepted {
    match error {
        FetchError::Rpc { error, .. } => Unaccepted::Rpc(error.clone()),
        FetchError::Stopped => Unaccepted::Rpc(RpcError::Stopped),
        error => Unaccepted::Answer(error.to_string()),
    }
}

/// Checks that a chain begins with the query's block, if the query names the block by its hash.
///
/// A node may return this block by its hash even if the node's chain has a different block at the
/// same height.
pub(crate) fn begins(needed: &Needed, fetched: &FetchedChain) -> Result<(), FetchError> {
    let first = fetched.chain.block(*needed.blocks.start()).map(|block| block.hash);
    match needed.begins_with {
        Some(hash) if first != Some(hash) => Err(AuditError::NotOnChain { hash }.into()),
        _ => Ok(()),
    }
}

/// Number of bytes of one kind of data that an operation holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held(u64);

impl Held {
    /// Adds bytes of a node's answer. Returns an error if the node's limit is exceeded.
    pub(crate) fn add(
        &mut self,
        node: &Node,
        what: &'static str,
        bytes: u64,
    ) -> Result<(), FetchError> {
        self.0 = self.0.saturating_add(bytes);
        let limit = node.options().max_held;
        // Without the limit, a node could fill the memory with invented answers.
        if self.0 > limit {
            return Err(FetchError::TooMuch { node: node.name(), what, limit });
        }
        Ok(())
    }

    /// Subtracts bytes that are no longer held.
    pub(crate) fn sub(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// Approximate number of bytes of a located log without topics and data, and of a receipt without
/// logs. An estimate of the fixed fields: if these fields were not counted, a node could send any
/// number of empty logs and receipts at no cost.
const PLAIN: usize = 300;

/// Estimates the bytes that receipts take in memory. Receipts without logs are included, because a
/// node may invent any number of them.
pub(crate) fn bytes_of_receipts(receipts: &BlockReceipts) -> u64 {
    let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
    (PLAIN * receipts.len()) as u64 + bytes_of(logs)
}

/// Estimates the bytes that located logs take in memory.
pub(crate) fn bytes_of<'a>(logs: impl IntoIterator<Item = &'a Log>) -> u64 {
    let of_log = |log: &Log| PLAIN + 32 * log.data.topics().len() + log.data.data.len();
    logs.into_iter().map(of_log).sum::<usize>() as u64
}

//! Fetches the headers that logs are checked against, from the node that is best suited.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::AuditError;

use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::node::{Node, RpcError};
use crate::nodes::{Unaccepted, ask, ask_if_any, index_of};
use crate::note::Note;
use crate::resolve::Needed;
use crate::warning::Warning;

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
/// nodes are equally good, the first one is used.
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
    // A chain without an anchor is an answer too, unless another node may have the one with the anchor.
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

/// Returns why a node's headers are of no use.
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

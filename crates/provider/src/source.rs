//! Fetches the headers that logs are checked against, from the node that is best suited.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::AuditError;

use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::node::Node;
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
    let mut failed = None;
    let mut best: Option<(Option<u64>, Source)> = None;
    for (index, node) in nodes.iter().enumerate() {
        let mut fetched = FetchedChain::new(keep_rlp);
        let came = fetched.fetch(node, needed.blocks.clone(), true);
        match came.and_then(|()| begins(needed, &fetched)) {
            Ok(()) => {
                let anchored_to = fetched.chain.anchored_to(anchors);
                let source = Source { fetched, node: index };
                // Without anchors, no node's chain is better than another's. With anchors, this
                // chain is authentic as far as the query needs, so no other node can have a better
                // chain.
                if anchors.is_empty() || anchored_to >= Some(needed.anchored_to) {
                    return Ok(source);
                }
                if anchored_to.is_none() && nodes.len() > 1 {
                    warnings.push(Warning::WithoutAnchor { node: node.name() });
                }
                // The chain with the highest anchor makes the most blocks authentic. `>` keeps the
                // first of several equally good nodes.
                if best.as_ref().is_none_or(|(most, _)| anchored_to > *most) {
                    best = Some((anchored_to, source));
                }
            }
            Err(FetchError::Stopped) => return Err(FetchError::Stopped),
            Err(error) => {
                if index + 1 < nodes.len() {
                    node.note(&Note::NoChain(error.to_string()));
                    let (blocks, error) = (needed.blocks.clone(), error.clone());
                    warnings.push(Warning::NoChain { blocks, error });
                }
                // If one node failed and another node's chain lacks the query's block, the failure
                // is the reported error.
                if failed.is_none() || !matches!(error, FetchError::Audit(_)) {
                    failed = Some(error);
                }
            }
        }
    }
    let best = best.map(|(_, source)| source);
    best.ok_or_else(|| failed.expect("a provider has at least one node"))
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

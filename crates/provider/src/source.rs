//! The chain that logs are held against, from whichever node has it.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;

use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::node::Node;
use crate::note::Note;
use crate::warning::Warning;

/// A chain and the node that gave it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) fetched: FetchedChain,
    /// Index of the node.
    pub(crate) node: usize,
}

/// Fetches the headers of these blocks: from the first node whose chain holds an anchor, else from
/// the first that has all of them.
pub(crate) fn fetch(
    nodes: &[Node],
    anchors: &[B256],
    blocks: &RangeInclusive<u64>,
    keep_rlp: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Source, FetchError> {
    let mut failed = None;
    let mut unanchored = None;
    for (index, node) in nodes.iter().enumerate() {
        let mut fetched = FetchedChain::new(keep_rlp);
        match fetched.fetch(node, blocks.clone(), true) {
            Ok(()) if anchors.is_empty() || fetched.chain.anchored_to(anchors).is_some() => {
                return Ok(Source { fetched, node: index });
            }
            Ok(()) => {
                if nodes.len() > 1 {
                    warnings.push(Warning::WithoutAnchor { node: node.name() });
                }
                unanchored = unanchored.or(Some(Source { fetched, node: index }));
            }
            Err(FetchError::Stopped) => return Err(FetchError::Stopped),
            Err(error) => {
                if index + 1 < nodes.len() {
                    node.note(&Note::NoChain(error.to_string()));
                    warnings
                        .push(Warning::NoChain { blocks: blocks.clone(), error: error.clone() });
                }
                failed = Some(error);
            }
        }
    }
    unanchored.ok_or_else(|| failed.expect("a provider has at least one node"))
}

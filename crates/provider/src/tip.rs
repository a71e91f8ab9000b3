//! The block that everything hangs on, and what the other nodes have in its place.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;

use crate::error::FetchError;
use crate::node::{Node, RpcError};
use crate::source::Source;

/// What a node has at the height of another one's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Beside {
    /// The same block.
    Same,
    /// Another block.
    Another(B256),
    /// No block, or it does not say which.
    Nothing,
}

/// The block that everything hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tip {
    /// The highest anchor on the chain, or else its last block.
    pub block: BlockRef,
    /// The caller named no anchor: that the block is on the chain is the node's own word.
    pub is_own: bool,
    /// None of the caller's anchors is on the chain.
    pub is_missing: bool,
    /// The node whose chain it is, by its index.
    pub node: usize,
    /// Every other node's block at that height, by the node's index.
    pub others: Vec<(usize, Beside)>,
}

impl Tip {
    pub(crate) fn new(
        anchors: &[B256],
        source: &Source,
        nodes: &[Node],
        end: u64,
    ) -> Result<Self, FetchError> {
        let chain = &source.fetched.chain;
        let anchored = chain.anchored_to(anchors);
        let number = anchored.unwrap_or(end);
        let hash = match chain.block(number) {
            Some(block) => block.hash,
            None => return Err(missing(nodes, source.node, number)),
        };
        let block = BlockRef { number, hash };
        let is_own = anchors.is_empty();
        let is_missing = !is_own && anchored.is_none();
        let others = beside(nodes, source.node, block)?;
        Ok(Self { block, is_own, is_missing, node: source.node, others })
    }

    /// Whether a node's answer can be held against it: one node's word is nothing against another
    /// that does not say the same.
    pub fn binds(&self, node: usize) -> bool {
        let differs = |(index, beside): &(usize, Beside)| *index == node && *beside != Beside::Same;
        !self.is_own || !self.others.iter().any(differs)
    }

    /// Whether all other nodes have the same block.
    pub fn is_agreed(&self) -> bool {
        self.others.iter().all(|(_, beside)| *beside == Beside::Same)
    }
}

fn missing(nodes: &[Node], node: usize, number: u64) -> FetchError {
    let name = nodes.get(node).map_or_else(String::new, Node::name);
    let error = RpcError::NotFound { what: format!("block {number}") };
    FetchError::rpc(name, "headers", error)
}

/// What each other node has in place of this block.
fn beside(
    nodes: &[Node],
    source: usize,
    block: BlockRef,
) -> Result<Vec<(usize, Beside)>, FetchError> {
    let others = nodes.iter().enumerate().filter(|(index, _)| *index != source);
    let asked = others.map(|(index, node)| {
        let beside = match node.header(block.number) {
            Ok(Some(header)) if header.hash() == block.hash => Beside::Same,
            Ok(Some(header)) => Beside::Another(header.hash()),
            Err(RpcError::Stopped) => return Err(FetchError::Stopped),
            Ok(None) | Err(_) => Beside::Nothing,
        };
        Ok((index, beside))
    });
    asked.collect()
}

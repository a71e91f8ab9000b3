//! The block that all results depend on, and the other nodes' blocks at its height.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;

use crate::error::FetchError;
use crate::node::{Node, RpcError};
use crate::resolve::Asks;
use crate::source::Source;

/// A node's block at the height of the [`Tip`], compared with the tip: part of [`Tip::others`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "beside", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Beside {
    /// The node has the tip.
    Same,
    /// The node has a block other than the tip.
    Another {
        /// Hash of the node's block.
        hash: B256,
    },
    /// The node has no block at this height, or did not answer.
    Nothing,
}

/// The block that all results depend on: the results are valid if this block is on the chain.
///
/// [`ProvenLogs::tip`](crate::ProvenLogs::tip) and [`FetchedAnswers::tip`](crate::FetchedAnswers::tip) have this type.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Tip {
    /// The highest anchor on the fetched chain, or the chain's last block if there is none.
    pub block: BlockRef,
    /// `true` if the caller named no anchor, so that only the node vouches for the block.
    pub has_no_anchor: bool,
    /// `true` if the caller named anchors, and none of them is on the chain.
    pub is_missing: bool,
    /// Index of the node that provided the chain.
    pub node: usize,
    /// Every other node, with its block at the height of the tip.
    pub others: Vec<OtherNode>,
}

/// A node other than the one that provided the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct OtherNode {
    /// Index of the node.
    pub node: usize,
    /// The node's block at the height of the [`Tip`].
    #[serde(flatten)]
    pub beside: Beside,
}

impl Tip {
    pub(crate) fn new(
        anchors: &[B256],
        source: &Source,
        nodes: &[Node],
        end: u64,
        asks: Asks,
    ) -> Result<Self, FetchError> {
        let chain = &source.fetched.chain;
        let anchored = chain.anchored_to(anchors);
        let number = anchored.unwrap_or(end);
        let hash = match chain.block(number) {
            Some(block) => block.hash,
            None => return Err(missing(nodes, source.node, number)),
        };
        let block = BlockRef { number, hash };
        let has_no_anchor = anchors.is_empty();
        let is_missing = !has_no_anchor && anchored.is_none();
        let others = beside(nodes, source.node, block, asks)?;
        Ok(Self { block, has_no_anchor, is_missing, node: source.node, others })
    }

    /// Returns `true` if a node's answer can be proven wrong by this chain.
    ///
    /// Without an anchor, only one node vouches for the chain. The claim of one node proves nothing
    /// against another node that has a different block at the height of the tip.
    pub fn binds(&self, node: usize) -> bool {
        let differs = |other: &OtherNode| other.node == node && other.beside != Beside::Same;
        !self.has_no_anchor || !self.others.iter().any(differs)
    }

    /// Returns `true` if all other nodes have the tip too.
    pub fn is_agreed(&self) -> bool {
        self.others.iter().all(|other| other.beside == Beside::Same)
    }
}

fn missing(nodes: &[Node], node: usize, number: u64) -> FetchError {
    let name = nodes.get(node).map_or_else(String::new, Node::name);
    let error = RpcError::NotFound { what: format!("block {number}") };
    FetchError::rpc(name, "headers", error)
}

/// Asks each other node for its block at the height of `block`.
fn beside(
    nodes: &[Node],
    source: usize,
    block: BlockRef,
    asks: Asks,
) -> Result<Vec<OtherNode>, FetchError> {
    let others = nodes.iter().enumerate().filter(|(index, _)| *index != source);
    let asked = others.map(|(index, node)| {
        let header = match asks {
            // What can be proven against the node depends on it.
            Asks::ChainAndLogs => node.header(block.number),
            // It changes no answer, so nobody waits for a node that does not answer.
            Asks::Chain if node.rests() => Ok(None),
            Asks::Chain => node.with_retries(0).header(block.number),
        };
        let beside = match header {
            Ok(Some(header)) if header.hash() == block.hash => Beside::Same,
            Ok(Some(header)) => Beside::Another { hash: header.hash() },
            Err(RpcError::Stopped) => return Err(FetchError::Stopped),
            Ok(None) | Err(_) => Beside::Nothing,
        };
        Ok(OtherNode { node: index, beside })
    });
    asked.collect()
}

//! The blocks that the nodes name for a tag, such as `latest` or `finalized`.

use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::BlockTag;

use crate::error::FetchError;
use crate::node::{Node, RpcError, named};
use crate::warning::Warning;

/// The blocks that the nodes name for a tag. There is at least one block.
pub(crate) struct Tagged<'a> {
    tag: BlockTag,
    blocks: Vec<(&'a Node, BlockRef)>,
}

impl<'a> Tagged<'a> {
    /// Asks the nodes for their latest block. Nodes that fail are skipped, unless all nodes fail.
    /// An operation that later needs a skipped node asks that node again and reports the error.
    /// If `is_one_enough`, nodes that [rest](Node::rests) are skipped too.
    pub(crate) fn latest(nodes: &'a [Node], is_one_enough: bool) -> Result<Self, FetchError> {
        let tag = BlockTag::Latest;
        let Heard { tagged, failed, unknown } = Heard::new(nodes, tag, is_one_enough)?;
        match failed.or(unknown).filter(|_| tagged.blocks.is_empty()) {
            Some(error) => Err(error),
            None => Ok(tagged),
        }
    }

    /// Asks the nodes for the block of a tag that not all nodes know. Returns `None` if a node
    /// answers that it knows no such block.
    pub(crate) fn if_known(
        nodes: impl IntoIterator<Item = &'a Node>,
        tag: BlockTag,
        is_one_enough: bool,
    ) -> Result<Option<Self>, FetchError> {
        let Heard { tagged, failed, unknown } = Heard::new(nodes, tag, is_one_enough)?;
        if unknown.is_some() {
            return Ok(None);
        }
        match failed.filter(|_| tagged.blocks.is_empty()) {
            // Some nodes answer "internal error" for a tag that they don't know.
            Some(FetchError::Rpc { error, .. }) if is_refusal(&error) => Ok(None),
            Some(error) => Err(error),
            None => Ok(Some(tagged)),
        }
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &'a Node> {
        self.blocks.iter().map(|(node, _)| *node)
    }

    /// Returns the lowest block. All of these nodes have the lowest block, so a single node that
    /// claims a higher block has no effect.
    pub(crate) fn lowest(&self) -> BlockRef {
        let blocks = self.blocks.iter().map(|(_, block)| *block);
        blocks.min_by_key(|block| block.number).expect("at least one node answered")
    }

    pub(crate) fn highest(&self) -> u64 {
        self.blocks.iter().map(|(_, block)| block.number).max().unwrap_or_default()
    }

    /// Adds a warning for each node whose block is far below the highest one.
    pub(crate) fn warn(&self, warnings: &mut Vec<Warning>) {
        let (tag, highest) = (self.tag, self.highest());
        let lags = |block: &BlockRef| highest - block.number > Warning::MAX_LAG;
        let lagging = self.blocks.iter().filter(|(_, block)| lags(block));
        warnings.extend(lagging.map(|(node, block)| Warning::Lags {
            node: node.name(),
            tag,
            block: block.number,
            highest,
        }));
    }
}

/// The nodes' answers for a tag.
struct Heard<'a> {
    tagged: Tagged<'a>,
    /// The first error of a node that gave no usable answer.
    failed: Option<FetchError>,
    /// The first error of a node that answered that it knows no such block.
    unknown: Option<FetchError>,
}

impl<'a> Heard<'a> {
    fn new(
        nodes: impl IntoIterator<Item = &'a Node>,
        tag: BlockTag,
        is_one_enough: bool,
    ) -> Result<Self, FetchError> {
        let mut nodes: Vec<&Node> = nodes.into_iter().collect();
        // In this order, nodes that rest are asked only if no other one answered.
        let given = nodes.clone();
        nodes.sort_by_cached_key(|node| node.rests());
        let (mut blocks, mut failed, mut unknown) = (Vec::new(), None, None);
        let repeats = usize::from(nodes.len() > 1);
        for is_repeated in (0..=repeats).map(|turn| turn == repeats) {
            for node in &nodes {
                if is_one_enough && !blocks.is_empty() && node.rests() {
                    continue;
                }
                // A failed request is repeated only if no node answered.
                let asked = if is_repeated { (*node).clone() } else { node.with_retries(0) };
                let error = match asked.block(tag) {
                    Ok(block) => {
                        blocks.push((*node, block));
                        continue;
                    }
                    Err(RpcError::Stopped) => return Err(FetchError::Stopped),
                    Err(error) => error,
                };
                let knows_none = !error.origin().is_transient() && is_refusal(&error);
                let kept = if knows_none { &mut unknown } else { &mut failed };
                kept.get_or_insert_with(|| FetchError::rpc(node.name(), named(tag), error));
            }
            let has_failed = failed.is_some() && unknown.is_none();
            if !blocks.is_empty() || !has_failed {
                break;
            }
        }
        let place = |node: &Node| given.iter().position(|own| own.is_same(node));
        blocks.sort_by_key(|(node, _)| place(node));
        Ok(Self { tagged: Tagged { tag, blocks }, failed, unknown })
    }
}

/// Returns `true` if the node answered, but with an error instead of a block.
fn is_refusal(error: &RpcError) -> bool {
    matches!(error.origin(), RpcError::NotFound { .. } | RpcError::Node { .. })
}

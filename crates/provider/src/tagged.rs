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
    pub(crate) fn latest(nodes: &'a [Node]) -> Result<Self, FetchError> {
        let Heard { tagged, failed, unknown } = Heard::new(nodes, BlockTag::Latest)?;
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
    ) -> Result<Option<Self>, FetchError> {
        let Heard { tagged, failed, unknown } = Heard::new(nodes, tag)?;
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
    fn new(nodes: impl IntoIterator<Item = &'a Node>, tag: BlockTag) -> Result<Self, FetchError> {
        let (mut blocks, mut failed, mut unknown) = (Vec::new(), None, None);
        for node in nodes {
            let error = match node.block(tag) {
                Ok(block) => {
                    blocks.push((node, block));
                    continue;
                }
                Err(RpcError::Stopped) => return Err(FetchError::Stopped),
                Err(error) => error,
            };
            let knows_none = !error.origin().is_transient() && is_refusal(&error);
            let kept = if knows_none { &mut unknown } else { &mut failed };
            kept.get_or_insert_with(|| FetchError::rpc(node.name(), named(tag), error));
        }
        Ok(Self { tagged: Tagged { tag, blocks }, failed, unknown })
    }
}

/// Returns `true` if the node answered, but with an error instead of a block.
fn is_refusal(error: &RpcError) -> bool {
    matches!(error.origin(), RpcError::NotFound { .. } | RpcError::Node { .. })
}

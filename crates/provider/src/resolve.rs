//! Which blocks a query means at its nodes, and up to which block headers are needed.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, ResolveError, ResolvedBlocks,
};

use crate::error::FetchError;
use crate::node::{Node, RpcError, named};
use crate::warning::Warning;

/// A query whose blocks are known by number.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Asked {
    /// The query, its tags resolved.
    pub query: LogQuery,
    /// Its blocks.
    pub blocks: ResolvedBlocks,
    /// The first block.
    pub first: u64,
    /// The last block.
    pub last: u64,
    /// The finalised block: the lowest of those that the reachable nodes name; `None` if one of
    /// them knows none.
    pub finalized: Option<BlockRef>,
}

/// What a query's nodes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The chain: what one node does not have, another may give.
    Chain,
    /// The chain, and each node's logs: every node must have the blocks.
    ChainAndLogs,
}

/// Blocks that a node may be behind the highest before a warning says so. Nodes hear of blocks a
/// little late, and finality moves by 32 blocks.
const MAX_LAG: u64 = 64;

/// What the nodes have for a tag: one of them at least.
struct Named<'a> {
    tag: BlockTag,
    blocks: Vec<(&'a Node, BlockRef)>,
}

/// What each node says of a tag.
struct Heard<'a> {
    named: Named<'a>,
    /// Why the first node did not answer that did not.
    failed: Option<FetchError>,
    /// What the first node said that knows no such block.
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
        Ok(Self { named: Named { tag, blocks }, failed, unknown })
    }
}

/// Whether a node answered, with words in place of a block.
fn is_refusal(error: &RpcError) -> bool {
    matches!(error.origin(), RpcError::NotFound { .. } | RpcError::Node { .. })
}

impl<'a> Named<'a> {
    /// The newest block. Nodes that do not name one are passed over, unless none does: what needs
    /// such a node will fail there.
    fn latest(nodes: &'a [Node]) -> Result<Self, FetchError> {
        let Heard { named, failed, unknown } = Heard::new(nodes, BlockTag::Latest)?;
        match failed.or(unknown).filter(|_| named.blocks.is_empty()) {
            Some(error) => Err(error),
            None => Ok(named),
        }
    }

    /// The same of a tag that nodes need not know; `None` if one of them does not.
    fn if_known(
        nodes: impl IntoIterator<Item = &'a Node>,
        tag: BlockTag,
    ) -> Result<Option<Self>, FetchError> {
        let Heard { named, failed, unknown } = Heard::new(nodes, tag)?;
        if unknown.is_some() {
            return Ok(None);
        }
        match failed.filter(|_| named.blocks.is_empty()) {
            // "Internal error" is what some say of a tag that they don't know.
            Some(FetchError::Rpc { error, .. }) if is_refusal(&error) => Ok(None),
            Some(error) => Err(error),
            None => Ok(Some(named)),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &'a Node> {
        self.blocks.iter().map(|(node, _)| *node)
    }

    /// The lowest block, so that each node has it, whatever another one claims.
    fn lowest(&self) -> BlockRef {
        let blocks = self.blocks.iter().map(|(_, block)| *block);
        blocks.min_by_key(|block| block.number).expect("one node answered at least")
    }

    fn highest(&self) -> u64 {
        self.blocks.iter().map(|(_, block)| block.number).max().unwrap_or_default()
    }

    /// Warns of nodes that are far behind the highest block.
    fn warn(&self, warnings: &mut Vec<Warning>) {
        let (tag, highest) = (self.tag, self.highest());
        let lags = |block: &BlockRef| highest - block.number > MAX_LAG;
        let lagging = self.blocks.iter().filter(|(_, block)| lags(block));
        warnings.extend(lagging.map(|(node, block)| Warning::Lags {
            node: node.name(),
            tag,
            block: block.number,
            highest,
        }));
    }
}

/// Names the blocks of a query: tags become numbers. With `final_only` the range ends at the
/// finalised block.
pub(crate) fn resolve(
    nodes: &[Node],
    query: &LogQuery,
    asks: Asks,
    final_only: bool,
) -> Result<(Asked, Vec<Warning>), FetchError> {
    let (from, to) = match *query.blocks() {
        BlockSelection::AtHash(hash) => return at_hash(nodes, query, hash, final_only),
        BlockSelection::Range { from, to } => (from, to),
    };
    let names = |tag: BlockTag| [from, to].contains(&Some(tag));
    if names(BlockTag::Pending) {
        return Err(FetchError::Blocks(ResolveError::Pending));
    }
    let mut warnings = Vec::new();
    let latest = Named::latest(nodes)?;
    latest.warn(&mut warnings);
    // A node that does not name its newest block is taken to name no other either.
    let finalized = Named::if_known(latest.nodes(), BlockTag::Finalized)?;
    if let Some(named) = &finalized
        && (final_only || names(BlockTag::Finalized))
    {
        named.warn(&mut warnings);
    }
    let safe =
        if names(BlockTag::Safe) { Named::if_known(latest.nodes(), BlockTag::Safe)? } else { None };
    if let Some(named) = &safe {
        named.warn(&mut warnings);
    }
    let finalized = finalized.map(|named| named.lowest());
    let mut query = query.clone();
    let mut head = latest.lowest().number;
    // One node that has the last block is enough where the others are not asked for logs. Tags
    // mean the same blocks as elsewhere.
    if asks == Asks::Chain && matches!(to, Some(BlockTag::Number(_))) {
        if matches!(from, None | Some(BlockTag::Latest)) {
            query = query.from_block(head);
        }
        head = latest.highest();
    }
    let heads = Heads {
        earliest: 0,
        latest: head,
        safe: safe.map(|named| named.lowest().number),
        finalized: finalized.map(|block| block.number),
    };
    if final_only && let Some(last) = last_of(to, &heads)? {
        let finalized = finalized.ok_or(FetchError::NoFinalized)?.number;
        if last > finalized {
            if let Some(BlockTag::Number(block)) = to {
                let what = "the range ends at";
                return Err(FetchError::NotFinal { what, block, finalized });
            }
            query = query.to_block(finalized);
            let tag = to.unwrap_or(BlockTag::Latest);
            warnings.push(Warning::EndsAtFinalized { tag, last, finalized });
        }
        if let Some(BlockTag::Number(block)) = from
            && block > finalized
        {
            let what = "the range begins at";
            return Err(FetchError::NotFinal { what, block, finalized });
        }
    }
    let blocks = query.resolve(&heads).map_err(FetchError::Blocks)?;
    let (first, last) = match blocks {
        ResolvedBlocks::Range { first, last } => (first, last),
        ResolvedBlocks::AtHash(hash) => return Err(FetchError::UnknownBlock(hash)),
    };
    let query = query.from_block(first).to_block(last);
    Ok((Asked { query, blocks, first, last, finalized }, warnings))
}

/// The last block that a query means, unless it is a number beyond the head: resolving that is an
/// error of its own.
fn last_of(to: Option<BlockTag>, heads: &Heads) -> Result<Option<u64>, FetchError> {
    if matches!(to, Some(BlockTag::Number(number)) if number > heads.latest) {
        return Ok(None);
    }
    let last = BlockSelection::Range { from: to, to }.resolve(heads);
    match last.map_err(FetchError::Blocks)? {
        ResolvedBlocks::Range { last, .. } => Ok(Some(last)),
        ResolvedBlocks::AtHash(_) => Ok(None),
    }
}

fn at_hash(
    nodes: &[Node],
    query: &LogQuery,
    hash: B256,
    final_only: bool,
) -> Result<(Asked, Vec<Warning>), FetchError> {
    let finalized = Named::if_known(nodes, BlockTag::Finalized)?;
    let mut warnings = Vec::new();
    if final_only && let Some(named) = &finalized {
        named.warn(&mut warnings);
    }
    let finalized = finalized.map(|named| named.lowest());
    let number = number_of(nodes, hash)?.ok_or(FetchError::UnknownBlock(hash))?;
    if final_only {
        let finalized = finalized.ok_or(FetchError::NoFinalized)?.number;
        if number > finalized {
            let what = "the query's block is";
            return Err(FetchError::NotFinal { what, block: number, finalized });
        }
    }
    let (query, blocks) = (query.clone(), ResolvedBlocks::AtHash(hash));
    Ok((Asked { query, blocks, first: number, last: number, finalized }, warnings))
}

/// The number of the block with this hash, by the first node that has it.
fn number_of(nodes: &[Node], hash: B256) -> Result<Option<u64>, FetchError> {
    let mut failed = None;
    for node in nodes {
        match node.header_by_hash(hash) {
            Ok(Some(header)) => return Ok(Some(header.view().number())),
            Ok(None) => {}
            Err(RpcError::Stopped) => return Err(FetchError::Stopped),
            // Some answer with an error for a block that they don't have.
            Err(error) if matches!(error.origin(), RpcError::Node { .. }) => {}
            Err(error) => {
                let error = FetchError::rpc(node.name(), format!("block {hash}"), error);
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Which headers a query needs.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    /// The blocks: those of the query, and those up to the nearest anchor after it.
    pub(crate) blocks: RangeInclusive<u64>,
    /// A chain that is authentic up to here is as good as any: its anchor is the highest that is
    /// known, or vouches for all of the query's blocks.
    pub(crate) anchored_to: u64,
    /// The chain must begin with this block.
    pub(crate) begins_with: Option<B256>,
}

impl Needed {
    /// All headers of these blocks.
    pub(crate) fn all(blocks: RangeInclusive<u64>) -> Self {
        Self { anchored_to: *blocks.end(), blocks, begins_with: None }
    }

    pub(crate) fn new(
        nodes: &[Node],
        anchors: &[B256],
        asked: &Asked,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, FetchError> {
        let mut numbers = Vec::new();
        for anchor in anchors {
            match number_of(nodes, *anchor)? {
                Some(number) => numbers.push(number),
                None => warnings.push(Warning::UnknownAnchor(*anchor)),
            }
        }
        let range = asked.first..=asked.last;
        let after = numbers.iter().copied().filter(|&number| number >= asked.last).min();
        let within = numbers.into_iter().filter(|number| range.contains(number)).max();
        let begins_with = match asked.blocks {
            ResolvedBlocks::AtHash(hash) => Some(hash),
            ResolvedBlocks::Range { .. } => None,
        };
        Ok(Self {
            blocks: asked.first..=after.unwrap_or(asked.last),
            anchored_to: after.map_or(within.unwrap_or(asked.last), |_| asked.last),
            begins_with,
        })
    }
}

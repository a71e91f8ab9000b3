//! Resolves the blocks of a query to numbers, and determines which headers the query needs.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, QueryError, ResolvedBlocks,
};

use crate::error::FetchError;
use crate::nodes::ask::first_of;
use crate::nodes::{Node, RpcError, named};
use crate::report::Warning;

/// A query whose blocks are resolved to numbers.
/// [`FetchedAnswers::query`](crate::FetchedAnswers::query) has this type.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct ResolvedQuery {
    /// The query, with its tags replaced by numbers.
    pub query: LogQuery,
    /// The blocks of the query: a range, or one block by its hash.
    pub blocks: ResolvedBlocks,
    /// Number of the first block.
    pub first: u64,
    /// Number of the last block.
    pub last: u64,
    /// The lowest of the finalised blocks that the reachable nodes name; `None` if at least one of
    /// these nodes knows no finalised block.
    pub finalized: Option<BlockRef>,
}

/// The data that the nodes are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Headers only: if one node lacks a block, another node may have this block.
    Chain,
    /// Headers, and each node's logs: every node must have the blocks.
    ChainAndLogs,
}

/// Resolves the blocks of a query: replaces tags by numbers. With `final_only`, the range ends at
/// the finalised block.
pub(crate) fn resolve(
    nodes: &[Node],
    query: &LogQuery,
    asks: Asks,
    final_only: bool,
) -> Result<(ResolvedQuery, Vec<Warning>), FetchError> {
    let (from, to) = match *query.blocks() {
        BlockSelection::AtHash(hash) => return at_hash(nodes, query, hash, asks, final_only),
        BlockSelection::Range { from, to } => (from, to),
    };
    let names = |tag: BlockTag| [from, to].contains(&Some(tag));
    if names(BlockTag::Pending) {
        return Err(FetchError::Blocks(QueryError::Pending));
    }
    let mut warnings = Vec::new();
    let needs_one = asks == Asks::Chain;
    let latest = Tagged::latest(nodes, needs_one)?;
    // If only headers are needed and the range ends at a number, one node that has the last block
    // is enough. A tag always means the lowest block that the nodes name for it.
    let is_one_enough = asks == Asks::Chain && matches!(to, Some(BlockTag::Number(_)));
    let begins_at_latest = matches!(from, None | Some(BlockTag::Latest));
    if !is_one_enough || begins_at_latest {
        latest.warn(&mut warnings);
    }
    // Only nodes that named their latest block are asked for further tags.
    let finalized = Tagged::if_known(latest.nodes(), BlockTag::Finalized, needs_one)?;
    if let Some(tagged) = &finalized
        && (final_only || names(BlockTag::Finalized))
    {
        tagged.warn(&mut warnings);
    }
    let safe = if names(BlockTag::Safe) {
        Tagged::if_known(latest.nodes(), BlockTag::Safe, needs_one)?
    } else {
        None
    };
    if let Some(tagged) = &safe {
        tagged.warn(&mut warnings);
    }
    let finalized = finalized.map(|tagged| tagged.lowest());
    let mut query = query.clone();
    let mut head = latest.lowest().number;
    if is_one_enough {
        if begins_at_latest {
            query = query.from_block(head);
        }
        head = latest.highest();
    }
    let heads = Heads {
        earliest: 0,
        latest: head,
        safe: safe.map(|tagged| tagged.lowest().number),
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
    Ok((ResolvedQuery { query, blocks, first, last, finalized }, warnings))
}

/// Returns the number of a query's last block. Returns `None` for a number beyond the head, because
/// the caller reports this error later, when it resolves the whole query.
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

/// Resolves a query for one block by its hash.
fn at_hash(
    nodes: &[Node],
    query: &LogQuery,
    hash: B256,
    asks: Asks,
    final_only: bool,
) -> Result<(ResolvedQuery, Vec<Warning>), FetchError> {
    let finalized = Tagged::if_known(nodes, BlockTag::Finalized, asks == Asks::Chain)?;
    let mut warnings = Vec::new();
    if final_only && let Some(tagged) = &finalized {
        tagged.warn(&mut warnings);
    }
    let finalized = finalized.map(|tagged| tagged.lowest());
    let number = number_of(nodes, hash)?.ok_or(FetchError::UnknownBlock(hash))?;
    if final_only {
        let finalized = finalized.ok_or(FetchError::NoFinalized)?.number;
        if number > finalized {
            let what = "the query's block is";
            return Err(FetchError::NotFinal { what, block: number, finalized });
        }
    }
    let (query, blocks) = (query.clone(), ResolvedBlocks::AtHash(hash));
    Ok((ResolvedQuery { query, blocks, first: number, last: number, finalized }, warnings))
}

/// Returns the number of the block with this hash, from the first node that has the block.
fn number_of(nodes: &[Node], hash: B256) -> Result<Option<u64>, FetchError> {
    let header = first_of(
        nodes,
        || format!("block {hash}"),
        |node| match node.header_by_hash(hash) {
            // Some nodes answer with an error for a block that they don't have.
            Err(error) if matches!(error.origin(), RpcError::Node { .. }) => Ok(None),
            header => header,
        },
    )?;
    Ok(header.map(|header| header.view().number()))
}

/// The headers that a query needs.
#[derive(Debug, Clone)]
pub(crate) struct Needed {
    /// The blocks of the query, and the blocks up to the nearest anchor after the query's blocks.
    pub(crate) blocks: RangeInclusive<u64>,
    /// If a node's chain is authentic up to this block, no other node is asked: the last block of the query
    /// or, if no anchor is at or after that block, the highest anchor within the query.
    pub(crate) anchored_to: u64,
    /// `true` if one of the blocks is an anchor. A chain without that anchor is then used only if no node has a
    /// better chain.
    pub(crate) has_anchor: bool,
    /// Hash of the block that the chain must begin with, if the query names a block by its hash.
    pub(crate) begins_with: Option<B256>,
}

impl Needed {
    /// Requires all headers of these blocks, and no others.
    pub(crate) fn all(blocks: RangeInclusive<u64>) -> Self {
        Self { anchored_to: *blocks.end(), has_anchor: false, blocks, begins_with: None }
    }

    pub(crate) fn new(
        nodes: &[Node],
        anchors: &[B256],
        asked: &ResolvedQuery,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, FetchError> {
        let mut numbers = Vec::new();
        for anchor in anchors {
            match number_of(nodes, *anchor)? {
                Some(number) => numbers.push(number),
                None => warnings.push(Warning::UnknownAnchor { hash: *anchor }),
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
            has_anchor: after.or(within).is_some(),
            begins_with,
        })
    }
}

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

    /// Adds a warning for each node whose block is far below the highest block.
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
        // In this order, nodes that rest are asked only if no other node answered.
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

//! Which blocks a query means at its nodes, and up to which block headers are needed.

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
    /// The finalised block, if every node knows one: the lowest that one of them names.
    pub finalized: Option<BlockRef>,
    /// What the caller should know.
    pub warnings: Vec<Warning>,
}

/// The lowest block that the nodes have for a tag, so that each of them has it.
fn lowest(nodes: &[Node], tag: BlockTag) -> Result<BlockRef, FetchError> {
    let (mut lowest, mut unreachable): (Option<BlockRef>, _) = (None, None);
    for node in nodes {
        let block = node.block(tag);
        let block = match block.map_err(|error| FetchError::rpc(node.name(), named(tag), error)) {
            // What needs this node will fail there.
            Err(error) if error.is_transient() => {
                unreachable.get_or_insert(error);
                continue;
            }
            block => block?,
        };
        if lowest.is_none_or(|lowest| block.number < lowest.number) {
            lowest = Some(block);
        }
    }
    lowest.ok_or_else(|| unreachable.expect("a provider has at least one node"))
}

/// The same of a tag that nodes need not know.
fn lowest_if_known(nodes: &[Node], tag: BlockTag) -> Result<Option<BlockRef>, FetchError> {
    match lowest(nodes, tag) {
        Err(FetchError::Rpc { error, .. })
            if matches!(error.origin(), RpcError::NotFound { .. } | RpcError::Node { .. }) =>
        {
            Ok(None)
        }
        known => known.map(Some),
    }
}

/// Names the blocks of a query: tags become numbers. With `final_only` the range ends at the
/// finalised block.
pub(crate) fn resolve(
    nodes: &[Node],
    query: &LogQuery,
    final_only: bool,
) -> Result<Asked, FetchError> {
    let (from, to) = match *query.blocks() {
        BlockSelection::AtHash(hash) => return at_hash(nodes, query, hash, final_only),
        BlockSelection::Range { from, to } => (from, to),
    };
    if [from, to].contains(&Some(BlockTag::Pending)) {
        return Err(FetchError::Blocks(ResolveError::Pending));
    }
    let latest = lowest(nodes, BlockTag::Latest)?;
    let finalized = lowest_if_known(nodes, BlockTag::Finalized)?;
    let safe = if [from, to].contains(&Some(BlockTag::Safe)) {
        lowest_if_known(nodes, BlockTag::Safe)?
    } else {
        None
    };
    let heads = Heads {
        earliest: 0,
        latest: latest.number,
        safe: safe.map(|block| block.number),
        finalized: finalized.map(|block| block.number),
    };
    let mut warnings = Vec::new();
    let mut query = query.clone();
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
    Ok(Asked { query, blocks, first, last, finalized, warnings })
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
) -> Result<Asked, FetchError> {
    let finalized = lowest_if_known(nodes, BlockTag::Finalized)?;
    let number = number_of(nodes, hash)?.ok_or(FetchError::UnknownBlock(hash))?;
    if final_only {
        let finalized = finalized.ok_or(FetchError::NoFinalized)?.number;
        if number > finalized {
            let what = "the query's block is";
            return Err(FetchError::NotFinal { what, block: number, finalized });
        }
    }
    let (query, blocks) = (query.clone(), ResolvedBlocks::AtHash(hash));
    Ok(Asked { query, blocks, first: number, last: number, finalized, warnings: Vec::new() })
}

/// The number of the block with this hash, by the first node that has it.
fn number_of(nodes: &[Node], hash: B256) -> Result<Option<u64>, FetchError> {
    let mut failed = None;
    for node in nodes {
        match node.header_by_hash(hash) {
            Ok(Some(header)) => return Ok(Some(header.view().number())),
            Ok(None) => {}
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

/// The last block whose header is needed: the end of the range, or the nearest anchor after it.
pub(crate) fn end_of_headers(
    nodes: &[Node],
    anchors: &[B256],
    asked: &mut Asked,
) -> Result<u64, FetchError> {
    let mut ends = Vec::new();
    for anchor in anchors {
        match number_of(nodes, *anchor)? {
            Some(number) => ends.push(number),
            None => asked.warnings.push(Warning::UnknownAnchor(*anchor)),
        }
    }
    let after = ends.into_iter().filter(|&number| number >= asked.last).min();
    Ok(after.unwrap_or(asked.last))
}

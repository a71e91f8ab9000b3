//! Which blocks a query means at its nodes, and up to which block headers are needed.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, ResolveError, ResolvedBlocks,
};

use crate::error::FetchError;
use crate::node::{Node, RpcError};
use crate::nodes::first_of;
use crate::tagged::Tagged;
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
    let latest = Tagged::latest(nodes)?;
    // One node that has the last block is enough where the others are not asked for logs. Tags
    // mean the same blocks as elsewhere.
    let is_one_enough = asks == Asks::Chain && matches!(to, Some(BlockTag::Number(_)));
    let begins_at_latest = matches!(from, None | Some(BlockTag::Latest));
    if !is_one_enough || begins_at_latest {
        latest.warn(&mut warnings);
    }
    // A node that does not name its newest block is taken to name no other either.
    let finalized = Tagged::if_known(latest.nodes(), BlockTag::Finalized)?;
    if let Some(tagged) = &finalized
        && (final_only || names(BlockTag::Finalized))
    {
        tagged.warn(&mut warnings);
    }
    let safe = if names(BlockTag::Safe) {
        Tagged::if_known(latest.nodes(), BlockTag::Safe)?
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
    let finalized = Tagged::if_known(nodes, BlockTag::Finalized)?;
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
    Ok((Asked { query, blocks, first: number, last: number, finalized }, warnings))
}

/// The number of the block with this hash, by the first node that has it.
fn number_of(nodes: &[Node], hash: B256) -> Result<Option<u64>, FetchError> {
    let header = first_of(
        nodes,
        || format!("block {hash}"),
        |node| match node.header_by_hash(hash) {
            // Some answer with an error for a block that they don't have.
            Err(error) if matches!(error.origin(), RpcError::Node { .. }) => Ok(None),
            header => header,
        },
    )?;
    Ok(header.map(|header| header.view().number()))
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

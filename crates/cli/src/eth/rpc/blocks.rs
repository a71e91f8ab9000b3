//! Which blocks a query means at a provider, and up to which block headers are needed.

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, ResolveError, ResolvedBlocks,
};

use super::{Provider, RpcError};
use crate::args::UsageError;
use crate::args::eth::QueryArgs;
use crate::output::grouped;

/// What is asked, by number.
pub(crate) struct Asked {
    pub(crate) query: LogQuery,
    pub(crate) blocks: ResolvedBlocks,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The finalised block, where every provider knows one: the lowest that one of them says.
    pub(crate) finalized: Option<BlockRef>,
    pub(crate) warnings: Vec<String>,
}

/// The lowest block that the providers have for a tag, so that each of them has it.
fn lowest(providers: &[Provider], tag: BlockTag) -> anyhow::Result<BlockRef> {
    let mut lowest: Option<BlockRef> = None;
    for provider in providers {
        let head = provider
            .head(tag)
            .with_context(|| format!("{}, {}", super::named(tag), provider.name()))?;
        if lowest.is_none_or(|lowest| head.number < lowest.number) {
            lowest = Some(head);
        }
    }
    lowest.context("no provider")
}

/// The same of a tag that nodes need not know.
fn lowest_if_known(providers: &[Provider], tag: BlockTag) -> anyhow::Result<Option<BlockRef>> {
    match lowest(providers, tag) {
        Err(error)
            if error.chain().any(|cause| {
                matches!(
                    cause.downcast_ref::<RpcError>().map(RpcError::origin),
                    Some(RpcError::NotFound { .. } | RpcError::Node { .. })
                )
            }) =>
        {
            Ok(None)
        }
        known => known.map(Some),
    }
}

/// Names the blocks of a query: tags become numbers, and the range ends at the finalised block
/// unless the user says that it need not.
pub(crate) fn resolve(
    query: LogQuery,
    args: &QueryArgs,
    unfinalized: bool,
    providers: &[Provider],
) -> anyhow::Result<Asked> {
    let (from, to) = match *query.blocks() {
        BlockSelection::AtHash(hash) => return at_hash(query, hash, unfinalized, providers),
        BlockSelection::Range { from, to } => (from, to),
    };
    if [from, to].contains(&Some(BlockTag::Pending)) {
        return Err(ResolveError::Pending).context("the query's blocks");
    }
    if args.query.is_none() && args.from.is_none() {
        return Err(
            UsageError("--from is missing: with --rpc, the range begins where you say").into()
        );
    }
    // Of flags, what is not given is "as far as it goes".
    let open_end = args.query.is_none() && args.to.is_none();
    let latest = lowest(providers, BlockTag::Latest)?;
    let finalized = lowest_if_known(providers, BlockTag::Finalized)?;
    let safe = if [from, to].contains(&Some(BlockTag::Safe)) {
        lowest_if_known(providers, BlockTag::Safe)?
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
    let mut query = query;
    if !unfinalized {
        let last = match to {
            Some(BlockTag::Number(number)) if number > heads.latest => None,
            _ => Some(BlockSelection::Range { from: to, to }.resolve(&heads)),
        };
        // What reaches beyond the head is an error of its own.
        if let Some(last) = last {
            let ResolvedBlocks::Range { last, .. } = last.context("the query's blocks")? else {
                bail!("a range of blocks has become one block");
            };
            let finalized = finalized.with_context(no_finalized)?.number;
            let explicit = matches!(to, Some(BlockTag::Number(_)));
            if last > finalized && explicit {
                bail!("the range ends at block {last}, {}", behind(finalized));
            }
            if last > finalized {
                query = query.to_block(finalized);
                if !open_end {
                    let tag = to.and_then(BlockTag::name).unwrap_or("latest");
                    warnings.push(format!(
                        "the range ends at block {}, the finalised one; {tag} is block {} \
                         (--unfinalized takes it)",
                        grouped(finalized),
                        grouped(last)
                    ));
                }
            }
            if let Some(BlockTag::Number(first)) = from
                && first > finalized
            {
                bail!("the range begins at block {first}, {}", behind(finalized));
            }
        }
    }
    let blocks = query.resolve(&heads).context("the query's blocks")?;
    let ResolvedBlocks::Range { first, last } = blocks else {
        bail!("a range of blocks has become one block");
    };
    let query = query.from_block(first).to_block(last);
    Ok(Asked { query, blocks, first, last, finalized, warnings })
}

fn no_finalized() -> &'static str {
    "the provider knows no finalised block, at which a range would end: --unfinalized takes blocks \
     that may still leave the chain"
}

fn behind(finalized: u64) -> String {
    format!(
        "behind the finalised block, {finalized}: such blocks may still leave the chain; \
         --unfinalized takes them"
    )
}

fn at_hash(
    query: LogQuery,
    hash: B256,
    unfinalized: bool,
    providers: &[Provider],
) -> anyhow::Result<Asked> {
    let finalized = lowest_if_known(providers, BlockTag::Finalized)?;
    let number = number_of(providers, hash)?
        .with_context(|| format!("no provider has the query's block, {hash}"))?;
    if !unfinalized {
        let finalized = finalized.with_context(no_finalized)?.number;
        if number > finalized {
            bail!("the query's block is block {number}, {}", behind(finalized));
        }
    }
    let blocks = ResolvedBlocks::AtHash(hash);
    let warnings = Vec::new();
    Ok(Asked { query, blocks, first: number, last: number, finalized, warnings })
}

/// The number of the block with this hash, by the first provider that has it.
fn number_of(providers: &[Provider], hash: B256) -> anyhow::Result<Option<u64>> {
    for provider in providers {
        match provider.header_by_hash(hash) {
            Ok(Some(header)) => return Ok(Some(header.view().number())),
            // Some say so of a block that they don't have.
            Ok(None) | Err(RpcError::Node { .. }) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("block {hash}, {}", provider.name()));
            }
        }
    }
    Ok(None)
}

/// Up to which block headers are fetched: the end of the range, or the nearest anchor behind it.
pub(crate) fn end(
    providers: &[Provider],
    anchors: &[B256],
    asked: &mut Asked,
) -> anyhow::Result<u64> {
    let mut ends = Vec::new();
    for anchor in anchors {
        match number_of(providers, *anchor)? {
            Some(number) => ends.push(number),
            None => asked.warnings.push(format!("no provider has the block of --anchor {anchor}")),
        }
    }
    let behind = ends.into_iter().filter(|&number| number >= asked.last).min();
    Ok(behind.unwrap_or(asked.last))
}

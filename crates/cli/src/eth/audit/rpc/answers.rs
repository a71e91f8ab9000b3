//! What a provider answers for the blocks of an audit.

use anyhow::{Context as _, bail};
use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::ResolvedBlocks;

use crate::eth::rpc::{Asked, FetchedChain, Provider, RpcError};
use crate::output::{grouped, print_note};
use crate::progress::Progress;

/// Logs that are held in memory: a gigabyte or two.
const MAX_LOGS: usize = 4_000_000;
/// How often a branch may be left while it is asked about.
const TRIES: u32 = 4;

/// The logs of the range: up to the finalised block by number, behind it by the hash of each
/// block, so that the answer is bound to this chain. Where the provider left the branch, the chain
/// is fetched anew from it, if it is its own.
pub(super) fn fetch(
    provider: &Provider,
    asked: &Asked,
    fetched: &mut FetchedChain,
    is_source: bool,
    may_hold: &dyn Fn(&ChainBlock<'_>) -> bool,
) -> anyhow::Result<Vec<LocatedLog>> {
    let what = || format!("eth_getLogs, {}", provider.name());
    if let ResolvedBlocks::AtHash(hash) = asked.blocks {
        let logs = provider.logs_at(&asked.query, hash).and_then(|logs| {
            if logs.is_empty() { provider.logs_at_if_held(&asked.query, hash) } else { Ok(logs) }
        });
        return logs.with_context(what);
    }
    let settled = asked.finalized.map(|block| block.number.min(asked.last));
    let settled = settled.filter(|&number| number >= asked.first);
    let mut logs = Vec::new();
    let count = (asked.last - asked.first).saturating_add(1);
    let progress = Progress::counting(count, "blocks asked for logs");
    if let Some(settled) = settled {
        let blocks = asked.first..=settled;
        let windows = provider.each_window(&asked.query, blocks, |window, mut found| {
            logs.append(&mut found);
            progress.at((window.end() - asked.first).saturating_add(1));
            bounded(&logs)
        });
        windows.with_context(what)?;
    }
    let from = settled.map_or(Some(asked.first), |settled| settled.checked_add(1));
    let Some(from) = from.filter(|from| *from <= asked.last) else { return Ok(logs) };
    let before = logs.len();
    for tried in 1.. {
        logs.truncate(before);
        match by_hash(provider, asked, fetched, from, may_hold, &mut logs)? {
            None => return Ok(logs),
            Some(error) => {
                let number = error.number;
                // The node may have had its own reasons.
                let now = provider.header(number).with_context(|| provider.name())?;
                let here = fetched.chain.block(number).map(|block| block.hash);
                if now.map(|header| header.hash()) == here {
                    return Err(error.error)
                        .with_context(|| format!("block {number}"))
                        .with_context(what);
                }
                if !is_source || tried == TRIES {
                    bail!(
                        "{}: it is on another branch at block {}, {tried} times in a row",
                        provider.name(),
                        grouped(number)
                    );
                }
                print_note(&format!(
                    "{}: the chain was reorganised at block {} or before",
                    provider.name(),
                    grouped(number)
                ));
                let end = fetched.chain.numbers().map_or(asked.last, |numbers| *numbers.end());
                let progress = Progress::counting((end - from).saturating_add(1), "headers");
                fetched.fetch(provider, from..=end, &progress)?;
            }
        }
    }
    Ok(logs)
}

/// Why a block's logs did not come.
struct Failed {
    number: u64,
    error: RpcError,
}

/// Appends the logs of the blocks from `from` on, each by its hash; returns the first block that
/// the node says it does not have, or has an error for.
fn by_hash(
    provider: &Provider,
    asked: &Asked,
    fetched: &FetchedChain,
    from: u64,
    may_hold: &dyn Fn(&ChainBlock<'_>) -> bool,
    logs: &mut Vec<LocatedLog>,
) -> anyhow::Result<Option<Failed>> {
    let blocks = (from..=asked.last).filter_map(|number| fetched.chain.block(number));
    let (numbers, hashes): (Vec<_>, Vec<_>) =
        blocks.map(|block| (block.number, block.hash)).unzip();
    let progress = Progress::counting(hashes.len() as u64, "blocks asked for logs");
    let mut failed = None;
    let mut done = 0;
    provider.logs_at_each(&asked.query, &hashes, |hash, answer| {
        let number = numbers[done];
        done += 1;
        progress.at(done as u64);
        let is_doubtful = matches!(&answer, Ok(logs) if logs.is_empty())
            && failed.is_none()
            && fetched.chain.block(number).is_some_and(|block| may_hold(&block));
        let answer =
            if is_doubtful { provider.logs_at_if_held(&asked.query, hash) } else { answer };
        match answer {
            Ok(mut found) => {
                logs.append(&mut found);
                bounded(logs).with_context(|| provider.name())?;
            }
            Err(error)
                if matches!(error.origin(), RpcError::Node { .. } | RpcError::NotFound { .. }) =>
            {
                failed.get_or_insert(Failed { number, error });
            }
            Err(error) => {
                let what = format!("eth_getLogs by hash, {}, block {number}", provider.name());
                return Err(error).context(what);
            }
        }
        Ok(())
    })?;
    Ok(failed)
}

/// Whether the logs are still few enough to be held in memory.
fn bounded(logs: &[LocatedLog]) -> Result<(), RpcError> {
    if logs.len() <= MAX_LOGS {
        return Ok(());
    }
    let limit = grouped(MAX_LOGS as u64);
    Err(RpcError::Malformed(format!("more than {limit} logs: narrow the query or its range")))
}

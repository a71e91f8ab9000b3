//! Fetches a node's answers to `eth_getLogs` for the blocks of an audit.

use chainsieve::eth::header::ChainBlock;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::ResolvedBlocks;

use crate::error::FetchError;
use crate::fetched_chain::FetchedChain;
use crate::held::{self, Held};
use crate::node::{Node, RpcError};
use crate::note::{Note, Stage};
use crate::resolve::ResolvedQuery;

/// Maximum number of attempts to fetch the logs: after each reorganisation during an attempt,
/// another attempt begins.
const TRIES: u32 = 4;

/// Reason why fetching logs failed.
enum Failed {
    Rpc(RpcError),
    TooMuch(FetchError),
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// The logs received from a node so far.
#[derive(Default)]
struct Logs {
    logs: Vec<LocatedLog>,
    held: Held,
}

impl Logs {
    fn append(&mut self, node: &Node, mut found: Vec<LocatedLog>) -> Result<(), FetchError> {
        let bytes = held::bytes_of(found.iter().map(|log| &log.log));
        self.logs.append(&mut found);
        self.held.add(node, "logs", bytes)
    }

    fn truncate(&mut self, count: usize) {
        let removed = self.logs.drain(count..);
        self.held.sub(held::bytes_of(removed.as_slice().iter().map(|log| &log.log)));
    }
}

const GET_LOGS: &str = "eth_getLogs";

/// Fetches a node's logs of the range.
///
/// Blocks up to the finalised block are requested by number. Each later block is requested by its
/// hash, so that the answer belongs to this chain even if the node's chain is reorganised. If
/// `is_source` is `true`, the chain came from this node, and is fetched again after a
/// reorganisation.
pub(crate) fn fetch(
    node: &Node,
    asked: &ResolvedQuery,
    fetched: &mut FetchedChain,
    is_source: bool,
    may_hold: &dyn Fn(&ChainBlock<'_>) -> bool,
) -> Result<Vec<LocatedLog>, FetchError> {
    // Some nodes answer with no logs for a block that they do not have. An empty answer is
    // therefore checked: the node must have the block.
    if let ResolvedBlocks::AtHash(hash) = asked.blocks {
        let logs = node.logs_at(&asked.query, hash).and_then(|logs| {
            if logs.is_empty() { node.logs_at_if_held(&asked.query, hash) } else { Ok(logs) }
        });
        return logs.map_err(|error| FetchError::rpc(node.name(), GET_LOGS, error));
    }
    let settled = asked.finalized.map(|block| block.number.min(asked.last));
    let settled = settled.filter(|&number| number >= asked.first);
    let mut logs = Logs::default();
    let total = (asked.last - asked.first).saturating_add(1);
    // A finalised block cannot be replaced, so these logs may be requested by number: one request
    // then covers many blocks.
    if let Some(settled) = settled {
        let windows = node.logs(&asked.query, asked.first..=settled, |window, found| {
            let done = (window.end() - asked.first).saturating_add(1);
            node.note(&Note::Progress { stage: Stage::Logs, done, total });
            logs.append(node, found).map_err(Failed::TooMuch)
        });
        windows.map_err(|failed| match failed {
            Failed::Rpc(error) => FetchError::rpc(node.name(), GET_LOGS, error),
            Failed::TooMuch(error) => error,
        })?;
    }
    let from = settled.map_or(Some(asked.first), |settled| settled.checked_add(1));
    let Some(from) = from.filter(|from| *from <= asked.last) else { return Ok(logs.logs) };
    let before = logs.logs.len();
    // A block that is not final is requested by its hash: to a request by number, a node on another
    // branch would answer with logs of another block.
    for tries in 1.. {
        logs.truncate(before);
        let Some((block, error)) = by_hash(node, asked, fetched, from, may_hold, &mut logs)? else {
            break;
        };
        // If the node still has the same block, the error has another cause than a reorganisation.
        let what = || format!("block {block}");
        let now = node.header(block);
        let now = now.map_err(|error| FetchError::rpc(node.name(), what(), error))?;
        let here = fetched.chain.block(block).map(|block| block.hash);
        if now.map(|header| header.hash()) == here {
            return Err(FetchError::rpc(node.name(), format!("{GET_LOGS}: {}", what()), error));
        }
        // Only the source can provide the chain again. Any other node whose block differs from the
        // chain's block is on another branch.
        if !is_source || tries == TRIES {
            return Err(FetchError::OtherBranch { node: node.name(), block, tries });
        }
        node.note(&Note::Reorganized { block, from });
        let end = fetched.chain.numbers().map_or(asked.last, |numbers| *numbers.end());
        fetched.fetch(node, from..=end, true)?;
    }
    Ok(logs.logs)
}

/// Requests the logs of the blocks from `from` on, each by its hash, and appends them to `logs`.
/// Returns the first block that the node does not have, or for which it answers with an error.
fn by_hash(
    node: &Node,
    asked: &ResolvedQuery,
    fetched: &FetchedChain,
    from: u64,
    may_hold: &dyn Fn(&ChainBlock<'_>) -> bool,
    logs: &mut Logs,
) -> Result<Option<(u64, RpcError)>, FetchError> {
    let blocks = (from..=asked.last).filter_map(|number| fetched.chain.block(number));
    let (numbers, hashes): (Vec<_>, Vec<_>) =
        blocks.map(|block| (block.number, block.hash)).unzip();
    let total = hashes.len() as u64;
    let mut failed = None;
    let mut done = 0;
    node.logs_at_each(&asked.query, &hashes, |hash, answer| {
        let number = numbers[done];
        done += 1;
        node.note(&Note::Progress { stage: Stage::Logs, done: done as u64, total });
        // Besu and anvil answer with no logs for a block that they don't have. An empty answer is
        // doubtful if the block's filter does not rule a match out.
        let is_doubtful = matches!(&answer, Ok(logs) if logs.is_empty())
            && failed.is_none()
            && fetched.chain.block(number).is_some_and(|block| may_hold(&block));
        let answer = if is_doubtful { node.logs_at_if_held(&asked.query, hash) } else { answer };
        let what = || format!("{GET_LOGS} by hash, block {number}");
        match answer {
            Ok(found) => logs.append(node, found),
            Err(error)
                if matches!(error.origin(), RpcError::Node { .. } | RpcError::NotFound { .. }) =>
            {
                failed.get_or_insert((number, error));
                Ok(())
            }
            Err(error) => Err(FetchError::rpc(node.name(), what(), error)),
        }
    })?;
    Ok(failed)
}

//! The headers of a query's blocks and the nodes' answers: all data of an audit except receipts.

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditError, AuditQuestion};
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, ChainBlock};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};

use super::chain::{self, FetchedChain, Held, Source, bytes_of};
use super::query::{Asks, Needed, ResolvedQuery, resolve};
use crate::anchor::Trust;
use crate::error::FetchError;
use crate::nodes::ask::Nodes;
use crate::nodes::{Node, RpcError};
use crate::report::{Note, Stage, Warning};

/// The headers of a query's blocks, and each node's answer if the nodes were asked for logs.
///
/// [`Provider::ask`](crate::Provider::ask) returns a value of this type.
///
/// [`Provider::audit`](crate::Provider::audit) carries out all steps of an audit. A caller that
/// carries out the steps itself can pass its own receipts to the audits before the other receipts
/// are fetched.
#[derive(Debug)]
#[non_exhaustive]
pub struct FetchedAnswers {
    /// The chain's id (EIP-155).
    pub chain_id: u64,
    /// The profile of the chain: what its headers commit to.
    pub profile: ChainProfile,
    /// The rules by which a log matches the query.
    pub semantics: Semantics,
    /// The query with its blocks resolved to numbers.
    pub query: ResolvedQuery,
    /// The headers of the query's blocks, and of the blocks up to the anchor.
    pub fetched: FetchedChain,
    /// The trusted hashes: the caller's anchors, or the hash of the chain's last block if the
    /// caller gave no anchor.
    pub anchors: Vec<B256>,
    /// The block that all results depend on.
    pub tip: Tip,
    /// Each node's answer, in the order of the nodes. Empty if the nodes were not asked for logs: the
    /// caller can then put in an answer from another source.
    pub logs: Vec<Vec<LocatedLog>>,
    /// Warnings about the reliability of the result.
    pub warnings: Vec<Warning>,
}

impl FetchedAnswers {
    /// Resolves the query, and fetches the headers and, with [`Asks::ChainAndLogs`], the answers.
    pub(crate) fn new(nodes: &Nodes, query: &LogQuery, asks: Asks) -> Result<Self, FetchError> {
        let (chain_id, profile) = (nodes.chain_id()?, nodes.profile()?);
        let (all, settings) = (nodes, &nodes.settings);
        let nodes = &all.list;
        let (asked, mut warnings) = resolve(nodes, query, asks, settings.final_only)?;
        let mut anchors = all.anchors()?;
        let needed = Needed::new(nodes, &anchors, &asked, &mut warnings)?;
        let (first, last, end) = (asked.first, asked.last, *needed.blocks.end());
        let headers = (end - first).saturating_add(1);
        let limit = settings.max_headers;
        if headers > limit {
            return Err(FetchError::TooManyHeaders { headers, first, last, end, limit });
        }
        let mut source =
            chain::fetch(nodes, &anchors, &needed, settings.keep_evidence, &mut warnings)?;
        let mut logs = Vec::new();
        if asks == Asks::ChainAndLogs {
            logs = vec![Vec::new(); nodes.len()];
            let compiled = asked.query.compile();
            let may_hold = |block: &ChainBlock<'_>| {
                let proves_absence = profile.at(block.number).bloom.proves_absence();
                !proves_absence || compiled.answer(block.bloom) != BloomAnswer::No
            };
            // The source is asked first, because a reorganisation at the source replaces the chain.
            // The other nodes are asked after the source, when the chain no longer changes.
            let others = (0..nodes.len()).filter(|index| *index != source.node);
            for index in [source.node].into_iter().chain(others) {
                let (node, is_source) = (&nodes[index], index == source.node);
                let found = fetch_logs(node, &asked, &mut source.fetched, is_source, &may_hold)?;
                node.note(&Note::Logs(found.len()));
                logs[index] = found;
            }
        }
        let tip = Tip::new(&anchors, &source, nodes, end, asks)?;
        if tip.trust == Trust::NoAnchor {
            anchors = vec![tip.block.hash];
        }
        let Source { fetched, .. } = source;
        let semantics = settings.semantics;
        Ok(Self {
            chain_id,
            profile,
            semantics,
            query: asked,
            fetched,
            anchors,
            tip,
            logs,
            warnings,
        })
    }

    /// Returns the question that an audit of a node's answer decides. `node` is the node's index.
    ///
    /// If only one node vouches for the tip, and the audited node has a different block at the
    /// height of the tip, the question has no anchors: nothing can then be proven against the
    /// audited node.
    pub fn question(&self, node: usize) -> AuditQuestion<'_> {
        AuditQuestion {
            chain: &self.fetched.chain,
            anchors: if self.tip.binds(node) { &self.anchors } else { &[] },
            query: &self.query.query,
            blocks: self.query.blocks,
            semantics: self.semantics,
            profile: &self.profile,
        }
    }

    /// Creates the audit of each node's answer.
    /// [`Provider::fetch_receipts`](crate::Provider::fetch_receipts) passes the audits the receipts
    /// that they need.
    ///
    /// # Errors
    /// Returns an [`AuditError`] if the headers do not cover the query's blocks.
    pub fn audits(&self) -> Result<Vec<Audit<'_>>, AuditError> {
        let answers = self.logs.iter().enumerate();
        answers.map(|(node, logs)| Audit::new(self.question(node), logs)).collect()
    }
}

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
        let bytes = bytes_of(found.iter().map(|log| &log.log));
        self.logs.append(&mut found);
        self.held.add(node, "logs", bytes)
    }

    fn truncate(&mut self, count: usize) {
        let removed = self.logs.drain(count..);
        self.held.sub(bytes_of(removed.as_slice().iter().map(|log| &log.log)));
    }
}

const GET_LOGS: &str = "eth_getLogs";

/// Fetches a node's logs of the range.
///
/// Blocks up to the finalised block are requested by number. Each later block is requested by its
/// hash, so that the answer belongs to this chain even if the node's chain is reorganised. If
/// `is_source` is `true`, the chain came from this node, and is fetched again after a
/// reorganisation.
fn fetch_logs(
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
    /// The evidence for the block. Without an anchor, a node may have made up the whole chain.
    pub trust: Trust,
    /// Index of the node that provided the chain.
    pub node: usize,
    /// Every other node, with its block at the height of the tip.
    pub others: Vec<OtherNode>,
}

/// A node other than the node that provided the chain.
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
        let trust = match anchored {
            _ if anchors.is_empty() => Trust::NoAnchor,
            None => Trust::AnchorNotOnChain,
            Some(_) => Trust::Anchored,
        };
        let others = beside(nodes, source.node, block, asks)?;
        Ok(Self { block, trust, node: source.node, others })
    }

    /// Returns `true` if a node's answer can be proven wrong by this chain.
    ///
    /// Without an anchor, only one node vouches for the chain. The claim of one node proves nothing
    /// against another node that has a different block at the height of the tip.
    pub fn binds(&self, node: usize) -> bool {
        let differs = |other: &OtherNode| other.node == node && other.beside != Beside::Same;
        self.trust != Trust::NoAnchor || !self.others.iter().any(differs)
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

//! Audits of answers to `eth_getLogs`: the headers of the query's blocks, the logs that nodes answer, and the
//! receipts of the blocks that filters cannot rule out, from a node whose receipts match the header.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Audit, AuditError, AuditQuestion, AuditReport};
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::forecast;
use chainsieve::eth::header::{BlockRef, ChainBlock, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use super::Provider;
use super::chain::{
    self, Asks, FetchedChain, Held, Needed, ResolvedQuery, Source, bytes_of, bytes_of_receipts,
    resolve,
};
use crate::anchor::{Beside, OtherNode, Tip, Trust};
use crate::error::FetchError;
use crate::nodes::ask::{Nodes, Settings, in_turn, index_of, once};
use crate::nodes::{Node, RpcError};
use crate::report::{Note, Stage, Warning};

/// Result of an audit: a report on each answer to a query.
#[derive(Debug)]
#[non_exhaustive]
pub struct AuditResult {
    /// The headers of the query's blocks, and the nodes' answers.
    pub answers: FetchedAnswers,
    /// The report on each node's answer, in the order of the nodes; or the report on the answer
    /// that the caller passed. The reports are valid if the block [`FetchedAnswers::tip`] is on the
    /// chain.
    pub reports: Vec<AuditReport>,
    /// The blocks whose receipts are missing, so that they are undecided.
    pub open: Vec<BlockRef>,
    /// The sources of the receipts, and the reason if some are missing.
    pub fetched: FetchedReceipts,
}

impl Provider {
    /// Asks each node for the logs of a query, and checks each answer against the chain's headers
    /// and receipts.
    ///
    /// A block whose receipts are missing stays undecided; [`FetchedReceipts::unreachable`] has the
    /// reason. So a node that does not send receipts cannot hide errors that are already proven.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched, if a node returns no logs, or if a limit
    /// is exceeded. A wrong or undecided answer is not an error.
    pub fn audit(&self, query: &LogQuery) -> Result<AuditResult, FetchError> {
        self.audit_with(query, None, |_, _| Ok(()))
    }

    /// Checks an answer from any source against the chain's headers and receipts. The query must
    /// name the blocks whose logs were requested.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if the headers cannot be fetched, or if a limit is exceeded. As in
    /// [`audit`](Self::audit), a wrong or undecided answer is not an error.
    pub fn audit_answer(
        &self,
        query: &LogQuery,
        logs: &[LocatedLog],
    ) -> Result<AuditResult, FetchError> {
        self.audit_with(query, Some(logs), |_, _| Ok(()))
    }

    /// Audits like [`audit`](Self::audit) or, with an `answer`, like [`audit_answer`](Self::audit_answer),
    /// with evidence of the caller: before receipts are fetched, `evidence` gets the audits and the chain,
    /// and can pass receipts and transactions that are at hand. Only what is still missing is fetched.
    ///
    /// # Errors
    /// Returns the errors of [`audit`](Self::audit), and those of `evidence`.
    pub fn audit_with<E: From<FetchError>>(
        &self,
        query: &LogQuery,
        answer: Option<&[LocatedLog]>,
        evidence: impl for<'a> FnOnce(&mut [Audit<'a>], &'a FetchedAnswers) -> Result<(), E>,
    ) -> Result<AuditResult, E> {
        let asks = if answer.is_some() { Asks::Chain } else { Asks::ChainAndLogs };
        let answers = FetchedAnswers::new(&self.0, query, asks)?;
        let audits = match answer {
            Some(logs) => Audit::new(answers.question(answers.tip.node), logs).map(|it| vec![it]),
            None => answers.audits(),
        };
        let mut audits = audits.map_err(FetchError::from)?;
        evidence(&mut audits, &answers)?;
        let fetched = fetch_receipts(&self.0, &mut audits, &answers.fetched.chain)?;
        let open = audits.first().into_iter().flat_map(Audit::open).collect();
        let reports = audits.into_iter().map(Audit::finish).collect();
        Ok(AuditResult { answers, reports, open, fetched })
    }
}

/// The headers of a query's blocks, and each node's answer if the nodes were asked for logs.
///
/// [`AuditResult::answers`] has this type.
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
    /// Each node's answer, in the order of the nodes. Empty if the nodes were not asked for logs, because
    /// the audited answer is from elsewhere.
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
        let tip = tip(&anchors, &source, nodes, end, asks)?;
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
    fn audits(&self) -> Result<Vec<Audit<'_>>, AuditError> {
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

/// Finds the block that all results depend on, and asks the other nodes for their block at its height.
fn tip(
    anchors: &[B256],
    source: &Source,
    nodes: &[Node],
    end: u64,
    asks: Asks,
) -> Result<Tip, FetchError> {
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
    Ok(Tip { block, trust, node: source.node, others })
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

/// Number of consecutive failed blocks after which a node is no longer asked.
const FAILURES: u32 = 3;
/// Maximum number of listed warnings about unusable receipts.
const MAX_WARNINGS: usize = 20;
/// Maximum number of blocks whose receipts are requested a second time, by every method of a node.
const MAX_AGAIN: usize = 32;

/// The receipts that audits needed, and their sources.
///
/// [`AuditResult::fetched`] has this type.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FetchedReceipts {
    /// Verified receipts by block hash, if evidence is kept.
    pub kept: Vec<(B256, BlockReceipts)>,
    /// Warnings about unusable receipts.
    pub warnings: Vec<Warning>,
    /// For each node, the number of blocks whose verified receipts it provided.
    pub from: Vec<u64>,
    /// The first error of an unreachable node; `None` if no receipts are missing.
    pub unreachable: Option<FetchError>,
    is_kept: bool,
    /// Size of the receipts in `kept`.
    held: Held,
    /// Size of the logs that audits have collected, and the number of logs that this size includes.
    collected: (Held, usize),
    /// Indices of the nodes that have answered and are still asked.
    answering: BTreeSet<usize>,
    /// Number of warnings that are not listed.
    unlisted: u64,
}

/// Returns the blocks whose receipts at least one of the audits needs. Before Byzantium, receipts
/// are hashed with a state root, so receipts without state roots decide nothing: another node may
/// provide receipts with state roots.
fn wanted(audits: &[Audit<'_>]) -> Vec<BlockRef> {
    let blocks = audits.iter().flat_map(Audit::unchecked).map(|block| (block.number, block.hash));
    let blocks = blocks.collect::<BTreeMap<u64, B256>>().into_iter();
    blocks.map(|(number, hash)| BlockRef { number, hash }).collect()
}

/// Asks the nodes, one after the other, for the receipts that the audits need. If the receipts of
/// one node do not match the header, the next node is asked.
///
/// # Errors
/// Returns [`FetchError::TooManyReceipts`] or [`FetchError::TooMuch`] if a limit is exceeded, and
/// [`FetchError::Stopped`] if the operation was stopped. Unreachable nodes are not an error; the result names the
/// reason.
pub(super) fn fetch_receipts(
    nodes: &Nodes,
    audits: &mut [Audit<'_>],
    chain: &LinkedHeaders,
) -> Result<FetchedReceipts, FetchError> {
    let Settings { max_receipts, keep_evidence: is_kept, .. } = nodes.settings;
    let nodes = &nodes.list[..];
    let blocks = wanted(audits);
    if let [node, ..] = nodes {
        forecast(node, &blocks, chain, max_receipts)?;
    }
    let mut fetched =
        FetchedReceipts { from: vec![0; nodes.len()], is_kept, ..FetchedReceipts::default() };
    let mut silent = BTreeSet::new();
    for node in in_turn(nodes) {
        let blocks = wanted(audits);
        if blocks.is_empty() {
            break;
        }
        let index = index_of(nodes, node);
        if ask(audits, (index, &once(nodes, node)), &blocks, &mut fetched)? {
            silent.insert(index);
        }
    }
    // Only now are failed requests repeated: while another node may answer, nobody waits for one.
    let is_patient = |index: &usize| nodes.len() > 1 && nodes[*index].options().retries > 0;
    for index in silent.into_iter().filter(is_patient) {
        let blocks = wanted(audits);
        if blocks.is_empty() {
            break;
        }
        ask(audits, (index, &nodes[index]), &blocks, &mut fetched)?;
    }
    ask_again(audits, nodes, &mut fetched)?;
    if audits.iter().all(|audit| audit.open().next().is_none()) {
        fetched.unreachable = None;
    }
    if fetched.unlisted > 0 {
        fetched.warnings.push(Warning::MoreReceipts { count: fetched.unlisted });
    }
    Ok(fetched)
}

/// Sends second requests for the receipts that are still missing, by every method of each node.
///
/// One method of a node may return wrong receipts, and another method may return the right
/// receipts. Nodes that did not answer are not asked again.
fn ask_again(
    audits: &mut [Audit<'_>],
    nodes: &[Node],
    fetched: &mut FetchedReceipts,
) -> Result<(), FetchError> {
    for block in wanted(audits).into_iter().take(MAX_AGAIN) {
        for (index, node) in nodes.iter().enumerate() {
            if !fetched.answering.contains(&index) {
                continue;
            }
            let (mut offered, mut silence) = (Ok(false), None);
            node.receipts_by_each_method(block, |method, receipts| {
                let from = Sender { index, node, method: Some(method) };
                match receipts {
                    Ok(None) | Err(RpcError::MethodMissing { .. }) => {}
                    Ok(receipts) => offered = fetched.offer(audits, &from, block, receipts),
                    Err(error) => {
                        fetched.warn(&from, block, error.to_string());
                        if error == RpcError::Stopped || error.origin().is_transient() {
                            silence = Some(error);
                        }
                    }
                }
                offered != Ok(false) || silence == Some(RpcError::Stopped)
            });
            if silence == Some(RpcError::Stopped) {
                return Err(FetchError::Stopped);
            }
            if offered? {
                break;
            }
            // For at least one method, no answer of the node arrived. The node is not asked for
            // further blocks, since each of them could take a whole timeout too.
            if let Some(error) = silence {
                fetched.answering.remove(&index);
                fetched.not_reached(node, block, error);
            }
        }
    }
    Ok(())
}

/// Reports the estimated size of the receipts in a note. Returns an error if there are too many
/// blocks.
fn forecast(
    node: &Node,
    blocks: &[BlockRef],
    chain: &LinkedHeaders,
    limit: u64,
) -> Result<(), FetchError> {
    if blocks.is_empty() {
        return Ok(());
    }
    let costs = blocks.iter().filter_map(|block| chain.block(block.number));
    // The sum saturates, because a header may claim any amount of gas.
    let bytes = costs.map(|block| forecast::json_bytes(&block));
    let bytes = bytes.fold(0, u64::saturating_add);
    let blocks = blocks.len() as u64;
    // The limit is checked before the first request, so that a query that needs too many receipts
    // does not use up the quota of the provider.
    if blocks > limit {
        return Err(FetchError::TooManyReceipts { blocks, bytes, limit });
    }
    node.note(&Note::FetchesReceipts { blocks, bytes });
    Ok(())
}

/// The source of receipts: a node and, if several methods are tried, a method.
struct Sender<'a> {
    index: usize,
    node: &'a Node,
    method: Option<&'static str>,
}

/// Asks one node for receipts, and passes them to the audits. Returns `true` if a failed request may
/// succeed later.
fn ask(
    audits: &mut [Audit<'_>],
    (index, node): (usize, &Node),
    blocks: &[BlockRef],
    fetched: &mut FetchedReceipts,
) -> Result<bool, FetchError> {
    let from = Sender { index, node, method: None };
    let total = blocks.len() as u64;
    let (mut failures, mut is_silent) = (0, false);
    let mut done = 0;
    // `Err(None)` ends the requests early because the node has failed too often.
    let asked = node.receipts_of(blocks, |block, receipts| {
        done += 1;
        node.note(&Note::Progress { stage: Stage::Receipts, done, total });
        let error = match receipts {
            Ok(receipts) => {
                failures = 0;
                fetched.answering.insert(index);
                return fetched.offer(audits, &from, block, receipts).map(drop).map_err(Some);
            }
            Err(RpcError::Stopped) => return Err(Some(FetchError::Stopped)),
            Err(error) => error,
        };
        fetched.warn(&from, block, error.to_string());
        if error.origin().is_transient() {
            is_silent = true;
            failures += 1;
            fetched.not_reached(node, block, error);
        } else {
            fetched.answering.insert(index);
        }
        if failures >= FAILURES {
            fetched.answering.remove(&index);
            return Err(None);
        }
        Ok(())
    });
    match asked {
        Err(Some(error)) => Err(error),
        Ok(()) | Err(None) => Ok(is_silent),
    }
}

impl FetchedReceipts {
    /// Passes receipts to each audit. Returns `true` if an audit has accepted the receipts.
    ///
    /// # Errors
    /// Returns [`FetchError::TooMuch`] if the kept receipts or collected logs exceed the limit.
    fn offer(
        &mut self,
        audits: &mut [Audit<'_>],
        from: &Sender<'_>,
        block: BlockRef,
        receipts: Option<BlockReceipts>,
    ) -> Result<bool, FetchError> {
        let Some(receipts) = receipts else {
            self.warn(from, block, "the node does not have the receipts".into());
            return Ok(false);
        };
        let (mut settled, mut rejected) = (false, None);
        for audit in &mut *audits {
            match audit.check_receipts(block.hash, &receipts) {
                Err(why) => rejected = Some(why),
                Ok(is_decided) => settled |= is_decided,
            }
        }
        // The receipts do not match the header: the receipts are dropped, and the caller asks the
        // next node. One warning is enough, even if several audits have rejected the receipts.
        if let Some(why) = rejected {
            self.warn(from, block, why.to_string());
        }
        if settled {
            self.from[from.index] += 1;
            if self.is_kept {
                self.held.add(from.node, "receipts", bytes_of_receipts(&receipts))?;
                self.kept.push((block.hash, receipts));
            }
        }
        let (held, counted) = &mut self.collected;
        let collected = audits.iter().flat_map(Audit::collected).skip(*counted);
        let (bytes, count) =
            collected.fold((0, 0), |(bytes, count), log| (bytes_of([&log.log]) + bytes, count + 1));
        *counted += count;
        held.add(from.node, "logs", bytes)?;
        Ok(settled)
    }

    /// Records why receipts are missing. Only the first reason is kept.
    fn not_reached(&mut self, node: &Node, block: BlockRef, error: RpcError) {
        let what = format!("receipts of block {}", block.number);
        self.unreachable.get_or_insert_with(|| FetchError::rpc(node.name(), what, error));
    }

    /// Adds a warning. After [`MAX_WARNINGS`] warnings, further warnings are only counted.
    fn warn(&mut self, from: &Sender<'_>, block: BlockRef, why: String) {
        if self.warnings.len() >= MAX_WARNINGS {
            self.unlisted += 1;
            return;
        }
        let (node, method) = (from.node.name(), from.method);
        self.warnings.push(Warning::Receipts { node, block: block.number, method, why });
    }
}

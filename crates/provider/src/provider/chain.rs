//! The blocks of a query: as numbers, and their headers, which are fetched from a node and linked to a
//! chain, even if the node's chain is reorganised meanwhile.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::{B256, Log};
use chainsieve::eth::audit::AuditError;
use chainsieve::eth::header::{BlockRef, ChainError, HeaderBuf, Linked, LinkedHeaders};
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, Heads, LogQuery, QueryError, ResolvedBlocks,
};
use chainsieve::eth::receipts::BlockReceipts;

use crate::error::FetchError;
use crate::nodes::ask::{Unaccepted, ask, ask_if_any, first_of, index_of};
use crate::nodes::{Node, RpcError, named};
use crate::report::{Note, Stage, Warning};

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

/// Maximum number of attempts to fetch a chain that is reorganised meanwhile.
const TRIES: u32 = 6;
/// If a header is not a child of the header before it, this many earlier blocks are fetched again.
/// Each further attempt goes back four times as far, so that deep reorganisations need few
/// attempts.
const STEP_BACK: u64 = 8;

/// A chain of linked headers of consecutive blocks.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct FetchedChain {
    /// The linked headers.
    pub chain: LinkedHeaders,
    /// The RLP of each header, if evidence is kept.
    pub rlp: Option<Vec<Vec<u8>>>,
    held: Held,
}

/// Reason why headers could not be fetched and linked.
enum Failed {
    Rpc(RpcError),
    /// The header with this number is not a child of the header before it.
    Misfit(u64, ChainError),
    TooMuch(FetchError),
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl FetchedChain {
    /// Creates an empty chain. `keep_rlp` sets whether the RLP of headers is kept.
    pub fn new(keep_rlp: bool) -> Self {
        Self { rlp: keep_rlp.then(Vec::new), ..Self::default() }
    }

    /// Fetches the headers of these blocks from a node, and links them to the chain.
    ///
    /// If the node's chain was reorganised during the call, or since the earlier headers were
    /// fetched, headers of earlier blocks are fetched again, as far back as necessary. `progress`
    /// sets whether progress is reported by notes.
    ///
    /// # Errors
    /// Returns a [`FetchError`] if a request fails, if a limit is exceeded, or if the headers still
    /// form no chain after six attempts.
    pub fn fetch(
        &mut self,
        node: &Node,
        blocks: RangeInclusive<u64>,
        progress: bool,
    ) -> Result<(), FetchError> {
        let (first, last) = blocks.into_inner();
        let bottom = self.chain.numbers().map_or(first, |numbers| *numbers.start());
        let total = last.saturating_sub(bottom).saturating_add(1);
        let mut from = first;
        for tries in 1.. {
            let fetched = node.headers(from..=last, |headers| {
                for header in &headers {
                    self.link(node, header)?;
                }
                // A scan fetches its chain in parts and reports the progress over all parts itself.
                if let Some(header) = headers.last().filter(|_| progress) {
                    let done = header.view().number().saturating_sub(bottom).saturating_add(1);
                    node.note(&Note::Progress { stage: Stage::Headers, done, total });
                }
                Ok::<_, Failed>(())
            });
            let (block, error) = match fetched {
                Ok(()) => break,
                Err(Failed::Misfit(block, error)) => (block, error),
                Err(Failed::Rpc(error)) => {
                    return Err(FetchError::rpc(node.name(), "headers", error));
                }
                Err(Failed::TooMuch(error)) => return Err(error),
            };
            if tries == TRIES {
                return Err(FetchError::NoOneChain { node: node.name(), block, error, tries });
            }
            let back = STEP_BACK << (2 * (tries - 1));
            from = block.saturating_sub(back).max(bottom);
            node.note(&Note::Reorganized { block, from });
            if from == bottom {
                // The reorganisation may have replaced the first block too.
                *self = Self::new(self.rlp.is_some());
            }
        }
        Ok(())
    }

    fn link(&mut self, node: &Node, header: &HeaderBuf) -> Result<(), Failed> {
        let view = header.view();
        let linked = self.chain.push(&view);
        let linked = linked.map_err(|error| Failed::Misfit(view.number(), error))?;
        if let Some(rlp) = &mut self.rlp {
            if let Linked::Reorganised { removed } = &linked {
                let left = rlp.drain(rlp.len().saturating_sub(removed.len())..);
                self.held.sub(left.as_slice().iter().map(|rlp| rlp.len() as u64).sum());
            }
            if linked != Linked::Known {
                let bytes = header.rlp().len() as u64;
                self.held.add(node, "headers", bytes).map_err(Failed::TooMuch)?;
                rlp.push(header.rlp().to_vec());
            }
        }
        Ok(())
    }
}

/// A fetched chain, and the node that provided it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) fetched: FetchedChain,
    /// Index of the node that provided the chain.
    pub(crate) node: usize,
}

/// Fetches the needed headers. Without anchors, the first node that has all of these headers
/// provides them.
///
/// With anchors, the chain of the node whose chain contains the highest anchor is used. If several
/// nodes are equally good, the first of them is used.
pub(crate) fn fetch(
    nodes: &[Node],
    anchors: &[B256],
    needed: &Needed,
    keep_rlp: bool,
    warnings: &mut Vec<Warning>,
) -> Result<Source, FetchError> {
    let mut failed: Option<FetchError> = None;
    let mut best: Option<(Option<u64>, Source)> = None;
    let fetch = |node: &Node| {
        let index = index_of(nodes, node);
        let mut fetched = FetchedChain::new(keep_rlp);
        let came = fetched.fetch(node, needed.blocks.clone(), true);
        let error = match came.and_then(|()| begins(needed, &fetched)) {
            Ok(()) => {
                let anchored_to = fetched.chain.anchored_to(anchors);
                let source = Source { fetched, node: index };
                // Without anchors, no node's chain is better than another's. With anchors, this
                // chain is authentic as far as the query needs, so no other node can have a better
                // chain.
                if anchors.is_empty() || anchored_to >= Some(needed.anchored_to) {
                    return Ok(Some(source));
                }
                if anchored_to.is_none() && nodes.len() > 1 {
                    warnings.push(Warning::WithoutAnchor { node: node.name() });
                }
                // The chain with the highest anchor makes the most blocks authentic. The first of several
                // equally good nodes is kept.
                let is_better = |(most, before): &(Option<u64>, Source)| {
                    anchored_to > *most || anchored_to == *most && index < before.node
                };
                if best.as_ref().is_none_or(is_better) {
                    best = Some((anchored_to, source));
                }
                return Ok(None);
            }
            Err(error) => error,
        };
        let why = unaccepted(&error);
        if error != FetchError::Stopped && nodes.len() > 1 {
            node.note(&Note::NoChain(error.to_string()));
            warnings.push(Warning::NoChain { blocks: needed.blocks.clone(), error: error.clone() });
        }
        // If one node failed and another node's chain lacks the query's block, the failure is the reported
        // error.
        if failed.is_none() || !matches!(error, FetchError::Audit(_)) {
            failed = Some(error);
        }
        Err(why)
    };
    // A chain without an anchor is accepted too, unless another node may have the chain with the
    // anchor.
    let asked = if needed.has_anchor { ask(nodes, fetch) } else { ask_if_any(nodes, fetch) };
    let unanswered = match asked {
        Ok(source) => return Ok(source),
        Err(unanswered) => unanswered,
    };
    if unanswered.is_stopped() {
        return Err(FetchError::Stopped);
    }
    let best = best.map(|(_, source)| source);
    best.ok_or_else(|| failed.expect("a provider has at least one node"))
}

/// Returns the reason why a node's headers cannot be used.
pub(crate) fn unaccepted(error: &FetchError) -> Unaccepted {
    match error {
        FetchError::Rpc { error, .. } => Unaccepted::Rpc(error.clone()),
        FetchError::Stopped => Unaccepted::Rpc(RpcError::Stopped),
        error => Unaccepted::Answer(error.to_string()),
    }
}

/// Checks that a chain begins with the query's block, if the query names the block by its hash.
///
/// A node may return this block by its hash even if the node's chain has a different block at the
/// same height.
pub(crate) fn begins(needed: &Needed, fetched: &FetchedChain) -> Result<(), FetchError> {
    let first = fetched.chain.block(*needed.blocks.start()).map(|block| block.hash);
    match needed.begins_with {
        Some(hash) if first != Some(hash) => Err(AuditError::NotOnChain { hash }.into()),
        _ => Ok(()),
    }
}

/// Number of bytes of one kind of data that an operation holds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held(u64);

impl Held {
    /// Adds bytes of a node's answer. Returns an error if the node's limit is exceeded.
    pub(crate) fn add(
        &mut self,
        node: &Node,
        what: &'static str,
        bytes: u64,
    ) -> Result<(), FetchError> {
        self.0 = self.0.saturating_add(bytes);
        let limit = node.options().max_held;
        // Without the limit, a node could fill the memory with invented answers.
        if self.0 > limit {
            return Err(FetchError::TooMuch { node: node.name(), what, limit });
        }
        Ok(())
    }

    /// Subtracts bytes that are no longer held.
    pub(crate) fn sub(&mut self, bytes: u64) {
        self.0 = self.0.saturating_sub(bytes);
    }
}

/// Approximate number of bytes of a located log without topics and data, and of a receipt without
/// logs. An estimate of the fixed fields: if these fields were not counted, a node could send any
/// number of empty logs and receipts at no cost.
const PLAIN: usize = 300;

/// Estimates the bytes that receipts take in memory. Receipts without logs are included, because a
/// node may invent any number of them.
pub(crate) fn bytes_of_receipts(receipts: &BlockReceipts) -> u64 {
    let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
    (PLAIN * receipts.len()) as u64 + bytes_of(logs)
}

/// Estimates the bytes that located logs take in memory.
pub(crate) fn bytes_of<'a>(logs: impl IntoIterator<Item = &'a Log>) -> u64 {
    let of_log = |log: &Log| PLAIN + 32 * log.data.topics().len() + log.data.data.len();
    logs.into_iter().map(of_log).sum::<usize>() as u64
}

//! Logs of a query: the proven logs of the verified chain, or an error.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::chain_profile::ReceiptsScope;
use chainsieve::eth::header::{BlockRef, ChainBlock};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{
    BlockSelection, BlockTag, CompiledQuery, Heads, LogQuery, QueryError, ResolvedBlocks, Semantics,
};
use chainsieve::eth::scan;

use super::Proven;
use super::call::Call;
use super::chain::{BlockHeader, Change, Headers, HeadersError};
use super::error::Refusal;
use super::index::Indexed;
use super::operator::RpcServerEvent;
use crate::error::FetchError;
use crate::nodes::Node;
use crate::nodes::ask::in_order;
use crate::proven::{Missing, Part};
use crate::provider::chain::bytes_of;
use crate::stop::Stop;

/// The rules by which logs match: those of go-ethereum.
pub(super) const SEMANTICS: Semantics = Semantics::Geth;
/// Name of the limit for candidates in errors.
const CANDIDATES: &str = "blocks that may contain a log";
/// If the index names more than one in `MANY` of the blocks whose headers are missing, all of these
/// headers are fetched, many at once, instead of only the candidates' headers one by one.
const MANY: u64 = 8;
/// Maximum number of blocks that are fetched in one request. A mainnet block has about a megabyte of
/// receipts and transactions.
const TOGETHER: usize = 4;
/// After this number of blocks that could not be proven, no further blocks are requested.
const MOST_MISSING: usize = 8;

/// The source of the filters of a part of a range.
enum Span {
    Headers(Headers),
    /// The index: these blocks may contain a matching log.
    Index(Vec<BlockRef>),
}

/// A block that may contain a matching log.
enum Candidate<'a> {
    Header(ChainBlock<'a>),
    /// A block whose hash is in the index. Its header is fetched.
    Index(BlockRef),
}

/// A block with its header.
enum Found<'a> {
    Held(ChainBlock<'a>),
    Fetched(Arc<BlockHeader>),
}

impl Found<'_> {
    fn block(&self) -> ChainBlock<'_> {
        match self {
            Self::Held(block) => *block,
            Self::Fetched(block) => ChainBlock::from(&**block),
        }
    }
}

/// Reason why no further block of a query is read.
enum Ended {
    /// Too many blocks could not be proven; this is the last one of them.
    Missing(BlockRef),
    Refused(Refusal),
}

/// Counts the blocks of a query, and the blocks that have a matching log.
#[derive(Debug, Default)]
struct Matches {
    blocks: AtomicU64,
    matching: AtomicU64,
}

impl Matches {
    fn count(&self, is_matching: bool) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.matching.fetch_add(is_matching.into(), Ordering::Relaxed);
    }

    /// Returns `true` if most of the blocks so far have a match, so that the next blocks probably match,
    /// too.
    fn are_most(&self) -> bool {
        self.matching.load(Ordering::Relaxed) * 2 > self.blocks.load(Ordering::Relaxed)
    }
}

impl Candidate<'_> {
    fn at(&self) -> BlockRef {
        match self {
            Self::Header(block) => BlockRef::from(*block),
            Self::Index(at) => *at,
        }
    }
}

impl Proven {
    /// Returns the blocks of the verified chain that tags name.
    pub(super) fn heads(&self) -> Result<Heads, Refusal> {
        let head = self.chain.head().ok_or(Refusal::NotReady)?;
        let finalized = self.chain.finalized().map(|block| block.number);
        Ok(Heads { earliest: 0, latest: head.number, safe: finalized, finalized })
    }

    /// Returns the headers of a range of the verified chain. Missing headers are fetched.
    pub(super) fn headers(
        &self,
        range: RangeInclusive<u64>,
        stop: &Stop,
    ) -> Result<Headers, HeadersError> {
        let nodes: Vec<Node> =
            self.blocks.nodes().iter().map(|node| node.with_stop(stop.clone())).collect();
        loop {
            match self.chain.headers(&nodes, self.anchor.as_deref(), range.clone()) {
                // Another call fetched them, and nobody waits for that one any more.
                Err(HeadersError::Fetch(FetchError::Stopped)) if !stop.is_set() => {}
                found => return found,
            }
        }
    }
}

impl Call {
    /// Returns the logs of a query with all members proven, in the order of the chain.
    pub(super) fn logs(&self, query: &LogQuery) -> Result<Vec<LocatedLog>, Refusal> {
        self.while_filters_hold(|| self.logs_now(query))
    }

    /// Calls `ask`, and calls it once more if filters were refuted meanwhile, because the first answer
    /// may rest on them.
    fn while_filters_hold<T>(&self, ask: impl Fn() -> T) -> T {
        let are_refuted = self.blocks.filters.are_refuted();
        let answer = ask();
        if self.blocks.filters.are_refuted() == are_refuted { answer } else { ask() }
    }

    fn logs_now(&self, query: &LogQuery) -> Result<Vec<LocatedLog>, Refusal> {
        if let BlockSelection::AtHash(hash) = *query.blocks() {
            let unknown = || Refusal::UnknownBlock("unknown block".to_owned());
            let block = self.block_of(hash, false, &self.stop)?.ok_or_else(unknown)?;
            self.check_profile(&(block.at.number..=block.at.number))?;
            let block = ChainBlock::from(&*block);
            return self.limited(self.blocks.logs(&block, query, SEMANTICS)?);
        }
        let ResolvedBlocks::Range { first, last } = query.resolve(&self.heads()?)? else {
            return Err(Refusal::Params("a range or one block".to_owned()));
        };
        let (found, limit) = ((last - first).saturating_add(1), self.limits.max_blocks);
        if found > limit {
            return Err(Refusal::Limit { what: "blocks", found, limit });
        }
        let range = first..=last;
        self.check_profile(&range)?;
        let compiled = query.compile();
        let spans = self.spans(&compiled, &range)?;
        let candidates: Vec<_> =
            spans.iter().flat_map(|span| self.candidates(&compiled, span)).collect();
        self.logs_in(query, &candidates, &range)
    }

    /// Divides a range into blocks of the index and blocks whose headers are needed.
    fn spans(
        &self,
        compiled: &CompiledQuery,
        range: &RangeInclusive<u64>,
    ) -> Result<Vec<Span>, Refusal> {
        if let Some(headers) = self.chain.held(range) {
            return Ok(vec![Span::Headers(headers)]);
        }
        let (first, last) = (*range.start(), *range.end());
        let limit = self.limits.max_candidates;
        let indexed = self.index.as_ref().and_then(|index| {
            let filters = &self.blocks.filters;
            index.candidates(compiled, filters, range, limit).unwrap_or_else(|error| {
                // The headers can be fetched instead.
                if let Some(why) = index.unreadable(error) {
                    self.events.log(&RpcServerEvent::IndexFailed { why });
                }
                None
            })
        });
        let Some(Indexed { blocks, count, candidates }) = indexed else {
            return Ok(vec![Span::Headers(self.headers(range.clone(), &self.stop)?)]);
        };
        if count > limit {
            let what = CANDIDATES;
            return Err(Refusal::Limit { what, found: count, limit });
        }
        let (from, to) = blocks.into_inner();
        if count > MANY
            && self.chain.missing_from(first) / MANY < count
            && let Ok(headers) = self.headers(range.clone(), &self.stop)
        {
            return Ok(vec![Span::Headers(headers)]);
        }
        let mut spans = Vec::new();
        if first < from {
            spans.push(Span::Headers(self.headers(first..=from - 1, &self.stop)?));
        }
        spans.push(Span::Index(candidates));
        if to < last {
            spans.push(Span::Headers(self.headers(to + 1..=last, &self.stop)?));
        }
        Ok(spans)
    }

    fn logs_in<'a, 'b>(
        &self,
        query: &LogQuery,
        candidates: &'a [Candidate<'b>],
        range: &RangeInclusive<u64>,
    ) -> Result<Vec<LocatedLog>, Refusal> {
        let limit = self.limits.max_candidates;
        let found = candidates.len() as u64;
        if found > limit {
            return Err(Refusal::Limit { what: CANDIDATES, found, limit });
        }
        let is_cold = |block: &&Candidate<'_>| !self.blocks.has_receipts_in_memory(block.at().hash);
        let cold = candidates.iter().filter(is_cold).count();
        let (mut logs, mut missing): (Vec<LocatedLog>, Vec<Missing>) = (Vec::new(), Vec::new());
        let mut take = |block: &Candidate<'_>, found: Result<Vec<LocatedLog>, Missing>| {
            match found {
                Ok(found) => {
                    self.hold(bytes_of(found.iter().map(|log| &log.log)))
                        .map_err(Ended::Refused)?;
                    logs.extend(found);
                }
                Err(why) => missing.push(why),
            }
            if missing.len() >= MOST_MISSING {
                return Err(Ended::Missing(block.at()));
            }
            self.check_waiting().map_err(Ended::Refused)?;
            let (found, limit) = (logs.len() as u64, self.limits.max_logs);
            if found > limit {
                return Err(Ended::Refused(Refusal::Limit { what: "logs", found, limit }));
            }
            Ok(())
        };
        let matches = Matches::default();
        let work = |group: &'a [Candidate<'b>]| {
            let logs = self.logs_of_group(query, group, (cold > 0).then_some(&matches));
            group.iter().zip(logs).collect::<Vec<_>>()
        };
        let mut take = |found: Vec<(&Candidate<'_>, _)>| {
            found.into_iter().try_for_each(|(block, found)| take(block, found))
        };
        let threads = self.limits.parallel;
        let taken = if cold > 1 {
            // Small groups if every thread would not get some.
            let together = (cold / (2 * threads.max(1))).clamp(1, TOGETHER);
            in_order(threads, candidates.chunks(together), work, take)
        } else {
            candidates.chunks(TOGETHER).try_for_each(|group| take(work(group)))
        };
        match taken {
            Ok(()) if missing.is_empty() => {}
            Err(Ended::Refused(refusal)) => return Err(refusal),
            Ok(()) => return Err(Refusal::missing(range, missing)),
            Err(Ended::Missing(last)) => {
                // The others may be missing too.
                let others = candidates.iter().filter(|block| block.at().number > last.number);
                missing.extend(others.map(|block| {
                    let why = "not requested, because other blocks are missing".to_owned();
                    Missing::of(block.at(), Part::Receipts, vec![why])
                }));
                return Err(Refusal::missing(range, missing));
            }
        }
        // What is in memory was compared when it was fetched. Where nothing is fetched, because filters rule
        // it out, the nodes can show that filters lack bits, if that is possible by what is known.
        let profile = &self.blocks.filters.profile;
        let is_assumed = [range.start(), range.end()].map(|&at| profile.at(at).is_assumed());
        let is_ruled_out = candidates.is_empty() && is_assumed.contains(&true);
        if cold > 0 || is_ruled_out && self.compare.is_new(query, range) {
            self.queue_comparison(query, range, &logs);
        }
        Ok(logs)
    }

    /// Returns the matching logs of each block. `matches` counts the matching blocks of the same query,
    /// unless all blocks of the group are in memory.
    fn logs_of_group(
        &self,
        query: &LogQuery,
        group: &[Candidate<'_>],
        matches: Option<&Matches>,
    ) -> Vec<Result<Vec<LocatedLog>, Missing>> {
        let found: Vec<Result<Found<'_>, Missing>> = group
            .iter()
            .map(|candidate| match candidate {
                Candidate::Header(block) => Ok(Found::Held(*block)),
                Candidate::Index(at) => self.blocks.header(*at).map(Found::Fetched),
            })
            .collect();
        if matches.is_some_and(Matches::are_most) {
            let blocks: Vec<_> = found.iter().flatten().map(Found::block).collect();
            self.blocks.fetch_together(&blocks);
        }
        let logs = |block: Result<Found<'_>, Missing>| {
            let logs = self.blocks.logs(&block?.block(), query, SEMANTICS)?;
            if let Some(matches) = matches {
                matches.count(!logs.is_empty());
            }
            Ok(logs)
        };
        found.into_iter().map(logs).collect()
    }

    /// Checks the number of logs, and counts their bytes until the call ends.
    fn limited(&self, logs: Vec<LocatedLog>) -> Result<Vec<LocatedLog>, Refusal> {
        let (found, limit) = (logs.len() as u64, self.limits.max_logs);
        if found > limit {
            return Err(Refusal::Limit { what: "logs", found, limit });
        }
        self.hold(bytes_of(logs.iter().map(|log| &log.log)))?;
        Ok(logs)
    }

    /// Returns the blocks that may contain a matching log.
    fn candidates<'a>(&self, compiled: &CompiledQuery, span: &'a Span) -> Vec<Candidate<'a>> {
        let headers = match span {
            Span::Headers(headers) => headers,
            Span::Index(found) => return found.iter().copied().map(Candidate::Index).collect(),
        };
        let mut candidates = Vec::new();
        for (part, numbers) in headers.parts() {
            let Some(start) = part.numbers().map(|numbers| *numbers.start()) else { continue };
            let [from, to] = [numbers.start(), numbers.end()].map(|number| index(number - start));
            let blooms = part.blooms().get(from..=to).unwrap_or_default();
            if self.blocks.filters.prove_absence(&numbers) {
                let found = scan::candidates(compiled, blooms);
                let block = |at: usize| part.block(numbers.start() + at as u64);
                candidates.extend(found.into_iter().filter_map(block).map(Candidate::Header));
            } else {
                let all = numbers.filter_map(|number| part.block(number));
                candidates.extend(all.map(Candidate::Header));
            }
        }
        candidates
    }
}

impl Proven {
    /// Returns an error if logs may be missing in the receipts of one of these blocks.
    pub(super) fn check_profile(&self, blocks: &RangeInclusive<u64>) -> Result<(), Refusal> {
        let profile = &self.blocks.filters.profile;
        if profile.within(blocks).iter().all(|range| range.receipts == ReceiptsScope::EveryLog) {
            return Ok(());
        }
        let why = format!("receipts of {} need not have all logs", profile.name());
        Err(Refusal::not_proven("chain_profile", why))
    }

    /// Returns the header of a block of the verified chain by its hash; `None` if the block is not
    /// on the verified chain. `exists` is `true` if a node names the block.
    pub(super) fn block_of(
        &self,
        hash: B256,
        exists: bool,
        stop: &Stop,
    ) -> Result<Option<Arc<BlockHeader>>, Refusal> {
        self.heads()?;
        let block = if let Some(known) = self.journal.header(hash) {
            known
        } else {
            let header = self.blocks.header_with(hash, exists).map_err(HeadersError::from)?;
            let Some(header) = header else { return Ok(None) };
            header
        };
        Ok(self.is_on_chain(block.at, stop)?.then_some(block))
    }

    /// Returns `true` if the verified chain has this block.
    pub(super) fn is_on_chain(&self, block: BlockRef, stop: &Stop) -> Result<bool, Refusal> {
        if block.number > self.heads()?.latest {
            return Ok(false);
        }
        Ok(self.hash_at(block.number, stop)? == Some(block.hash))
    }

    /// Returns the hash of the verified chain's block with this number, which must not be above the
    /// head.
    pub(super) fn hash_at(&self, number: u64, stop: &Stop) -> Result<Option<B256>, HeadersError> {
        let known = self.chain.hash(number);
        match known.or_else(|| self.index.as_ref()?.hash(number)) {
            Some(hash) => Ok(Some(hash)),
            None => Ok(self.headers(number..=number, stop)?.hash(number)),
        }
    }

    /// Returns the header of the block that a tag names; `None` above the verified head.
    pub(super) fn block_at(
        &self,
        tag: BlockTag,
        stop: &Stop,
    ) -> Result<Option<Arc<BlockHeader>>, Refusal> {
        let heads = self.heads()?;
        let query = LogQuery::new().from_block(tag).to_block(tag);
        let number = match query.resolve(&heads) {
            Ok(ResolvedBlocks::Range { first, .. }) => first,
            Ok(ResolvedBlocks::AtHash(_)) | Err(QueryError::BeyondHead { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let hash = self.hash_at(number, stop)?.ok_or(Refusal::NotReady)?;
        let known = self.journal.header(hash).map(Ok);
        Ok(Some(known.unwrap_or_else(|| self.blocks.header(BlockRef { number, hash }))?))
    }
}

impl Call {
    /// Returns the matching logs of changes of the chain, in their order.
    pub(super) fn logs_of_changes(
        &self,
        query: &LogQuery,
        compiled: &CompiledQuery,
        changes: &[Change],
    ) -> Result<Vec<LocatedLog>, Refusal> {
        self.while_filters_hold(|| self.logs_of_changes_now(query, compiled, changes))
    }

    fn logs_of_changes_now(
        &self,
        query: &LogQuery,
        compiled: &CompiledQuery,
        changes: &[Change],
    ) -> Result<Vec<LocatedLog>, Refusal> {
        let mut logs = Vec::new();
        for Change { block, removed } in without_pairs(changes) {
            self.check_waiting()?;
            let number = block.at.number;
            if !is_in(query, number) {
                continue;
            }
            self.check_profile(&(number..=number))?;
            let header = ChainBlock::from(&**block);
            let proves_absence = self.blocks.filters.prove_absence(&(number..=number));
            if proves_absence && compiled.answer(header.bloom) == BloomAnswer::No {
                continue;
            }
            let found = match self.blocks.logs(&header, query, SEMANTICS) {
                Ok(found) => found,
                // Nodes need not keep what has left the chain, so waiting may never end.
                Err(missing) if *removed => return Err(Refusal::Gap(missing)),
                Err(missing) => return Err(missing.into()),
            };
            logs.extend(found.into_iter().map(|log| LocatedLog { removed: *removed, ..log }));
        }
        self.limited(logs)
    }
}

/// Returns the changes, without pairs of changes by which a block joined the chain and left it
/// again.
fn without_pairs(changes: &[Change]) -> Vec<&Change> {
    let mut left: Vec<&Change> = Vec::new();
    for change in changes {
        let same = |other: &&Change| !other.removed && other.block.at == change.block.at;
        match left.iter().rposition(same) {
            Some(joined) if change.removed => drop(left.remove(joined)),
            _ => left.push(change),
        }
    }
    left
}

/// Returns `true` if the range of a filter includes a new block: only numbers limit it, as in go-ethereum.
fn is_in(query: &LogQuery, number: u64) -> bool {
    match *query.blocks() {
        BlockSelection::AtHash(_) => true,
        BlockSelection::Range { from, to } => {
            let limit = |tag: Option<BlockTag>| match tag {
                Some(BlockTag::Number(number)) => Some(number),
                Some(BlockTag::Earliest) => Some(0),
                _ => None,
            };
            limit(from).is_none_or(|from| from <= number) && limit(to).is_none_or(|to| number <= to)
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

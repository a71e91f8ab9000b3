//! Finds the blocks that may contain a log, by their headers alone.

use std::ops::RangeInclusive;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, LinkedHeaders};
use chainsieve::eth::scan::Scanner;

use super::chain::{FetchedChain, Needed, ResolvedQuery, begins, unaccepted};
use crate::error::FetchError;
use crate::nodes::Node;
use crate::nodes::ask::{Nodes, Unaccepted, ask};
use crate::report::{Note, Stage, Warning};

/// Maximum number of headers that are in memory at a time: about 5 MB, since a header has about 600
/// bytes. An estimate.
const AT_A_TIME: u64 = 8192;

/// The blocks that may contain a matching log. All other blocks of the range contain no matching
/// log.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct ScanResult {
    /// The candidates, in order: blocks whose filter does not rule a match out, and blocks whose
    /// filters prove nothing according to the profile of the chain.
    pub candidates: Vec<BlockRef>,
    /// The range of blocks that was scanned.
    pub blocks: RangeInclusive<u64>,
    /// The block of the last header: the last of the range, or the anchor.
    pub end: BlockRef,
    /// Number of the block up to which the headers are authentic; `None` if no anchor is on the
    /// chain.
    pub anchored_to: Option<u64>,
    /// Warnings about the reliability of the result.
    pub warnings: Vec<Warning>,
}

/// A part of a scan: linked headers, and the candidates among them.
#[derive(Debug)]
#[non_exhaustive]
pub struct ScannedPart<'a> {
    /// The linked headers.
    pub chain: &'a LinkedHeaders,
    /// Indices into the chain, ascending, of the headers whose filter does not rule a match out.
    pub candidates: &'a [usize],
}

impl ScanResult {
    pub(crate) fn new(
        nodes: &Nodes,
        asked: &ResolvedQuery,
        anchors: &[B256],
        needed: &Needed,
        mut warnings: Vec<Warning>,
    ) -> Result<Self, FetchError> {
        let profile = nodes.profile()?;
        let range = asked.first..=asked.last;
        let mut candidates = Vec::new();
        let mut anchored_to = None;
        let mut last = None;
        scan_parts(nodes, asked, needed, &mut warnings, |part| {
            anchored_to = part.chain.anchored_to(anchors).or(anchored_to);
            let mut found = part.candidates.iter().copied().peekable();
            for (index, block) in part.chain.blocks().enumerate() {
                let is_found = found.next_if_eq(&index).is_some();
                let proves_absence = profile.at(block.number).bloom.proves_absence();
                let at = BlockRef { number: block.number, hash: block.hash };
                if range.contains(&at.number) && (is_found || !proves_absence) {
                    candidates.push(at);
                }
                last = Some(at);
            }
            true
        })?;
        let end = last.unwrap_or(BlockRef { number: *needed.blocks.end(), hash: B256::ZERO });
        Ok(Self { candidates, blocks: range, end, anchored_to, warnings })
    }
}

/// Scans the needed headers in parts, as long as `take` returns `true`.
///
/// If a node fails, another node is asked. Each part must continue the part before it, whichever
/// node provides it.
pub(crate) fn scan_parts(
    nodes: &Nodes,
    asked: &ResolvedQuery,
    needed: &Needed,
    warnings: &mut Vec<Warning>,
    mut take: impl FnMut(ScannedPart<'_>) -> bool,
) -> Result<(), FetchError> {
    let nodes = &nodes.list;
    // Nodes that failed for good are not asked again.
    let mut left = nodes.clone();
    let compiled = asked.query.compile();
    let mut scanner = None;
    let mut before: Option<LinkedHeaders> = None;
    let (mut start, end) = (asked.first, *needed.blocks.end());
    let total = (end - start).saturating_add(1);
    loop {
        let last = start.saturating_add(AT_A_TIME - 1).min(end);
        let parent = before.as_ref().and_then(LinkedHeaders::parent_hash);
        let mut failed = Vec::new();
        let came = ask(&left, |node| {
            let error = match part(node, start..=last, parent, needed) {
                Ok(chain) => return Ok(Some((node.clone(), chain))),
                Err(error) => error,
            };
            let why = unaccepted(&error);
            failed.push((node.clone(), error));
            Err(why)
        });
        let (node, chain) = match came {
            Ok(found) => found,
            Err(unanswered) if unanswered.is_stopped() => return Err(FetchError::Stopped),
            Err(_) => {
                let last = failed.pop().map(|(_, error)| error);
                return Err(last.expect("a provider has at least one node"));
            }
        };
        for (node, error) in failed {
            if !matches!(unaccepted(&error), Unaccepted::Rpc(error) if error.origin().is_transient())
            {
                left.retain(|own| !own.is_same(&node));
            }
            node.note(&Note::NoChain(error.to_string()));
            warnings.push(Warning::NoChain { blocks: start..=last, error });
        }
        // The scanner chooses the order of its tests by the first headers, and keeps it for all
        // parts.
        let by = || Scanner::ordered_by(&compiled, chain.blooms());
        let found = scanner.get_or_insert_with(by).candidates(chain.blooms());
        let goes_on = take(ScannedPart { chain: &chain, candidates: &found });
        let done = (last - asked.first).saturating_add(1);
        node.note(&Note::Progress { stage: Stage::Headers, done, total });
        before = Some(chain.following());
        match last.checked_add(1).filter(|&next| next <= end && goes_on) {
            Some(next) => start = next,
            None => return Ok(()),
        }
    }
}

/// Fetches one part of the headers from a node. The first header must be a child of `parent`; with
/// `None`, this is the first part.
fn part(
    node: &Node,
    blocks: RangeInclusive<u64>,
    parent: Option<B256>,
    needed: &Needed,
) -> Result<LinkedHeaders, FetchError> {
    let block = *blocks.start();
    let mut fetched = FetchedChain::new(false);
    fetched.fetch(node, blocks, false)?;
    match parent {
        None => begins(needed, &fetched)?,
        Some(parent) if fetched.chain.parent_hash() != Some(parent) => {
            return Err(FetchError::Reorganized { node: node.name(), block });
        }
        Some(_) => {}
    }
    Ok(fetched.chain)
}

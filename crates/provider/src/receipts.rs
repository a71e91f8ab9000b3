//! Receipts for the blocks that filters can't rule out, from whichever node has authentic ones.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Action, Audit, Event, Undecidable, Verdict};
use chainsieve::eth::forecast;
use chainsieve::eth::header::{BlockRef, HeaderChain};
use chainsieve::eth::receipts::BlockReceipts;

use crate::error::FetchError;
use crate::held::{self, Held};
use crate::node::{Node, RpcError};
use crate::note::{Note, Stage};
use crate::warning::Warning;

/// Blocks in a row that a node does not answer for before it is asked no more.
const FAILURES: u32 = 3;
/// Warnings about receipts that are not used.
const MAX_WARNINGS: usize = 20;
/// Blocks whose receipts are asked for once more, by every method that a node serves.
const MAX_AGAIN: usize = 32;

/// The receipts that audits wanted.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Fetched {
    /// Receipts that are the block's, if they are kept.
    pub kept: Vec<(B256, BlockReceipts)>,
    /// What the caller should know.
    pub warnings: Vec<Warning>,
    /// How many blocks' receipts came from each node.
    pub from: Vec<u64>,
    /// Why a node could not be reached, if some receipts are missing: the first time of it.
    pub unreachable: Option<FetchError>,
    is_kept: bool,
    /// Receipts that are kept.
    held: Held,
    /// Logs that an audit collects, and how many of them are counted.
    collected: (Held, usize),
    /// The nodes that answered and were not given up, by their index.
    answering: BTreeSet<usize>,
    /// Blocks of which a node gave receipts without the state roots that they are hashed with before
    /// Byzantium: another node may have them.
    without_roots: BTreeMap<u64, B256>,
    /// Warnings that are not listed.
    unlisted: u64,
}

/// The blocks of which any of the audits wants receipts.
fn wanted(audits: &[Audit<'_>]) -> BTreeMap<u64, B256> {
    audits.iter().flat_map(Audit::open).map(|block| (block.number, block.hash)).collect()
}

fn refs(wanted: BTreeMap<u64, B256>) -> Vec<BlockRef> {
    wanted.into_iter().map(|(number, hash)| BlockRef { number, hash }).collect()
}

/// Asks the nodes for the receipts that the audits want, one node after the other: what one gives
/// that is not the block's may come from the next.
pub(crate) fn fetch(
    nodes: &[Node],
    audits: &mut [Audit<'_>],
    chain: &HeaderChain,
    limit: u64,
    is_kept: bool,
) -> Result<Fetched, FetchError> {
    let blocks = wanted(audits);
    if let [node, ..] = nodes {
        forecast(node, &blocks, chain, limit)?;
    }
    let mut fetched = Fetched { from: vec![0; nodes.len()], is_kept, ..Fetched::default() };
    for node in nodes.iter().enumerate() {
        let mut blocks = wanted(audits);
        blocks.extend(&fetched.without_roots);
        let blocks = refs(blocks);
        if blocks.is_empty() {
            break;
        }
        ask(audits, node, &blocks, &mut fetched)?;
    }
    ask_again(audits, nodes, &mut fetched)?;
    if wanted(audits).is_empty() {
        fetched.unreachable = None;
    }
    if fetched.unlisted > 0 {
        fetched.warnings.push(Warning::MoreReceipts(fetched.unlisted));
    }
    Ok(fetched)
}

/// Asks once more for what no node gave, by each method that a node serves: a node may have a fault
/// in one of them. Nodes that did not answer are not asked again.
fn ask_again(
    audits: &mut [Audit<'_>],
    nodes: &[Node],
    fetched: &mut Fetched,
) -> Result<(), FetchError> {
    let mut blocks = wanted(audits);
    blocks.extend(&fetched.without_roots);
    for block in refs(blocks).into_iter().take(MAX_AGAIN) {
        for (index, node) in nodes.iter().enumerate() {
            if !fetched.answering.contains(&index) {
                continue;
            }
            let (mut offered, mut silence) = (Ok(false), None);
            node.receipts_by_each_method(block, |method, receipts| {
                let from = From { index, node, method: Some(method) };
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
            // Another method may still have answered, but each further block would take as long.
            if let Some(error) = silence {
                fetched.answering.remove(&index);
                fetched.not_reached(node, block, error);
            }
        }
    }
    Ok(())
}

/// Tells what it will take, and refuses what is too much.
fn forecast(
    node: &Node,
    blocks: &BTreeMap<u64, B256>,
    chain: &HeaderChain,
    limit: u64,
) -> Result<(), FetchError> {
    if blocks.is_empty() {
        return Ok(());
    }
    let costs = blocks.keys().filter_map(|&number| chain.block(number));
    // A header may claim any gas.
    let bytes = costs.map(|block| forecast::json_bytes(&block));
    let bytes = bytes.fold(0, u64::saturating_add);
    let blocks = blocks.len() as u64;
    if blocks > limit {
        return Err(FetchError::TooManyReceipts { blocks, bytes, limit });
    }
    node.note(&Note::FetchesReceipts { blocks, bytes });
    Ok(())
}

/// Where receipts came from.
struct From<'a> {
    index: usize,
    node: &'a Node,
    method: Option<&'static str>,
}

/// Asks one node, and hands what it gives to each audit.
fn ask(
    audits: &mut [Audit<'_>],
    (index, node): (usize, &Node),
    blocks: &[BlockRef],
    fetched: &mut Fetched,
) -> Result<(), FetchError> {
    let from = From { index, node, method: None };
    let total = blocks.len() as u64;
    let mut failures = 0;
    let mut done = 0;
    // Ends early where the node is asked no more.
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
        Ok(()) | Err(None) => Ok(()),
    }
}

impl Fetched {
    /// Hands receipts to each audit; returns whether they are the block's.
    ///
    /// # Errors
    /// [`FetchError::TooMuch`].
    fn offer(
        &mut self,
        audits: &mut [Audit<'_>],
        from: &From<'_>,
        block: BlockRef,
        receipts: Option<BlockReceipts>,
    ) -> Result<bool, FetchError> {
        let Some(receipts) = receipts else {
            self.warn(from, block, "it has none".into());
            return Ok(false);
        };
        let (mut settled, mut lacks_roots) = (false, false);
        let mut rejected = None;
        for audit in &mut *audits {
            let event = Event::Receipts { block_hash: block.hash, receipts: &receipts };
            for action in audit.handle(event) {
                match action {
                    Action::Rejected { why, .. } => rejected = Some(why),
                    Action::Settled { verdict, .. } => {
                        let why = Verdict::Undecidable(Undecidable::PostStateMissing);
                        settled |= verdict != why;
                        lacks_roots |= verdict == why;
                    }
                    _ => {}
                }
            }
        }
        if let Some(why) = rejected {
            self.warn(from, block, why.to_string());
        }
        if lacks_roots {
            self.without_roots.insert(block.number, block.hash);
        }
        if settled {
            self.without_roots.remove(&block.number);
            self.from[from.index] += 1;
            if self.is_kept {
                self.held.add(from.node, "receipts", held::bytes_of_receipts(&receipts))?;
                self.kept.push((block.hash, receipts));
            }
        }
        let (held, counted) = &mut self.collected;
        let collected = audits.iter().flat_map(Audit::collected).skip(*counted);
        let (bytes, count) = collected
            .fold((0, 0), |(bytes, count), log| (held::bytes_of([&log.log]) + bytes, count + 1));
        *counted += count;
        held.add(from.node, "logs", bytes)?;
        Ok(settled)
    }

    /// Notes why receipts are missing: the first reason is kept.
    fn not_reached(&mut self, node: &Node, block: BlockRef, error: RpcError) {
        let what = format!("receipts of block {}", block.number);
        self.unreachable.get_or_insert_with(|| FetchError::rpc(node.name(), what, error));
    }

    /// Notes a warning, unless there are many already.
    fn warn(&mut self, from: &From<'_>, block: BlockRef, why: String) {
        if self.warnings.len() >= MAX_WARNINGS {
            self.unlisted += 1;
            return;
        }
        let (node, method) = (from.node.name(), from.method);
        self.warnings.push(Warning::Receipts { node, block: block.number, method, why });
    }
}

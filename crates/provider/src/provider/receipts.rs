//! Fetches the receipts of the blocks that filters cannot rule out, from a node whose receipts
//! match the header.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::Audit;
use chainsieve::eth::forecast;
use chainsieve::eth::header::{BlockRef, LinkedHeaders};
use chainsieve::eth::receipts::BlockReceipts;

use super::chain::{Held, bytes_of, bytes_of_receipts};
use crate::error::FetchError;
use crate::nodes::ask::{in_turn, index_of, once};
use crate::nodes::{Node, RpcError};
use crate::report::{Note, Stage, Warning};

/// Number of consecutive failed blocks after which a node is no longer asked.
const FAILURES: u32 = 3;
/// Maximum number of listed warnings about unusable receipts.
const MAX_WARNINGS: usize = 20;
/// Maximum number of blocks whose receipts are requested a second time, by every method of a node.
const MAX_AGAIN: usize = 32;

/// The receipts that audits needed, and their sources.
///
/// [`Provider::fetch_receipts`](crate::Provider::fetch_receipts) returns a value of this type.
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
pub(crate) fn fetch(
    nodes: &[Node],
    audits: &mut [Audit<'_>],
    chain: &LinkedHeaders,
    limit: u64,
    is_kept: bool,
) -> Result<FetchedReceipts, FetchError> {
    let blocks = wanted(audits);
    if let [node, ..] = nodes {
        forecast(node, &blocks, chain, limit)?;
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

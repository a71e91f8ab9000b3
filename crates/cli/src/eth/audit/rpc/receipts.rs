//! Receipts for the blocks that filters can't rule out, from whichever provider has authentic ones.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::bail;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::{Action, Audit, Event};
use chainsieve::eth::forecast;
use chainsieve::eth::header::HeaderChain;
use chainsieve::eth::receipts::BlockReceipts;

use crate::eth::rpc::{Provider, RpcError};
use crate::output::{bytes, count, grouped, print_note};
use crate::progress::Progress;

/// Blocks one after the other that a provider does not answer for before it is left alone.
const FAILURES: u32 = 3;
/// What is said of receipts that are not used.
const MAX_WARNINGS: usize = 20;
/// Blocks whose receipts are asked for once more, by every way that a provider serves.
const MAX_AGAIN: usize = 32;

/// What was fetched, and what is to be said of it.
#[derive(Default)]
pub(super) struct Fetched {
    /// Receipts that are the block's, if they are kept.
    pub(super) kept: Vec<(B256, BlockReceipts)>,
    pub(super) warnings: Vec<String>,
    /// Blocks whose receipts came from each provider.
    pub(super) from: Vec<u64>,
    /// The way to a provider failed, and some receipts are missing.
    pub(super) unreachable: Option<String>,
    /// Receipts are kept.
    keep: bool,
    /// Warnings that are not among those.
    unlisted: u64,
}

/// The blocks that any of the audits wants receipts of.
fn wanted(audits: &[Audit<'_>]) -> BTreeMap<u64, B256> {
    audits.iter().flat_map(Audit::open).map(|block| (block.number, block.hash)).collect()
}

/// Asks the providers for the receipts that the audits want, one after the other: what one gives
/// that is not the block's may come from the next.
pub(super) fn fetch(
    audits: &mut [Audit<'_>],
    chain: &HeaderChain,
    providers: &[Provider],
    most: u64,
    keep: bool,
) -> anyhow::Result<Fetched> {
    let blocks = wanted(audits);
    forecast(&blocks, chain, most)?;
    let mut fetched = Fetched { from: vec![0; providers.len()], keep, ..Fetched::default() };
    for provider in providers.iter().enumerate() {
        let blocks: Vec<(u64, B256)> = wanted(audits).into_iter().collect();
        if blocks.is_empty() {
            break;
        }
        ask(audits, provider, &blocks, &mut fetched)?;
    }
    if fetched.unreachable.is_none() {
        ask_again(audits, providers, &mut fetched);
    }
    if wanted(audits).is_empty() {
        fetched.unreachable = None;
    }
    if fetched.unlisted > 0 {
        let more = grouped(fetched.unlisted);
        fetched.warnings.push(format!("and {more} more about receipts that are not used"));
    }
    Ok(fetched)
}

/// Asks once more for what nobody gave, by each way that a provider serves: a node may have a
/// fault in one of them.
fn ask_again(audits: &mut [Audit<'_>], providers: &[Provider], fetched: &mut Fetched) {
    for (number, block_hash) in wanted(audits).into_iter().take(MAX_AGAIN) {
        for (index, provider) in providers.iter().enumerate() {
            let place = format!("{}, receipts of block {}", provider.name(), grouped(number));
            let mut settled = false;
            provider.receipts_each_way(number, block_hash, |way, receipts| {
                let place = format!("{place}, {way}");
                match receipts {
                    Ok(None) | Err(RpcError::MethodMissing { .. }) => {}
                    Ok(receipts) => {
                        settled = fetched.offer(audits, index, block_hash, receipts, &place);
                    }
                    Err(error) => fetched.warn(format!("{place}: {error}")),
                }
                settled
            });
            if settled {
                break;
            }
        }
    }
}

/// Says what it will take, and refuses what is too much.
fn forecast(blocks: &BTreeMap<u64, B256>, chain: &HeaderChain, most: u64) -> anyhow::Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let costs = blocks.keys().filter_map(|&number| chain.block(number));
    let size: u64 = costs.map(|block| forecast::of_block(&block).json_bytes()).sum();
    let what =
        format!("receipts of {}, about {}", count(blocks.len(), "block"), bytes(float(size)));
    if blocks.len() as u64 > most {
        bail!(
            "{what}: --max-receipts allows {}; narrow the query or its range, or allow more",
            count(usize::try_from(most).unwrap_or(usize::MAX), "block")
        );
    }
    print_note(&format!("fetching {what}"));
    Ok(())
}

/// A provider is not asked any more.
#[derive(Debug)]
struct LeftAlone;

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("left alone")
    }
}

impl std::error::Error for LeftAlone {}

/// Asks one provider, and hands what it gives to each audit.
fn ask(
    audits: &mut [Audit<'_>],
    (index, provider): (usize, &Provider),
    blocks: &[(u64, B256)],
    fetched: &mut Fetched,
) -> anyhow::Result<()> {
    let progress = Progress::counting(blocks.len() as u64, "blocks of receipts");
    let mut failures = 0;
    let mut done = 0;
    let asked = provider.receipts_of(blocks, |(number, block_hash), receipts| {
        done += 1;
        progress.at(done);
        let place = format!("{}, receipts of block {}", provider.name(), grouped(number));
        let error = match receipts {
            Ok(receipts) => {
                failures = 0;
                fetched.offer(audits, index, block_hash, receipts, &place);
                return Ok(());
            }
            Err(error) => error,
        };
        let text = format!("{place}: {error}");
        if error.origin().is_transient() || error == RpcError::Stopped {
            failures += 1;
            fetched.unreachable = Some(text.clone());
        }
        fetched.warn(text);
        if failures >= FAILURES { Err(LeftAlone.into()) } else { Ok(()) }
    });
    match asked {
        Err(error) if !error.is::<LeftAlone>() => Err(error),
        _ => Ok(()),
    }
}

impl Fetched {
    /// Hands receipts to each audit; whether they are the block's.
    fn offer(
        &mut self,
        audits: &mut [Audit<'_>],
        provider: usize,
        block_hash: B256,
        receipts: Option<BlockReceipts>,
        place: &str,
    ) -> bool {
        let Some(receipts) = receipts else {
            self.warn(format!("{place}: it has none"));
            return false;
        };
        let mut settled = false;
        let mut rejected = None;
        for audit in audits {
            for action in audit.handle(Event::Receipts { block_hash, receipts: &receipts }) {
                match action {
                    Action::Rejected { why, .. } => rejected = Some(why),
                    Action::Settled { .. } => settled = true,
                    _ => {}
                }
            }
        }
        if let Some(why) = rejected {
            self.warn(format!("{place}: {why}"));
        }
        if settled {
            self.from[provider] += 1;
            if self.keep {
                self.kept.push((block_hash, receipts));
            }
        }
        settled
    }

    /// Notes a warning, unless there are many already.
    fn warn(&mut self, text: String) {
        self.unlisted += u64::from(self.warnings.len() >= MAX_WARNINGS);
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(text);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

//! The scan of a whole block: which of its transactions concern a wallet, and why.
//!
//! A block shows what it creates, and names what it spends without showing the scripts. So the
//! outputs that are found are kept with the index of their script, and are seen spent in the same
//! block or any later one.
//!
//! The spend of an output that was never seen, paid before its script was watched, shows in the
//! compact filter and not for certain in the block. Where the input shows a key or script that
//! hashes to a watched one, the spend is reported as not certain; where it shows nothing, as
//! taproot's key path does, the block is no certain false positive: [`Outcome::NoneSeen`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bitcoin::{OutPoint, TxIn};

use super::coins::Coins;
use super::relevance::{Place, Relevance, RelevantTransaction, Spent, received};
use super::scripts::{Kind, Scripts};
use crate::btc::bip158::revealed::{any_candidate, wrapped_script};
use crate::btc::bip158::{BoundBlock, Witnesses};
use crate::btc::headers::BlockAt;

/// What a block holds for a wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockScan {
    /// The transactions that concern the wallet, in the order of the block.
    pub transactions: Vec<RelevantTransaction>,
    /// The number of inputs that show no watched script and may spend one all the same, of
    /// [`History::Unknown`](super::History::Unknown).
    pub open_inputs: usize,
    /// The number of outputs that are not kept since the limit is reached: their spends go unseen.
    pub over_limit: usize,
}

impl BlockScan {
    /// What the match of the block's filter came to.
    pub fn outcome(&self) -> Outcome {
        match (self.transactions.is_empty(), self.open_inputs) {
            (false, _) => Outcome::Relevant,
            (true, 0) => Outcome::FalsePositive,
            (true, _) => Outcome::NoneSeen,
        }
    }
}

/// What the match of a block's filter came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// At least one transaction is relevant, or seems so.
    Relevant,
    /// No transaction is relevant, for certain.
    FalsePositive,
    /// No transaction is seen to be relevant, and at least one input may spend an output of a
    /// watched script that the watch does not know.
    NoneSeen,
}

/// Finds what concerns the wallet in the block at `height`, and keeps the outputs found.
pub(super) fn scan(
    scripts: &Scripts,
    coins: &mut Coins,
    height: u32,
    block: &BoundBlock<'_>,
) -> BlockScan {
    let transactions = &block.block().txdata;
    let mut found = BlockScan { transactions: Vec::new(), open_inputs: 0, over_limit: 0 };
    // All outputs first, so that a spend in the same block finds its coin.
    let mut paid = Vec::new();
    for (tx, &txid) in transactions.iter().zip(block.txids()) {
        let received = received(scripts, tx);
        for output in &received {
            let outpoint = OutPoint { txid, vout: output.vout };
            let is_kept = coins.keep(outpoint, output.script, output.value, Some(height));
            found.over_limit += usize::from(!is_kept);
        }
        paid.push(received);
    }
    let in_block: BTreeSet<_> = block.txids().iter().collect();
    let block_at = BlockAt { height, hash: block.block_hash() };
    let by_index = (0_u32..).zip(transactions).zip(block.txids()).zip(paid);
    for (((index, tx), &txid), received) in by_index {
        let mut spent = Vec::new();
        // The coinbase spends nothing.
        for (vin, input) in (0..).zip(&tx.input).filter(|_| index > 0) {
            let outpoint = input.previous_output;
            if let Some(known) = coins.known(&outpoint) {
                coins.spend(&outpoint, height);
                spent.push(Spent { vin, outpoint, script: known.script, certain: true });
            } else if in_block.contains(&outpoint.txid) {
                // Its script is in the block, and is not a watched one.
            } else if let Some(script) = candidate(scripts, input) {
                spent.push(Spent { vin, outpoint, script: Some(script), certain: false });
            } else if may_spend(scripts, input, block.witnesses()) {
                found.open_inputs += 1;
            }
        }
        let relevance = Relevance { received, spent };
        if !relevance.is_empty() {
            let place = Some(Place { block: block_at, index });
            let transaction = tx.clone();
            found.transactions.push(RelevantTransaction { transaction, txid, place, relevance });
        }
    }
    found
}

/// A watched script whose key or script the input shows.
fn candidate(scripts: &Scripts, input: &TxIn) -> Option<usize> {
    let mut found = None;
    // A taproot candidate costs as much as a signature check, and one of complete history cannot
    // be spent without a known coin: it is worked out only for scripts of unknown history.
    any_candidate(input, scripts.has_unknown(Kind::OtherWitness), |script| {
        found = scripts.index_of(script);
        found.is_some()
    });
    found
}

/// Whether an input that shows no watched script may spend one of unknown history all the same.
fn may_spend(scripts: &Scripts, input: &TxIn, witnesses: Witnesses) -> bool {
    // Before segwit, and where witnesses were left out, the lack of one tells nothing.
    let is_committed = witnesses == Witnesses::Committed;
    if is_committed && !input.witness.is_empty() {
        return scripts.has_unknown(Kind::OtherWitness) && wrapped_script(input).is_none();
    }
    let may_be_native = !is_committed || input.script_sig.is_empty();
    scripts.has_unknown(Kind::Bare)
        || scripts.has_unknown(Kind::OtherWitness) && may_be_native
        || scripts.has_unknown(Kind::WitnessV0) && !is_committed
        || scripts.has_unknown(Kind::Hash) && !input.script_sig.is_push_only()
}

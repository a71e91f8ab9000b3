//! The outputs and inputs of transactions that concern a wallet, in a single transaction or in a
//! whole block.
//!
//! # Scan of a block
//! A block contains the scripts of the outputs that it creates, but not the scripts of the outputs
//! that it spends. The scan therefore keeps the outputs that it finds, with the index of their
//! script. The spend of such an output is then recognised in the same block or in any later block.
//!
//! The spend of an unknown output, which was created before its script was watched, matches the
//! compact filter, but the block alone does not prove the spend. If the input contains a key or
//! script that hashes to a watched script, the spend is reported as not certain. If the input
//! reveals nothing, as with the key path of taproot, the filter match may be a false positive or a
//! spend of an unknown output: [`Outcome::NoneSeen`].

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, Transaction, TxIn, Txid};

use super::items::{Coins, Kind, Label, Scripts};
use crate::btc::bip158::revealed::{any_candidate, wrapped_script};
use crate::btc::bip158::{BoundBlock, Witnesses};
use crate::btc::headers::BlockAt;
use crate::btc::names::names;
use crate::btc::script::pushes;

/// A transaction that concerns the wallet, found by the scan of a block or delivered by a BIP37
/// peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RelevantTransaction {
    /// The transaction. The witnesses are missing if BIP37 delivered the transaction, since a txid
    /// does not commit to witnesses.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::consensus"))]
    pub transaction: Transaction,
    /// Transaction id.
    pub txid: Txid,
    /// The block and the position in the block; `None` if the transaction is unconfirmed.
    pub place: Option<TxPosition>,
    /// The outputs and inputs that concern the wallet.
    pub relevance: Relevance,
}

/// The place of a transaction in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TxPosition {
    /// The block that contains the transaction.
    pub block: BlockAt,
    /// Position of the transaction in the block; 0 is the coinbase.
    pub index: u32,
}

/// The outputs and inputs of a transaction that concern a wallet. The outputs and inputs are found
/// by exact comparison, not by a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Relevance {
    /// Outputs that pay to the wallet, in ascending order of `vout`.
    pub received: Vec<Received>,
    /// Inputs that spend from the wallet, or seem to spend from it, in ascending order of `vin`.
    pub spent: Vec<Spent>,
}

impl Relevance {
    /// Returns `true` if no output and no input concerns the wallet.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty() && self.spent.is_empty()
    }
}

/// An output that pays to the wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Received {
    /// Index of the output in the transaction.
    pub vout: u32,
    /// Amount of the output.
    pub value: Amount,
    /// Index of the script in the watch.
    pub script: usize,
    /// Label of the script, if the caller gave one.
    pub label: Option<Label>,
}

/// An input that spends from the wallet, or seems to spend from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Spent {
    /// Index of the input in the transaction.
    pub vin: u32,
    /// The output that the input spends.
    pub outpoint: OutPoint,
    /// Index of the script of the spent output, if it is known. If the spend is not certain, this
    /// is the index of the script that the output seems to have.
    pub script: Option<usize>,
    /// `true` if the output is known to belong to the wallet. `false` if the input only contains a
    /// key or script of the wallet: anyone who knows the key or script can put it into an input.
    pub certain: bool,
}

/// Returns the outputs of `tx` that pay to a watched script.
pub(super) fn received(scripts: &Scripts, tx: &Transaction) -> Vec<Received> {
    let outputs = (0..).zip(&tx.output);
    let received = outputs.filter_map(|(vout, output)| {
        let script = scripts.index_of(&output.script_pubkey)?;
        let label = scripts.get(script)?.label;
        Some(Received { vout, value: output.value, script, label })
    });
    received.collect()
}

/// Returns the outputs and inputs of a transaction that concern the wallet. This function is for a
/// single transaction that is not part of a block scan.
pub(super) fn relevance(scripts: &Scripts, coins: &Coins, tx: &Transaction) -> Relevance {
    let inputs = (0..).zip(&tx.input);
    let spent = inputs.filter_map(|(vin, input)| {
        let outpoint = input.previous_output;
        if let Some(known) = coins.known(&outpoint) {
            return Some(Spent { vin, outpoint, script: known.script, certain: true });
        }
        // A P2PKH spend contains the key itself. Scripts that hash to a watched script are not
        // tried: a node that filters by BIP37 does not match them, so it does not send such a
        // spend.
        let script =
            pushes(input.script_sig.as_bytes()).find_map(|data| scripts.index_of_key(data))?;
        Some(Spent { vin, outpoint, script: Some(script), certain: false })
    });
    Relevance { received: received(scripts, tx), spent: spent.collect() }
}

/// Result of the scan of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BlockScan {
    /// Transactions that concern the wallet, in the order of the block.
    pub transactions: Vec<RelevantTransaction>,
    /// Number of inputs that reveal no watched script, but may spend a watched script with
    /// [`History::Unknown`](super::History::Unknown).
    pub open_inputs: usize,
    /// Number of outputs that were not kept because the limit is reached, so that their spends will
    /// not be detected.
    pub over_limit: usize,
}

impl BlockScan {
    /// Returns the result of the filter match that led to this scan.
    pub fn outcome(&self) -> Outcome {
        match (self.transactions.is_empty(), self.open_inputs) {
            (false, _) => Outcome::Relevant,
            (true, 0) => Outcome::FalsePositive,
            (true, _) => Outcome::NoneSeen,
        }
    }
}

/// Result of a filter match, after the scan of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// At least one transaction is relevant, or seems to be.
    Relevant,
    /// Certainly no transaction is relevant.
    FalsePositive,
    /// No transaction is recognised as relevant, but at least one input may spend an unknown output
    /// of a watched script.
    NoneSeen,
}

names! {
    Outcome, "an outcome":
    Relevant = "relevant",
    FalsePositive = "false_positive",
    NoneSeen = "none_seen",
}

/// Scans the block at `height` for the wallet, and keeps the outputs found.
pub(super) fn scan(
    scripts: &Scripts,
    coins: &mut Coins,
    height: u32,
    block: &BoundBlock<'_>,
) -> BlockScan {
    let transactions = &block.block().txdata;
    let mut found = BlockScan { transactions: Vec::new(), open_inputs: 0, over_limit: 0 };
    // Collect all outputs first, so that a spend in the same block finds its coin.
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
        // The coinbase spends no output.
        for (vin, input) in (0..).zip(&tx.input).filter(|_| index > 0) {
            let outpoint = input.previous_output;
            if let Some(known) = coins.known(&outpoint) {
                coins.spend(&outpoint, height);
                spent.push(Spent { vin, outpoint, script: known.script, certain: true });
            } else if in_block.contains(&outpoint.txid) {
                // The output was created in this block and does not pay to a watched script.
            } else if let Some(script) = candidate(scripts, input) {
                spent.push(Spent { vin, outpoint, script: Some(script), certain: false });
            } else if may_spend(scripts, input, block.witnesses()) {
                found.open_inputs += 1;
            }
        }
        let relevance = Relevance { received, spent };
        if !relevance.is_empty() {
            let place = Some(TxPosition { block: block_at, index });
            let transaction = tx.clone();
            found.transactions.push(RelevantTransaction { transaction, txid, place, relevance });
        }
    }
    found
}

/// Returns the index of a watched script whose key or script the input reveals.
fn candidate(scripts: &Scripts, input: &TxIn) -> Option<usize> {
    let mut found = None;
    // Computing a taproot candidate costs as much as a signature check. A script of complete
    // history can only be spent through a known coin. Taproot candidates are therefore computed
    // only if a taproot script of unknown history is watched.
    any_candidate(input, scripts.has_unknown(Kind::OtherWitness), |script| {
        found = scripts.index_of(script);
        found.is_some()
    });
    found
}

/// Returns `true` if an input that reveals no watched script may still spend a watched script of
/// unknown history.
fn may_spend(scripts: &Scripts, input: &TxIn, witnesses: Witnesses) -> bool {
    // If the block does not commit to witnesses (before segwit) or has lost them, a missing witness
    // proves nothing.
    let is_committed = witnesses == Witnesses::Committed;
    // In an input with a witness, only a spend of taproot or of a later witness version can hide
    // its script. A wrapped script would be revealed by the input.
    if is_committed && !input.witness.is_empty() {
        return scripts.has_unknown(Kind::OtherWitness) && wrapped_script(input).is_none();
    }
    // The spend of a native witness program has an empty scriptSig (BIP141).
    let may_be_native = !is_committed || input.script_sig.is_empty();
    // A script can stay hidden only if the input has the form in which this kind of script is
    // spent.
    scripts.has_unknown(Kind::Bare)
        || scripts.has_unknown(Kind::OtherWitness) && may_be_native
        || scripts.has_unknown(Kind::WitnessV0) && !is_committed
        || scripts.has_unknown(Kind::Hash) && !input.script_sig.is_push_only()
}

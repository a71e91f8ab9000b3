//! The outputs and inputs of a transaction that concern a wallet.

use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, Transaction, Txid};

use super::coins::Coins;
use super::scripts::{Label, Scripts};
use crate::btc::headers::BlockAt;
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
    pub place: Option<Place>,
    /// The outputs and inputs that concern the wallet.
    pub relevance: Relevance,
}

/// The place of a transaction in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
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
        let label = scripts.get(script)?.label();
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

//! What of one transaction is the wallet's.

use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, Transaction, Txid};

use super::coins::Coins;
use super::scripts::{Label, Scripts};
use crate::btc::headers::BlockAt;
use crate::btc::script::pushes;

/// A transaction that concerns the wallet, whether a block was scanned or a peer filtered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelevantTransaction {
    /// The transaction. From BIP37 it has no witnesses: no id commits to them there.
    pub transaction: Transaction,
    /// The transaction's id.
    pub txid: Txid,
    /// The block and the position in it; `None` while unconfirmed.
    pub place: Option<Place>,
    /// What of it is the wallet's.
    pub relevance: Relevance,
}

/// The place of a transaction in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The block.
    pub block: BlockAt,
    /// The position of the transaction in the block: 0 is the coinbase.
    pub index: u32,
}

/// What of a transaction is the wallet's, compared exactly, without a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relevance {
    /// The outputs that pay to the wallet, in their order.
    pub received: Vec<Received>,
    /// The inputs that spend from the wallet, or seem to, in their order.
    pub spent: Vec<Spent>,
}

impl Relevance {
    /// Whether nothing of the transaction is the wallet's.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty() && self.spent.is_empty()
    }
}

/// An output that pays to the wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The position of the output.
    pub vout: u32,
    /// Its value.
    pub value: Amount,
    /// The index of its script.
    pub script: usize,
    /// The script's place in the wallet, if the caller gave one.
    pub label: Option<Label>,
}

/// An input that spends from the wallet, or seems to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// The position of the input.
    pub vin: u32,
    /// The output that it spends.
    pub outpoint: OutPoint,
    /// The index of the output's script, if that is known; of the script that it seems to have,
    /// if the spend is not certain.
    pub script: Option<usize>,
    /// Whether the output is known to be the wallet's. Otherwise the input shows one of the
    /// wallet's keys or scripts, which anyone who knows the key or script can do.
    pub certain: bool,
}

/// The outputs of `tx` that pay to a watched script.
pub(super) fn received(scripts: &Scripts, tx: &Transaction) -> Vec<Received> {
    let outputs = (0..).zip(&tx.output);
    let received = outputs.filter_map(|(vout, output)| {
        let script = scripts.index_of(&output.script_pubkey)?;
        let label = scripts.get(script)?.label();
        Some(Received { vout, value: output.value, script, label })
    });
    received.collect()
}

/// What of a transaction that came alone is the wallet's.
pub(super) fn relevance(scripts: &Scripts, coins: &Coins, tx: &Transaction) -> Relevance {
    let inputs = (0..).zip(&tx.input);
    let spent = inputs.filter_map(|(vin, input)| {
        let outpoint = input.previous_output;
        if let Some(known) = coins.known(&outpoint) {
            return Some(Spent { vin, outpoint, script: known.script, certain: true });
        }
        // P2PKH shows the key itself. Hashes that an input shows are not tried: a node that
        // filters does not match them, so such a spend does not come.
        let script =
            pushes(input.script_sig.as_bytes()).find_map(|data| scripts.index_of_key(data))?;
        Some(Spent { vin, outpoint, script: Some(script), certain: false })
    });
    Relevance { received: received(scripts, tx), spent: spent.collect() }
}

//! The elements of a filter as far as they are known, and what follows for their number.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bitcoin::{OutPoint, ScriptBuf, Transaction, TxIn, Txid};

use super::Prevouts;
use super::inclusion::strip;
use crate::btc::bip158::block_filter::is_output_element;
use crate::btc::bip158::gcs::{self, GcsFilter};
use crate::btc::bip158::revealed::wrapped_script;
use crate::btc::bip158::{BoundBlock, Witnesses};

/// The script of a spent output, and how it is known.
#[derive(Debug, Clone)]
pub(super) enum Script<'a> {
    /// From the transaction that created it, whose id the input names.
    Of(&'a Transaction, &'a [u8]),
    /// By consensus: a witness program in P2SH.
    Wrapped(ScriptBuf),
    /// On trust.
    Trusted(ScriptBuf),
    /// Not known.
    Unknown,
}

impl Script<'_> {
    /// The script; nothing of an unknown one.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Of(_, script) => script,
            Self::Wrapped(script) | Self::Trusted(script) => script.as_bytes(),
            Self::Unknown => &[],
        }
    }

    /// Whether anyone can be shown that this is the script.
    pub(super) fn is_proven(&self) -> bool {
        matches!(self, Self::Of(..) | Self::Wrapped(_))
    }

    pub(super) fn is_trusted(&self) -> bool {
        matches!(self, Self::Trusted(_))
    }

    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }
}

/// An input and the script that it spends.
#[derive(Debug)]
pub(super) struct KnownInput<'a> {
    /// The position of the transaction in the block.
    pub(super) index: u32,
    /// The position of the input in the transaction.
    pub(super) vin: u32,
    pub(super) outpoint: OutPoint,
    pub(super) input: &'a TxIn,
    pub(super) script: Script<'a>,
}

type TrustedScripts<'a> = dyn Fn(&OutPoint) -> Option<ScriptBuf> + 'a;

/// Where scripts of spent outputs come from.
pub(super) struct Sources<'a> {
    /// By id: the transactions of the block, and those shown.
    transactions: BTreeMap<Txid, &'a Transaction>,
    /// The ids of those shown and not in the block.
    shown: BTreeSet<Txid>,
    trusted: Option<&'a TrustedScripts<'a>>,
    has_witnesses: bool,
}

impl<'a> Sources<'a> {
    pub(super) fn new(block: &BoundBlock<'a>, prevouts: Prevouts<'a>) -> Self {
        let in_block = block.txids().iter().copied().zip(&block.block().txdata);
        let mut transactions: BTreeMap<_, _> = in_block.collect();
        let mut shown = BTreeSet::new();
        let mut trusted = None;
        match prevouts {
            Prevouts::None => {}
            Prevouts::Trusted(scripts) => trusted = Some(scripts),
            Prevouts::ByTransactions(previous) => {
                for tx in previous {
                    let txid = tx.compute_txid();
                    transactions.entry(txid).or_insert_with(|| {
                        shown.insert(txid);
                        tx
                    });
                }
            }
        }
        let has_witnesses = block.witnesses() == Witnesses::Committed;
        Self { transactions, shown, trusted, has_witnesses }
    }

    fn script(&self, input: &TxIn) -> Script<'a> {
        let outpoint = &input.previous_output;
        let created = self.transactions.get(&outpoint.txid);
        if let Some(tx) = created
            && let Some(output) = tx.output.get(outpoint.vout as usize)
        {
            return Script::Of(tx, output.script_pubkey.as_bytes());
        }
        let wrapped = self.has_witnesses.then(|| wrapped_script(input)).flatten();
        if let Some(script) = wrapped {
            return Script::Wrapped(script);
        }
        let trusted = self.trusted.and_then(|scripts| scripts(outpoint));
        trusted.map_or(Script::Unknown, Script::Trusted)
    }

    /// The transactions shown that `inputs` spend outputs of, each once, without witness.
    pub(super) fn shown_and_spent(&self, inputs: &[KnownInput<'_>]) -> Vec<Transaction> {
        let spent: BTreeSet<_> = inputs.iter().map(|input| input.outpoint.txid).collect();
        let shown = spent.intersection(&self.shown).filter_map(|txid| self.transactions.get(txid));
        shown.map(|tx| strip((*tx).clone())).collect()
    }
}

/// What is known of each input but the coinbase's.
pub(super) fn known_inputs<'a>(
    block: &BoundBlock<'a>,
    sources: &Sources<'a>,
) -> Vec<KnownInput<'a>> {
    let inputs = block.spending_inputs().map(|(index, vin, input)| KnownInput {
        index,
        vin,
        outpoint: input.previous_output,
        input,
        script: sources.script(input),
    });
    inputs.collect()
}

/// The outputs of a transaction; `None` for those that are no element.
pub(super) fn output_elements(tx: &Transaction) -> impl Iterator<Item = Option<&[u8]>> {
    tx.output.iter().map(|output| {
        Some(output.script_pubkey.as_bytes()).filter(|script| is_output_element(script))
    })
}

/// Whether the filter can be that of the block by its number of elements, and, if all scripts of
/// spent outputs are known, whether it is, by its bytes. Scripts that are not known may be any.
pub(super) fn is_consistent(
    block: &BoundBlock<'_>,
    set: &GcsFilter<'_>,
    filter: &[u8],
    inputs: &[KnownInput<'_>],
    with_trusted: bool,
) -> bool {
    let scripts = inputs.iter().map(|input| &input.script);
    let known = scripts.filter(|script| script.is_proven() || with_trusted && script.is_known());
    let known: Vec<_> = known.map(Script::bytes).collect();
    let unknown = inputs.len() - known.len();
    let elements = distinct(block, &known);
    let count = set.num_elements() as usize;
    if !(elements.len()..=elements.len() + unknown).contains(&count) {
        return false;
    }
    // No block has more elements than a filter can hold.
    unknown > 0 || gcs::encode(set.params(), set.key(), elements).as_deref() == Ok(filter)
}

/// The different elements that the block's outputs and `spent` make.
pub(super) fn distinct<'s>(block: &BoundBlock<'s>, spent: &[&'s [u8]]) -> BTreeSet<&'s [u8]> {
    let created = block.block().txdata.iter().flat_map(output_elements).flatten();
    created.chain(spent.iter().copied().filter(|script| !script.is_empty())).collect()
}

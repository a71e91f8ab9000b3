//! The known elements of a filter, and the bounds that they imply for the number of elements.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bitcoin::{OutPoint, ScriptBuf, Transaction, TxIn, Txid};

use super::Prevouts;
use super::inclusion::strip;
use crate::btc::bip158::block_filter::is_output_element;
use crate::btc::bip158::gcs::{self, GcsFilter};
use crate::btc::bip158::revealed::wrapped_script;
use crate::btc::bip158::{BoundBlock, Witnesses};

/// The script of a spent output, with its source.
#[derive(Debug, Clone)]
pub(super) enum Script<'a> {
    /// The script is in the transaction that created the output, whose id the input names.
    Of(&'a Transaction, &'a [u8]),
    /// The script follows from consensus: a witness program in P2SH.
    Wrapped(ScriptBuf),
    /// The script comes from a trusted source.
    Trusted(ScriptBuf),
    /// The script is unknown.
    Unknown,
}

impl Script<'_> {
    /// Returns the bytes of the script, or no bytes if the script is unknown.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Of(_, script) => script,
            Self::Wrapped(script) | Self::Trusted(script) => script.as_bytes(),
            Self::Unknown => &[],
        }
    }

    /// Returns `true` if the script can be proven to anyone.
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

/// An input, with the known facts about the script that it spends.
#[derive(Debug)]
pub(super) struct KnownInput<'a> {
    /// The index of the transaction in the block.
    pub(super) index: u32,
    /// The index of the input in the transaction.
    pub(super) vin: u32,
    pub(super) outpoint: OutPoint,
    pub(super) input: &'a TxIn,
    pub(super) script: Script<'a>,
}

type TrustedScripts<'a> = dyn Fn(&OutPoint) -> Option<ScriptBuf> + 'a;

/// The transactions and other data that show the scripts of spent outputs.
pub(super) struct Sources<'a> {
    /// The transactions of the block and those given by the caller, by id.
    transactions: BTreeMap<Txid, &'a Transaction>,
    /// The ids of the given transactions that are not in the block.
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
        // The strongest source is tried first: a script that is proven by the id of its
        // transaction, then by consensus, then a trusted one.
        if let Some(tx) = created
            && let Some(output) = tx.output.get(outpoint.vout as usize)
        {
            return Script::Of(tx, output.script_pubkey.as_bytes());
        }
        // Without the witness commitment, the sender may have made up the witness.
        let wrapped = self.has_witnesses.then(|| wrapped_script(input)).flatten();
        if let Some(script) = wrapped {
            return Script::Wrapped(script);
        }
        let trusted = self.trusted.and_then(|scripts| scripts(outpoint));
        trusted.map_or(Script::Unknown, Script::Trusted)
    }

    /// Returns the given transactions that `inputs` spend from, each once, without witnesses.
    pub(super) fn shown_and_spent(&self, inputs: &[KnownInput<'_>]) -> Vec<Transaction> {
        let spent: BTreeSet<_> = inputs.iter().map(|input| input.outpoint.txid).collect();
        let shown = spent.intersection(&self.shown).filter_map(|txid| self.transactions.get(txid));
        shown.map(|tx| strip((*tx).clone())).collect()
    }
}

/// Returns each input except the coinbase input, with the known facts about the script that it
/// spends.
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

/// Iterates over the output scripts of a transaction, with `None` for those that are not elements.
pub(super) fn output_elements(tx: &Transaction) -> impl Iterator<Item = Option<&[u8]>> {
    tx.output.iter().map(|output| {
        Some(output.script_pubkey.as_bytes()).filter(|script| is_output_element(script))
    })
}

/// Returns `true` if the filter can be that of the block.
///
/// Checks the number of elements; if all spent scripts are known, checks the bytes too. An unknown
/// script may be any script. If `with_trusted` is `true`, scripts from a trusted source are used
/// too.
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
    // Each unknown script adds at most one element: it adds none if it is empty or equal to a known
    // script.
    if !(elements.len()..=elements.len() + unknown).contains(&count) {
        return false;
    }
    // Encoding cannot fail: no block has more elements than a filter can contain.
    unknown > 0 || gcs::encode(set.params(), set.key(), elements).as_deref() == Ok(filter)
}

/// Returns the distinct elements among the block's outputs and the `spent` scripts.
pub(super) fn distinct<'s>(block: &BoundBlock<'s>, spent: &[&'s [u8]]) -> BTreeSet<&'s [u8]> {
    let created = block.block().txdata.iter().flat_map(output_elements).flatten();
    created.chain(spent.iter().copied().filter(|script| !script.is_empty())).collect()
}

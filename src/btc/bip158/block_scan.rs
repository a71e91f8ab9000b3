//! After a hit: which transactions of the block concern a wallet, and why.
//!
//! A block shows what it creates, and names what it spends without showing the scripts. So a
//! [`Watch`] keeps the outputs that it finds, with the index of their script, and sees them spent
//! in the same block or any later one.
//!
//! The spend of an output that it never saw, paid before it looked for the script, shows in the
//! filter and not for certain in the block. Where the input gives away a key or script that hashes
//! to a watched one, the reason is [`LooksSpent`](Reason::LooksSpent); where it gives nothing
//! away, as taproot's key path does, the block is no certain false positive:
//! [`NoneSeen`](Outcome::NoneSeen).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, Script, ScriptBuf, Transaction, TxIn, Txid};

use super::revealed::{any_candidate, wrapped_script};
use super::{BoundBlock, Witnesses};

/// Scripts and outputs that are looked for in blocks.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::ScriptBuf;
/// use chainsieve::btc::bip158::BoundBlock;
/// use chainsieve::btc::bip158::block_scan::{History, Outcome, Watch};
/// /// Prints what a block, fetched because its filter matched, holds for a wallet.
/// fn after_hit(watch: &mut Watch, height: u32, block: &BoundBlock<'_>) {
///     let scan = watch.scan(height, block);
///     for tx in &scan.transactions {
///         println!("{}: {:?}", tx.txid, tx.reasons);
///     }
///     if scan.outcome() == Outcome::FalsePositive {
///         println!("nothing at {height}");
///     }
/// }
/// let mut watch = Watch::new();
/// assert_eq!(watch.add_script(ScriptBuf::from_bytes(vec![0x51]), History::Complete), 0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// By script: its index.
    indices: BTreeMap<ScriptBuf, usize>,
    /// By index.
    histories: Vec<(Kind, History)>,
    outputs: BTreeMap<OutPoint, WatchedOutput>,
}

/// What is known of a script's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Every output that ever paid to it is known to the watch, or is in a block that will be
    /// shown to it, and not after one that spends it: the script is new, or the scan starts before
    /// its first use.
    Complete,
    /// It may have been paid to in a block that the watch is not shown.
    Unknown,
}

/// An output that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedOutput {
    /// The index of its script.
    pub script: usize,
    /// What it is worth, if a block showed it.
    pub value: Option<Amount>,
    /// The height of the block that created it, if one was shown.
    pub created: Option<u32>,
    /// The height of the block that spent it, if one was shown.
    pub spent: Option<u32>,
    /// Whether it was added by hand, so that it stays whatever blocks are rewound.
    pub is_given: bool,
}

impl Watch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for `script` from now on, and returns its index: the number of different scripts
    /// before it. One that is there keeps its index; its history is complete once it was said to
    /// be.
    pub fn add_script(&mut self, script: ScriptBuf, history: History) -> usize {
        let kind = Kind::of(&script);
        let next = self.histories.len();
        let index = *self.indices.entry(script).or_insert(next);
        match self.histories.get_mut(index) {
            Some((_, known)) if history == History::Complete => *known = history,
            Some(_) => {}
            None => self.histories.push((kind, history)),
        }
        index
    }

    /// Looks for a spend of `outpoint`, which pays to `script`, as Lightning watches its channels.
    /// The script is looked for too; its index is returned.
    pub fn add_outpoint(&mut self, outpoint: OutPoint, script: ScriptBuf) -> usize {
        let script = self.add_script(script, History::Unknown);
        let new = WatchedOutput { script, value: None, created: None, spent: None, is_given: true };
        self.outputs.entry(outpoint).or_insert(new).is_given = true;
        script
    }

    /// The number of different scripts.
    pub fn num_scripts(&self) -> usize {
        self.histories.len()
    }

    /// The outputs added and found, spent ones included, in the order of their outpoints.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = (&OutPoint, &WatchedOutput)> {
        self.outputs.iter()
    }

    /// What is known of an output; `None` if it is not looked for.
    pub fn output(&self, outpoint: &OutPoint) -> Option<&WatchedOutput> {
        self.outputs.get(outpoint)
    }

    /// Finds what concerns the watch in the block at `height`, and keeps the outputs found.
    ///
    /// Blocks are to be shown in the order of the chain: one that spends an output before the
    /// output is found shows less, and the output stays unspent. The same block may be scanned
    /// again, after scripts were added: it gives what it gave, and what is new.
    ///
    /// # Cost
    /// A look-up for each output and input, and the hashes of what inputs give away; for a taproot
    /// script of [`History::Unknown`], as much as a signature check for each taproot script path.
    pub fn scan(&mut self, height: u32, block: &BoundBlock<'_>) -> BlockScan {
        let transactions = &block.block().txdata;
        let created: Vec<_> = (0..transactions.len())
            .map(|at| self.find_created(height, block.txids()[at], &transactions[at]))
            .collect();
        let in_block: BTreeSet<_> = block.txids().iter().collect();
        let open = OpenKinds::of(&self.histories);
        let mut scan = BlockScan { transactions: Vec::new(), open_inputs: 0 };
        for (index, mut reasons) in (0_u32..).zip(created) {
            let tx = &transactions[index as usize];
            for (vin, input) in (0..).zip(&tx.input).filter(|_| index > 0) {
                let outpoint = input.previous_output;
                if let Some(output) = self.outputs.get_mut(&outpoint) {
                    output.spent = Some(height);
                    reasons.push(Reason::Spent { vin, outpoint, script: output.script });
                } else if in_block.contains(&outpoint.txid) {
                    // Its script is in the block, and is not one that is looked for.
                } else if let Some(script) = self.candidate(input, open) {
                    reasons.push(Reason::LooksSpent { vin, outpoint, script });
                } else if open.may_spend(input, block.witnesses()) {
                    scan.open_inputs += 1;
                }
            }
            if !reasons.is_empty() {
                let txid = block.txids()[index as usize];
                scan.transactions.push(RelevantTransaction { index, txid, reasons });
            }
        }
        scan
    }

    fn find_created(&mut self, height: u32, txid: Txid, tx: &Transaction) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (vout, output) in (0..).zip(&tx.output) {
            let Some(&script) = self.indices.get(&*output.script_pubkey) else { continue };
            let value = output.value;
            let found = WatchedOutput {
                script,
                value: Some(value),
                created: Some(height),
                spent: None,
                is_given: false,
            };
            let kept = self.outputs.entry(OutPoint { txid, vout }).or_insert(found);
            (kept.value, kept.created) = (found.value, found.created);
            reasons.push(Reason::Created { vout, script, value });
        }
        reasons
    }

    /// A watched script that the input gives away the key or script of.
    fn candidate(&self, input: &TxIn, open: OpenKinds) -> Option<usize> {
        let mut found = None;
        any_candidate(input, open.has(Kind::OtherWitness), |script| {
            found = self.indices.get(script).copied();
            found.is_some()
        });
        found
    }

    /// Goes back to what was known when `height` was the last block, after a reorganisation:
    /// outputs that blocks above it created are forgotten, but for those added by hand, and those
    /// that they spent are unspent.
    pub fn rewind(&mut self, height: u32) {
        let is_above = |at: Option<u32>| at.is_some_and(|at| at > height);
        self.outputs.retain(|_, output| output.is_given || !is_above(output.created));
        for output in self.outputs.values_mut() {
            if is_above(output.created) {
                (output.created, output.value) = (None, None);
            }
            if is_above(output.spent) {
                output.spent = None;
            }
        }
    }

    /// Forgets outputs that were spent in blocks up to `height`, which are too deep to be rewound.
    /// The blocks that created and spent them are not to be scanned again: the outputs would come
    /// up as unspent, and the spends not at all.
    pub fn forget_spent(&mut self, height: u32) {
        self.outputs.retain(|_, output| output.spent.is_none_or(|spent| spent > height));
    }
}

/// How the spend of a script shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// P2PKH or P2SH: the last push hashes to it.
    Hash,
    /// P2WPKH or P2WSH: the last item of the witness hashes to it.
    WitnessV0,
    /// Taproot or a later witness program: it may not show at all.
    OtherWitness,
    /// Anything else: it does not show.
    Bare,
}

impl Kind {
    fn of(script: &Script) -> Self {
        if script.is_p2pkh() || script.is_p2sh() {
            Self::Hash
        } else if script.is_p2wpkh() || script.is_p2wsh() {
            Self::WitnessV0
        } else if script.is_witness_program() {
            Self::OtherWitness
        } else {
            Self::Bare
        }
    }
}

/// Whether there are scripts of unknown history, by kind.
#[derive(Debug, Clone, Copy)]
struct OpenKinds([bool; 4]);

impl OpenKinds {
    fn of(histories: &[(Kind, History)]) -> Self {
        let kinds = [Kind::Hash, Kind::WitnessV0, Kind::OtherWitness, Kind::Bare];
        Self(kinds.map(|kind| histories.contains(&(kind, History::Unknown))))
    }

    fn has(self, kind: Kind) -> bool {
        self.0[kind as usize]
    }

    /// Whether an input that shows no watched script may spend one all the same.
    fn may_spend(self, input: &TxIn, witnesses: Witnesses) -> bool {
        // Before segwit, and where witnesses were left away, the lack of one says nothing.
        let is_committed = witnesses == Witnesses::Committed;
        if is_committed && !input.witness.is_empty() {
            return self.has(Kind::OtherWitness) && wrapped_script(input).is_none();
        }
        let may_be_native = !is_committed || input.script_sig.is_empty();
        self.has(Kind::Bare)
            || self.has(Kind::OtherWitness) && may_be_native
            || self.has(Kind::WitnessV0) && !is_committed
            || self.has(Kind::Hash) && !input.script_sig.is_push_only()
    }
}

/// What a block holds for a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockScan {
    /// The transactions, in the order of the block.
    pub transactions: Vec<RelevantTransaction>,
    /// The inputs that show no watched script and may spend one all the same, of
    /// [`History::Unknown`].
    pub open_inputs: usize,
}

impl BlockScan {
    /// What the hit came to.
    pub fn outcome(&self) -> Outcome {
        match (self.transactions.is_empty(), self.open_inputs) {
            (false, _) => Outcome::Relevant,
            (true, 0) => Outcome::FalsePositive,
            (true, _) => Outcome::NoneSeen,
        }
    }
}

/// What a hit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// At least one transaction is relevant, or looks so.
    Relevant,
    /// None is, for certain.
    FalsePositive,
    /// None is seen, and at least one input may spend an output of a watched script that the watch
    /// does not know.
    NoneSeen,
}

/// A transaction and why it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelevantTransaction {
    /// Its position in the block.
    pub index: u32,
    /// Its id.
    pub txid: Txid,
    /// Why it matters: outputs first, then inputs, each in order.
    pub reasons: Vec<Reason>,
}

/// Why a transaction matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// An output pays to a watched script.
    Created {
        /// The position of the output.
        vout: u32,
        /// The index of the script.
        script: usize,
        /// What it is worth.
        value: Amount,
    },
    /// An input spends a watched output.
    Spent {
        /// The position of the input.
        vin: u32,
        /// The output.
        outpoint: OutPoint,
        /// The index of the output's script.
        script: usize,
    },
    /// An input gives away what hashes to a watched script, and spends an output that is not
    /// known.
    LooksSpent {
        /// The position of the input.
        vin: u32,
        /// The output.
        outpoint: OutPoint,
        /// The index of the script that it seems to have.
        script: usize,
    },
}

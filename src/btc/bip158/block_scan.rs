//! After a hit: which transactions of the block concern a wallet, and why.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bitcoin::{Amount, OutPoint, ScriptBuf, Txid};

use super::BoundBlock;

/// Scripts and outputs that are looked for in blocks.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    scripts: BTreeMap<ScriptBuf, usize>,
}

/// What is known of a script's past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// Every output that pays to it is known to the watch, or will be shown to it.
    Complete,
    /// It may have been paid to in a block that the watch was not shown.
    Unknown,
}

impl Watch {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks for `script` from now on, and returns its index: the number of scripts before it.
    pub fn add_script(&mut self, script: ScriptBuf, _history: History) -> usize {
        let next = self.scripts.len();
        *self.scripts.entry(script).or_insert(next)
    }

    /// Looks for a spend of `outpoint`, which pays to `script`. The script is looked for too.
    pub fn add_outpoint(&mut self, _outpoint: OutPoint, script: ScriptBuf) -> usize {
        self.add_script(script, History::Unknown)
    }

    /// Finds what concerns the watch in the block at `height`, and keeps the outputs found.
    pub fn scan(&mut self, _height: u32, _block: &BoundBlock<'_>) -> BlockScan {
        BlockScan { transactions: Vec::new(), outcome: Outcome::FalsePositive }
    }

    /// Forgets what blocks above `height` have shown.
    pub fn rewind(&mut self, _height: u32) {}
}

/// What a block holds for a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockScan {
    /// The transactions, in the order of the block.
    pub transactions: Vec<RelevantTransaction>,
    /// What that comes to.
    pub outcome: Outcome,
}

/// What a hit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// At least one transaction is relevant.
    Relevant,
    /// None is.
    FalsePositive,
    /// None is seen; but some inputs may spend outputs of watched scripts that the watch does not
    /// know.
    NoneSeen {
        /// The number of such inputs.
        inputs: u32,
    },
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
    /// An input shows what hashes to a watched script, and spends an output that is not known.
    LooksSpent {
        /// The position of the input.
        vin: u32,
        /// The output.
        outpoint: OutPoint,
        /// The index of the script that it seems to have.
        script: usize,
    },
}

//! Events of watched scripts, computed from a node's blocks by a direct search: the script of every
//! output and the outpoint of every input is looked up.

use std::collections::{BTreeSet, HashSet};

use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Txid};

/// A payment to a watched script, or a spend of a watched coin.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Move {
    /// This output pays to a watched script.
    Paid { vout: u32 },
    /// This input spends a watched coin.
    Spent { vin: u32 },
}

/// A payment or spend, with its block and transaction.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Event {
    pub(crate) height: u32,
    pub(crate) block: BlockHash,
    pub(crate) txid: Txid,
    pub(crate) what: Move,
}

/// Events of watched scripts and outpoints, collected block by block.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    scripts: HashSet<ScriptBuf>,
    coins: HashSet<OutPoint>,
    events: BTreeSet<Event>,
}

impl History {
    pub(crate) fn of_scripts(scripts: impl IntoIterator<Item = ScriptBuf>) -> Self {
        Self { scripts: scripts.into_iter().collect(), ..Self::default() }
    }

    /// Watches an outpoint, whatever its script.
    pub(crate) fn watch(&mut self, outpoint: OutPoint) {
        self.coins.insert(outpoint);
    }

    /// Reads blocks in order, the first at height `first`, and returns the events.
    pub(crate) fn read<'a>(
        self,
        first: u32,
        blocks: impl IntoIterator<Item = &'a Block>,
    ) -> BTreeSet<Event> {
        self.and((first..).zip(blocks)).events
    }

    /// Reads blocks, each with its height; some heights may be missing.
    pub(crate) fn and<'a>(mut self, blocks: impl IntoIterator<Item = (u32, &'a Block)>) -> Self {
        for (height, block) in blocks {
            let hash = block.block_hash();
            for transaction in &block.txdata {
                let txid = transaction.compute_txid();
                let mut note = |what| {
                    self.events.insert(Event { height, block: hash, txid, what });
                };
                for (vin, input) in (0..).zip(&transaction.input) {
                    if self.coins.contains(&input.previous_output) {
                        note(Move::Spent { vin });
                    }
                }
                for (vout, output) in (0..).zip(&transaction.output) {
                    if self.scripts.contains(&output.script_pubkey) {
                        self.coins.insert(OutPoint { txid, vout });
                        note(Move::Paid { vout });
                    }
                }
            }
        }
        self
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> &BTreeSet<Event> {
        &self.events
    }
}

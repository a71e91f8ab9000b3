//! What happened to watched scripts, computed from a node's blocks the plain way: every output's
//! script is looked up, and every input's outpoint.

use std::collections::{BTreeSet, HashSet};

use chainsieve::bitcoin::{Block, BlockHash, OutPoint, ScriptBuf, Txid};

/// A payment to a watched script, or out of one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Move {
    /// To a watched script, by this output.
    Paid { vout: u32 },
    /// Of a watched coin, by this input.
    Spent { vin: u32 },
}

/// A move, and where it stands.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Event {
    pub(crate) height: u32,
    pub(crate) block: BlockHash,
    pub(crate) txid: Txid,
    pub(crate) what: Move,
}

/// Moves of watched scripts and outpoints, block by block.
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

    /// Watches an outpoint of any script.
    pub(crate) fn watch(&mut self, outpoint: OutPoint) {
        self.coins.insert(outpoint);
    }

    /// Takes in blocks in order, the first of this height.
    pub(crate) fn read<'a>(
        self,
        first: u32,
        blocks: impl IntoIterator<Item = &'a Block>,
    ) -> BTreeSet<Event> {
        self.and((first..).zip(blocks)).events
    }

    /// Takes in blocks, each with its height, some of which may be left out.
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

    /// What happened so far.
    pub(crate) fn events(&self) -> &BTreeSet<Event> {
        &self.events
    }
}

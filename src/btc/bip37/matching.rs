//! Which transactions are relevant to a filter: Bitcoin Core's
//! `CBloomFilter::IsRelevantAndUpdate`, with the reasons.
//!
//! In Core's order: a filter without data matches everything; the txid; each output, its first
//! data push that may be contained (then, by the [`UpdateMode`], the outpoint is inserted, and
//! the next output sees it); only if nothing matched so far each input, its outpoint and then
//! its pushes, up to the first that may be contained. Witness data is never looked at.

use alloc::vec::Vec;
use core::fmt;

use bitcoin::hashes::Hash as _;
use bitcoin::{OutPoint, Transaction, Txid};

use super::{BloomFilter, UpdateMode};
use crate::btc::script::{ScriptType, pushes};

/// Why a transaction matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MatchReason {
    /// The filter has no data and matches everything.
    Everything,
    /// The transaction's id.
    Txid,
    /// Data that an output's script pushes.
    Output {
        /// The output.
        vout: u32,
        /// Which of the script's non-empty pushes, from 0: the first that may be contained.
        push: u32,
        /// Whether the filter's flags had the outpoint inserted.
        inserted: bool,
    },
    /// The outpoint that an input spends.
    Spent {
        /// The input.
        vin: u32,
    },
    /// Data that an input's script pushes.
    InputData {
        /// The input.
        vin: u32,
        /// Which of the script's non-empty pushes, from 0.
        push: u32,
    },
}

impl fmt::Display for MatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("the filter matches everything"),
            Self::Txid => f.write_str("txid"),
            Self::Output { vout, push, inserted } => {
                let inserted = if *inserted { ", outpoint inserted" } else { "" };
                write!(f, "output {vout}, push {push}{inserted}")
            }
            Self::Spent { vin } => write!(f, "outpoint spent by input {vin}"),
            Self::InputData { vin, push } => write!(f, "input {vin}, push {push}"),
        }
    }
}

/// A transaction that may be relevant to a filter, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxMatch {
    /// Its position in the block, or 0 for a transaction on its own.
    pub index: u32,
    /// Its id.
    pub txid: Txid,
    /// Every reason that Core's order comes to; never empty. An input is a reason only if
    /// neither the txid nor an output is, and then the only one.
    pub reasons: Vec<MatchReason>,
}

impl TxMatch {
    /// The outpoints that the match inserted into the filter.
    pub fn inserted(&self) -> impl Iterator<Item = OutPoint> {
        self.reasons.iter().filter_map(|reason| match *reason {
            MatchReason::Output { vout, inserted: true, .. } => {
                Some(OutPoint { txid: self.txid, vout })
            }
            _ => None,
        })
    }
}

impl BloomFilter {
    /// Whether `tx` may be relevant, and why; inserts outpoints as the filter's flags say.
    ///
    /// `None` is certain: no element of the transaction was ever inserted. For whole blocks,
    /// matching over their elements is several times faster.
    pub fn match_transaction(&mut self, tx: &Transaction) -> Option<TxMatch> {
        let txid = tx.compute_txid();
        let reasons = if self.data().is_empty() {
            alloc::vec![MatchReason::Everything]
        } else {
            self.reasons(tx, txid)
        };
        (!reasons.is_empty()).then_some(TxMatch { index: 0, txid, reasons })
    }

    /// Core's `IsRelevantAndUpdate`: [`match_transaction`](Self::match_transaction) without the
    /// reasons.
    pub fn is_relevant_and_update(&mut self, tx: &Transaction) -> bool {
        self.match_transaction(tx).is_some()
    }

    fn reasons(&mut self, tx: &Transaction, txid: Txid) -> Vec<MatchReason> {
        let mut reasons = Vec::new();
        if self.contains(txid.as_byte_array()) {
            reasons.push(MatchReason::Txid);
        }
        for (vout, output) in (0..).zip(&tx.output) {
            let script = output.script_pubkey.as_bytes();
            let Some(push) = self.first_push(script) else { continue };
            let inserted = match self.update_mode() {
                UpdateMode::None => false,
                UpdateMode::All => true,
                UpdateMode::P2PubkeyOnly => ScriptType::of(script) != ScriptType::Other,
            };
            if inserted {
                self.insert_outpoint(&OutPoint { txid, vout });
            }
            reasons.push(MatchReason::Output { vout, push, inserted });
        }
        if !reasons.is_empty() {
            return reasons;
        }
        for (vin, input) in (0..).zip(&tx.input) {
            if self.contains_outpoint(&input.previous_output) {
                reasons.push(MatchReason::Spent { vin });
                break;
            }
            if let Some(push) = self.first_push(input.script_sig.as_bytes()) {
                reasons.push(MatchReason::InputData { vin, push });
                break;
            }
        }
        reasons
    }

    fn first_push(&self, script: &[u8]) -> Option<u32> {
        (0..).zip(pushes(script)).find(|(_, data)| self.contains(data)).map(|(push, _)| push)
    }
}

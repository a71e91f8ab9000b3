//! Every way the library has to match a block, under one signature.

use chainsieve::btc::bip37::{BloomFilter, MatchReason, TxMatch};

use crate::oracle::TestBlock;
use crate::slow_bip37::{Reason, SlowFilter};

/// What matching gave: index and reasons of each match, and the filter's payload afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) matches: Vec<(usize, Vec<Reason>)>,
    pub(crate) filter_after: Vec<u8>,
}

impl Outcome {
    pub(crate) fn indices(&self) -> Vec<usize> {
        self.matches.iter().map(|(index, _)| *index).collect()
    }
}

pub(crate) fn slow(filterload: &[u8], block: &TestBlock) -> Outcome {
    let mut filter = SlowFilter::from_payload(filterload);
    let matches = filter.match_block(&block.block);
    Outcome { matches, filter_after: filter.payload() }
}

/// The library's answers, each with the entry point's name.
pub(crate) fn library(filterload: &[u8], block: &TestBlock) -> Vec<(String, Outcome)> {
    let (filter, rest) = BloomFilter::decode_any_size(filterload).expect("a valid payload");
    assert!(rest.is_empty(), "a whole payload");
    vec![("match_transaction".to_owned(), tx_by_tx(filter, block))]
}

fn tx_by_tx(mut filter: BloomFilter, block: &TestBlock) -> Outcome {
    let mut matches = Vec::new();
    for (index, tx) in block.block.txdata.iter().enumerate() {
        if let Some(found) = filter.match_transaction(tx) {
            assert_eq!(found.txid, tx.compute_txid(), "txid of a match");
            matches.push((index, reasons(&found)));
        }
    }
    Outcome { matches, filter_after: filter.encode() }
}

/// The library's reasons in the words of the slow matcher.
pub(crate) fn reasons(found: &TxMatch) -> Vec<Reason> {
    let at = |n: u32| usize::try_from(n).expect("an index");
    let reason = |reason: &MatchReason| match *reason {
        MatchReason::Everything => Reason::EmptyFilter,
        MatchReason::Txid => Reason::Txid,
        MatchReason::Output { vout, push, inserted } => {
            Reason::Output { output: at(vout), push: at(push), inserted }
        }
        MatchReason::Spent { vin } => Reason::Outpoint { input: at(vin) },
        MatchReason::InputData { vin, push } => {
            Reason::ScriptSig { input: at(vin), push: at(push) }
        }
        ref other => panic!("a reason that the slow matcher does not know: {other:?}"),
    };
    found.reasons.iter().map(reason).collect()
}

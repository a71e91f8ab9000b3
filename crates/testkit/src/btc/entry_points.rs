//! Runs every entry point of the library that matches a block, and returns all results in one type.

use chainsieve::bitcoin::{Transaction, consensus};
use chainsieve::btc::bip37::{
    BlockElements, BloomFilter, Elements, MatchReason, MerkleBlock, TxMatch,
};
use chainsieve::simd::Backend;

use crate::btc::oracle::TestBlock;
use crate::btc::slow_bip37::{Reason, SlowFilter};

/// Result of matching a block: index and reasons of each match, and the filter's payload
/// afterwards.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub matches: Vec<(usize, Vec<Reason>)>,
    pub filter_after: Vec<u8>,
}

impl Outcome {
    pub fn indices(&self) -> Vec<usize> {
        self.matches.iter().map(|(index, _)| *index).collect()
    }
}

/// Matches the block with the slow matcher.
pub fn slow(filterload: &[u8], block: &TestBlock) -> Outcome {
    let mut filter = SlowFilter::from_payload(filterload);
    let matches = filter.match_block(&block.block);
    Outcome { matches, filter_after: filter.payload() }
}

/// Returns the library's results, each with the name of the entry point and the backend.
pub fn library(filterload: &[u8], block: &TestBlock) -> Vec<(String, Outcome)> {
    let (filter, rest) = BloomFilter::decode_any_size(filterload).expect("a valid payload");
    assert!(rest.is_empty(), "a whole payload");
    let from_raw = BlockElements::from_raw(&block.raw).expect("a valid block");
    let from_block = BlockElements::from_block(&block.block);

    let mut outcomes = Vec::new();
    for backend in Backend::available() {
        let filter = || filter.clone().with_backend(backend);
        let mut add = |entry_point: &str, outcome| {
            outcomes.push((format!("{entry_point} on {}", backend.name()), outcome));
        };
        add("match_block of raw bytes", whole_block(filter(), &from_raw));
        add("match_transaction", tx_by_tx(filter(), block));
        if backend == Backend::best() {
            add("match_block of a Block", whole_block(filter(), &from_block));
            add("match_elements of raw transactions", raw_tx_by_tx(filter(), block));
        }
    }
    assert_eq!(filter.backend(), Backend::best(), "the default backend");
    outcomes
}

fn whole_block(mut filter: BloomFilter, block: &BlockElements) -> Outcome {
    let matches = filter.match_block(block);
    let matches = matches.iter().map(|found| {
        let index = usize::try_from(found.index).expect("an index");
        assert_eq!(found.txid, block.txids()[index], "txid of a match");
        (index, reasons(found))
    });
    let matches = matches.collect();
    Outcome { matches, filter_after: filter.encode() }
}

fn tx_by_tx(filter: BloomFilter, block: &TestBlock) -> Outcome {
    one_by_one(filter, block, BloomFilter::match_transaction)
}

fn raw_tx_by_tx(filter: BloomFilter, block: &TestBlock) -> Outcome {
    one_by_one(filter, block, |filter, tx| {
        let raw = consensus::serialize(tx);
        let elements = Elements::from_raw_transaction(&raw).expect("a valid transaction");
        let mut matches = filter.match_elements(&elements);
        assert!(matches.len() <= 1, "one transaction matches once");
        matches.pop()
    })
}

fn one_by_one(
    mut filter: BloomFilter,
    block: &TestBlock,
    matching: impl Fn(&mut BloomFilter, &Transaction) -> Option<TxMatch>,
) -> Outcome {
    let mut matches = Vec::new();
    for (index, tx) in block.block.txdata.iter().enumerate() {
        if let Some(found) = matching(&mut filter, tx) {
            assert_eq!((found.index, found.txid), (0, tx.compute_txid()), "a match on its own");
            matches.push((index, reasons(&found)));
        }
    }
    Outcome { matches, filter_after: filter.encode() }
}

/// Returns the `merkleblock` payload that the library builds from an outcome.
pub fn merkle_block(block: &TestBlock, outcome: &Outcome) -> Vec<u8> {
    let txids: Vec<_> = block.block.txdata.iter().map(Transaction::compute_txid).collect();
    let index = |(index, _): &(usize, _)| u32::try_from(*index).expect("an index");
    let matched: Vec<_> = outcome.matches.iter().map(index).collect();
    let block = MerkleBlock::new(&block.block.header, &txids, &matched);
    block.expect("a valid block").encode()
}

/// Converts the library's reasons to those of the slow matcher.
pub fn reasons(found: &TxMatch) -> Vec<Reason> {
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

//! Filters built in each of the three ways, from complete and from invalid blocks.

use alloc::vec::Vec;

use bitcoin::consensus::{deserialize, serialize};
use bitcoin::{Block, OutPoint, ScriptBuf, TxIn};

use super::{BlockFilter, BuildError, filter_elements};
use crate::btc::RawError;

/// Returns a mainnet block, the scripts that it spends, and its filter from Bitcoin Core.
fn block_757753() -> (Vec<u8>, Vec<ScriptBuf>, Vec<u8>) {
    let json = include_str!("../../../fixtures/bitcoin/blocks/mainnet_757753.json");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let bytes = |hex: &serde_json::Value| hex::decode(hex.as_str().unwrap()).unwrap();
    let spent = json["prevouts"].as_array().unwrap();
    let spent = spent.iter().map(|output| ScriptBuf::from(bytes(&output["script_pubkey"])));
    (bytes(&json["block"]), spent.collect(), bytes(&json["basic_filter"]))
}

#[test]
fn every_way_gives_the_filter_of_core() {
    let (raw, spent, expected) = block_757753();
    let block: Block = deserialize(&raw).unwrap();
    let filter = BlockFilter::from_raw_block(&raw, &spent).unwrap();
    assert_eq!(filter.block_hash, block.block_hash());
    assert_eq!(filter.content, expected);
    assert_eq!(BlockFilter::from_prevout_scripts(&block, &spent), Ok(filter.clone()));
    let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
    let outpoints: Vec<OutPoint> = inputs.map(|input| input.previous_output).collect();
    let script = |asked: &OutPoint| {
        let at = outpoints.iter().position(|outpoint| outpoint == asked)?;
        Some(spent[at].clone())
    };
    assert_eq!(BlockFilter::new(&block, script), Ok(filter));
}

#[test]
fn scripts_must_be_as_many_as_inputs() {
    let (raw, mut spent, _) = block_757753();
    let block: Block = deserialize(&raw).unwrap();
    let inputs = spent.len();
    assert_eq!(inputs, 131);
    for given in [130, 0] {
        spent.truncate(given);
        let error = BuildError::PrevoutCount { given, inputs };
        assert_eq!(BlockFilter::from_raw_block(&raw, &spent), Err(error));
        assert_eq!(BlockFilter::from_prevout_scripts(&block, &spent), Err(error));
    }
}

#[test]
fn bytes_that_are_no_block() {
    let (raw, spent, _) = block_757753();
    for length in 0..raw.len() {
        let error = BlockFilter::from_raw_block(&raw[..length], &spent).unwrap_err();
        assert!(matches!(error, BuildError::Raw(RawError::Truncated { .. })), "{length}: {error}");
    }
    let longer = [&raw[..], &[0]].concat();
    let error = BlockFilter::from_raw_block(&longer, &spent);
    assert_eq!(error, Err(BuildError::Raw(RawError::TrailingBytes(1))));
}

/// Without the coinbase check, the scripts that the first transaction spends would be left out.
#[test]
fn blocks_without_a_coinbase() {
    let (raw, spent, _) = block_757753();
    let block: Block = deserialize(&raw).unwrap();
    let without_first = |count: usize| Block {
        txdata: block.txdata[block.txdata.len() - count..].to_vec(),
        ..block.clone()
    };
    let mut two_inputs = block.clone();
    two_inputs.txdata[0].input.push(TxIn::default());
    let mut no_inputs = block.clone();
    no_inputs.txdata[0].input.clear();
    for block in [without_first(0), without_first(1), without_first(3), two_inputs] {
        let missing = Err(BuildError::CoinbaseMissing);
        assert_eq!(BlockFilter::from_raw_block(&serialize(&block), &spent), missing);
        assert_eq!(BlockFilter::from_prevout_scripts(&block, &spent), missing);
        assert_eq!(BlockFilter::new(&block, |_| Some(ScriptBuf::new())), missing);
    }
    assert_eq!(BlockFilter::new(&no_inputs, |_| None), Err(BuildError::CoinbaseMissing));
}

/// The builder does not request the scripts of outputs that earlier transactions of the block
/// created. It requests the scripts if later transactions create the outputs: such a block is
/// invalid, and the builder does not guess.
#[test]
fn outputs_of_the_block_itself() {
    let (raw, _, _) = block_757753();
    let mut block: Block = deserialize(&raw).unwrap();
    block.txdata.truncate(3);
    let of_coinbase = OutPoint { txid: block.txdata[0].compute_txid(), vout: 0 };
    let past_the_last = OutPoint { vout: 999, ..of_coinbase };
    let later = OutPoint { txid: block.txdata[2].compute_txid(), vout: 0 };
    for (outpoint, is_asked) in [(of_coinbase, false), (past_the_last, true), (later, true)] {
        let input = TxIn { previous_output: outpoint, ..TxIn::default() };
        block.txdata[1].input = alloc::vec![input];
        let mut asked = Vec::new();
        let filter = BlockFilter::new(&block, |outpoint| {
            asked.push(*outpoint);
            Some(ScriptBuf::from_bytes(alloc::vec![0x51]))
        });
        assert!(filter.is_ok());
        assert_eq!(asked.contains(&outpoint), is_asked, "{outpoint}");
    }
}

#[test]
fn elements_by_the_rules_of_core() {
    let (raw, _, _) = block_757753();
    let mut block: Block = deserialize(&raw).unwrap();
    block.txdata.truncate(2);
    let mut output = block.txdata[0].output[0].clone();
    let mut outputs = |scripts: &[&[u8]]| {
        let with = |script: &&[u8]| {
            output.script_pubkey = ScriptBuf::from_bytes(script.to_vec());
            output.clone()
        };
        scripts.iter().map(with).collect()
    };
    block.txdata[0].output = outputs(&[&[0x51], &[], &[0x6a], &[0x6a, 0x01, 0x02]]);
    // Core treats a truncated push as an invalid script, and still adds it to the filter.
    block.txdata[1].output = outputs(&[&[0x4c, 0xff], &[0x51], &[0x00, 0x6a]]);
    block.txdata[1].input = alloc::vec![TxIn::default(); 4];
    let spent: [&[u8]; 4] = [&[0x6a, 0x01], &[], &[0x51], &[0xff]];
    let spent = spent.map(|script| ScriptBuf::from_bytes(script.to_vec()));
    let expected: [&[u8]; 7] =
        [&[0x51], &[0x4c, 0xff], &[0x51], &[0x00, 0x6a], &[0x6a, 0x01], &[0x51], &[0xff]];
    let elements: Vec<&[u8]> = filter_elements(&block, &spent).unwrap().collect();
    assert_eq!(elements, expected);
    let filter = BlockFilter::from_prevout_scripts(&block, &spent).unwrap();
    assert_eq!(filter.content[0], 5, "different elements");
    assert_eq!(BlockFilter::from_raw_block(&serialize(&block), &spent), Ok(filter));
}

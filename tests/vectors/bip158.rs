//! The ten vectors of BIP158, and the published filter headers of mainnet's first 256 blocks.

use std::collections::HashMap;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, OutPoint, ScriptBuf, Transaction};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, BuildError};
use serde_json::Value;

use testkit::btc::fixtures;
use testkit::btc::gcs_cases::basic_filter_of;
use testkit::btc::naive_gcs::{Coding, basic_elements};
use testkit::btc::oracle::{TestBlock, from_hex};
use testkit::btc::spent_block::spent_block;

fn rows(file: &str) -> Vec<Value> {
    serde_json::from_str(&fixtures::read(file)).expect("a list of JSON")
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("no text {field}: {row:.100}"))
}

fn header(text: &str) -> FilterHeader {
    text.parse().expect("a filter header")
}

#[test]
fn vectors_of_the_bip() {
    let rows = rows("bip158_vectors.json");
    let mut elements_in_all = 0;
    for row in &rows {
        let height = &row["height"];
        let block = TestBlock::new(from_hex(text(row, "block")));
        assert_eq!(block.block.block_hash().to_string(), text(row, "hash"), "{height}");
        let spent = row["prevout_scripts"].as_array().expect("a list").iter();
        let spent = spent.map(|script| from_hex(script.as_str().expect("hex")));
        let spent: Vec<_> = spent.map(ScriptBuf::from_bytes).collect();
        let filter = basic_filter_of(&block, &spent);
        assert_eq!(hex::encode(&filter.content), text(row, "basic_filter"), "{height}");
        let previous = header(text(row, "previous_filter_header"));
        let expected = header(text(row, "filter_header"));
        assert_eq!(filter.filter_header(&previous), expected, "{height}");

        let set = filter.gcs(Acceptance::Strict).expect("a canonical set");
        let elements: Vec<_> = basic_elements(&block.block, &spent).into_iter().collect();
        assert_eq!(set.num_elements() as usize, elements.len(), "{height}");
        let coding = Coding::basic(filter.block_hash.as_ref());
        let found = coding.check_matching(&filter.content, &elements);
        assert_eq!(found, Some((0..elements.len()).collect()), "{height}");
        // One filter has an empty set. The others are so small that no absent script matches by
        // chance.
        let absent: Vec<_> =
            elements.iter().map(|script| [&script[..], &[0x51]].concat()).collect();
        assert_eq!(coding.check_matching(&filter.content, &absent), Some(vec![]), "{height}");
        elements_in_all += elements.len();
    }
    assert_eq!((rows.len(), elements_in_all), (10, 40));
}

/// The first 256 blocks create all the scripts that they spend.
#[test]
fn mainnets_first_blocks_have_the_published_filter_headers() {
    let rows = rows("mainnet_0-255.json");
    let mut created: HashMap<OutPoint, ScriptBuf> = HashMap::new();
    let mut previous = FilterHeader::all_zeros();
    let mut spending = Vec::new();
    for (height, row) in rows.iter().enumerate() {
        assert_eq!(row["height"].as_u64(), Some(height as u64));
        let block = TestBlock::new(from_hex(text(row, "block")));
        let outputs = outputs(&block.block);
        created.extend(outputs);
        let inputs = block.block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
        let spent: Vec<_> = inputs.map(|input| created[&input.previous_output].clone()).collect();
        if !spent.is_empty() {
            spending.push(height);
        }
        let filter = basic_filter_of(&block, &spent);
        assert_eq!(filter.block_hash.to_string(), text(row, "hash"));
        previous = filter.filter_header(&previous);
        assert_eq!(previous, header(text(row, "filter_header")), "height {height}");
    }
    assert_eq!(rows.len(), 256);
    assert_eq!(spending, [170, 181, 182, 183, 187, 221, 248]);
}

fn outputs(block: &Block) -> Vec<(OutPoint, ScriptBuf)> {
    let of = |tx: &Transaction| {
        let txid = tx.compute_txid();
        let outputs = tx.output.iter().zip(0..);
        outputs
            .map(move |(output, vout)| (OutPoint { txid, vout }, output.script_pubkey.clone()))
            .collect::<Vec<_>>()
    };
    block.txdata.iter().flat_map(of).collect()
}

/// A filter asks for the scripts that its block spends from other blocks, in input order and once
/// for each input. A script that is not given is an error: the filter would lack it.
#[test]
fn scripts_that_are_not_given() {
    let mut asked_in_all = 0;
    for height in fixtures::BLOCKS {
        let ((block, spent), expected) = spent_block(height);
        let block = &block.block;
        let created: HashMap<_, _> = outputs(block).into_iter().collect();
        let inputs: Vec<_> = block.txdata.iter().skip(1).flat_map(|tx| &tx.input).collect();
        let inputs = || inputs.iter().map(|input| input.previous_output);
        let by_outpoint: HashMap<_, _> = inputs().zip(&spent).collect();

        let mut asked = Vec::new();
        let filter = BlockFilter::new(block, |outpoint| {
            asked.push(*outpoint);
            by_outpoint.get(outpoint).map(|script| (*script).clone())
        });
        assert_eq!(filter.expect("all are given").content, expected, "{height}");
        let outside: Vec<_> = inputs().filter(|outpoint| !created.contains_key(outpoint)).collect();
        assert_eq!(asked, outside, "{height}");
        asked_in_all += asked.len();

        for missing in [asked.first(), asked.last()].into_iter().flatten() {
            let given = |outpoint: &OutPoint| {
                by_outpoint.get(outpoint).filter(|_| outpoint != missing).copied().cloned()
            };
            let error = BlockFilter::new(block, given).expect_err("one is not given");
            assert_eq!(error, BuildError::PrevoutMissing(*missing), "{height}");
        }

        let inputs = spent.len();
        let one_more = [&spent[..], &[ScriptBuf::new()]].concat();
        for given in [&spent[1..], &one_more, &[]] {
            let error = BlockFilter::from_prevout_scripts(block, given).expect_err("not as many");
            assert_eq!(error, BuildError::PrevoutCount { given: given.len(), inputs }, "{height}");
        }
    }
    assert_eq!(asked_in_all, 706, "of 737 inputs");
}

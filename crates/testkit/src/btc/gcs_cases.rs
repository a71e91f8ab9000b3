//! Functions that check the naive coder and the library against each kind of oracle case about
//! Golomb-coded sets and basic filters.

use std::collections::BTreeMap;
use std::rc::Rc;

use chainsieve::bitcoin::ScriptBuf;
use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::btc::bip158::{Acceptance, BlockFilter};

use crate::btc::naive_gcs::{Coding, basic_elements};
use crate::btc::oracle::{Case, TestBlock, count_kinds, from_hex};

/// A block, and the scripts of the outputs that it spends, in input order.
pub type SpentBlock = (Rc<TestBlock>, Vec<ScriptBuf>);

/// Counts of the results for mutated encodings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    pub refused: usize,
    pub taken_by_both: usize,
    pub over_range: usize,
    pub padding: usize,
    pub over_range_and_padding: usize,
}

/// Runs all cases of `text`, and returns the number of cases of each kind and the counts of
/// mutants.
pub fn check_all(
    text: &str,
    block: &dyn Fn(&str) -> SpentBlock,
) -> (BTreeMap<String, usize>, Mutants) {
    let mut mutants = Mutants::default();
    let counts = count_kinds(text, |case| {
        match case.str("kind") {
            "gcs" => small_set(case, &mut mutants),
            "gcs_large" => large_set(case),
            "basic_filter" => basic_filter(case, &block(case.str("block"))),
            _ => return false,
        }
        true
    });
    (counts, mutants)
}

fn key_half(case: &Case, field: &str) -> u64 {
    u64::from_str_radix(case.str(field), 16).expect("64 bits in hex")
}

fn small_set(case: &Case, mutants: &mut Mutants) {
    let coding = Coding {
        k0: key_half(case, "k0"),
        k1: key_half(case, "k1"),
        p: u8::try_from(case.number("p")).expect("a byte"),
        m: case.number("m"),
    };
    let hex = |value: &serde_json::Value| from_hex(value.as_str().expect("hex"));
    let elements: Vec<_> = case.list("elements").iter().map(hex).collect();
    encoded(case, coding, &elements);
    for mutant in case.list("mutants") {
        let bytes = hex(&mutant["encoded"]);
        let reading = coding.check_reading(&bytes);
        let accepted = mutant["accepted"].as_bool().expect("a bool");
        assert_eq!(reading.is_ok(), accepted, "{case}: mutant {}", mutant["encoded"]);
        *match reading {
            Err(_) => &mut mutants.refused,
            Ok(reading) => match (reading.over_range, reading.padding) {
                (false, false) => &mut mutants.taken_by_both,
                (true, false) => &mut mutants.over_range,
                (false, true) => &mut mutants.padding,
                (true, true) => &mut mutants.over_range_and_padding,
            },
        } += 1;
    }
}

fn large_set(case: &Case) {
    let coding = Coding { k0: key_half(case, "k0"), k1: key_half(case, "k1"), p: 19, m: 784_931 };
    let element = |index: u32| {
        let preimage = [&b"chainsieve gcs "[..], &index.to_le_bytes()].concat();
        sha256::Hash::hash(&preimage).as_byte_array()[..4 + index as usize % 29].to_vec()
    };
    let elements: Vec<_> = (0..case.number("n")).map(element).collect();
    let bytes = encoded(case, coding, &elements);
    let set = coding.check_reading(&bytes).expect("what Core wrote");
    assert_eq!(set.values.len(), case.number("distinct") as usize, "{case}");
}

/// Asserts that every writer produces the same bytes as Core, and that every element is found in
/// these bytes. Returns the bytes.
fn encoded(case: &Case, coding: Coding, elements: &[Vec<u8>]) -> Vec<u8> {
    case.assert_bytes("the naive coder", "encoded", &coding.encode(elements));
    let bytes = coding.written(elements);
    case.assert_bytes("the library", "encoded", &bytes);

    let reading = coding.check_reading(&bytes).unwrap_or_else(|e| panic!("{case}: {e:?}"));
    let values = coding.values(elements).into_iter().map(u128::from);
    assert!(reading.is_canonical() && values.eq(reading.values), "{case}");
    if elements.len() < 1_000 {
        let found = coding.check_matching(&bytes, elements);
        assert_eq!(found, Some((0..elements.len()).collect()), "{case}: all are found");
    }
    bytes
}

fn basic_filter(case: &Case, (block, spent): &SpentBlock) {
    let filter = basic_filter_of(block, spent);
    case.assert_bytes("the library", "encoded", &filter.content);
    assert_eq!(filter.filter_hash().to_string(), case.str("filter_hash"), "{case}");
    let set = filter.gcs(Acceptance::Strict).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(set.num_elements(), case.number("elements"), "{case}");
}

/// Builds the filter of a block in both ways, from a list of spent scripts and from a callback.
/// Compares both filters with the one that the naive coder builds.
pub fn basic_filter_of(block: &TestBlock, spent: &[ScriptBuf]) -> BlockFilter {
    let from_raw = BlockFilter::from_raw_block(&block.raw, spent);
    let block = &block.block;
    let filter = BlockFilter::from_prevout_scripts(block, spent).expect("a script for each input");
    let inputs = block.txdata.iter().skip(1).flat_map(|tx| &tx.input);
    let by_outpoint: BTreeMap<_, _> =
        inputs.map(|input| input.previous_output).zip(spent.iter().cloned()).collect();
    let asked = BlockFilter::new(block, |outpoint| by_outpoint.get(outpoint).cloned());
    assert_eq!(asked.as_ref(), Ok(&filter));
    assert_eq!(from_raw.as_ref(), Ok(&filter));

    let coding = Coding::basic(filter.block_hash.as_ref());
    let elements: Vec<_> = basic_elements(block, spent).into_iter().collect();
    assert_eq!(hex::encode(coding.encode(&elements)), hex::encode(&filter.content));
    filter
}

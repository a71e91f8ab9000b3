//! Published test vectors: the classic BIP37 cases, those of BIP158, a part of Bitcoin Core's
//! answers, geth's tables, and golden files.

mod bip158;
mod bip37;
mod eth_index;
mod filter_container;
mod geth_filters;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Checks the oracle's answers on blocks that every clone has. The other answers are in the corpus.
#[test]
fn core_answers_a_part_of_its_cases_the_same() {
    let blocks: HashMap<String, _> = testkit::btc::fixtures::BLOCKS
        .into_iter()
        .map(|height| (format!("block_{height}"), testkit::btc::fixtures::block(height)))
        .collect();
    let text = testkit::btc::fixtures::read("core_oracle_subset.jsonl");
    let counts = testkit::btc::bip37_cases::check_all(&text, &|name| {
        Rc::clone(blocks.get(name).unwrap_or_else(|| panic!("no fixture of {name}")))
    });
    let expected = [("match", 64), ("script", 182), ("sizing", 265), ("tree", 121), ("update", 32)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
}

/// Checks the oracle's answers on Golomb-coded sets and basic filters. Two thirds of the mutants
/// are rejected. Of those that Core accepts, the strict reader rejects the ones that no encoder
/// produces.
#[test]
fn core_reads_and_writes_a_part_of_its_sets_the_same() {
    let text = testkit::btc::fixtures::read("core_oracle_subset.jsonl");
    let (counts, mutants) = testkit::btc::gcs_cases::check_all(&text, &|name| {
        let height = name.strip_prefix("block_").and_then(|height| height.parse().ok());
        testkit::btc::spent_block::spent_block(height.expect("a height")).0
    });
    let expected = [("basic_filter", 5), ("gcs", 35), ("gcs_large", 9)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    let expected = testkit::btc::gcs_cases::Mutants {
        refused: 137,
        taken_by_both: 44,
        over_range: 4,
        padding: 25,
        over_range_and_padding: 0,
    };
    assert_eq!(mutants, expected);
}

//! Published vectors, by name: the classic BIP37 cases, those of BIP158 and of SipHash, a part of
//! what Bitcoin Core answers, and golden files.

#[path = "support/checks.rs"]
mod checks;
#[path = "support/entry_points.rs"]
mod entry_points;
#[path = "support/eth_fixtures.rs"]
#[expect(dead_code, reason = "single headers")]
mod eth_fixtures;
#[path = "support/filter_blocks.rs"]
mod filter_blocks;
#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/gcs_checks.rs"]
mod gcs_checks;
#[path = "support/gcs_reading.rs"]
mod gcs_reading;
#[path = "support/linked_headers.rs"]
mod linked_headers;
#[expect(dead_code, reason = "what stands before the end of cut sets")]
mod naive_gcs;
#[path = "support/oracle.rs"]
mod oracle;
mod slow_bip37;
#[path = "support/tree_checks.rs"]
mod tree_checks;

#[path = "vectors/bip158.rs"]
mod bip158;
#[path = "vectors/bip37.rs"]
mod bip37;
#[path = "vectors/eth_index.rs"]
mod eth_index;
#[path = "vectors/filter_container.rs"]
mod filter_container;
#[path = "vectors/geth_filters.rs"]
mod geth_filters;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The oracle's answers on blocks that every clone has; the rest of them is in the corpus.
#[test]
fn core_answers_a_part_of_its_cases_the_same() {
    let blocks: HashMap<String, _> = fixtures::BLOCKS
        .into_iter()
        .map(|height| (format!("block_{height}"), fixtures::block(height)))
        .collect();
    let text = fixtures::read("core_oracle_subset.jsonl");
    let counts = checks::check_all(&text, &|name| {
        Rc::clone(blocks.get(name).unwrap_or_else(|| panic!("no fixture of {name}")))
    });
    let expected = [("match", 64), ("script", 182), ("sizing", 265), ("tree", 121), ("update", 32)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
}

/// The same of Golomb-coded sets and basic filters. Two thirds of the mutants are refused; of
/// those that Core takes, the strict reader leaves out what no writer makes.
#[test]
fn core_reads_and_writes_a_part_of_its_sets_the_same() {
    let text = fixtures::read("core_oracle_subset.jsonl");
    let (counts, mutants) = gcs_checks::check_all(&text, &|name| {
        let height = name.strip_prefix("block_").and_then(|height| height.parse().ok());
        filter_blocks::spent_block(height.expect("a height")).0
    });
    let expected = [("basic_filter", 5), ("gcs", 35), ("gcs_large", 9)];
    let expected = expected.map(|(kind, count)| (kind.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(expected));
    let expected = gcs_checks::Mutants {
        refused: 137,
        taken_by_both: 44,
        over_range: 4,
        padding: 25,
        over_range_and_padding: 0,
    };
    assert_eq!(mutants, expected);
}

//! Published vectors, by name: the classic BIP37 cases, a part of what Bitcoin Core answers, and
//! golden files.

#[path = "support/checks.rs"]
mod checks;
#[path = "support/entry_points.rs"]
mod entry_points;
#[path = "support/fixtures.rs"]
mod fixtures;
#[path = "support/oracle.rs"]
mod oracle;
mod slow_bip37;
#[path = "support/tree_checks.rs"]
mod tree_checks;

#[path = "vectors/bip37.rs"]
mod bip37;
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

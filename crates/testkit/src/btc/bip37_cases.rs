//! Functions that check the slow matcher and the library against each kind of BIP37 oracle case.
//!
//! The tests with the corpus and those with its subset in `fixtures/` share these checks, so that
//! they can't expect different results.

use std::collections::BTreeMap;
use std::rc::Rc;

use chainsieve::btc::bip37::{BloomFilter, core_sizing};
use chainsieve::btc::script::{self, ScriptType, pushes};

use crate::btc::entry_points::{self, library, slow};
use crate::btc::oracle::{Case, TestBlock};
use crate::btc::slow_bip37::script::{Template, is_well_formed, non_empty_pushes, template};
use crate::btc::slow_bip37::{SlowFilter, tree};

/// Runs a case of any BIP37 kind. `block` returns a block by its name in the corpus. Returns
/// `false` for kinds that belong to other filters.
pub fn check(case: &Case, block: &dyn Fn(&str) -> Rc<TestBlock>) -> bool {
    match case.str("kind") {
        "sizing" => sizing(case),
        "script" => script(case),
        "match" | "update" => matching(case, block),
        "tree" => crate::btc::tree_cases::tree(case),
        _ => return false,
    }
    true
}

/// Runs all cases of `text`, and returns the number of cases of each kind.
pub fn check_all(text: &str, block: &dyn Fn(&str) -> Rc<TestBlock>) -> BTreeMap<String, usize> {
    crate::btc::oracle::count_kinds(text, |case| check(case, block))
}

fn sizing(case: &Case) {
    let fpr: f64 = match &case.json["fpr"] {
        serde_json::Value::String(digits) => digits.parse().expect("digits"),
        number => number.as_f64().expect("a number"),
    };
    let elements = case.number("elements");
    let expected = (case.number("bytes"), case.number("hash_funcs"));
    assert_eq!(core_sizing(elements, fpr), expected, "{case}: {elements} elements at {fpr}");

    let as_core = BloomFilter::with_core_sizing(elements, fpr, 7, 0x81)
        .unwrap_or_else(|e| panic!("{case}: {e}"));
    let made = (as_core.data().len(), as_core.hash_funcs(), as_core.tweak(), as_core.flags());
    assert_eq!(made, (expected.0 as usize, expected.1, 7, 0x81), "{case}: with_core_sizing");
    assert!(as_core.is_within_size_constraints(), "{case}");
    let refused = expected.0 == 0 || expected.1 == 0;
    let new = BloomFilter::new(elements, fpr, 7, as_core.update_mode());
    assert_eq!(new.is_err(), refused, "{case}: {elements} elements at {fpr}: {new:?}");
}

fn script(case: &Case) {
    let script = case.bytes("script");
    let expected: Vec<_> = case
        .list("pushes")
        .iter()
        .map(|push| crate::btc::oracle::from_hex(push.as_str().expect("hex")))
        .collect();
    assert_eq!(non_empty_pushes(&script), expected, "{case}: slow pushes");
    assert_eq!(pushes(&script).collect::<Vec<_>>(), expected, "{case}: pushes");

    let well_formed = case.bool("well_formed");
    assert_eq!(is_well_formed(&script), well_formed, "{case}: slow is_well_formed");
    assert_eq!(script::is_well_formed(&script), well_formed, "{case}: is_well_formed");

    let (slow, library) = match case.str("type") {
        "pubkey" => (Template::PublicKey, ScriptType::PubKey),
        "multisig" => (Template::Multisig, ScriptType::MultiSig),
        "other" => (Template::Other, ScriptType::Other),
        unknown => panic!("{case}: type {unknown}"),
    };
    assert_eq!(template(&script), slow, "{case}: slow type");
    assert_eq!(ScriptType::of(&script), library, "{case}: type");
}

fn matching(case: &Case, block: &dyn Fn(&str) -> Rc<TestBlock>) {
    let block = match case.optional_str("block_hex") {
        Some(hex) => TestBlock::new(crate::btc::oracle::from_hex(hex)),
        None => block(case.str("block")),
    };
    let filterload = case.bytes("filterload");
    let (filter, _) = BloomFilter::decode_any_size(&filterload).expect("a valid payload");
    let fits = filter.is_within_size_constraints();
    // Cases of kind `update` lack this field: their filters are all within the limits.
    let expected = case.json.get("within_size").is_none_or(|fits| fits.as_bool() == Some(true));
    assert_eq!(fits, expected, "{case}: within_size");
    assert_eq!(BloomFilter::decode(&filterload).is_ok(), fits, "{case}: decode");

    let matched = case.indices("matched");
    let by_slow = slow(&filterload, &block);
    assert_eq!(by_slow.indices(), matched, "{case}: slow matches");
    case.assert_bytes("slow", "filterload_after", &by_slow.filter_after);
    case.assert_bytes("slow", "merkleblock", &tree::merkle_block(&block.block, &matched));

    for (entry_point, outcome) in library(&filterload, &block) {
        assert_eq!(outcome.indices(), matched, "{case}: matches by {entry_point}");
        case.assert_bytes(&entry_point, "filterload_after", &outcome.filter_after);
        let merkle_block = entry_points::merkle_block(&block, &outcome);
        case.assert_bytes(&entry_point, "merkleblock", &merkle_block);
        assert_eq!(outcome.matches, by_slow.matches, "{case}: reasons by {entry_point}");
    }
    if case.str("kind") == "update" {
        only_by_inserted_outpoint(case, &filterload, &block);
    }
}

/// Checks a case of kind `update`. The case names the transactions that the filter would miss if it
/// inserted no outpoints. Without insertions, the filter must miss exactly these transactions.
fn only_by_inserted_outpoint(case: &Case, filterload: &[u8], block: &TestBlock) {
    let mut without_updates = SlowFilter::from_payload(filterload);
    without_updates.flags = 0;
    let found = without_updates.match_block(&block.block);
    let missed: Vec<usize> = case
        .indices("matched")
        .into_iter()
        .filter(|index| found.iter().all(|(at, _)| at != index))
        .collect();
    assert_eq!(missed, case.indices("only_by_inserted_outpoint"), "{case}");
    assert!(!missed.is_empty(), "{case}: no transaction depends on an inserted outpoint");
}

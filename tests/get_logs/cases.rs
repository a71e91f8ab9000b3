//! Runs the filters of the corpus. Each has the expected logs or error of go-ethereum and of alloy.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Bloom;
use alloy_rpc_types_eth::Filter;
use chainsieve::eth::audit::{FindingKind, Status};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::Semantics;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::audits::{Audits, audit, right_and_one_short};
use crate::readings::{BOTH, Reading, Refusal};
use testkit::eth::log_chains::{Chain, Corpus};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case<'a> {
    id: String,
    chain: String,
    category: String,
    #[serde(borrow)]
    filter: &'a RawValue,
    #[serde(rename = "note")]
    _note: Option<String>,
    expect: Expected,
    alloy: Option<Expected>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    /// Block number and log index of each log.
    Logs(Vec<[u64; 2]>),
    Error(String),
}

impl Expected {
    fn logs(&self) -> Option<&[[u64; 2]]> {
        match self {
            Self::Logs(logs) => Some(logs),
            Self::Error(_) => None,
        }
    }
}

impl Case<'_> {
    fn expected(&self, semantics: Semantics) -> &Expected {
        match semantics {
            Semantics::Geth => &self.expect,
            Semantics::Alloy => self.alloy.as_ref().unwrap_or(&self.expect),
            other => panic!("{other:?}"),
        }
    }

    /// Returns `true` if both semantics select the log. A semantics that rejects the filter is
    /// ignored, because the difference is then not in the number of topics.
    fn is_wanted_by_both(&self, log: &LocatedLog) -> bool {
        let place = [log.block_number, log.log_index];
        let readings = BOTH.map(|semantics| self.expected(semantics).logs());
        readings.into_iter().flatten().all(|logs| logs.contains(&place))
    }
}

/// Categories, with the number of their cases, and the number of cases that alloy reads
/// differently.
const CATEGORIES: [(&str, usize, usize); 55] = [
    ("absent", 7, 0),
    ("address", 15, 0),
    ("address-and-other-topic", 13, 0),
    ("address-and-topic0", 13, 0),
    ("address-list", 14, 0),
    ("address-list-empty", 5, 0),
    ("address-twice", 14, 0),
    ("address-unknown", 5, 0),
    ("address-upper-case", 15, 0),
    ("all-future", 2, 0),
    ("arity-1", 3, 0),
    ("arity-2", 3, 3),
    ("arity-3", 2, 2),
    ("arity-4", 3, 3),
    ("block-hash", 7, 0),
    ("both", 7, 0),
    ("defaults", 1, 0),
    ("earliest", 2, 0),
    ("exact", 6, 0),
    ("exact-plus-empty-list", 12, 12),
    ("exact-plus-null", 13, 13),
    ("five-topics", 2, 0),
    ("from-only", 3, 0),
    ("future", 3, 0),
    ("future-to-latest", 1, 0),
    ("hash-and-null-range", 2, 0),
    ("hash-and-range", 3, 0),
    ("hash-unknown", 3, 0),
    ("latest", 3, 0),
    ("leading-zero", 3, 3),
    ("null-in-addresses", 3, 3),
    ("null-in-or", 4, 0),
    ("null-last-in-or", 12, 3),
    ("number-as-number", 3, 3),
    ("one-block", 14, 0),
    ("only-topic2", 4, 0),
    ("or-both", 7, 0),
    ("pending", 1, 0),
    ("reversed", 2, 0),
    ("short-address", 3, 0),
    ("short-topic", 2, 0),
    ("swapped", 4, 0),
    ("tag-case", 3, 3),
    ("to-only", 2, 0),
    ("to-only-past", 1, 0),
    ("topic-upper-case", 11, 0),
    ("topic0", 13, 0),
    ("topic0-list", 12, 0),
    ("topic0-or", 5, 0),
    ("topic1-after-empty", 9, 0),
    ("topic1-after-null", 4, 0),
    ("topic1-at-0", 9, 0),
    ("topic2-and-address", 6, 0),
    ("topics-null", 13, 0),
    ("unknown-field", 3, 3),
];

/// Counts of what ran.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ran {
    /// Number of cases of each category, and of cases that alloy reads differently.
    categories: BTreeMap<String, (usize, usize)>,
    /// Numbers of answers with logs, of answers without logs, and of errors, under both semantics.
    outcomes: [usize; 3],
    /// Number of audits of the other semantics' answer.
    by_other_rules: usize,
    audits: Audits,
}

#[test]
fn every_filter_selects_what_geth_and_alloy_select() {
    let Some(corpus) = Corpus::open() else { return };
    let text = corpus.text("queries/cases.jsonl");
    let cases: Vec<Case<'_>> =
        text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect();
    let ids: BTreeSet<_> = cases.iter().map(|case| &case.id).collect();
    assert_eq!((cases.len(), ids.len()), (335, 335));

    let mut ran = Ran::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = corpus
            .chains
            .iter()
            .map(|(name, chain)| {
                let cases = cases.iter().filter(move |case| case.chain == *name);
                scope.spawn(move || run_all(chain, cases))
            })
            .collect();
        for thread in threads {
            ran.add(thread.join().expect("no case failed"));
        }
    });
    let categories = CATEGORIES.map(|(category, cases, own)| (category.to_owned(), (cases, own)));
    assert_eq!(ran.categories, BTreeMap::from(categories));
    assert_eq!(ran.outcomes, [435, 171, 64]);
    assert_eq!(ran.audits, Audits { complete: 345, wrong: 211, undecided: 36 });
    assert_eq!(ran.by_other_rules, 72);
}

fn run_all<'a>(chain: &Chain, cases: impl Iterator<Item = &'a Case<'a>>) -> Ran {
    let mut ran = Ran::default();
    for (index, case) in cases.enumerate() {
        let (cases, own) = ran.categories.entry(case.category.clone()).or_default();
        *cases += 1;
        *own += usize::from(case.alloy.is_some());
        for semantics in BOTH {
            run(chain, case, semantics, index, &mut ran);
        }
        by_alloy_itself(chain, case);
    }
    ran
}

fn run(chain: &Chain, case: &Case<'_>, semantics: Semantics, index: usize, ran: &mut Ran) {
    let at = format!("{}, {}, {semantics:?}", case.id, case.category);
    let found = Reading::of(chain, case.filter.get(), semantics);
    match (case.expected(semantics), found) {
        (Expected::Error(said), Err(refusal)) => {
            assert!(refusal.is(said), "{at}: {refusal:?}, expected {said:?}");
            ran.outcomes[2] += 1;
        }
        (Expected::Logs(places), Ok(reading)) => {
            assert_eq!(reading.places(), *places, "{at}");
            ran.outcomes[usize::from(places.is_empty())] += 1;
            // If both semantics have the same expected result, audit it under one of them, in turn.
            if case.alloy.is_none() && (semantics == Semantics::Geth) != index.is_multiple_of(2) {
                return;
            }
            let answer: Vec<_> = reading.logs.iter().copied().cloned().collect();
            let both = |log: &LocatedLog| case.is_wanted_by_both(log);
            ran.audits += right_and_one_short(chain, &reading, &answer, both, index);
            ran.by_other_rules += by_the_other_rules(chain, case, &reading);
        }
        (expected, Ok(reading)) => panic!("{at}: {:?}, expected {expected:?}", reading.places()),
        (expected, Err(refusal)) => panic!("{at}: {refusal:?}, expected {expected:?}"),
    }
}

/// Audits the answer of the other semantics, if it has other logs. The report is undecided, and
/// every finding is a difference in arity.
fn by_the_other_rules(chain: &Chain, case: &Case<'_>, reading: &Reading<'_>) -> usize {
    let [ours, theirs] = match reading.semantics {
        Semantics::Geth => BOTH,
        Semantics::Alloy => [Semantics::Alloy, Semantics::Geth],
        other => panic!("{other:?}"),
    }
    .map(|semantics| case.expected(semantics));
    let Some(places) = theirs.logs().filter(|_| theirs != ours) else { return 0 };
    let all = chain.run.blocks.iter().flat_map(|block| &block.logs);
    let answer: Vec<_> =
        all.filter(|log| places.contains(&[log.block_number, log.log_index])).cloned().collect();
    assert_eq!(answer.len(), places.len(), "{}", case.id);
    let report = audit(chain, reading, &answer);
    assert_eq!(report.status(), Status::Undecided, "{}", case.id);
    let are_arity = report
        .findings
        .iter()
        .all(|finding| matches!(finding.kind, FindingKind::ArityDependent { .. }));
    assert!(are_arity, "{}: {:?}", case.id, report.findings);
    1
}

/// Checks that alloy's own filter matches as the corpus expects, and that it rules out the same
/// blocks by their header blooms.
fn by_alloy_itself(chain: &Chain, case: &Case<'_>) {
    let json = case.filter.get();
    let at = format!("{}, {}", case.id, case.category);
    let ours = Reading::of(chain, json, Semantics::Alloy);
    match (serde_json::from_str::<Filter>(json), ours) {
        (Ok(filter), Ok(reading)) => {
            let expected = case.expected(Semantics::Alloy).logs().expect("logs");
            let all = chain.run.blocks.iter().flat_map(|block| &block.logs);
            let in_range =
                all.filter(|log| reading.blocks.contains(log.block_number, &log.block_hash));
            let found = in_range.filter(|log| filter.matches(&log.log));
            let found: Vec<_> = found.map(|log| [log.block_number, log.log_index]).collect();
            assert_eq!(found, expected, "{at}");
            let ruled_out = chain.run.blocks.iter().filter(|block| {
                let bloom = block.view().logs_bloom();
                !filter.matches_bloom(Bloom::new(*bloom.bytes().expect("256 bytes")))
            });
            assert!(ruled_out.map(|block| &block.number).eq(&reading.ruled_out), "{at}");
        }
        (Ok(_), Err(refusal)) => assert!(refusal.is_of_blocks(), "{at}: {refusal:?}"),
        (Err(error), Ok(_)) => panic!("{at}: alloy refuses it: {error}"),
        (Err(_), Err(Refusal::Query(_))) => {}
        (Err(error), Err(refusal)) => panic!("{at}: alloy {error}, here {refusal:?}"),
    }
}

impl Ran {
    fn add(&mut self, other: Self) {
        for (category, (cases, own)) in other.categories {
            let sum = self.categories.entry(category).or_default();
            *sum = (sum.0 + cases, sum.1 + own);
        }
        for (sum, count) in self.outcomes.iter_mut().zip(other.outcomes) {
            *sum += count;
        }
        self.by_other_rules += other.by_other_rules;
        self.audits += other.audits;
    }
}

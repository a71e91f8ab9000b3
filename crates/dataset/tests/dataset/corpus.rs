//! All data sets of the corpus, whole and damaged, against the outcomes of another program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{Check, Grade, HeaderBasis};
use chainsieve::eth::header::BlockRef;
use chainsieve_dataset::{Dataset, Order, Summary, Table, Verdict, rlp_headers};
use serde_json::Value;

use crate::tables::{Part, dataset, read};

/// A set of the corpus, and what is known of it.
pub(crate) struct Set {
    pub(crate) root: PathBuf,
    pub(crate) truth: Value,
    pub(crate) parts: Vec<Part>,
}

impl Set {
    pub(crate) fn open(root: &Path, id: &str) -> Self {
        let file = root.join("truth").join(format!("{id}.json"));
        let text = std::fs::read_to_string(file).expect("the truth");
        Self {
            root: root.to_owned(),
            truth: serde_json::from_str(&text).expect("JSON"),
            parts: read(&root.join("sets").join(id)),
        }
    }

    pub(crate) fn id(&self) -> &str {
        self.truth["id"].as_str().expect("a name")
    }

    /// States what is known of the chain.
    pub(crate) fn stated(&self, mut set: Dataset) -> Dataset {
        if self.truth["profile"] == "ethereum" {
            let byzantium = self.truth["byzantium"].as_u64().expect("a number");
            let name = self.id().to_owned();
            set = set.profile(
                ChainProfile::assumed(name, BloomSoundness::Exact, ReceiptsScope::EveryLog)
                    .with_statuses_since(byzantium),
            );
        }
        if self.truth["numbers"].is_null() {
            let [first, last] =
                ["first", "last"].map(|name| self.truth[name].as_u64().expect("a number"));
            set = set.range(first..=last);
        }
        // No chain of the corpus reaches it.
        set.amsterdam_since(u64::MAX)
    }

    pub(crate) fn with_headers(&self, set: Dataset) -> Dataset {
        let Some(file) = self.truth["headers"].as_str() else { return set };
        let rlp = std::fs::read(self.root.join(file)).expect("headers");
        set.headers(rlp_headers(rlp).expect("headers"))
    }

    pub(crate) fn anchor(&self) -> Option<BlockRef> {
        let anchor = &self.truth["anchor"];
        let hash = anchor["hash"].as_str()?.parse().expect("a hash");
        Some(BlockRef { number: anchor["number"].as_u64()?, hash })
    }
}

pub(crate) fn verify(set: Dataset) -> (Vec<Verdict>, Summary) {
    let mut verdicts = set.verify();
    let all: Vec<_> = verdicts.by_ref().map(|it| it.expect("no error")).collect();
    let summary = verdicts.summary();
    assert!(summary.is_whole);
    (all, summary)
}

/// Compares the checks of a verdict with those of the other program.
fn compare(verdict: &Verdict, truth: &Value, with_headers: bool, name: &str) {
    let name = format!("{name}: {verdict}, expected {truth}");
    let outcome = |check: &str| truth["checks"][check].as_str().unwrap_or("ok");
    let has = |check: Check| verdict.faults.iter().any(|fault| fault.check == check);
    let is_copy = |table: Table| {
        verdict.faults.iter().any(|fault| {
            let is_of = match fault.row {
                Some(chainsieve::eth::columns::Row::Logs(_)) => table == Table::Logs,
                Some(chainsieve::eth::columns::Row::Transactions(_)) => {
                    table == Table::Transactions
                }
                _ => false,
            };
            fault.check == Check::Copies && is_of
        })
    };
    assert_eq!(has(Check::HeaderRow), outcome("block_row") != "ok", "{name}");
    assert_eq!(has(Check::HeaderHash), outcome("header_hash") == "differs", "{name}");
    assert_eq!(has(Check::HeaderColumns), outcome("header_columns") == "differs", "{name}");
    // The trusted header replaces the row of the block, so its child is not accused.
    let is_broken = outcome("parent_link") == "broken" && !with_headers;
    assert_eq!(has(Check::ParentLink), is_broken, "{name}");
    assert_eq!(has(Check::BlockHash), outcome("block_hash") == "wrong", "{name}");
    assert_eq!(has(Check::Removed), truth["checks"]["removed_rows"] == 1, "{name}");
    assert_eq!(has(Check::LogIndex), outcome("log_index") == "wrong", "{name}");
    assert_eq!(is_copy(Table::Logs), outcome("log_index") == "duplicate", "{name}");
    assert_eq!(has(Check::TransactionIndex), outcome("transaction_index") == "wrong", "{name}");
    let copies = is_copy(Table::Transactions);
    assert_eq!(copies, outcome("transaction_index") == "duplicate", "{name}");
    assert_eq!(has(Check::TransactionCount), outcome("transaction_count") == "differs", "{name}");
    assert_eq!(has(Check::TransactionHash), outcome("transaction_hash") == "wrong", "{name}");
    assert_eq!(has(Check::LogsBloom), outcome("logs_bloom") == "differs", "{name}");
    assert_eq!(has(Check::ReceiptsRoot), outcome("receipts_root") == "differs", "{name}");
    assert_eq!(has(Check::Topics), outcome("topics") == "gap", "{name}");
    assert_eq!(verdict.receipts_root, outcome("receipts_root") == "equal", "{name}");
    if !with_headers {
        let is_recomputed = verdict.header != HeaderBasis::Unproven;
        assert_eq!(is_recomputed, outcome("header_hash") == "equal", "{name}");
    }
    // The transactions root needs more columns than receipts have.
    let mut why = truth["why"].as_array().cloned().unwrap_or_default();
    let is_other =
        |why: &mut Value| *why == "transactions_root" || (*why == "parent_link" && with_headers);
    let others = why.extract_if(.., is_other).count();
    if others > 0 && why.is_empty() {
        assert_ne!(verdict.grade, Grade::Wrong, "{name}");
    } else {
        assert_eq!(verdict.grade.name(), truth["verdict"], "{name}");
    }
}

#[test]
fn verdicts_are_those_of_another_program() {
    let Some((root, _)) = testkit::corpus::index("datasets") else { return };
    let mut sets: Vec<_> = std::fs::read_dir(root.join("truth"))
        .expect("the truth")
        .map(|file| file.expect("a file").path().file_stem().expect("a name").to_owned())
        .map(|id| id.into_string().expect("UTF-8"))
        .collect();
    sets.sort();
    let (mut compared, mut tied) = (0, 0);
    let mut damages = BTreeSet::new();
    for id in &sets {
        let set = Set::open(&root, id);
        let blocks = set.truth["blocks"].as_object().expect("blocks");
        for with_headers in [false, true] {
            let mut data = set.stated(dataset(&set.parts)).order(Order::Any);
            if with_headers {
                data = set.with_headers(data);
            } else if let Some(anchor) = set.anchor() {
                data = data.anchor(anchor);
            }
            let (verdicts, summary) = verify(data);
            let outcome = if with_headers { "with_headers" } else { "alone" };
            assert_eq!(verdicts.len(), blocks.len(), "{id}: {summary}");
            for verdict in &verdicts {
                let number = verdict.number.to_string();
                let truth = &blocks[&number][outcome];
                compare(verdict, truth, with_headers, &format!("{id} {outcome}"));
                if verdict.grade == Grade::Wrong {
                    let damage = set.truth["damaged_blocks"][&number]["damage"].as_str();
                    damages.extend(damage.map(str::to_owned));
                }
                compared += 1;
            }
            let mut unreadable: Vec<_> =
                summary.unreadable.iter().map(|file| Value::from(&*file.file)).collect();
            unreadable.sort_by_key(ToString::to_string);
            let expected = set.truth["expect"]["unreadable_files"].as_array();
            assert_eq!(Some(&unreadable), expected, "{id}");
            if !with_headers {
                let is_tied = |it: &&Verdict| it.header == HeaderBasis::Anchored;
                let count = verdicts.iter().filter(is_tied).count() as u64;
                assert_eq!(summary.anchored, count, "{id}: {summary}");
                assert_eq!(set.truth["expect"]["anchored"], count, "{id}: {summary}");
                tied += count;
            }
        }
    }
    println!("{} sets, {compared} verdicts, {tied} tied", sets.len());
    assert_eq!(sets.len(), 55);
    assert!(compared >= 2 * 1_431 && tied > 0, "{compared} verdicts, {tied} tied");
    assert!(damages.len() >= 35, "only {damages:?}");
}

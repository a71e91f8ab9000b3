//! The answers to `eth_getLogs`, compared with the logs of verified receipts.

use std::collections::BTreeSet;

use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve_provider::{Node, RpcError};
use serde_json::{Map, Value, json};

use super::ask::{called, words};
use super::blocks::{Block, still_has};
use super::queries;
use crate::audit::report::{AuditError, AuditReport, Difference, rules};

const GET_LOGS: &str = "eth_getLogs";

/// The conditions of a query: `address` and `topics`.
type Conditions = Map<String, Value>;

/// The rules that the node's answers showed, where implementations differ and none is wrong.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// A query with "any" at its end that was answered by geth's rules.
    geth: Option<Value>,
    /// A query with "any" at its end that was answered by alloy's rules.
    alloy: Option<Value>,
    /// Set once a query with `null` among alternatives was refused.
    refuses_null: bool,
}

impl Observed {
    /// Reports which rules the node follows, and a difference if it follows both geth's and
    /// alloy's.
    pub(super) fn report(self, report: &mut AuditReport) {
        if self.refuses_null {
            report.note("null among alternatives: refused, where geth and alloy read \"any\"");
        }
        match (self.geth, self.alloy) {
            (Some(geth), Some(alloy)) => {
                let what = "some queries are answered by geth's rules, others by alloy's";
                let values = (format!("alloy's rules, as for {alloy}"), "geth's rules");
                let mut difference = Difference::new(rules::LOGS, report.from, what, values);
                difference.query = Some(geth);
                report.check(rules::LOGS, Some(difference));
            }
            (Some(_), None) => report.note("queries that end in \"any\": geth's rules"),
            (None, Some(_)) => report.note("queries that end in \"any\": alloy's rules"),
            (None, None) => {}
        }
    }
}

/// Asks queries about consecutive blocks, and compares the answers.
pub(super) fn audit(
    node: &Node,
    blocks: &[Block],
    observed: &mut Observed,
    report: &mut AuditReport,
) -> Result<(), AuditError> {
    let logs: Vec<LocatedLog> = blocks.iter().flat_map(|block| block.logs.clone()).collect();
    let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
    let window = Place::Range(first.at.number, last.at.number);
    let mut asker = Asker { node, blocks, observed, unanswered: None };
    let mut questions = Vec::new();
    for conditions in queries::about(&logs) {
        questions.push((window, conditions));
    }
    for (index, block) in blocks.iter().enumerate() {
        let Some(emitter) = block.logs.first() else {
            questions.push((Place::Hash(index), Conditions::new()));
            continue;
        };
        let address = json!({ "address": emitter.log.address }).as_object().cloned();
        let address = address.unwrap_or_default();
        let number = block.at.number;
        questions.push((Place::Hash(index), Conditions::new()));
        questions.push((Place::Hash(index), address.clone()));
        questions.push((Place::Range(number, number), address));
    }
    for (place, conditions) in questions {
        let difference = asker.ask(place, &conditions)?;
        if let Some(why) = asker.unanswered.take() {
            report.leave_undecided(|| why);
            continue;
        }
        let difference = match difference {
            Some(difference) => {
                let smallest = asker.smallest(place, conditions, difference);
                // The logs of a branch that the node has left since are no measure of its answers.
                still_has(node, last.at)?;
                Some(smallest)
            }
            None => None,
        };
        // Many queries lead to the same smallest one.
        let is_new = |difference: &Difference| !report.differences.contains(difference);
        let difference = difference.filter(is_new);
        report.check(rules::LOGS, difference);
        if report.is_full() {
            break;
        }
    }
    Ok(())
}

/// The blocks of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Range(u64, u64),
    /// The block with this index in the window, by its hash.
    Hash(usize),
}

struct Asker<'a> {
    node: &'a Node,
    blocks: &'a [Block],
    observed: &'a mut Observed,
    /// The reason why the node did not answer the last query.
    unanswered: Option<String>,
}

/// The answer of a node: logs, or the reason why there are none.
type Answer = Result<Vec<LocatedLog>, String>;

/// JSON-RPC's code for parameters that are invalid.
const INVALID_PARAMS: i64 = -32_602;

impl Asker<'_> {
    /// Asks a query, and compares the answer.
    fn ask(
        &mut self,
        place: Place,
        conditions: &Conditions,
    ) -> Result<Option<Difference>, AuditError> {
        // Without an answer, nothing is compared.
        let Some(answer) = self.answer(place, conditions)? else { return Ok(None) };
        // The vectors leave `null` among alternatives open.
        if answer.is_err() && conditions.get("topics") == Some(&json!([[null]])) {
            self.observed.refuses_null = true;
            return Ok(None);
        }
        let filter = self.filter(place, conditions);
        let expected = |semantics| {
            let query = LogQuery::from_json(&filter.to_string(), semantics);
            let query = query.expect("the audit's own queries are valid");
            self.logs_of(place).filter(|log| query.matches(&log.log, semantics)).collect()
        };
        let geth: Vec<&LocatedLog> = expected(Semantics::Geth);
        let alloy: Vec<&LocatedLog> = expected(Semantics::Alloy);
        let Some(difference) = compare(&geth, &answer, self.number(place)) else {
            if geth != alloy {
                self.observed.geth.get_or_insert(filter);
            }
            return Ok(None);
        };
        if geth != alloy && compare(&alloy, &answer, 0).is_none() {
            self.observed.alloy.get_or_insert(filter);
            return Ok(None);
        }
        Ok(Some(Difference { query: Some(filter), ..difference }))
    }

    /// Returns the number of the first block of a query.
    fn number(&self, place: Place) -> u64 {
        match place {
            Place::Range(from, _) => from,
            Place::Hash(index) => self.blocks[index].at.number,
        }
    }

    fn logs_of(&self, place: Place) -> impl Iterator<Item = &LocatedLog> {
        let (from, to) = match place {
            Place::Range(from, to) => (from, to),
            Place::Hash(_) => (self.number(place), self.number(place)),
        };
        let blocks = self.blocks.iter();
        let blocks = blocks.filter(move |block| (from..=to).contains(&block.at.number));
        blocks.flat_map(|block| &block.logs)
    }

    /// Returns the filter object of a query.
    fn filter(&self, place: Place, conditions: &Conditions) -> Value {
        let mut filter = match place {
            Place::Range(from, to) => json!({
                "fromBlock": format!("{from:#x}"),
                "toBlock": format!("{to:#x}"),
            }),
            Place::Hash(index) => json!({ "blockHash": self.blocks[index].at.hash }),
        };
        if let Some(filter) = filter.as_object_mut() {
            filter.extend(conditions.clone());
        }
        filter
    }

    /// Asks for the logs of a query. A range that the node refuses is halved: providers word their
    /// limits in many ways. Returns `None` if the node does not answer about a single block, as
    /// when it has no logs that are so old, and keeps the reason.
    fn answer(
        &mut self,
        place: Place,
        conditions: &Conditions,
    ) -> Result<Option<Answer>, AuditError> {
        let filter = self.filter(place, conditions);
        let answer = self.node.read(GET_LOGS, &json!([filter]), LocatedLog::list_from_json);
        let error = match answer {
            Ok(logs) => return Ok(Some(logs.map_err(|error| words(self.node, &error)))),
            Err(error) => error,
        };
        if error.is_transient() {
            return called(GET_LOGS, Err(error));
        }
        match (place, error.origin()) {
            (
                Place::Range(from, to),
                RpcError::LimitExceeded { .. } | RpcError::TooLarge { .. } | RpcError::Node { .. },
            ) if from < to => {
                let middle = from + (to - from) / 2;
                let mut all = Vec::new();
                for half in [Place::Range(from, middle), Place::Range(middle + 1, to)] {
                    match self.answer(half, conditions)? {
                        Some(Ok(logs)) => all.extend(logs),
                        other => return Ok(other),
                    }
                    // More logs than all blocks have are wrong already, and would fill the memory.
                    if all.len() > self.blocks.iter().map(|block| block.logs.len()).sum() {
                        break;
                    }
                }
                Ok(Some(Ok(all)))
            }
            // A single block is no limit, and the audit's queries are valid.
            (_, RpcError::Node { code: INVALID_PARAMS, .. }) => Ok(Some(Err(error.to_string()))),
            (
                _,
                RpcError::LimitExceeded { .. } | RpcError::TooLarge { .. } | RpcError::Node { .. },
            ) => {
                self.unanswered = Some(format!("{GET_LOGS} of {filter}: {error}"));
                Ok(None)
            }
            _ => called(GET_LOGS, Err(error)),
        }
    }

    /// Returns the difference in the answer to a smaller query, as long as there is one: of fewer
    /// blocks, then with fewer conditions.
    ///
    /// A smaller query that fails takes nothing from the difference that is known.
    fn smallest(
        &mut self,
        place: Place,
        conditions: Conditions,
        difference: Difference,
    ) -> Difference {
        let (mut place, mut conditions, mut difference) = (place, conditions, difference);
        if let Place::Range(from, to) = place {
            for number in from..=to {
                let single = Place::Range(number, number);
                if from < to
                    && let Ok(Some(found)) = self.ask(single, &conditions)
                {
                    (place, difference) = (single, found);
                    break;
                }
            }
        }
        for smaller in smaller(&conditions) {
            if let Ok(Some(found)) = self.ask(place, &smaller) {
                (conditions, difference) = (smaller, found);
                if conditions.is_empty() {
                    break;
                }
            }
        }
        self.unanswered = None;
        difference
    }
}

/// Returns queries with fewer conditions, the smallest first.
fn smaller(conditions: &Conditions) -> Vec<Conditions> {
    let mut smaller = Vec::new();
    if !conditions.is_empty() {
        smaller.push(Conditions::new());
    }
    if conditions.len() > 1 {
        for name in conditions.keys() {
            let one = conditions.iter().filter(|(member, _)| *member == name);
            smaller.push(one.map(|(name, value)| (name.clone(), value.clone())).collect());
        }
    }
    smaller
}

/// Compares an answer with the expected logs, and returns the first difference.
fn compare(expected: &[&LocatedLog], answer: &Answer, block: u64) -> Option<Difference> {
    let differs = |block, what: String, values: (String, String)| {
        Some(Difference::new(rules::LOGS, block, what, values))
    };
    let count = |logs: usize| format!("{logs} logs");
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let values = (count(expected.len()), error.clone());
            return differs(block, "no logs, but an error".into(), values);
        }
    };
    let found: BTreeSet<_> = answer.iter().map(place).collect();
    let missing = expected.iter().find(|log| !found.contains(&place(log)));
    if let Some(missing) = missing {
        let got = format!("{}, without this log", count(answer.len()));
        let values = (missing.to_json(), got);
        return differs(missing.block_number, "a log is missing".into(), values);
    }
    let right: BTreeSet<_> = expected.iter().map(|log| place(log)).collect();
    if let Some(other) = answer.iter().find(|log| !right.contains(&place(log))) {
        let values = (count(expected.len()), other.to_json());
        return differs(block, "a log does not belong to the answer".into(), values);
    }
    if answer.len() != expected.len() {
        let values = (count(expected.len()), count(answer.len()));
        return differs(block, "a log occurs twice".into(), values);
    }
    let mut pairs = expected.iter().zip(answer);
    let (wrong, got) = pairs.find(|(expected, got)| !is_same(expected, got))?;
    let is_order = place(wrong) != place(got);
    let what = if is_order { "the order of the logs" } else { "a member of a log" };
    differs(wrong.block_number, what.into(), (wrong.to_json(), got.to_json()))
}

/// The place of a log, which identifies it.
fn place(log: &LocatedLog) -> (chainsieve::alloy_primitives::B256, u64) {
    (log.block_hash, log.log_index)
}

/// Returns `true` if two logs are the same. Members that receipts do not contain are compared only
/// if both logs have them.
fn is_same(expected: &LocatedLog, got: &LocatedLog) -> bool {
    let got = LocatedLog {
        block_timestamp: got.block_timestamp.or(expected.block_timestamp),
        transaction_hash: match expected.transaction_hash {
            None => None,
            known => got.transaction_hash.or(known),
        },
        ..got.clone()
    };
    got == *expected
}

//! Known findings: a run fails only on other ones.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::pack::{FORMAT, Pack};
use crate::run::{CaseRun, Outcome, SubjectRun};

/// Why a text is no baseline.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// The text is not JSON of the format.
    #[error("not a baseline: {0}")]
    Malformed(String),
    /// The baseline has another version of the format.
    #[error("baseline of version {0}, but this program reads version {FORMAT}")]
    Version(u64),
}

/// A finding as a baseline keeps it: the word of the outcome, and for a wrong value its hash.
///
/// Texts are not kept: messages of errors contain addresses, line numbers and times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Known findings by the name of the implementation and the id of the case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    baseline: u64,
    subjects: BTreeMap<String, BTreeMap<String, Known>>,
}

impl Default for Baseline {
    fn default() -> Self {
        Self { baseline: FORMAT, subjects: BTreeMap::new() }
    }
}

/// A case that differs from the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The name of the implementation.
    pub subject: String,
    /// The id of the case.
    pub id: String,
    /// The outcome in the baseline; `None` if the case is not in it.
    pub before: Option<String>,
    /// The outcome of the run.
    pub now: &'static str,
}

/// A run compared with a baseline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Judgement {
    /// Findings that the baseline does not have, or has with another outcome or another value: a
    /// known wrong answer must not hide a worse one.
    pub regressions: Vec<Change>,
    /// Findings of the baseline whose cases agree now.
    pub fixed: Vec<Change>,
    /// The number of findings that the baseline has.
    pub known: usize,
}

impl Baseline {
    /// Parses a baseline.
    ///
    /// # Errors
    /// If the text is not JSON of the format.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        let malformed = |error: serde_json::Error| BaselineError::Malformed(error.to_string());
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        match value["baseline"].as_u64() {
            Some(version) if version != FORMAT => Err(BaselineError::Version(version)),
            _ => serde_json::from_value(value).map_err(malformed),
        }
    }

    /// Returns the baseline as JSON, sorted, so that two versions can be compared line by line.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("the keys are strings");
        format!("{json}\n")
    }

    /// Compares runs with the baseline. Cases that were not run are neither known nor fixed.
    pub fn judge(&self, runs: &[SubjectRun]) -> Judgement {
        let mut judgement = Judgement::default();
        for (subject, case) in cases(runs) {
            let before = self.subjects.get(subject).and_then(|known| known.get(&case.id));
            let change = || Change {
                subject: subject.to_owned(),
                id: case.id.clone(),
                before: before.map(|known| known.outcome.clone()),
                now: case.outcome.word(),
            };
            match (before, known(case)) {
                (Some(before), Some(now)) if *before == now => judgement.known += 1,
                (_, Some(_)) => judgement.regressions.push(change()),
                (Some(_), None) if matches!(case.outcome, Outcome::Agrees { .. }) => {
                    judgement.fixed.push(change());
                }
                _ => {}
            }
        }
        judgement
    }

    /// Returns the ids of the baseline that no case of the pack has: nothing can be known of them any
    /// more. Each id is listed once.
    pub fn not_in(&self, pack: &Pack) -> Vec<String> {
        let ids: BTreeSet<_> =
            pack.areas().iter().flat_map(|area| &area.cases).map(|case| &case.id).collect();
        let known: BTreeSet<_> = self.subjects.values().flat_map(BTreeMap::keys).collect();
        known.difference(&ids).map(|&id| id.clone()).collect()
    }

    /// Replaces what the baseline has of the cases that were run.
    pub fn update(&mut self, runs: &[SubjectRun]) {
        for (subject, case) in cases(runs) {
            let subject = self.subjects.entry(subject.to_owned()).or_default();
            match (known(case), &case.outcome) {
                (Some(known), _) => drop(subject.insert(case.id.clone(), known)),
                (None, Outcome::Agrees { .. }) => drop(subject.remove(&case.id)),
                // What was not run may still be wrong.
                _ => {}
            }
        }
        self.subjects.retain(|_, known| !known.is_empty());
    }
}

/// Returns all cases of runs, with the name of the implementation. The version is left out, so that
/// a baseline outlives an upgrade.
fn cases(runs: &[SubjectRun]) -> impl Iterator<Item = (&str, &CaseRun)> {
    runs.iter().flat_map(|run| {
        let cases = run.areas.iter().flat_map(|area| &area.cases);
        cases.map(|case| (run.subject.name.as_str(), case))
    })
}

fn known(case: &CaseRun) -> Option<Known> {
    case.outcome
        .is_finding()
        .then(|| Known { outcome: case.outcome.word().to_owned(), sha256: case.sha256.clone() })
}

//! Kinds of findings: hundreds of findings of an area often have one cause.

use crate::run::{AreaRun, Outcome};

/// Number of characters by which texts are told apart. What follows often repeats the input.
const COMPARED: usize = 60;

/// Findings of an area that have one outcome, and, if they are errors or refusals, one text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FindingKind<'r> {
    /// The number of findings.
    pub number: usize,
    /// The word for the outcome.
    pub outcome: &'static str,
    /// The text of the smallest finding; `None` for wrong values.
    pub text: Option<&'r str>,
    /// The id of the finding with the smallest input.
    pub smallest: &'r str,
}

impl FindingKind<'_> {
    fn has(&self, outcome: &Outcome) -> bool {
        self.outcome == outcome.word() && self.text.map(compared) == text(outcome).map(compared)
    }
}

impl AreaRun {
    /// Returns the kinds of the findings, the most frequent first. Texts that differ in numbers only,
    /// such as lengths and addresses, are of one kind.
    pub fn kinds(&self) -> Vec<FindingKind<'_>> {
        let mut kinds: Vec<FindingKind<'_>> = Vec::new();
        // The smallest inputs come first.
        for (case, _) in self.findings() {
            let outcome = &case.outcome;
            match kinds.iter_mut().find(|kind| kind.has(outcome)) {
                Some(kind) => kind.number += 1,
                None => kinds.push(FindingKind {
                    number: 1,
                    outcome: outcome.word(),
                    text: text(outcome),
                    smallest: &case.id,
                }),
            }
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.number));
        kinds
    }
}

fn text(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Refused(text) | Outcome::Error(text) => Some(text),
        _ => None,
    }
}

/// Returns what is compared of a text.
fn compared(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).take(COMPARED).collect()
}

//! Subjects: implementations that answer questions.

mod in_process;
mod incoming;
mod process;
mod running;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use crate::answer::{Answer, Failure};

pub use in_process::InProcess;
pub use process::{Limits, Process};

/// Who a subject is, and what it can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Introduction {
    /// The name of the implementation.
    pub name: String,
    /// The version of the implementation.
    pub version: String,
    /// The programming language of the implementation.
    pub language: String,
    /// The areas that the subject supports.
    pub areas: Vec<String>,
    /// The URL of an Ethereum node that the subject has started, for the areas that the runner asks
    /// over JSON-RPC.
    pub rpc: Option<String>,
}

/// Maximum length in characters of the name, the version and the language of a subject, and of the
/// names of its areas: a report has the name of the subject beside each case.
const MAX_NAME: usize = 200;
/// Maximum number of areas of a subject.
const MAX_AREAS: usize = 1000;

impl Introduction {
    /// Checks that reports can have the texts of the introduction in each line.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let Self { name, version, language, areas, rpc: _ } = self;
        let names = [("name", name), ("version", version), ("language", language)];
        let areas_of = areas.iter().map(|area| ("areas", area));
        for (member, text) in names.into_iter().chain(areas_of) {
            if text.chars().nth(MAX_NAME).is_some() {
                let reason = format!("a text of {member} has more than {MAX_NAME} characters");
                return Err(StartError::Malformed(reason));
            }
            if text.chars().any(char::is_control) {
                let reason = format!("a text of {member} contains a control character");
                return Err(StartError::Malformed(reason));
            }
        }
        if areas.len() > MAX_AREAS {
            return Err(StartError::Malformed(format!("more than {MAX_AREAS} areas")));
        }
        Ok(())
    }

    /// Returns `true` if both are of the same implementation with the same areas. Their order has no
    /// meaning, and a node has another address after each start.
    fn is_same(&self, other: &Self) -> bool {
        let who = |of: &Self| (of.name.clone(), of.version.clone(), of.language.clone());
        let areas = |of: &Self| of.areas.iter().cloned().collect::<BTreeSet<_>>();
        who(self) == who(other) && areas(self) == areas(other)
    }
}

/// Why a subject cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The process cannot be started.
    #[error("cannot be started: {0}")]
    Spawn(String),
    /// The subject did not introduce itself.
    #[error("did not introduce itself: {0}")]
    NoIntroduction(#[from] Failure),
    /// The introduction lacks a member, or a member has another type.
    #[error("invalid introduction: {0}")]
    Malformed(String),
    /// The subject speaks another version of the protocol.
    #[error("speaks version {0} of the protocol, but this program speaks version 1")]
    Version(String),
}

/// Why no further question of an area was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "gave up after {failures} failures in a row (one with several questions open is charged to none of them); the last: {last}"
)]
#[non_exhaustive]
pub struct GaveUp {
    /// The number of consecutive failures.
    pub failures: u32,
    /// The last failure.
    pub last: String,
}

/// A question, with the number by which the caller knows it.
pub type Question = (usize, Value);

/// An implementation under test.
pub trait Subject {
    /// Starts the subject, which introduces itself.
    ///
    /// # Errors
    /// If the subject cannot be run.
    fn start(&mut self) -> Result<Introduction, StartError>;

    /// Asks one question of an area and returns the answer.
    fn ask(&mut self, area: &str, input: &Value) -> Answer;

    /// Asks questions of an area. `answered` receives the number of the question, the answer and
    /// the time, in any order. An answer that turns out to be wrong by the protocol is followed by
    /// an [`Answer::Failed`] to the same question, which replaces it.
    ///
    /// # Errors
    /// If the subject fails so often that the remaining questions are not asked.
    fn ask_all(
        &mut self,
        area: &str,
        questions: &mut dyn Iterator<Item = Question>,
        answered: &mut dyn FnMut(usize, Answer, Duration),
    ) -> Result<(), GaveUp> {
        for (number, input) in questions {
            let asked = std::time::Instant::now();
            let answer = self.ask(area, &input);
            answered(number, answer, asked.elapsed());
        }
        Ok(())
    }

    /// Returns the maximum time without an answer, which also holds for a node that the subject has
    /// started.
    fn answer_limit(&self) -> Duration {
        Limits::default().answer
    }

    /// Stops the subject, and returns the faults that belong to no case.
    fn stop(&mut self) -> Vec<String> {
        Vec::new()
    }
}

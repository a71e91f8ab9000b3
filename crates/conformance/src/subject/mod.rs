//! Subjects: implementations that answer questions.

mod in_process;
mod incoming;
mod process;
mod running;

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
#[error("gave up after {failures} failures without one answer; the last: {last}")]
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

    /// Stops the subject, and returns the faults that belong to no case.
    fn stop(&mut self) -> Vec<String> {
        Vec::new()
    }
}

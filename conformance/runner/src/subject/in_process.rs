//! A subject in the same process, for tests in Rust.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;

use super::{Introduction, StartError, Subject};
use crate::answer::{Answer, Failure};

/// An implementation that a closure calls. A panic of the closure is a finding, not the end of the
/// run.
pub struct InProcess<F> {
    introduction: Introduction,
    answer: F,
}

impl<F: FnMut(&str, &Value) -> Answer> InProcess<F> {
    /// Returns a subject whose closure answers a question, given the area and the input.
    pub fn new(name: &str, version: &str, areas: &[&str], answer: F) -> Self {
        let introduction = Introduction {
            name: name.to_owned(),
            version: version.to_owned(),
            language: "rust".to_owned(),
            areas: areas.iter().map(|&area| area.to_owned()).collect(),
            rpc: None,
        };
        Self { introduction, answer }
    }
}

impl<F> fmt::Debug for InProcess<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { introduction, answer: _ } = self;
        f.debug_struct("InProcess").field("introduction", introduction).finish_non_exhaustive()
    }
}

impl<F: FnMut(&str, &Value) -> Answer> Subject for InProcess<F> {
    fn start(&mut self) -> Result<Introduction, StartError> {
        Ok(self.introduction.clone())
    }

    fn ask(&mut self, area: &str, input: &Value) -> Answer {
        // A closure that is left in a broken state answers wrongly, and the run reports that.
        let answered = catch_unwind(AssertUnwindSafe(|| (self.answer)(area, input)));
        answered.unwrap_or_else(|panic| {
            Answer::Failed(Failure::Panicked(message_of(panic.as_ref()).to_owned()))
        })
    }
}

/// Returns the message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref().copied()).unwrap_or("without a message")
}

//! What a subject answers, and what the runner notices instead of an answer.

use std::time::Duration;

use bitcoin_hashes::{Hash as _, sha256};
use serde_json::{Value, json};
use thiserror::Error;

/// The answer of a subject to one case.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// The result: an object whose members the area defines.
    Value(Value),
    /// The implementation refused the input with its documented error; the text is free.
    Invalid(String),
    /// The implementation has no such call; the reason.
    Skipped(String),
    /// The implementation crashed, and the subject caught it: an assertion, a division by zero, an
    /// error of internals.
    Error(String),
    /// The subject gave no usable answer.
    Failed(Failure),
}

impl Answer {
    /// Returns an answer from a result: an error means that the implementation refused the input.
    pub fn from_result<E: std::fmt::Display>(result: Result<Value, E>) -> Self {
        result.map_or_else(|error| Self::Invalid(error.to_string()), Self::Value)
    }

    /// Returns the answer as the protocol has it, without `seq`.
    pub fn json(&self) -> Value {
        match self {
            Self::Value(value) => json!({ "value": value }),
            Self::Invalid(text) => json!({ "invalid": text }),
            Self::Skipped(why) => json!({ "skipped": why }),
            Self::Error(text) => json!({ "error": text }),
            Self::Failed(failure) => json!({ "error": failure.to_string() }),
        }
    }
}

/// Returns the SHA-256 of a value, which does not depend on the order of members: it has no meaning.
pub(crate) fn digest(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    hex::encode(sha256::Hash::hash(value.to_string().as_bytes()).as_byte_array())
}

/// Why a subject gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Failure {
    /// The process ended.
    #[error("the process ended ({status}){}", last_words(.stderr))]
    Died {
        /// How the process ended.
        status: String,
        /// The end of its standard error.
        stderr: String,
    },
    /// No line came in time.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// The process closed its standard output, but runs on.
    #[error("closed its standard output without ending")]
    ClosedOutput,
    /// The process failed, and the attempt to start it again failed too.
    #[error("cannot be started again: {0}")]
    NotRestarted(String),
    /// The process does not read its standard input.
    #[error("does not read its standard input")]
    NotReading,
    /// A line is longer than this number of bytes.
    #[error("a line of more than {0} bytes")]
    LongLine(usize),
    /// A line breaks the rules of the protocol.
    #[error("protocol violation: {0}")]
    Protocol(#[from] Violation),
    /// The closure of an [`InProcess`](crate::InProcess) subject panicked.
    #[error("panicked: {0:?}")]
    Panicked(String),
    /// A node could not be reached or prepared, or its answer is not JSON-RPC.
    #[error("{0}")]
    Node(String),
}

fn last_words(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr:?}") }
}

/// A line that breaks the rules of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// The line is not a JSON object. The line is shortened.
    #[error("not a JSON object: {0:?}; only answers may go to standard output")]
    NotAnObject(String),
    /// A member of the line is there twice. The name is shortened.
    #[error("the member {0:?} twice")]
    RepeatedMember(String),
    /// The line has no number `seq`. The line is shortened.
    #[error("no seq: {0:?}")]
    NoSeq(String),
    /// No question had this `seq`.
    #[error("an answer to seq {0}, which was not asked")]
    UnknownSeq(u64),
    /// The question with this `seq` was answered before.
    #[error("a second answer to seq {0}")]
    RepeatedSeq(u64),
    /// The line has not exactly one of `value`, `invalid`, `skipped` and `error`.
    #[error("{0} of value, invalid, skipped and error instead of one")]
    NotOneAnswer(usize),
    /// The member is not of its type: `value` is an object, the others are text.
    #[error("{member} is {got}: value is an object, and invalid, skipped and error are strings")]
    WrongType {
        /// The member.
        member: &'static str,
        /// The type of what came, with its article.
        got: &'static str,
    },
}

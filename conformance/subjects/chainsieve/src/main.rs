//! Answers of chainsieve to the questions of the conformance vectors, on standard input and output. The
//! argument, `geth` or `alloy`, names the rules for log queries where nodes differ.
//!
//! The library has several ways to most answers: one value or a batch, decoded once or anew, on each
//! [`Backend`](chainsieve::simd::Backend) of the CPU. All of them are asked, so that the vectors
//! judge each of them. If two differ, the answer is an error that names them.

mod btc;
mod eth;
mod filter;

use core::fmt::{Debug, Display};
use std::{env, io};

use chainsieve::eth::log_query::Semantics;
use chainsieve_conformance::{Answer, InProcess, answer_questions};
use serde_json::Value;

fn main() -> io::Result<()> {
    let semantics = env::args().nth(1).map(|name| name.parse::<Semantics>());
    let semantics = semantics.transpose().map_err(io::Error::other)?.unwrap_or_default();
    let areas: Vec<_> = areas().map(|(name, _)| name).collect();
    let ask = move |area: &str, input: &Value| answer(area, input, semantics);
    let mut subject = InProcess::new("chainsieve", env!("CARGO_PKG_VERSION"), &areas, ask);
    answer_questions(&mut subject, io::stdin().lock(), io::stdout().lock())
}

/// Answers the questions of an area.
type Handler = fn(&Question<'_>) -> Result<Value, Refusal>;

fn areas() -> impl Iterator<Item = (&'static str, Handler)> {
    btc::AREAS.into_iter().chain(eth::AREAS).chain(filter::AREAS)
}

/// Answers a question.
fn answer(area: &str, input: &Value, semantics: Semantics) -> Answer {
    let Some((_, handler)) = areas().find(|(name, _)| *name == area) else {
        return Answer::Skipped(format!("no area {area}"));
    };
    match handler(&Question { input, semantics }) {
        Ok(value) => Answer::Value(value),
        Err(Refusal::Invalid(text)) => Answer::Invalid(text),
        Err(Refusal::Skipped(why)) => Answer::Skipped(why),
        Err(Refusal::Malformed(text) | Refusal::Contradiction(text)) => Answer::Error(text),
    }
}

/// Why a question has no value as its answer.
#[derive(Debug)]
enum Refusal {
    /// The library refuses the input.
    Invalid(String),
    /// The library has no such call.
    Skipped(String),
    /// The question itself lacks a member.
    Malformed(String),
    /// Two ways of the library to the answer differ.
    Contradiction(String),
}

/// Returns the refusal for an error of the library.
fn invalid(error: impl Display) -> Refusal {
    Refusal::Invalid(error.to_string())
}

/// Checks that another way of the library leads to the same answer.
fn same<T: PartialEq + Debug>(way: impl Display, other: &T, answer: &T) -> Result<(), Refusal> {
    if other == answer {
        return Ok(());
    }
    Err(Refusal::Contradiction(format!("{way} answers {other:?} instead of {answer:?}")))
}

/// The input of a question.
#[derive(Debug, Clone, Copy)]
struct Question<'a> {
    input: &'a Value,
    /// The rules for log queries where nodes differ.
    semantics: Semantics,
}

impl<'a> Question<'a> {
    /// Returns a part of the input, to read its members.
    fn part(self, input: &'a Value) -> Self {
        Self { input, ..self }
    }

    /// Reads a member with a function that returns `None` if the value has the wrong type.
    fn member<T>(self, name: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<T, Refusal> {
        let value = self.input.get(name).and_then(read);
        value.ok_or_else(|| Refusal::Malformed(format!("{name} is missing or malformed")))
    }

    fn value(self, name: &str) -> Result<&'a Value, Refusal> {
        self.member(name, Some)
    }

    fn text(self, name: &str) -> Result<&'a str, Refusal> {
        self.member(name, Value::as_str)
    }

    fn bytes(self, name: &str) -> Result<Vec<u8>, Refusal> {
        self.member(name, unhex)
    }

    fn number<N: TryFrom<u64>>(self, name: &str) -> Result<N, Refusal> {
        self.member(name, number)
    }

    /// Reads a list whose items are read by `read`.
    fn list<T>(self, name: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Vec<T>, Refusal> {
        self.member(name, |value| value.as_array()?.iter().map(&read).collect())
    }
}

/// Reads lowercase hex without `0x`.
fn unhex(value: &Value) -> Option<Vec<u8>> {
    hex::decode(value.as_str()?).ok()
}

fn number<N: TryFrom<u64>>(value: &Value) -> Option<N> {
    value.as_u64()?.try_into().ok()
}

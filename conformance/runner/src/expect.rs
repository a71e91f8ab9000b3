//! Expected answers, and the comparison with a subject's answer.

use bitcoin_hashes::{Hash as _, sha256};
use serde_json::{Number, Value, json};

use crate::answer::Answer;

/// An answer that agrees.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Expected {
    /// An object: each of its members must be in the answer and be equal.
    Value(Value),
    /// A refusal of the input; the class is for people, and any refusal agrees.
    Invalid(String),
}

/// An answer that agrees, with the implementations that give it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Alternative {
    /// The answer.
    pub answer: Expected,
    /// The implementations or texts that give this answer.
    pub by: Vec<String>,
}

/// The answers of a case that agree.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Expect {
    /// One answer.
    One(Expected),
    /// One of several answers.
    AnyOf(Vec<Alternative>),
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Comparison {
    /// The answer agrees; the implementations that give this answer, if there are several answers.
    Agrees {
        /// The members `by` of the alternative.
        by: Vec<String>,
    },
    /// The answer is another value: the JSON pointer of the first member that differs.
    Differs {
        /// A JSON pointer into the expected value.
        at: String,
    },
    /// The subject refused the input, but a value is expected.
    Refused,
    /// The subject answered with a value, but a refusal is expected.
    Accepted,
}

impl Expected {
    /// Compares a value or a refusal.
    fn compare(&self, answer: Result<&Value, ()>) -> Comparison {
        match (self, answer) {
            (Self::Value(expected), Ok(got)) => match difference(expected, got) {
                None => Comparison::Agrees { by: Vec::new() },
                Some(at) => Comparison::Differs { at },
            },
            (Self::Invalid(_), Err(())) => Comparison::Agrees { by: Vec::new() },
            (Self::Value(_), Err(())) => Comparison::Refused,
            (Self::Invalid(_), Ok(_)) => Comparison::Accepted,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Value(value) => json!({ "value": value }),
            Self::Invalid(class) => json!({ "invalid": class }),
        }
    }
}

impl Expect {
    /// Compares an answer. With `by`, only the alternatives of this implementation agree.
    ///
    /// Returns `None` if the answer is neither a value nor a refusal.
    pub fn compare(&self, answer: &Answer, by: Option<&str>) -> Option<Comparison> {
        let answer = match answer {
            Answer::Value(value) => Ok(value),
            Answer::Invalid(_) => Err(()),
            _ => return None,
        };
        let alternatives = match self {
            Self::One(expected) => return Some(expected.compare(answer)),
            Self::AnyOf(alternatives) => alternatives,
        };
        let mut first = None;
        for alternative in alternatives.iter().filter(|it| it.is_by(by)) {
            match alternative.answer.compare(answer) {
                Comparison::Agrees { .. } => {
                    return Some(Comparison::Agrees { by: alternative.by.clone() });
                }
                other => drop(first.get_or_insert(other)),
            }
        }
        // Without an alternative, nothing can agree. Selections leave such a case out.
        first.or(Some(Comparison::Differs { at: String::new() }))
    }

    /// Returns `true` if some answer agrees under a profile with this name of `by`.
    pub fn has_answer_by(&self, by: &str) -> bool {
        match self {
            Self::One(_) => true,
            Self::AnyOf(alternatives) => alternatives.iter().any(|it| it.is_by(Some(by))),
        }
    }

    /// Returns the names in `by`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let alternatives = match self {
            Self::One(_) => &[],
            Self::AnyOf(alternatives) => alternatives.as_slice(),
        };
        alternatives.iter().flat_map(|it| it.by.iter().map(String::as_str))
    }

    /// Returns the expectation as the vector file has it.
    pub fn json(&self) -> Value {
        match self {
            Self::One(expected) => expected.json(),
            Self::AnyOf(alternatives) => {
                let entry = |it: &Alternative| {
                    let mut entry = it.answer.json();
                    entry["by"] = json!(it.by);
                    entry
                };
                json!({ "any_of": alternatives.iter().map(entry).collect::<Vec<_>>() })
            }
        }
    }
}

impl Alternative {
    fn is_by(&self, by: Option<&str>) -> bool {
        by.is_none_or(|by| self.by.iter().any(|name| name == by))
    }
}

/// Returns the JSON pointer of the first expected value that `got` does not have; `None` if `got`
/// has all of them.
fn difference(expected: &Value, got: &Value) -> Option<String> {
    let below = |name: &str, expected, got| {
        // RFC 6901 escapes these two characters.
        let name = || name.replace('~', "~0").replace('/', "~1");
        difference(expected, got).map(|at| format!("/{}{at}", name()))
    };
    if let Some(digest) = digest(expected) {
        let is_same = got.as_str().is_some_and(|digits| is_digest_of(digest, digits));
        return (!is_same).then(String::new);
    }
    let differs = match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            return expected.iter().find_map(|(name, expected)| match got.get(name) {
                Some(got) => below(name, expected, got),
                None => Some(format!("/{name}")),
            });
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            let mut pairs = expected.iter().zip(got).enumerate();
            return pairs.find_map(|(i, (expected, got))| below(&i.to_string(), expected, got));
        }
        (Value::Number(expected), Value::Number(got)) => !are_equal(expected, got),
        _ => expected != got,
    };
    differs.then(String::new)
}

/// Returns `true` if two numbers are equal: 1 and 1.0 are the same number of JSON, and some languages
/// only write the second.
fn are_equal(expected: &Number, got: &Number) -> bool {
    // From 2^53 on, a float stands for several integers, so it is equal to none.
    const EXACT: u64 = (1 << 53) - 1;
    let is_exact = |number: &Number| match number.as_i64() {
        Some(integer) => integer.unsigned_abs() <= EXACT,
        None => number.is_f64(),
    };
    let bits = |number: &Number| number.as_f64().map(f64::to_bits);
    let is_mixed = expected.is_f64() != got.is_f64();
    expected == got
        || (is_mixed && is_exact(expected) && is_exact(got) && bits(expected) == bits(got))
}

/// Returns hash and length, if an expected value is `{"sha256": …, "bytes": …}`.
fn digest(expected: &Value) -> Option<(&str, u64)> {
    let is_whole = expected.as_object()?.len() == 2;
    let (hash, bytes) = (expected.get("sha256")?.as_str()?, expected.get("bytes")?.as_u64()?);
    is_whole.then_some((hash, bytes))
}

/// Returns `true` if lowercase hex has this hash and length.
fn is_digest_of((hash, bytes): (&str, u64), digits: &str) -> bool {
    let is_lowercase = !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    let decoded = hex::decode(digits).ok().filter(|_| is_lowercase);
    decoded.is_some_and(|decoded| {
        decoded.len() as u64 == bytes
            && hex::encode(sha256::Hash::hash(&decoded).as_byte_array()) == hash
    })
}

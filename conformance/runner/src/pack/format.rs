//! The JSON of pack and vector files, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::expect::{Alternative, Expect, Expected};

/// `pack.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackFile {
    #[serde(rename = "pack")]
    pub(super) _format: u64,
    pub(super) version: String,
    #[serde(default)]
    pub(super) licence: String,
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, super::Profile>,
    #[serde(default)]
    pub(super) flags: BTreeMap<String, String>,
    pub(super) areas: Vec<AreaEntry>,
}

/// An area in `pack.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AreaEntry {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) title: String,
    /// Number of cases of the file: a truncated copy is found.
    pub(super) cases: Option<usize>,
}

/// A file of vectors. Its cases are read one by one, so that an error can name the case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorFile {
    #[serde(rename = "pack")]
    pub(super) _format: u64,
    pub(super) area: String,
    /// For readers of the file alone; `pack.json` has the title of the area.
    #[serde(rename = "title")]
    pub(super) _title: String,
    pub(super) source: String,
    pub(super) licence: String,
    #[serde(default)]
    pub(super) flags: BTreeMap<String, String>,
    pub(super) groups: Vec<Group>,
}

/// Cases that share some members of their input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    #[serde(default)]
    pub(super) params: Map<String, Value>,
    pub(super) cases: Vec<Value>,
}

/// A case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseEntry {
    pub(super) id: String,
    pub(super) comment: String,
    pub(super) level: super::Level,
    pub(super) source: Option<String>,
    #[serde(default)]
    pub(super) flags: Vec<String>,
    pub(super) needs: Option<super::Needs>,
    pub(super) input: Map<String, Value>,
    pub(super) expect: ExpectEntry,
}

/// The member `expect` of a case: exactly one of the members is present.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectEntry {
    value: Option<Value>,
    invalid: Option<String>,
    any_of: Option<Vec<AlternativeEntry>>,
}

/// An entry of `any_of`: `by`, and either `value` or `invalid`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlternativeEntry {
    value: Option<Value>,
    invalid: Option<String>,
    by: Vec<String>,
}

/// Returns the one answer that is given; `None` unless exactly one is.
fn one(value: Option<Value>, invalid: Option<String>) -> Option<Expected> {
    match (value, invalid) {
        (Some(value @ Value::Object(_)), None) => Some(Expected::Value(value)),
        (None, Some(class)) => Some(Expected::Invalid(class)),
        _ => None,
    }
}

impl ExpectEntry {
    /// Returns the expectation; `None` unless exactly one kind of answer is given.
    pub(super) fn parsed(self) -> Option<Expect> {
        let Some(entries) = self.any_of else {
            return one(self.value, self.invalid).map(Expect::One);
        };
        if self.value.is_some() || self.invalid.is_some() || entries.is_empty() {
            return None;
        }
        let parsed = |entry: AlternativeEntry| {
            let answer = one(entry.value, entry.invalid)?;
            (!entry.by.is_empty()).then_some(Alternative { answer, by: entry.by })
        };
        entries.into_iter().map(parsed).collect::<Option<_>>().map(Expect::AnyOf)
    }
}

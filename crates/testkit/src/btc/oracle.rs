//! Answers of Bitcoin Core, one case per line, as in the `core_oracle` files.

use std::collections::BTreeMap;
use std::rc::Rc;

use chainsieve::bitcoin::hashes::{Hash as _, sha256};
use chainsieve::bitcoin::{Block, consensus};
use serde_json::Value;

/// A test case, and the number of its line.
pub struct Case {
    pub line: usize,
    pub json: Value,
}

/// A block as raw bytes and in parsed form.
pub struct TestBlock {
    pub raw: Vec<u8>,
    pub block: Block,
}

impl TestBlock {
    pub fn new(raw: Vec<u8>) -> Rc<Self> {
        let block = consensus::deserialize(&raw).expect("a test's block parses");
        Rc::new(Self { raw, block })
    }
}

pub fn cases(text: &str) -> impl Iterator<Item = Case> {
    text.lines().enumerate().map(|(at, line)| {
        let json = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", at + 1));
        Case { line: at + 1, json }
    })
}

/// Runs `check` on all cases of `text`. Returns for each kind the number of cases for which `check`
/// returned `true`.
pub fn count_kinds(text: &str, mut check: impl FnMut(&Case) -> bool) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for case in cases(text).filter(|case| check(case)) {
        *counts.entry(case.str("kind").to_owned()).or_insert(0) += 1;
    }
    counts
}

pub fn from_hex(text: &str) -> Vec<u8> {
    hex::decode(text).unwrap_or_else(|e| panic!("hex {text:.80}: {e}"))
}

impl Case {
    fn at(&self, field: &str) -> &Value {
        self.json.get(field).unwrap_or_else(|| panic!("{self}: no field {field}"))
    }

    pub fn str(&self, field: &str) -> &str {
        self.at(field).as_str().unwrap_or_else(|| panic!("{self}: {field} is not a string"))
    }

    pub fn optional_str(&self, field: &str) -> Option<&str> {
        self.json.get(field).map(|_| self.str(field))
    }

    pub fn bytes(&self, field: &str) -> Vec<u8> {
        from_hex(self.str(field))
    }

    pub fn bool(&self, field: &str) -> bool {
        self.at(field).as_bool().unwrap_or_else(|| panic!("{self}: {field} is not a bool"))
    }

    pub fn number(&self, field: &str) -> u32 {
        let number = self.at(field).as_u64().and_then(|n| u32::try_from(n).ok());
        number.unwrap_or_else(|| panic!("{self}: {field} is not a u32"))
    }

    pub fn list(&self, field: &str) -> &[Value] {
        self.at(field).as_array().unwrap_or_else(|| panic!("{self}: {field} is not a list"))
    }

    pub fn indices(&self, field: &str) -> Vec<usize> {
        let index = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
        self.list(field).iter().map(|value| index(value).expect("an index")).collect()
    }

    /// Asserts that `got` has the bytes that the field describes. The field has all bytes or, for
    /// long values, their SHA-256 and length.
    pub fn assert_bytes(&self, who: &str, field: &str, got: &[u8]) {
        let (got, expected) = match self.at(field) {
            Value::String(hex) => (hex::encode(got), hex.clone()),
            long => {
                let describe =
                    |sha256: &str, bytes: u64| format!("{bytes} bytes, SHA-256 {sha256}");
                let hash = sha256::Hash::hash(got);
                let expected = (long["sha256"].as_str(), long["bytes"].as_u64());
                let (Some(sha256), Some(bytes)) = expected else {
                    panic!("{self}: {field} is neither hex nor a hash with a length");
                };
                (describe(&hex::encode(hash), got.len() as u64), describe(sha256, bytes))
            }
        };
        assert_eq!(got, expected, "{self}: {field} by {who}");
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.json["kind"].as_str().unwrap_or("?");
        write!(f, "line {} ({kind})", self.line)
    }
}

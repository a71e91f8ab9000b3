//! Location of the corpus, and the entries of its index.

use std::path::PathBuf;

use serde_json::Value;

/// Returns the folder of a chain in the corpus that `CHAINSIEVE_CORPUS` names, and the entries of
/// its index. Returns `None`, and prints why, if `CHAINSIEVE_CORPUS` is not set.
///
/// # Panics
/// Panics if the configured corpus does not exist, or if `CI` is set and no corpus is configured.
pub fn index(chain: &str) -> Option<(PathBuf, Vec<Value>)> {
    let Some(root) = std::env::var_os("CHAINSIEVE_CORPUS").filter(|root| !root.is_empty()) else {
        assert!(std::env::var_os("CI").is_none(), "CI is set and CHAINSIEVE_CORPUS is not");
        println!("skipped: CHAINSIEVE_CORPUS is not set");
        return None;
    };
    let root = PathBuf::from(root).join(chain);
    let index = std::fs::read(root.join("index.json"))
        .unwrap_or_else(|e| panic!("{}: {e}", root.join("index.json").display()));
    let mut index: Value = serde_json::from_slice(&index).expect("JSON");
    let Value::Array(files) = index["files"].take() else { panic!("no files in the index") };
    Some((root, files))
}

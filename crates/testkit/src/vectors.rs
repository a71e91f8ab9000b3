//! Inputs of the conformance vectors, as seeds for mutations.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Returns the inputs of an area's cases that expect a value.
pub fn inputs(area: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/vectors");
    let path = folder.join(format!("{area}.json"));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let vectors: Value = serde_json::from_slice(&text).expect("JSON");
    let groups = vectors["groups"].as_array().expect("a list").iter();
    let cases = groups.flat_map(|group| group["cases"].as_array().expect("a list"));
    let valid = cases.filter(|case| case["expect"].get("value").is_some());
    valid.map(|case| case["input"].clone()).collect()
}

/// Returns the bytes that a member has in the inputs of an area. Bytes of other files are left out.
pub fn payloads(area: &str, member: &str) -> Vec<Vec<u8>> {
    let inputs = inputs(area);
    let payloads = inputs.iter().filter_map(|input| input[member].as_str());
    payloads.map(|payload| hex::decode(payload).expect("hex")).collect()
}

//! ethbloom, the bloom of parity's crates.
use ethbloom::{Bloom, Input};
use protocol::{Answer, bytes, serve};
use serde_json::{Value, json};

#[path = "../../protocol.rs"]
mod protocol;

fn build(input: &Value) -> Answer {
    let mut bloom = Bloom::zero();
    protocol::list(&input["logs"], |log| {
        bloom.accrue(Input::Raw(&bytes(&log["address"])));
        protocol::list(&log["topics"], |topic| bloom.accrue(Input::Raw(&bytes(topic))));
    });
    Ok(json!({ "bloom": hex::encode(bloom) }))
}

fn test(input: &Value) -> Answer {
    let bloom: Bloom = input["bloom"].as_str().expect("a string").parse()?;
    Ok(json!({ "may_contain": bloom.contains_input(Input::Raw(&bytes(&input["item"]))) }))
}

fn main() {
    serve(&[("logsbloom.build", build), ("logsbloom.test", test)]);
}

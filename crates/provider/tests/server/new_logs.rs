//! Which new logs a filter or subscription can ask for: what go-ethereum allows (`SubscribeLogs` in
//! `eth/filters/filter_system.go`).

use std::time::Duration;

use serde_json::{Value, json};

use crate::upstream::{Block, Upstream, ask};
use crate::{provider, started, until};

/// The ends of a range, and the blocks for which a filter with it fires, or the error.
type Range = (Option<&'static str>, Option<&'static str>, Result<(u64, u64), &'static str>);

/// Tags and numbers of a range, and what go-ethereum says to a filter with it: `None` if it installs the
/// filter, which then fires for blocks of these numbers.
const RANGES: [Range; 26] = [
    (None, None, Ok((0, 999))),
    (None, Some("latest"), Ok((0, 999))),
    (Some("latest"), None, Ok((0, 999))),
    (Some("0x5"), None, Ok((5, 999))),
    (Some("0x5"), Some("latest"), Ok((5, 999))),
    (Some("earliest"), None, Ok((0, 999))),
    (Some("earliest"), Some("0x67"), Ok((0, 0x67))),
    (Some("earliest"), Some("earliest"), Ok((0, 0))),
    (Some("0x0"), Some("earliest"), Ok((0, 0))),
    (Some("0x66"), Some("0x67"), Ok((0x66, 0x67))),
    (Some("0x66"), Some("0x66"), Ok((0x66, 0x66))),
    (Some("0x1"), Some("0x2"), Ok((1, 2))),
    (Some("0x68"), None, Ok((0x68, 999))),
    (Some("0x67"), Some("0x66"), Err("invalid block range params")),
    (Some("0x1"), Some("earliest"), Err("invalid block range params")),
    (None, Some("0x3e8"), Err("invalid block range params")),
    (Some("latest"), Some("0x3e8"), Err("invalid block range params")),
    (Some("latest"), Some("earliest"), Err("invalid block range params")),
    (None, Some("finalized"), Err("invalid block range params")),
    (Some("0x1"), Some("finalized"), Err("invalid block range params")),
    (Some("finalized"), Some("finalized"), Err("invalid block range params")),
    (Some("finalized"), None, Err("invalid block range params")),
    (Some("safe"), Some("latest"), Err("invalid block range params")),
    (Some("pending"), None, Err("pending logs are not supported")),
    (None, Some("pending"), Err("pending logs are not supported")),
    (Some("0x1"), Some("pending"), Err("pending logs are not supported")),
];

#[test]
fn ranges_of_filters_are_those_of_go_ethereum() {
    let upstream = Upstream::of(Block::chain(1, 110));
    upstream.set_head(100);
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = started(provider.serve().poll(Duration::from_millis(10)));
    let address = server.address();
    let mut installed: Vec<(String, Value, (u64, u64))> = Vec::new();
    for (from, to, expected) in RANGES {
        let mut filter = json!({});
        for (name, tag) in [("fromBlock", from), ("toBlock", to)] {
            if let Some(tag) = tag {
                filter[name] = json!(tag);
            }
        }
        let answer = ask(address, "eth_newFilter", &json!([filter]));
        match expected {
            Ok(blocks) => {
                assert!(answer["result"].is_string(), "{filter}: {answer}");
                installed.push((filter.to_string(), answer["result"].clone(), blocks));
            }
            Err(message) => {
                assert_eq!(answer["error"]["message"], message, "{filter}");
                assert_eq!(answer["error"]["code"], -32602, "{filter}");
            }
        }
    }
    // A hash limits the logs that exist, and not the new ones.
    let hash = upstream.blocks()[7].hash;
    let by_hash = ask(address, "eth_newFilter", &json!([{ "blockHash": hash }]))["result"].clone();
    installed.push(("a hash".to_owned(), by_hash.clone(), (0, 999)));
    let found = ask(address, "eth_getFilterLogs", &json!([by_hash]));
    assert_eq!(found["result"], json!(upstream.blocks()[7].logs));

    upstream.set_head(105);
    until("the head", || server.head().is_some_and(|head| head.number == 105));
    for (filter, id, (first, last)) in installed {
        let new = upstream.blocks()[101..=105].iter();
        let new = new.filter(|block| (first..=last).contains(&block.number));
        let expected: Vec<_> = new.flat_map(|block| block.logs.clone()).collect();
        let changes = ask(address, "eth_getFilterChanges", &json!([id]));
        assert_eq!(changes["result"], json!(expected), "{filter}: {changes}");
    }
}

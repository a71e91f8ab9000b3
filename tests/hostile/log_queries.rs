//! Queries and logs as JSON from untrusted sources.

use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};

use crate::survives;
use testkit::Rng;
use testkit::mutated;

/// A topic and an address for valid queries and logs.
const TOPIC: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const ADDRESS: &str = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48";

/// Memory limit per byte of text: a value of two characters takes 24 bytes, in lists that grow by
/// doubling, and the allocator counts each step. `FIXED` covers the values themselves and the error
/// messages.
const FACTOR: usize = 60;
const FIXED: usize = 4_000;

fn query(text: &str) -> bool {
    let [geth, alloy] = [Semantics::Geth, Semantics::Alloy].map(|semantics| {
        survives("a query", text.as_bytes(), FACTOR, FIXED, || LogQuery::from_json(text, semantics))
    });
    for query in [&geth, &alloy].into_iter().flatten() {
        let written = query.to_json();
        assert_eq!(LogQuery::from_json(&written, Semantics::Alloy).as_ref(), Ok(query), "{text}");
    }
    if let Err(error) = &geth {
        assert!(error.to_string().len() < 600, "{error}");
    }
    geth.is_ok()
}

fn logs(text: &str) -> bool {
    let list = survives("a list of logs", text.as_bytes(), FACTOR, FIXED, || {
        LocatedLog::list_from_json(text)
    });
    let one = survives("a log", text.as_bytes(), FACTOR, FIXED, || LocatedLog::from_json(text));
    if let Err(error) = &list {
        assert!(error.to_string().len() < 600, "{error}");
    }
    list.is_ok() || one.is_ok()
}

fn good_query() -> String {
    format!(
        r#"{{"fromBlock":"0x10dde5f","toBlock":"latest","address":["{ADDRESS}"],"topics":[["{TOPIC}","{TOPIC}"],null,"{TOPIC}"]}}"#
    )
}

fn good_log() -> String {
    format!(
        r#"{{"address":"{ADDRESS}","topics":["{TOPIC}","{TOPIC}"],"data":"0x0102","blockNumber":"0x1","transactionHash":"{TOPIC}","transactionIndex":"0x0","blockHash":"{TOPIC}","blockTimestamp":"0x5","logIndex":"0x0","removed":false}}"#
    )
}

#[test]
fn every_truncation_is_refused() {
    let text = good_query();
    assert!(query(&text));
    for end in 0..text.len() {
        assert!(!query(&text[..end]), "{}", &text[..end]);
    }
    let text = format!("[{},{}]", good_log(), good_log());
    assert!(logs(&text) && logs(&good_log()));
    for end in 0..text.len() {
        assert!(!logs(&text[..end]), "{}", &text[..end]);
    }
}

/// Lists of the smallest values, nested and flat, as any field and as an unknown field. The lists
/// are rejected or skipped, with memory in proportion to the text.
#[test]
fn giant_and_deep_values() {
    let many = |unit: &str, count: usize| vec![unit; count].join(",");
    let values = [
        format!("[{}]", many("0", 100_000)),
        format!("[{}]", many("null", 100_000)),
        format!("[{}]", many("[]", 100_000)),
        format!("[{}]", many("{}", 100_000)),
        format!("[{}]", many(r#"{"":0}"#, 50_000)),
        format!("[{}]", many(r#""""#, 100_000)),
        format!("[{}]", many(&format!("\"{TOPIC}\""), 20_000)),
        format!("[[{}]]", many(&format!("\"{TOPIC}\""), 20_000)),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("{}0{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)),
        format!("[{}]", many(&format!("{}{}", "[".repeat(100), "]".repeat(100)), 1_000)),
        format!("\"{}\"", "0".repeat(1_000_000)),
        format!("\"0x{}\"", "f".repeat(1_000_001)),
        format!("\"{}\"", r"\u00e9".repeat(100_000)),
        "9".repeat(100_000),
        format!("1e{}", "9".repeat(100_000)),
    ];
    let mut accepted = Vec::new();
    for (at, value) in values.iter().enumerate() {
        for field in ["topics", "address", "fromBlock", "blockHash", "other"] {
            if query(&format!(r#"{{"{field}":{value}}}"#)) {
                accepted.push((at, field));
            }
        }
        query(value);
        for field in ["topics", "data", "address", "blockNumber", "removed", "other"] {
            let text = good_log().replacen(r#""removed""#, &format!(r#""{field}":{value},"r""#), 1);
            let twice = ["topics", "data", "address", "blockNumber"].contains(&field);
            assert!(!(logs(&text) && twice), "{field} twice");
        }
        logs(value);
    }
    // One position with thousands of topics is a valid query. Under a field that geth does not
    // know, every value is accepted.
    let known: Vec<_> = accepted.iter().filter(|(_, field)| *field != "other").collect();
    assert_eq!(known, [&(7, "topics")]);
    let passed: Vec<_> = accepted.iter().filter(|(_, field)| *field == "other").collect();
    assert_eq!(passed.len(), values.len(), "{passed:?}");
    assert!(!query(&format!("{{{}}}", many(r#""topics":[]"#, 50_000))));
    assert!(!logs(&format!("[{{{}}}]", many(r#""topics":[]"#, 50_000))));
    assert!(query(&format!("{{{}}}", many(r#""x":[]"#, 50_000))), "geth skips unknown fields");
    assert!(!logs(&format!("[{}]", many("{}", 50_000))));
}

#[test]
fn mutated_texts() {
    let mut rng = Rng::new(21);
    let (mut accepted, mut refused) = (0, 0);
    let originals = [good_query(), good_log(), format!("[{},{}]", good_log(), good_log())];
    for _ in 0..30_000 {
        let original = rng.pick(&originals).clone();
        let bytes = mutated(&mut rng, original.as_bytes());
        let text = String::from_utf8_lossy(&bytes);
        if query(&text) || logs(&text) {
            accepted += 1;
        } else {
            refused += 1;
        }
    }
    assert!(accepted > 300 && refused > 3_000, "{accepted} accepted, {refused} refused");
}

//! An honest provider is never accused, whatever the other provider claims, and at whatever time
//! the providers are asked.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Returns a chain whose second block is not mainnet's, but has the same receipts.
fn made_up() -> Chain {
    let mut chain = Chain::real_and(0);
    let real = chain.blocks.remove(1);
    chain.blocks.push(chain::with_field(&real, 12, b"made up"));
    chain
}

/// Without an anchor of the user, the claims of one provider prove nothing against the other.
#[test]
fn a_chain_that_one_provider_made_up_proves_nothing_against_the_other() {
    let (liar, right) = (honest(made_up()), honest(Chain::real_and(0)));
    for servers in [[&liar, &right], [&right, &liar]] {
        let json = audit(&servers, &[], UNDECIDED);
        assert_eq!((&json["status"], &json["anchor_agreed"]), (&json!("undecided"), &json!(false)));
        assert_eq!(json["audits"][0]["status"], "complete", "by its own chain");
        assert_eq!(json["audits"][1]["status"], "undecided");
        assert_eq!(json["audits"][1]["undecided"][0]["why"], "unanchored");
        for finding in json["audits"][1]["findings"].as_array().expect("findings") {
            assert_eq!(finding["proof"], false, "{finding}");
        }
        let warnings = json["warnings"].to_string();
        assert!(warnings.contains("claims that block 17686112"), "{warnings}");
        assert!(warnings.contains("has another block 17686112"), "{warnings}");
    }
    // A duplicate is visible in the answer itself, whatever the chain is.
    let doubles = provider(made_up(), |_, method, _| {
        let mut logs = answer();
        logs.push(logs[0].clone());
        (method == "eth_getLogs").then(|| Ok(json!(logs)))
    });
    let json = audit(&[&right, &doubles], &[], WRONG);
    assert!(kinds(&json["audits"][1]).contains(&"duplicate"), "{json}");
}

/// A provider that does not return a block has not agreed on it.
#[test]
fn silence_is_no_agreement() {
    let silent = provider(Chain::real_and(0), |_, method, params| {
        (method == "eth_getBlockByNumber" && params[0] == "0x10dde60").then_some(Ok(Value::Null))
    });
    let json = audit(&[&honest(Chain::real_and(0)), &silent], &[], UNDECIDED);
    assert_eq!(json["anchor_agreed"], false);
    let warnings = json["warnings"].to_string();
    assert!(!warnings.contains("both providers claim"), "{warnings}");
    assert!(warnings.contains("does not have block 17686112"), "{warnings}");
}

/// The report shows an anchor only if the chain contains it.
#[test]
fn an_anchor_that_is_not_on_the_chain_is_not_shown_as_the_users() {
    let stranger = B256::repeat_byte(7).to_string();
    let json = audit(&[&honest(Chain::real_and(0))], &["--anchor", &stranger], UNDECIDED);
    assert_eq!((&json["anchor"], &json["anchor_from"]), (&Value::Null, &json!("user")));
}

/// Nodes such as Besu and anvil answer with an empty list for the hash of a block that they don't
/// have. If several nodes share one address, some of them may lag behind the others.
#[test]
fn a_node_that_lags_omits_nothing() {
    for lags in [1, 3] {
        let asked = AtomicUsize::new(0);
        let mut chain = Chain::real_and(0);
        chain.finalized = 0;
        let server = Server::start(move |post| {
            let by_hash = |params: &Value| !params[0]["blockHash"].is_null();
            // The node that serves the first log requests does not have the newest blocks yet.
            let of_logs = post.body.to_string().contains("blockHash");
            let is_behind = of_logs && asked.fetch_add(1, Ordering::SeqCst) < lags;
            let answer = |method: &str, params: &Value| match method {
                "eth_getLogs" if is_behind && by_hash(params) => Ok(json!([])),
                "eth_getBlockByHash" if is_behind => Ok(Value::Null),
                _ => chain.answer(method, params),
            };
            Sent::Json(replies(&post.body, answer))
        });
        let more = ["--unfinalized", "--anchor", &anchor(), "--retries", "5"];
        let json = audit(&[&server], &more, YES);
        assert_eq!((&json["logs"], &json["findings"]), (&json!(7), &json!([])), "{lags}");
    }
    // A node whose answer stays empty is asked again, and is not believed.
    let mut chain = Chain::real_and(0);
    chain.finalized = 0;
    let liar = provider(chain, |_, method, _| (method == "eth_getLogs").then(|| Ok(json!([]))));
    let json = audit(&[&liar], &["--unfinalized", "--anchor", &anchor()], WRONG);
    assert!(kinds(&json).iter().all(|kind| *kind == "omitted_log"), "{json}");
    // An empty list from a node that never has the block is not an answer.
    let mut chain = Chain::real_and(0);
    chain.finalized = 0;
    let behind = provider(chain, |_, method, params| match method {
        "eth_getLogs" => Some(Ok(json!([]))),
        "eth_getBlockByHash" if text(&params[0]) == anchor() => Some(Ok(Value::Null)),
        _ => None,
    });
    let words = ["eth_getLogs: block 17686112", "the node does not have block 0x8873"];
    audit_fails(&behind, &["--unfinalized"], BAD_INPUT, &words);
}

//! False places of receipts and logs, and receipts that one method has and another lacks.

use chainsieve_conformance::audit::AuditReport;
use chainsieve_conformance::serve::json_rpc::Fault;
use chainsieve_provider::Provider;
use serde_json::{Value, json};

use super::ethereum_audit::audit_with;

const OF_BLOCK: &str = "eth_getBlockReceipts";
const OF_TRANSACTION: &str = "eth_getTransactionReceipt";

/// Audits a node that changes the honest result of a method.
fn audit_changing(
    changed: &'static str,
    change: impl Fn(&Value, &mut Value) + Send + Sync + 'static,
) -> AuditReport {
    let report = audit_with(move |method, params, url| {
        (method == changed).then(|| {
            let provider = Provider::trusting_head(url).expect("a URL");
            let mut result = provider.nodes()[0].call(changed, params).expect("a result");
            change(params, &mut result);
            Ok(result)
        })
    });
    report.expect("a report")
}

/// Returns the first receipt of a list that has logs.
fn with_logs(receipts: &mut Value) -> &mut Value {
    let mut receipts = receipts.as_array_mut().expect("a list").iter_mut();
    receipts.find(|receipt| receipt["logs"][0].is_object()).expect("a receipt with logs")
}

#[test]
fn receipts_claim_their_place() {
    let another = json!(format!("0x{}", "ab".repeat(32)));
    for (member, value) in [
        ("blockNumber", json!("0x1")),
        ("blockHash", another.clone()),
        ("transactionHash", another.clone()),
    ] {
        for (method, is_list) in [(OF_BLOCK, true), (OF_TRANSACTION, false)] {
            let value = value.clone();
            let report = audit_changing(method, move |_, result| {
                let receipt = if is_list { &mut result[3] } else { result };
                receipt[member] = value.clone();
            });
            assert!(!report.differences.is_empty(), "{method}: {member}");
            for difference in &report.differences {
                assert_eq!(difference.rule, "receipts.place", "{method}: {member}: {report:?}");
            }
        }
    }
    for (member, value) in [
        ("blockNumber", json!("0x1")),
        ("blockHash", another.clone()),
        ("transactionHash", another),
        ("transactionIndex", json!("0x1f4")),
        ("logIndex", json!("0x1f4")),
        ("removed", json!(true)),
    ] {
        let report = audit_changing(OF_BLOCK, move |_, receipts| {
            with_logs(receipts)["logs"][0][member] = value.clone();
        });
        let found = report.differences.first().unwrap_or_else(|| panic!("{member}"));
        assert_eq!(found.rule, "receipts.place", "{member}: {report:?}");
        assert!(found.what.contains(&format!("{member} of a log of receipt")), "{found:?}");
    }
}

/// The receipts are all there, and each is in itself right.
#[test]
fn a_transaction_has_its_own_receipt() {
    let report = audit_with(|method, params, url| {
        (method == OF_TRANSACTION).then(|| {
            let provider = Provider::trusting_head(url).expect("a URL");
            let node = &provider.nodes()[0];
            let block: Value =
                node.call("eth_getBlockByNumber", &json!(["0x10dde5f", false])).expect("a block");
            let [first, second] = [&block["transactions"][0], &block["transactions"][1]];
            let asked = match &params[0] {
                asked if asked == first => second,
                asked if asked == second => first,
                asked => asked,
            };
            Ok(node.call(OF_TRANSACTION, &json!([asked])).expect("a receipt"))
        })
    });
    let report = report.expect("a report");
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    assert_eq!((difference.rule, difference.block), ("receipts.place", 17_686_111));
}

/// The same invented hash everywhere but in the block.
#[test]
fn hashes_of_transactions_come_from_the_block() {
    let report = audit_changing("eth_getLogs", |_, logs| {
        for log in logs.as_array_mut().expect("a list") {
            log["transactionHash"] = json!(format!("0x{}", "ab".repeat(32)));
        }
    });
    assert!(!report.differences.is_empty());
    assert!(report.differences.iter().all(|it| it.rule == "logs.node"), "{report:?}");
    // A list of transactions that is another by hash than by number.
    let report = audit_changing("eth_getBlockByHash", |_, block| {
        block["transactions"][3] = json!(format!("0x{}", "ab".repeat(32)));
    });
    assert_eq!(report.differences[0].rule, "header.chain", "{report:?}");
    let shortened = |_: &Value, block: &mut Value| {
        drop(block["transactions"].as_array_mut().expect("a list").pop());
    };
    let report = audit_changing("eth_getBlockByHash", shortened);
    assert!(report.differences.iter().any(|it| it.rule == "receipts.place"), "{report:?}");
    let report = audit_changing("eth_getBlockByHash", |_, block| {
        block["transactions"] = json!([{ "hash": "0x00" }]);
    });
    let is_found = report.differences.iter().any(|it| it.what == "the transactions of the block");
    assert!(is_found, "{report:?}");
}

#[test]
fn a_block_without_receipts_that_its_transactions_have_is_a_difference() {
    for by_hash in [true, false] {
        let report = audit_with(move |method, params, _| {
            let is_hash = params[0].as_str().is_some_and(|name| name.len() == 66);
            (method == OF_BLOCK && is_hash == by_hash).then_some(Ok(Value::Null))
        });
        let report = report.expect("a report");
        assert_eq!(report.differences.len(), 2, "{report:?}");
        for difference in &report.differences {
            assert_eq!((difference.rule, difference.got.as_str()), ("receipts.root", "null"));
        }
    }
}

/// Nodes drop the index of old transactions, and keep the receipts.
#[test]
fn a_node_may_lack_the_index_of_transactions() {
    let report = audit_with(|method, _, _| (method == OF_TRANSACTION).then_some(Ok(Value::Null)));
    let report = report.expect("a report");
    assert!(report.differences.is_empty(), "{report:?}");
    assert_eq!(report.undecided, 2);
    assert!(report.notes.iter().any(|note| note.contains("index of old")), "{report:?}");
    // A node that does not serve the method leaves nothing open.
    let report = audit_with(|method, _, _| {
        (method == OF_TRANSACTION).then(|| Err(Fault::method_not_found(method)))
    });
    assert!(report.expect("a report").agrees());
}

#[test]
fn a_single_transaction_without_a_receipt_is_a_difference() {
    let missing = |index: usize| {
        audit_with(move |method, params, url| {
            let provider = Provider::trusting_head(url).expect("a URL");
            let block: Value = provider.nodes()[0]
                .call("eth_getBlockByNumber", &json!(["0x10dde5f", false]))
                .expect("a block");
            let is_it = method == OF_TRANSACTION && params[0] == block["transactions"][index];
            is_it.then_some(Ok(Value::Null))
        })
        .expect("a report")
    };
    let report = missing(3);
    let [difference] = report.differences.as_slice() else { panic!("{report:?}") };
    assert_eq!(difference.what, "eth_getTransactionReceipt of transaction 3");
    // The index may have been dropped up to the first transaction of a block.
    let report = missing(0);
    assert!(report.differences.is_empty() && report.undecided == 1, "{report:?}");
}

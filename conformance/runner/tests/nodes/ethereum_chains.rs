//! Honest nodes whose headers and receipts the library cannot compute again, and nodes of chains
//! with other rules than Ethereum. None of them is accused.

use std::time::Duration;

use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, U64, hex, keccak256};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::header::{HeaderBuf, HeaderError};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::transactions::BlockTransactions;
use chainsieve_conformance::audit::ethereum::{audit_node, audit_node_of};
use chainsieve_conformance::audit::{AuditError, AuditReport};
use chainsieve_conformance::serve::ethereum::{FIRST, LyingNode};
use chainsieve_conformance::serve::json_rpc::{Fate, Fault, Proxy, Source};
use chainsieve_provider::Provider;
use serde_json::{Value, json};

use super::ethereum_audit::audit_with;

/// Audits the block with this number of a node that answers each call by `answer`.
fn audit_block(
    number: u64,
    profile: Option<&ChainProfile>,
    answer: impl Fn(&str, &Value) -> Result<Value, Fault> + Send + Sync + 'static,
) -> Result<AuditReport, AuditError> {
    let source = Source::function(answer);
    let node = Proxy::start(([127, 0, 0, 1], 0).into(), source, |_, _, _| Fate::Answered);
    let url = node.as_ref().expect("started").url();
    let provider =
        Provider::builder().url(&url).trust_head().retries(0).timeout(Duration::from_secs(60));
    let provider = provider.build().expect("a URL");
    let node = &provider.nodes()[0];
    match profile {
        Some(profile) => audit_node_of(node, profile, number..=number, |_| {}),
        None => audit_node(node, number..=number, |_| {}),
    }
}

/// The built-in block as it would be after a fork that appends a field to headers.
struct Future {
    honest: LyingNode,
    /// The RLP of the header with the further field.
    rlp: Vec<u8>,
    /// The hashes without and with the further field, as text.
    hashes: [String; 2],
    serves_raw: bool,
    /// A member of the block that is changed, with its false value.
    lie: Option<(&'static str, Value)>,
}

impl Future {
    fn new(serves_raw: bool, lie: Option<(&'static str, Value)>) -> Self {
        let honest = LyingNode::builder().start().expect("started");
        let block = ask(&honest, "eth_getBlockByNumber", &json!([format!("{FIRST:#x}"), false]));
        let header = HeaderBuf::from_json(&block.to_string()).expect("a header");
        // A list of 256 to 65,535 bytes: the prefix 0xf9, and the length in two bytes. The further
        // field is the number 5, which is a single byte (Yellow Paper, appendix B).
        let mut rlp = header.rlp().to_vec();
        assert_eq!(rlp[0], 0xf9);
        let length = u16::from_be_bytes([rlp[1], rlp[2]]) + 1;
        rlp[1..3].copy_from_slice(&length.to_be_bytes());
        rlp.push(5);
        let hashes = [header.hash(), keccak256(&rlp)].map(|hash| hash.to_string());
        Self { honest, rlp, hashes, serves_raw, lie }
    }

    /// Answers as a node after the fork: the same chain with another hash of its block.
    fn answer(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        let [before, after] = &self.hashes;
        if method == "debug_getRawHeader" && self.serves_raw {
            return Ok(json!(hex::encode_prefixed(&self.rlp)));
        }
        if method.starts_with("debug_") {
            return Err(Fault::method_not_found(method));
        }
        if method == "eth_chainId" {
            return Ok(json!("0x1"));
        }
        let params = serde_json::from_str(&params.to_string().replace(after, before));
        let result = ask(&self.honest, method, &params.expect("JSON"));
        let result = result.to_string().replace(before, after);
        let mut result: Value = serde_json::from_str(&result).expect("JSON");
        if method.starts_with("eth_getBlockBy") && result.is_object() {
            result["futureField"] = json!("0x5");
            if let Some((member, value)) = &self.lie {
                result[*member] = value.clone();
            }
        }
        Ok(result)
    }

    fn audit(self) -> AuditReport {
        audit_block(FIRST, None, move |method, params| self.answer(method, params))
            .expect("a report")
    }
}

/// The methods of the built-in node.
const METHODS: [&str; 7] = [
    "eth_blockNumber",
    "eth_getBlockByHash",
    "eth_getBlockByNumber",
    "eth_getBlockReceipts",
    "eth_getLogs",
    "eth_getTransactionByHash",
    "eth_getTransactionReceipt",
];

fn ask(node: &LyingNode, method: &str, params: &Value) -> Value {
    let method = METHODS.iter().find(|known| **known == method).expect("a method of the node");
    let provider = Provider::trusting_head(&node.url()).expect("a URL");
    provider.nodes()[0].call(method, params).expect("a result")
}

#[test]
fn a_header_with_unknown_members_is_not_accused() {
    let report = Future::new(false, None).audit();
    assert!(report.differences.is_empty() && report.undecided == 1, "{report:?}");
    let note = "header members unknown to chainsieve: \"futureField\"";
    assert!(report.notes.iter().any(|it| it == note), "{report:?}");
    assert!(report.why_undecided.expect("a reason").contains("futureField"));
    // The RLP has all members, and the audit goes on with them.
    let report = Future::new(true, None).audit();
    assert!(report.agrees(), "{report:?}");
    assert!(report.checks["logs.node"] > 30 && report.checks["receipts.root"] > 0, "{report:?}");
    // A known member that differs from the RLP is a difference.
    for (member, value) in [
        ("receiptsRoot", json!(B256::repeat_byte(7))),
        ("gasUsed", json!("0x1")),
        ("logsBloom", json!(Bloom::ZERO)),
        ("parentHash", json!(B256::ZERO)),
    ] {
        let report = Future::new(true, Some((member, value))).audit();
        let first = report.differences.first().unwrap_or_else(|| panic!("{member}: {report:?}"));
        assert_eq!(first.rule, "header.json");
        assert!(first.got.starts_with(member), "{first:?}");
    }
    // Without a further member, nothing explains the hash.
    let report = audit_with(|method, params, url| {
        method.starts_with("eth_getBlockBy").then(|| {
            let provider = Provider::trusting_head(url).expect("a URL");
            let method = if method.ends_with("Hash") {
                "eth_getBlockByHash"
            } else {
                "eth_getBlockByNumber"
            };
            let mut block: Value = provider.nodes()[0].call(method, params).expect("a block");
            block["gasUsed"] = json!("0x1");
            Ok(block)
        })
    });
    assert_eq!(report.expect("a report").differences[0].rule, "header.json");
}

/// Arbitrum's receipts have types from 0x64 on.
#[test]
fn receipts_of_unknown_types_are_not_accused() {
    let with_type = |methods: &'static [&'static str]| {
        audit_with(move |method, params, url| {
            let method = *methods.iter().find(|it| **it == method)?;
            let provider = Provider::trusting_head(url).expect("a URL");
            let mut result: Value = provider.nodes()[0].call(method, params).expect("receipts");
            match &mut result {
                Value::Array(receipts) => receipts[0]["type"] = json!("0x6a"),
                receipt if receipt["transactionIndex"] == "0x0" => receipt["type"] = json!("0x6a"),
                _ => {}
            }
            Some(Ok(result))
        })
        .expect("a report")
    };
    let report = with_type(&["eth_getBlockReceipts", "eth_getTransactionReceipt"]);
    assert!(report.differences.is_empty() && report.undecided > 0, "{report:?}");
    assert_eq!(report.notes, ["receipts of the type 0x6a are unknown to chainsieve"]);
    assert!(report.why_undecided.expect("a reason").contains("0x6a"));
    // Receipts of known types have the root, so that the other ones are wrong.
    let report = with_type(&["eth_getBlockReceipts"]);
    assert!(!report.differences.is_empty());
    assert!(report.differences.iter().all(|it| it.rule == "receipts.root"), "{report:?}");
}

/// Audits the built-in block of a node that names this chain id, with a filter of logs whose bytes are
/// all `fill`.
fn audit_chain(id: Option<u64>, profile: Option<&ChainProfile>, fill: Option<u8>) -> AuditReport {
    let honest = LyingNode::builder().start().expect("started");
    let block = ask(&honest, "eth_getBlockByNumber", &json!([format!("{FIRST:#x}"), false]));
    let before = text(&block["hash"]);
    let mut other = block;
    let bloom = fill.map(Bloom::repeat_byte);
    if let Some(bloom) = bloom {
        other["logsBloom"] = json!(bloom);
    }
    let after = match HeaderBuf::from_json(&other.to_string()) {
        Err(HeaderError::HashMismatch { computed, .. }) => computed.to_string(),
        header => header.expect("a header").hash().to_string(),
    };
    audit_block(FIRST, profile, move |method, params| {
        if method == "eth_chainId" {
            return id
                .map(|id| json!(U64::from(id)))
                .ok_or_else(|| Fault::method_not_found(method));
        }
        if method.starts_with("debug_") {
            return Err(Fault::method_not_found(method));
        }
        let params = serde_json::from_str(&params.to_string().replace(&after, &before));
        let result = ask(&honest, method, &params.expect("JSON"));
        let mut result: Value =
            serde_json::from_str(&result.to_string().replace(&before, &after)).expect("JSON");
        if let (Some(bloom), true) = (bloom, method.starts_with("eth_getBlockBy")) {
            result["logsBloom"] = json!(bloom);
        }
        Ok(result)
    })
    .expect("a report")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

#[test]
fn filters_are_compared_by_the_rules_of_the_chain() {
    for fill in [0, 0xff] {
        // Mainnet's rules: the filter is wrong.
        let report = audit_chain(Some(1), None, Some(fill));
        assert!(!report.differences.is_empty());
        assert!(report.differences.iter().all(|it| it.rule == "logsbloom.build"), "{report:?}");
        // A chain without filters.
        let absent = ChainProfile::assumed("x", BloomSoundness::Absent, ReceiptsScope::EveryLog);
        let report = audit_chain(Some(7), Some(&absent), Some(fill));
        assert!(report.agrees(), "{report:?}");
        assert!(!report.checks.contains_key("logsbloom.build"));
        let note = "filters of logs are not compared: stated by the caller";
        assert!(report.notes.iter().any(|it| it == note), "{report:?}");
        assert!(report.checks["logs.node"] > 30);
    }
    // Further bits are allowed in a superset, and no bit may be missing.
    let superset = ChainProfile::assumed("x", BloomSoundness::Superset, ReceiptsScope::EveryLog);
    assert!(audit_chain(Some(7), Some(&superset), Some(0xff)).agrees());
    let report = audit_chain(Some(7), Some(&superset), Some(0));
    assert_eq!(report.differences[0].rule, "logsbloom.build");
}

#[test]
fn nothing_is_held_against_a_node_of_an_unknown_chain() {
    for (id, why) in
        [(Some(42_161), "chain 42161 is unknown"), (None, "the node names no chain id")]
    {
        for fill in [None, Some(0)] {
            let report = audit_chain(id, None, fill);
            assert!(report.differences.is_empty() && report.undecided > 0, "{report:?}");
            assert!(report.notes[0].starts_with(why), "{report:?}");
        }
    }
    // Filecoin: all bits are set.
    let report = audit_chain(Some(314), None, Some(0xff));
    assert!(report.differences.is_empty(), "{report:?}");
    // The networks of test nodes follow Ethereum's rules.
    for id in [1337, 31_337] {
        assert!(audit_chain(Some(id), None, None).agrees());
        assert!(!audit_chain(Some(id), None, Some(0)).differences.is_empty());
    }
}

/// A node of the OP stack, whose first transaction is a deposit. The receipts and their root are
/// those of a block of OP Goerli, from reth's tests (`check_optimism_receipt_root`). The header
/// around the root is made up.
fn op_node(change: impl Fn(&mut Value)) -> impl Fn(&str, &Value) -> Result<Value, Fault> {
    let json = include_str!("../../../../tests/receipts/op_goerli_regolith.json");
    let mut receipts: Value = serde_json::from_str(json).expect("JSON");
    let mut bloom = Bloom::ZERO;
    let mut hashes = Vec::new();
    for receipt in receipts.as_array().expect("a list") {
        hashes.push(receipt["transactionHash"].clone());
        for log in receipt["logs"].as_array().expect("a list") {
            let topics: Vec<B256> = serde_json::from_value(log["topics"].clone()).expect("topics");
            let address: Address =
                serde_json::from_value(log["address"].clone()).expect("20 bytes");
            let data: Bytes = serde_json::from_value(log["data"].clone()).expect("bytes");
            let log = chainsieve::alloy_primitives::Log::new_unchecked(address, topics, data);
            bloom.accrue_log(&log);
        }
    }
    let number = "0x7";
    let mut block = json!({
        "hash": B256::ZERO, "parentHash": B256::ZERO, "sha3Uncles": B256::ZERO,
        "miner": Address::ZERO, "stateRoot": B256::ZERO, "transactionsRoot": B256::ZERO,
        "receiptsRoot": "0xe255fed45eae7ede0556fe4fabc77b0d294d18781a5a581cab09127bc4cd9ffb",
        "logsBloom": bloom, "difficulty": "0x0", "number": number, "gasLimit": "0x1c9c380",
        "gasUsed": "0x0", "timestamp": "0x64", "extraData": "0x", "mixHash": B256::ZERO,
        "nonce": "0x0000000000000000", "baseFeePerGas": "0x7", "transactions": hashes,
    });
    let Err(HeaderError::HashMismatch { computed, .. }) = HeaderBuf::from_json(&block.to_string())
    else {
        panic!("the hash is made up")
    };
    block["hash"] = json!(computed);
    let mut index = 0_u64;
    let mut logs = Vec::new();
    for receipt in receipts.as_array_mut().expect("a list") {
        let place = [
            ("blockHash", json!(computed)),
            ("blockNumber", json!(number)),
            ("transactionHash", receipt["transactionHash"].clone()),
            ("transactionIndex", receipt["transactionIndex"].clone()),
        ];
        for log in receipt["logs"].as_array_mut().expect("a list") {
            for (name, value) in &place {
                log[*name] = value.clone();
            }
            log["logIndex"] = json!(U64::from(index));
            index += 1;
            logs.push(LocatedLog::from_json(&log.to_string()).expect("a log"));
        }
        for (name, value) in place {
            receipt[name] = value;
        }
    }
    change(&mut receipts);
    move |method, params| match method {
        // OP Sepolia.
        "eth_chainId" => Ok(json!("0xaa37dc")),
        "eth_getBlockByNumber" | "eth_getBlockByHash" => Ok(block.clone()),
        "eth_getBlockReceipts" => Ok(receipts.clone()),
        "eth_getTransactionReceipt" => {
            let mut all = receipts.as_array().expect("a list").iter();
            let found = all.find(|receipt| receipt["transactionHash"] == params[0]);
            Ok(found.cloned().unwrap_or_default())
        }
        "eth_getLogs" => {
            let query = LogQuery::from_json(&params[0].to_string(), Semantics::Geth);
            let query = query.expect("a query");
            let matching = logs.iter().filter(|log| query.matches(&log.log, Semantics::Geth));
            Ok(json!(matching.collect::<Vec<_>>()))
        }
        method => Err(Fault::method_not_found(method)),
    }
}

#[test]
fn a_block_with_a_deposit_is_audited() {
    let report = audit_block(7, None, op_node(|_| {})).expect("a report");
    assert!(report.agrees(), "{report:?}");
    assert!(report.checks["logs.node"] > 20, "{report:?}");
    // The root covers the gas of the deposit.
    let report = audit_block(
        7,
        None,
        op_node(|receipts| {
            receipts[0]["cumulativeGasUsed"] = json!("0xb740");
        }),
    );
    let report = report.expect("a report");
    assert!(!report.differences.is_empty());
    assert!(report.differences.iter().all(|it| it.rule == "receipts.root"), "{report:?}");
}

/// The transactions of the built-in blocks are the real ones: the header commits to them.
#[test]
fn the_built_in_blocks_have_their_transactions() {
    let node = LyingNode::builder().start().expect("started");
    let call = |method: &str, params: Value| ask(&node, method, &params);
    for (number, count) in [(17_686_111, 144), (17_686_112, 133)] {
        let tag = format!("{number:#x}");
        let block = call("eth_getBlockByNumber", json!([tag, true]));
        let transactions = &block["transactions"];
        let all = BlockTransactions::from_json(&transactions.to_string()).expect("transactions");
        let root = serde_json::from_value(block["transactionsRoot"].clone()).expect("a root");
        let verified = all.verify(root).expect("those of the header");
        assert_eq!(verified.hashes().len(), count);
        let hashes = call("eth_getBlockByNumber", json!([tag, false]));
        assert_eq!(hashes["transactions"], json!(verified.hashes()));
        let receipts = call("eth_getBlockReceipts", json!([tag]));
        for (index, transaction) in transactions.as_array().expect("a list").iter().enumerate() {
            assert_eq!(transaction["transactionIndex"], json!(format!("{index:#x}")));
            let found = call("eth_getTransactionByHash", json!([transaction["hash"]]));
            assert_eq!(found, *transaction);
            let receipt = &receipts[index];
            for (of_receipt, of_transaction) in
                [("transactionHash", "hash"), ("from", "from"), ("to", "to"), ("type", "type")]
            {
                assert_eq!(receipt[of_receipt], transaction[of_transaction], "{of_receipt}");
            }
            // A receipt names a contract exactly if its transaction has no receiver.
            assert_ne!(receipt["contractAddress"].is_null(), receipt["to"].is_null());
        }
    }
}

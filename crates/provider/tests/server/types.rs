//! Transactions of types that alloy's envelope does not have: deposits of the OP stack, and types that no
//! specification has yet. The node makes up the chain; the encodings are those of alloy and `op-alloy`.

use std::time::Duration;

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::{Receipt, ReceiptEnvelope, SignableTransaction as _, TxEip1559, TxEnvelope};
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{
    Address, B256, Bytes, Log, Signature, TxKind, U256, hex, keccak256,
};
use chainsieve_provider::{RpcServer, RpcServerLimits};
use op_alloy_consensus::{OpDepositReceipt, OpReceiptEnvelope, TxDeposit};
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, MadeUp, Upstream, ask};
use crate::{counter, provider, started, until};

fn logs(byte: u8, count: usize) -> Vec<Log> {
    let topics = vec![B256::repeat_byte(byte)];
    vec![Log::new_unchecked(Address::repeat_byte(0x11), topics, Bytes::from(vec![byte])); count]
}

/// A deposit, with a receipt as since Canyon. `to` is none for the creation of a contract.
fn deposit(number: u64, to: Option<Address>, mint: u128) -> MadeUp {
    let deposit = TxDeposit {
        source_hash: B256::from(U256::from(number + 1)),
        from: Address::repeat_byte(0xde),
        to: to.map_or(TxKind::Create, TxKind::Call),
        mint,
        value: U256::from(5),
        gas_limit: 1_000_000,
        is_system_transaction: false,
        input: Bytes::from_static(b"attributes"),
    };
    let logs = logs(0x22, 1);
    let receipt = OpDepositReceipt {
        inner: Receipt { status: true.into(), cumulative_gas_used: 46_000, logs: logs.clone() },
        deposit_nonce: Some(number),
        deposit_receipt_version: Some(1),
    };
    let mut members = json!({
        "type": "0x7e", "sourceHash": deposit.source_hash, "from": deposit.from, "to": to,
        "value": "0x5", "gas": "0xf4240", "gasPrice": "0x0", "input": deposit.input,
        "nonce": format!("{number:#x}"), "v": "0x0", "r": "0x0", "s": "0x0",
        "depositReceiptVersion": "0x1",
    });
    if mint > 0 {
        members["mint"] = json!(format!("{mint:#x}"));
    }
    MadeUp {
        transaction: deposit.encoded_2718().into(),
        receipt: OpReceiptEnvelope::Deposit(receipt.with_bloom()).encoded_2718(),
        transaction_members: members,
        receipt_members: json!({
            "type": "0x7e", "depositNonce": format!("{number:#x}"), "depositReceiptVersion": "0x1",
        }),
        gas: 46_000,
        logs,
    }
}

/// A transaction of type 2. `gas_before` is what the transactions before it used.
fn signed(number: u64, gas_before: u64) -> MadeUp {
    let transaction = TxEip1559 { chain_id: 0x539, nonce: number, ..TxEip1559::default() };
    let transaction: TxEnvelope = transaction.into_signed(Signature::test_signature()).into();
    let logs = logs(0x33, 2);
    let cumulative_gas_used = gas_before + 30_000;
    let receipt = Receipt { status: true.into(), cumulative_gas_used, logs: logs.clone() };
    MadeUp {
        transaction: transaction.encoded_2718().into(),
        receipt: ReceiptEnvelope::Eip1559(receipt.with_bloom()).encoded_2718(),
        transaction_members: json!(transaction),
        receipt_members: json!({ "type": "0x2" }),
        gas: 30_000,
        logs,
    }
}

/// A type that no specification has yet.
const UNKNOWN: u8 = 0x55;

/// A transaction of an unknown type, whose receipt has the form that all receipts have so far.
fn unknown(number: u64, gas_before: u64) -> MadeUp {
    let mut transaction = vec![UNKNOWN];
    alloy_rlp::encode_list::<_, U256>(&[U256::from(number), U256::MAX], &mut transaction);
    let logs = logs(0x44, 2);
    let cumulative_gas_used = gas_before + 50_000;
    let receipt = Receipt { status: true.into(), cumulative_gas_used, logs: logs.clone() };
    let mut receipt = ReceiptEnvelope::Eip1559(receipt.with_bloom()).encoded_2718();
    receipt[0] = UNKNOWN;
    MadeUp {
        transaction: transaction.into(),
        receipt,
        transaction_members: json!({ "type": "0x55", "newMember": ["0x1"] }),
        receipt_members: json!({ "type": "0x55" }),
        gas: 50_000,
        logs,
    }
}

/// A chain as the OP stack has it since Isthmus: each block begins with a deposit, and the header has a root in
/// the place of that of withdrawals.
fn op_chain() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for number in 0..12 {
        let mut made_up =
            vec![deposit(number, Some(Address::repeat_byte(0x15)), 0), signed(number, 46_000)];
        if number == 7 {
            made_up = vec![deposit(number, None, 9)];
        }
        let root = (number > 3).then(|| B256::repeat_byte(0x77));
        blocks.push(Block::with_any(blocks.last(), &made_up, root));
    }
    blocks
}

fn unknown_chain() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for number in 0..12 {
        let made_up = vec![signed(number, 0), unknown(number, 30_000)];
        blocks.push(Block::with_any(blocks.last(), &made_up, None));
    }
    blocks
}

fn over(upstream: &Upstream) -> RpcServer {
    let provider = provider(&[upstream]).build().expect("nodes").serve();
    let mut limits = RpcServerLimits::default();
    limits.retry = Duration::from_millis(20);
    started(provider.limits(limits).poll(Duration::from_millis(10)))
}

fn result(server: &RpcServer, method: &str, params: &Value) -> Value {
    let answer = ask(server.address(), method, params);
    assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    answer["result"].clone()
}

/// All questions about blocks with deposits are answered, and nobody is accused.
#[test]
fn blocks_with_deposits() {
    let upstream = Upstream::of(op_chain());
    let server = over(&upstream);
    let result = |method: &str, params: Value| result(&server, method, &params);
    let own: Vec<_> = upstream.blocks().iter().flat_map(|block| &block.logs).collect();
    let all = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    assert_eq!(result("eth_getLogs", all), json!(own));
    for block in upstream.blocks() {
        let hash = json!(block.hash);
        let params = json!([{ "blockHash": hash }]);
        assert_eq!(result("eth_getLogs", params), json!(block.logs));

        let receipts = result("eth_getBlockReceipts", json!([hash]));
        for (index, (own, receipt)) in
            block.receipts_json().iter().zip(receipts.as_array().expect("a list")).enumerate()
        {
            for (name, value) in own.as_object().expect("a receipt") {
                assert_eq!(&receipt[name], value, "{name} of receipt {index}");
            }
            let single = result("eth_getTransactionReceipt", json!([block.hashes[index]]));
            assert_eq!(&single, receipt);
        }
        let [first, last] = [0, block.hashes.len() - 1].map(|index| &receipts[index]);
        assert_eq!(
            (&first["from"], &first["effectiveGasPrice"]),
            (&json!(Address::repeat_byte(0xde)), &json!("0x0"))
        );
        assert_eq!(
            (&first["gasUsed"], &last["type"]),
            (&json!("0xb3b0"), &json!(if block.number == 7 { "0x7e" } else { "0x2" }))
        );
        if block.number == 7 {
            let created = Address::repeat_byte(0xde).create(7);
            assert_eq!((&first["contractAddress"], &first["to"]), (&json!(created), &Value::Null));
        } else {
            assert_eq!(first["contractAddress"], Value::Null);
            assert_eq!((&last["gasUsed"], &last["depositNonce"]), (&json!("0x7530"), &Value::Null));
        }

        let full = result("eth_getBlockByHash", json!([hash, true]));
        let hashes = result("eth_getBlockByHash", json!([hash, false]));
        assert_eq!(hashes["transactions"], json!(block.hashes));
        let honest = upstream.answer("eth_getBlockByHash", &json!([hash, true]));
        let Sent::Result(honest) = honest else { panic!("no block") };
        assert_eq!(full["withdrawals"], honest["withdrawals"]);
        let deposit = &honest["transactions"][0];
        for (name, value) in deposit.as_object().expect("a transaction") {
            if name != "depositReceiptVersion" {
                assert_eq!(&full["transactions"][0][name], value, "{name}");
            }
        }
        let by_hash = result("eth_getTransactionByHash", json!([block.hashes[0]]));
        assert_eq!(by_hash, full["transactions"][0]);
        let raw = result("eth_getRawTransactionByHash", json!([block.hashes[0]]));
        let raw = hex::decode(raw.as_str().expect("hex")).expect("hex");
        let decoded = TxDeposit::decode(&mut &raw[1..]).expect("a deposit");
        assert_eq!((decoded.from, keccak256(&raw)), (Address::repeat_byte(0xde), block.hashes[0]));
    }
    until("the answers are compared", || {
        counter(&server, "chainsieve_upstream_compared_answers_total") > 0
    });
    for name in ["wrong_blocks", "altered_logs", "invented_logs", "omitted_logs"] {
        assert_eq!(counter(&server, &format!("chainsieve_upstream_{name}_total{{")), 0, "{name}");
    }
    assert_eq!(counter(&server, "chainsieve_claimed_transaction_hashes_total"), 0);
}

/// Returns the RLP of a block without ommers, with the encodings of its transactions.
fn raw_block(block: &Block) -> Value {
    let mut transactions = Vec::new();
    for encoding in block.transactions() {
        alloy_rlp::Encodable::encode(&encoding[..], &mut transactions);
    }
    let list = |payload: &[u8]| {
        let mut list = Vec::new();
        alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut list);
        [&list[..], payload].concat()
    };
    json!(hex::encode_prefixed(list(
        &[&block.header[..], &list(&transactions), &list(&[])].concat()
    )))
}

/// Where a node gives the encodings of an unknown type, every hash is proven.
#[test]
fn encodings_of_unknown_types() {
    for method in ["debug_getRawBlock", "eth_getRawTransactionByBlockHashAndIndex"] {
        let upstream = Upstream::of(unknown_chain());
        let own = upstream.clone();
        upstream.lie(move |called, params, _| {
            let block = own.blocks().iter().find(|block| params[0] == json!(block.hash));
            if called != method {
                return None;
            }
            let block = block.expect("a block");
            let Some(index) = params[1].as_str() else {
                return Some(Sent::Result(raw_block(block)));
            };
            let index = index[2..].parse::<usize>().expect("an index");
            Some(Sent::Result(json!(hex::encode_prefixed(&block.transactions()[index]))))
        });
        let server = over(&upstream);
        let own: Vec<_> = upstream.blocks().iter().flat_map(|block| &block.logs).collect();
        let all = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
        assert_eq!(result(&server, "eth_getLogs", &all), json!(own), "{method}");
        let block = &upstream.blocks()[5];
        let found = result(&server, "eth_getBlockByNumber", &json!(["0x5", false]));
        assert_eq!(found["transactions"], json!(block.hashes));
        let raw = result(&server, "eth_getRawTransactionByHash", &json!([block.hashes[1]]));
        assert_eq!(raw, json!(hex::encode_prefixed(&block.transactions()[1])));
        // What the type means is not known, so it is not written as JSON.
        for (method, params) in [
            ("eth_getBlockByNumber", json!(["0x5", true])),
            ("eth_getBlockReceipts", json!(["0x5"])),
            ("eth_getTransactionByHash", json!([block.hashes[1]])),
        ] {
            let error = &ask(server.address(), method, &params)["error"];
            assert_eq!(error["data"]["reason"], "unknown_type", "{method}: {error}");
            assert!(error["message"].as_str().expect("text").contains("type 0x55"), "{error}");
        }
        assert_eq!(counter(&server, "chainsieve_claimed_transaction_hashes_total"), 0);
        assert_eq!(counter(&server, "chainsieve_upstream_wrong_blocks_total"), 0);
    }
}

/// Where no node gives the encodings, the logs are proven, and the hashes of their transactions are marked as
/// claims of the node.
#[test]
fn hashes_of_unknown_types_are_claims() {
    let upstream = Upstream::of(unknown_chain());
    upstream.set_head(8);
    let server = over(&upstream);
    let filter = result(&server, "eth_newFilter", &json!([{}]));
    let marked = |blocks: &[Block]| -> Value {
        let logs = blocks.iter().flat_map(|block| &block.logs);
        logs.map(|log| {
            let mut log = json!(log);
            log["transactionHashProven"] = json!(false);
            log
        })
        .collect()
    };
    let all = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    assert_eq!(result(&server, "eth_getLogs", &all), marked(&upstream.blocks()[..9]));
    upstream.set_head(11);
    until("the head", || result(&server, "eth_blockNumber", &json!([])) == "0xb");
    let changes = result(&server, "eth_getFilterChanges", &json!([filter]));
    assert_eq!(changes, marked(&upstream.blocks()[9..]));
    assert!(counter(&server, "chainsieve_claimed_transaction_hashes_total") >= 12);
    // A block cannot be given without its transactions.
    for (method, params) in
        [("eth_getBlockByNumber", json!(["0x5", false])), ("eth_getBlockReceipts", json!(["0x5"]))]
    {
        let error = &ask(server.address(), method, &params)["error"];
        assert_eq!(error["data"]["reason"], "no_transactions", "{method}: {error}");
        let missing = error["data"]["missing"].to_string();
        assert!(missing.contains("unknown type 0x55"), "{missing}");
    }
    // The receipts are proven all the same.
    let raw = result(&server, "debug_getRawReceipts", &json!(["0x5"]));
    assert_eq!(raw.as_array().map(Vec::len), Some(2));
    until("the answers are compared", || {
        counter(&server, "chainsieve_upstream_compared_answers_total") > 0
    });
    for name in ["wrong_blocks", "altered_logs", "invented_logs", "omitted_logs"] {
        assert_eq!(counter(&server, &format!("chainsieve_upstream_{name}_total{{")), 0, "{name}");
    }
}

/// A node that only pretends that a type is unknown, or that withholds transactions, gets no hash of its own
/// into an answer.
#[test]
fn a_known_type_is_never_a_claim() {
    let upstream = Upstream::of(Block::chain(1, 12));
    let server = over(&upstream);
    for lie in ["pretends", "withholds"] {
        upstream.lie(move |method, params, honest| {
            let Sent::Result(honest) = honest else { return None };
            if method != "eth_getBlockByHash" || params[1] != json!(true) {
                return None;
            }
            let mut changed = honest.clone();
            if lie == "withholds" {
                return Some(Sent::Result(Value::Null));
            }
            changed["transactions"][0] = json!({ "type": "0x55", "hash": B256::repeat_byte(0xbb) });
            Some(Sent::Result(changed))
        });
        let params = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
        let answer = ask(server.address(), "eth_getLogs", &params);
        assert_eq!(answer["error"]["data"]["reason"], "no_transactions", "{answer}");
        assert_eq!(answer["error"]["code"], -32002);
    }
    assert_eq!(counter(&server, "chainsieve_claimed_transaction_hashes_total"), 0);
}

/// Receipts of an unknown type that have another form than all receipts so far are nobody's lie.
#[test]
fn receipts_of_another_form_accuse_nobody() {
    let mut blocks: Vec<Block> = Vec::new();
    for number in 0..4 {
        let mut made_up = unknown(number, 0);
        // A fifth field, which the JSON of the node names in its own way.
        let mut rest = &made_up.receipt[1..];
        let fields = alloy_rlp::Header::decode_bytes(&mut rest, true).expect("a list");
        let payload = [fields, &[7]].concat();
        made_up.receipt = vec![UNKNOWN];
        alloy_rlp::Header { list: true, payload_length: payload.len() }
            .encode(&mut made_up.receipt);
        made_up.receipt.extend(payload);
        blocks.push(Block::with_any(blocks.last(), &[made_up], None));
    }
    let upstream = Upstream::of(blocks);
    let server = over(&upstream);
    let all = json!([{ "fromBlock": "0x0", "toBlock": "latest" }]);
    let answer = ask(server.address(), "eth_getLogs", &all);
    assert_eq!(answer["error"]["data"]["reason"], "no_receipts", "{answer}");
    assert!(answer["error"]["message"].to_string().contains("0x55"), "{answer}");
    assert_eq!(counter(&server, "chainsieve_upstream_wrong_blocks_total{"), 0);
}

//! The chain of the tests, and questions about it in the form that the scripts of clients read.

use chainsieve::alloy_primitives::{Address, B256, b256};
use serde_json::{Value, json};

use super::truth::Truth;
use crate::anvil::Anvil;
use crate::ethereum::{Chain, Log, Query, STEPS, script};
use crate::harness::Scene;

/// Keccak-256 of `Transfer(address,address,uint256)`: topic 0 of the event.
pub(super) const TRANSFER: B256 =
    b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Returns accounts between which tokens move.
fn holder(account: u8) -> Address {
    Address::repeat_byte(account)
}

/// Lets a contract emit events `Transfer`, and mines their block.
fn transfer(node: &Anvil, contract: Address, transfers: &[(u8, u8, u16)]) {
    let logs = transfers.iter().map(|(from, to, value)| {
        let mut data = vec![0; 30];
        data.extend(value.to_be_bytes());
        let topics = vec![TRANSFER, holder(*from).into_word(), holder(*to).into_word()];
        Log { topics, data }
    });
    let logs: Vec<_> = logs.collect();
    node.send(3, Some(contract), &script(&logs, false), 5_000_000);
    node.mine(1);
}

/// Starts an anvil whose chain has blocks of every shape, and tokens that move.
pub(super) fn chain(scene: &Scene, seed: u64) -> (Anvil, Chain) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, seed);
    for step in STEPS {
        chain.mine(&node, step);
    }
    transfer(&node, chain.runners[0], &[(1, 2, 700), (2, 3, 0), (3, 1, 1)]);
    transfer(&node, chain.runners[1], &[(1, 2, 40)]);
    transfer(&node, chain.runners[0], &[(2, 1, 5), (1, 3, 65535)]);
    (node, chain)
}

/// Returns filters of `eth_getLogs`: every form of addresses and topics, ranges, and blocks by hash.
pub(super) fn filters(truth: &Truth, chain: &Chain) -> Vec<Value> {
    let head = truth.height();
    let mut filters: Vec<_> = Query::all(chain).iter().map(|query| query.filter(0, head)).collect();
    filters.push(Query::everything().filter(0, head));
    filters.push(Query::everything().filter(7, 11));
    filters.push(Query::everything().filter(head, head));
    filters.push(json!({ "fromBlock": "0x5", "toBlock": "0x14", "address": chain.runners[0] }));
    for block in &truth.blocks {
        filters.push(json!({ "blockHash": block.json["hash"] }));
    }
    let hash = &truth.blocks.last().expect("blocks").json["hash"];
    filters.push(json!({ "blockHash": hash, "address": chain.runners[0], "topics": [TRANSFER] }));
    filters
}

/// Returns questions about everything that is served.
pub(super) fn all(truth: &Truth, chain: &Chain) -> Vec<Value> {
    let mut questions = vec![json!({ "ask": "chainId" }), json!({ "ask": "blockNumber" })];
    questions.extend(
        filters(truth, chain).iter().map(|filter| json!({ "ask": "logs", "filter": filter })),
    );
    let to = format!("{:#x}", truth.height());
    let (holder, contract) = (|account| json!(holder(account)), chain.runners[0]);
    for (from, to_holders) in [
        (Value::Null, Value::Null),
        (holder(1), Value::Null),
        (Value::Null, json!([holder(1), holder(2)])),
        (holder(9), Value::Null),
    ] {
        questions.push(json!({
            "ask": "transfers", "address": contract, "from": from, "to": to_holders,
            "fromBlock": "0x0", "toBlock": to,
        }));
    }
    for block in &truth.blocks {
        let (number, hash) = (&block.json["number"], &block.json["hash"]);
        questions.push(json!({ "ask": "block", "number": number, "full": false }));
        questions.push(json!({ "ask": "block", "number": number, "full": true }));
        questions.push(json!({ "ask": "block", "hash": hash, "full": true }));
        for receipt in &block.receipts {
            questions.push(json!({ "ask": "receipt", "hash": receipt["transactionHash"] }));
        }
    }
    let beyond = format!("{:#x}", truth.height() + 1);
    for (method, params, code, reason) in [
        ("eth_getBalance", json!([contract.to_string(), "latest"]), -32601, "unverified_method"),
        (
            "eth_getLogs",
            json!([{ "fromBlock": "0x0", "toBlock": beyond }]),
            -32602,
            "beyond_verified_head",
        ),
        ("eth_getLogs", json!([{ "blockHash": B256::repeat_byte(7) }]), -32001, "unknown_block"),
    ] {
        let expected = json!({ "code": code, "reason": reason });
        questions.push(
            json!({ "ask": "error", "method": method, "params": params, "expected": expected }),
        );
    }
    questions
}

/// Returns questions about the receipts of whole blocks, which not all clients can ask.
pub(super) fn receipts(truth: &Truth) -> Vec<Value> {
    let numbers = truth.blocks.iter().map(|block| &block.json["number"]);
    numbers.map(|number| json!({ "ask": "receipts", "block": number })).collect()
}

//! What proven transaction hashes cost: `Provider::logs` with and without them, over loopback.
//!
//! `cargo bench -p chainsieve-provider --bench logs -- [--quick] [--json FILE]`
//!
//! The node has a made-up chain and answers from memory, receipts by `eth_getBlockReceipts`. Blocks
//! with logs are as full as those of mainnet: 150 transactions, 450 logs. The hashes are compared
//! before anything is timed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::{calculate_receipt_root, calculate_transaction_root};
use alloy_consensus::{
    Eip658Value, Header, Receipt, ReceiptEnvelope, SignableTransaction as _, TxEip1559, TxEnvelope,
};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, Signature, TxKind, U256, hex};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve_provider::{ProvenLogs, Provider};
use serde_json::{Value, json};
use testkit::eth::rpc_methods::{BlockId, RpcBlock, receipts_json, transaction_json};
use testkit::eth::{json_rpc, linked_headers};
use testkit::timer::Report;

const ADDRESS: Address = Address::repeat_byte(0xab);
const TOPIC: B256 = B256::repeat_byte(1);
/// One block in so many has logs.
const RARITY: u64 = 20;
const TRANSACTIONS: u64 = 150;
/// Logs of each transaction.
const LOGS: u64 = 3;

/// Transactions and receipts of a block.
struct Body {
    hashes: Vec<B256>,
    transactions: Value,
    receipts: Value,
    transactions_root: B256,
    receipts_root: B256,
    bloom: Bloom,
}

impl Body {
    /// Returns the body of a block whose first log matches the query; or, if `matches` is `false`,
    /// of one whose filter passes all the same.
    fn new(matches: bool) -> Self {
        let transaction = |nonce| {
            let input = vec![7; if nonce % 5 == 0 { 500 } else { 68 }];
            let unsigned = TxEip1559 {
                chain_id: 1,
                nonce,
                gas_limit: 100_000,
                max_fee_per_gas: 30_000_000_000,
                max_priority_fee_per_gas: 1_000_000_000,
                to: TxKind::Call(Address::repeat_byte(3)),
                value: U256::from(nonce),
                input: Bytes::from(input),
                ..TxEip1559::default()
            };
            TxEnvelope::from(unsigned.into_signed(Signature::test_signature()))
        };
        let transactions: Vec<_> = (0..TRANSACTIONS).map(transaction).collect();
        let log = |index: u64| {
            let address = if index == 0 { ADDRESS } else { Address::repeat_byte(0xbb) };
            let topic = if (index == 0) == matches { TOPIC } else { B256::repeat_byte(2) };
            let topics = vec![topic, B256::from(U256::from(index)), B256::repeat_byte(4)];
            Log::new_unchecked(address, topics, Bytes::from(vec![7; 32]))
        };
        let receipt = |index: u64| {
            let logs = (LOGS * index..LOGS * (index + 1)).map(log).collect();
            let cumulative_gas_used = 90_000 * (index + 1);
            let status = Eip658Value::Eip658(true);
            ReceiptEnvelope::Eip1559(Receipt { status, cumulative_gas_used, logs }.with_bloom())
        };
        let receipts: Vec<_> = (0..TRANSACTIONS).map(receipt).collect();
        let hashes: Vec<_> = transactions.iter().map(|of| *of.tx_hash()).collect();
        let block = RpcBlock {
            header_rlp: &[],
            hash: B256::ZERO,
            transactions: Vec::new(),
            bodies: Vec::new(),
            receipts: receipts.iter().map(ReceiptEnvelope::encoded_2718).collect(),
        };
        let mut of_block = receipts_json(&block, |index| hashes[index]);
        // All blocks share these receipts.
        for receipt in of_block.as_array_mut().expect("a list") {
            receipt["blockHash"] = Value::Null;
        }
        let blooms = receipts.iter().map(ReceiptEnvelope::logs_bloom);
        Self {
            bloom: blooms.fold(Bloom::ZERO, |all, one| all | *one),
            transactions: transactions
                .iter()
                .map(|of| transaction_json(&of.encoded_2718()))
                .collect(),
            receipts: of_block,
            transactions_root: calculate_transaction_root(&transactions),
            receipts_root: calculate_receipt_root(&receipts),
            hashes,
        }
    }
}

/// A chain of which one block in [`RARITY`] is a candidate, and of these, the first `matches` have a
/// match.
struct Node {
    /// RLP and JSON of each header.
    headers: Vec<(B256, String, Value)>,
    matches: u64,
    /// A block with a match, and one without.
    bodies: [Body; 2],
}

impl Node {
    fn new(blocks: u64, matches: u64) -> Self {
        let mut node =
            Self { headers: Vec::new(), matches, bodies: [Body::new(true), Body::new(false)] };
        let mut parent = B256::ZERO;
        for number in 0..blocks {
            let mut header: Header = linked_headers::header(parent, number, 0, Bloom::ZERO);
            if let Some(body) = node.body(number) {
                header.logs_bloom = body.bloom;
                header.receipts_root = body.receipts_root;
                header.transactions_root = body.transactions_root;
            }
            parent = header.hash_slow();
            let mut json = json!(header);
            json["hash"] = json!(parent);
            json["transactions"] = json!([]);
            node.headers.push((parent, hex::encode_prefixed(alloy_rlp::encode(&header)), json));
        }
        node
    }

    fn body(&self, number: u64) -> Option<&Body> {
        let is_candidate = number.is_multiple_of(RARITY);
        is_candidate.then(|| &self.bodies[usize::from(number / RARITY >= self.matches)])
    }

    fn result(&self, method: &str, params: &Value) -> Option<Value> {
        let number = match BlockId::of(&params[0]) {
            Some(BlockId::Number(number)) => usize::try_from(number).ok(),
            Some(BlockId::Hash(hash)) => self.headers.iter().position(|of| of.0 == hash),
            Some(BlockId::Tag(_)) => Some(self.headers.len() - 1),
            None => None,
        };
        let of_block = |part: &dyn Fn(u64, &(B256, String, Value)) -> Value| {
            let found = number.and_then(|number| Some((number as u64, self.headers.get(number)?)));
            Some(found.map_or(Value::Null, |(number, header)| part(number, header)))
        };
        match method {
            "eth_chainId" => Some(json!("0x1")),
            "debug_getRawHeader" => of_block(&|_, (_, header, _)| json!(header)),
            "eth_getBlockReceipts" => of_block(&|number, _| {
                self.body(number).map_or_else(|| json!([]), |body| body.receipts.clone())
            }),
            "eth_getBlockByHash" | "eth_getBlockByNumber" => of_block(&|number, (_, _, json)| {
                let mut json = json.clone();
                if let (Some(body), true) = (self.body(number), params[1] == json!(true)) {
                    json["transactions"] = body.transactions.clone();
                }
                json
            }),
            _ => None,
        }
    }
}

fn logs(address: SocketAddr, tip: B256, last: u64, has_hashes: bool) -> ProvenLogs {
    let builder = Provider::builder().url(&format!("http://{address}")).anchor(tip);
    let builder = builder.profile(ChainProfile::ethereum());
    let builder = if has_hashes { builder } else { builder.without_transaction_hashes() };
    let filter = json!({
        "address": ADDRESS,
        "topics": [TOPIC],
        "fromBlock": "0x0",
        "toBlock": format!("{last:#x}"),
    });
    let query = LogQuery::from_json(&filter.to_string(), Semantics::Geth).expect("a query");
    builder.build().expect("a node").logs(&query).expect("proven")
}

fn main() {
    let mut report = Report::from_args();
    let blocks: u64 = if report.is_quick() { 2_000 } else { 10_000 };
    for matches in [blocks / RARITY, 10] {
        let node = Arc::new(Node::new(blocks, matches));
        let tip = node.headers.last().expect("blocks").0;
        let address = {
            let node = Arc::clone(&node);
            json_rpc::serve(move |method, params| node.result(method, params))
        };
        let last = blocks - 1;
        let proven = logs(address, tip, last, true);
        assert_eq!(proven.logs.len() as u64, matches);
        assert_eq!(proven.verified, blocks / RARITY);
        let hash = Some(node.bodies[0].hashes[0]);
        assert!(
            proven.logs.iter().all(|log| log.transaction_hash == hash),
            "{:?}",
            proven.warnings
        );
        let [mut with, mut without] = [Duration::MAX; 2];
        for _ in 0..if report.is_quick() { 3 } else { 15 } {
            for (has_hashes, best) in [(true, &mut with), (false, &mut without)] {
                let began = Instant::now();
                let proven = logs(address, tip, last, has_hashes);
                *best = began.elapsed().min(*best);
                assert_eq!(proven.logs.len() as u64, matches);
            }
        }
        let name =
            format!("logs of {blocks} blocks, {} candidates, {matches} matches", proven.verified);
        report.value(
            &format!("{name}, without transaction hashes"),
            without.as_secs_f64() * 1e3,
            "ms",
        );
        let times = with.as_secs_f64() / without.as_secs_f64();
        report.value(&format!("{name}, with / without transaction hashes"), times, "times");
    }
    report.finish();
}

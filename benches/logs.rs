//! What proven transaction hashes cost: `Provider::logs` with and without them.
//!
//! `cargo bench -p benches --bench logs -- [--once | --quick] [--json FILE]`
//!
//! The node has a made-up chain and answers from memory, receipts by `eth_getBlockReceipts`. It is on
//! this machine, or as far away as a provider. Blocks with logs are as full as those of mainnet: 150
//! transactions, 450 logs. One block in twenty is a candidate; all candidates match, or few as where
//! most pass the filter by chance. The hashes are compared before anything is timed.

use std::collections::HashMap;
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
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve_provider::{ProvenLogs, Provider};
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
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
    /// A list, as JSON.
    transactions: String,
    receipts: Arc<str>,
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
        let as_json = transactions.iter().map(|of| transaction_json(&of.encoded_2718()));
        Self {
            bloom: blooms.fold(Bloom::ZERO, |all, one| all | *one),
            transactions: as_json.collect::<Value>().to_string(),
            receipts: of_block.to_string().into(),
            transactions_root: calculate_transaction_root(&transactions),
            receipts_root: calculate_receipt_root(&receipts),
            hashes,
        }
    }
}

/// A chain of which one block in [`RARITY`] is a candidate, and of these, the first `matches` have a
/// match.
struct Node {
    headers: Vec<Arc<str>>,
    numbers: HashMap<B256, u64>,
    matches: u64,
    /// Whole blocks as JSON; empty for blocks without transactions.
    blocks: Vec<Arc<str>>,
    /// A block with a match, and one without.
    bodies: [Body; 2],
    tip: B256,
    /// The newest header as JSON.
    head: Arc<str>,
}

impl Node {
    fn new(blocks: u64, matches: u64) -> Self {
        let mut node = Self {
            headers: Vec::new(),
            numbers: HashMap::new(),
            matches,
            blocks: Vec::new(),
            bodies: [Body::new(true), Body::new(false)],
            tip: B256::ZERO,
            head: "null".into(),
        };
        for number in 0..blocks {
            let mut header: Header = linked_headers::header(node.tip, number, 0, Bloom::ZERO);
            let mut transactions = "[]";
            if let Some(body) = node.body(number) {
                header.logs_bloom = body.bloom;
                header.receipts_root = body.receipts_root;
                header.transactions_root = body.transactions_root;
                transactions = &body.transactions;
            }
            let hash = header.hash_slow();
            let mut json = json!(header);
            json["hash"] = json!(hash);
            let json = json.to_string();
            let members = json.strip_suffix('}').expect("an object");
            let whole = format!("{members},\"transactions\":{transactions}}}");
            let is_candidate = number.is_multiple_of(RARITY);
            node.blocks.push(if is_candidate { whole.into() } else { "".into() });
            node.head = format!("{members},\"transactions\":[]}}").into();
            let rlp = hex::encode_prefixed(alloy_rlp::encode(&header));
            node.headers.push(json!(rlp).to_string().into());
            node.numbers.insert(hash, number);
            node.tip = hash;
        }
        node
    }

    fn body(&self, number: u64) -> Option<&Body> {
        let is_candidate = number.is_multiple_of(RARITY);
        is_candidate.then(|| &self.bodies[usize::from(number / RARITY >= self.matches)])
    }

    fn sent(&self, method: &str, params: &Value) -> Sent {
        let number = match BlockId::of(&params[0]) {
            Some(BlockId::Number(number)) => number,
            Some(BlockId::Hash(hash)) => self.numbers[&hash],
            _ => self.headers.len() as u64 - 1,
        };
        let index = usize::try_from(number).expect("small");
        Sent::Text(match method {
            "eth_chainId" => "\"0x1\"".into(),
            "debug_getRawHeader" => Arc::clone(&self.headers[index]),
            "eth_getBlockReceipts" => Arc::clone(&self.body(number).expect("receipts").receipts),
            "eth_getBlockByHash" if params[1] == true => Arc::clone(&self.blocks[index]),
            "eth_getBlockByHash" | "eth_getBlockByNumber" => Arc::clone(&self.head),
            _ => return Sent::Error(-32601, "the method does not exist/is not available"),
        })
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
    let last = blocks - 1;
    for matches in [blocks / RARITY, 10] {
        let node = Arc::new(Node::new(blocks, matches));
        for latency in [0, 20].map(Duration::from_millis) {
            let of_node = Arc::clone(&node);
            let address =
                json_rpc::serve_after(latency, move |method, params| of_node.sent(method, params));
            let logs = |has_hashes| logs(address, node.tip, last, has_hashes);
            let proven = logs(true);
            assert_eq!(proven.logs.len() as u64, matches);
            assert_eq!(proven.verified, blocks / RARITY);
            let hash = Some(node.bodies[0].hashes[0]);
            let is_right = |log: &LocatedLog| log.transaction_hash == hash;
            assert!(proven.logs.iter().all(is_right), "{:?}", proven.warnings);
            let [mut with, mut without] = [Duration::MAX; 2];
            for _ in 0..if report.is_quick() { 3 } else { 10 } {
                for (has_hashes, best) in [(true, &mut with), (false, &mut without)] {
                    let began = Instant::now();
                    let proven = logs(has_hashes);
                    *best = began.elapsed().min(*best);
                    assert_eq!(proven.logs.len() as u64, matches);
                }
            }
            let name = format!(
                "logs of {blocks} blocks, {} candidates, {matches} with a match, {} ms away",
                proven.verified,
                latency.as_millis()
            );
            let [with, without] = [with, without].map(|time| time.as_secs_f64() * 1e3);
            report.value(&format!("{name}, without hashes"), without, "ms");
            report.value(&format!("{name}, with / without hashes"), with / without, "times");
        }
    }
    report.finish();
}

//! The endpoint beside the node behind it: the same questions straight and through, over loopback.
//!
//! `cargo bench -p benches --bench endpoint -- [--once | --quick] [--json FILE]`
//!
//! The node has a made-up chain, of which one block in twenty has logs of one address. It answers
//! from memory. Every answer is compared before anything is timed.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::calculate_transaction_root;
use alloy_consensus::{
    Header, Receipt, ReceiptEnvelope, SignableTransaction as _, TxEnvelope, TxLegacy,
};
use alloy_primitives::{Address, B256, Bloom, Bytes, Log, Signature, U64, hex};
use alloy_rpc_types_eth::Transaction;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve_provider::{Provider, RpcServer, RpcServerBuilder};
use serde_json::{Value, json};
use testkit::eth::json_rpc;
use testkit::eth::linked_headers;
use testkit::timer::Report;

const ADDRESS: Address = Address::repeat_byte(0xaa);
/// Three logs of each such block are of this address.
const FEW: Address = Address::repeat_byte(0xab);
/// One block in so many has logs of [`ADDRESS`].
const RARITY: u64 = 20;
/// Logs of a block.
const LOGS: u64 = 60;

struct Block {
    hash: B256,
    header: String,
    /// With whole transactions.
    json: Value,
    receipts: Value,
    logs: Vec<LocatedLog>,
}

struct Node {
    blocks: Vec<Block>,
    numbers: HashMap<String, usize>,
}

/// Returns the receipt and the transaction of a block.
fn contents(number: u64) -> (ReceiptEnvelope, TxEnvelope) {
    let logs = (0..LOGS).map(|index| {
        let address = match (number.is_multiple_of(RARITY), index) {
            (true, 0..3) => FEW,
            (true, _) => ADDRESS,
            (false, _) => Address::repeat_byte(0xbb),
        };
        let topics = vec![B256::repeat_byte(1), B256::from(alloy_primitives::U256::from(index))];
        Log::new_unchecked(address, topics, Bytes::from(vec![7; 32]))
    });
    let receipt = Receipt { status: true.into(), cumulative_gas_used: 1, logs: logs.collect() };
    let transaction = TxLegacy { nonce: number, ..TxLegacy::default() };
    let signed = transaction.into_signed(Signature::test_signature());
    (ReceiptEnvelope::Legacy(receipt.with_bloom()), signed.into())
}

impl Node {
    fn new(blocks: u64) -> Self {
        let mut node = Self { blocks: Vec::new(), numbers: HashMap::new() };
        let mut parent = B256::ZERO;
        for number in 0..blocks {
            let (receipt, transaction) = contents(number);
            let mut header: Header = linked_headers::header(parent, number, 0, Bloom::ZERO);
            header.logs_bloom = *receipt.logs_bloom();
            header.receipts_root =
                alloy_consensus::proofs::calculate_receipt_root(std::slice::from_ref(&receipt));
            header.transactions_root =
                calculate_transaction_root(std::slice::from_ref(&transaction));
            parent = header.hash_slow();
            let mut json = json!(header);
            json["hash"] = json!(parent);
            json["transactions"] = json!([Transaction {
                inner: alloy_consensus::transaction::Recovered::new_unchecked(
                    transaction.clone(),
                    Address::ZERO
                ),
                block_hash: None,
                block_number: None,
                transaction_index: None,
                effective_gas_price: None,
                block_timestamp: None,
            }]);
            let logs = receipt.logs().iter().zip(0..).map(|(log, log_index)| LocatedLog {
                log: log.clone(),
                block_number: number,
                block_hash: parent,
                block_timestamp: Some(header.timestamp),
                transaction_hash: Some(*transaction.tx_hash()),
                claimed_transaction_hash: None,
                transaction_index: 0,
                log_index,
                removed: false,
            });
            node.numbers.insert(parent.to_string(), node.blocks.len());
            node.blocks.push(Block {
                hash: parent,
                header: hex::encode_prefixed(alloy_rlp::encode(&header)),
                json,
                receipts: json!([hex::encode_prefixed(receipt.encoded_2718())]),
                logs: logs.filter(|_| number.is_multiple_of(RARITY)).collect(),
            });
        }
        node
    }

    fn at(&self, tag: &Value) -> Option<&Block> {
        let text = tag.as_str()?;
        let digits = text.strip_prefix("0x");
        let index = match (digits, self.numbers.get(text)) {
            (_, Some(index)) => *index,
            (Some(digits), None) => usize::from_str_radix(digits, 16).ok()?,
            (None, None) => self.blocks.len() - 1,
        };
        self.blocks.get(index)
    }

    fn result(&self, method: &str, params: &Value) -> Option<Value> {
        let of =
            |part: &dyn Fn(&Block) -> Value| Some(self.at(&params[0]).map_or(Value::Null, part));
        match method {
            "eth_chainId" => Some(json!("0x1")),
            "debug_getRawHeader" => of(&|block| json!(block.header)),
            "debug_getRawReceipts" => of(&|block| block.receipts.clone()),
            "eth_getBlockByHash" | "eth_getBlockByNumber" => of(&|block| block.json.clone()),
            "eth_getLogs" => {
                let number = |name: &str| -> usize {
                    let number: U64 = serde_json::from_value(params[0][name].clone()).expect("one");
                    number.to()
                };
                let blocks = &self.blocks[number("fromBlock")..=number("toBlock")];
                let address: Address =
                    serde_json::from_value(params[0]["address"].clone()).expect("an address");
                let logs = blocks.iter().flat_map(|block| &block.logs);
                Some(json!(logs.filter(|log| log.log.address == address).collect::<Vec<_>>()))
            }
            _ => None,
        }
    }
}

/// A client with a connection that stays open.
struct Client {
    agent: ureq::Agent,
    url: String,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self { agent: ureq::Agent::new_with_defaults(), url: format!("http://{address}") }
    }

    fn get(&self, path: &str) -> String {
        let answer = self.agent.get(format!("{}{path}", self.url)).call().expect("an answer");
        answer.into_body().read_to_string().expect("text")
    }

    fn ask(&self, call: &str) -> String {
        let request = self.agent.post(&self.url).header("Content-Type", "application/json");
        let mut answer = request.send(call).expect("an answer");
        let body = answer.body_mut().with_config().limit(1 << 30);
        body.read_to_string().expect("text")
    }
}

fn call(from: u64, to: u64, address: Address) -> String {
    let filter =
        json!({ "address": address, "fromBlock": U64::from(from), "toBlock": U64::from(to) });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [filter] }).to_string()
}

fn result(answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    assert!(answer["result"].is_array(), "{}", answer["error"]);
    answer["result"].clone()
}

fn provider(address: SocketAddr, tip: B256) -> Provider {
    let builder = Provider::builder().url(&format!("http://{address}")).anchor(tip);
    builder.profile(ChainProfile::ethereum()).build().expect("a node")
}

fn started(server: RpcServerBuilder) -> RpcServer {
    let server = server.without_comparison();
    let server = server.start("127.0.0.1:0".parse().expect("one")).expect("it starts");
    while server.head().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    server
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// Asks from several clients at the same time. Returns questions a second, and the 99th percentile.
fn load(address: SocketAddr, clients: usize, each: usize, question: &str) -> (f64, Duration) {
    let began = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let client = Client::new(address);
                    let ask = |_| {
                        let began = Instant::now();
                        let answer = client.ask(question);
                        assert!(answer.contains("\"result\""), "{answer}");
                        began.elapsed()
                    };
                    (0..each).map(ask).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let took = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let rate = times.len() as f64 / took;
    (rate, times[times.len() * 99 / 100])
}

fn main() {
    let mut report = Report::from_args();
    let count = if report.is_quick() { 2_000 } else { 10_000 };
    let node = Arc::new(Node::new(count));
    let tip = node.blocks.last().expect("blocks").hash;
    let asked = Arc::new(AtomicU64::new(0));
    let address = {
        let (node, asked) = (Arc::clone(&node), Arc::clone(&asked));
        json_rpc::serve(move |method, params| {
            asked.fetch_add(1, Ordering::Relaxed);
            node.result(method, params)
        })
    };
    let last = count - 1;
    if report.wants("cached") {
        cached(&mut report, address, tip, last);
    }
    if report.wants("first") {
        first(&mut report, address, &node, tip, last);
    }
    if report.wants("load") {
        under_load(&mut report, address, tip);
    }
    report.finish();
}

/// A question whose blocks are in memory, and one that the filters rule out.
fn cached(report: &mut Report, address: SocketAddr, tip: B256, last: u64) {
    let server = started(provider(address, tip).serve());
    let (straight, through) = (Client::new(address), Client::new(server.address()));
    for (name, question) in [
        (
            "eth_getLogs of 1,000 blocks with 2,850 logs, from memory",
            call(last - 999, last, ADDRESS),
        ),
        ("eth_getLogs of 20 blocks with 57 logs, from memory", call(last - 19, last, ADDRESS)),
        (
            "eth_getLogs of 1,000 blocks, all ruled out",
            call(last - 999, last, Address::repeat_byte(0xcc)),
        ),
    ] {
        assert_eq!(result(&through.ask(&question)), result(&straight.ask(&question)), "{name}");
        report.ratio(name, 1, || through.ask(&question), || straight.ask(&question));
    }
    for (name, is_full) in [
        ("repeated eth_getBlockByNumber of latest", false),
        ("repeated eth_getBlockByNumber of latest, with transactions", true),
    ] {
        let question = json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "eth_getBlockByNumber",
            "params": ["latest", is_full],
        });
        let question = question.to_string();
        let answer = |client: &Client| -> Value {
            serde_json::from_str(&client.ask(&question)).expect("JSON")
        };
        let (own, of_node) = (answer(&through), answer(&straight));
        for member in ["hash", "number", "receiptsRoot"] {
            assert_eq!(own["result"][member], of_node["result"][member], "{name}: {member}");
        }
        let first = &own["result"]["transactions"][0];
        let hash = if is_full { &first["hash"] } else { first };
        assert_eq!(*hash, of_node["result"]["transactions"][0]["hash"], "{name}");
        report.ratio(name, 1, || through.ask(&question), || straight.ask(&question));
    }
}

/// The first question about a range, beside the time to fetch its headers and the receipts of its
/// candidates and nothing else: with the headers, and with an index of an earlier run in their place.
fn first(report: &mut Report, address: SocketAddr, node: &Node, tip: B256, last: u64) {
    let question = call(0, last, FEW);
    let candidates: Vec<BlockRef> = node
        .blocks
        .iter()
        .zip(0..)
        .filter(|(block, _)| !block.logs.is_empty())
        .map(|(block, number)| BlockRef { number, hash: block.hash })
        .collect();
    let expected = 3 * candidates.len();
    let parts = |provider: &Provider| {
        let headers = provider.headers(0..=last).expect("headers");
        let mut fetched = 0;
        provider.nodes()[0]
            .receipts_of(&candidates, |_, receipts| {
                fetched += receipts.expect("an answer").expect("receipts").len();
                Ok::<_, std::convert::Infallible>(())
            })
            .expect("no error");
        assert_eq!((headers.len() as u64, fetched), (last + 1, candidates.len()));
    };
    // What binds the hashes of the transactions, by requests of their own.
    let bodies = |provider: &Provider| {
        let node = &provider.nodes()[0];
        std::thread::scope(|scope| {
            for part in candidates.chunks(candidates.len().div_ceil(8)) {
                scope.spawn(move || {
                    for block in part {
                        let params = json!([block.hash, true]);
                        let body: Value =
                            node.call("eth_getBlockByHash", &params).expect("a block");
                        assert!(body["transactions"][0].is_object());
                    }
                });
            }
        });
    };
    let folder = std::env::temp_dir().join(format!("chainsieve-endpoint-{}", std::process::id()));
    let indexed = || {
        let server = started(provider(address, tip).serve().index(&folder).index_from(0));
        while !Client::new(server.address()).get("/health").contains(&format!("\"end\":{last}")) {
            std::thread::sleep(Duration::from_millis(1));
        }
        server
    };
    drop(indexed());
    let logs = result(&Client::new(indexed().address()).ask(&question));
    assert_eq!(logs.as_array().map(Vec::len), Some(expected));
    assert_eq!(logs, result(&Client::new(address).ask(&question)));
    assert_eq!(
        logs,
        result(&Client::new(started(provider(address, tip).serve()).address()).ask(&question))
    );
    // A question is the first one once, so each run has a server of its own, whose start is not timed.
    let timed = |server: RpcServer| {
        let client = Client::new(server.address());
        let began = Instant::now();
        let answer = client.ask(&question);
        let took = began.elapsed();
        assert_eq!(answer.matches("\"logIndex\"").count(), expected);
        took
    };
    let [mut alone, mut all, mut ours, mut with_index] = [Duration::MAX; 4];
    for _ in 0..if report.is_quick() { 3 } else { 15 } {
        let provider = provider(address, tip);
        provider.chain_id().expect("a node");
        let began = Instant::now();
        parts(&provider);
        alone = alone.min(began.elapsed());
        bodies(&provider);
        all = all.min(began.elapsed());
        ours = ours.min(timed(started(provider.serve())));
        with_index = with_index.min(timed(indexed()));
    }
    let _ = std::fs::remove_dir_all(&folder);
    let name = format!("first eth_getLogs of {} blocks", last + 1);
    let ratio = |other: Duration| other.as_secs_f64() / alone.as_secs_f64();
    let alone = alone.as_secs_f64() * 1e3;
    report.value(&format!("{name}: its headers and receipts"), alone, "ms");
    report.value(&format!("{name}: through / headers and receipts"), ratio(ours), "times");
    report.value(
        &format!("{name}: with an index / headers and receipts"),
        ratio(with_index),
        "times",
    );
    report.value(&format!("{name}: with transactions / headers and receipts"), ratio(all), "times");
}

/// Sixty-four clients, and the memory after many questions.
fn under_load(report: &mut Report, address: SocketAddr, tip: B256) {
    let server = started(provider(address, tip).serve());
    let cached = call(1980, 1999, ADDRESS);
    let ruled_out = call(1000, 1999, Address::repeat_byte(0xcc));
    let (clients, each) = (64, if report.is_quick() { 20 } else { 200 });
    for (name, question) in
        [("20 blocks with 57 logs", &cached), ("1,000 ruled-out blocks", &ruled_out)]
    {
        let through = Client::new(server.address()).ask(question);
        assert_eq!(result(&through), result(&Client::new(address).ask(question)), "{name}");
        let (mut straight, mut ours) = (Vec::new(), Vec::new());
        let (mut cpu, mut answers) = (0.0, 0.0);
        for _ in 0..5 {
            straight.push(load(address, clients, each, question));
            let before = cpu_of_endpoint();
            ours.push(load(server.address(), clients, each, question));
            cpu += cpu_of_endpoint() - before;
            answers += (clients * each) as f64;
        }
        let [(rate, p99), (own_rate, own_p99)] = [straight, ours].map(medians);
        report.value(&format!("{name}, 64 clients, straight"), rate, "1/s");
        report.value(&format!("{name}, 64 clients, through"), own_rate, "1/s");
        report.value(&format!("{name}, 64 clients, 99th percentile straight"), p99, "ms");
        report.value(&format!("{name}, 64 clients, 99th percentile through"), own_p99, "ms");
        report.value(
            &format!("{name}, 99th percentile through / straight"),
            own_p99 / p99,
            "times",
        );
        report.value(&format!("{name}, proven answers a core"), answers / cpu, "1/s");
    }
    let many = |questions: usize| {
        load(server.address(), 8, questions / 8, &cached);
        resident()
    };
    let (early, late) = if report.is_quick() { (500, 1_500) } else { (50_000, 150_000) };
    if let (Some(early), Some(late)) = (many(early), many(late)) {
        report.value("resident memory after four times as many questions", late / early, "times");
    }
}

/// Returns the median rate, and the median of the 99th percentiles in milliseconds.
fn medians(mut runs: Vec<(f64, Duration)>) -> (f64, f64) {
    let mut median = |order: fn(&(f64, Duration), &(f64, Duration)) -> std::cmp::Ordering| {
        runs.sort_by(order);
        runs[runs.len() / 2]
    };
    let rate = median(|one, other| one.0.total_cmp(&other.0)).0;
    (rate, median(|one, other| one.1.cmp(&other.1)).1.as_secs_f64() * 1e3)
}

/// Returns the processor time of the endpoint's threads so far, in seconds.
fn cpu_of_endpoint() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |thread: &std::path::Path| {
        let name = std::fs::read_to_string(thread.join("comm")).ok()?;
        let time = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        let is_ours = name.trim() == "chainsieve-rpc";
        is_ours.then(|| time.split(' ').next()?.parse::<f64>().ok()).flatten()
    };
    threads.filter_map(|thread| of(&thread.path())).sum::<f64>() / 1e9
}

//! Blocks with as many logs as a gas limit of 75 million allows, and nodes whose answers are far too long. The
//! endpoint runs in a process of its own, whose memory is measured.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::{Receipt, ReceiptEnvelope, SignableTransaction as _, TxEip1559, TxEnvelope};
use chainsieve::alloy_primitives::{Address, B256, Bytes, Log, Signature, hex};
use chainsieve_provider::Builder;
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;

use crate::upstream::{Block, MadeUp, Upstream, ask};
use crate::{provider, started};

/// URLs of the nodes, for the process that runs the endpoint.
const NODES: &str = "CHAINSIEVE_TEST_NODES";
/// The calls that it asks at the same time.
const CALLS: &str = "CHAINSIEVE_TEST_CALLS";

/// What the process with the endpoint says at its end.
struct Ran {
    answers: Vec<Value>,
    /// The most memory that it ever had, in MiB.
    peak: u64,
}

/// The process with the endpoint. As a test, it does nothing.
#[test]
fn endpoint_of_a_child() {
    let (Ok(nodes), Ok(calls)) = (std::env::var(NODES), std::env::var(CALLS)) else { return };
    let builder = nodes.split(' ').fold(provider(&[]), Builder::url);
    let endpoint = builder.build().expect("nodes").serve();
    let server = started(endpoint.poll(Duration::from_secs(3600)));
    let calls: Vec<(String, Value)> = serde_json::from_str(&calls).expect("calls");
    let address = server.address();
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = calls
            .iter()
            .map(|(method, params)| scope.spawn(|| ask(address, method, params)))
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // The comparison of the answers, too.
    std::thread::sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    println!("\nRAN {}", json!({ "answers": answers, "peak": peak / 1024 }));
}

/// Runs an endpoint over these nodes, and asks these calls at the same time.
fn run(nodes: &[&Upstream], calls: &[(&str, Value)]) -> Ran {
    let urls: Vec<String> = nodes.iter().map(|node| node.url()).collect();
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["large::endpoint_of_a_child", "--exact", "--nocapture"])
        .env(NODES, urls.join(" "))
        .env(CALLS, json!(calls).to_string())
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&child.stdout);
    let ran = text.lines().find_map(|line| line.strip_prefix("RAN "));
    let ran = ran.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&child.stderr)));
    let ran: Value = serde_json::from_str(ran).expect("JSON");
    let answers = ran["answers"].as_array().expect("a list").clone();
    let peak = ran["peak"].as_u64().expect("a number");
    eprintln!("peak: {peak} MiB");
    Ran { answers, peak }
}

const TRANSACTIONS: u64 = 4;
const LOGS: u64 = 50_000;
/// Gas of a transaction, and of an instruction `LOG0` without data.
const GAS: u64 = 21_000 + LOGS * 375;

fn rare() -> Log {
    let topics = vec![B256::repeat_byte(0x77)];
    Log::new_unchecked(Address::repeat_byte(0x88), topics, Bytes::from_static(b"rare"))
}

/// A chain whose block 2 has 200,000 empty logs, and one more at the end.
fn chain() -> Vec<Block> {
    let mut blocks = Block::chain(1, 2);
    let empty = Log::new_unchecked(Address::repeat_byte(0x99), Vec::new(), Bytes::new());
    let made_up = (0..TRANSACTIONS).map(|nonce| {
        let mut logs = vec![empty.clone(); usize::try_from(LOGS).expect("small")];
        if nonce + 1 == TRANSACTIONS {
            logs.push(rare());
        }
        let transaction = TxEip1559 { chain_id: 0x539, nonce, ..TxEip1559::default() };
        let transaction: TxEnvelope = transaction.into_signed(Signature::test_signature()).into();
        let cumulative_gas_used = (nonce + 1) * GAS;
        let receipt = Receipt { status: true.into(), cumulative_gas_used, logs: logs.clone() };
        MadeUp {
            transaction: transaction.encoded_2718().into(),
            receipt: ReceiptEnvelope::Eip1559(receipt.with_bloom()).encoded_2718(),
            transaction_members: json!(transaction),
            receipt_members: json!({ "type": "0x2" }),
            gas: GAS,
            logs,
        }
    });
    let block = Block::with_any(blocks.last(), &made_up.collect::<Vec<_>>(), None);
    blocks.push(block);
    Block::extend(&mut blocks, 1, 3);
    blocks
}

/// Returns the receipts of the large block as a node writes them, each as a text of some 18 MB.
fn receipts(block: &Block) -> Vec<String> {
    let mut logs = block.logs.iter().peekable();
    let written = block.receipts_json().iter().zip(0..).map(|(receipt, index)| {
        let mut text = String::from("[");
        while let Some(log) = logs.next_if(|log| log.transaction_index == index) {
            if text.len() > 1 {
                text.push(',');
            }
            text += &serde_json::to_string(log).expect("JSON");
        }
        text.push(']');
        receipt.to_string().replace("\"logs\":[]", &format!("\"logs\":{text}"))
    });
    written.collect()
}

/// Asks for the rare log, and returns the peak of memory in MiB.
fn find_the_rare_log(upstream: &Upstream) -> u64 {
    let call = json!([{ "fromBlock": "0x0", "toBlock": "latest", "address": rare().address }]);
    let Ran { answers, peak } = run(&[upstream], &[("eth_getLogs", call)]);
    let own = upstream.blocks()[2].logs.last().expect("logs");
    assert_eq!(own.log_index, TRANSACTIONS * LOGS);
    assert_eq!(answers[0]["result"], json!([own]), "{}", answers[0]["error"]);
    peak
}

/// Generous: the receipts take about 16 MiB, and their JSON 72 MB.
const MOST: u64 = 220;

#[test]
fn a_large_block_by_raw_receipts() {
    let upstream = Upstream::of(chain());
    upstream.lie(|method, _, _| {
        (method == "eth_getBlockReceipts").then_some(Sent::Error(-32601, "no method"))
    });
    let peak = find_the_rare_log(&upstream);
    assert!(peak < MOST, "{peak} MiB");
}

#[test]
fn a_large_block_by_json() {
    let upstream = Upstream::of(chain());
    let all: Arc<str> = format!("[{}]", receipts(&upstream.blocks()[2]).join(",")).into();
    assert!(all.len() > 64 << 20, "{}", all.len());
    let hash = json!(upstream.blocks()[2].hash);
    upstream.lie(move |method, params, _| match method {
        "eth_getBlockReceipts" if params[0] == hash => Some(Sent::Text(Arc::clone(&all))),
        "debug_getRawReceipts" => Some(Sent::Error(-32601, "no method")),
        _ => None,
    });
    let peak = find_the_rare_log(&upstream);
    assert!(peak < MOST, "{peak} MiB");
}

#[test]
fn a_large_block_by_each_transaction() {
    let upstream = Upstream::of(chain());
    let block = upstream.blocks()[2].clone();
    let texts: Vec<Arc<str>> = receipts(&block).into_iter().map(Arc::from).collect();
    upstream.lie(move |method, params, _| match method {
        "eth_getBlockReceipts" => Some(Sent::Error(-32008, "Response is too big")),
        "debug_getRawReceipts" => Some(Sent::Error(-32601, "no method")),
        "eth_getTransactionReceipt" => {
            let at = block.hashes.iter().position(|hash| params[0] == json!(hash))?;
            Some(Sent::Text(Arc::clone(&texts[at])))
        }
        _ => None,
    });
    let peak = find_the_rare_log(&upstream);
    assert!(peak < MOST, "{peak} MiB");
}

/// A node that answers with far more receipts than the gas of the header allows costs little memory, and the
/// next one is asked.
#[test]
fn a_million_made_up_receipts() {
    let blocks = Block::chain(1, 12);
    let (hostile, honest) = (Upstream::of(blocks.clone()), Upstream::of(blocks));
    let receipt = |at: u64| {
        format!(
            r#"{{"logs":[],"cumulativeGasUsed":"0x1","status":"0x1","transactionIndex":"{at:#x}"}}"#
        )
    };
    let empty: Arc<str> =
        format!("[{}]", (0..800_000).map(receipt).collect::<Vec<_>>().join(",")).into();
    let raw = hex::encode_prefixed(
        [&[0xf9, 0x01, 0x06, 0x01, 0x01, 0xb9, 0x01, 0][..], &[0; 256], &[0xc0]].concat(),
    );
    let raw: Arc<str> = format!("[{}]", vec![format!("\"{raw}\""); 110_000].join(",")).into();
    assert!(empty.len() > 55_000_000 && raw.len() > 55_000_000, "{} {}", empty.len(), raw.len());
    hostile.lie(move |method, _, _| match method {
        "eth_getBlockReceipts" => Some(Sent::Text(Arc::clone(&empty))),
        "debug_getRawReceipts" => Some(Sent::Text(Arc::clone(&raw))),
        _ => None,
    });
    let call = |block: &Block| ("eth_getLogs", json!([{ "blockHash": block.hash }]));
    let calls: Vec<_> = honest.blocks().iter().map(call).collect();
    let Ran { answers, peak } = run(&[&hostile, &honest], &calls);
    for (answer, block) in answers.iter().zip(honest.blocks()) {
        assert_eq!(answer["result"], json!(block.logs), "{}", answer["error"]);
    }
    assert!(peak < 300, "{peak} MiB");
}

/// Long answers of a node are held a few at a time, however many calls there are.
#[test]
fn long_answers_wait_for_each_other() {
    let blocks = Block::chain(1, 40);
    let (hostile, honest) = (Upstream::of(blocks.clone()), Upstream::of(blocks));
    let junk: Arc<str> = format!("{{\"extraData\":\"{}\"}}", "0".repeat(50 << 20)).into();
    hostile.lie(move |method, params, _| {
        let is_body = method == "eth_getBlockByHash" && params[1] == json!(true);
        is_body.then(|| Sent::Text(Arc::clone(&junk)))
    });
    let call = |block: &Block| ("eth_getBlockByHash", json!([block.hash, false]));
    let calls: Vec<_> = honest.blocks().iter().map(call).collect();
    let Ran { answers, peak } = run(&[&hostile, &honest], &calls);
    for (answer, block) in answers.iter().zip(honest.blocks()) {
        assert_eq!(answer["result"]["transactions"], json!(block.hashes), "{}", answer["error"]);
    }
    assert!(peak < 700, "{peak} MiB");
}

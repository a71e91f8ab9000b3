//! Tests of the `eth` commands on real blocks.
//!
//! The expected values come from the facts in the fixtures, and from readers and writers of RLP,
//! JSON-RPC and archives that share no code with the binary.

pub(crate) mod anchor;
mod audit;
mod era;
mod headers;
mod hostile;
mod index;
pub(crate) mod rpc;
pub(crate) mod write;

use super::*;
use alloy_rlp::Header as Rlp;
use chainsieve::alloy_primitives::{B256, keccak256};

const FIRST: &str = "mainnet_17686111";
const SECOND: &str = "mainnet_17686112";
pub(crate) const WETH: &str = "0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2";
const DEPOSIT: &str = "Deposit(address,uint256)";
const ROUTER: &str = "address:0x7a250d5630B4cF539739dF2C5dAcb4c659F2488D";
/// Flags of the query.
pub(crate) const QUERY: [&str; 6] = ["--address", WETH, "--event", DEPOSIT, "--topic1", ROUTER];

/// A real block of mainnet.
pub(crate) struct Block {
    number: u64,
    pub(crate) hash: String,
    pub(crate) header: Vec<u8>,
    /// The receipts, each as encoded in the trie.
    pub(crate) receipts: Vec<Vec<u8>>,
}

pub(crate) fn eth_fixture(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ethereum").join(name);
    serde_json::from_slice(&fs::read(path).expect("fixture")).expect("fixture is JSON")
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(text(value).trim_start_matches("0x")).expect("hex")
}

impl Block {
    pub(crate) fn read(name: &str) -> Self {
        let fixture = eth_fixture(&format!("blocks/{name}.json"));
        let receipts = fixture["receipts"].as_array().expect("receipts").iter().map(bytes);
        let block = Self {
            number: fixture["number"].as_u64().expect("a number"),
            hash: text(&fixture["hash"]).to_owned(),
            header: bytes(&fixture["header"]),
            receipts: receipts.collect(),
        };
        assert_eq!(keccak256(&block.header).to_string(), block.hash);
        block
    }

    pub(crate) fn both() -> [Self; 2] {
        [FIRST, SECOND].map(Self::read)
    }

    /// Returns the bloom, which is at a fixed position in every mainnet header.
    fn bloom(&self) -> &[u8] {
        &self.header[192..448]
    }

    fn bits_set(&self) -> u32 {
        self.bloom().iter().map(|byte| byte.count_ones()).sum()
    }

    /// Returns all receipts as one RLP list: legacy receipts as lists, others as strings.
    pub(crate) fn receipts_rlp(&self) -> Vec<u8> {
        let items = self.receipts.iter().map(|receipt| match receipt[0] {
            0xc0.. => receipt.clone(),
            _ => write::string(receipt),
        });
        write::list(&items.collect::<Vec<_>>())
    }

    /// Returns all receipts in the slim encoding, `[type, status, gas, logs]`.
    fn slim_rlp(&self) -> Vec<u8> {
        let items = self.receipts.iter().map(|receipt| {
            let (kind, rest) = match receipt[0] {
                0xc0.. => (vec![0x80], &receipt[..]),
                kind => (vec![kind], &receipt[1..]),
            };
            let [status, gas, _, logs] = items(rest).try_into().expect("four fields");
            write::list(&[kind, status, gas, logs])
        });
        write::list(&items.collect::<Vec<_>>())
    }

    /// Returns the logs as a node returns them: each has its own index and the index of its
    /// transaction.
    fn logs(&self) -> Vec<Value> {
        let mut logs = Vec::new();
        for (transaction, receipt) in self.receipts.iter().enumerate() {
            let list = if receipt[0] < 0xc0 { &receipt[1..] } else { receipt };
            for log in items(&items(list)[3]) {
                let [address, topics, data] = items(&log).try_into().expect("three fields");
                let topics: Vec<_> =
                    items(&topics).iter().map(|topic| hex0x(content(topic))).collect();
                logs.push(json!({
                    "address": hex0x(content(&address)),
                    "topics": topics,
                    "data": hex0x(content(&data)),
                    "blockNumber": format!("{:#x}", self.number),
                    "blockHash": self.hash,
                    "transactionIndex": format!("{transaction:#x}"),
                    "logIndex": format!("{:#x}", logs.len()),
                    "removed": false,
                }));
            }
        }
        logs
    }
}

/// Returns the correct answer to the query over both blocks: seven logs.
pub(crate) fn answer() -> Vec<Value> {
    let signature = keccak256(DEPOSIT).to_string();
    let router = format!("0x{:0>64}", ROUTER.trim_start_matches("address:0x").to_lowercase());
    let wanted = |log: &Value| {
        text(&log["address"]) == WETH.to_lowercase()
            && log["topics"].get(0).is_some_and(|topic| *topic == json!(signature))
            && log["topics"].get(1).is_some_and(|topic| *topic == json!(router))
    };
    let logs: Vec<_> = Block::both().iter().flat_map(Block::logs).filter(wanted).collect();
    assert_eq!(logs.len(), 7);
    logs
}

/// Returns the encodings of the items of an RLP list.
fn items(list: &[u8]) -> Vec<Vec<u8>> {
    let mut payload = Rlp::decode_bytes(&mut &list[..], true).expect("a list");
    let mut items = Vec::new();
    while !payload.is_empty() {
        let item = payload;
        Rlp::decode_raw(&mut payload).expect("RLP");
        items.push(item[..item.len() - payload.len()].to_vec());
    }
    items
}

/// Returns the content of an RLP string.
fn content(string: &[u8]) -> &[u8] {
    Rlp::decode_bytes(&mut &string[..], false).expect("a string")
}

fn hex0x(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

/// Returns a file with two concatenated headers.
fn both_headers(name: &str) -> TempFile {
    TempFile::new(name, Block::both().map(|block| block.header).concat())
}

/// Runs a command with `--json`, and returns its lines of JSON.
fn json_lines(args: &[&str], code: i32) -> Vec<Value> {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    output.lines()
}

#[test]
fn demo_shows_an_omission_and_its_proof() {
    let json = json_of(&["demo"], YES);
    let audit = &json["audit"];
    let all = answer();
    assert_eq!((&audit["answered"], &audit["complete"]), (&json!(6), &json!(7)));
    assert_eq!(audit["anchor"], json!(Block::read(SECOND).hash));
    let omitted = &audit["omitted"];
    let expected = all.iter().find(|log| log["logIndex"] == omitted["logIndex"]);
    let expected = expected.expect("a log of the whole answer");
    for field in ["address", "topics", "data", "transactionIndex", "blockHash", "blockNumber"] {
        assert_eq!(omitted[field], expected[field], "{field}");
    }
    // In the proof, each node's hash is in the previous node, and the first node's hash is the
    // header's root.
    let nodes = audit["receipt_proof"]["nodes"].as_array().expect("nodes");
    let block = Block::read(FIRST);
    let mut holder = block.header.clone();
    for node in nodes.iter().map(bytes) {
        let hash = keccak256(&node);
        assert!(holder.windows(32).any(|part| part == hash.as_slice()));
        holder = node;
    }
    let receipt = &block.receipts[usize::from_str_radix(
        text(&omitted["transactionIndex"]).trim_start_matches("0x"),
        16,
    )
    .expect("a number")];
    assert!(holder.windows(receipt.len()).any(|part| part == receipt));
    let page = run(&["demo"]).stdout;
    assert!(page.contains("omitted: log 257 (transaction 136) of 0xC02aaA39"), "{page}");
    // The headers of the demo are linked.
    let headers: Vec<_> = audit["headers"].as_array().expect("two").iter().map(text).collect();
    assert_eq!(json_of(&["eth", "header", headers[0], headers[1]], YES)["linked"], true);
}

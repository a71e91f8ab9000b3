//! A node that has one of the corpus's chains, and answers `eth_getLogs` with what it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, hex};
use chainsieve::eth::log::LocatedLog;
use serde_json::{Value, json};

use super::chains::Chain;
use super::json_rpc;

/// The calls that came to all servers.
pub(super) static CALLS: AtomicU64 = AtomicU64::new(0);

struct Shared {
    blocks: Vec<Block>,
    by_hash: HashMap<B256, usize>,
    answer: Mutex<Vec<[u64; 2]>>,
}

struct Block {
    number: u64,
    hash: B256,
    rlp: String,
    json: Value,
    receipts: Value,
    logs: Vec<LocatedLog>,
}

/// The server. Its threads end with the process.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub(super) fn start(chain: &Chain) -> Self {
        let blocks = chain.blocks().map(|(block, body)| {
            let header = Header::decode(&mut block.header.as_slice()).expect("a header");
            let mut json = serde_json::to_value(&header).expect("JSON");
            json["hash"] = json!(block.hash);
            json["transactions"] = json!(body.hashes);
            let receipts = body.envelopes.iter().map(|envelope| {
                let mut bytes = Vec::new();
                alloy_consensus::private::alloy_eips::Encodable2718::encode_2718(
                    envelope, &mut bytes,
                );
                json!(hex::encode_prefixed(bytes))
            });
            Block {
                number: block.number,
                hash: block.hash,
                rlp: hex::encode_prefixed(&block.header),
                json,
                receipts: receipts.collect(),
                logs: block.logs.clone(),
            }
        });
        let blocks: Vec<Block> = blocks.collect();
        let by_hash = blocks.iter().enumerate().map(|(at, block)| (block.hash, at)).collect();
        let shared = Arc::new(Shared { blocks, by_hash, answer: Mutex::default() });
        let of_node = Arc::clone(&shared);
        let address = json_rpc::serve(move |method, params| of_node.result(method, params));
        Self { address, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on these logs are what it answers with, those of them that are in range.
    pub(super) fn answer(&self, places: &[[u64; 2]]) {
        *self.shared.answer.lock().expect("no panic holds it") = places.to_vec();
    }
}

impl Shared {
    /// What a method returns; `None` if there is no such method.
    fn result(&self, method: &str, params: &Value) -> Option<Value> {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let of_block = |part: fn(&Block) -> Value| self.at(&params[0]).map_or(Value::Null, part);
        Some(match method {
            "eth_chainId" => json!("0x539"),
            "debug_getRawHeader" => of_block(|block| json!(block.rlp)),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => of_block(|block| block.json.clone()),
            "debug_getRawReceipts" => of_block(|block| block.receipts.clone()),
            "eth_getLogs" => self.logs(&params[0]),
            _ => return None,
        })
    }

    fn at(&self, tag: &Value) -> Option<&Block> {
        let first = self.blocks.first()?.number;
        let by_number =
            |number: u64| self.blocks.get(usize::try_from(number.checked_sub(first)?).ok()?);
        match tag.as_str()? {
            "latest" | "safe" | "finalized" => self.blocks.last(),
            "earliest" => self.blocks.first(),
            hash if hash.len() == 66 => {
                self.blocks.get(*self.by_hash.get(&hash.parse::<B256>().ok()?)?)
            }
            number => by_number(u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?),
        }
    }

    fn logs(&self, filter: &Value) -> Value {
        let number = |tag: &Value| self.at(tag).map_or(u64::MAX, |block| block.number);
        let range = if filter["blockHash"].is_null() {
            number(&filter["fromBlock"])..=number(&filter["toBlock"])
        } else {
            let number = number(&filter["blockHash"]);
            number..=number
        };
        let answer = self.answer.lock().expect("no panic holds it");
        let logs = self.blocks.iter().filter(|block| range.contains(&block.number));
        let logs = logs.flat_map(|block| &block.logs);
        let told = logs.filter(|log| answer.contains(&[log.block_number, log.log_index]));
        told.map(|log| serde_json::from_str::<Value>(&log.to_json()).expect("JSON")).collect()
    }
}

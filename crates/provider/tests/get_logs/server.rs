//! A node that has one of the corpus's chains, and answers `eth_getLogs` with what it is told.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, hex};
use chainsieve::eth::log::LocatedLog;
use serde_json::{Value, json};

use super::chains::Chain;

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
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_thread);
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
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

/// Answers requests until the connection closes.
fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body).expect("JSON");
        let reply = match &request {
            Value::Array(calls) => calls.iter().map(|call| shared.reply(call)).collect(),
            call => shared.reply(call),
        };
        let reply = reply.to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        write!(writer, "{head}: {}\r\n\r\n{reply}", reply.len())?;
    }
}

impl Shared {
    fn reply(&self, call: &Value) -> Value {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let params = &call["params"];
        let result = match call["method"].as_str().expect("a method") {
            "eth_chainId" => json!("0x539"),
            "debug_getRawHeader" => self.at(&params[0]).map_or(Value::Null, |it| json!(it.rlp)),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                self.at(&params[0]).map_or(Value::Null, |it| it.json.clone())
            }
            "debug_getRawReceipts" => {
                self.at(&params[0]).map_or(Value::Null, |it| it.receipts.clone())
            }
            "eth_getLogs" => self.logs(&params[0]),
            method => {
                let message = format!("the method {method} does not exist/is not available");
                let error = json!({ "code": -32601, "message": message });
                return json!({ "jsonrpc": "2.0", "id": call["id"], "error": error });
            }
        };
        json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })
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

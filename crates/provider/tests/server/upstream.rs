//! A node of a chain of the corpus that may lie, and the endpoint over such nodes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::transaction::Recovered;
use alloy_consensus::{Header, ReceiptEnvelope, TxEnvelope};
use alloy_rlp::Decodable as _;
use alloy_rpc_types_eth::Transaction;
use chainsieve::alloy_primitives::{Address, B256, Bytes, hex};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use serde_json::{Value, json};
use testkit::eth::json_rpc::{Sent, serve_counted};
use testkit::eth::log_chains::Chain;
use testkit::eth::rpc_methods::{self, BlockId};

/// A block as the node serves it.
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    pub(crate) header: Vec<u8>,
    pub(crate) hashes: Vec<B256>,
    transactions: Vec<Bytes>,
    receipts: Vec<Vec<u8>>,
    pub(crate) logs: Vec<LocatedLog>,
}

/// Changes the honest answer to a call. `None` leaves it as it is.
pub(crate) type Lie = Arc<dyn Fn(&str, &Value, &Sent) -> Option<Sent> + Send + Sync>;

struct Shared {
    blocks: Vec<Block>,
    by_hash: HashMap<B256, usize>,
    /// Number of the newest block.
    head: AtomicU64,
    lie: Mutex<Option<Lie>>,
    calls: Mutex<Vec<String>>,
}

/// A node. Its threads run until the process ends.
#[derive(Clone)]
pub(crate) struct Upstream {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

impl Upstream {
    pub(crate) fn start(chain: &Chain) -> Self {
        let blocks = chain.blocks().map(|(block, body)| Block {
            number: block.number,
            hash: block.hash,
            header: block.header.clone(),
            hashes: body.hashes.clone(),
            transactions: body.encodings.clone().unwrap_or_default(),
            receipts: body.envelopes.iter().map(ReceiptEnvelope::encoded_2718).collect(),
            logs: block.logs.clone(),
        });
        let blocks: Vec<Block> = blocks.collect();
        let by_hash = blocks.iter().enumerate().map(|(at, block)| (block.hash, at)).collect();
        let head = AtomicU64::new(chain.run.last());
        let (lie, calls) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { blocks, by_hash, head, lie, calls });
        let of_node = Arc::clone(&shared);
        let requests = Arc::default();
        let sent = move |method: &str, params: &Value| of_node.sent(method, params);
        let address = serve_counted(Arc::clone(&requests), sent);
        Self { address, requests, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn lie(
        &self,
        lie: impl Fn(&str, &Value, &Sent) -> Option<Sent> + Send + Sync + 'static,
    ) {
        *self.shared.lie.lock().expect("no panic") = Some(Arc::new(lie));
    }

    /// Answers like another node, as after a change to its chain.
    pub(crate) fn answer_like(&self, other: &Self) {
        let other = Arc::clone(&other.shared);
        self.lie(move |method, params, _| other.result(method, params).map(Sent::Result));
    }

    /// Returns the honest answer to a call.
    pub(crate) fn answer(&self, method: &str, params: &Value) -> Sent {
        self.shared.result(method, params).map_or(Sent::Error(-32601, "no method"), Sent::Result)
    }

    pub(crate) fn be_honest(&self) {
        *self.shared.lie.lock().expect("no panic") = None;
    }

    pub(crate) fn set_head(&self, number: u64) {
        self.shared.head.store(number, Ordering::SeqCst);
    }

    /// Returns the methods that were called since the last time.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.calls.lock().expect("no panic"))
    }

    /// Returns the number of requests so far. A batch of calls is one request.
    pub(crate) fn num_requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.shared.blocks
    }
}

impl Shared {
    fn sent(&self, method: &str, params: &Value) -> Sent {
        self.calls.lock().expect("no panic").push(method.to_owned());
        let honest = self.result(method, params).map_or(
            Sent::Error(-32601, "the method does not exist/is not available"),
            Sent::Result,
        );
        let lie = self.lie.lock().expect("no panic").clone();
        lie.and_then(|lie| lie(method, params, &honest)).unwrap_or(honest)
    }

    fn result(&self, method: &str, params: &Value) -> Option<Value> {
        let of =
            |part: &dyn Fn(&Block) -> Value| Some(self.at(&params[0]).map_or(Value::Null, part));
        match method {
            "eth_chainId" => Some(json!("0x539")),
            "eth_getLogs" => Some(self.logs(&params[0])),
            "eth_gasPrice" => Some(json!("0x7")),
            "debug_getRawHeader" => of(&|block| json!(hex::encode_prefixed(&block.header))),
            "debug_getRawReceipts" => of(&|block| {
                block.receipts.iter().map(|bytes| json!(hex::encode_prefixed(bytes))).collect()
            }),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                of(&|block| block.json(params[1] == json!(true)))
            }
            "eth_getTransactionReceipt" => {
                let hash = params[0].as_str()?;
                let has = |block: &&Block| block.hashes.iter().any(|own| own.to_string() == hash);
                let found = self.visible().find(has);
                Some(found.map_or(Value::Null, |block| json!({ "blockHash": block.hash })))
            }
            _ => None,
        }
    }

    fn visible(&self) -> impl Iterator<Item = &Block> {
        let head = self.head.load(Ordering::SeqCst);
        self.blocks.iter().filter(move |block| block.number <= head)
    }

    fn at(&self, tag: &Value) -> Option<&Block> {
        let head = self.head.load(Ordering::SeqCst);
        let first = self.blocks.first()?.number;
        let number = match BlockId::of(tag)? {
            BlockId::Tag("latest" | "safe" | "finalized") => head,
            BlockId::Tag("earliest") => first,
            BlockId::Tag(_) => return None,
            BlockId::Hash(hash) => first + *self.by_hash.get(&hash)? as u64,
            BlockId::Number(number) => number,
        };
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        self.blocks.get(index).filter(|block| block.number <= head)
    }

    fn logs(&self, filter: &Value) -> Value {
        let range = rpc_methods::range(filter, |tag| self.at(tag).map(|block| block.number));
        let query = LogQuery::from_json(&filter.to_string(), Semantics::Geth).expect("a query");
        let logs = self.visible().filter(|block| range.contains(&block.number));
        let logs = logs.flat_map(|block| &block.logs);
        let logs = logs.filter(|log| query.matches(&log.log, Semantics::Geth));
        logs.map(|log| serde_json::to_value(log).expect("JSON")).collect()
    }
}

impl Block {
    fn json(&self, is_full: bool) -> Value {
        let header = Header::decode(&mut &self.header[..]).expect("a header");
        let mut json = serde_json::to_value(&header).expect("JSON");
        json["hash"] = json!(self.hash);
        json["transactions"] = if is_full {
            self.transactions.iter().map(|encoding| json!(transaction(encoding))).collect()
        } else {
            json!(self.hashes)
        };
        json
    }
}

/// Returns a transaction as a node sends it, from a sender that it made up.
fn transaction(encoding: &[u8]) -> Transaction {
    use alloy_consensus::private::alloy_eips::Decodable2718 as _;
    let envelope = TxEnvelope::decode_2718_exact(encoding).expect("a transaction");
    Transaction {
        inner: Recovered::new_unchecked(envelope, Address::repeat_byte(9)),
        block_hash: None,
        block_number: None,
        transaction_index: None,
        effective_gas_price: None,
        block_timestamp: None,
    }
}

/// Asks an endpoint. Returns the whole answer.
pub(crate) fn ask(address: SocketAddr, method: &str, params: &Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    post(address, &call.to_string()).1
}

/// Posts a text to an endpoint. Returns the headers and the answer.
pub(crate) fn post(address: SocketAddr, text: &str) -> (http::HeaderMap, Value) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let request =
        agent.post(format!("http://{address}")).header("Content-Type", "application/json");
    let (head, mut body) = request.send(text).expect("an answer").into_parts();
    let text = body.with_config().limit(1 << 30).read_to_string().expect("text");
    (head.headers, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Gets a path of an endpoint. Returns status and text.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let answer = agent.get(format!("http://{address}{path}")).call().expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.into_body().read_to_string().expect("text"))
}

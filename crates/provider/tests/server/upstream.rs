//! A node of a chain of the corpus that may lie, and the endpoint over such nodes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::proofs::{
    calculate_receipt_root, calculate_transaction_root, ordered_trie_root_with_encoder,
};
use alloy_consensus::{
    EMPTY_ROOT_HASH, Header, Receipt, ReceiptEnvelope, SignableTransaction as _, TxEnvelope,
    TxLegacy,
};
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{Address, B256, Bloom, Bytes, Log, Signature, keccak256};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use serde_json::{Value, json};
use testkit::eth::json_rpc::{Sent, serve_counted};
use testkit::eth::linked_headers;
use testkit::eth::log_chains::Chain;
use testkit::eth::rpc_methods::{self, BlockId, RpcBlock, transaction_json};

/// A block as the node serves it.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    pub(crate) header: Vec<u8>,
    pub(crate) hashes: Vec<B256>,
    transactions: Vec<Bytes>,
    receipts: Vec<Vec<u8>>,
    ommers: Vec<Header>,
    pub(crate) logs: Vec<LocatedLog>,
    /// Transactions and receipts as the node writes them, if it made them up whole.
    json: Option<Arc<Written>>,
}

/// Transactions and receipts of a block as JSON.
struct Written {
    transactions: Vec<Value>,
    receipts: Vec<Value>,
}

/// A transaction of any type that a node makes up, with its receipt.
pub(crate) struct MadeUp {
    /// Encodings, as the roots of a block cover them.
    pub(crate) transaction: Bytes,
    pub(crate) receipt: Vec<u8>,
    /// Members that only this type has.
    pub(crate) transaction_members: Value,
    pub(crate) receipt_members: Value,
    pub(crate) gas: u64,
    pub(crate) logs: Vec<Log>,
}

/// Id of the chain of every node.
pub(crate) const CHAIN_ID: &str = "0x539";

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
            ommers: Vec::new(),
            logs: block.logs.clone(),
            json: None,
        });
        Self::of(blocks.collect())
    }

    /// Starts a node of these blocks, each the child of the one before.
    pub(crate) fn of(blocks: Vec<Block>) -> Self {
        let by_hash = blocks.iter().enumerate().map(|(at, block)| (block.hash, at)).collect();
        let head = AtomicU64::new(blocks.last().expect("a block").number);
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

    /// Has the branch of another node, and still knows its own blocks by their hash.
    pub(crate) fn reorganise_to(&self, other: &Self) {
        let other = Arc::clone(&other.shared);
        self.lie(move |method, params, _| {
            let found = other.result(method, params);
            let is_by_hash =
                BlockId::of(&params[0]).is_some_and(|id| matches!(id, BlockId::Hash(_)));
            found.filter(|found| !(is_by_hash && found.is_null())).map(Sent::Result)
        });
    }

    /// Returns the blocks of a filter.
    pub(crate) fn range(&self, filter: &Value) -> RangeInclusive<u64> {
        rpc_methods::range(filter, |tag| self.shared.at(tag).map(|block| block.number))
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
            "eth_getLogs" => Some(self.logs(&params[0])),
            "eth_gasPrice" => Some(json!("0x7")),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                of(&|block| block.json(params[1] == json!(true)))
            }
            "eth_getUncleByBlockHashAndIndex" => of(&|block| {
                let index: usize = params[1].as_str().expect("an index")[2..].parse().expect("one");
                block.ommers.get(index).map_or(Value::Null, |ommer| {
                    let mut json = json!(ommer);
                    json["hash"] = json!(ommer.hash_slow());
                    json
                })
            }),
            "eth_getBlockReceipts" => {
                let written = self.at(&params[0]).map(|block| block.json.as_ref());
                written.map_or(Some(Value::Null), |json| Some(json!(json?.receipts)))
            }
            "eth_getTransactionReceipt" => {
                let found = self.transaction(params[0].as_str()?);
                Some(found.map_or(Value::Null, |(block, index)| match &block.json {
                    Some(json) => json.receipts[index].clone(),
                    None => json!({ "blockHash": block.hash }),
                }))
            }
            "eth_getTransactionByHash" => {
                let found = self.transaction(params[0].as_str()?);
                Some(found.map_or(Value::Null, |(block, index)| {
                    if let Some(json) = &block.json {
                        return json.transactions[index].clone();
                    }
                    let mut json = transaction_json(&block.transactions[index]);
                    json["blockHash"] = json!(block.hash);
                    json
                }))
            }
            _ => rpc_methods::result(method, params, |tag| self.at(tag).map(Block::rpc)),
        }
    }

    fn visible(&self) -> impl Iterator<Item = &Block> {
        let head = self.head.load(Ordering::SeqCst);
        self.blocks.iter().filter(move |block| block.number <= head)
    }

    fn transaction(&self, hash: &str) -> Option<(&Block, usize)> {
        let index = |block: &Block| block.hashes.iter().position(|own| own.to_string() == hash);
        self.visible().find_map(|block| Some((block, index(block)?)))
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
    pub(crate) fn rpc(&self) -> RpcBlock<'_> {
        RpcBlock {
            header_rlp: &self.header,
            hash: self.hash,
            transactions: self.hashes.clone(),
            bodies: self.transactions.clone(),
            receipts: self.receipts.clone(),
        }
    }

    pub(crate) fn transactions(&self) -> &[Bytes] {
        &self.transactions
    }

    /// Returns `true` if the block has a list of withdrawals, which is empty.
    pub(crate) fn has_no_withdrawals(&self) -> bool {
        let header = Header::decode(&mut &self.header[..]).expect("a header");
        header.withdrawals_root == Some(EMPTY_ROOT_HASH)
    }

    /// Creates a block with one transaction and these logs. Its filter is `bloom`, or the right one.
    pub(crate) fn made_up(
        parent: Option<&Self>,
        branch: u64,
        logs: Vec<Log>,
        bloom: Option<&Bloom>,
    ) -> Self {
        let number = parent.map_or(0, |parent| parent.number + 1);
        let receipt = Receipt { status: true.into(), cumulative_gas_used: 21_000, logs };
        let receipt = ReceiptEnvelope::Legacy(receipt.with_bloom());
        let transaction =
            TxLegacy { nonce: number, gas_price: branch.into(), ..TxLegacy::default() };
        let transaction: TxEnvelope = transaction.into_signed(Signature::test_signature()).into();
        let parent_hash = parent.map_or(B256::ZERO, |parent| parent.hash);
        let bloom = *bloom.unwrap_or(receipt.logs_bloom());
        let mut header = linked_headers::header(parent_hash, number, branch, bloom);
        header.receipts_root = calculate_receipt_root(std::slice::from_ref(&receipt));
        header.transactions_root = calculate_transaction_root(std::slice::from_ref(&transaction));
        let hash = header.hash_slow();
        let logs = receipt.logs().iter().zip(0..).map(|(log, log_index)| LocatedLog {
            log: log.clone(),
            block_number: number,
            block_hash: hash,
            block_timestamp: Some(header.timestamp),
            transaction_hash: Some(*transaction.tx_hash()),
            claimed_transaction_hash: None,
            transaction_index: 0,
            log_index,
            removed: false,
        });
        Self {
            number,
            hash,
            logs: logs.collect(),
            header: alloy_rlp::encode(&header),
            hashes: vec![*transaction.tx_hash()],
            transactions: vec![transaction.encoded_2718().into()],
            receipts: vec![receipt.encoded_2718()],
            ommers: Vec::new(),
            json: None,
        }
    }

    /// Creates a block with these transactions. Its header has the gas that they use, and this root of
    /// withdrawals; with one, the list of withdrawals is empty.
    pub(crate) fn with_any(
        parent: Option<&Self>,
        made_up: &[MadeUp],
        withdrawals_root: Option<B256>,
    ) -> Self {
        let number = parent.map_or(0, |parent| parent.number + 1);
        let parent_hash = parent.map_or(B256::ZERO, |parent| parent.hash);
        let all_logs = || made_up.iter().flat_map(|one| &one.logs);
        let bloom = all_logs().collect::<Bloom>();
        let mut header = linked_headers::header(parent_hash, number, 1, bloom);
        header.gas_used = made_up.iter().map(|one| one.gas).sum();
        header.base_fee_per_gas = Some(7);
        header.withdrawals_root = withdrawals_root;
        let root = |encodings: &[&[u8]]| {
            ordered_trie_root_with_encoder(encodings, |encoding, out| {
                out.extend_from_slice(encoding);
            })
        };
        let transactions: Vec<&[u8]> = made_up.iter().map(|one| &one.transaction[..]).collect();
        header.transactions_root = root(&transactions);
        header.receipts_root =
            root(&made_up.iter().map(|one| &one.receipt[..]).collect::<Vec<_>>());
        let hash = header.hash_slow();
        let hashes: Vec<B256> = transactions.iter().map(keccak256).collect();
        let place = |index: usize| {
            json!({
                "blockHash": hash,
                "blockNumber": format!("{number:#x}"),
                "transactionIndex": format!("{index:#x}"),
            })
        };
        let (mut gas, mut log_index) = (0, 0);
        let mut written = Written { transactions: Vec::new(), receipts: Vec::new() };
        let mut logs = Vec::new();
        for (index, one) in made_up.iter().enumerate() {
            gas += one.gas;
            let first = logs.len();
            logs.extend(one.logs.iter().map(|log| {
                log_index += 1;
                LocatedLog {
                    log: log.clone(),
                    block_number: number,
                    block_hash: hash,
                    block_timestamp: Some(header.timestamp),
                    transaction_hash: Some(hashes[index]),
                    claimed_transaction_hash: None,
                    transaction_index: index as u64,
                    log_index: log_index - 1,
                    removed: false,
                }
            }));
            let mut transaction = place(index);
            transaction["hash"] = json!(hashes[index]);
            extend(&mut transaction, &one.transaction_members);
            written.transactions.push(transaction);
            let mut receipt = place(index);
            receipt["transactionHash"] = json!(hashes[index]);
            receipt["status"] = json!("0x1");
            receipt["cumulativeGasUsed"] = json!(format!("{gas:#x}"));
            receipt["logsBloom"] = json!(one.logs.iter().collect::<Bloom>());
            // As a tree, a large block would take a gigabyte: its test writes the logs as text.
            receipt["logs"] = if one.logs.len() < 1000 { json!(logs[first..]) } else { json!([]) };
            extend(&mut receipt, &one.receipt_members);
            written.receipts.push(receipt);
        }
        Self {
            number,
            hash,
            header: alloy_rlp::encode(&header),
            hashes,
            transactions: made_up.iter().map(|one| one.transaction.clone()).collect(),
            receipts: made_up.iter().map(|one| one.receipt.clone()).collect(),
            ommers: Vec::new(),
            logs,
            json: Some(Arc::new(written)),
        }
    }

    /// Returns the receipts as the node writes them.
    pub(crate) fn receipts_json(&self) -> &[Value] {
        self.json.as_ref().map_or(&[], |json| &json.receipts)
    }

    /// Returns the receipts of a block that was [made up](Self::made_up) as JSON, but of a typed transaction:
    /// only then a mismatch proves something, because it is no receipt from before Byzantium.
    pub(crate) fn typed_receipts(&self) -> Value {
        let header = Header::decode(&mut &self.header[..]).expect("a header");
        json!([{
            "type": "0x2",
            "status": "0x1",
            "cumulativeGasUsed": "0x5208",
            "logsBloom": header.logs_bloom,
            "logs": self.logs,
            "transactionHash": self.hashes[0],
            "transactionIndex": "0x0",
            "blockHash": self.hash,
            "blockNumber": format!("{:#x}", self.number),
        }])
    }

    /// Returns a block that claims another number.
    pub(crate) fn with_number(&self, number: u64) -> Self {
        let mut header = Header::decode(&mut &self.header[..]).expect("a header");
        header.number = number;
        let (hash, header) = (header.hash_slow(), alloy_rlp::encode(&header));
        Self { number, hash, header, ..self.clone() }
    }

    /// Returns a block whose header has these ommers.
    pub(crate) fn with_ommers(&self, ommers: Vec<Header>) -> Self {
        let mut header = Header::decode(&mut &self.header[..]).expect("a header");
        header.ommers_hash = alloy_consensus::proofs::calculate_ommers_root(&ommers);
        let (hash, header) = (header.hash_slow(), alloy_rlp::encode(&header));
        Self { hash, header, ommers, ..self.clone() }
    }

    /// Makes up a chain of blocks with two logs each.
    pub(crate) fn chain(branch: u64, count: u64) -> Vec<Self> {
        let mut chain = Vec::new();
        Self::extend(&mut chain, branch, count);
        chain
    }

    /// Extends a chain by blocks with two logs each.
    pub(crate) fn extend(chain: &mut Vec<Self>, branch: u64, count: u64) {
        for _ in 0..count {
            let logs = [0x11, 0x22].map(|byte| {
                Log::new_unchecked(
                    Address::repeat_byte(byte),
                    vec![B256::repeat_byte(byte)],
                    Bytes::from(branch.to_be_bytes()),
                )
            });
            let block = Self::made_up(chain.last(), branch, logs.to_vec(), None);
            chain.push(block);
        }
    }

    fn json(&self, is_full: bool) -> Value {
        let header = Header::decode(&mut &self.header[..]).expect("a header");
        let mut json = serde_json::to_value(&header).expect("JSON");
        json["hash"] = json!(self.hash);
        if self.has_no_withdrawals() || self.json.is_some() && header.withdrawals_root.is_some() {
            json["withdrawals"] = json!([]);
        }
        json["transactions"] = if let Some(json) = self.json.as_ref().filter(|_| is_full) {
            json!(json.transactions)
        } else if is_full && self.transactions.len() == self.hashes.len() {
            self.transactions.iter().map(|encoding| transaction_json(encoding)).collect()
        } else {
            json!(self.hashes)
        };
        json
    }
}

fn extend(json: &mut Value, members: &Value) {
    for (name, value) in members.as_object().expect("members") {
        json[name] = value.clone();
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

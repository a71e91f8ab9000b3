//! A node that serves a chain of the corpus, and answers `eth_getLogs` with logs set by the test. It
//! may lie.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::log::LocatedLog;
use serde_json::Value;

use testkit::eth::json_rpc::{self, Sent};
use testkit::eth::log_chains::Chain;
use testkit::eth::rpc_methods::{self, BlockId, RpcBlock, receipts_json};

/// Number of calls that all servers have received.
pub(super) static CALLS: AtomicU64 = AtomicU64::new(0);

struct Shared {
    blocks: Vec<Block>,
    by_hash: HashMap<B256, usize>,
    answer: Mutex<Vec<[u64; 2]>>,
    /// Replaces the honest answer to a call for a block with whole transactions.
    lie: Mutex<Option<Lie>>,
    /// The transaction hash that all receipts claim.
    claim: Mutex<Option<B256>>,
    /// Numbers of the calls and of the batches for blocks with whole transactions.
    bodies: AtomicU64,
}

/// Changes a block with whole transactions, or replaces the answer with it.
pub(super) type Lie = fn(Value) -> Sent;

struct Block {
    number: u64,
    hash: B256,
    header: Vec<u8>,
    transactions: Vec<B256>,
    bodies: Vec<Bytes>,
    receipts: Vec<Vec<u8>>,
    logs: Vec<LocatedLog>,
}

/// The server. The server's threads run until the process ends.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    pub(super) fn start(chain: &Chain) -> Self {
        let blocks = chain.blocks().map(|(block, body)| {
            let receipts = body.envelopes.iter().map(ReceiptEnvelope::encoded_2718);
            Block {
                number: block.number,
                hash: block.hash,
                header: block.header.clone(),
                transactions: body.hashes.clone(),
                bodies: body.encodings.clone().unwrap_or_default(),
                receipts: receipts.collect(),
                logs: block.logs.clone(),
            }
        });
        let blocks: Vec<Block> = blocks.collect();
        let by_hash = blocks.iter().enumerate().map(|(at, block)| (block.hash, at)).collect();
        let (answer, lie, claim) = (Mutex::default(), Mutex::default(), Mutex::default());
        let bodies = AtomicU64::new(0);
        let shared = Arc::new(Shared { blocks, by_hash, answer, lie, claim, bodies });
        let of_node = Arc::clone(&shared);
        let address = json_rpc::serve_any(move |method, params| of_node.sent(method, params));
        Self { address, shared }
    }

    /// Sets a lie about transactions.
    pub(super) fn lie(&self, lie: Option<Lie>) {
        *self.shared.lie.lock().expect("no panic holds it") = lie;
    }

    /// Sets the transaction hash that all receipts claim. By default, they claim none.
    pub(super) fn claim(&self, hash: B256) {
        *self.shared.claim.lock().expect("no panic holds it") = Some(hash);
    }

    /// Returns the number of calls for blocks with whole transactions so far.
    pub(super) fn num_bodies(&self) -> u64 {
        self.shared.bodies.load(Ordering::Relaxed)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the logs for later answers. Each answer contains the set logs that are in the requested
    /// range.
    pub(super) fn answer(&self, places: &[[u64; 2]]) {
        *self.shared.answer.lock().expect("no panic holds it") = places.to_vec();
    }
}

impl Shared {
    fn sent(&self, method: &str, params: &Value) -> Sent {
        let no_method = Sent::Error(-32601, "the method does not exist/is not available");
        let honest = self.result(method, params);
        if method == "eth_getBlockByHash" && params[1] == true {
            self.bodies.fetch_add(1, Ordering::Relaxed);
            let lie = *self.lie.lock().expect("no panic holds it");
            if let (Some(lie), Some(block)) = (lie, &honest) {
                return lie(block.clone());
            }
        }
        honest.map_or(no_method, Sent::Result)
    }

    /// Returns the honest result of a method; `None` if there is no such method.
    fn result(&self, method: &str, params: &Value) -> Option<Value> {
        CALLS.fetch_add(1, Ordering::Relaxed);
        if method == "eth_getLogs" {
            return Some(self.logs(&params[0]));
        }
        let at = |tag: &Value| {
            self.at(tag).map(|block| RpcBlock {
                header_rlp: &block.header,
                hash: block.hash,
                transactions: block.transactions.clone(),
                bodies: block.bodies.clone(),
                receipts: block.receipts.clone(),
            })
        };
        let claim = *self.claim.lock().expect("no panic holds it");
        match (method, claim) {
            ("eth_getBlockReceipts", Some(claim)) => {
                let block = at(&params[0]);
                Some(block.map_or(Value::Null, |block| receipts_json(&block, |_| claim)))
            }
            _ => rpc_methods::result(method, params, at),
        }
    }

    fn at(&self, tag: &Value) -> Option<&Block> {
        match BlockId::of(tag)? {
            BlockId::Tag("latest" | "safe" | "finalized") => self.blocks.last(),
            BlockId::Tag("earliest") => self.blocks.first(),
            BlockId::Tag(_) => None,
            BlockId::Hash(hash) => self.blocks.get(*self.by_hash.get(&hash)?),
            BlockId::Number(number) => {
                let first = self.blocks.first()?.number;
                self.blocks.get(usize::try_from(number.checked_sub(first)?).ok()?)
            }
        }
    }

    fn logs(&self, filter: &Value) -> Value {
        let range = rpc_methods::range(filter, |tag| self.at(tag).map(|block| block.number));
        let answer = self.answer.lock().expect("no panic holds it");
        let logs = self.blocks.iter().filter(|block| range.contains(&block.number));
        let logs = logs.flat_map(|block| &block.logs);
        let told = logs.filter(|log| answer.contains(&[log.block_number, log.log_index]));
        told.map(|log| serde_json::from_str::<Value>(&log.to_json()).expect("JSON")).collect()
    }
}

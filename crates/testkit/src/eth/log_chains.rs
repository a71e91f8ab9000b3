//! The chains of the corpus folder `getlogs`: headers, receipts, transactions and logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use alloy_consensus::{Eip658Value, Receipt, ReceiptEnvelope, TxType};
use alloy_primitives::{Address, B256, Bytes, Log, keccak256};
use alloy_rlp::Decodable as _;
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log_query::Heads;
use serde::Deserialize;
use serde_json::Value;

use crate::corpus;
use crate::eth::audit_runs::{Block, Run};

/// First and last block of the chain that the cases call `mainnet`.
const MAINNET: [u64; 2] = [17_686_110, 17_686_125];

/// A chain, and the bodies of its blocks.
pub struct Chain {
    pub run: Run,
    /// One body for each block, in order.
    pub bodies: Vec<Body>,
}

#[derive(Default)]
/// Transactions and receipts of a block.
pub struct Body {
    /// Transaction hashes.
    pub hashes: Vec<B256>,
    /// The transactions as encoded in the trie; `None` if the corpus has only their hashes.
    pub encodings: Option<Vec<Bytes>>,
    /// The receipts as alloy decodes them.
    pub envelopes: Vec<ReceiptEnvelope>,
}

impl Chain {
    /// Returns the heads of a node that has exactly this chain.
    pub fn heads(&self) -> Heads {
        Heads { earliest: self.run.first(), ..Heads::latest(self.run.last()) }
    }

    /// Returns the blocks, each with its body.
    pub fn blocks(&self) -> impl Iterator<Item = (&Block, &Body)> {
        self.run.blocks.iter().zip(&self.bodies)
    }

    fn of(blocks: impl IntoIterator<Item = (Vec<u8>, Body)>) -> Self {
        let mut bodies = Vec::new();
        let blocks = blocks.into_iter().map(|(header, body)| {
            let mut block = Block::new(header, &body.envelopes);
            assert_eq!(body.hashes.len(), body.envelopes.len(), "block {}", block.number);
            for log in &mut block.logs {
                let at = usize::try_from(log.transaction_index).expect("an index");
                log.transaction_hash = Some(body.hashes[at]);
            }
            bodies.push(body);
            block
        });
        let run = Run::new(blocks.collect());
        Self { run, bodies }
    }
}

/// The folder `getlogs` of the corpus.
pub struct Corpus {
    root: PathBuf,
    pub files: Vec<Value>,
    pub chains: BTreeMap<&'static str, Chain>,
}

impl Corpus {
    /// Opens the corpus. Returns `None`, and prints why, if no corpus is configured.
    ///
    /// # Panics
    /// Panics if `CI` is set and no corpus is configured.
    pub fn open() -> Option<&'static Self> {
        static CORPUS: OnceLock<Option<Corpus>> = OnceLock::new();
        CORPUS.get_or_init(Self::read_all).as_ref()
    }

    fn read_all() -> Option<Self> {
        let (root, files) = corpus::index("getlogs")?;
        let mut corpus = Self { root, files, chains: BTreeMap::new() };
        for name in ["ea2026", "ethtest", "ea2025b"] {
            let chain = corpus.test_chain(name);
            corpus.chains.insert(name, chain);
        }
        corpus.chains.insert("mainnet", mainnet());
        Some(corpus)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    /// Returns the file names of the index that start with `start`, in order.
    pub fn names<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.files.iter().map(|file| file["file"].as_str().expect("a name"));
        names.filter(move |name| name.starts_with(start))
    }

    /// Reads a chain from the receipts in `blocks.jsonl` and the transactions in `chain.rlp`.
    fn test_chain(&self, name: &str) -> Chain {
        let bodies = self.read(&format!("chains/{name}/chain.rlp"));
        // The genesis block has no transactions, and is not in the file.
        let mut bodies = std::iter::once((None, Vec::new())).chain(transactions(&bodies));
        let lines = self.text(&format!("chains/{name}/blocks.jsonl"));
        let blocks = lines.lines().map(|line| {
            let line: BlockLine = serde_json::from_str(line).expect("a block");
            let (header, encodings) = bodies.next().expect("both files have the same blocks");
            let at = format!("{name}, block {}", line.number);
            assert!(header.is_none_or(|header| header == line.header), "{at}: header");
            let view = HeaderView::decode(&line.header).expect("a header");
            assert_eq!((view.number(), view.hash()), (line.number, line.hash), "{at}");
            let hashes: Vec<_> = encodings.iter().map(keccak256).collect();
            assert_eq!(hashes, line.transactions, "{at}: transactions");
            let envelopes = line.receipts.into_iter().map(ReceiptLine::envelope).collect();
            let body = Body { hashes, encodings: Some(encodings), envelopes };
            (line.header.to_vec(), body)
        });
        let chain = Chain::of(blocks.collect::<Vec<_>>());
        assert!(bodies.next().is_none(), "{name}: both files have the same blocks");
        // The chain's last block must be the head that the recorded call `headfcu.json` sets.
        let call: Value = serde_json::from_str(&self.text(&format!("chains/{name}/headfcu.json")))
            .expect("a call");
        assert_eq!(call["params"][0]["headBlockHash"], chain.run.tip().to_string(), "{name}");
        chain
    }
}

/// Returns the header and the transactions of each block of a file of concatenated RLP blocks.
fn transactions(mut file: &[u8]) -> impl Iterator<Item = (Option<Bytes>, Vec<Bytes>)> {
    let list = |bytes: &mut _| alloy_rlp::Header::decode_bytes(bytes, true).expect("a list");
    std::iter::from_fn(move || {
        if file.is_empty() {
            return None;
        }
        let (header, mut rest) =
            HeaderView::decode_prefix(list(&mut file)).expect("a header at the start of a block");
        let (mut items, mut encodings) = (list(&mut rest), Vec::new());
        while !items.is_empty() {
            let item = items;
            let of_item = alloy_rlp::Header::decode(&mut items).expect("an item");
            let (payload, after) = items.split_at(of_item.payload_length);
            items = after;
            // A legacy transaction is an RLP list; a typed transaction is a string that contains
            // its encoding.
            let whole = &item[..item.len() - after.len()];
            encodings.push(Bytes::copy_from_slice(if of_item.list { whole } else { payload }));
        }
        Some((Some(Bytes::copy_from_slice(header.rlp())), encodings))
    })
}

/// One line of `blocks.jsonl`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockLine {
    number: u64,
    hash: B256,
    #[serde(rename = "fork")]
    _fork: String,
    header: Bytes,
    transactions: Vec<B256>,
    receipts: Vec<ReceiptLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiptLine {
    #[serde(rename = "type")]
    receipt_type: u8,
    status: Option<u8>,
    root: Option<B256>,
    cumulative_gas_used: u64,
    logs: Vec<LogLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogLine {
    address: Address,
    topics: Vec<B256>,
    data: Data,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Data {
    Bytes(Bytes),
    Zeros { zeros: usize },
}

impl ReceiptLine {
    fn envelope(self) -> ReceiptEnvelope {
        let status = match (self.status, self.root) {
            (Some(status @ (0 | 1)), None) => Eip658Value::Eip658(status == 1),
            (None, Some(root)) => Eip658Value::PostState(root),
            other => panic!("not exactly one of status and root: {other:?}"),
        };
        let logs = self.logs.into_iter().map(|LogLine { address, topics, data }| {
            let data = match data {
                Data::Bytes(bytes) => bytes,
                Data::Zeros { zeros } => vec![0; zeros].into(),
            };
            Log::new(address, topics, data).expect("at most four topics")
        });
        let cumulative_gas_used = self.cumulative_gas_used;
        let receipt = Receipt { status, cumulative_gas_used, logs: logs.collect() };
        let tx_type = TxType::try_from(self.receipt_type).expect("a known type");
        ReceiptEnvelope::from_typed(tx_type, receipt)
    }
}

/// Returns sixteen blocks of mainnet from the folder `ethereum` of the corpus.
fn mainnet() -> Chain {
    let (root, _) = corpus::index("ethereum").expect("the corpus");
    let [first, last] = MAINNET;
    let blocks = (first..=last).map(|number| {
        let read = |ending: &str| {
            let name = format!("mainnet/blocks/block_{number}.{ending}");
            std::fs::read(root.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let envelopes = Vec::decode(&mut &read("receipts.rlp")[..]).expect("receipts");
        let hashes = String::from_utf8(read("txhashes.txt")).expect("UTF-8");
        let hashes = hashes.lines().map(|line| line.parse().expect("a hash")).collect();
        (read("header.rlp"), Body { hashes, encodings: None, envelopes })
    });
    Chain::of(blocks.collect::<Vec<_>>())
}

//! The Ethereum folder of the corpus: its index by format, and its blocks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use alloy_consensus::ReceiptEnvelope;
use alloy_primitives::{B256, Log, hex};
use alloy_rlp::Decodable as _;
use serde_json::Value;

use crate::corpus;

/// Formats of the files in the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// The RLP of one header.
    Header,
    /// All receipts of one block.
    Receipts,
    /// The transaction hashes of one block.
    TransactionHashes,
    /// All receipts of one block as JSON-RPC.
    ReceiptsJson,
    /// Rows: each has one header and known facts about it.
    HeaderRows,
    /// Consecutive linked headers.
    HeaderRun,
    /// An era1 archive.
    Era1,
    /// One block as JSON-RPC.
    BlockJson,
    /// Recorded log queries.
    Queries,
}

impl Format {
    /// Returns the format that a text of the index describes.
    ///
    /// # Panics
    /// Panics if no test handles the format: a new format in the corpus needs a test.
    fn of(text: &str) -> Self {
        let known = [
            ("RLP block header", Self::Header),
            ("RLP list of receipts; ", Self::Receipts),
            ("transaction hashes in block order", Self::TransactionHashes),
            ("JSON-RPC array (eth_getBlockReceipts shape)", Self::ReceiptsJson),
            ("JSON array of {number,hash,fork,timestamp,bloom_bits,", Self::HeaderRows),
            ("concatenated RLP headers, consecutive, parent-linked", Self::HeaderRun),
            ("era1 archive ", Self::Era1),
            ("JSON-RPC block object ", Self::BlockJson),
            ("JSON: recorded eth_getLogs filter shapes", Self::Queries),
        ];
        let format = known.into_iter().find(|(start, _)| text.starts_with(start));
        format.unwrap_or_else(|| panic!("no test knows the format {text:?}")).1
    }
}

/// An entry of `index.json`.
pub struct EthFile {
    pub name: String,
    pub format: Format,
    /// The complete entry of the index.
    pub entry: Value,
}

impl EthFile {
    pub fn hash(&self) -> B256 {
        hash(&self.entry["hash"])
    }

    pub fn number(&self, field: &str) -> u64 {
        self.entry[field].as_u64().unwrap_or_else(|| panic!("{}: {field}", self.name))
    }
}

pub fn hash(value: &Value) -> B256 {
    value.as_str().expect("a text").parse().expect("a hash")
}

pub fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("a text")).expect("hex")
}

pub struct EthCorpus {
    root: PathBuf,
    pub files: Vec<EthFile>,
}

impl EthCorpus {
    /// Opens the corpus. Returns `None`, and prints why, if no corpus is configured.
    ///
    /// # Panics
    /// Panics if `CI` is set and no corpus is configured.
    pub fn open() -> Option<Self> {
        let (root, files) = corpus::index("ethereum")?;
        let files = files.into_iter().map(|entry| EthFile {
            name: entry["file"].as_str().expect("a name").to_owned(),
            format: Format::of(entry["format"].as_str().expect("a format")),
            entry,
        });
        Some(Self { files: files.collect(), root })
    }

    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    pub fn of(&self, format: Format) -> impl Iterator<Item = &EthFile> {
        self.files.iter().filter(move |file| file.format == format)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    /// Returns the rows of a file of single headers.
    pub fn rows(&self, file: &EthFile) -> Vec<Value> {
        let rows: Value = serde_json::from_slice(&self.read(&file.name)).expect("JSON");
        rows.as_array().expect("rows").clone()
    }

    /// Returns every block that has receipts, by number.
    pub fn blocks(&self) -> BTreeMap<u64, EthBlock> {
        let files = self.of(Format::Receipts);
        files.map(|file| (file.number("number"), EthBlock::read(self, file))).collect()
    }
}

/// A block with its receipts, as alloy decodes them.
pub struct EthBlock {
    pub name: String,
    /// The index entry of the receipts.
    pub entry: Value,
    pub header: alloy_consensus::Header,
    pub receipts_rlp: Vec<u8>,
    pub receipts: Vec<ReceiptEnvelope>,
}

impl EthBlock {
    fn read(corpus: &EthCorpus, file: &EthFile) -> Self {
        let stem = file.name.strip_suffix(".receipts.rlp").expect("the name of receipts");
        let header_rlp = corpus.read(&format!("{stem}.header.rlp"));
        let receipts_rlp = corpus.read(&file.name);
        Self {
            name: stem.to_owned(),
            entry: file.entry.clone(),
            header: alloy_consensus::Header::decode(&mut &header_rlp[..]).expect("a header"),
            receipts: Vec::decode(&mut &receipts_rlp[..]).expect("receipts"),
            receipts_rlp,
        }
    }

    pub fn logs(&self) -> Vec<Log> {
        self.receipts.iter().flat_map(ReceiptEnvelope::logs).cloned().collect()
    }
}

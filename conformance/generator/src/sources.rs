//! The facts that cases are made from: Bitcoin Core's answers, chains, fixtures.

use std::fs;
use std::path::PathBuf;

use bitcoin::{Block, consensus};
use serde_json::Value;

/// Who computed the answers of Bitcoin Core's cases.
pub(crate) const CORE: &str = "Bitcoin Core 28.1";

/// Folders that hold the facts.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) corpus: PathBuf,
    pub(crate) fixtures: PathBuf,
}

impl Sources {
    fn read(path: PathBuf) -> Vec<u8> {
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub(crate) fn fixture(&self, name: &str) -> Value {
        let text = Self::read(self.fixtures.join(name));
        serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn corpus(&self, name: &str) -> Vec<u8> {
        Self::read(self.corpus.join(name))
    }

    pub(crate) fn corpus_json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.corpus(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        let text = String::from_utf8(self.corpus(name)).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// What Bitcoin Core answers to cases of a kind.
    pub(crate) fn core(&self, kind: &str) -> Vec<Value> {
        let mut rows = self.lines("bitcoin/core_oracle/cases.jsonl");
        rows.retain(|row| row["kind"] == kind);
        rows
    }

    /// Where the pack takes the block of a case of Bitcoin Core from.
    pub(crate) fn block(&self, name: &str) -> BlockSource {
        let height: u64 = name.trim_start_matches("block_").parse().expect("a height");
        let fixture = format!("bitcoin/blocks/mainnet_{height}.json");
        for chain in ["mainnet", "testnet3"] {
            let file = format!("bitcoin/{chain}/blocks/{name}.raw");
            if self.corpus.join(&file).exists() {
                let block: Block = consensus::deserialize(&self.corpus(&file)).expect("a block");
                let kept = self.fixtures.join(&fixture).exists().then_some(fixture);
                return BlockSource { chain, height, block, file, fixture: kept };
            }
        }
        panic!("{name} is not in the corpus");
    }
}

/// A block of a chain, as a reference.
#[derive(Debug)]
pub(crate) struct BlockSource {
    pub(crate) chain: &'static str,
    pub(crate) height: u64,
    pub(crate) block: Block,
    file: String,
    /// The file of fixtures that has the block, too.
    pub(crate) fixture: Option<String>,
}

impl BlockSource {
    /// The reference to the bytes of the block.
    pub(crate) fn reference(&self) -> Value {
        match &self.fixture {
            Some(fixture) => serde_json::json!({ "from": fixture, "at": "/block" }),
            None => serde_json::json!({ "corpus": self.file }),
        }
    }

    /// The reference to the scripts that the block spends.
    pub(crate) fn prevouts(&self) -> Value {
        let file = self.file.replace(".raw", ".prevouts.bin");
        serde_json::json!({ "corpus": file, "as": "scripts" })
    }

    pub(crate) fn hash(&self) -> String {
        self.block.block_hash().to_string()
    }

    /// Adds to a case that it needs the corpus, unless a fixture has the block.
    pub(crate) fn needed_by(&self, case: crate::pack::Case) -> crate::pack::Case {
        match self.fixture {
            Some(_) => case,
            None => case.needs(self.chain, self.height, &self.hash()),
        }
    }
}

/// The text of a JSON value.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

/// The bytes of a JSON value in hex, with or without 0x.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    let hex = text(value);
    hex::decode(hex.trim_start_matches("0x")).unwrap_or_else(|e| panic!("{hex:.40}: {e}"))
}

/// The items of a JSON list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

/// The integer of a JSON value.
pub(crate) fn int(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The integer of a JSON value that fits the type.
pub(crate) fn small<T: TryFrom<u64, Error: core::fmt::Debug>>(value: &Value) -> T {
    T::try_from(int(value)).expect("a number that fits")
}

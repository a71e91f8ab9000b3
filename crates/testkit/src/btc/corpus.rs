//! The Bitcoin folder of the corpus: its index and its files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::btc::oracle::TestBlock;
use crate::corpus;

/// An entry of `index.json`.
pub struct CorpusFile {
    pub name: String,
    pub size: u64,
    pub format: String,
    pub hash: Option<String>,
    pub transactions: Option<u64>,
}

impl CorpusFile {
    /// Returns the format in one word, for the formats that these tests read.
    pub fn format_kind(&self) -> &'static str {
        match self.format.as_str() {
            "raw block, network serialisation" => "raw block",
            "for each block: length u32 LE, raw block" => "framed blocks",
            "merkleblock message payload: header, total u32, hashes, flags" => "merkleblock",
            _ => "other",
        }
    }
}

pub struct Corpus {
    root: PathBuf,
    pub files: Vec<CorpusFile>,
    blocks: RefCell<HashMap<String, Rc<TestBlock>>>,
}

impl Corpus {
    /// Opens the corpus. Returns `None`, and prints why, if no corpus is configured.
    ///
    /// # Panics
    /// Panics if the configured corpus does not exist, or if `CI` is set and no corpus is
    /// configured.
    pub fn open() -> Option<Self> {
        let (root, files) = corpus::index("bitcoin")?;
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        let files = files.iter().map(|file| CorpusFile {
            name: text(&file["file"]).expect("a name"),
            size: file["size"].as_u64().expect("a size"),
            format: text(&file["format"]).expect("a format"),
            hash: text(&file["hash"]),
            transactions: file["txs"].as_u64(),
        });
        let files = files.collect();
        Some(Self { root, files, blocks: RefCell::default() })
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns a block by the name of its file, without folder and extension.
    pub fn block(&self, name: &str) -> Rc<TestBlock> {
        if let Some(block) = self.blocks.borrow().get(name) {
            return Rc::clone(block);
        }
        let ending = format!("/{name}.raw");
        let file = self.files.iter().find(|file| file.name.ends_with(&ending));
        let file = file.unwrap_or_else(|| panic!("no block {name} in the index"));
        let block = TestBlock::new(self.read(&file.name));
        self.blocks.borrow_mut().insert(name.to_owned(), Rc::clone(&block));
        block
    }
}

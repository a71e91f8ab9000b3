//! The folder `anchors` of the corpus.

use std::path::PathBuf;

use alloy_primitives::B256;
use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{ForkSlots, HistoricalSummary, History, ProofKind};
use serde_json::Value;

use crate::slow_ssz::Node;

pub(crate) struct Anchors {
    root: PathBuf,
    pub(crate) files: Vec<Value>,
}

/// A header proof of the corpus.
pub(crate) struct HeaderCase {
    pub(crate) name: String,
    pub(crate) kind: ProofKind,
    pub(crate) ssz: Vec<u8>,
    /// The RLP of the header, for all but two cases.
    pub(crate) header: Option<Vec<u8>>,
    pub(crate) hash: B256,
    pub(crate) number: u64,
    /// Lists with which the proof verifies.
    pub(crate) history: History,
}

impl Anchors {
    /// Opens the corpus. Returns `None`, and prints why, if no corpus is configured.
    pub(crate) fn open() -> Option<Self> {
        let (root, files) = testkit::corpus::index("anchors")?;
        Some(Self { root, files })
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("UTF-8")
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.read(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Returns the files whose kind starts with these words.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.files.iter().filter(move |file| text(&file["kind"]).starts_with(kind))
    }

    /// The summaries of mainnet at epoch 364328, which the corpus gives without a header.
    pub(crate) fn summaries(&self) -> Vec<HistoricalSummary> {
        let ssz = self.read("history/accumulators/historical_summaries_epoch_364328.ssz");
        HistoricalSummary::list_from_ssz(&ssz).expect("whole summaries")
    }

    pub(crate) fn mainnet(&self) -> History {
        History::mainnet().with_summaries(self.summaries(), Grade::OwnWord)
    }

    /// Returns every header proof, and the number of proofs of each kind.
    pub(crate) fn header_cases(&self) -> (Vec<HeaderCase>, [usize; 5]) {
        let mut counts = [0; 5];
        let mut cases = Vec::new();
        for file in self.of_kind("header proof") {
            let name = text(&file["file"]).to_owned();
            // The JSON that describes the synthetic proof.
            if !name.ends_with(".proof.ssz") {
                continue;
            }
            let code = file["proof_type"].as_u64().expect("a type");
            counts[usize::try_from(code).expect("small")] += 1;
            let kind = ProofKind::from_code(code).expect("a kind");
            let ssz = self.read(&name);
            let case = if kind == ProofKind::GloasSummaries {
                self.gloas(name, ssz)
            } else {
                let header = name.replace(".proof.ssz", ".header.rlp");
                let header = self.files.iter().find(|file| text(&file["file"]) == header);
                let hash = header.map_or(&file["block_hash"], |header| &header["hash"]);
                HeaderCase {
                    kind,
                    ssz,
                    header: header.map(|header| self.read(text(&header["file"]))),
                    hash: text(hash).parse().expect("a hash"),
                    number: file["number"].as_u64().expect("a number"),
                    history: self.mainnet(),
                    name,
                }
            };
            cases.push(case);
        }
        (cases, counts)
    }

    /// The synthetic proof of Gloas, which names the root of its period.
    fn gloas(&self, name: String, ssz: Vec<u8>) -> HeaderCase {
        let facts = self.json("history/synthetic/gloas.json");
        let root: B256 = text(&facts["block_summary_root"]).parse().expect("a root");
        let slot = facts["slot"].as_u64().expect("a slot");
        HeaderCase {
            kind: ProofKind::GloasSummaries,
            ssz,
            header: None,
            hash: text(&facts["parent_block_hash"]).parse().expect("a hash"),
            number: 0,
            history: gloas_history(slot / 8192 * 8192, root),
            name,
        }
    }
}

/// A network that had Gloas from its first period with a summary on, whose summary is given.
pub(crate) fn gloas_history(first: u64, block_summary_root: B256) -> History {
    let forks =
        ForkSlots { capella: first, deneb: first, gloas: Some(first), ..ForkSlots::MAINNET };
    let ssz = [block_summary_root.0, [0; 32]].concat();
    let summaries = HistoricalSummary::list_from_ssz(&ssz).expect("one summary");
    History::of(forks).with_summaries(summaries, Grade::OwnWord)
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

pub(crate) fn nodes(bytes: &[u8]) -> Vec<Node> {
    bytes.chunks_exact(32).map(|node| node.try_into().expect("32 bytes")).collect()
}

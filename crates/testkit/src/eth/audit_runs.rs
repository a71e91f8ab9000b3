//! Real consecutive blocks, and audits of answers about them.

use std::path::PathBuf;

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::{Decodable2718 as _, Encodable2718 as _};
use alloy_primitives::{B256, hex};
use alloy_rlp::Decodable as _;
use chainsieve::eth::audit::{Audit, AuditQuestion, AuditReport};
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use crate::corpus;

pub struct Block {
    pub number: u64,
    pub hash: B256,
    pub header: Vec<u8>,
    pub receipts: BlockReceipts,
    /// All logs of the block, as alloy decodes them.
    pub logs: Vec<LocatedLog>,
}

impl Block {
    pub fn new(header: Vec<u8>, envelopes: &[ReceiptEnvelope]) -> Self {
        let view = alloy_consensus::Header::decode(&mut &header[..]).expect("a header");
        let hash = view.hash_slow();
        let mut logs = Vec::new();
        for (transaction_index, receipt) in (0..).zip(envelopes) {
            for log in receipt.logs() {
                logs.push(LocatedLog {
                    log: log.clone(),
                    block_number: view.number,
                    block_hash: hash,
                    block_timestamp: Some(view.timestamp),
                    transaction_hash: None,
                    claimed_transaction_hash: None,
                    transaction_index,
                    log_index: logs.len() as u64,
                    removed: false,
                });
            }
        }
        let encodings: Vec<_> = envelopes.iter().map(ReceiptEnvelope::encoded_2718).collect();
        let receipts = BlockReceipts::from_encodings(&encodings).expect("receipts");
        Self { number: view.number, hash, header, receipts, logs }
    }

    pub fn view(&self) -> HeaderView<'_> {
        HeaderView::decode(&self.header).expect("a header")
    }
}

/// Consecutive blocks, each the parent of the next one.
pub struct Run {
    pub blocks: Vec<Block>,
    pub chain: LinkedHeaders,
}

impl Run {
    pub fn new(blocks: Vec<Block>) -> Self {
        let mut chain = LinkedHeaders::new();
        for block in &blocks {
            chain.extend_from_rlp(&block.header).expect("a chain");
        }
        Self { blocks, chain }
    }

    pub fn first(&self) -> u64 {
        self.blocks[0].number
    }

    pub fn last(&self) -> u64 {
        self.blocks[self.blocks.len() - 1].number
    }

    pub fn tip(&self) -> B256 {
        self.blocks[self.blocks.len() - 1].hash
    }

    pub fn block(&self, number: u64) -> &Block {
        self.blocks.iter().find(|block| block.number == number).expect("a block of the run")
    }

    pub fn by_hash(&self, hash: B256) -> &Block {
        self.blocks.iter().find(|block| block.hash == hash).expect("a block of the run")
    }

    pub fn question<'a>(
        &'a self,
        query: &'a LogQuery,
        anchors: &'a [B256],
        profile: &'a ChainProfile,
    ) -> AuditQuestion<'a> {
        AuditQuestion {
            chain: &self.chain,
            anchors,
            query,
            blocks: ResolvedBlocks::Range { first: self.first(), last: self.last() },
            semantics: Semantics::Geth,
            profile,
        }
    }

    /// Runs an audit with all receipts, anchored at the last block of the run.
    pub fn audit(&self, query: &LogQuery, answer: &[LocatedLog]) -> AuditReport {
        let (anchors, profile) = ([self.tip()], ChainProfile::ethereum());
        self.audit_question(self.question(query, &anchors, &profile), answer)
    }

    /// Runs an audit with all receipts that it needs.
    pub fn audit_question(
        &self,
        question: AuditQuestion<'_>,
        answer: &[LocatedLog],
    ) -> AuditReport {
        let mut audit = Audit::new(question, answer).expect("the chain covers the range");
        self.send(&mut audit, |_| true);
        let report = audit.finish();
        // The report is written as JSON and read back, so that every check covers the JSON form
        // too. Long reports are returned as they are, to save time.
        if report.findings.len() > 8 { report } else { reread(&report) }
    }

    /// Gives the audit the receipts of the open blocks for which `has` returns `true`.
    pub fn send(&self, audit: &mut Audit<'_>, has: impl Fn(u64) -> bool) {
        let open: Vec<_> = audit.open().collect();
        for block in open.into_iter().filter(|block| has(block.number)) {
            let receipts = &self.by_hash(block.hash).receipts;
            assert_eq!(audit.check_receipts(block.hash, receipts), Ok(true));
        }
    }
}

/// Writes a report as JSON, reads it back, and asserts that it is unchanged.
pub fn reread(report: &AuditReport) -> AuditReport {
    let json = serde_json::to_string(report).expect("JSON");
    let read: AuditReport = serde_json::from_str(&json).expect("it was written");
    assert_eq!(read, *report, "{json}");
    read
}

/// Returns the two consecutive blocks of the fixtures.
pub fn fixture_pair() -> Run {
    Run::new(vec![fixture(17_686_111), fixture(17_686_112)])
}

pub fn fixture(number: u64) -> Block {
    let path = format!("../../fixtures/ethereum/blocks/mainnet_{number}.json");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).expect("a fixture");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let bytes = |value: &serde_json::Value| hex::decode(value.as_str().expect("hex")).expect("hex");
    let receipts = json["receipts"].as_array().expect("receipts").iter().map(|receipt| {
        ReceiptEnvelope::decode_2718(&mut &bytes(receipt)[..]).expect("alloy decodes it")
    });
    let block = Block::new(bytes(&json["header"]), &receipts.collect::<Vec<_>>());
    assert_eq!(json["hash"], block.hash.to_string());
    block
}

/// Returns all blocks of the corpus that have receipts, in runs. The list is empty if no corpus is
/// configured.
///
/// # Panics
/// Panics if `CI` is set and no corpus is configured.
pub fn corpus() -> Vec<Run> {
    let Some((root, files)) = corpus::index("ethereum") else { return Vec::new() };
    let names = files.iter().map(|file| file["file"].as_str().expect("a name"));
    let mut blocks: Vec<Block> = names
        .filter_map(|name| {
            let stem = name.strip_suffix(".receipts.rlp")?;
            let read = |ending: &str| std::fs::read(root.join(format!("{stem}{ending}")));
            let rlp = read(".receipts.rlp").expect("receipts");
            let receipts = Vec::<ReceiptEnvelope>::decode(&mut &rlp[..]).expect("receipts");
            Some(Block::new(read(".header.rlp").expect("a header"), &receipts))
        })
        .collect();
    blocks.sort_by_key(|block| block.number);
    assert_eq!(blocks.len(), 37);
    let mut runs: Vec<Vec<Block>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last.hash == block.view().parent_hash()) => {
                run.push(block);
            }
            _ => runs.push(vec![block]),
        }
    }
    let lengths: Vec<_> = runs.iter().map(Vec::len).filter(|length| *length > 1).collect();
    assert_eq!(lengths, [2, 16, 2, 2]);
    runs.into_iter().map(Run::new).collect()
}

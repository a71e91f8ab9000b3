//! All receipts of a block from RLP: the root, the blooms, and the logs that a query matches.

use alloy_consensus::proofs::calculate_receipt_root;
use alloy_consensus::{Header, ReceiptEnvelope};
use alloy_primitives::{Bloom, Log, b256, logs_bloom};
use alloy_rlp::Decodable as _;
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement};

use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    for block in blocks(&[21_925_176, 17_686_125, 15_573_637]) {
        measure(report, &block);
    }
}

pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) header: Header,
    pub(crate) receipts: Vec<u8>,
}

fn measure(report: &mut Report, block: &Block) {
    let transfer = b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");
    let query = LogQuery::default().topic0(transfer);
    let Block { number, header, receipts } = block;
    let ours = || {
        let receipts = BlockReceipts::from_rlp_list(receipts).expect("receipts");
        let verified = receipts
            .verify(header.receipts_root, (&header.logs_bloom).into())
            .expect("the block's receipts");
        assert_eq!(verified.header_bloom(), BloomAgreement::Exact);
        assert_eq!(verified.unsound_receipt(), None);
        verified.logs_matching(|log| query.matches(log, Semantics::Geth)).count()
    };
    let is_transfer = |log: &&Log| log.topics().first() == Some(&transfer);
    let root_alone = || {
        let receipts = decode(receipts);
        assert_eq!(calculate_receipt_root(&receipts), header.receipts_root);
        receipts
    };
    let all = || {
        let receipts = root_alone();
        let mut bloom = Bloom::ZERO;
        for receipt in &receipts {
            assert_eq!(logs_bloom(receipt.logs()), *receipt.logs_bloom());
            bloom |= *receipt.logs_bloom();
        }
        assert_eq!(bloom, header.logs_bloom);
        receipts.iter().flat_map(ReceiptEnvelope::logs).filter(is_transfer).count()
    };
    assert_eq!(ours(), all());
    assert!(ours() > 0, "a query with results");
    let count = decode(receipts).len();
    let title = format!("verify block {number}, {count} receipts from RLP, and match a query");
    report.ratio(&format!("{title} vs alloy: decode and root alone"), 1, ours, root_alone);
    report.ratio(&format!("{title} vs alloy: the same"), 1, ours, all);
}

pub(crate) fn decode(rlp: &[u8]) -> Vec<ReceiptEnvelope> {
    Vec::<ReceiptEnvelope>::decode(&mut &rlp[..]).expect("receipts")
}

/// Returns blocks of the corpus, or a smaller block of the fixtures if there is no corpus.
pub(crate) fn blocks(numbers: &[u64]) -> Vec<Block> {
    let Some(corpus) = std::env::var_os("CHAINSIEVE_CORPUS") else {
        println!("# CHAINSIEVE_CORPUS is not set: a block of the fixtures instead");
        return vec![fixture()];
    };
    let corpus = std::path::Path::new(&corpus).join("ethereum/mainnet/blocks");
    let read = |number: u64, ending: &str| {
        let file = corpus.join(format!("block_{number}.{ending}"));
        std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let block = |&number: &u64| Block {
        number,
        header: Header::decode(&mut &read(number, "header.rlp")[..]).expect("a header"),
        receipts: read(number, "receipts.rlp"),
    };
    numbers.iter().map(block).collect()
}

fn fixture() -> Block {
    let fixture = include_str!("../../fixtures/ethereum/blocks/mainnet_17686112.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).expect("a fixture");
    let bytes = |value: &serde_json::Value| {
        alloy_primitives::hex::decode(value.as_str().expect("text")).expect("hex")
    };
    let mut payload = Vec::new();
    for receipt in fixture["receipts"].as_array().expect("receipts") {
        let encoding = bytes(receipt);
        if encoding[0] < 0xc0 {
            alloy_rlp::Encodable::encode(&encoding[..], &mut payload);
        } else {
            payload.extend(encoding);
        }
    }
    let mut receipts = Vec::new();
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut receipts);
    receipts.append(&mut payload);
    let header = Header::decode(&mut &bytes(&fixture["header"])[..]).expect("a header");
    Block { number: header.number, header, receipts }
}

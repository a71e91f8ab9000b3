//! Every real block, in every form, gives its root, its filter and alloy's logs.

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::private::alloy_eips::Decodable2718 as _;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_primitives::Log;
use chainsieve::eth::receipts::{BlockReceipts, BloomAgreement};

use crate::blocks::{self, RealBlock};

/// Alloy's reading of the block, whose root is checked by alloy too.
fn by_alloy(block: &RealBlock) -> Vec<ReceiptEnvelope> {
    let decode =
        |rlp: &Vec<u8>| ReceiptEnvelope::decode_2718(&mut &rlp[..]).expect("alloy decodes it");
    let receipts: Vec<_> = block.encodings.iter().map(decode).collect();
    assert_eq!(calculate_receipt_root(&receipts), block.header.receipts_root, "{}", block.name);
    receipts
}

fn check(block: &RealBlock, form: &str, receipts: &BlockReceipts) {
    let name = format!("{} as {form}", block.name);
    let verified = receipts
        .verify(block.header.receipts_root, (&block.header.logs_bloom).into())
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(verified.header_bloom(), BloomAgreement::Exact, "{name}");
    assert_eq!(verified.unsound_receipt(), None, "{name}");
    let expected = by_alloy(block);
    let mut logs = verified.logs();
    let mut log_index = 0;
    for (index, receipt) in expected.iter().enumerate() {
        for log in receipt.logs() {
            let found = logs.next().unwrap_or_else(|| panic!("{name}: log {log_index} is missing"));
            let log: &Log = log;
            assert_eq!(found.log, log, "{name}");
            assert_eq!((found.transaction_index, found.log_index), (index as u64, log_index));
            log_index += 1;
        }
    }
    assert_eq!(logs.next(), None, "{name}");
}

#[test]
fn consensus_encodings() {
    for block in blocks::all() {
        let receipts = BlockReceipts::from_encodings(&block.encodings).expect("receipts");
        check(&block, "encodings", &receipts);
        let receipts = BlockReceipts::from_rlp_list(&block.rlp).expect("receipts");
        check(&block, "a list", &receipts);
    }
}

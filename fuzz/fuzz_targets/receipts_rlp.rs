//! Receipts in consensus form and in slim form: where alloy and the library both read a list, the
//! roots are equal.
#![no_main]

use alloy_consensus::ReceiptEnvelope;
use alloy_consensus::proofs::calculate_receipt_root;
use alloy_rlp::Decodable as _;
use chainsieve::alloy_primitives::{B256, Bloom, Log};
use chainsieve::eth::receipts::BlockReceipts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|rlp: &[u8]| {
    let mut rest = rlp;
    let theirs = Vec::<ReceiptEnvelope>::decode(&mut rest).ok().filter(|_| rest.is_empty());
    let ours = BlockReceipts::from_rlp_list(rlp);
    if let (Some(theirs), Ok(ours)) = (&theirs, &ours) {
        let root = calculate_receipt_root(theirs);
        let verified = ours.verify(root, (&Bloom::ZERO).into()).expect("alloy's root");
        let logs: Vec<&Log> = theirs.iter().flat_map(ReceiptEnvelope::logs).collect();
        assert!(verified.logs().map(|found| found.log).eq(logs));
        if let Some(proof) = verified.proof(0) {
            assert_eq!(proof.verify(root).as_ref().ok(), ours.iter().next());
        }
    }
    for receipts in [ours, BlockReceipts::from_slim_list(rlp)].into_iter().flatten() {
        assert!(receipts.verify(B256::ZERO, (&Bloom::ZERO).into()).is_err());
    }
    let _ = BlockReceipts::from_encodings(&[rlp]);
});

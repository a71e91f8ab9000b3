//! Receipts as JSON-RPC: reading never panics, and no receipts have a root of zeros.
#![no_main]

use chainsieve::alloy_primitives::{B256, Bloom};
use chainsieve::eth::receipts::BlockReceipts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(receipts) = BlockReceipts::from_json(text) {
        assert_eq!(receipts.claims().len(), receipts.len());
        assert!(receipts.verify(B256::ZERO, (&Bloom::ZERO).into()).is_err());
    }
    let _ = BlockReceipts::from_json_each(&[text]);
});

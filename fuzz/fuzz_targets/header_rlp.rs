//! A header: whatever alloy reads, the library reads with the same hash and fields.
#![no_main]

use alloy_consensus::Header;
use alloy_rlp::Decodable as _;
use chainsieve::eth::header::{HeaderView, bloom_at_fixed_place};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|rlp: &[u8]| {
    let ours = HeaderView::decode_prefix(rlp);
    let mut rest = rlp;
    let theirs = Header::decode(&mut rest);
    if let Ok(header) = &theirs {
        let (view, behind) = ours.as_ref().expect("alloy reads it");
        assert_eq!(behind, &rest);
        assert_eq!(view.parent_hash(), header.parent_hash);
        assert_eq!(view.receipts_root(), header.receipts_root);
        assert_eq!(view.logs_bloom().bytes(), Some(&header.logs_bloom.0.0));
        assert_eq!(view.number(), header.number);
        assert_eq!(view.gas_used(), header.gas_used);
        assert_eq!(view.timestamp(), header.timestamp);
        assert_eq!(view.extra_data(), &header.extra_data[..]);
        assert_eq!(view.mix_hash(), Some(header.mix_hash));
        let fee = header.base_fee_per_gas.map(chainsieve::alloy_primitives::U256::from);
        assert_eq!(view.base_fee_per_gas(), fee);
        assert_eq!(view.withdrawals_root(), header.withdrawals_root);
        assert_eq!(view.slot_number(), header.slot_number);
        assert_eq!(view.hash(), header.hash_slow());
    }
    if let Ok((view, behind)) = ours {
        assert_eq!([view.rlp(), behind].concat(), rlp);
        assert_eq!(HeaderView::decode(view.rlp()), Ok(view));
        assert!(view.num_fields() >= 13);
        if let Some(bloom) = bloom_at_fixed_place(rlp) {
            assert_eq!(bloom, view.logs_bloom());
        }
        let _ = (view.layout(), view.nonce(), view.blob_gas_used(), view.requests_hash());
    }
});

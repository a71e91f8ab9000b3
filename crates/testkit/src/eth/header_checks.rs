//! Compares the library's decoding of a real header with alloy's, field by field.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bloom, U256};
use alloy_rlp::Decodable as _;
use chainsieve::eth::header::{HeaderLayout, HeaderView, bloom_at_fixed_place};

/// Checks a header, and returns alloy's decoding of it.
pub fn check(name: &str, rlp: &[u8], hash: B256) -> Header {
    let view = HeaderView::decode(rlp).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(view.hash(), hash, "{name}: hash");
    assert_eq!(view.rlp(), rlp, "{name}");
    let mut rest = rlp;
    let alloy = Header::decode(&mut rest).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!((rest.len(), alloy.hash_slow()), (0, hash), "{name}: alloy's hash");

    let hashes = [
        (view.parent_hash(), alloy.parent_hash),
        (view.ommers_hash(), alloy.ommers_hash),
        (view.state_root(), alloy.state_root),
        (view.transactions_root(), alloy.transactions_root),
        (view.receipts_root(), alloy.receipts_root),
        (view.mix_hash().expect("a mix hash"), alloy.mix_hash),
    ];
    for (field, (ours, theirs)) in hashes.into_iter().enumerate() {
        assert_eq!(ours, theirs, "{name}: hash {field}");
    }
    let numbers = [
        (view.number(), alloy.number),
        (view.gas_limit(), alloy.gas_limit),
        (view.gas_used(), alloy.gas_used),
        (view.timestamp(), alloy.timestamp),
    ];
    for (field, (ours, theirs)) in numbers.into_iter().enumerate() {
        assert_eq!(ours, theirs, "{name}: number {field}");
    }
    assert_eq!(view.beneficiary(), alloy.beneficiary, "{name}");
    assert_eq!(view.difficulty(), alloy.difficulty, "{name}");
    assert_eq!(view.extra_data(), &alloy.extra_data[..], "{name}");
    assert_eq!(view.nonce(), Some(alloy.nonce.0), "{name}");
    assert_eq!(view.base_fee_per_gas(), alloy.base_fee_per_gas.map(U256::from), "{name}");
    assert_eq!(view.withdrawals_root(), alloy.withdrawals_root, "{name}");
    assert_eq!(view.blob_gas_used(), alloy.blob_gas_used, "{name}");
    assert_eq!(view.excess_blob_gas(), alloy.excess_blob_gas, "{name}");
    assert_eq!(view.parent_beacon_block_root(), alloy.parent_beacon_block_root, "{name}");
    assert_eq!(view.requests_hash(), alloy.requests_hash, "{name}");
    assert_eq!(view.block_access_list_hash(), alloy.block_access_list_hash, "{name}");
    assert_eq!(view.slot_number(), alloy.slot_number, "{name}");

    let layout = match () {
        () if alloy.slot_number.is_some() => (23, HeaderLayout::Amsterdam),
        () if alloy.requests_hash.is_some() => (21, HeaderLayout::Prague),
        () if alloy.parent_beacon_block_root.is_some() => (20, HeaderLayout::Cancun),
        () if alloy.withdrawals_root.is_some() => (17, HeaderLayout::Shanghai),
        () if alloy.base_fee_per_gas.is_some() => (16, HeaderLayout::London),
        () => (15, HeaderLayout::Frontier),
    };
    assert_eq!((view.num_fields(), view.layout()), layout, "{name}");

    let bloom = view.logs_bloom().bytes().map(Bloom::from);
    assert_eq!(bloom, Some(alloy.logs_bloom), "{name}: filter");
    assert_eq!(bloom_at_fixed_place(rlp), Some(view.logs_bloom()), "{name}: filter in place");
    alloy
}

/// Returns the number of set bits of a bloom, counted one by one.
pub fn ones(bloom: &Bloom) -> u64 {
    (0..2048).filter(|bit| bloom[bit / 8] >> (bit % 8) & 1 == 1).count() as u64
}

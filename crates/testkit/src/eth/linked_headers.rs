//! Linked headers, each the child of the previous one, with given blooms.

use alloy_consensus::Header;
use chainsieve::alloy_primitives::{B256, Bloom, U256};
use chainsieve::eth::header::LinkedHeaders;

/// Returns a header without transactions. Gas and extra data depend on `branch`, so that two
/// branches have different hashes. Timestamps are twelve seconds apart.
pub fn header(parent_hash: B256, number: u64, branch: u64, logs_bloom: Bloom) -> Header {
    let bytes = branch.to_be_bytes();
    let extra_data = &bytes[(branch.leading_zeros() as usize / 8).min(7)..];
    Header {
        parent_hash,
        number,
        logs_bloom,
        difficulty: U256::ZERO,
        gas_limit: 30_000_000,
        gas_used: number.wrapping_mul(1_299_709).wrapping_add(branch) % 30_000_000,
        timestamp: number.wrapping_mul(12).wrapping_add(1_500_000_000),
        extra_data: extra_data.to_vec().into(),
        ..Default::default()
    }
}

/// Returns the RLP of headers from number `first` on, each the child of the previous one. The first
/// is the child of `parent`.
pub fn linked_rlp(
    first: u64,
    parent: B256,
    branch: u64,
    blooms: impl IntoIterator<Item = Bloom>,
) -> Vec<Vec<u8>> {
    let mut parent_hash = parent;
    let headers = (0..).zip(blooms).map(|(block, bloom)| {
        let number = first + block;
        let header = header(parent_hash, number, branch, bloom);
        parent_hash = header.hash_slow();
        alloy_rlp::encode(&header)
    });
    headers.collect()
}

/// Returns the same headers as a chain.
pub fn linked_headers(
    first: u64,
    parent: B256,
    branch: u64,
    blooms: &[[u8; 256]],
) -> LinkedHeaders {
    let rlp = linked_rlp(first, parent, branch, blooms.iter().map(Bloom::from)).concat();
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&rlp).expect("linked headers");
    chain
}

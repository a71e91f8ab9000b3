//! Headers that are each the child of the one before, with filters as wanted.

use alloy_consensus::Header;
use chainsieve::alloy_primitives::{B256, Bloom, U256};
use chainsieve::eth::header::HeaderChain;
use chainsieve::simd::Backend;

/// Headers of blocks from number `first` on, each the child of the one before and the first that of
/// `parent`. Their times are twelve seconds apart; gas and extra data come from `branch`, so that
/// two branches have different hashes.
pub(crate) fn linked_headers(
    first: u64,
    parent: B256,
    branch: u64,
    blooms: &[[u8; 256]],
) -> HeaderChain {
    let mut chain = HeaderChain::new();
    let mut parent_hash = parent;
    let bytes = branch.to_be_bytes();
    let extra_data = &bytes[(branch.leading_zeros() as usize / 8).min(7)..];
    for (block, bloom) in (0..).zip(blooms) {
        let number = first + block;
        let header = Header {
            parent_hash,
            number,
            logs_bloom: Bloom::from(*bloom),
            difficulty: U256::ZERO,
            gas_limit: 30_000_000,
            gas_used: number.wrapping_mul(1_299_709).wrapping_add(branch) % 30_000_000,
            timestamp: number.wrapping_mul(12).wrapping_add(1_500_000_000),
            extra_data: extra_data.to_vec().into(),
            ..Default::default()
        };
        let rlp = alloy_rlp::encode(&header);
        chain.extend_from_rlp(Backend::best(), &rlp).expect("linked headers");
        parent_hash = chain.last_hash().expect("just linked");
    }
    chain
}

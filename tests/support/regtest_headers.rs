//! Headers mined on regtest, where every second hash will do.

use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Network, TxMerkleNode};

/// The genesis block's header.
pub(crate) fn genesis() -> Header {
    genesis_block(Network::Regtest).header
}

/// A header behind `parent`. Different salts make different headers.
pub(crate) fn mine(parent: &Header, time: u32, salt: u64) -> Header {
    let mut root = [0; 32];
    root[..8].copy_from_slice(&salt.to_le_bytes());
    let mut header = Header {
        version: Version::from_consensus(4),
        prev_blockhash: parent.block_hash(),
        merkle_root: TxMerkleNode::from_byte_array(root),
        time,
        bits: genesis().bits,
        nonce: 0,
    };
    while !header.target().is_met_by(header.block_hash()) {
        header.nonce += 1;
    }
    header
}

/// `count` headers behind `parent`, ten minutes apart.
pub(crate) fn branch(parent: &Header, count: usize, salt: u64) -> Vec<Header> {
    let mut last = *parent;
    let headers = std::iter::repeat_with(|| {
        last = mine(&last, last.time + 600, salt);
        last
    });
    headers.take(count).collect()
}

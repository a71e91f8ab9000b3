//! What the tests of the node's side share.

use alloc::vec::Vec;

use bitcoin::{Block, Network};

use super::{Added, ServedChain};

/// A time at which all blocks here have been found.
pub(super) const NOW: u32 = 1_700_000_000;

/// Adds blocks; whatever is wrong with one is in its result.
pub(super) fn add(chain: &mut ServedChain, blocks: &[Block]) -> Vec<Added> {
    blocks.iter().map(|block| chain.add_block(block.clone(), NOW)).collect()
}

/// A chain with filters that has added these blocks.
pub(super) fn chain_of(blocks: &[Block]) -> ServedChain {
    let mut chain = ServedChain::new(Network::Regtest, true);
    for added in add(&mut chain, blocks) {
        assert_eq!(added.errors, []);
    }
    chain
}

//! Helpers shared by the tests of the server.

use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::{Block, Network};

use super::{Added, ServedChain};

/// A Unix time later than the timestamp of every block in these tests.
pub(super) const NOW: Duration = Duration::from_secs(1_700_000_000);

/// Adds blocks and returns one result per block, with its errors.
pub(super) fn add(chain: &mut ServedChain, blocks: &[Block]) -> Vec<Added> {
    blocks.iter().map(|block| chain.add_block(block.clone(), None, NOW)).collect()
}

/// Returns a chain with filters and these blocks.
pub(super) fn chain_of(blocks: &[Block]) -> ServedChain {
    let mut chain = ServedChain::new(Network::Regtest, true);
    for added in add(&mut chain, blocks) {
        assert_eq!(added.errors, []);
    }
    chain
}

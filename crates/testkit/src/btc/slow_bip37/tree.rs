//! The partial merkle tree of a `merkleblock`, built by plain recursion as the BIP describes it.

use bitcoin::Block;
use bitcoin::consensus::serialize;
use bitcoin::hashes::{Hash as _, sha256d};

pub fn compact_size(n: usize) -> Vec<u8> {
    match n {
        0..=252 => vec![u8::try_from(n).expect("under 253")],
        253..=0xffff => {
            let n = u16::try_from(n).expect("two bytes");
            [&[253][..], &n.to_le_bytes()].concat()
        }
        _ => {
            let n = u32::try_from(n).expect("four bytes");
            [&[254][..], &n.to_le_bytes()].concat()
        }
    }
}

struct Build<'a> {
    leaves: &'a [([u8; 32], bool)],
    bits: Vec<bool>,
    hashes: Vec<[u8; 32]>,
}

impl Build<'_> {
    /// Returns the number of nodes at `height`; the leaves are at height 0.
    fn width(&self, height: u32) -> usize {
        self.leaves.len().div_ceil(1 << height)
    }

    fn hash(&self, height: u32, at: usize) -> [u8; 32] {
        if height == 0 {
            return self.leaves[at].0;
        }
        let left = self.hash(height - 1, at * 2);
        let has_right = at * 2 + 1 < self.width(height - 1);
        let right = if has_right { self.hash(height - 1, at * 2 + 1) } else { left };
        sha256d::Hash::hash(&[left, right].concat()).to_byte_array()
    }

    fn descend(&mut self, height: u32, at: usize) {
        let first = at << height;
        let end = ((at + 1) << height).min(self.leaves.len());
        let matched = self.leaves[first..end].iter().any(|leaf| leaf.1);
        self.bits.push(matched);
        if height == 0 || !matched {
            let hash = self.hash(height, at);
            self.hashes.push(hash);
            return;
        }
        self.descend(height - 1, at * 2);
        if at * 2 + 1 < self.width(height - 1) {
            self.descend(height - 1, at * 2 + 1);
        }
    }
}

/// Returns the part of a `merkleblock` payload that follows the header, for these leaves. There
/// must be at least one leaf.
pub fn partial_tree(leaves: &[([u8; 32], bool)]) -> Vec<u8> {
    let mut build = Build { leaves, bits: Vec::new(), hashes: Vec::new() };
    let mut height = 0;
    while build.width(height) > 1 {
        height += 1;
    }
    build.descend(height, 0);

    let total = u32::try_from(leaves.len()).expect("a block's transactions");
    let mut payload = total.to_le_bytes().to_vec();
    payload.extend(compact_size(build.hashes.len()));
    payload.extend(build.hashes.concat());
    let mut flags = vec![0_u8; build.bits.len().div_ceil(8)];
    for (at, _) in build.bits.iter().enumerate().filter(|(_, bit)| **bit) {
        flags[at / 8] |= 1 << (at % 8);
    }
    payload.extend(compact_size(flags.len()));
    payload.extend(flags);
    payload
}

/// Returns the `merkleblock` payload of a block in which the transactions at these indices match.
pub fn merkle_block(block: &Block, matched: &[usize]) -> Vec<u8> {
    let txids = block.txdata.iter().map(|tx| tx.compute_txid().to_byte_array());
    let leaves: Vec<_> =
        txids.enumerate().map(|(at, txid)| (txid, matched.contains(&at))).collect();
    [serialize(&block.header), partial_tree(&leaves)].concat()
}

//! Merkle branches of SSZ objects, with SHA-256.
//!
//! A *generalised index* (gindex) names a node of a binary tree: the root is 1, and the children of
//! node `n` are `2n` and `2n + 1`. A *branch* lists the siblings on the way from a node up to the
//! root, the lowest sibling first. Its length is the depth of the node, `floor(log2(gindex))`.
//!
//! Source: consensus-specs, `ssz/merkle-proofs.md` and `is_valid_merkle_branch` of
//! `specs/phase0/beacon-chain.md`.

use sha2::{Digest as _, Sha256};

/// Computes the root of a tree from one of its nodes and the branch of that node.
///
/// Returns `None` if the branch's length is not the depth of `gindex`, or if `gindex` is 0. A
/// branch of another length belongs to another tree or another node, and can prove nothing here.
///
/// # Cost
/// Hashes 64 bytes for each level.
pub fn root(leaf: [u8; 32], branch: &[[u8; 32]], gindex: u64) -> Option<[u8; 32]> {
    if usize::try_from(gindex.checked_ilog2()?).ok()? != branch.len() {
        return None;
    }
    let climb = |(node, gindex): ([u8; 32], u64), sibling: &[u8; 32]| {
        let up = if gindex & 1 == 0 { parent(&node, sibling) } else { parent(sibling, &node) };
        (up, gindex >> 1)
    };
    Some(branch.iter().fold((leaf, gindex), climb).0)
}

/// Returns `true` if the tree with this root has `leaf` at `gindex`.
///
/// Returns `false` if [`root`](self::root) returns `None`.
pub fn is_valid(leaf: [u8; 32], branch: &[[u8; 32]], gindex: u64, root: [u8; 32]) -> bool {
    self::root(leaf, branch, gindex) == Some(root)
}

/// Returns the parent of two nodes: SHA-256 of the left node and the right node.
pub(super) fn parent(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(left).chain_update(right).finalize().into()
}

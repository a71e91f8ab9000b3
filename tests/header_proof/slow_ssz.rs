//! Merkle trees of SSZ, slow and written from the specification's text: `ssz/simple-serialize.md`,
//! `ssz/merkle-proofs.md` and `is_valid_merkle_branch` of consensus-specs. SHA-256 is that of
//! another package than the library's.

use bitcoin::hashes::{Hash as _, sha256};

pub(crate) type Node = [u8; 32];

pub(crate) fn hash(bytes: &[u8]) -> Node {
    sha256::Hash::hash(bytes).to_byte_array()
}

/// `is_valid_merkle_branch` of the phase 0 specification, which takes a depth and an index.
pub(crate) fn is_valid_merkle_branch(
    leaf: Node,
    branch: &[Node],
    depth: u32,
    index: u64,
    root: Node,
) -> bool {
    let mut value = leaf;
    for i in 0..depth {
        let sibling = branch[i as usize];
        value = if index / 2_u64.pow(i) % 2 == 1 {
            hash(&[sibling, value].concat())
        } else {
            hash(&[value, sibling].concat())
        };
    }
    value == root
}

/// `merkleize`: the root of chunks, padded with zero chunks to `2^depth`, layer by layer.
pub(crate) fn merkleize(chunks: &[Node], depth: u32) -> Node {
    assert!(chunks.len() as u64 <= 1 << depth, "too many chunks");
    let mut layer = chunks.to_vec();
    let mut zero = [0; 32];
    for _ in 0..depth {
        layer = layer
            .chunks(2)
            .map(|pair| hash(&[pair[0], *pair.get(1).unwrap_or(&zero)].concat()))
            .collect();
        zero = hash(&[zero, zero].concat());
    }
    layer.first().copied().unwrap_or(zero)
}

/// `mix_in_length`.
pub(crate) fn mix_in_length(root: Node, length: usize) -> Node {
    let mut chunk = [0; 32];
    chunk[..8].copy_from_slice(&(length as u64).to_le_bytes());
    hash(&[root, chunk].concat())
}

/// Returns the branch of chunk `index` in a tree of `2^depth` chunks, the lowest sibling first.
pub(crate) fn branch(chunks: &[Node], depth: u32, index: usize) -> Vec<Node> {
    let mut layer = chunks.to_vec();
    let mut zero = [0; 32];
    let mut at = index;
    let mut branch = Vec::new();
    for _ in 0..depth {
        branch.push(*layer.get(at ^ 1).unwrap_or(&zero));
        layer = layer
            .chunks(2)
            .map(|pair| hash(&[pair[0], *pair.get(1).unwrap_or(&zero)].concat()))
            .collect();
        zero = hash(&[zero, zero].concat());
        at /= 2;
    }
    branch
}

/// `concat_generalized_indices`: the index of the last in the tree of the first.
pub(crate) fn concat_generalized_indices(indices: &[u64]) -> u64 {
    indices.iter().fold(1, |all, &index| {
        let floor = 1 << index.ilog2();
        all * floor + (index - floor)
    })
}

/// Lists of roots that a header proof may start from.
pub(crate) struct Lists<'a> {
    pub(crate) epochs: &'a [Node],
    pub(crate) historical_roots: &'a [Node],
    /// `block_summary_root` of each summary.
    pub(crate) summaries: &'a [Node],
    /// First slot of Capella.
    pub(crate) capella: u64,
}

/// Checks a header proof of this type as the Portal history network describes it. The bytes have
/// the length of their type.
pub(crate) fn header_proof(
    proof_type: u64,
    ssz: &[u8],
    hash: Node,
    number: u64,
    lists: &Lists<'_>,
) -> bool {
    let nodes: Vec<Node> =
        ssz.chunks_exact(32).map(|node| node.try_into().expect("32 bytes")).collect();
    let at = |list: &[Node], index: u64| {
        usize::try_from(index).ok().and_then(|at| list.get(at).copied())
    };
    if proof_type == 0 {
        // List data, not length (2); record; block_hash, not total_difficulty (2).
        let gindex = concat_generalized_indices(&[2, 8192 + number % 8192, 2]);
        let Some(root) = at(lists.epochs, number / 8192) else { return false };
        return gindex_valid(hash, &nodes, gindex, root);
    }
    let (beacon_depth, path): (usize, &[u64]) = match proof_type {
        // BeaconBlock.body (field 4 of 5), BeaconBlockBody.execution_payload (field 9 of at most
        // 16), ExecutionPayload.block_hash (field 12 of at most 16, of at most 32 since Deneb).
        1 => (14, &[8 + 4, 16 + 9, 16 + 12]),
        2 => (13, &[8 + 4, 16 + 9, 16 + 12]),
        3 => (13, &[8 + 4, 16 + 9, 32 + 12]),
        // The index of parent_block_hash in the body is that of the light client's specification.
        4 => (13, &[8 + 4, 2856]),
        _ => return false,
    };
    let slot = u64::from_le_bytes(ssz[ssz.len() - 8..].try_into().expect("8 bytes"));
    let (beacon_branch, rest) = nodes.split_at(beacon_depth);
    let (beacon_block, execution_branch) = (rest[0], &rest[1..]);
    let root = if proof_type == 1 {
        at(lists.historical_roots, slot / 8192)
    } else {
        slot.checked_sub(lists.capella).and_then(|since| at(lists.summaries, since / 8192))
    };
    // HistoricalBatch.block_roots is field 0 of 2.
    let block_roots = 8192 + slot % 8192;
    let beacon_path = [2, block_roots];
    let beacon_path = if proof_type == 1 { &beacon_path[..] } else { &beacon_path[1..] };
    root.is_some_and(|root| {
        gindex_valid(hash, execution_branch, concat_generalized_indices(path), beacon_block)
            && gindex_valid(
                beacon_block,
                beacon_branch,
                concat_generalized_indices(beacon_path),
                root,
            )
    })
}

/// `is_valid_normalized_merkle_branch` without normalisation: `get_subtree_index` is the index
/// within the level.
pub(crate) fn gindex_valid(leaf: Node, branch: &[Node], gindex: u64, root: Node) -> bool {
    let depth = gindex.ilog2();
    branch.len() == depth as usize
        && is_valid_merkle_branch(leaf, branch, depth, gindex % (1 << depth), root)
}

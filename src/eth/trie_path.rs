//! One step on the path from the root of a Merkle-Patricia trie to a key.

use alloc::vec::Vec;

use alloy_primitives::B256;
use alloy_rlp::Decodable as _;
use alloy_trie::Nibbles;
use alloy_trie::nodes::{BranchNode, RlpNode, TrieNode};

/// The result of a node for a key.
#[derive(Debug)]
pub(crate) enum TrieStep {
    /// The path continues at the node with this hash.
    Down(B256),
    /// The node has the leaf of the key, with this value.
    Value(Vec<u8>),
    /// The trie does not have the key.
    Absent,
}

/// Follows the path to `key` through one node, which starts after `walked` nibbles of the key.
///
/// A node of less than 32 bytes is embedded in its parent in place of its hash. Such nodes are part
/// of the step. The caller has compared the hash of the node with the hash in its parent. `walked`
/// grows by the nibbles that the step consumes.
///
/// # Errors
/// Returns an error if the bytes are not a trie node.
pub(crate) fn step(rlp: &[u8], key: &Nibbles, walked: &mut usize) -> alloy_rlp::Result<TrieStep> {
    let mut node = TrieNode::decode(&mut &rlp[..])?;
    // An embedded node is shorter than the node that embeds it, so this ends.
    loop {
        let rest = key.slice(*walked..);
        let child = match node {
            TrieNode::Leaf(leaf) if leaf.key == rest => return Ok(TrieStep::Value(leaf.value)),
            TrieNode::Extension(extension) if rest.starts_with(&extension.key) => {
                *walked += extension.key.len();
                Some(extension.child)
            }
            TrieNode::Branch(branch) => {
                *walked += 1;
                rest.first().and_then(|next| child(&branch, next))
            }
            TrieNode::Leaf(_) | TrieNode::Extension(_) | TrieNode::EmptyRoot => None,
        };
        let Some(child) = child else { return Ok(TrieStep::Absent) };
        if let Some(hash) = child.as_hash() {
            return Ok(TrieStep::Down(hash));
        }
        node = TrieNode::decode(&mut child.as_slice())?;
    }
}

/// Returns a branch's child at this nibble.
fn child(branch: &BranchNode, nibble: u8) -> Option<RlpNode> {
    let branch = branch.as_ref();
    branch.children().find_map(|(at, child)| child.filter(|_| at == nibble).cloned())
}

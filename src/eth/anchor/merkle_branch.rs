//! SSZ Merkle branches over SHA-256.
//!
//! A generalized index numbers the nodes of a binary tree: the root is 1, and the children of node
//! `n` are `2n` and `2n + 1`. A branch holds the sibling of each node on the way from a leaf to the
//! root, the leaf's own sibling first. Source: `ssz/merkle-proofs.md` of consensus-specs.

use sha2::{Digest as _, Sha256};

/// Returns the root of the tree in which `leaf` is at generalized index `gindex`.
///
/// Returns `None` if `gindex` is 0, or if the length of the branch is not the depth of `gindex`.
///
/// # Cost
/// One SHA-256 of 64 bytes for each sibling.
///
/// # Examples
/// ```
/// use chainsieve::eth::anchor::merkle_branch::{is_valid, root};
///
/// assert_eq!(root([7; 32], &[], 1), Some([7; 32]));
/// let top = root([7; 32], &[[1; 32], [2; 32]], 5).expect("a depth of 2");
/// assert!(is_valid([7; 32], &[[1; 32], [2; 32]], 5, top));
/// assert!(!is_valid([7; 32], &[[1; 32], [2; 32]], 4, top));
/// assert_eq!(root([7; 32], &[[1; 32]], 5), None);
/// ```
pub fn root(leaf: [u8; 32], branch: &[[u8; 32]], gindex: u64) -> Option<[u8; 32]> {
    let depth = gindex.checked_ilog2()?;
    if usize::try_from(depth) != Ok(branch.len()) {
        return None;
    }
    let climb = |(node, gindex): ([u8; 32], u64), sibling: &[u8; 32]| {
        // An odd index is a right child.
        let parent = if gindex % 2 == 1 { parent(sibling, &node) } else { parent(&node, sibling) };
        (parent, gindex / 2)
    };
    Some(branch.iter().fold((leaf, gindex), climb).0)
}

/// Returns `true` if the branch proves that `leaf` is at generalized index `gindex` under `root`.
///
/// Returns `false` also if `gindex` is 0, or if the length of the branch is not the depth of
/// `gindex`.
pub fn is_valid(leaf: [u8; 32], branch: &[[u8; 32]], gindex: u64, root: [u8; 32]) -> bool {
    self::root(leaf, branch, gindex) == Some(root)
}

/// Returns the parent of two nodes.
pub(super) fn parent(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(left).chain_update(right).finalize().into()
}

/// Computes the root of a list or vector from the roots of its elements, one at a time.
///
/// The tree has `2^DEPTH` leaves. Missing elements are zero. Memory is one node for each level,
/// whatever the number of elements.
///
/// Source: `merkleize` and `mix_in_length` of consensus-specs, `ssz/simple-serialize.md`.
#[derive(Debug, Clone)]
pub(super) struct ListRoot<const DEPTH: usize> {
    /// Roots of the complete subtrees that wait for their right sibling, by height. The root of a
    /// complete tree is in `whole`.
    waiting: [Option<[u8; 32]>; DEPTH],
    whole: Option<[u8; 32]>,
    len: u64,
}

impl<const DEPTH: usize> ListRoot<DEPTH> {
    pub(super) const LIMIT: u64 = 1 << DEPTH;

    pub(super) const fn new() -> Self {
        Self { waiting: [None; DEPTH], whole: None, len: 0 }
    }

    /// Adds the root of the next element. Returns `false`, and adds nothing, if the tree is full.
    #[must_use]
    pub(super) fn push(&mut self, element: [u8; 32]) -> bool {
        if self.len == Self::LIMIT {
            return false;
        }
        self.len += 1;
        let mut node = element;
        for waiting in &mut self.waiting {
            let Some(left) = waiting.take() else {
                *waiting = Some(node);
                return true;
            };
            node = parent(&left, &node);
        }
        self.whole = Some(node);
        true
    }

    /// Returns the root of a vector, which has no length in its root.
    pub(super) fn vector_root(&self) -> [u8; 32] {
        if let Some(whole) = self.whole {
            return whole;
        }
        let mut zero = [0; 32];
        let mut node = None;
        for waiting in &self.waiting {
            node = match (waiting, node) {
                (Some(left), right) => Some(parent(left, &right.unwrap_or(zero))),
                (None, Some(left)) => Some(parent(&left, &zero)),
                (None, None) => None,
            };
            zero = parent(&zero, &zero);
        }
        node.unwrap_or(zero)
    }

    /// Returns the root of a list: the root of its elements, and its length.
    pub(super) fn list_root(&self) -> [u8; 32] {
        let mut length = [0; 32];
        length[..8].copy_from_slice(&self.len.to_le_bytes());
        parent(&self.vector_root(), &length)
    }
}

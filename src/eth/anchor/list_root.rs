//! Roots of SSZ lists and vectors whose elements have a root of 32 bytes.

use super::merkle_branch::parent;

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

    pub(super) const fn len(&self) -> u64 {
        self.len
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

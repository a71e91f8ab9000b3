//! Proofs that a receipt is in a block: the trie nodes from the root to the receipt.

use alloc::vec::Vec;

use alloy_primitives::{B256, Bytes};
use alloy_trie::Nibbles;
use chainsieve_lanes::hash::keccak256;
use chainsieve_lanes::simd::Backend;

use super::rlp::LogBlooms;
use super::rlp::decode_one;
use super::verify::Encodings;
use super::{Receipt, ReceiptsError, VerifiedReceipts};
use crate::eth::trie::{self, OrderedTries, TrieStep};

/// A Merkle-Patricia proof of one receipt, for a verifier that has the header but no receipts.
///
/// The proof shows the receipt with all its logs, and the index of its transaction. The proof does
/// not show the `logIndex` of a log, because `logIndex` also counts the logs of all preceding
/// receipts.
///
/// # JSON
/// `serde` writes an object: `transactionIndex` as a JSON number, `nodes` as a list of hex strings
/// with `0x`. Unknown members are rejected.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReceiptProof {
    /// Index of the receipt, and of its transaction, in the block.
    pub transaction_index: u64,
    /// RLP of the nodes from the root to the leaf. The leaf contains the receipt's encoding.
    pub nodes: Vec<Bytes>,
}

impl VerifiedReceipts<'_> {
    /// Returns the proof of a receipt, or `None` if the block has no receipt with this index.
    ///
    /// # Cost
    /// Costs about as much as [`verify`](super::BlockReceipts::verify).
    pub fn proof(&self, transaction_index: u64) -> Option<ReceiptProof> {
        self.proofs(&[transaction_index]).pop()
    }

    /// Returns the proofs of several receipts, in the order of the indices.
    ///
    /// Indices without a receipt are left out.
    ///
    /// # Cost
    /// Any number of proofs costs about as much as one [`proof`](Self::proof).
    pub fn proofs(&self, transaction_indices: &[u64]) -> Vec<ReceiptProof> {
        let receipts = self.receipts();
        let is_there = |index: &u64| *index < receipts.len() as u64;
        let indices: Vec<_> = transaction_indices.iter().copied().filter(is_there).collect();
        if indices.is_empty() {
            return Vec::new();
        }
        let backend = Backend::best();
        let blooms = LogBlooms::of(backend, receipts);
        let encodings = [&Encodings { receipts, blooms: &blooms }];
        let trie = OrderedTries::of(backend, &encodings);
        let proof = |transaction_index| {
            let nodes = trie.path(&encodings, 0, transaction_index);
            ReceiptProof { transaction_index, nodes }
        };
        indices.into_iter().map(proof).collect()
    }
}

impl ReceiptProof {
    /// Verifies the proof and returns the receipt.
    ///
    /// Every block with this receipts root has this receipt at
    /// [`transaction_index`](Self::transaction_index).
    ///
    /// # Errors
    /// Returns a [`ReceiptsError`] if the nodes do not lead from the root to a receipt.
    pub fn verify(&self, receipts_root: B256) -> Result<Receipt, ReceiptsError> {
        let key = key(self.transaction_index);
        let mut walked = 0;
        let mut expected = receipts_root;
        for (node, rlp) in self.nodes.iter().enumerate() {
            let computed = B256::new(keccak256(rlp));
            if computed != expected {
                return Err(ReceiptsError::Hash { node, computed, expected });
            }
            let off = ReceiptsError::Path { node, transaction_index: self.transaction_index };
            let malformed = |error| ReceiptsError::Malformed { node, error };
            expected = match trie::step(rlp, &key, &mut walked).map_err(malformed)? {
                TrieStep::Down(hash) => hash,
                TrieStep::Value(encoding) => {
                    let (nodes, leaf) = (self.nodes.len(), node + 1);
                    if nodes != leaf {
                        return Err(ReceiptsError::TooLong { nodes, leaf });
                    }
                    let index = usize::try_from(self.transaction_index).unwrap_or(usize::MAX);
                    return decode_one(index, &encoding);
                }
                TrieStep::Absent => return Err(off),
            };
        }
        Err(ReceiptsError::TooShort { nodes: self.nodes.len() })
    }
}

/// Returns the trie key of a receipt: the nibbles of the RLP of its index.
fn key(transaction_index: u64) -> Nibbles {
    Nibbles::unpack(alloy_rlp::encode_fixed_size(&transaction_index))
}

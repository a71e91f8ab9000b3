//! Nodes of the state trie and of storage tries, looked up by their hash.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_rlp::{Decodable as _, Header as RlpHeader};
use alloy_trie::{EMPTY_ROOT_HASH, Nibbles};
use chainsieve_lanes::hash::keccak256;

use crate::eth::trie_path::{self, Step};

/// Error of looking up a key in a trie.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrieError {
    /// The path leads to a node that was not given.
    #[error("node {hash} at depth {depth} is missing")]
    Missing {
        /// Hash of the missing node.
        hash: B256,
        /// Number of nodes above it.
        depth: usize,
    },
    /// A node on the path is malformed.
    #[error("node {hash} at depth {depth} is malformed: {error}")]
    Malformed {
        /// Hash of the node, or of the node that embeds it.
        hash: B256,
        /// Number of nodes above it.
        depth: usize,
        /// The error of `alloy_rlp`.
        error: alloy_rlp::Error,
    },
    /// The value of the key is malformed.
    #[error("the value is malformed: {0}")]
    Value(alloy_rlp::Error),
}

/// An account in the state trie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Number of transactions sent, or of contracts created.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Root of the account's storage trie.
    pub storage_root: B256,
    /// Keccak-256 hash of the account's code.
    pub code_hash: B256,
}

/// Distinct trie nodes, each with its hash.
///
/// Proofs of several slots share the nodes near the root. Here each node is kept and hashed once,
/// whatever the number of proofs that contain it. The nodes prove nothing by themselves: a lookup
/// starts from a known root, and follows hashes from there. Nodes that are not on the path have no
/// effect.
///
/// `serde` writes and reads a list of hex strings with `0x`, in the order of the hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<Bytes>", into = "Vec<Bytes>")]
pub struct ProofNodes {
    nodes: BTreeMap<B256, Bytes>,
}

impl ProofNodes {
    /// Creates an empty set.
    pub const fn new() -> Self {
        Self { nodes: BTreeMap::new() }
    }

    /// Adds the RLP of a node. Returns `false` if the set already has it.
    pub fn insert(&mut self, node: Bytes) -> bool {
        self.nodes.insert(B256::new(keccak256(&node)), node).is_none()
    }

    /// Returns the number of distinct nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if the set has no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the nodes with their hashes, in the order of the hashes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&B256, &Bytes)> {
        self.nodes.iter()
    }

    /// Returns the account at an address of the state with this root; `None` if the state has no
    /// such account.
    ///
    /// # Errors
    /// Returns a [`TrieError`] if the nodes do not decide the question.
    pub fn account(
        &self,
        state_root: B256,
        address: Address,
    ) -> Result<Option<Account>, TrieError> {
        let value = self.lookup(state_root, address.as_slice(), |_| {})?;
        value.map(|rlp| decode_account(&rlp).map_err(TrieError::Value)).transpose()
    }

    /// Returns the value of a storage slot; 0 if the storage has no such slot.
    ///
    /// # Errors
    /// Returns a [`TrieError`] if the nodes do not decide the question.
    pub fn slot(&self, storage_root: B256, slot: U256) -> Result<U256, TrieError> {
        let value = self.lookup(storage_root, &slot.to_be_bytes::<32>(), |_| {})?;
        value.map_or(Ok(U256::ZERO), |rlp| decode_slot(&rlp).map_err(TrieError::Value))
    }

    /// Returns the value of a key, which the trie has under the Keccak-256 hash of the key. Calls
    /// `visit` with the hash of each node on the path.
    pub(super) fn lookup(
        &self,
        root: B256,
        key: &[u8],
        mut visit: impl FnMut(B256),
    ) -> Result<Option<Vec<u8>>, TrieError> {
        // The empty trie has no node that a proof could list. Some sources list its one byte 0x80,
        // whose hash is this root.
        if root == EMPTY_ROOT_HASH {
            visit(root);
            return Ok(None);
        }
        let key = Nibbles::unpack(keccak256(key));
        let mut walked = 0;
        let mut hash = root;
        // Each node but one with an empty extension consumes a nibble, and no node can contain its
        // own hash. The bound holds without this argument.
        for depth in 0..=2 * key.len() {
            let rlp = self.nodes.get(&hash).ok_or(TrieError::Missing { hash, depth })?;
            visit(hash);
            let malformed = |error| TrieError::Malformed { hash, depth, error };
            match trie_path::step(rlp, &key, &mut walked).map_err(malformed)? {
                Step::Down(next) => hash = next,
                Step::Value(value) => return Ok(Some(value)),
                Step::Absent => return Ok(None),
            }
        }
        let error = alloy_rlp::Error::Custom("the path is longer than the key");
        Err(TrieError::Malformed { hash, depth: 2 * key.len(), error })
    }
}

impl From<Vec<Bytes>> for ProofNodes {
    fn from(nodes: Vec<Bytes>) -> Self {
        nodes.into_iter().collect()
    }
}

impl From<ProofNodes> for Vec<Bytes> {
    fn from(nodes: ProofNodes) -> Self {
        nodes.nodes.into_values().collect()
    }
}

impl FromIterator<Bytes> for ProofNodes {
    fn from_iter<I: IntoIterator<Item = Bytes>>(nodes: I) -> Self {
        let mut all = Self::new();
        all.extend(nodes);
        all
    }
}

impl Extend<Bytes> for ProofNodes {
    fn extend<I: IntoIterator<Item = Bytes>>(&mut self, nodes: I) {
        for node in nodes {
            self.insert(node);
        }
    }
}

/// Decodes `[nonce, balance, storage root, code hash]`.
pub(super) fn decode_account(mut rlp: &[u8]) -> alloy_rlp::Result<Account> {
    let mut fields = RlpHeader::decode_bytes(&mut rlp, true)?;
    let account = Account {
        nonce: u64::decode(&mut fields)?,
        balance: U256::decode(&mut fields)?,
        storage_root: B256::decode(&mut fields)?,
        code_hash: B256::decode(&mut fields)?,
    };
    if rlp.is_empty() && fields.is_empty() {
        Ok(account)
    } else {
        Err(alloy_rlp::Error::UnexpectedLength)
    }
}

/// Decodes the value of a slot: an integer without its leading zeros.
pub(super) fn decode_slot(rlp: &[u8]) -> alloy_rlp::Result<U256> {
    alloy_rlp::decode_exact(rlp)
}

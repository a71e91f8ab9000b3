//! The answer to `eth_getProof`: an account and some of its slots under a state root.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Bytes, U64, U256};
use alloy_rlp::{Decodable as _, Header as RlpHeader};
use alloy_trie::{EMPTY_ROOT_HASH, KECCAK_EMPTY, Nibbles};
use chainsieve_lanes::hash::keccak256;

use crate::eth::json;
use crate::eth::trie::{self, TrieStep};

/// An answer to `eth_getProof`, as a provider sent it, not verified.
///
/// # JSON
/// `serde` reads and writes the object of JSON-RPC. Unknown members are ignored, because providers
/// add some.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountProof {
    /// Address of the account.
    pub address: Address,
    /// RLP of the nodes from the state root to the account, or to the node that shows its absence.
    pub account_proof: Vec<Bytes>,
    /// Claimed balance in wei.
    pub balance: U256,
    /// Claimed hash of the code.
    pub code_hash: B256,
    /// Claimed nonce.
    pub nonce: U64,
    /// Claimed root of the storage.
    pub storage_hash: B256,
    /// The slots that were asked for.
    pub storage_proof: Vec<SlotProof>,
}

/// A storage slot in an answer to `eth_getProof`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SlotProof {
    /// Number of the slot.
    pub key: U256,
    /// Claimed value.
    pub value: U256,
    /// RLP of the nodes from the storage root to the slot, or to the node that shows its absence.
    pub proof: Vec<Bytes>,
}

/// Reason why an account, a slot or the hash of a block is not proven under a state root.
///
/// [`Account`](Self::Account), [`Slot`](Self::Slot), [`Claim`](Self::Claim) and
/// [`NeedlessNode`](Self::NeedlessNode) prove that an answer to `eth_getProof` does not belong to the state
/// with this root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateProofError {
    /// The text is not the JSON of such an answer. The message names the member.
    #[error("{0}")]
    Json(String),
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
    /// The nodes do not lead from the state root to the account.
    #[error("account: {0}")]
    Account(Box<Self>),
    /// The nodes do not lead from the storage root to a slot.
    #[error("slot {slot:#x}: {error}")]
    Slot {
        /// Number of the slot.
        slot: U256,
        /// Reason why the slot is not proven.
        error: Box<Self>,
    },
    /// A claimed value differs from the value that the nodes show. The members are those of
    /// JSON-RPC: `balance`, `nonce`, `codeHash`, `storageHash`, `storageProof.value`.
    #[error("{member} is {claimed}, but the nodes show {shown}")]
    Claim {
        /// Name of the member.
        member: &'static str,
        /// The claimed value.
        claimed: U256,
        /// The value in the trie.
        shown: U256,
    },
    /// A list of nodes contains a node that is not on its path.
    #[error("a node of the answer is on no path")]
    NeedlessNode,
    /// The contract does not keep the hash of this block at this head.
    #[error("block {number} is not among the 8191 blocks before block {head}")]
    OutOfRange {
        /// Number of the block.
        number: u64,
        /// Number of the block whose state is used.
        head: u64,
    },
    /// The state has no account at the contract's address. This is normal before Prague.
    #[error("the state of block {head} has no history contract")]
    NoContract {
        /// Number of the block whose state is used.
        head: u64,
    },
    /// The account at the contract's address has other code.
    #[error("the code at the contract's address has the hash {found}, not {expected}")]
    OtherCode {
        /// Hash of the code found.
        found: B256,
        /// Hash of the contract's code.
        expected: B256,
    },
    /// The slot is empty, so no block has written it yet. This is normal for blocks before Prague.
    #[error("the contract has no hash of block {number}")]
    NotWritten {
        /// Number of the block.
        number: u64,
    },
    /// The nodes do not lead from the state root to the contract's account.
    #[error("account of the history contract: {0}")]
    ContractAccount(Box<Self>),
    /// The nodes do not lead from the contract's storage root to the slot.
    #[error("slot of block {number}: {error}")]
    ContractSlot {
        /// Number of the block.
        number: u64,
        /// Reason why the slot is not proven.
        error: Box<Self>,
    },
}

impl AccountProof {
    /// Parses the object that `eth_getProof` returns.
    ///
    /// # Errors
    /// Returns [`StateProofError::Json`].
    pub fn from_json(text: &str) -> Result<Self, StateProofError> {
        serde_json::from_str(text).map_err(|error| StateProofError::Json(json::message(&error)))
    }

    /// Verifies the answer against the root of a state, and returns the account, or `None` if the state has
    /// no such account. The claims and the values of the slots are then proven; a value of 0 is proven for a
    /// slot that the storage does not have. The address and the slots are those that the answer names:
    /// compare them with the request.
    ///
    /// # Errors
    /// Returns the first contradiction: a missing or malformed node, a node that is on no path, or
    /// a claim that differs from the trie.
    ///
    /// # Cost
    /// One Keccak-256 hash for each distinct node and each key.
    pub fn verify(&self, state_root: B256) -> Result<Option<Account>, StateProofError> {
        let account = self.verify_account(state_root)?;
        let storage_root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
        let mut visited = BTreeSet::new();
        let storage: ProofNodes =
            self.storage_proof.iter().flat_map(|slot| &slot.proof).cloned().collect();
        for claimed in &self.storage_proof {
            let slot = claimed.key;
            let wrong = |error| StateProofError::Slot { slot, error: Box::new(error) };
            let key = slot.to_be_bytes::<32>();
            let mut depth = 0;
            let value = storage.lookup(storage_root, &key, |hash| {
                visited.insert(hash);
                depth += 1;
            });
            let value = value.map_err(wrong)?.map_or(Ok(U256::ZERO), |rlp| decode_slot(&rlp));
            let value = value.map_err(|error| wrong(StateProofError::Value(error)))?;
            same("storageProof.value", claimed.value, value)?;
            // Each list is a path of its own, so it has no more nodes than the path.
            if claimed.proof.len() > depth {
                return Err(StateProofError::NeedlessNode);
            }
        }
        if storage.iter().any(|(hash, _)| !visited.contains(hash)) {
            return Err(StateProofError::NeedlessNode);
        }
        Ok(account)
    }

    /// Returns all nodes of the answer, each of them once.
    pub fn nodes(&self) -> ProofNodes {
        let slots = self.storage_proof.iter().flat_map(|slot| &slot.proof);
        self.account_proof.iter().chain(slots).cloned().collect()
    }

    fn verify_account(&self, state_root: B256) -> Result<Option<Account>, StateProofError> {
        let nodes: ProofNodes = self.account_proof.iter().cloned().collect();
        let mut visited = BTreeSet::new();
        let rlp = nodes.lookup(state_root, self.address.as_slice(), |hash| {
            visited.insert(hash);
        });
        let account = rlp.and_then(|rlp| {
            rlp.map(|rlp| decode_account(&rlp).map_err(StateProofError::Value)).transpose()
        });
        let account = account.map_err(|error| StateProofError::Account(Box::new(error)))?;
        let is_needless = |hash| !visited.contains(hash);
        if self.account_proof.len() > visited.len()
            || nodes.iter().any(|(hash, _)| is_needless(hash))
        {
            return Err(StateProofError::NeedlessNode);
        }
        let word = |hash: B256| U256::from_be_bytes(hash.0);
        let shown = account.unwrap_or(Account {
            nonce: 0,
            balance: U256::ZERO,
            storage_root: EMPTY_ROOT_HASH,
            code_hash: KECCAK_EMPTY,
        });
        same("balance", self.balance, shown.balance)?;
        same("nonce", U256::from(self.nonce), U256::from(shown.nonce))?;
        // For an account that does not exist, some providers give zeros in place of the hashes of
        // nothing.
        let absent = |claimed: B256| account.is_none() && claimed.is_zero();
        if !absent(self.code_hash) {
            same("codeHash", word(self.code_hash), word(shown.code_hash))?;
        }
        if !absent(self.storage_hash) {
            same("storageHash", word(self.storage_hash), word(shown.storage_root))?;
        }
        Ok(account)
    }
}

fn same(member: &'static str, claimed: U256, shown: U256) -> Result<(), StateProofError> {
    if claimed == shown {
        return Ok(());
    }
    Err(StateProofError::Claim { member, claimed, shown })
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
    /// Returns a [`StateProofError`] if a trie node on the path is missing or malformed, or if the
    /// account is malformed.
    pub fn account(
        &self,
        state_root: B256,
        address: Address,
    ) -> Result<Option<Account>, StateProofError> {
        let value = self.lookup(state_root, address.as_slice(), |_| {})?;
        value.map(|rlp| decode_account(&rlp).map_err(StateProofError::Value)).transpose()
    }

    /// Returns the value of a storage slot; 0 if the storage has no such slot.
    ///
    /// # Errors
    /// Returns a [`StateProofError`] if a trie node on the path is missing or malformed, or if the
    /// value is malformed.
    pub fn slot(&self, storage_root: B256, slot: U256) -> Result<U256, StateProofError> {
        let value = self.lookup(storage_root, &slot.to_be_bytes::<32>(), |_| {})?;
        value.map_or(Ok(U256::ZERO), |rlp| decode_slot(&rlp).map_err(StateProofError::Value))
    }

    /// Returns the value of a key, which the trie stores under the Keccak-256 hash of the key.
    /// Calls `visit` with the hash of each node on the path.
    pub(super) fn lookup(
        &self,
        root: B256,
        key: &[u8],
        mut visit: impl FnMut(B256),
    ) -> Result<Option<Vec<u8>>, StateProofError> {
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
            let rlp = self.nodes.get(&hash).ok_or(StateProofError::Missing { hash, depth })?;
            visit(hash);
            let malformed = |error| StateProofError::Malformed { hash, depth, error };
            match trie::step(rlp, &key, &mut walked).map_err(malformed)? {
                TrieStep::Down(next) => hash = next,
                TrieStep::Value(value) => return Ok(Some(value)),
                TrieStep::Absent => return Ok(None),
            }
        }
        let error = alloy_rlp::Error::Custom("the path is longer than the key");
        Err(StateProofError::Malformed { hash, depth: 2 * key.len(), error })
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

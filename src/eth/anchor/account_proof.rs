//! The answer to `eth_getProof`: an account and some of its slots under a state root.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Bytes, U64, U256};
use alloy_trie::{EMPTY_ROOT_HASH, KECCAK_EMPTY};

use super::proof_nodes::{Account, ProofNodes, TrieError, decode_account, decode_slot};
use crate::eth::json;

/// An answer to `eth_getProof`, as a provider gives it. Not verified.
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

/// An account that a state root commits to, with the nodes that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProvenAccount {
    /// Address of the account, as the answer names it: compare it with the address asked for.
    pub address: Address,
    /// The account, or `None` if the state has no such account.
    pub account: Option<Account>,
    /// The slots, in the order of the answer: number and value. A slot that the storage does not
    /// have is 0.
    pub slots: Vec<(U256, U256)>,
    /// All nodes of the answer, each of them once.
    pub nodes: ProofNodes,
}

/// Reason why an answer to `eth_getProof` is rejected.
///
/// Except for [`Json`](Self::Json), every reason shows that the answer is not the one of the state
/// with this root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccountProofError {
    /// The text is not the JSON of such an answer. The message names the member.
    #[error("{0}")]
    Json(String),
    /// The nodes do not lead from the state root to the account.
    #[error("account: {0}")]
    Account(TrieError),
    /// The nodes do not lead from the storage root to a slot.
    #[error("slot {slot:#x}: {error}")]
    Slot {
        /// Number of the slot.
        slot: U256,
        /// Reason why the slot is not shown.
        error: TrieError,
    },
    /// A claimed value differs from the value that the nodes show. The members are those of
    /// JSON-RPC: `balance`, `nonce`, `codeHash`, `storageHash`, `storageProof.value`.
    #[error("{member} is {claimed}, the nodes show {shown}")]
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
}

impl AccountProof {
    /// Parses the object that `eth_getProof` returns.
    ///
    /// # Errors
    /// Returns [`AccountProofError::Json`].
    pub fn from_json(text: &str) -> Result<Self, AccountProofError> {
        serde_json::from_str(text).map_err(|error| AccountProofError::Json(json::message(&error)))
    }

    /// Verifies the answer against the root of a state. Address and slots are those that the answer
    /// names: compare them with the request.
    ///
    /// # Errors
    /// Returns the first contradiction: a missing or malformed node, a node that is on no path, or
    /// a claim that differs from the trie.
    ///
    /// # Cost
    /// One Keccak-256 hash for each distinct node and each key.
    pub fn verify(&self, state_root: B256) -> Result<ProvenAccount, AccountProofError> {
        let account = self.verify_account(state_root)?;
        let storage_root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
        let mut nodes: ProofNodes = self.account_proof.iter().cloned().collect();
        let mut slots = Vec::with_capacity(self.storage_proof.len());
        let mut visited = BTreeSet::new();
        let storage: ProofNodes =
            self.storage_proof.iter().flat_map(|slot| &slot.proof).cloned().collect();
        for claimed in &self.storage_proof {
            let slot = claimed.key;
            let wrong = |error| AccountProofError::Slot { slot, error };
            let key = slot.to_be_bytes::<32>();
            let mut depth = 0;
            let value = storage.lookup(storage_root, &key, |hash| {
                visited.insert(hash);
                depth += 1;
            });
            let value = value.map_err(wrong)?.map_or(Ok(U256::ZERO), |rlp| decode_slot(&rlp));
            let value = value.map_err(|error| wrong(TrieError::Value(error)))?;
            same("storageProof.value", claimed.value, value)?;
            // Each list is a path of its own, so it has no more nodes than the path.
            if claimed.proof.len() > depth {
                return Err(AccountProofError::NeedlessNode);
            }
            slots.push((slot, value));
        }
        if storage.iter().any(|(hash, _)| !visited.contains(hash)) {
            return Err(AccountProofError::NeedlessNode);
        }
        nodes.extend(Vec::from(storage));
        Ok(ProvenAccount { address: self.address, account, slots, nodes })
    }

    fn verify_account(&self, state_root: B256) -> Result<Option<Account>, AccountProofError> {
        let nodes: ProofNodes = self.account_proof.iter().cloned().collect();
        let mut visited = BTreeSet::new();
        let rlp = nodes.lookup(state_root, self.address.as_slice(), |hash| {
            visited.insert(hash);
        });
        let account = rlp.and_then(|rlp| {
            rlp.map(|rlp| decode_account(&rlp).map_err(TrieError::Value)).transpose()
        });
        let account = account.map_err(AccountProofError::Account)?;
        let is_needless = |hash| !visited.contains(hash);
        if self.account_proof.len() > visited.len()
            || nodes.iter().any(|(hash, _)| is_needless(hash))
        {
            return Err(AccountProofError::NeedlessNode);
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

fn same(member: &'static str, claimed: U256, shown: U256) -> Result<(), AccountProofError> {
    if claimed == shown {
        return Ok(());
    }
    Err(AccountProofError::Claim { member, claimed, shown })
}

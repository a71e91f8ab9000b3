//! Conversion of answers to `eth_getProof` from the types of `alloy-rpc-types-eth`.

use alloy_primitives::{U64, U256};
use alloy_rpc_types_eth::{EIP1186AccountProofResponse, EIP1186StorageProof};

use super::account_proof::{AccountProof, SlotProof};

/// Takes over an answer as alloy's provider returns it. Nothing is verified yet.
///
/// # Examples
/// ```
/// use alloy_rpc_types_eth::EIP1186AccountProofResponse;
/// use chainsieve::alloy_primitives::B256;
/// use chainsieve::eth::anchor::account_proof::AccountProof;
///
/// // An answer without nodes proves nothing under any state root.
/// let answer = AccountProof::from(EIP1186AccountProofResponse::default());
/// assert!(answer.verify(B256::repeat_byte(1)).is_err());
/// ```
impl From<EIP1186AccountProofResponse> for AccountProof {
    fn from(answer: EIP1186AccountProofResponse) -> Self {
        Self {
            address: answer.address,
            account_proof: answer.account_proof,
            balance: answer.balance,
            code_hash: answer.code_hash,
            nonce: U64::from(answer.nonce),
            storage_hash: answer.storage_hash,
            storage_proof: answer.storage_proof.into_iter().map(SlotProof::from).collect(),
        }
    }
}

impl From<EIP1186StorageProof> for SlotProof {
    fn from(slot: EIP1186StorageProof) -> Self {
        let key = U256::from_be_bytes(slot.key.as_b256().0);
        Self { key, value: slot.value, proof: slot.proof }
    }
}

//! States with the history contract of EIP-2935, built by alloy's tries.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_trie::proof::ProofRetainer;
use alloy_trie::{HashBuilder, Nibbles};
use chainsieve::eth::anchor::history_contract::{ADDRESS, slot};
use serde_json::{Value, json};

/// Number of other accounts in a state.
const OTHERS: u64 = 200;

/// A state whose history contract has the hashes of some blocks.
#[derive(Debug, Clone)]
pub struct HistoryState {
    root: B256,
    /// Nodes from the root to the contract's account.
    account: Vec<Bytes>,
    code_hash: B256,
    storage_root: B256,
    /// Keys and values of the storage trie.
    slots: Vec<(B256, Vec<u8>)>,
}

impl HistoryState {
    /// Builds a state. No two of the blocks may share a slot.
    pub fn new(code_hash: B256, blocks: impl IntoIterator<Item = (u64, B256)>) -> Self {
        let value = |hash: B256| alloy_rlp::encode(U256::from_be_bytes(hash.0));
        let slots = blocks.into_iter().map(|(number, hash)| (keccak256(slot(number)), value(hash)));
        let slots: Vec<_> = slots.collect();
        let (storage_root, _) = trie(&slots, &[]);
        let mut account = Vec::new();
        let fields: [&dyn alloy_rlp::Encodable; 4] =
            [&1_u64, &U256::ZERO, &storage_root, &code_hash];
        alloy_rlp::encode_list::<_, dyn alloy_rlp::Encodable>(&fields, &mut account);
        let key = keccak256(ADDRESS);
        let others = (0..OTHERS).map(|other| (keccak256(other.to_be_bytes()), account.clone()));
        let accounts: Vec<_> = others.chain([(key, account.clone())]).collect();
        let (root, account) = trie(&accounts, &[key]);
        Self { root, account, code_hash, storage_root, slots }
    }

    /// Returns the root of the state.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// Returns the nodes that show the hashes of these blocks, each node once.
    pub fn nodes(&self, numbers: &[u64]) -> Vec<Bytes> {
        let keys: Vec<_> = numbers.iter().map(|&number| keccak256(slot(number))).collect();
        [self.account.clone(), trie(&self.slots, &keys).1].concat()
    }

    /// Returns the result of `eth_getProof` for the contract and these slots.
    pub fn proof(&self, slots: &[B256]) -> Value {
        let slots = slots.iter().map(|slot| {
            let key = keccak256(slot);
            let value = self.slots.iter().find(|(own, _)| *own == key);
            let value = value.map(|(_, rlp)| alloy_rlp::decode_exact::<U256>(rlp).expect("RLP"));
            json!({
                "key": slot,
                "value": value.unwrap_or_default(),
                "proof": trie(&self.slots, &[key]).1,
            })
        });
        json!({
            "address": ADDRESS,
            "accountProof": self.account,
            "balance": "0x0",
            "codeHash": self.code_hash,
            "nonce": "0x1",
            "storageHash": self.storage_root,
            "storageProof": slots.collect::<Vec<_>>(),
        })
    }
}

/// Returns the root of a trie, and the nodes on the paths to the wanted keys, the root first.
pub fn trie(leaves: &[(B256, Vec<u8>)], wanted: &[B256]) -> (B256, Vec<Bytes>) {
    let mut leaves = leaves.to_vec();
    leaves.sort();
    let keys = wanted.iter().map(|key| Nibbles::unpack(*key));
    let mut trie = HashBuilder::default().with_proof_retainer(keys.collect::<ProofRetainer>());
    for (key, value) in &leaves {
        trie.add_leaf(Nibbles::unpack(*key), value);
    }
    let root = trie.root();
    let nodes = trie.take_proof_nodes().into_nodes_sorted();
    (root, nodes.into_iter().map(|(_, node)| node).collect())
}

//! Answers to `eth_getProof`: any JSON gives an answer or an error. Any bytes are taken as nodes of a
//! trie whose root is the hash of the first one: the account and the slot under it are shown or not,
//! and an answer that holds shows the same account as a lookup of its nodes.
//!
//! Input: JSON, or a number of nodes, each with a length u16 and its bytes.
#![no_main]

use chainsieve::alloy_primitives::{B256, Bytes, U256, keccak256};
use chainsieve::eth::anchor::account_proof::{AccountProof, ProofNodes, SlotProof};
use chainsieve::eth::anchor::history_contract;
use chainsieve::eth::header::HeaderView;
use libfuzzer_sys::fuzz_target;

fn nodes(mut bytes: &[u8]) -> Vec<Bytes> {
    let mut nodes = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (node, rest) = rest.split_at(length);
        nodes.push(Bytes::copy_from_slice(node));
        bytes = rest;
    }
    nodes
}

/// Checks an answer against a root, and what a lookup of its nodes shows.
fn examine(answer: &AccountProof, root: B256) {
    let Ok(account) = answer.verify(root) else { return };
    let nodes = answer.nodes();
    assert_eq!(nodes.account(root, answer.address), Ok(account));
    for SlotProof { key, value, .. } in &answer.storage_proof {
        let Some(account) = account else { continue };
        assert_eq!(nodes.slot(account.storage_root, *key), Ok(*value));
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(answer) = AccountProof::from_json(text)
    {
        let root = answer.account_proof.first().map_or(B256::ZERO, keccak256);
        examine(&answer, root);
        let again = serde_json::to_string(&answer).expect("JSON");
        assert_eq!(AccountProof::from_json(&again), Ok(answer));
    }
    let list = nodes(data);
    let Some(first) = list.first() else { return };
    let root = keccak256(first);
    let set: ProofNodes = list.iter().cloned().collect();
    let account = set.account(root, history_contract::ADDRESS);
    let _ = set.slot(root, U256::from(5));
    if let Ok(header) = HeaderView::decode(first) {
        let number = header.number().wrapping_sub(1);
        let _ = history_contract::verify(&header, &set, &[number]);
    }
    let Ok(Some(account)) = account else { return };
    let answer = AccountProof {
        address: history_contract::ADDRESS,
        account_proof: list.clone(),
        balance: account.balance,
        code_hash: account.code_hash,
        nonce: account.nonce.try_into().expect("64 bits"),
        storage_hash: account.storage_root,
        storage_proof: vec![SlotProof { key: U256::from(5), value: U256::ZERO, proof: list }],
    };
    examine(&answer, root);
});

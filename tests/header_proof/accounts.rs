//! Answers to `eth_getProof`: real ones, against alloy's verifier, and with every byte changed.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rpc_types_eth::EIP1186AccountProofResponse;
use alloy_trie::proof::verify_proof;
use alloy_trie::{Nibbles, TrieAccount};
use chainsieve::eth::anchor::account_proof::{
    AccountProof, ProofNodes, SlotProof, StateProofError,
};
use serde_json::Value;

use crate::corpus::{Anchors, text};

pub(crate) struct ProofCase {
    pub(crate) name: String,
    pub(crate) state_root: B256,
    pub(crate) proof: AccountProof,
    pub(crate) facts: Value,
}

pub(crate) fn cases(corpus: &Anchors) -> Vec<ProofCase> {
    let list = corpus.json("proofs/cases.json");
    let case = |facts: &Value| {
        let name = text(&facts["file"]).to_owned();
        let answer = corpus.json(&format!("proofs/{name}"));
        let result = answer.get("result").unwrap_or(&answer).to_string();
        ProofCase {
            state_root: text(&facts["state_root"]).parse().expect("a root"),
            proof: AccountProof::from_json(&result).unwrap_or_else(|e| panic!("{name}: {e}")),
            facts: facts.clone(),
            name,
        }
    };
    list.as_array().expect("a list").iter().map(case).collect()
}

/// Checks the answer with alloy's verifier, with the claimed values.
fn by_alloy(state_root: B256, proof: &AccountProof, exists: bool) -> bool {
    let account = TrieAccount {
        nonce: proof.nonce.to(),
        balance: proof.balance,
        storage_root: proof.storage_hash,
        code_hash: proof.code_hash,
    };
    let key = Nibbles::unpack(keccak256(proof.address));
    let expected = exists.then(|| alloy_rlp::encode(account));
    verify_proof(state_root, key, expected, &proof.account_proof).is_ok()
        && proof.storage_proof.iter().all(|slot| {
            let key = Nibbles::unpack(keccak256(slot.key.to_be_bytes::<32>()));
            let expected = (!slot.value.is_zero()).then(|| alloy_rlp::encode(slot.value));
            verify_proof(proof.storage_hash, key, expected, &slot.proof).is_ok()
        })
}

#[test]
fn real_answers_are_verified() {
    let Some(corpus) = Anchors::open() else { return };
    let cases = cases(&corpus);
    let mut slots = 0;
    for case in &cases {
        let ProofCase { name, state_root, proof, facts } = case;
        let account = proof.verify(*state_root).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nodes = proof.nodes();
        let exists = facts["account_exists"].as_bool().expect("a boolean");
        assert_eq!(account.is_some(), exists, "{name}");
        assert!(by_alloy(*state_root, proof, exists), "{name}");
        let expected = facts["slots"].as_array().expect("a list");
        assert_eq!(proof.storage_proof.len(), expected.len(), "{name}");
        for (SlotProof { key: slot, value, .. }, facts) in proof.storage_proof.iter().zip(expected)
        {
            assert_eq!(*slot, text(&facts["key"]).parse::<U256>().expect("a slot"), "{name}");
            assert_eq!(*value, text(&facts["value"]).parse::<U256>().expect("a value"), "{name}");
            assert_eq!(!value.is_zero(), facts["exists"].as_bool().expect("a boolean"), "{name}");
            slots += 1;
        }
        // The nodes alone give the same, in one set.
        assert_eq!(nodes.account(*state_root, proof.address), Ok(account), "{name}");
        if let Some(account) = account {
            for SlotProof { key, value, .. } in &proof.storage_proof {
                assert_eq!(nodes.slot(account.storage_root, *key), Ok(*value), "{name}");
            }
        }
        // JSON is written as it is read.
        let json = serde_json::to_string(proof).expect("JSON");
        assert_eq!(AccountProof::from_json(&json).as_ref(), Ok(proof), "{name}");
        // alloy's type writes the same answer.
        let alloy: EIP1186AccountProofResponse = serde_json::from_str(&json).expect("alloy's type");
        let json = serde_json::to_string(&alloy).expect("JSON");
        assert_eq!(AccountProof::from_json(&json).as_ref(), Ok(proof), "{name}");
        assert_eq!(AccountProof::from(alloy), *proof, "{name}");
        let json = serde_json::to_string(&nodes).expect("JSON");
        assert_eq!(serde_json::from_str::<ProofNodes>(&json).expect("nodes"), nodes);
        assert!(proof.verify(B256::ZERO).is_err(), "{name}");
        let elsewhere = AccountProof { address: Address::ZERO, ..proof.clone() };
        assert!(elsewhere.verify(*state_root).is_err(), "{name}");
    }
    assert_eq!((cases.len(), slots), (10, 9));
}

fn reason(error: &StateProofError) -> &'static str {
    let is_missing = |error: &StateProofError| matches!(error, StateProofError::Missing { .. });
    match error {
        StateProofError::Account(error) if is_missing(error) => "missing account node",
        StateProofError::Slot { error, .. } if is_missing(error) => "missing slot node",
        StateProofError::Claim { .. } => "claim",
        StateProofError::NeedlessNode => "needless node",
        _ => "other",
    }
}

fn flipped(bytes: &mut Bytes, at: usize, by: u8) {
    let mut changed = bytes.to_vec();
    changed[at] ^= by;
    *bytes = changed.into();
}

/// Each byte of each node and of each claimed value is changed. Alloy's verifier agrees.
#[test]
fn changed_answers_are_refused() {
    let Some(corpus) = Anchors::open() else { return };
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for ProofCase { name, state_root, proof, facts } in cases(&corpus) {
        let exists = facts["account_exists"].as_bool().expect("a boolean");
        let mut refuse = |what: &'static str, change: &dyn Fn(&mut AccountProof), slow: bool| {
            let mut changed = proof.clone();
            change(&mut changed);
            let error = changed.verify(state_root).expect_err(&name);
            *counts.entry((what, reason(&error))).or_default() += 1;
            assert!(!slow || !by_alloy(state_root, &changed, exists), "{name}: {what}");
        };
        for node in 0..proof.account_proof.len() {
            for at in 0..proof.account_proof[node].len() {
                let change = |proof: &mut AccountProof| {
                    flipped(&mut proof.account_proof[node], at, 0x01);
                };
                refuse("account node", &change, at % 16 == 0);
            }
            refuse("account node left out", &|proof| drop(proof.account_proof.remove(node)), true);
            let twice = |proof: &mut AccountProof| {
                let same = proof.account_proof[node].clone();
                proof.account_proof.push(same);
            };
            refuse("account node twice", &twice, true);
        }
        for slot in 0..proof.storage_proof.len() {
            // A node that another slot's list has too is not missing if it is changed here.
            let others: Vec<_> = (0..proof.storage_proof.len())
                .filter(|other| *other != slot)
                .flat_map(|other| &proof.storage_proof[other].proof)
                .collect();
            for node in 0..proof.storage_proof[slot].proof.len() {
                let shared = others.contains(&&proof.storage_proof[slot].proof[node]);
                let what = if shared { "shared slot node" } else { "slot node" };
                for at in 0..proof.storage_proof[slot].proof[node].len() {
                    let change = |proof: &mut AccountProof| {
                        flipped(&mut proof.storage_proof[slot].proof[node], at, 0x80);
                    };
                    refuse(what, &change, at % 16 == 0);
                }
            }
            for bit in 0..256 {
                let mask = U256::from(1) << bit;
                refuse("value", &|proof| proof.storage_proof[slot].value ^= mask, bit % 16 == 0);
                refuse("key", &|proof| proof.storage_proof[slot].key ^= mask, bit % 16 == 0);
            }
        }
        for at in 0..32 {
            refuse("code hash", &|proof| proof.code_hash.0[at] ^= 1, exists);
            refuse("storage hash", &|proof| proof.storage_hash.0[at] ^= 1, exists);
        }
        for at in 0..20 {
            refuse("address", &|proof| proof.address.0[at] ^= 1, true);
        }
        for bit in 0..64 {
            let mask = 1_u64 << bit;
            refuse("nonce", &|proof| proof.nonce ^= alloy_primitives::U64::from(mask), exists);
            refuse("balance", &|proof| proof.balance ^= U256::from(mask), exists);
        }
    }
    for ((what, reason), count) in &counts {
        println!("{what} changed: {count} refused for {reason}");
    }
    let of = |what, reason| counts.get(&(what, reason)).copied().unwrap_or(0);
    assert!(of("account node", "missing account node") > 30_000);
    assert!(of("slot node", "missing slot node") > 15_000);
    assert!(of("shared slot node", "needless node") > 1_000);
    assert_eq!(of("code hash", "claim"), 320);
    assert_eq!(of("nonce", "claim"), 640);
    assert_eq!(of("value", "claim"), 9 * 256);
    for what in ["account node", "slot node", "nonce", "balance", "address", "value"] {
        assert_eq!(of(what, "other"), 0, "{what}");
    }
}

/// Tries of an attacker's choice: embedded nodes, paths that never end, malformed values.
#[test]
fn tries_that_no_state_has() {
    let slot = U256::from(3);
    let key = Nibbles::unpack(keccak256(slot.to_be_bytes::<32>()));
    let lookup = |nodes: &[Vec<u8>]| {
        let set: ProofNodes = nodes.iter().cloned().map(Bytes::from).collect();
        set.slot(keccak256(&nodes[0]), slot)
    };
    // An embedded leaf of a small value, under a branch: the key of a real trie would be longer.
    let short = Nibbles::from_nibbles(&key.to_vec()[62..]);
    let leaf = alloy_rlp::encode(alloy_trie::nodes::LeafNode::new(short, alloy_rlp::encode(7_u8)));
    assert!(leaf.len() < 32);
    let path = Nibbles::from_nibbles(&key.to_vec()[..62]);
    let child = alloy_trie::nodes::RlpNode::from_rlp(&leaf);
    let extension = alloy_rlp::encode(alloy_trie::nodes::ExtensionNode::new(path, child));
    assert_eq!(lookup(&[extension]), Ok(U256::from(7)));
    // Values that are not an integer, or have trailing bytes.
    for value in [&[][..], &[0x80, 0x80], &[0xc0], &[0x82, 0, 1], &[0x81], &[0x00]] {
        let leaf = alloy_trie::nodes::LeafNode::new(key, value.to_vec());
        let refused = lookup(&[alloy_rlp::encode(leaf)]);
        assert!(matches!(refused, Err(StateProofError::Value(_))), "{value:x?}: {refused:?}");
    }
    for node in [&[][..], &[0xc0], &[0x81], &[0xc1, 0x80], &[0xf8], &[0xc2, 0x80, 0x80]] {
        let refused = lookup(&[node.to_vec()]);
        assert!(matches!(refused, Err(StateProofError::Malformed { depth: 0, .. })), "{node:x?}");
    }
    assert_eq!(lookup(&[vec![0x80]]), Ok(U256::ZERO));
    assert_eq!(ProofNodes::new().slot(alloy_trie::EMPTY_ROOT_HASH, slot), Ok(U256::ZERO));
    // A long chain of extensions that consume nothing ends.
    let mut chain = vec![vec![0x80; 40]];
    for _ in 0..200 {
        let child = alloy_trie::nodes::RlpNode::word_rlp(&keccak256(chain.last().expect("one")));
        let extension = alloy_trie::nodes::ExtensionNode::new(Nibbles::new(), child);
        chain.push(alloy_rlp::encode(extension));
    }
    chain.reverse();
    assert!(
        matches!(lookup(&chain), Err(StateProofError::Malformed { .. })),
        "{:?}",
        lookup(&chain)
    );
}

#[test]
fn json_that_is_no_answer() {
    for text in ["", "null", "[]", "{}", r#"{"address":"0x00"}"#, "{\"address\":1}"] {
        let refused = AccountProof::from_json(text);
        assert!(matches!(refused, Err(StateProofError::Json(_))), "{text}: {refused:?}");
    }
}

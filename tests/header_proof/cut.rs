//! Proofs with nodes or bytes missing. What is cut off never reads as absence: not as an account or a
//! slot that a state lacks, nor as a hash that the history contract lacks.

use std::collections::BTreeMap;

use alloy_primitives::{B256, Bytes, U64, U256, keccak256};
use alloy_trie::proof::verify_proof;
use alloy_trie::{EMPTY_ROOT_HASH, KECCAK_EMPTY, Nibbles};
use chainsieve::eth::anchor::account_proof::{AccountProof, ProofNodes, StateProofError};
use chainsieve::eth::anchor::history_contract::{ADDRESS, CODE_HASH, slot, verify};
use chainsieve::eth::header::HeaderView;
use testkit::eth::history_state::{HistoryState, trie};

use crate::accounts::{ProofCase, cases};
use crate::contract::header;
use crate::corpus::Anchors;

/// Calls `check` with each cut list of nodes, and its number: without some nodes in a row, and with one
/// node cut at each byte, at its end or at its start. Returns the number of lists.
fn each_cut(nodes: &[Bytes], mut check: impl FnMut(usize, &[Bytes])) -> usize {
    let mut count = 0;
    let mut check = |list: &[Bytes]| {
        check(count, list);
        count += 1;
    };
    for first in 0..nodes.len() {
        for end in first + 1..=nodes.len() {
            check(&[&nodes[..first], &nodes[end..]].concat());
        }
        let whole = &nodes[first];
        for at in 0..whole.len() {
            let mut list = [&nodes[..first], &[whole.slice(..at)]].concat();
            check(&list);
            list.extend_from_slice(&nodes[first + 1..]);
            check(&list);
            if at > 0 {
                list[first] = whole.slice(at..);
                check(&list);
            }
        }
    }
    count
}

/// Returns `true` if alloy's verifier takes these nodes as a proof that a trie lacks a key.
fn is_absence_for_alloy(root: B256, key: B256, nodes: &[Bytes]) -> bool {
    verify_proof(root, Nibbles::unpack(key), None, nodes).is_ok()
}

const fn is_missing(error: &StateProofError) -> bool {
    matches!(error, StateProofError::Missing { .. })
}

/// Returns the same answer with the claims of an account that does not exist: with the hashes of
/// nothing, or with zeros.
fn claimed_absent(proof: &AccountProof, zeros: bool) -> AccountProof {
    let hash = |of_nothing: B256| if zeros { B256::ZERO } else { of_nothing };
    AccountProof {
        balance: U256::ZERO,
        nonce: U64::ZERO,
        code_hash: hash(KECCAK_EMPTY),
        storage_hash: hash(EMPTY_ROOT_HASH),
        storage_proof: Vec::new(),
        ..proof.clone()
    }
}

#[test]
fn accounts_are_not_absent_for_lack_of_nodes() {
    let Some(corpus) = Anchors::open() else { return };
    let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
    for ProofCase { name, state_root, proof, facts } in cases(&corpus) {
        let exists = facts["account_exists"].as_bool().expect("a boolean");
        let (whole, key) = (&proof.account_proof, keccak256(proof.address));
        let find = |nodes: &[Bytes]| {
            let set: ProofNodes = nodes.iter().cloned().collect();
            set.account(state_root, proof.address)
        };
        // The whole proof shows the account, or its absence.
        assert_eq!(find(whole).map(|account| account.is_some()), Ok(exists), "{name}");
        assert_eq!(is_absence_for_alloy(state_root, key, whole), !exists, "{name}");
        let absent = [false, true].map(|zeros| claimed_absent(&proof, zeros));
        for claims in &absent {
            let shown = claims.verify(state_root).map(|account| account.is_none());
            assert_eq!(shown == Ok(true), !exists, "{name}");
        }
        let count = each_cut(whole, |turn, nodes| {
            let found = find(nodes);
            assert!(matches!(&found, Err(error) if is_missing(error)), "{name}: {found:?}");
            if turn % 8 == 0 {
                for claims in [&proof, &absent[0], &absent[1]] {
                    let cut = AccountProof { account_proof: nodes.to_vec(), ..claims.clone() };
                    let refused = cut.verify(state_root);
                    let missing = matches!(
                        &refused,
                        Err(StateProofError::Account(error)) if is_missing(error)
                    );
                    assert!(missing, "{name}: {refused:?}");
                }
                assert!(!is_absence_for_alloy(state_root, key, nodes), "{name}: alloy");
            }
        });
        *counts.entry(exists).or_default() += count;
    }
    println!("cut proofs of accounts that exist, or not: {counts:?}");
    assert!(counts[&true] > 90_000 && counts[&false] > 10_000, "{counts:?}");
}

#[test]
fn slots_are_not_zero_for_lack_of_nodes() {
    let Some(corpus) = Anchors::open() else { return };
    let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
    for ProofCase { name, state_root, proof, .. } in cases(&corpus) {
        let root = proof.storage_hash;
        for at in 0..proof.storage_proof.len() {
            let claimed = &proof.storage_proof[at];
            let exists = !claimed.value.is_zero();
            let key = keccak256(claimed.key.to_be_bytes::<32>());
            let find = |nodes: &[Bytes]| {
                let set: ProofNodes = nodes.iter().cloned().collect();
                set.slot(root, claimed.key)
            };
            // The answer with this slot alone: others have some of its nodes too.
            let alone = |nodes: &[Bytes], value: U256| {
                let mut slot = claimed.clone();
                (slot.proof, slot.value) = (nodes.to_vec(), value);
                let answer = AccountProof { storage_proof: vec![slot], ..proof.clone() };
                answer.verify(state_root)
            };
            assert_eq!(find(&claimed.proof), Ok(claimed.value), "{name}");
            assert!(alone(&claimed.proof, claimed.value).is_ok(), "{name}");
            assert_eq!(alone(&claimed.proof, U256::ZERO).is_ok(), !exists, "{name}");
            assert_eq!(is_absence_for_alloy(root, key, &claimed.proof), !exists, "{name}");
            let count = each_cut(&claimed.proof, |turn, nodes| {
                let found = find(nodes);
                assert!(matches!(&found, Err(error) if is_missing(error)), "{name}: {found:?}");
                if turn % 8 == 0 {
                    for value in [claimed.value, U256::ZERO] {
                        let refused = alone(nodes, value);
                        let missing = matches!(
                            &refused,
                            Err(StateProofError::Slot { error, .. }) if is_missing(error)
                        );
                        assert!(missing, "{name}: {refused:?}");
                    }
                    let mut beside = proof.clone();
                    beside.storage_proof[at].proof = nodes.to_vec();
                    beside.storage_proof[at].value = U256::ZERO;
                    assert!(!exists || beside.verify(state_root).is_err(), "{name}");
                    assert!(!is_absence_for_alloy(root, key, nodes), "{name}: alloy");
                }
            });
            *counts.entry(exists).or_default() += count;
        }
    }
    println!("cut proofs of slots that exist, or not: {counts:?}");
    assert!(counts[&true] > 30_000 && counts[&false] > 10_000, "{counts:?}");
}

/// Checks that no cut of these nodes, the account's or the slot's, shows anything of a block's hash:
/// neither that the contract is there or not, nor that the slot was written or not.
fn no_cut_decides(header: &HeaderView<'_>, account: &[Bytes], storage: &[Bytes], number: u64) {
    let of = |account: &[Bytes], storage: &[Bytes]| {
        let nodes: ProofNodes = account.iter().chain(storage).cloned().collect();
        verify(header, &nodes, &[number])
    };
    each_cut(account, |_, nodes| {
        let refused = of(nodes, storage);
        let missing =
            matches!(&refused, Err(StateProofError::ContractAccount(error)) if is_missing(error));
        assert!(missing, "{number}: {refused:?}");
    });
    each_cut(storage, |_, nodes| {
        let refused = of(account, nodes);
        let missing = matches!(
            &refused,
            Err(StateProofError::ContractSlot { error, .. }) if is_missing(error)
        );
        assert!(missing, "{number}: {refused:?}");
    });
}

#[test]
fn the_history_contract_of_mainnet() {
    let Some(corpus) = Anchors::open() else { return };
    let file = "eip2935/26069545_slot_5765.json";
    let case = cases(&corpus).into_iter().find(|case| case.name == file);
    let proof = case.expect("the case").proof;
    let rlp = corpus.read("proofs/eip2935/26069545.header.rlp");
    let header = HeaderView::decode(&rlp).expect("a header");
    no_cut_decides(&header, &proof.account_proof, &proof.storage_proof[0].proof, 26_069_527);
}

/// A slot that no block has written yet, and one that a block has: the nodes of neither can be cut.
#[test]
fn slots_of_the_history_contract_that_are_not_written() {
    const HEAD: u64 = 30_000;
    const FIRST: u64 = HEAD - 300;
    let hash = |number: u64| keccak256(number.to_be_bytes());
    let state = HistoryState::new(CODE_HASH, (FIRST..HEAD).map(|number| (number, hash(number))));
    let rlp = header(HEAD, state.root());
    let view = HeaderView::decode(&rlp).expect("a header");
    for number in [FIRST, HEAD - 1, FIRST - 1, FIRST - 2, FIRST - 3] {
        let answer = state.proof(&[slot(number)]);
        let answer = AccountProof::from_json(&answer.to_string()).expect("an answer");
        answer.verify(state.root()).expect("a proof");
        let shown = verify(&view, &answer.nodes(), &[number]);
        let not_written = Err(StateProofError::NotWritten { number });
        assert_eq!(shown == not_written, number < FIRST, "{number}: {shown:?}");
        assert_eq!(shown.is_ok(), number >= FIRST, "{number}");
        no_cut_decides(&view, &answer.account_proof, &answer.storage_proof[0].proof, number);
    }
}

/// A state without the contract, by its whole proof alone.
#[test]
fn states_without_the_history_contract() {
    let others = (0..300_u64).map(|other| (keccak256(other.to_be_bytes()), vec![7; 40]));
    let (root, nodes) = trie(&others.collect::<Vec<_>>(), &[keccak256(ADDRESS)]);
    let rlp = header(30_000, root);
    let view = HeaderView::decode(&rlp).expect("a header");
    let shown = verify(&view, &nodes.clone().into(), &[29_999]);
    assert_eq!(shown, Err(StateProofError::NoContract { head: 30_000 }));
    no_cut_decides(&view, &nodes, &[], 29_999);
}

//! The history contract: real answers of mainnet, the range, and states with other contracts.

use alloy_primitives::{B256, Bytes, U256, b256, keccak256};
use chainsieve::eth::anchor::account_proof::{ProofNodes, StateProofError};
use chainsieve::eth::anchor::history_contract::{
    ADDRESS, CODE_HASH, SERVE_WINDOW, served, slot, verify,
};
use chainsieve::eth::header::{BlockRef, HeaderView};
use testkit::eth::history_state::{HistoryState, trie};

use crate::accounts::cases;
use crate::corpus::Anchors;

/// The code in EIP-2935.
const CODE: &str = "3373fffffffffffffffffffffffffffffffffffffffe14604657602036036042575f35600143038111604257611fff81430311604257611fff9006545f5260205ff35b5f5ffd5b5f35611fff60014303065500";

#[test]
fn constants_are_those_of_the_eip() {
    assert_eq!(keccak256(alloy_primitives::hex::decode(CODE).expect("hex")), CODE_HASH);
    assert_eq!(SERVE_WINDOW, 0x1fff);
    assert_eq!(slot(26_069_527), B256::from(U256::from(0x1685)));
    assert_eq!(served(26_069_545), 26_061_354..=26_069_544);
    assert_eq!(served(26_069_545).count(), 8191);
    assert_eq!(served(8191), 0..=8190);
    assert_eq!(served(8190), 0..=8189);
    assert_eq!(served(1), 0..=0);
    assert!(served(0).is_empty());
    assert_eq!(served(u64::MAX).count(), 8191);
}

/// Returns the parts of the corpus: the header of block 26069545, and nodes of its state.
fn mainnet(corpus: &Anchors, file: &str) -> (Vec<u8>, ProofNodes) {
    let case = cases(corpus).into_iter().find(|case| case.name == file).expect("the case");
    case.proof.verify(case.state_root).expect("a proof");
    (corpus.read("proofs/eip2935/26069545.header.rlp"), case.proof.nodes())
}

#[test]
fn a_hash_of_mainnet() {
    let Some(corpus) = Anchors::open() else { return };
    let (rlp, nodes) = mainnet(&corpus, "eip2935/26069545_slot_5765.json");
    let header = HeaderView::decode(&rlp).expect("a header");
    let earlier = corpus.read("proofs/eip2935/26069527.header.rlp");
    let earlier = HeaderView::decode(&earlier).expect("a header");
    let expected = BlockRef { number: 26_069_527, hash: earlier.hash() };
    assert_eq!(verify(&header, &nodes, &[26_069_527]), Ok(vec![expected]));
    assert_eq!(verify(&header, &nodes, &[]), Ok(vec![]));
    // Further nodes have no effect.
    let mut more = nodes.clone();
    assert!(more.insert(Bytes::from_static(b"no node")));
    assert_eq!(verify(&header, &more, &[26_069_527]), Ok(vec![expected]));

    // The same slot belongs to other blocks, which the contract's code would refuse.
    let head = header.number();
    for number in
        [26_069_527 - 8191, 26_069_527 + 8191, 5765, head, head + 1, head - 8192, u64::MAX]
    {
        let refused = verify(&header, &nodes, &[26_069_527, number]);
        assert_eq!(refused, Err(StateProofError::OutOfRange { number, head }));
    }
    // Slots whose nodes are not there.
    for number in [head - 1, head - 8191, 26_069_526, 26_069_528] {
        let refused = verify(&header, &nodes, &[number]);
        let missing = matches!(refused, Err(StateProofError::ContractSlot { .. }));
        assert!(missing, "{number}: {refused:?}");
    }
    // No slot above 8190 is ever asked for, so the proof that one is empty proves nothing.
    let (_, nodes) = mainnet(&corpus, "eip2935/26069545_slot_10274_absent.json");
    let refused = verify(&header, &nodes, &[head - 8191 + (10274 % 8191)]);
    assert!(matches!(refused, Err(StateProofError::ContractSlot { .. })), "{refused:?}");
    // The header of another block.
    let refused = verify(&earlier, &nodes, &[26_069_520]);
    assert!(matches!(refused, Err(StateProofError::ContractAccount(_))), "{refused:?}");
}

/// Builds a state with the history contract after block `head`, with the blocks from `first` on.
fn state(head: u64, first: u64, code_hash: B256) -> HistoryState {
    let start = first.max(head.saturating_sub(SERVE_WINDOW));
    HistoryState::new(code_hash, (start..head).map(|number| (number, hash(number))))
}

/// A made-up hash; every third one starts with zeros, which the trie does not store.
fn hash(number: u64) -> B256 {
    let mut hash = keccak256(number.to_be_bytes());
    if number.is_multiple_of(3) {
        hash.0[..2].fill(0);
    }
    hash
}

pub(crate) fn header(number: u64, state_root: B256) -> Vec<u8> {
    alloy_rlp::encode(alloy_consensus::Header { number, state_root, ..Default::default() })
}

#[test]
fn all_blocks_of_the_window_by_one_proof() {
    let head = 30_000;
    let window: Vec<_> = served(head).collect();
    let state = state(head, 0, CODE_HASH);
    let nodes = |numbers: &[u64]| ProofNodes::from(state.nodes(numbers));
    let rlp = header(head, state.root());
    let view = HeaderView::decode(&rlp).expect("a header");
    let blocks = verify(&view, &nodes(&window), &window).expect("the window");
    assert_eq!(blocks.len(), 8191);
    assert!(blocks.iter().all(|block| block.hash == hash(block.number)));
    assert!(blocks.iter().map(|block| block.number).eq(window));

    // Several slots share nodes: together they need fewer than one by one.
    let few: Vec<_> = (head - 40..head).collect();
    let together = nodes(&few);
    let alone: usize = few.iter().map(|&number| nodes(&[number]).len()).sum();
    println!("40 slots: {} nodes together, {alone} one by one", together.len());
    assert!(together.len() * 2 < alone);
    assert!(verify(&view, &together, &few).is_ok());
}

#[test]
fn what_a_state_lacks_is_named() {
    // Twelve blocks after Prague: earlier slots are empty.
    let (head, first) = (30_000, 29_988);
    let numbers = [29_999, 29_988, 29_987, 21_809];
    let early = state(head, first, CODE_HASH);
    let nodes = ProofNodes::from(early.nodes(&numbers));
    let rlp = header(head, early.root());
    let view = HeaderView::decode(&rlp).expect("a header");
    assert!(verify(&view, &nodes, &[29_999, 29_988]).is_ok());
    for number in [29_987, 21_809] {
        let refused = verify(&view, &nodes, &[number]);
        assert_eq!(refused, Err(StateProofError::NotWritten { number }));
    }

    let found = b256!("00000000000000000000000000000000000000000000000000000000000000aa");
    let other = state(head, 0, found);
    let rlp = header(head, other.root());
    let view = HeaderView::decode(&rlp).expect("a header");
    let refused = verify(&view, &other.nodes(&numbers).into(), &[29_999]);
    assert_eq!(refused, Err(StateProofError::OtherCode { found, expected: CODE_HASH }));

    // A state without the contract.
    let leaves: Vec<_> =
        (0..50_u64).map(|one| (keccak256(one.to_be_bytes()), vec![7; 40])).collect();
    let (root, nodes) = trie(&leaves, &[keccak256(ADDRESS)]);
    let rlp = header(head, root);
    let view = HeaderView::decode(&rlp).expect("a header");
    let refused = verify(&view, &nodes.into(), &[29_999]);
    assert_eq!(refused, Err(StateProofError::NoContract { head }));
}

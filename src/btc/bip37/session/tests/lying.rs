//! Tests of lying nodes, and of lying witnesses.

use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Network, OutPoint, ScriptBuf, Transaction, TxMerkleNode, Witness};

use super::node::{World, block, script, show, stranger, truth, tx, txids, watched};
use crate::btc::bip37::session::{
    Event, EvidenceError, FilterPolicy, Finding, Ground, OmissionEvidence,
};
use crate::btc::bip37::{BloomFilter, MerkleBlock, ProofError, TreeError, UpdateMode};
use crate::btc::merkle_tree::{MerklePath, PathError};
use testkit::Rng;

/// A world with three blocks. The second block pays to script 0 at position 3, and the third block
/// spends that output.
fn world() -> World {
    let rng = &mut Rng::new(11);
    let mut foreign = |count: u32| (0..count).map(|_| stranger(rng)).collect::<Vec<_>>();
    let receive = tx(&[OutPoint::new(bitcoin::Txid::hash(b"coin"), 0)], &[script(0)]);
    let spend = tx(&[OutPoint::new(receive.compute_txid(), 0)], &[script(1_800_000)]);
    let mut paying = foreign(5);
    paying.insert(2, receive);
    let mut spending = foreign(3);
    spending.push(spend);
    let blocks = vec![block(0, foreign(4)), block(1, paying), block(2, spending)];
    let mut world = World::new(FilterPolicy::new(7), blocks);
    world.event(Event::Watch(vec![watched(0)]));
    world.event(Event::Connected);
    world
}

fn run(lie: super::node::Lie) -> World {
    let mut world = world();
    world.lie = lie;
    world.request_from(0);
    world.settle();
    world
}

fn claim(world: &mut World, block: usize, index: u32) -> Finding {
    let shown = show(&world.blocks[block], index);
    world.event(Event::OmissionClaim(world.blocks[block].block_hash(), shown));
    world.findings.last().unwrap().clone()
}

#[test]
fn an_omission_is_shown_by_anyone_with_the_block() {
    let mut world = run(|block, _| Some(truth(block, &[])));
    assert_eq!(world.relevant(), []);
    let Finding::Omission { evidence, omission, .. } = claim(&mut world, 1, 3) else {
        panic!("{:?}", world.findings.last());
    };
    assert_eq!((omission.index, omission.ground), (3, Ground::Output(0)));
    // Anyone who verifies the evidence gets the same result. Evidence with any change is rejected.
    assert_eq!(evidence.verify(Network::Regtest), Ok(omission));
    assert!(matches!(
        evidence.verify(Network::Bitcoin),
        Err(EvidenceError::Answer(ProofError::ProofOfWork(_)))
    ));
    let with = |change: &dyn Fn(&mut OmissionEvidence)| {
        let mut evidence = (*evidence).clone();
        change(&mut evidence);
        evidence.verify(Network::Regtest).unwrap_err()
    };
    let other = BloomFilter::new(10, 1e-5, 0, UpdateMode::All).unwrap();
    assert_eq!(with(&|e| e.filter = other.clone()), EvidenceError::NoMatch);
    let honest = truth(&world.blocks[1], &[3]).0;
    assert_eq!(with(&|e| e.merkle_block = honest.clone()), EvidenceError::NotOmitted(3));
    assert!(matches!(with(&|e| e.omitted.path.index = 2), EvidenceError::OtherRoot { .. }));
    assert!(matches!(
        with(&|e| e.omitted.path.siblings.truncate(2)),
        EvidenceError::Path(PathError::Length { siblings: 2, height: 3 })
    ));
    assert!(matches!(
        with(&|e| e.omitted.transaction.output[0].value = bitcoin::Amount::ZERO),
        EvidenceError::OtherRoot { .. }
    ));
    // A transaction that matches only by an outpoint that the node should have inserted is no
    // evidence.
    assert!(matches!(claim(&mut world, 2, 4), Finding::NoEvidence(_, EvidenceError::NoMatch)));
}

/// A matching leaf that is in the answer but not flagged as matched is also treated as omitted.
#[test]
fn an_unmatched_leaf_is_an_omission() {
    let mut world = run(|block, matched| {
        // The neighbour is flagged as matched instead, so the answer contains both leaves.
        let neighbours = matched.iter().map(|index| index ^ 1);
        let shown: Vec<_> = neighbours.filter(|&i| (i as usize) < block.txdata.len()).collect();
        Some(truth(block, &shown))
    });
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { .. }));
}

/// With a false height, every honest path is too long. The coinbase proves the true height.
#[test]
fn a_false_height_is_shown_by_the_coinbase() {
    let mut world = run(|block, _| {
        let header = block.header;
        let hashes = vec![header.merkle_root];
        let flat = MerkleBlock { header, num_transactions: 900, hashes, flags: vec![0] };
        Some((flat, vec![]))
    });
    assert!(matches!(
        claim(&mut world, 1, 3),
        Finding::NoEvidence(_, EvidenceError::Path(PathError::Length { siblings: 3, height: 10 }))
    ));
    let hash = world.blocks[1].block_hash();
    let not_the_first = show(&world.blocks[1], 1);
    world.event(Event::HeightClaim(hash, not_the_first));
    assert!(matches!(
        world.findings.last(),
        Some(Finding::NoEvidence(_, EvidenceError::NotTheCoinbase))
    ));
    let coinbase = show(&world.blocks[1], 0);
    world.event(Event::HeightClaim(hash, coinbase));
    let Some(Finding::FalseHeight { evidence, height: 3, .. }) = world.findings.last() else {
        panic!("{:?}", world.findings.last());
    };
    assert_eq!(evidence.verify(Network::Regtest), Ok(3));
}

/// The answer claims fewer transactions at the same height, so the omitted transaction is after the
/// claimed end. The omission is detected all the same.
#[test]
fn fewer_transactions_at_the_same_height_are_no_way_out() {
    let mut world = run(|block, _| {
        let header = block.header;
        let hashes = vec![header.merkle_root];
        let flat = MerkleBlock { header, num_transactions: 5, hashes, flags: vec![0] };
        Some((flat, vec![]))
    });
    let own = &world.blocks[1];
    let receive = own.txdata[3].clone();
    // Seven transactions, the last of which is the wallet's. In the tree, the position after the
    // last transaction contains a copy of the last transaction.
    let mut txdata = own.txdata[1..].to_vec();
    txdata.retain(|tx| *tx != receive);
    txdata.push(receive);
    world.blocks[1] = block(1, txdata);
    assert_eq!(world.blocks[1].txdata.len(), 7);
    world.event(Event::Request(vec![world.at(1)]));
    world.settle();
    let Finding::Omission { evidence, omission, .. } = claim(&mut world, 1, 6) else {
        panic!("{:?}", world.findings.last());
    };
    assert_eq!((omission.index, omission.ground), (6, Ground::Output(0)));
    let mut copy = (*evidence).clone();
    copy.omitted.path.index = 7;
    let error = EvidenceError::Path(PathError::Sibling { level: 0 });
    assert_eq!(copy.verify(Network::Regtest), Err(error));
    copy.omitted.path.index = 8;
    let error = PathError::IndexOutOfRange { index: 8, num_transactions: 8 };
    assert_eq!(copy.verify(Network::Regtest), Err(EvidenceError::Path(error)));
}

#[test]
fn what_is_not_delivered_is_said_and_may_come_late() {
    let mut world = run(|block, matched| Some((truth(block, matched).0, vec![])));
    let (hash, receive) = (world.blocks[1].block_hash(), world.blocks[1].txdata[3].clone());
    let txid = receive.compute_txid();
    assert!(world.findings.contains(&Finding::NotDelivered { block: hash, index: 3, txid }));
    // Nothing was omitted, because the tree contains the transaction.
    assert!(matches!(
        claim(&mut world, 1, 3),
        Finding::NoEvidence(_, EvidenceError::NotOmitted(3))
    ));
    world.event(Event::Tx(receive));
    assert_eq!(world.relevant(), [txid]);
}

/// Witnesses are neither stored nor reported, because nothing commits to them and no limit includes
/// them.
#[test]
fn witnesses_are_dropped() {
    let padded = |mut tx: Transaction| {
        tx.input[0].witness = Witness::from_slice(&[[0; 10_000]]);
        tx
    };
    let mut world = world();
    let foreign = stranger(&mut Rng::new(3));
    let receive = world.blocks[1].txdata[3].clone();
    world.event(Event::Tx(padded(foreign.clone())));
    world.event(Event::Request(vec![world.at(1)]));
    let merkle_block = truth(&world.blocks[1], &[0, 3]).0;
    world.event(Event::MerkleBlock(merkle_block));
    world.event(Event::Tx(padded(receive.clone())));
    assert_eq!(world.session.delivered(), std::slice::from_ref(&receive));
    world.event(Event::Other);
    assert_eq!(world.session.kept(&foreign.compute_txid()), Some(&foreign));
    let reported = world.findings.iter().find_map(|finding| match finding {
        Finding::Relevant(relevant) => Some(&relevant.transaction),
        _ => None,
    });
    assert_eq!(reported, Some(&receive));
}

#[test]
fn a_transaction_that_is_not_in_the_tree() {
    let mut world = run(|block, matched| {
        let (merkle_block, transactions) = truth(block, matched);
        let forged = tx(&[OutPoint::new(block.txdata[0].compute_txid(), 9)], &[script(0)]);
        Some((merkle_block, [vec![forged], transactions].concat()))
    });
    // A forged transaction can be distinguished from a relayed transaction only if it arrives while
    // transactions of a block are outstanding.
    assert_eq!(world.count(|f| matches!(f, Finding::NotInTree { .. })), 2);
    assert_eq!(world.relevant().len(), 2, "the forged ones are unconfirmed");
    assert!(matches!(
        claim(&mut world, 1, 3),
        Finding::NoEvidence(_, EvidenceError::NotOmitted(3))
    ));
}

#[test]
fn invalid_unrequested_and_passed_over() {
    let world = run(|block, matched| {
        let (mut merkle_block, transactions) = truth(block, matched);
        merkle_block.hashes[0] = TxMerkleNode::all_zeros();
        Some((merkle_block, transactions))
    });
    let invalid = |finding: &Finding| {
        let tree =
            |error: &ProofError| matches!(error, ProofError::Tree(TreeError::RootMismatch { .. }));
        matches!(finding, Finding::InvalidMerkleBlock(_, error) if tree(error))
    };
    assert_eq!(world.count(invalid), 3);
    assert_eq!(world.relevant(), []);

    let mut world = run(|block, matched| (block.header.time != 1).then(|| truth(block, matched)));
    let hash = world.blocks[1].block_hash();
    assert!(world.findings.contains(&Finding::Unanswered(hash)));
    assert!(matches!(claim(&mut world, 1, 3), Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
    // After a second request, an answer could also be the late answer to the first request. Such an
    // answer proves inclusion, but is no evidence against the node.
    world.lie = |block, _| Some(truth(block, &[]));
    world.event(Event::Request(vec![world.at(1)]));
    world.settle();
    assert!(matches!(claim(&mut world, 1, 3), Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));

    let mut world = run(|block, _| Some(truth(block, &[])));
    let (again, _) = truth(&world.blocks[0], &[]);
    world.event(Event::MerkleBlock(again));
    assert_eq!(world.findings.last(), Some(&Finding::Unrequested(world.blocks[0].block_hash())));
}

/// Before the pong of the fence arrives, an answer may still belong to another request.
#[test]
fn evidence_waits_for_the_fence() {
    let mut world = world();
    world.lie = |block, _| Some(truth(block, &[]));
    world.request_from(0);
    while world.node_step() {}
    while !matches!(world.to_session.front(), Some(Event::Pong(_))) {
        assert!(world.session_step());
    }
    assert!(matches!(claim(&mut world, 1, 3), Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
    // A pong that answers none of the session's pings does not show that any answer is complete.
    world.event(Event::Pong(u64::MAX));
    assert!(matches!(claim(&mut world, 1, 3), Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
    world.settle();
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { .. }));
}

#[test]
fn a_filter_sent_between_request_and_answer_spoils_the_answer() {
    let mut world = world();
    world.lie = |block, _| Some(truth(block, &[]));
    world.request_from(0);
    world.event(Event::Refresh);
    world.settle();
    assert!(matches!(claim(&mut world, 1, 3), Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
}

/// Returns the evidence that a block's answer omits a transaction whose output script is `pays`,
/// with a filter that contains `element`.
fn evidence(pays: &[u8], element: &[u8]) -> OmissionEvidence {
    let odd: Transaction = tx(&[OutPoint::null()], &[ScriptBuf::from(pays.to_vec())]);
    let block: Block = block(1, vec![stranger(&mut Rng::new(1)), odd]);
    let mut filter = BloomFilter::new(10, 1e-9, 1, UpdateMode::All).unwrap();
    filter.insert(element);
    let merkle_block = MerkleBlock::new(&block.header, &txids(&block), &[]).unwrap();
    OmissionEvidence { filter, merkle_block, omitted: show(&block, 2) }
}

/// Cases in which implementations differ are no evidence.
#[test]
fn corners_of_implementations_are_no_evidence() {
    let verify = |evidence: OmissionEvidence| evidence.verify(Network::Regtest);
    let push = [&[20][..], &[9; 20]].concat();
    assert!(verify(evidence(&push, &[9; 20])).is_ok());
    // With a malformed push after the matching push, some implementations skip the whole script.
    let malformed = [&push[..], &[5, 1]].concat();
    assert_eq!(verify(evidence(&malformed, &[9; 20])), Err(EvidenceError::NoMatch));
    // This push has more than 520 bytes.
    let long = [&[0x4d, 0x09, 0x02][..], &[7; 521]].concat();
    assert_eq!(verify(evidence(&long, &[7; 521])), Err(EvidenceError::NoMatch));
    // Implementations treat these filters differently: they have 0 hash functions, no data, or
    // reserved flags.
    for payload in [
        &[&[2, 0xff, 0xff, 0, 0, 0, 0][..], &[0; 5]].concat(),
        &[&[0, 1, 0, 0, 0][..], &[0; 5]].concat(),
        &[&[2, 0xff, 0xff, 1, 0, 0, 0][..], &[0, 0, 0, 0, 3]].concat(),
    ] {
        let mut evidence = evidence(&push, &[9; 20]);
        evidence.filter = BloomFilter::decode(payload).unwrap();
        assert!(evidence.filter.contains(&[9; 20]) || evidence.filter.matches_everything());
        assert_eq!(verify(evidence), Err(EvidenceError::FilterNotReadAlike));
    }
    // A transaction of 64 bytes may be an inner node of the tree.
    let small = evidence(&[3, 1, 2, 3], &[1, 2, 3]);
    assert_eq!(small.omitted.transaction.base_size(), 64);
    assert_eq!(verify(small), Err(EvidenceError::TransactionOf64Bytes));
}

/// If a path starts above or below the txids, its length differs from the number of levels in the
/// tree of the honest answer. Such a path places a transaction one level above the txids or one
/// level below them.
#[test]
fn paths_that_start_elsewhere() {
    let mut world = run(|block, matched| Some(truth(block, matched)));
    let block = world.blocks[1].clone();
    let mut shown = show(&block, 3);
    let below = TxMerkleNode::from_byte_array([1; 32]);
    shown.path = MerklePath { index: 6, siblings: [vec![below], shown.path.siblings].concat() };
    world.event(Event::OmissionClaim(block.block_hash(), shown));
    assert!(matches!(
        world.findings.last(),
        Some(Finding::NoEvidence(
            _,
            EvidenceError::Path(PathError::Length { siblings: 4, height: 3 })
        ))
    ));
}

/// Once a node has sent an answer that was not requested, its unsettled and later answers are not
/// used as evidence: each could belong to another request.
#[test]
fn out_of_turn_once_is_out_of_turn_for_good() {
    let mut world = world();
    world.lie = |block, _| Some(truth(block, &[]));
    world.event(Event::Request(vec![world.at(1)]));
    while world.node_step() {}
    // The answer has arrived, but its pong has not.
    assert!(world.session_step());
    let (surplus, _) = truth(&world.blocks[0], &[]);
    world.event(Event::MerkleBlock(surplus));
    for _ in 0..2 {
        world.settle();
        let finding = claim(&mut world, 1, 3);
        assert!(matches!(finding, Finding::NoEvidence(_, EvidenceError::NoAnswer(_))));
        world.event(Event::Request(vec![world.at(1)]));
    }
    world.reconnect();
    world.event(Event::Request(vec![world.at(1)]));
    world.settle();
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { .. }));
}

/// Answers that a pong has settled stay usable: a surplus answer to an earlier request would have
/// arrived before the pong. A node's surplus answer does not affect the answers of another node
/// either.
#[test]
fn a_surplus_answer_takes_no_evidence_back() {
    let mut world = run(|block, _| Some(truth(block, &[])));
    let (surplus, _) = truth(&world.blocks[0], &[]);
    world.event(Event::MerkleBlock(surplus.clone()));
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { .. }));
    world.reconnect();
    world.settle();
    world.event(Event::MerkleBlock(surplus));
    assert_eq!(world.count(|f| matches!(f, Finding::Unrequested(_))), 2);
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { .. }));
}

/// The same block is requested from two nodes, and the first one lies. The finding contains the
/// number of the first connection.
#[test]
fn a_finding_says_on_which_connection_the_answer_came() {
    let mut world = world();
    assert_eq!(world.session.connection(), 1);
    world.lie = |block, _| Some(truth(block, &[]));
    world.request_from(0);
    world.settle();
    world.lie = |block, matched| Some(truth(block, matched));
    world.reconnect();
    world.request_from(0);
    world.settle();
    assert_eq!(world.relevant().len(), 2);
    assert!(matches!(claim(&mut world, 1, 3), Finding::Omission { connection: 1, .. }));
    // Now the second node lies.
    let mut world = self::world();
    world.request_from(0);
    world.settle();
    world.lie = |block, _| {
        let hashes = vec![block.header.merkle_root];
        let header = block.header;
        Some((MerkleBlock { header, num_transactions: 900, hashes, flags: vec![0] }, vec![]))
    };
    world.reconnect();
    world.request_from(0);
    world.settle();
    let (hash, coinbase) = (world.blocks[1].block_hash(), show(&world.blocks[1], 0));
    world.event(Event::HeightClaim(hash, coinbase));
    assert!(matches!(world.findings.last(), Some(Finding::FalseHeight { connection: 2, .. })));
    assert_eq!(world.session.connection(), 2);
}

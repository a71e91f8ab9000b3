//! Tests of lying nodes, and of lying witnesses.

use bitcoin::hashes::Hash as _;
use bitcoin::{Block, Network, OutPoint, ScriptBuf, Transaction, TxMerkleNode, Witness};

use super::node::{World, block, script, show, stranger, truth, tx, txids, watched};
use crate::btc::bip37::session::{
    Event, FilterPolicy, Finding, Ground, HeightEvidence, Omission, OmissionEvidence,
};
use crate::btc::bip37::{BloomFilter, MerkleBlock, MerkleBlockError, UpdateMode};
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

/// Returns the node's last answer for a block, with the filter as loaded and a transaction that the
/// answer may have omitted.
fn evidence_in(world: &World, block: usize, index: u32) -> OmissionEvidence {
    let hash = world.blocks[block].block_hash();
    let mut answers = world.answers.iter().rev();
    let answer = answers.find(|(_, merkle_block)| merkle_block.header.block_hash() == hash);
    let (filter, merkle_block) = answer.expect("the node has answered").clone();
    OmissionEvidence { filter, merkle_block, omitted: show(&world.blocks[block], index) }
}

fn claim(world: &World, block: usize, index: u32) -> Result<Omission, MerkleBlockError> {
    evidence_in(world, block, index).verify(Network::Regtest)
}

fn claim_height(world: &World, block: usize, index: u32) -> Result<u32, MerkleBlockError> {
    let OmissionEvidence { merkle_block, omitted, .. } = evidence_in(world, block, index);
    HeightEvidence { merkle_block, coinbase: omitted }.verify(Network::Regtest)
}

#[test]
fn an_omission_is_shown_by_anyone_with_the_block() {
    let world = run(|block, _| Some(truth(block, &[])));
    assert_eq!(world.relevant(), []);
    let evidence = evidence_in(&world, 1, 3);
    let omission = evidence.verify(Network::Regtest).unwrap();
    assert_eq!((omission.index, omission.ground), (3, Ground::Output(0)));
    // Evidence with any change is rejected.
    assert!(matches!(evidence.verify(Network::Bitcoin), Err(MerkleBlockError::ProofOfWork(_))));
    let with = |change: &dyn Fn(&mut OmissionEvidence)| {
        let mut evidence = evidence.clone();
        change(&mut evidence);
        evidence.verify(Network::Regtest).unwrap_err()
    };
    let other = BloomFilter::new(10, 1e-5, 0, UpdateMode::All).unwrap();
    assert_eq!(with(&|e| e.filter = other.clone()), MerkleBlockError::NoMatch);
    let honest = truth(&world.blocks[1], &[3]).0;
    assert_eq!(with(&|e| e.merkle_block = honest.clone()), MerkleBlockError::NotOmitted(3));
    assert!(matches!(with(&|e| e.omitted.path.index = 2), MerkleBlockError::OtherRoot { .. }));
    assert!(matches!(
        with(&|e| e.omitted.path.siblings.truncate(2)),
        MerkleBlockError::Path(PathError::Length { siblings: 2, height: 3 })
    ));
    assert!(matches!(
        with(&|e| e.omitted.transaction.output[0].value = bitcoin::Amount::ZERO),
        MerkleBlockError::OtherRoot { .. }
    ));
    // A transaction that matches only by an outpoint that the node should have inserted is no
    // evidence.
    assert_eq!(claim(&world, 2, 4), Err(MerkleBlockError::NoMatch));
}

/// A matching leaf that is in the answer but not flagged as matched is also treated as omitted.
#[test]
fn an_unmatched_leaf_is_an_omission() {
    let world = run(|block, matched| {
        // The neighbour is flagged as matched instead, so the answer contains both leaves.
        let neighbours = matched.iter().map(|index| index ^ 1);
        let shown: Vec<_> = neighbours.filter(|&i| (i as usize) < block.txdata.len()).collect();
        Some(truth(block, &shown))
    });
    assert!(claim(&world, 1, 3).is_ok());
}

/// With a false height, every honest path is too long. The coinbase proves the true height.
#[test]
fn a_false_height_is_shown_by_the_coinbase() {
    let world = run(|block, _| {
        let header = block.header;
        let hashes = vec![header.merkle_root];
        let flat = MerkleBlock { header, num_transactions: 900, hashes, flags: vec![0] };
        Some((flat, vec![]))
    });
    let error = MerkleBlockError::Path(PathError::Length { siblings: 3, height: 10 });
    assert_eq!(claim(&world, 1, 3), Err(error));
    assert_eq!(claim_height(&world, 1, 1), Err(MerkleBlockError::NotTheCoinbase));
    assert_eq!(claim_height(&world, 1, 0), Ok(3));
    // Of an honest answer, the coinbase shows nothing.
    let honest = run(|block, matched| Some(truth(block, matched)));
    assert_eq!(claim_height(&honest, 1, 0), Err(MerkleBlockError::SameHeight(3)));
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
    let mut copy = evidence_in(&world, 1, 6);
    let omission = copy.verify(Network::Regtest).unwrap();
    assert_eq!((omission.index, omission.ground), (6, Ground::Output(0)));
    copy.omitted.path.index = 7;
    let error = MerkleBlockError::Path(PathError::Sibling { level: 0 });
    assert_eq!(copy.verify(Network::Regtest), Err(error));
    copy.omitted.path.index = 8;
    let error = PathError::IndexOutOfRange { index: 8, num_transactions: 8 };
    assert_eq!(copy.verify(Network::Regtest), Err(MerkleBlockError::Path(error)));
}

#[test]
fn what_is_not_delivered_is_said_and_may_come_late() {
    let mut world = run(|block, matched| Some((truth(block, matched).0, vec![])));
    let (hash, receive) = (world.blocks[1].block_hash(), world.blocks[1].txdata[3].clone());
    let txid = receive.compute_txid();
    assert!(world.findings.contains(&Finding::NotDelivered { block: hash, index: 3, txid }));
    // Nothing was omitted, because the tree contains the transaction.
    assert_eq!(claim(&world, 1, 3), Err(MerkleBlockError::NotOmitted(3)));
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
    let world = run(|block, matched| {
        let (merkle_block, transactions) = truth(block, matched);
        let forged = tx(&[OutPoint::new(block.txdata[0].compute_txid(), 9)], &[script(0)]);
        Some((merkle_block, [vec![forged], transactions].concat()))
    });
    // A forged transaction can be distinguished from a relayed transaction only if it arrives while
    // transactions of a block are outstanding.
    assert_eq!(world.count(|f| matches!(f, Finding::NotInTree { .. })), 2);
    assert_eq!(world.relevant().len(), 2, "the forged ones are unconfirmed");
    assert_eq!(claim(&world, 1, 3), Err(MerkleBlockError::NotOmitted(3)));
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
            |error: &MerkleBlockError| matches!(error, MerkleBlockError::RootMismatch { .. });
        matches!(finding, Finding::InvalidMerkleBlock(_, error) if tree(error))
    };
    assert_eq!(world.count(invalid), 3);
    assert_eq!(world.relevant(), []);

    let world = run(|block, matched| (block.header.time != 1).then(|| truth(block, matched)));
    let hash = world.blocks[1].block_hash();
    assert!(world.findings.contains(&Finding::Unanswered(hash)));

    let mut world = run(|block, _| Some(truth(block, &[])));
    let (again, _) = truth(&world.blocks[0], &[]);
    world.event(Event::MerkleBlock(again));
    assert_eq!(world.findings.last(), Some(&Finding::Unrequested(world.blocks[0].block_hash())));
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
    assert_eq!(verify(evidence(&malformed, &[9; 20])), Err(MerkleBlockError::NoMatch));
    // This push has more than 520 bytes.
    let long = [&[0x4d, 0x09, 0x02][..], &[7; 521]].concat();
    assert_eq!(verify(evidence(&long, &[7; 521])), Err(MerkleBlockError::NoMatch));
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
        assert_eq!(verify(evidence), Err(MerkleBlockError::FilterNotReadAlike));
    }
    // A transaction of 64 bytes may be an inner node of the tree.
    let small = evidence(&[3, 1, 2, 3], &[1, 2, 3]);
    assert_eq!(small.omitted.transaction.base_size(), 64);
    assert!(matches!(verify(small), Err(MerkleBlockError::TransactionOf64Bytes { .. })));
}

/// If a path starts above or below the txids, its length differs from the number of levels in the
/// tree of the honest answer. Such a path places a transaction one level above the txids or one
/// level below them.
#[test]
fn paths_that_start_elsewhere() {
    let world = run(|block, matched| Some(truth(block, matched)));
    let mut evidence = evidence_in(&world, 1, 3);
    let below = TxMerkleNode::from_byte_array([1; 32]);
    let siblings = [vec![below], evidence.omitted.path.siblings].concat();
    evidence.omitted.path = MerklePath { index: 6, siblings };
    let error = MerkleBlockError::Path(PathError::Length { siblings: 4, height: 3 });
    assert_eq!(evidence.verify(Network::Regtest), Err(error));
}

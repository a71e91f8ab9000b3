//! Tests with peers that claim different filters.

use std::collections::BTreeSet;

use bitcoin::Network;
use bitcoin::p2p::message::NetworkMessage;

use super::world::{Node, TestChain, World};
use crate::btc::bip157::{Action, Event, Finding, Reason, ScanReason};
use crate::btc::bip158::{BlockFilter, filter_hash};
use crate::btc::peer::{Grade, PeerId};

/// An empty filter, as a lie about height 15: it lacks the script of that block's only output.
fn empty() -> Vec<u8> {
    vec![0]
}

fn world(chain: &TestChain, nodes: Vec<Node>) -> World {
    let mut world = World::new(chain, World::config());
    for (id, node) in (1..).zip(nodes) {
        world.connect(id, node);
    }
    world
}

/// If the block cannot decide a dispute, because it does not contain the script of the output that
/// it spends, the block is scanned.
#[test]
fn what_the_block_does_not_decide_is_scanned() {
    let chain = TestChain::new(2_050);
    let lies = [(27, chain.without_prevouts(27)), (1_997, chain.without_prevouts(1_997))];
    for liar_first in [false, true] {
        let mut nodes = vec![Node::honest(&chain), Node::lying(&chain, &lies)];
        if liar_first {
            nodes.reverse();
        }
        let mut world = world(&chain, nodes);
        world.settle();
        world.assert_complete(&chain);
        assert_eq!(world.scanned(ScanReason::Disputed), [27, 1_997]);
        let undecided = [27, 1_997].map(|height| Finding::Undecided(chain.at(height)));
        assert!(undecided.iter().all(|finding| world.findings().contains(finding)));
        assert_eq!(world.reasons(), []);
        assert_eq!(world.grade(27), Some(Grade::Scanned));
        // Above the first dispute, the filter headers of the peers differ, but their filter hashes
        // agree.
        assert_eq!(world.grade(1_500), Some(Grade::Peers(2)));
        // No filter of the disputed heights is kept as evidence.
        let without_filter = world.actions.iter().filter_map(|action| match action {
            Action::Block { at, filter: None, .. } => Some(at.height),
            _ => None,
        });
        assert!(without_filter.eq([27, 1_997]));
        // A rescan needs the blocks again.
        world.actions.clear();
        world.event(Event::Rescan(1_000..=u32::MAX));
        world.settle();
        world.assert_complete(&chain);
        assert_eq!(world.scanned(ScanReason::Disputed), [1_997]);
    }
}

#[test]
fn what_the_block_refutes_convicts() {
    let chain = TestChain::new(1_050);
    // The lies are an empty filter, malformed bytes, and the filter of another block.
    let lies = [empty(), vec![1, 2, 3], chain.filters[17].clone()];
    for lie in lies {
        for liar in [1, 2] {
            let node = Node::lying(&chain, &[(15, lie.clone())]);
            let mut nodes = vec![Node::honest(&chain), Node::honest(&chain)];
            nodes.insert(liar, node);
            let mut world = world(&chain, nodes);
            world.settle();
            world.assert_complete(&chain);
            let [(peer, Reason::FalseFilter(false_filter))] = &world.reasons()[..] else {
                panic!()
            };
            assert_eq!((*peer, false_filter.at), (PeerId(liar as u64 + 1), chain.at(15)));
            assert_eq!(false_filter.hash, filter_hash(&lie));
            let proof = false_filter.proof.as_ref().unwrap();
            proof.verify(chain.hash(15), Network::Regtest).unwrap();
            assert_eq!(world.sync.peers().count(), 2);
            assert_eq!(world.scanned(ScanReason::Disputed), [15]);
            assert_eq!(world.grade(14), Some(Grade::Peers(2)));
        }
    }
}

/// One honest peer among many liars is enough, in any position: the number of claims does not
/// matter.
#[test]
fn one_honest_peer_is_enough() {
    let chain = TestChain::new(1_210);
    let lies: Vec<_> = chain
        .truth()
        .into_iter()
        .map(|height| match height % 10 {
            7 => (height, chain.without_prevouts(height)),
            _ => (height, empty()),
        })
        .collect();
    let silent: Vec<_> = lies.iter().filter(|(height, _)| height % 10 == 7).cloned().collect();
    for honest in 0..4 {
        let mut nodes = vec![Node::lying(&chain, &silent); 2];
        nodes.push(Node::lying(&chain, &lies));
        nodes.insert(honest, Node::honest(&chain));
        let mut world = world(&chain, nodes);
        world.settle();
        world.assert_complete(&chain);
        assert_eq!(world.reasons().len(), 1, "the block does not refute the other liars");
        // Each block was requested once, except that the blocks in flight from the convicted liar
        // were requested again.
        let disputed = world.scanned(ScanReason::Disputed);
        assert_eq!(disputed.iter().collect::<BTreeSet<_>>().len(), disputed.len());
        let blocks = world.sent(|message| matches!(message, NetworkMessage::GetData(_)));
        assert!(blocks <= chain.truth().len() + 16, "{blocks}");
    }
}

/// Claiming a hash costs nothing, so a peer that claims a hash must send its filter.
#[test]
fn a_claim_without_its_filter_costs_no_block() {
    let chain = TestChain::new(1_050);
    for liar in [0, 1] {
        let lies: Vec<_> =
            (1..=1_050).map(|height: u32| (height, vec![height.to_le_bytes()[0]; 9])).collect();
        let mut node = Node::lying(&chain, &lies);
        let honest = chain.clone();
        node.twist = Some(std::rc::Rc::new(move |events| {
            for event in events {
                if let Event::CFilter(_, message) = event {
                    let height =
                        honest.blocks.iter().position(|b| b.block_hash() == message.block_hash);
                    message.filter.clone_from(&honest.filters[height.unwrap()]);
                }
            }
        }));
        let mut nodes = vec![Node::honest(&chain)];
        nodes.insert(liar, node);
        let mut world = world(&chain, nodes);
        world.settle();
        world.assert_complete(&chain);
        let reasons = world.reasons();
        let [(peer, Reason::OtherFilter { at, .. })] = reasons[..] else { panic!("{reasons:?}") };
        assert_eq!((peer, at), (PeerId(liar as u64 + 1), chain.at(1)));
        assert!(world.scanned(ScanReason::Disputed).is_empty());
    }
}

/// A liar that does not send its claimed filter is disconnected after the timeout.
#[test]
fn a_claim_is_lost_with_the_timeout() {
    let chain = TestChain::new(300);
    let lies: Vec<_> =
        (1..=300).map(|height: u32| (height, vec![height.to_le_bytes()[0]; 9])).collect();
    let mut node = Node::lying(&chain, &lies);
    node.mute = |message| matches!(message, NetworkMessage::GetCFilters(_));
    let mut world = world(&chain, vec![node, Node::honest(&chain)]);
    world.settle();
    assert_eq!(world.reasons(), []);
    world.wait(31);
    world.assert_complete(&chain);
    assert!(matches!(world.reasons()[..], [(PeerId(1), Reason::Stalled(_))]));
    assert!(world.scanned(ScanReason::Disputed).is_empty());
    assert_eq!(world.grade(21), Some(Grade::OnePeer));
}

/// A filter that was received is used even if its sender has left.
#[test]
fn a_filter_outlives_its_sender() {
    let chain = TestChain::new(100);
    let lies = [(27, chain.without_prevouts(27))];
    for honest in [1, 2] {
        let mut nodes = vec![Node::lying(&chain, &lies)];
        nodes.insert(honest - 1, Node::honest(&chain));
        for node in &mut nodes {
            node.mute = |message| matches!(message, NetworkMessage::GetData(_));
        }
        let mut world = world(&chain, nodes);
        world.settle();
        assert_eq!(world.sync.answered_to(), Some(26));
        world.leave(honest as u64);
        world.connect(3, Node::lying(&chain, &lies));
        world.settle();
        world.wait(31);
        assert!(world.scanned(ScanReason::Disputed).contains(&27));
        assert!(world.hits.contains(&27));
    }
}

#[test]
fn a_lying_block_server_convicts_nobody_else() {
    let chain = TestChain::new(60);
    let lies = [(27, chain.without_prevouts(27))];
    // The false blocks have too few transactions, a changed transaction, or a duplicate
    // transaction.
    let twists: [fn(&mut bitcoin::Block); 3] = [
        |block| block.txdata.truncate(1),
        |block| block.txdata[0].output[0].value = bitcoin::Amount::from_sat(51),
        |block| block.txdata.push(block.txdata.last().unwrap().clone()),
    ];
    for twist in twists {
        let server = Node::twisted(&chain, move |event| {
            if let Event::Block(_, block) = event {
                twist(block);
            }
        });
        let nodes = vec![server, Node::honest(&chain), Node::lying(&chain, &lies)];
        let mut world = world(&chain, nodes);
        world.settle();
        world.assert_complete(&chain);
        let reasons = world.reasons();
        assert!(matches!(reasons[..], [(PeerId(1), Reason::FalseBlock(_))]), "{reasons:?}");
    }
}

/// A claim that contradicts an audited filter is a lie, and needs no block.
#[test]
fn an_audited_filter_ends_the_matter() {
    let chain = TestChain::new(40);
    let mut config = World::config();
    config.spot_audits = 1;
    let mut world = World::new(&chain, config);
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    assert_eq!(world.scanned(ScanReason::SpotAudit).len(), 40);
    let other = BlockFilter { block_hash: chain.hash(15), content: empty() };
    world.connect(2, Node::lying(&chain, &[(15, other.content)]));
    world.settle();
    let reasons = world.reasons();
    let [(PeerId(2), Reason::FalseFilter(found))] = &reasons[..] else { panic!("{reasons:?}") };
    assert_eq!((found.at, &found.proof), (chain.at(15), &None));
}

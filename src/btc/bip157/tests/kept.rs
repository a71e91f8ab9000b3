//! Tests of the state that is stored between runs.

use bitcoin::Network;

use super::world::{Node, TestChain, World};
use crate::btc::bip157::{Config, Event, FilterSync, Message, Reason, RestoreError};
use crate::btc::peer::Grade;

fn is_filters(message: &Message) -> bool {
    matches!(message, Message::GetCFilters(_))
}

fn kept(world: &mut World) -> Vec<u8> {
    let bytes = world.sync.encode(&world.headers);
    world.sync = FilterSync::restore(world.sync.config().clone(), &world.headers, &bytes).unwrap();
    world.nodes.clear();
    world.queue.clear();
    world.actions.clear();
    // Encoding the restored state again gives the same state.
    let again = world.sync.encode(&world.headers);
    let sync = FilterSync::restore(world.sync.config().clone(), &world.headers, &again).unwrap();
    assert!(sync.encode(&world.headers) == again && again.len() == bytes.len());
    bytes
}

#[test]
fn a_run_goes_on() {
    let mut chain = TestChain::new(1_100);
    let mut world = World::new(&chain, World::config());
    for id in 1..=2 {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    let bytes = kept(&mut world);
    assert_eq!(bytes.len(), 4 + 2 + 4 + 8 + 2 * 44 + 1_100 * 33 + 4);
    world.assert_complete(&chain);
    assert_eq!(world.grade(11), Some(Grade::Peers(2)));
    chain.grow(20, 1);
    world.move_to(&chain);
    world.connect(3, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    // Peer 3 may be one of the two peers of the earlier run.
    assert_eq!(world.grade(11), Some(Grade::Peers(2)));
    assert_eq!(world.grade(1_101), Some(Grade::OnePeer));
    assert_eq!(world.sent(is_filters), 1);
}

/// The grade is the larger of two numbers: the peers of this run, and the peers of earlier runs.
/// The grade is not the sum of these two numbers.
#[test]
fn the_larger_number_of_peers_counts() {
    let chain = TestChain::new(1_100);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    kept(&mut world);
    for id in 2..=4 {
        world.connect(id, Node::honest(&chain));
    }
    world.settle();
    assert_eq!(world.grade(11), Some(Grade::Peers(3)));
}

/// A peer that comes back in each run is not counted as a second peer.
#[test]
fn one_peer_in_three_runs_stays_one_peer() {
    let chain = TestChain::new(1_100);
    let mut world = World::new(&chain, World::config());
    for id in 1..=3 {
        world.connect(id, Node::honest(&chain));
        world.settle();
        assert_eq!(world.grade(11), Some(Grade::OnePeer), "run {id}");
        kept(&mut world);
    }
}

/// An honest peer of the next run disputes what liars of the last run have claimed.
#[test]
fn liars_of_an_earlier_run() {
    let chain = TestChain::new(1_200);
    // The block refutes the first lie, which is at a height without a hit. The second lie hides a
    // hit.
    let lies = [(1_021, vec![0]), (27, chain.without_prevouts(27))];
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::lying(&chain, &lies));
    world.settle();
    kept(&mut world);
    assert_eq!(world.sync.answered_to(), Some(1_200));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
    world.connect(3, Node::lying(&chain, &[(1_021, vec![0])]));
    world.settle();
    assert_eq!(world.reasons().len(), 1);
    world.assert_complete(&chain);
}

/// A hit whose block has not arrived is found again after a restart.
#[test]
fn a_hit_on_its_way() {
    let chain = TestChain::new(40);
    let mut world = World::new(&chain, World::config());
    let mut node = Node::honest(&chain);
    node.mute = |message| matches!(message, Message::GetBlocks(_));
    world.connect(1, node);
    world.settle();
    assert!(world.hits.is_empty());
    assert_eq!(world.sync.answered_to(), Some(40));
    kept(&mut world);
    assert_eq!(world.sync.answered_to(), Some(4));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.assert_complete(&chain);
}

#[test]
fn a_reorganization_between_runs() {
    let chain = TestChain::new(2_300);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    let bytes = world.sync.encode(&world.headers);
    let fork = chain.fork(2_200, 5);
    world.move_to(&fork);
    world.sync = FilterSync::restore(World::config(), &world.headers, &bytes).unwrap();
    assert_eq!(world.sync.answered_to(), Some(2_000));
    world.nodes.clear();
    world.connect(2, Node::honest(&fork));
    world.settle();
    world.assert_complete(&fork);
}

#[test]
fn damage_is_found() {
    let chain = TestChain::new(30);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    let bytes = world.sync.encode(&world.headers);
    let restore = |config, bytes: &[u8]| FilterSync::restore(config, &world.headers, bytes).err();
    for length in 0..bytes.len() {
        let cut = restore(World::config(), &bytes[..length]);
        assert_eq!(cut, Some(RestoreError::Checksum(length)));
    }
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        let damage = restore(World::config(), &damaged);
        assert_eq!(damage, Some(RestoreError::Checksum(bytes.len())));
    }
    let other = Config::new(Network::Bitcoin, 0, [1; 16]);
    assert_eq!(restore(other, &bytes), Some(RestoreError::Network));
    let later = Config::new(Network::Regtest, 7, [1; 16]);
    let first = RestoreError::First { kept: 0, wanted: 7 };
    assert_eq!(restore(later, &bytes), Some(first));
    // With a correct checksum, no byte value causes a panic.
    for place in 4..bytes.len() - 4 {
        for value in [0, 1, 0x80, 0xff] {
            let mut forged = bytes.clone();
            forged[place] = value;
            let sum = bitcoin::hashes::Hash::hash(&forged[..bytes.len() - 4]);
            let sum: bitcoin::hashes::sha256d::Hash = sum;
            let end = bytes.len() - 4;
            forged[end..].copy_from_slice(&bitcoin::hashes::Hash::to_byte_array(sum)[..4]);
            if let Ok(mut sync) = FilterSync::restore(World::config(), &world.headers, &forged) {
                drop(sync.handle(&world.headers, Event::Tick, core::time::Duration::ZERO));
            }
        }
    }
    assert!(world.reasons().iter().all(|(_, reason)| !matches!(reason, Reason::Stalled(_))));
}

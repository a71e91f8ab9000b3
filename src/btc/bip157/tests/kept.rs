//! Tests of the state that is stored between runs.

use bitcoin::Network;
use bitcoin::hashes::Hash as _;
use bitcoin::p2p::message::NetworkMessage;

use super::world::{Node, TestChain, World};
use crate::btc::bip157::{Config, Event, FilterSync, Reason, RestoreError};
use crate::btc::bip158::filter_hash;
use crate::btc::peer::Grade;
use crate::btc::records::tests::laid_out;
use crate::btc::records::{FRAME_LEN, START_LEN};

fn is_filters(message: &NetworkMessage) -> bool {
    matches!(message, NetworkMessage::GetCFilters(_))
}

fn kept(world: &mut World) -> Vec<u8> {
    let bytes = world.sync.encode(&world.headers);
    world.sync = FilterSync::restore(world.sync.config.clone(), &world.headers, &bytes).unwrap();
    world.nodes.clear();
    world.queue.clear();
    world.actions.clear();
    // Encoding the restored state again gives the same state.
    let again = world.sync.encode(&world.headers);
    let sync = FilterSync::restore(world.sync.config.clone(), &world.headers, &again).unwrap();
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
    assert_eq!(bytes.len(), 5 + 8 + 1 + 4 + 8 + 2 * 44 + 1_100 * 33);
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
    node.mute = |message| matches!(message, NetworkMessage::GetData(_));
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
fn the_format_is_the_documented_one() {
    let chain = TestChain::new(3);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.settle();
    let mut body = b"\x01\xfa\xbf\xb5\xda\0\0\0\0\x01\0\0\0\x03\0\0\0\x01\0\0\0\x03\0\0\0".to_vec();
    body.extend(chain.blocks[3].block_hash().as_byte_array());
    // Block 3 spends an output of a stranger.
    for (height, state) in [(1, 1), (2, 1), (3, 1)] {
        body.extend(filter_hash(&chain.filters[height]).as_byte_array());
        body.push(state);
    }
    assert_eq!(world.sync.encode(&world.headers), laid_out(*b"CSFS\x02", &[body]));
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
        let expected = match place {
            4 => RestoreError::Version(damaged[4]),
            _ => RestoreError::Checksum(bytes.len()),
        };
        assert_eq!(restore(World::config(), &damaged), Some(expected));
    }
    let other = Config::new(Network::Bitcoin, 0, [1; 16]);
    assert_eq!(restore(other, &bytes), Some(RestoreError::Network));
    let later = Config::new(Network::Regtest, 7, [1; 16]);
    let first = RestoreError::First { kept: 0, wanted: 7 };
    assert_eq!(restore(later, &bytes), Some(first));
    // With a correct checksum, no byte value causes a panic.
    let (start, body) = (*b"CSFS\x02", &bytes[START_LEN + FRAME_LEN..]);
    for place in 0..body.len() {
        for value in [0, 1, 0x80, 0xff] {
            let mut forged = body.to_vec();
            forged[place] = value;
            let forged = laid_out(start, &[forged]);
            if let Ok(mut sync) = FilterSync::restore(World::config(), &world.headers, &forged) {
                drop(sync.handle(&world.headers, Event::Tick, core::time::Duration::ZERO));
            }
        }
    }
    assert!(world.reasons().iter().all(|(_, reason)| !matches!(reason, Reason::Stalled(_))));
}

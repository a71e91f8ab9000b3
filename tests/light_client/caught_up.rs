//! When the client may say that it has caught up: with peers that lie and leave, honest peers that
//! come late, and nodes that are not ready.

use core::time::Duration;

use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::btc::client::{Birthday, Event, Finding, Item, News, Protocol, Update, Wallet};

use super::mined::{Chain, UNIX, script};
use super::node::{Fault, Node};
use super::watches::{BOTH, wallet};
use super::world::{World, config};

fn mined(scripts: &[u8]) -> Chain {
    let mut chain = Chain::new();
    for byte in scripts {
        chain.mine(&script(*byte), &[]);
    }
    chain
}

/// Fifteen blocks, of which the third pays to script 1.
fn paid_once() -> Chain {
    mined(&[8, 8, 1, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8])
}

fn one() -> [(&'static str, Wallet); 1] {
    [("a", wallet(&[script(1)], 0))]
}

fn is_caught_up(update: &Update) -> bool {
    matches!(update.news, News::CaughtUp(_))
}

/// Returns the number of hits when the client next says that it has caught up.
fn hits_when_caught_up(world: &mut World) -> Option<usize> {
    for _ in 0..400 {
        if world.updates().iter().any(is_caught_up) {
            return Some(world.client.hits(&"a".into()).count());
        }
        world.step();
    }
    None
}

#[test]
fn the_word_of_an_earlier_runs_peers_does_not_count_for_the_connected_ones() {
    let chain = paid_once();
    let liar = Node::new(&chain, Some(Fault::HidesFrom(0)));
    let mut world = World::new(config(Protocol::Bip157), &one(), &[liar]);
    assert_eq!(hits_when_caught_up(&mut world), Some(0), "nobody contradicts the liar");
    world.handle(Event::Save);
    world.store(usize::MAX);
    let (wallets, honest) = (world.wallets.clone(), [Node::new(&chain, None)]);
    let mut world = World::resume(config(Protocol::Bip157), wallets, &honest, world.storage);
    assert_eq!(hits_when_caught_up(&mut world), Some(1));
}

#[test]
fn the_word_of_a_peer_that_left_does_not_count_for_the_connected_ones() {
    let chain = paid_once();
    let liar = Node::new(&chain, Some(Fault::HidesFrom(0)));
    let mut world = World::new(config(Protocol::Bip157), &one(), &[liar]);
    assert_eq!(hits_when_caught_up(&mut world), Some(0));
    world.hang_up(0);
    world.nodes = vec![Node::new(&chain, None)];
    world.call(0);
    assert!(!world.client.is_caught_up());
    world.run();
    assert_eq!(world.client.hits(&"a".into()).count(), 1);
}

/// However long everything seemed to be settled: the honest peer gets its time.
#[test]
fn a_peer_that_comes_late_is_heard_before_the_client_is_caught_up() {
    let chain = paid_once();
    for last in [None, Some(7)] {
        let mut config = config(Protocol::Bip157);
        config.last = last;
        let timeout = config.timeout;
        let nodes = [Node::new(&chain, Some(Fault::HidesFrom(0))), Node::new(&chain, None)];
        let mut world = World::new(config, &one(), &nodes);
        world.hang_up(1);
        for _ in 0..200 {
            if world.has_messages() {
                world.step();
            }
        }
        assert!(world.client.is_caught_up(), "nobody contradicts the liar");
        world.tick(u64::try_from(timeout.as_millis()).unwrap() * 20);
        assert!(world.client.is_caught_up());
        world.call(1);
        while world.has_messages() {
            assert!(!world.client.is_caught_up() || world.client.hits(&"a".into()).count() == 1);
            world.step();
        }
        assert_eq!(world.client.hits(&"a".into()).count(), 1);
    }
}

/// The liar connects again and again while the honest peer has not answered.
#[test]
fn connections_of_one_peer_do_not_outvote_one_that_has_not_answered() {
    let chain = mined(&[8; 10]);
    let nodes = [Node::new(&chain, Some(Fault::HidesFrom(11))), Node::new(&chain, None)];
    let mut world = World::new(config(Protocol::Bip157), &one(), &nodes);
    world.run();
    world.updates();
    let mut paid = chain;
    paid.mine(&script(1), &[]);
    // The honest node announces the block, and is slow to answer about its filter.
    world.nodes[1].fault = Some(Fault::Silent);
    world.switch(1, &paid, true);
    world.switch(0, &paid, true);
    let begin = world.now;
    for _ in 0..3 {
        for _ in 0..60 {
            if world.has_messages() {
                world.step();
            }
        }
        assert!(!world.client.is_caught_up());
        world.hang_up(0);
        world.call(0);
    }
    assert_eq!(world.now, begin);
    // One liar is one peer, however often it has connected.
    let grades = world.client.grades();
    let peers: Vec<_> = grades.iter().filter_map(|it| it.grade.peers()).collect();
    assert!(peers.iter().all(|peers| *peers <= 2), "{grades:?}");
}

/// Bitcoin Core answers `getheaders` without any header while its chain has too little work.
#[test]
fn a_node_in_its_initial_download_is_not_caught_up_with() {
    let mut chain = paid_once();
    let time = u32::try_from(UNIX).unwrap() - 86_400;
    let items = vec![Item::Script(script(1))];
    for protocol in [Protocol::Bip37, Protocol::Bip157, Protocol::HeadersOnly] {
        let mut node = Node::new(&chain, None);
        node.is_ready = false;
        let wallet = Wallet::new(Birthday::Time(time), items.clone());
        let mut world = World::new(config(protocol), &[("a", wallet.clone())], &[node]);
        for _ in 0..100 {
            world.step();
        }
        assert!(!world.client.is_caught_up() && !world.client.has_started());
        let updates = world.updates();
        assert!(!updates.iter().any(is_caught_up), "{protocol:?}");
        let told = |update: &&Update| {
            let News::Finding(finding) = &update.news else { return false };
            matches!(finding, Finding::NotReady { height: 15, .. })
        };
        assert_eq!(updates.iter().filter(told).count(), 1, "{protocol:?}");
        assert_eq!((world.dropped.len(), world.banned.len()), (0, 0));
        // The node is asked again, and the birthday is resolved by the whole chain.
        world.nodes[0].is_ready = true;
        world.run();
        if protocol != Protocol::HeadersOnly {
            let wanted = wallet.birthday.height(world.client.chain());
            assert_eq!(world.client.first(), Some(wanted), "{protocol:?}");
        }
        assert_eq!(world.client.progress().tip.height, 15);
    }
    // A ready node is enough, whatever the other one claims.
    chain.mine(&script(8), &[]);
    let mut claims = Node::new(&chain, None);
    claims.is_ready = false;
    let nodes = [claims, Node::new(&chain, None)];
    let mut world = World::new(config(Protocol::Bip157), &one(), &nodes);
    assert_eq!(hits_when_caught_up(&mut world), Some(1));
}

#[test]
fn a_chain_with_too_little_work_is_not_caught_up_with() {
    let chain = paid_once();
    for protocol in BOTH {
        let mut config = config(protocol);
        let work = chain.blocks()[0].block.header.work();
        // Genesis and fifteen blocks have sixteen times the work of one.
        config.minimum_work = (0..16).fold(work, |sum, _| sum + work);
        let mut world = World::new(config, &one(), &[Node::new(&chain, None)]);
        for _ in 0..50 {
            world.step();
        }
        assert!(!world.client.is_caught_up() && !world.client.has_started());
        let mut more = chain.clone();
        more.mine(&script(1), &[]);
        world.announce(0, &more);
        assert_eq!(world.client.hits(&"a".into()).count(), 2, "{protocol:?}");
    }
}

/// A liar owes the block that decides. A message that has nothing to do with it arrives a timeout later, before the
/// next tick.
#[test]
fn a_dispute_is_not_caught_up_with_while_a_liar_holds_its_block() {
    let chain = paid_once();
    let nodes = [Node::new(&chain, Some(Fault::HidesAndHolds(3))), Node::new(&chain, None)];
    let config = config(Protocol::Bip157);
    let timeout = config.timeout;
    let mut world = World::new(config, &one(), &nodes);
    world.hang_up(1);
    while world.nodes[0].asked_filters == 0 {
        world.step();
    }
    world.call(1);
    while world.has_messages() {
        assert!(!world.client.is_caught_up());
        world.step();
    }
    assert!(!world.client.is_caught_up() && !world.updates().iter().any(is_caught_up));
    world.now += timeout + Duration::from_millis(1);
    world.push(1, NetworkMessage::Pong(1));
    world.step();
    let said = world.updates().iter().any(is_caught_up);
    let hits = world.client.hits(&"a".into()).count();
    let is_caught_up = world.client.is_caught_up();
    assert!(!said && !is_caught_up || hits == 1, "said: {said}, now: {is_caught_up}, {hits} hits");
}

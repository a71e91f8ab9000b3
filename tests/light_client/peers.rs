//! Peers that cause needless work, and clocks that are set back.

use std::collections::VecDeque;
use std::time::Duration;

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::Inventory;
use chainsieve::btc::client::{Action, Event, Finding, News, Protocol, Update};
use chainsieve::btc::peer::PeerId;
use chainsieve::btc::protocol::MAX_INV_SIZE;

use super::mined::{Chain, script};
use super::node::{Fault, Node};
use super::watches::{BOTH, wallet};
use super::world::{World, config};

fn mined(count: u32) -> Chain {
    let mut chain = Chain::new();
    for _ in 0..count {
        chain.mine(&script(8), &[]);
    }
    chain
}

fn is_caught_up(update: &Update) -> bool {
    matches!(update.news, News::CaughtUp(_))
}

fn is_clock_behind(update: &Update) -> bool {
    matches!(update.news, News::Finding(Finding::ClockBehind))
}

/// The id of the first connection.
const FIRST: PeerId = PeerId(1);

#[test]
fn a_block_that_is_announced_and_does_not_come_is_not_worth_a_write() {
    for protocol in BOTH {
        let mut chain = mined(5);
        let wallets = [("a", wallet(&[script(1)], 0))];
        let mut world = World::new(config(protocol), &wallets, &[Node::new(&chain, None)]);
        world.run();
        assert_eq!(world.updates().iter().filter(|it| is_caught_up(it)).count(), 1);
        for byte in 1..=5 {
            let unknown = Inventory::WitnessBlock(BlockHash::from_byte_array([byte; 32]));
            let mut actions = Vec::new();
            for message in [
                NetworkMessage::Inv(vec![unknown]),
                NetworkMessage::Headers(Vec::new()),
                NetworkMessage::Headers(Vec::new()),
            ] {
                actions.extend(world.client.handle(Event::Message(FIRST, message), world.now));
            }
            assert!(world.client.is_caught_up());
            let [Action::Send(FIRST, NetworkMessage::GetHeaders(_))] = actions.as_slice() else {
                panic!("{actions:?}");
            };
        }
        // A new block is reported.
        chain.mine(&script(8), &[]);
        world.announce(0, &chain);
        assert_eq!(world.updates().iter().filter(|it| is_caught_up(it)).count(), 1);
        world.watch("b", &wallet(&[script(2)], 0));
        world.run();
        world.tick(1_000);
        assert_eq!(world.updates().iter().filter(|it| is_caught_up(it)).count(), 1);
    }
}

#[test]
fn more_items_than_the_protocol_allows_end_in_a_ban() {
    let item = Inventory::WitnessBlock(BlockHash::all_zeros());
    for message in [NetworkMessage::Inv, NetworkMessage::NotFound, NetworkMessage::GetData] {
        let nodes = [Node::new(&mined(1), None)];
        let mut world = World::new(config(Protocol::Bip157), &[], &nodes);
        world.handle(Event::Message(FIRST, message(vec![item; MAX_INV_SIZE])));
        assert_eq!(world.banned, []);
        world.handle(Event::Message(FIRST, message(vec![item; MAX_INV_SIZE + 1])));
        let why = "50001 items in one message, the limit is 50000";
        assert_eq!(world.banned, [(0, why.into())]);
    }
}

#[test]
fn waiting_goes_on_from_where_the_clock_is_set_back() {
    let chain = mined(5);
    let nodes = [Node::new(&chain, Some(Fault::Silent))];
    let mut world = World::new(config(Protocol::HeadersOnly), &[], &nodes);
    world.run();
    world.handle(Event::GetBlock(chain.at(4).unwrap().hash));
    world.now -= Duration::from_hours(1);
    world.tick(0);
    assert_eq!(world.dropped, []);
    // The only peer may take four timeouts.
    world.tick(120_000);
    assert_eq!(world.dropped, []);
    world.tick(1_000);
    let why = format!("no answer for block {} in 121 s", chain.at(4).unwrap().hash);
    assert_eq!(world.dropped, [(0, why)]);
}

/// A program asks for 64 blocks at once. The only peer delivers one block a second, in the order of
/// the requests, so that the last one takes about a minute.
#[test]
fn a_peer_that_delivers_a_block_each_second_is_kept_whatever_is_asked_for() {
    let chain = mined(64);
    let nodes = [Node::new(&chain, Some(Fault::Silent))];
    let mut world = World::new(config(Protocol::HeadersOnly), &[], &nodes);
    world.run();
    let (mut requests, mut delivered) = (VecDeque::new(), 0);
    let mut handle = |world: &mut World, requests: &mut VecDeque<BlockHash>, event| {
        for action in world.client.handle(event, world.now) {
            match action {
                Action::Send(FIRST, NetworkMessage::GetData(items)) => {
                    requests.extend(items.into_iter().map(|item| match item {
                        Inventory::WitnessBlock(hash) => hash,
                        other => panic!("{other:?}"),
                    }));
                }
                Action::Block(_, block) => {
                    block.expect("the peer has it");
                    delivered += 1;
                }
                Action::Disconnect(..) => panic!("{action:?} after {delivered} blocks"),
                _ => {}
            }
        }
        delivered
    };
    for height in 1..=64 {
        let hash = chain.at(height).unwrap().hash;
        handle(&mut world, &mut requests, Event::GetBlock(hash));
    }
    let mut seconds = 0;
    loop {
        world.now += Duration::from_secs(1);
        seconds += 1;
        let all = handle(&mut world, &mut requests, Event::Tick);
        if all == 64 {
            break;
        }
        let hash = requests.pop_front().expect("the peer is asked for the next block in time");
        let height = world.client.chain().height_of(&hash).unwrap();
        let block = NetworkMessage::Block(chain.at(height).unwrap().block.clone());
        handle(&mut world, &mut requests, Event::Message(FIRST, block));
    }
    assert_eq!(seconds, 65);
}

#[test]
fn a_clock_that_is_behind_is_told_of_and_ends_no_connection() {
    for protocol in BOTH {
        let mut chain = mined(5);
        let right = Duration::from_secs(chain.tip().block.header.time.into());
        let wallets = [("a", wallet(&[script(1)], 0))];
        let nodes = [Node::new(&chain, None), Node::new(&chain, None)];
        let mut world = World::new(config(protocol), &wallets, &nodes);
        world.run();
        // A header may be at most two hours ahead of the clock.
        world.now = right.checked_sub(Duration::from_hours(2)).unwrap();
        chain.mine(&script(1), &[]);
        for place in 0..2 {
            world.switch(place, &chain, true);
        }
        for _ in 0..20 {
            world.step();
        }
        assert_eq!((world.client.chain().tip().height, world.client.is_caught_up()), (5, false));
        assert_eq!(world.updates().iter().filter(|it| is_clock_behind(it)).count(), 1);
        world.now = right;
        world.tick(600_000);
        world.run();
        assert_eq!(world.client.settled_to(), Some(6));
        assert_eq!((world.dropped.len(), world.banned.len()), (0, 0));
        assert_eq!(world.updates().iter().filter(|it| is_clock_behind(it)).count(), 0);
    }
}

#[test]
fn without_a_timeout_it_comes_to_an_end() {
    for protocol in BOTH {
        let chain = mined(5);
        let mut config = config(protocol);
        config.timeout = Duration::MAX;
        let wallets = [("a", wallet(&[script(8)], 0))];
        let nodes = [Node::new(&chain, None), Node::new(&chain, None)];
        let mut world = World::new(config, &wallets, &nodes);
        world.run();
        world.tick(u64::from(u32::MAX));
        assert_eq!((world.client.settled_to(), world.dropped.len()), (Some(5), 0));
    }
}

/// The reader of the updates is slow for an hour, during which no message of a peer is read.
#[test]
fn nobody_is_overdue_through_a_pause() {
    for protocol in BOTH {
        let chain = mined(5);
        let wallets = [("a", wallet(&[script(8)], 0))];
        let nodes = [Node::new(&chain, None)];
        for steps in 0..12 {
            let mut world = World::new(config(protocol), &wallets, &nodes);
            for _ in 0..steps {
                world.step();
            }
            world.handle(Event::GetBlock(chain.at(4).unwrap().hash));
            let hour = Duration::from_hours(1);
            world.now += hour;
            world.handle(Event::Paused(hour));
            world.run();
            assert_eq!(world.dropped, [], "{protocol:?} after {steps}");
        }
    }
}

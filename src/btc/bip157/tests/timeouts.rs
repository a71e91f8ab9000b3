//! Tests with peers that answer late or never.

use core::time::Duration;

use bitcoin::p2p::message::NetworkMessage;

use super::world::{Node, TestChain, World, blocks_of};
use crate::btc::bip157::{Action, Event, Finding, Reason};
use crate::btc::peer::{Grade, PeerId};

fn mute(chain: &TestChain, mute: fn(&NetworkMessage) -> bool) -> Node {
    Node { mute, ..Node::honest(chain) }
}

/// Whatever kind of request a peer does not answer, another peer takes over, and nothing is lost.
#[test]
fn others_take_over() {
    let chain = TestChain::new(2_100);
    let mutes: [fn(&NetworkMessage) -> bool; 5] = [
        |_| true,
        |message| matches!(message, NetworkMessage::GetCFCheckpt(_)),
        |message| matches!(message, NetworkMessage::GetCFHeaders(_)),
        |message| matches!(message, NetworkMessage::GetCFilters(_)),
        |message| matches!(message, NetworkMessage::GetData(_)),
    ];
    for silence in mutes {
        let mut world = World::new(&chain, World::config());
        world.connect(1, mute(&chain, silence));
        world.connect(2, Node::honest(&chain));
        world.settle();
        for _ in 0..5 {
            world.wait(20);
        }
        world.assert_complete(&chain);
        let slow = |finding: &Finding| matches!(finding, Finding::Slow(PeerId(1), _));
        assert!(world.findings().iter().any(slow));
        assert_eq!(world.reasons(), []);
        for _ in 0..10 {
            world.wait(50);
        }
        assert!(matches!(world.reasons()[..], [(PeerId(1), Reason::Stalled(_))]));
        world.assert_complete(&chain);
    }
}

/// If the only peer does not answer, no height is answered.
#[test]
fn silence_is_no_answer() {
    let chain = TestChain::new(100);
    let mut world = World::new(&chain, World::config());
    world.connect(1, mute(&chain, |message| matches!(message, NetworkMessage::GetCFilters(_))));
    world.settle();
    for _ in 0..20 {
        world.wait(20);
    }
    assert_eq!(world.sync.answered_to(), Some(0));
    assert_eq!(world.known.len(), 1);
}

/// A late answer is used like any other.
#[test]
fn late_answers_count() {
    let chain = TestChain::new(1_100);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    world.connect(2, Node::honest(&chain));
    let mut late = vec![];
    while let Some((peer, message)) = world.queue.pop_front() {
        if peer == PeerId(1) {
            late.push(message);
            continue;
        }
        for event in world.nodes[&peer].clone().answer(peer, &message) {
            world.event(event);
        }
    }
    for _ in 0..4 {
        world.wait(20);
    }
    world.assert_complete(&chain);
    assert_eq!(world.grade(1), Some(Grade::OnePeer));
    for message in late {
        for event in world.nodes[&PeerId(1)].clone().answer(PeerId(1), &message) {
            world.event(event);
        }
    }
    world.settle();
    assert_eq!(world.reasons(), []);
    assert_eq!(world.grade(1), Some(Grade::Peers(2)));
}

/// A request for 1,000 filters may take longer than a request for headers, as long as filters keep
/// arriving.
#[test]
fn filters_may_take_their_time() {
    let chain = TestChain::new(990);
    let mut world = World::new(&chain, World::config());
    world.connect(1, Node::honest(&chain));
    let (peer, message) = world.queue.pop_front().unwrap();
    for event in world.nodes[&peer].clone().answer(peer, &message) {
        world.event(event);
    }
    let (peer, message) = world.queue.pop_front().unwrap();
    assert!(matches!(message, NetworkMessage::GetCFilters(_)));
    let mut events = world.nodes[&peer].clone().answer(peer, &message).into_iter();
    let mut late_at = None;
    for (count, event) in events.by_ref().enumerate() {
        world.now += Duration::from_millis(500);
        world.event(event);
        if late_at.is_none() && !world.findings().is_empty() {
            late_at = Some(count);
        }
        world.settle();
    }
    // With 500 ms per filter, ten timeouts of 30 s have passed after 600 filters.
    assert!(late_at.is_some_and(|count| (590..610).contains(&count)), "{late_at:?}");
    world.assert_complete(&chain);
}

/// After the clock was set back, waiting continues for a full timeout.
#[test]
fn a_clock_set_back() {
    let chain = TestChain::new(100);
    let mut world = World::new(&chain, World::config());
    world.now = Duration::from_secs(1_000_000);
    world.connect(1, mute(&chain, |_| true));
    world.now = Duration::ZERO;
    world.wait(0);
    world.wait(29);
    assert_eq!(world.findings(), []);
    world.wait(3);
    assert_eq!(world.findings(), [Finding::Slow(PeerId(1), Duration::from_secs(2))]);
}

/// Fetches all wanted blocks from one peer, which takes the time `every` for each block. Returns
/// the maximum number of blocks in flight, and the maximum number requested in one message.
fn fetch(world: &mut World, chain: &TestChain, every: Duration) -> (usize, usize) {
    let mut in_flight = std::collections::VecDeque::new();
    let (mut most, mut most_at_once) = (0, 0);
    loop {
        while let Some((peer, message)) = world.queue.pop_front() {
            if let NetworkMessage::GetData(items) = message {
                most_at_once = items.len().max(most_at_once);
                in_flight.extend(blocks_of(&items));
                most = in_flight.len().max(most);
                continue;
            }
            for event in world.nodes[&peer].clone().answer(peer, &message) {
                world.event(event);
            }
        }
        let Some(hash) = in_flight.pop_front() else { return (most, most_at_once) };
        world.now += every;
        let height = world.headers.height_of(&hash).unwrap() as usize;
        let block = Box::new(chain.blocks[height].clone());
        world.event(Event::Block(Some(PeerId(1)), block));
        world.event(Event::Tick);
    }
}

/// A history of many small blocks does not wait for one round trip per block. If the peer sends
/// blocks fast enough, the last blocks do not become overdue.
#[test]
fn many_small_blocks_are_in_flight() {
    let chain = TestChain::new(2_900);
    for (millis, is_slow) in [(1, false), (3_000, false), (4_900, true)] {
        let mut world = World::new(&chain, World::config());
        world.connect(1, Node::honest(&chain));
        let found = fetch(&mut world, &chain, Duration::from_millis(millis));
        // More blocks are requested once half of them have arrived.
        assert!(found.0 == 64 && (24..=40).contains(&found.1), "{found:?}");
        let messages = world.sent(|message| matches!(message, NetworkMessage::GetData(_)));
        let blocks = chain.truth().len();
        // Four blocks are in flight at first. The number grows as the estimated block size falls.
        assert!(messages < 30 + blocks / 32, "{messages} for {blocks}");
        assert_eq!(world.findings().is_empty(), !is_slow, "{millis} ms: {:?}", world.findings());
        world.assert_complete(&chain);
    }
}

/// A block that a peer leaves out, while it sends later blocks, becomes overdue.
#[test]
fn a_block_left_out_is_overdue() {
    let chain = TestChain::new(600);
    let mut world = World::new(&chain, World::config());
    let without = chain.clone();
    let left_out = chain.hash(205);
    let node = Node::honest(&without);
    let twist = move |events: &mut Vec<Event>| {
        events.retain(
            |event| !matches!(event, Event::Block(_, block) if block.block_hash() == left_out),
        );
    };
    world.connect(1, Node { twist: Some(std::rc::Rc::new(twist)), ..node });
    world.settle();
    let waits = Some(chain.at(205).height);
    assert_eq!(world.sync.first_awaited(), waits);
    world.connect(2, Node::honest(&chain));
    world.settle();
    assert_eq!(world.sync.first_awaited(), waits);
    for _ in 0..10 {
        world.wait(30);
    }
    world.assert_complete(&chain);
}

#[test]
fn nobody_has_the_block() {
    let chain = TestChain::new(30);
    let mut world = World::new(&chain, World::config());
    let node = mute(&chain, |message| matches!(message, NetworkMessage::GetData(_)));
    world.connect(1, node);
    world.settle();
    let wanted: Vec<_> = world
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(_, NetworkMessage::GetData(items)) => Some(blocks_of(items)),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(wanted.len(), 4, "four full blocks are the limit at first");
    for hash in wanted {
        world.event(Event::BlockUnavailable(PeerId(1), hash));
    }
    assert_eq!(world.findings()[0], Finding::BlockUnavailable(chain.at(5)));
    // The block arrives from another source of the caller, and then from another peer.
    world.event(Event::Block(None, Box::new(chain.blocks[5].clone())));
    assert!(world.hits.contains(&5));
    world.connect(2, Node::honest(&chain));
    world.settle();
    world.wait(31);
    world.assert_complete(&chain);
    let unavailable = |finding: &&Finding| matches!(finding, Finding::BlockUnavailable(_));
    assert_eq!(world.findings().iter().filter(unavailable).count(), 4);
}

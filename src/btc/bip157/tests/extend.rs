//! Tests of extending the wanted heights down.

use bitcoin::p2p::message::NetworkMessage;

use super::world::{Node, TestChain, World};
use crate::btc::bip157::{Action, Event, FilterSync, Reason, ScanReason};
use crate::btc::peer::{Grade, PeerId};

fn from(chain: &TestChain, first: u32) -> World {
    let mut config = World::config();
    config.first = first;
    World::new(chain, config)
}

/// Returns the heights that were requested in `getcfilters`.
fn asked(world: &World) -> Vec<u32> {
    let range = |action: &Action| match action {
        Action::Send(_, NetworkMessage::GetCFilters(message)) => {
            let stop = world.headers.height_of(&message.stop_hash)?;
            Some(message.start_height..=stop)
        }
        _ => None,
    };
    let mut heights: Vec<_> = world.actions.iter().filter_map(range).flatten().collect();
    heights.sort_unstable();
    heights
}

#[test]
fn an_earlier_birthday() {
    let chain = TestChain::new(3_400);
    // The extensions stay within one interval, reach the start of another, cross several intervals,
    // or reach the genesis block.
    for (first, lower) in [(2_500, 2_200), (2_500, 2_001), (2_001, 1_001), (3_100, 700), (1_500, 0)]
    {
        let mut world = from(&chain, first);
        for id in 1..=2 {
            world.connect(id, Node::honest(&chain));
        }
        world.settle();
        assert_eq!(world.sync.settled_to(), Some(3_400));
        let blocks = world.scanned(ScanReason::Matched).len();
        world.actions.clear();
        world.event(Event::Extend(lower));
        // Heights above the old interval are neither reopened nor requested again.
        let around = first.div_ceil(1_000) * 1_000;
        assert!(world.reopened.iter().all(|height| (first..=around).contains(height)), "{first}");
        assert_eq!(world.sync.settled_to(), if lower == 0 { Some(0) } else { None });
        assert_eq!(world.grade(3_301), (around < 3_301).then_some(Grade::Peers(2)));
        assert_eq!(world.sync.first(), lower);
        world.settle();
        assert_eq!(asked(&world), (lower.max(1)..first).collect::<Vec<_>>(), "{first}, {lower}");
        assert_eq!(world.sync.settled_to(), Some(3_400));
        assert!(world.known.keys().copied().eq(lower..=3_400));
        let truth: Vec<_> = chain.truth().range(lower..).copied().collect();
        assert!(world.hits.iter().eq(&truth) && world.reopened.is_empty());
        let new = chain.truth().range(lower..first).count();
        assert_eq!(world.scanned(ScanReason::Matched).len(), new);
        assert!(blocks > 0 && world.reasons().is_empty());
        for height in [lower.max(1), first, 3_391] {
            let height = height / 10 * 10 + 1;
            assert_eq!(world.grade(height), Some(Grade::Peers(2)), "{height}");
        }
        // Extending to the same height again, or to a higher height, has no effect.
        world.actions.clear();
        world.event(Event::Extend(lower));
        world.event(Event::Extend(first));
        assert_eq!(world.actions, []);
    }
}

/// A lie below the first height wanted is not noticed until that height is wanted.
#[test]
fn a_lie_below_comes_to_light() {
    let chain = TestChain::new(1_900);
    for honest_first in [true, false] {
        let mut world = from(&chain, 1_600);
        // The liar hides the wallet's output at height 1,205, and the block proves the lie.
        let liar = Node::lying(&chain, &[(1_205, vec![0])]);
        let honest = Node::honest(&chain);
        let nodes = if honest_first { [honest, liar] } else { [liar, honest] };
        for (id, node) in (1..).zip(nodes) {
            world.connect(id, node);
        }
        world.settle();
        assert_eq!((world.sync.settled_to(), world.reasons()), (Some(1_900), vec![]));
        world.event(Event::Extend(1_100));
        world.settle();
        assert_eq!(world.sync.settled_to(), Some(1_900));
        let truth: Vec<_> = chain.truth().range(1_100..).copied().collect();
        assert!(world.hits.iter().eq(&truth) && world.reopened.is_empty());
        let id = PeerId(if honest_first { 2 } else { 1 });
        let [(liar, Reason::FalseFilter(_))] = &world.reasons()[..] else {
            panic!("{:?}", world.reasons())
        };
        assert_eq!(*liar, id);
    }
}

/// Extensions work at any moment: with requests open, and with blocks pending.
#[test]
fn in_the_middle_of_everything() {
    let chain = TestChain::new(2_300);
    for step in 0..12 {
        let mut world = from(&chain, 1_500);
        for id in 1..=2 {
            world.connect(id, Node::honest(&chain));
        }
        for _ in 0..step {
            let Some((peer, message)) = world.queue.pop_front() else { break };
            for event in world.nodes[&peer].clone().answer(peer, &message) {
                world.event(event);
            }
        }
        world.event(Event::Extend(400));
        world.settle();
        assert_eq!(world.sync.settled_to(), Some(2_300), "{step}");
        let truth: Vec<_> = chain.truth().range(400..).copied().collect();
        assert!(world.hits.iter().eq(&truth), "{step}");
        assert_eq!(world.reasons(), [], "{step}");
    }
}

/// If a run ends before the lower heights have claims, the state of the heights above is kept.
#[test]
fn it_is_kept() {
    let chain = TestChain::new(3_400);
    let mut world = from(&chain, 2_500);
    world.connect(1, Node::honest(&chain));
    world.settle();
    world.leave(1);
    world.event(Event::Extend(700));
    assert_eq!(world.grade(3_301), Some(Grade::OnePeer));
    let bytes = world.sync.encode(&world.headers);
    let config = world.sync.config.clone();
    assert_eq!(world.sync.first(), 700);
    world.sync = FilterSync::restore(config, &world.headers, &bytes).unwrap();
    assert_eq!(world.sync.encode(&world.headers), bytes);
    assert_eq!(world.grade(3_301), Some(Grade::OnePeer));
    world.actions.clear();
    world.queue.clear();
    world.connect(2, Node::honest(&chain));
    world.settle();
    assert!(asked(&world).into_iter().eq(700..2_500), "{:?}", asked(&world));
    assert_eq!(world.sync.settled_to(), Some(3_400));
    let truth: Vec<_> = chain.truth().range(700..).copied().collect();
    assert!(world.hits.iter().eq(&truth));
}

/// Nothing above the last height wanted is requested or answered, whatever the chain does.
#[test]
fn a_last_height() {
    let chain = TestChain::new(2_050);
    for last in [999, 1_000, 1_001, 1_700, 2_050, 2_060] {
        let mut config = World::config();
        (config.first, config.last) = (300, Some(last));
        let mut world = World::new(&chain, config);
        for id in 1..=2 {
            world.connect(id, Node::honest(&chain));
        }
        world.settle();
        assert_eq!(world.sync.settled_to(), Some(last.min(2_050)));
        // The chain grows by ten blocks. Then a reorganisation replaces blocks across the last
        // height.
        let longer = {
            let mut longer = chain.clone();
            longer.grow(10, 1);
            longer
        };
        let fork = longer.fork(last.min(2_050) - 20, 3);
        for chain in [&longer, &fork] {
            world.move_to(chain);
            for id in 1..=2 {
                world.nodes.get_mut(&PeerId(id)).unwrap().chain = (*chain).clone();
                world.event(Event::PeerTip(PeerId(id), chain.hash(chain.tip())));
            }
            world.settle();
            assert_eq!(world.sync.settled_to(), Some(last), "{last}");
            assert!(world.known.keys().copied().eq(300..=last), "{last}");
            let truth: Vec<_> = chain.truth().range(300..=last).copied().collect();
            assert!(world.hits.iter().eq(&truth), "{last}");
        }
        world.event(Event::Extend(5));
        world.settle();
        assert_eq!(world.sync.settled_to(), Some(last));
        assert!(world.known.keys().copied().eq(5..=last), "{last}");
        assert!(asked(&world).last() <= Some(&last) && world.reasons().is_empty());
    }
}

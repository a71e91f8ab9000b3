//! Peers that are honest, slow, behind, on other branches, and none of these.

use std::collections::BTreeMap;

use chainsieve::bitcoin::Network;

use super::super::mined::{self, UNIX};
use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// Peers with a chain each, which they answer from as Core does.
struct World {
    chain: HeaderChain,
    sync: HeaderSync,
    peers: BTreeMap<PeerId, HeaderChain>,
    /// Peers that are asked and say nothing.
    silent: Vec<PeerId>,
    now: Duration,
    asked: BTreeMap<PeerId, u32>,
    /// Steps other than asking.
    verdicts: Vec<Step>,
}

fn chain(headers: &[&[Header]]) -> HeaderChain {
    let mut chain = HeaderChain::new(Network::Regtest);
    for headers in headers {
        chain.accept(headers, UNIX).unwrap();
    }
    chain
}

fn genesis() -> Header {
    *HeaderChain::new(Network::Regtest).header_at(0).unwrap()
}

impl World {
    fn new() -> Self {
        Self {
            chain: HeaderChain::new(Network::Regtest),
            sync: HeaderSync::new(PATIENCE),
            peers: BTreeMap::new(),
            silent: Vec::new(),
            now: Duration::ZERO,
            asked: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    fn add(&mut self, id: u64, chain: HeaderChain) {
        self.sync.connected(PeerId(id), chain.tip().height);
        self.peers.insert(PeerId(id), chain);
    }

    fn take(&mut self, id: PeerId, headers: &[Header]) -> Outcome {
        let outcome = self.sync.take(&mut self.chain, id, headers, UNIX);
        if let Some(step) = &outcome.step {
            self.verdicts.push(step.clone());
            self.sync.disconnected(id);
            self.peers.remove(&id);
        }
        outcome
    }

    /// Asks and answers until nothing is left to ask.
    fn run(&mut self) {
        for _ in 0..10_000 {
            let steps = self.sync.next(&self.chain, self.now);
            if steps.is_empty() {
                return;
            }
            for step in steps {
                match step {
                    Step::Ask(id, locator) => {
                        *self.asked.entry(id).or_default() += 1;
                        if self.silent.contains(&id) {
                            continue;
                        }
                        let stop = BlockHash::from_raw_hash(
                            chainsieve::bitcoin::hashes::Hash::all_zeros(),
                        );
                        let Some(peer) = self.peers.get(&id) else { continue };
                        let answer = peer.headers_after(&locator, stop).to_vec();
                        self.take(id, &answer);
                    }
                    verdict => {
                        if let Step::Drop(id, _) | Step::Ban(id, _) = &verdict {
                            self.peers.remove(id);
                        }
                        self.verdicts.push(verdict);
                    }
                }
            }
        }
        panic!("it does not come to an end");
    }
}

#[test]
fn one_peer_at_a_time_until_one_has_told_all() {
    let all = mined::headers(&genesis(), 4_500, 1);
    let mut world = World::new();
    world.add(1, chain(&[&all[..3_000]]));
    world.add(2, chain(&[&all]));
    world.run();
    assert_eq!(world.chain.tip().height, 4_500);
    assert!(world.sync.is_caught_up());
    // The one that claims more, three times; the other once, for what it has beyond.
    assert_eq!(world.asked, BTreeMap::from([(PeerId(1), 1), (PeerId(2), 3)]));
    let shown: BTreeMap<_, _> = world.sync.shown().collect();
    assert_eq!(shown[&PeerId(2)], world.chain.tip().hash);
    assert_eq!(world.verdicts, []);
}

#[test]
fn who_says_nothing_is_passed_over_and_then_dropped() {
    let all = mined::headers(&genesis(), 2_100, 1);
    let mut world = World::new();
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all[..2_050]]));
    world.silent = vec![PeerId(1)];
    world.run();
    assert_eq!((world.chain.tip().height, world.sync.is_caught_up()), (0, false));
    world.now = PATIENCE + Duration::from_secs(1);
    world.run();
    assert_eq!((world.chain.tip().height, world.sync.is_caught_up()), (2_050, false));
    world.now = 2 * PATIENCE + Duration::from_secs(1);
    world.run();
    assert_eq!(world.verdicts, [Step::Drop(PeerId(1), "no headers for 60 seconds".into())]);
    assert!(world.sync.is_caught_up());
}

#[test]
fn who_has_nothing_beyond_need_not_say_so() {
    let all = mined::headers(&genesis(), 20, 1);
    let mut world = World::new();
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all]));
    world.silent = vec![PeerId(2)];
    world.run();
    assert!(!world.sync.is_caught_up());
    for _ in 0..3 {
        world.now += PATIENCE + Duration::from_secs(1);
        world.run();
        assert!(world.sync.is_caught_up());
    }
    assert_eq!(world.verdicts, []);
}

#[test]
fn the_branch_with_most_work_wins_whoever_comes_first() {
    let short = mined::headers(&genesis(), 2_100, 1);
    let long = mined::headers(&genesis(), 4_200, 2);
    for order in [[1, 2], [2, 1]] {
        let mut world = World::new();
        world.add(order[0], chain(&[&short]));
        world.run();
        world.add(order[1], chain(&[&long]));
        world.run();
        assert_eq!(world.chain.tip().hash, long.last().unwrap().block_hash());
        assert!(world.sync.is_caught_up());
        assert_eq!(world.verdicts, []);
    }
}

#[test]
fn a_long_branch_gets_in_where_there_is_no_room_on_the_side() {
    let short = mined::headers(&genesis(), 2_100, 1);
    let long = mined::headers(&genesis(), 4_200, 2);
    let mut world = World::new();
    world.chain = HeaderChain::new(Network::Regtest).with_side_limit(100);
    world.add(1, chain(&[&short]));
    world.run();
    world.add(2, chain(&[&long]));
    world.add(3, chain(&[&long[..3_000]]));
    world.run();
    assert_eq!(world.chain.tip().hash, long.last().unwrap().block_hash());
    assert!(world.sync.is_caught_up());
    assert_eq!(world.verdicts, []);
}

#[test]
fn a_weak_branch_without_room_ends_with_the_peer() {
    let long = mined::headers(&genesis(), 4_200, 2);
    let mut world = World::new();
    world.chain = HeaderChain::new(Network::Regtest).with_side_limit(100);
    world.add(1, chain(&[&long]));
    world.run();
    world.add(2, chain(&[&mined::headers(&genesis(), 2_500, 1)]));
    world.run();
    assert_eq!(world.chain.tip().hash, long.last().unwrap().block_hash());
    let why = "a branch of 2500 headers with less work";
    assert_eq!(world.verdicts, [Step::Drop(PeerId(2), why.into())]);
}

#[test]
fn invalid_headers_and_those_that_do_not_link_end_in_a_ban() {
    let all = mined::headers(&genesis(), 5, 1);
    let mut bad = all.clone();
    bad[3].bits = chainsieve::bitcoin::CompactTarget::from_consensus(0x1d00_ffff);
    let mut gap = all;
    gap.remove(2);
    let long = mined::headers(&genesis(), MAX_HEADERS + 1, 1);
    for (headers, why) in [
        (bad[..4].to_vec(), "invalid header"),
        (gap, "headers that do not build on each other"),
        (long, "2001 headers in one message, the limit is 2000"),
    ] {
        let mut world = World::new();
        world.add(1, chain(&[]));
        world.take(PeerId(1), &headers);
        let [Step::Ban(PeerId(1), text)] = world.verdicts.as_slice() else {
            panic!("{:?}", world.verdicts)
        };
        assert!(text.starts_with(why), "{text}");
    }
}

#[test]
fn good_headers_before_a_bad_one_are_kept_with_their_events() {
    let mut headers = mined::headers(&genesis(), 5, 1);
    headers[4].time = 0;
    while headers[4].validate_pow(headers[4].target()).is_err() {
        headers[4].nonce += 1;
    }
    let mut world = World::new();
    world.add(1, chain(&[]));
    let outcome = world.take(PeerId(1), &headers);
    assert_eq!((outcome.events.len(), world.chain.tip().height), (4, 4));
    assert!(matches!(outcome.step, Some(Step::Ban(..))), "{:?}", outcome.step);
}

#[test]
fn an_announcement_on_an_unknown_block_has_its_peer_asked() {
    let all = mined::headers(&genesis(), 20, 1);
    let mut world = World::new();
    world.add(1, chain(&[&all[..10]]));
    world.run();
    assert!(world.sync.is_caught_up());
    world.peers.insert(PeerId(1), chain(&[&all]));
    let outcome = world.take(PeerId(1), &all[19..]);
    assert!(outcome.events.is_empty() && outcome.step.is_none());
    assert!(!world.sync.is_caught_up());
    world.run();
    assert_eq!(world.chain.tip().height, 20);
    // The same by inv.
    let more = mined::headers(&all[19], 1, 1);
    world.peers.insert(PeerId(1), chain(&[&all, &more]));
    let hash = more[0].block_hash();
    assert_eq!(world.sync.announced(&world.chain, PeerId(1), hash), None);
    world.run();
    assert_eq!(world.sync.announced(&world.chain, PeerId(1), hash), Some(hash));
    // But not for ever.
    let stray = mined::headers(&mined::headers(&genesis(), 1, 9)[0], 1, 9);
    for _ in 0..=MAX_UNCONNECTED {
        world.take(PeerId(1), &stray);
    }
    assert!(matches!(world.verdicts.as_slice(), [Step::Ban(PeerId(1), _)]));
}

#[test]
fn a_header_from_the_future_may_be_our_clock() {
    let headers = mined::headers(&genesis(), 1, 1);
    let mut world = World::new();
    world.add(1, chain(&[]));
    let early = headers[0].time - 7_201;
    let outcome = world.sync.take(&mut world.chain, PeerId(1), &headers, early);
    assert!(matches!(outcome.step, Some(Step::Drop(..))), "{:?}", outcome.step);
}

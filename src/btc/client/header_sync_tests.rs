//! Peers that are honest, slow, behind, on other branches, and none of these.

use std::collections::VecDeque;

use bitcoin::block::Version;
use bitcoin::hashes::Hash as _;
use bitcoin::{CompactTarget, Network, TxMerkleNode};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);
/// A time after that of every header made here.
const UNIX: u32 = 1_700_000_000;

/// Headers on top of another, of two tries each; those of different branches differ.
fn mine(parent: &Header, count: usize, branch: u8) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::with_capacity(count);
    for _ in 0..count {
        let parent = headers.last().unwrap_or(parent);
        let mut header = Header {
            version: Version::from_consensus(0x2000_0000),
            prev_blockhash: parent.block_hash(),
            merkle_root: TxMerkleNode::from_byte_array([branch; 32]),
            time: parent.time + 1,
            bits: CompactTarget::from_consensus(0x207f_ffff),
            nonce: 0,
        };
        prove(&mut header);
        headers.push(header);
    }
    headers
}

fn prove(header: &mut Header) {
    while header.validate_pow(header.target()).is_err() {
        header.nonce += 1;
    }
}

/// Peers with a chain each, which they answer from as Core does.
struct World {
    sync: HeaderSync,
    peers: BTreeMap<PeerId, HeaderChain>,
    /// Peers that are asked and say nothing.
    silent: Vec<PeerId>,
    now: Duration,
    asked: BTreeMap<PeerId, u32>,
    questions: VecDeque<(PeerId, Vec<BlockHash>)>,
    dropped: Vec<(PeerId, Reason)>,
    /// Blocks that entered or left the chain.
    changes: usize,
    shown: Vec<(PeerId, BlockHash)>,
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
    fn new(chain: HeaderChain) -> Self {
        Self {
            sync: HeaderSync::new(chain, TIMEOUT),
            peers: BTreeMap::new(),
            silent: Vec::new(),
            now: Duration::from_secs(UNIX.into()),
            asked: BTreeMap::new(),
            questions: VecDeque::new(),
            dropped: Vec::new(),
            changes: 0,
            shown: Vec::new(),
        }
    }

    fn fresh() -> Self {
        Self::new(HeaderChain::new(Network::Regtest))
    }

    fn add(&mut self, id: u64, chain: HeaderChain) {
        let height = chain.tip().height;
        self.peers.insert(PeerId(id), chain);
        self.handle(Event::Connected(PeerId(id), height));
    }

    fn handle(&mut self, event: Event<'_>) {
        for action in self.sync.handle(event, self.now) {
            match action {
                Action::Ask(id, locator) => {
                    *self.asked.entry(id).or_default() += 1;
                    self.questions.push_back((id, locator));
                }
                Action::Disconnect(id, reason) => {
                    self.peers.remove(&id);
                    self.dropped.push((id, reason));
                }
                Action::Changed(events) => {
                    assert!(!events.is_empty());
                    self.changes += events.len();
                }
                Action::Shown(id, hash) => self.shown.push((id, hash)),
            }
        }
    }

    fn take(&mut self, id: u64, headers: &[Header]) {
        self.handle(Event::Headers(PeerId(id), headers));
    }

    /// Answers until nothing is left to answer.
    fn run(&mut self) {
        self.handle(Event::Tick);
        for _ in 0..10_000 {
            let Some((id, locator)) = self.questions.pop_front() else { return };
            let Some(peer) = self.peers.get(&id).filter(|_| !self.silent.contains(&id)) else {
                continue;
            };
            let answer = peer.headers_after(&locator, BlockHash::all_zeros()).to_vec();
            self.handle(Event::Headers(id, &answer));
        }
        panic!("it does not come to an end");
    }

    fn tip(&self) -> BlockHash {
        self.sync.chain().tip().hash
    }

    fn height(&self) -> u32 {
        self.sync.chain().tip().height
    }
}

#[test]
fn one_peer_at_a_time_until_one_has_told_all() {
    let all = mine(&genesis(), 4_500, 1);
    let mut world = World::fresh();
    // Both are there before one is asked.
    world.peers.insert(PeerId(2), chain(&[&all]));
    world.handle(Event::Connected(PeerId(2), 4_500));
    world.add(1, chain(&[&all[..3_000]]));
    world.run();
    assert_eq!(world.height(), 4_500);
    assert!(world.sync.is_caught_up());
    // The one that claims more, three times; the other once, for what it has beyond.
    assert_eq!(world.asked, BTreeMap::from([(PeerId(1), 1), (PeerId(2), 3)]));
    let shown: BTreeMap<_, _> = world.sync.shown().collect();
    assert_eq!(shown[&PeerId(2)], world.tip());
    assert_eq!((world.dropped.len(), world.changes), (0, 4_500));
}

#[test]
fn who_says_nothing_is_passed_over_and_then_dropped() {
    let all = mine(&genesis(), 2_100, 1);
    let start = Duration::from_secs(UNIX.into());
    let mut world = World::fresh();
    world.silent = std::vec![PeerId(1)];
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all[..2_050]]));
    world.run();
    assert_eq!((world.height(), world.sync.is_caught_up()), (0, false));
    world.now = start + TIMEOUT + Duration::from_secs(1);
    world.run();
    assert_eq!((world.height(), world.sync.is_caught_up()), (2_050, false));
    world.now = start + 2 * TIMEOUT + Duration::from_secs(1);
    world.run();
    assert_eq!(world.dropped, [(PeerId(1), Reason::Stalled(2 * TIMEOUT))]);
    assert!(!world.dropped[0].1.is_misbehaviour());
    assert_eq!(world.dropped[0].1.to_string(), "no headers for 60 seconds");
    assert!(world.sync.is_caught_up());
}

#[test]
fn who_has_nothing_beyond_need_not_say_so() {
    let all = mine(&genesis(), 20, 1);
    let mut world = World::fresh();
    world.silent = std::vec![PeerId(2)];
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all]));
    world.run();
    assert!(!world.sync.is_caught_up());
    for _ in 0..3 {
        world.now += TIMEOUT + Duration::from_secs(1);
        world.run();
        assert!(world.sync.is_caught_up());
    }
    assert_eq!(world.dropped, []);
}

#[test]
fn the_branch_with_most_work_wins_whoever_comes_first() {
    let short = mine(&genesis(), 2_100, 1);
    let long = mine(&genesis(), 4_200, 2);
    for order in [[&short, &long], [&long, &short]] {
        let mut world = World::fresh();
        world.add(1, chain(&[order[0]]));
        world.run();
        world.add(2, chain(&[order[1]]));
        world.run();
        assert_eq!(world.tip(), long.last().unwrap().block_hash());
        assert!(world.sync.is_caught_up());
        assert_eq!(world.dropped, []);
    }
}

#[test]
fn a_long_branch_gets_in_where_there_is_no_room_on_the_side() {
    let short = mine(&genesis(), 2_100, 1);
    let long = mine(&genesis(), 4_200, 2);
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.add(1, chain(&[&short]));
    world.run();
    world.add(2, chain(&[&long]));
    world.add(3, chain(&[&long[..3_000]]));
    world.run();
    assert_eq!(world.tip(), long.last().unwrap().block_hash());
    assert!(world.sync.is_caught_up());
    assert_eq!(world.dropped, []);
}

#[test]
fn a_weak_branch_without_room_ends_with_the_peer() {
    let long = mine(&genesis(), 4_200, 2);
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.add(1, chain(&[&long]));
    world.run();
    world.add(2, chain(&[&mine(&genesis(), 2_500, 1)]));
    world.run();
    assert_eq!(world.tip(), long.last().unwrap().block_hash());
    assert_eq!(world.dropped, [(PeerId(2), Reason::LessWork(2_500))]);
    let why = "a branch of 2500 headers with less work than the chain";
    assert_eq!(world.dropped[0].1.to_string(), why);
    assert!(!world.dropped[0].1.is_misbehaviour());
}

#[test]
fn invalid_headers_and_those_that_do_not_link_end_in_a_ban() {
    let all = mine(&genesis(), 5, 1);
    let mut bad = all.clone();
    bad[3].bits = CompactTarget::from_consensus(0x1d00_ffff);
    let mut gap = all;
    gap.remove(2);
    let long = mine(&genesis(), MAX_HEADERS + 1, 1);
    for (headers, why) in [
        (bad[..4].to_vec(), "invalid header"),
        (gap, "headers that do not build on each other"),
        (long, "2001 headers in one message, the limit is 2000"),
    ] {
        let mut world = World::fresh();
        world.add(1, chain(&[]));
        world.take(1, &headers);
        let [(PeerId(1), reason)] = world.dropped.as_slice() else { panic!("{:?}", world.dropped) };
        assert!(reason.is_misbehaviour() && reason.to_string().starts_with(why), "{reason}");
    }
}

#[test]
fn good_headers_before_a_bad_one_are_kept_with_their_events() {
    let mut headers = mine(&genesis(), 5, 1);
    headers[4].time = 0;
    prove(&mut headers[4]);
    let mut world = World::fresh();
    world.add(1, chain(&[]));
    world.take(1, &headers);
    assert_eq!((world.changes, world.height()), (4, 4));
    assert!(matches!(world.dropped.as_slice(), [(_, reason)] if reason.is_misbehaviour()));
}

#[test]
fn an_announcement_on_an_unknown_block_has_its_peer_asked() {
    let all = mine(&genesis(), 20, 1);
    let mut world = World::fresh();
    world.add(1, chain(&[&all[..10]]));
    world.run();
    assert!(world.sync.is_caught_up());
    world.peers.insert(PeerId(1), chain(&[&all]));
    let changes = world.changes;
    world.take(1, &all[19..]);
    assert_eq!((world.changes, world.dropped.len()), (changes, 0));
    assert!(!world.sync.is_caught_up());
    world.run();
    assert_eq!(world.height(), 20);
    // The same by inv.
    let more = mine(&all[19], 1, 1);
    world.peers.insert(PeerId(1), chain(&[&all, &more]));
    let hash = more[0].block_hash();
    world.shown.clear();
    world.handle(Event::Announced(PeerId(1), hash));
    assert_eq!(world.shown, []);
    world.run();
    world.shown.clear();
    world.handle(Event::Announced(PeerId(1), hash));
    assert_eq!(world.shown, [(PeerId(1), hash)]);
    // But not for ever.
    let stray = mine(&mine(&genesis(), 1, 9)[0], 1, 9);
    for _ in 0..=MAX_UNCONNECTED {
        world.take(1, &stray);
    }
    assert!(matches!(world.dropped.as_slice(), [(PeerId(1), reason)] if reason.is_misbehaviour()));
}

#[test]
fn a_header_from_the_future_may_be_our_clock() {
    let headers = mine(&genesis(), 1, 1);
    let mut world = World::fresh();
    world.add(1, chain(&[]));
    world.now = Duration::from_secs((headers[0].time - 7_201).into());
    world.take(1, &headers);
    assert!(matches!(world.dropped.as_slice(), [(_, reason)] if !reason.is_misbehaviour()));
}

//! Header sync with simulated peers. The peers are honest, slow, silent, far behind or on other
//! branches, or they repeat headers or send invalid headers.

mod stale_tip;

use std::collections::VecDeque;

use bitcoin::hashes::Hash as _;
use bitcoin::{CompactTarget, Network};

use super::*;
use crate::btc::tests::{genesis, mine_headers, solve};

const TIMEOUT: Duration = Duration::from_secs(30);
/// A Unix time later than the timestamp of every header in these tests.
const UNIX: Duration = Duration::from_secs(1_700_000_000);

/// Simulated peers. Each peer has a chain and answers `getheaders` from this chain as Core does.
struct World {
    sync: HeaderSync,
    peers: BTreeMap<PeerId, HeaderChain>,
    /// Peers that never answer.
    silent: Vec<PeerId>,
    /// Peers that answer every request with the same headers.
    repeats: BTreeMap<PeerId, Vec<Header>>,
    /// Peers that take the whole timeout for each answer.
    slow: Vec<PeerId>,
    now: Duration,
    asked: BTreeMap<PeerId, u32>,
    questions: VecDeque<(PeerId, Vec<BlockHash>)>,
    dropped: Vec<(PeerId, Reason)>,
    /// Number of blocks that entered or left the chain.
    changes: usize,
    shown: Vec<(PeerId, BlockHash)>,
    not_ready: Vec<PeerId>,
}

fn chain(headers: &[&[Header]]) -> HeaderChain {
    let mut chain = HeaderChain::new(Network::Regtest);
    for headers in headers {
        chain.accept(headers, UNIX).unwrap();
    }
    chain
}

impl World {
    fn new(chain: HeaderChain) -> Self {
        Self {
            sync: HeaderSync::new(chain, TIMEOUT),
            peers: BTreeMap::new(),
            silent: Vec::new(),
            repeats: BTreeMap::new(),
            slow: Vec::new(),
            now: UNIX,
            asked: BTreeMap::new(),
            questions: VecDeque::new(),
            dropped: Vec::new(),
            changes: 0,
            shown: Vec::new(),
            not_ready: Vec::new(),
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
                Action::NotReady(id) => self.not_ready.push(id),
            }
        }
    }

    fn take(&mut self, id: u64, headers: &[Header]) {
        self.handle(Event::Headers(PeerId(id), headers));
    }

    /// Answers requests until no request is pending.
    fn run(&mut self) {
        self.handle(Event::Tick);
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("requests do not end");
    }

    /// Answers the next request. Returns `false` if no request is pending.
    fn step(&mut self) -> bool {
        let Some((id, locator)) = self.questions.pop_front() else { return false };
        let Some(peer) = self.peers.get(&id).filter(|_| !self.silent.contains(&id)) else {
            return true;
        };
        let answer = peer.headers_after(&locator, BlockHash::all_zeros()).to_vec();
        let answer = self.repeats.get(&id).cloned().unwrap_or(answer);
        if self.slow.contains(&id) {
            self.now += TIMEOUT;
        }
        self.handle(Event::Headers(id, &answer));
        true
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.run();
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
    let all = mine_headers(&genesis(), 4_500, 1, 1);
    let mut world = World::fresh();
    // Both peers are connected before the first request.
    world.peers.insert(PeerId(2), chain(&[&all]));
    world.handle(Event::Connected(PeerId(2), 4_500));
    world.add(1, chain(&[&all[..3_000]]));
    world.run();
    assert_eq!(world.height(), 4_500);
    assert!(world.sync.is_caught_up());
    // Peer 2 claims more headers and sends them in three messages. Peer 1 is asked once, for
    // further headers.
    assert_eq!(world.asked, BTreeMap::from([(PeerId(1), 1), (PeerId(2), 3)]));
    let shown: BTreeMap<_, _> = world.sync.shown().collect();
    assert_eq!(shown[&PeerId(2)], world.tip());
    assert_eq!((world.dropped.len(), world.changes), (0, 4_500));
}

#[test]
fn who_says_nothing_is_passed_over_and_then_dropped() {
    let all = mine_headers(&genesis(), 2_100, 1, 1);
    let start = UNIX;
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
    assert_eq!(world.dropped, [(PeerId(1), Reason::HeadersStalled(2 * TIMEOUT))]);
    assert!(!world.dropped[0].1.is_misbehaviour());
    assert_eq!(world.dropped[0].1.to_string(), "no headers for 60 seconds");
    assert!(world.sync.is_caught_up());
}

#[test]
fn who_has_nothing_beyond_need_not_say_so() {
    let all = mine_headers(&genesis(), 20, 1, 1);
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
    let short = mine_headers(&genesis(), 2_100, 1, 1);
    let long = mine_headers(&genesis(), 4_200, 2, 1);
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
    let short = mine_headers(&genesis(), 2_100, 1, 1);
    let long = mine_headers(&genesis(), 4_200, 2, 1);
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
    let long = mine_headers(&genesis(), 4_200, 2, 1);
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.add(1, chain(&[&long]));
    world.run();
    world.add(2, chain(&[&mine_headers(&genesis(), 2_500, 1, 1)]));
    world.run();
    assert_eq!(world.tip(), long.last().unwrap().block_hash());
    assert_eq!(world.dropped, [(PeerId(2), Reason::LessWork(2_500))]);
    let why = "a branch of 2500 headers with less work than the chain";
    assert_eq!(world.dropped[0].1.to_string(), why);
    assert!(!world.dropped[0].1.is_misbehaviour());
}

#[test]
fn invalid_headers_and_those_that_do_not_link_end_in_a_ban() {
    let all = mine_headers(&genesis(), 5, 1, 1);
    let mut bad = all.clone();
    bad[3].bits = CompactTarget::from_consensus(0x1d00_ffff);
    let mut gap = all;
    gap.remove(2);
    let long = mine_headers(&genesis(), MAX_HEADERS + 1, 1, 1);
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
    let mut headers = mine_headers(&genesis(), 5, 1, 1);
    headers[4].time = 0;
    solve(&mut headers[4]);
    let mut world = World::fresh();
    world.add(1, chain(&[]));
    world.take(1, &headers);
    assert_eq!((world.changes, world.height()), (4, 4));
    assert!(matches!(world.dropped.as_slice(), [(_, reason)] if reason.is_misbehaviour()));
}

#[test]
fn an_announcement_on_an_unknown_block_has_its_peer_asked() {
    let all = mine_headers(&genesis(), 20, 1, 1);
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
    // The peer is also asked after it announces an unknown block by `inv`.
    let more = mine_headers(&all[19], 1, 1, 1);
    world.peers.insert(PeerId(1), chain(&[&all, &more]));
    let hash = more[0].block_hash();
    world.shown.clear();
    world.handle(Event::Announced(PeerId(1), hash));
    assert_eq!(world.shown, []);
    world.run();
    world.shown.clear();
    world.handle(Event::Announced(PeerId(1), hash));
    assert_eq!(world.shown, [(PeerId(1), hash)]);
    // An honest peer may announce many blocks while its answer is in flight.
    let stray = mine_headers(&mine_headers(&genesis(), 1, 9, 1)[0], 1, 9, 1);
    let asked = world.asked[&PeerId(1)];
    for _ in 0..100 {
        world.take(1, &stray);
    }
    assert_eq!((world.asked[&PeerId(1)], world.dropped.len()), (asked + 1, 0));
    // A peer that never says what is between is disconnected, and may come again.
    world.questions.clear();
    world.now += TIMEOUT * 2 + Duration::from_secs(1);
    world.handle(Event::Tick);
    assert!(matches!(world.dropped.as_slice(), [(PeerId(1), Reason::HeadersStalled(_))]));
}

/// Five headers. The first three headers are valid now, the last two are too far ahead of the
/// clock.
fn ahead(world: &mut World) -> Vec<Header> {
    let mut headers = mine_headers(&genesis(), 3, 1, 1);
    for _ in 0..2 {
        let mut next = mine_headers(headers.last().unwrap(), 1, 1, 1)[0];
        next.time += 10_000;
        solve(&mut next);
        headers.push(next);
    }
    world.now = Duration::from_secs((headers[2].time).into());
    headers
}

#[test]
fn who_has_headers_from_the_future_stays_and_is_asked_again() {
    let mut world = World::fresh();
    let all = ahead(&mut world);
    let late = world.now + Duration::from_secs(100_000);
    world.add(1, chain(&[&all]));
    world.run();
    assert_eq!((world.height(), world.dropped.len(), world.asked[&PeerId(1)]), (3, 0, 1));
    assert_eq!(world.shown.last(), Some(&(PeerId(1), all[2].block_hash())));
    assert!(world.sync.is_clock_behind() && !world.sync.is_caught_up());
    // The next blocks of the peer build on a refused header. The peer is not disconnected for
    // sending these blocks.
    for _ in 0..20 {
        world.take(1, &all[4..]);
        world.run();
    }
    assert_eq!((world.height(), world.dropped.len()), (3, 0));
    let asked = world.asked[&PeerId(1)];
    world.pass(ASK_AGAIN_AFTER);
    assert_eq!((world.height(), world.asked[&PeerId(1)]), (3, asked + 1));
    // The clock is corrected.
    world.now = late;
    world.run();
    assert_eq!((world.height(), world.dropped.len()), (5, 0));
    assert!(!world.sync.is_clock_behind() && world.sync.is_caught_up());
}

#[test]
fn nobody_waits_for_who_has_headers_from_the_future() {
    let mut world = World::fresh();
    let all = ahead(&mut world);
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all[..3]]));
    world.run();
    assert!(world.sync.is_caught_up() && !world.sync.is_clock_behind());
    assert_eq!((world.height(), world.dropped.len()), (3, 0));
}

#[test]
fn a_branch_with_headers_from_the_future_is_no_fault() {
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.now = Duration::from_secs(u64::from(genesis().time) + 3_000);
    world.add(1, chain(&[&mine_headers(&genesis(), 2_100, 1, 1)]));
    world.run();
    let mut long = mine_headers(&genesis(), 4_100, 2, 1);
    let mut last = mine_headers(&long[4_099], 1, 2, 1)[0];
    last.time += 10_000;
    solve(&mut last);
    long.push(last);
    world.add(2, chain(&[&long]));
    world.run();
    assert_eq!((world.height(), world.tip()), (4_100, long[4_099].block_hash()));
    assert_eq!(world.dropped, []);
}

#[test]
fn who_repeats_known_headers_keeps_nobody_waiting() {
    let all = mine_headers(&genesis(), 4_500, 1, 1);
    // The repeating peer is either asked first, or connects after the other peer has sent all its
    // headers.
    for comes_first in [true, false] {
        let mut world = World::fresh();
        world.repeats.insert(PeerId(1), all[..MAX_HEADERS].to_vec());
        // Both peers are connected before the first request.
        let first = if comes_first { 1 } else { 2 };
        world.add(first, chain(&[&all]));
        if !comes_first {
            world.run();
        }
        world.add(3 - first, chain(&[&all]));
        let mut steps = 0;
        while !world.sync.is_caught_up() && steps < 20 {
            world.step();
            steps += 1;
        }
        assert_eq!((world.height(), world.sync.is_caught_up()), (4_500, true), "{comes_first}");
        assert_eq!(world.dropped, []);
        world.run();
        assert_eq!(world.dropped, [(PeerId(1), Reason::Fruitless(MAX_REPEATED + 1))]);
        assert!(!world.dropped[0].1.is_misbehaviour() && world.sync.is_caught_up());
    }
}

#[test]
fn alone_who_repeats_known_headers_has_not_told_all() {
    let all = mine_headers(&genesis(), MAX_HEADERS, 1, 1);
    let mut world = World::fresh();
    world.repeats.insert(PeerId(1), all.clone());
    world.add(1, chain(&[&all]));
    while world.step() {
        assert!(!world.sync.is_caught_up());
    }
    assert_eq!(world.dropped.len(), 1);
}

#[test]
fn who_is_far_behind_comes_to_its_end() {
    let all = mine_headers(&genesis(), 7_000, 1, 1);
    let mut world = World::fresh();
    world.add(1, chain(&[&all]));
    world.run();
    // A locator from height 7,000 contains no block from 1 to 2,800.
    world.add(2, chain(&[&all[..2_800]]));
    world.run();
    assert!(world.sync.is_caught_up());
    assert_eq!((world.dropped.len(), world.asked[&PeerId(2)]), (0, 2));
}

#[test]
fn a_slow_peer_does_not_lead_for_long() {
    let all = mine_headers(&genesis(), 12_500, 1, 1);
    let mut world = World::fresh();
    let start = world.now;
    world.slow = std::vec![PeerId(1)];
    world.peers.insert(PeerId(1), chain(&[&all]));
    world.handle(Event::Connected(PeerId(1), 12_500));
    world.add(2, chain(&[&all]));
    world.run();
    assert_eq!((world.height(), world.sync.is_caught_up()), (12_500, true));
    // The slow peer answers once as the leading peer and once for further headers, not seven times.
    assert_eq!(world.now, start + 2 * TIMEOUT);
    assert_eq!(world.dropped, []);
}

#[test]
fn whose_turn_comes_after_a_branch_is_asked_though_its_owner_leaves() {
    let short = mine_headers(&genesis(), 2_100, 1, 1);
    let long = mine_headers(&genesis(), 4_200, 2, 1);
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.add(1, chain(&[&short]));
    world.run();
    world.silent = std::vec![PeerId(2), PeerId(3)];
    for id in [2, 3] {
        world.add(id, chain(&[&long]));
        world.take(id, &long[..MAX_HEADERS]);
    }
    world.run();
    world.silent.clear();
    world.peers.remove(&PeerId(2));
    world.handle(Event::Disconnected(PeerId(2)));
    world.run();
    assert_eq!(world.tip(), long.last().unwrap().block_hash());
    assert!(world.sync.is_caught_up());
    assert_eq!(world.dropped, []);
}

#[test]
fn a_block_announced_while_its_branch_is_collected_is_no_fault() {
    let long = mine_headers(&genesis(), 4_200, 2, 1);
    let mut world = World::new(HeaderChain::new(Network::Regtest).with_side_limit(100));
    world.add(1, chain(&[&mine_headers(&genesis(), 2_100, 1, 1)]));
    world.run();
    world.add(2, chain(&[&long]));
    world.take(2, &long[..MAX_HEADERS]);
    world.take(2, &long[4_199..]);
    world.run();
    assert_eq!(world.tip(), long.last().unwrap().block_hash());
    assert_eq!(world.dropped, []);
}

#[test]
fn who_was_not_asked_has_not_told_all() {
    let all = mine_headers(&genesis(), 20, 1, 1);
    let mut world = World::fresh();
    world.add(1, chain(&[&all[..10]]));
    world.add(2, chain(&[&all]));
    // Peer 1 is asked first.
    assert_eq!(world.asked, BTreeMap::from([(PeerId(1), 1)]));
    world.take(2, &[]);
    world.run();
    assert_eq!((world.height(), world.sync.is_caught_up()), (20, true));
}

#[test]
fn waiting_counts_from_where_the_clock_is_set_back() {
    let all = mine_headers(&genesis(), 2_100, 1, 1);
    let mut world = World::fresh();
    world.silent = std::vec![PeerId(1)];
    world.add(1, chain(&[&all]));
    world.add(2, chain(&[&all[..2_050]]));
    world.run();
    world.now -= Duration::from_secs(1_000_000);
    world.run();
    assert_eq!((world.height(), world.dropped.len()), (0, 0));
    world.pass(TIMEOUT + Duration::from_secs(1));
    assert_eq!((world.height(), world.dropped.len()), (2_050, 0));
    world.pass(TIMEOUT);
    assert_eq!(world.dropped, [(PeerId(1), Reason::HeadersStalled(2 * TIMEOUT))]);
}

#[test]
fn without_a_timeout_nobody_is_passed_over() {
    let all = mine_headers(&genesis(), 20, 1, 1);
    let mut world = World::fresh();
    world.sync = HeaderSync::new(chain(&[]), Duration::MAX);
    world.silent = std::vec![PeerId(1)];
    world.add(1, chain(&[&all]));
    world.pass(Duration::from_secs(1 << 40));
    assert_eq!((world.dropped.len(), world.sync.is_caught_up()), (0, false));
}

/// The client does not catch up while a peer sends a branch with more work. Otherwise, the client
/// would scan the blocks of the losing branch in vain.
#[test]
fn who_brings_a_better_branch_is_waited_for() {
    let short = mine_headers(&genesis(), 12_500, 1, 1);
    let long = mine_headers(&genesis(), 13_000, 2, 1);
    let mut world = World::fresh();
    world.add(1, chain(&[&short]));
    world.run();
    assert!(world.sync.is_caught_up());
    world.handle(Event::Connected(PeerId(2), 13_000));
    for part in long.chunks(MAX_HEADERS) {
        assert!(!world.sync.is_caught_up());
        world.take(2, part);
    }
    assert_eq!((world.height(), world.sync.is_caught_up()), (13_000, true));
    assert_eq!(world.dropped, []);
}

#[test]
fn nobody_is_overdue_through_a_pause() {
    let headers = mine_headers(&genesis(), 3, 1, 1);
    let mut world = World::fresh();
    world.silent.push(PeerId(1));
    world.add(1, chain(&[&headers]));
    let hour = Duration::from_hours(1);
    world.now += hour;
    world.handle(Event::Paused(hour));
    assert_eq!(world.dropped, []);
    world.now += 3 * TIMEOUT;
    world.handle(Event::Tick);
    assert_eq!(world.dropped.len(), 1);
}

/// The first peer sends the known headers upwards, and takes nearly two timeouts for each message.
#[test]
fn who_walks_through_known_headers_keeps_nobody_waiting() {
    let headers = mine_headers(&genesis(), 8_000, 1, 1);
    let mut world = World::fresh();
    world.handle(Event::Connected(PeerId(1), 1_000_000));
    world.now += Duration::from_secs(29);
    world.take(1, &headers[..2_000]);
    world.add(2, chain(&[&headers]));
    world.questions.retain(|(id, _)| *id != PeerId(1));
    let begin = world.now;
    let mut told = None;
    for part in headers.chunks(2_000).skip(1) {
        for _ in 0..59 {
            world.now += Duration::from_secs(1);
            world.handle(Event::Tick);
            world.questions.retain(|(id, _)| *id != PeerId(1));
            while world.step() {}
            if world.sync.is_caught_up() {
                told.get_or_insert(world.now);
            }
        }
        world.take(1, part);
    }
    // It is waited for through two timeouts, once the other has sent its headers.
    let told = told.expect("caught up").saturating_sub(begin);
    assert!(told <= 5 * TIMEOUT, "{told:?}");
    assert_eq!(world.height(), 8_000);
}

#[test]
fn a_peer_that_sends_nothing_of_what_it_claims_is_asked_again_and_not_believed() {
    let headers = mine_headers(&genesis(), 3, 1, 1);
    let mut world = World::fresh();
    world.handle(Event::Connected(PeerId(1), 3));
    for _ in 0..5 {
        world.take(1, &[]);
        assert!(!world.sync.is_caught_up());
        world.now += READY_AGAIN_AFTER;
        world.handle(Event::Tick);
    }
    assert_eq!((world.asked[&PeerId(1)], world.not_ready.len()), (6, 1));
    world.take(1, &headers);
    assert!(world.sync.is_caught_up());
    // The claim is not above the chain any more.
    world.handle(Event::Connected(PeerId(2), 3));
    world.take(2, &[]);
    assert!(world.sync.is_caught_up() && world.not_ready.len() == 1);
}

#[test]
fn a_branch_that_is_collected_is_checked_as_it_comes() {
    let headers = mine_headers(&genesis(), 4_100, 1, 1);
    let mut own = chain(&[&headers]).with_side_limit(10);
    own.accept(&[], UNIX).unwrap();
    let mut other = mine_headers(&genesis(), 4_050, 2, 1);
    // The header at this place has no proof of work.
    other[2_500].nonce = 0;
    while other[2_500].validate_pow(other[2_500].target()).is_ok() {
        other[2_500].nonce += 1;
    }
    let mut world = World::new(own);
    world.handle(Event::Connected(PeerId(1), 4_050));
    world.take(1, &other[..2_000]);
    world.take(1, &other[..2_000]);
    assert_eq!(world.dropped, []);
    world.take(1, &other[2_000..2_501]);
    let [(PeerId(1), Reason::InvalidHeader(HeaderError::ProofOfWork(_)))] = world.dropped[..]
    else {
        panic!("{:?}", world.dropped);
    };
}

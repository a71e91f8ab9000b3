//! Properties of a chain of regtest headers, whose proof of work is cheap. The chain is compared
//! with a model that keeps every header and searches all of them for each answer.

use std::time::Duration;

use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{BlockHash, Network, Work};
use chainsieve::btc::headers::{
    ChainEvent, HeaderChain, HeaderChainError, HeaderError, HeadersError, MAX_HEADERS, TrustedStart,
};
use proptest::prelude::*;

use testkit::Rng;
use testkit::btc::regtest::{branch, genesis, mine};

/// The latest possible time, at which no header is too new.
const NOW: Duration = Duration::MAX;

/// Every header in the order of arrival. The chain starts at the first.
struct Model {
    headers: Vec<Header>,
    /// The tip with the most work, and of several such tips the first.
    best: Header,
}

impl Model {
    fn new() -> Self {
        Self { headers: vec![genesis()], best: genesis() }
    }

    fn find(&self, hash: BlockHash) -> Option<&Header> {
        self.headers.iter().find(|header| header.block_hash() == hash)
    }

    /// Returns the headers from genesis to `tip`.
    fn path(&self, tip: Header) -> Vec<Header> {
        let mut path = vec![tip];
        while let Some(parent) = self.find(path[path.len() - 1].prev_blockhash) {
            path.push(*parent);
        }
        path.reverse();
        path
    }

    fn work(&self, tip: Header) -> Work {
        let path = self.path(tip);
        path[1..].iter().fold(path[0].work(), |sum, header| sum + header.work())
    }

    fn median(&self, tip: Header) -> u32 {
        let path = self.path(tip);
        let mut times: Vec<_> = path.iter().rev().take(11).map(|header| header.time).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }

    fn add(&mut self, header: Header) {
        if self.find(header.block_hash()).is_none() {
            self.headers.push(header);
            if self.work(header) > self.work(self.best) {
                self.best = header;
            }
        }
    }
}

/// A list of headers that is updated by events.
#[derive(Default)]
struct Follower(Vec<Header>);

impl Follower {
    fn apply(&mut self, events: &[ChainEvent]) {
        for event in events {
            match event {
                ChainEvent::Connected { at, header } => {
                    assert_eq!(at.height as usize, self.0.len() + 1);
                    assert_eq!(at.hash, header.block_hash());
                    let tip = self.0.last().map_or(genesis(), |tip| *tip).block_hash();
                    assert_eq!(header.prev_blockhash, tip);
                    self.0.push(*header);
                }
                ChainEvent::Disconnected { at } => {
                    let tip = self.0.pop().expect("genesis stays");
                    assert_eq!(at.height as usize, self.0.len() + 1);
                    assert_eq!(at.hash, tip.block_hash());
                }
            }
        }
    }
}

/// Checks every answer of `chain` against the path from genesis to the tip.
fn assert_is(chain: &HeaderChain, path: &[Header], work: Work) {
    let tip = chain.tip();
    assert_eq!(
        (tip.height as usize, tip.hash),
        (path.len() - 1, path.last().expect("never empty").block_hash())
    );
    assert_eq!(chain.work(), work);
    assert_eq!(chain.headers_from(0), path);
    for (height, header) in (0..).zip(path) {
        let hash = header.block_hash();
        assert_eq!(chain.header_at(height), Some(header));
        assert_eq!(chain.hash_at(height), Some(hash));
        assert_eq!(chain.height_of(&hash), Some(height));
        let mut times: Vec<_> =
            path[..=height as usize].iter().rev().take(11).map(|header| header.time).collect();
        times.sort_unstable();
        assert_eq!(chain.median_time_past(height), Some(times[times.len() / 2]));
    }
    let above = tip.height + 1;
    assert_eq!(chain.header_at(above), None);
    assert_eq!(chain.hash_at(above), None);
    assert_eq!(chain.median_time_past(above), None);
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(60))]

    /// The locator is that of Core's `GetLocator`, and the answer to it is right.
    #[test]
    fn locators_and_answers(
        common in 0..300_usize,
        ours in 0..60_usize,
        theirs in 0..60_usize,
        stop in 0..400_usize,
    ) {
        let trunk = branch(&genesis(), common, 1);
        let fork = *trunk.last().unwrap_or(&genesis());
        let (ours, theirs) = (branch(&fork, ours, 2), branch(&fork, theirs, 3));
        let chain_of = |branch: &[Header]| {
            let mut chain = HeaderChain::new(Network::Regtest);
            chain.accept(&trunk, NOW).expect("good");
            chain.accept(branch, NOW).expect("good");
            chain
        };
        let (asking, answering) = (chain_of(&ours), chain_of(&theirs));
        let locator = asking.locator();
        let mut expected = Vec::new();
        let (mut height, mut step) = (i64::from(asking.tip().height), 1);
        loop {
            expected.push(asking.hash_at(u32::try_from(height).unwrap()).unwrap());
            if height == 0 {
                break;
            }
            height = (height - step).max(0);
            step *= if expected.len() > 10 { 2 } else { 1 };
        }
        prop_assert_eq!(&locator, &expected);

        let path = answering.headers_from(0);
        let known = path.iter().rposition(|header| locator.contains(&header.block_hash()));
        let first = known.expect("genesis is known") + 1;
        let none = answering.headers_after(&locator, BlockHash::all_zeros());
        prop_assert_eq!(none, &path[first..]);
        let stop_hash = path.get(stop).map(Header::block_hash);
        let stop_hash = stop_hash.unwrap_or(BlockHash::all_zeros());
        let until = answering.headers_after(&locator, stop_hash);
        // A stop before the first header of the answer has no effect.
        let end = if (first..path.len()).contains(&stop) { stop + 1 } else { path.len() };
        prop_assert_eq!(until, &path[first..end]);
        let alone = answering.headers_after(&[], stop_hash);
        prop_assert_eq!(alone, path.get(stop).map_or(&[][..], std::slice::from_ref));

        // With the headers that it gets, the asking chain reaches the stronger of the two chains.
        let mut asking = asking;
        let before = asking.work();
        asking.accept(until, NOW).expect("good");
        asking.accept(none, NOW).expect("good");
        prop_assert_eq!(asking.work(), before.max(answering.work()));
    }
}

/// Trees that grow at random, mostly near their newest blocks, arrive in messages of random length.
/// Some headers are repeated.
#[test]
fn trees_in_messages() {
    let mut rng = Rng::new(31);
    let (mut reorganizations, mut ties, mut repeated) = (0, 0, 0);
    for case in 0..150 {
        let mut model = Model::new();
        let mut chain = HeaderChain::new(Network::Regtest);
        let mut follower = Follower::default();
        let mut file = chain.encode();
        let size = 1 + rng.below(80);
        while model.headers.len() < size {
            let mut message = Vec::new();
            let known = model.headers.len();
            for _ in 0..=rng.below(8) {
                if rng.one_in(6) {
                    message.push(*rng.pick(&model.headers));
                    repeated += 1;
                    continue;
                }
                let newest = if rng.one_in(8) { usize::MAX } else { 4 };
                let behind = model.headers.len().min(newest);
                let parent = model.headers[model.headers.len() - 1 - rng.below(behind)];
                let time = model.median(parent) + 1 + u32::from(rng.array::<1>()[0]);
                let header = mine(&parent, time, rng.u64());
                ties += usize::from(model.work(parent) + header.work() == model.work(model.best));
                model.add(header);
                message.push(header);
            }
            let events = chain.accept(&message, NOW).unwrap_or_else(|e| panic!("{case}: {e}"));
            follower.apply(&events);
            let path = model.path(model.best);
            assert_eq!(follower.0, path[1..], "{case}");
            assert_is(&chain, &path, model.work(model.best));
            assert!(model.headers.iter().all(|header| chain.contains(&header.block_hash())));
            assert_eq!(chain.side_headers(), model.headers.len() - path.len(), "{case}");

            let disconnected =
                |event: &ChainEvent| matches!(event, ChainEvent::Disconnected { .. });
            reorganizations += usize::from(events.iter().any(disconnected));
            assert!(events.len() <= 2 * (known + message.len()));
            let heights = events.iter().filter_map(|event| match event {
                ChainEvent::Connected { at, .. } => Some(at.height),
                ChainEvent::Disconnected { .. } => None,
            });
            if let Some(lowest) = heights.min() {
                file.truncate(usize::try_from(chain.record_offset(lowest)).unwrap());
                file.extend(chain.encode_from(lowest));
            }
            assert_eq!(file, chain.encode(), "{case}");
            let decoded = HeaderChain::decode(&file).expect("what was written");
            assert_eq!((decoded.tip(), decoded.work()), (chain.tip(), chain.work()), "{case}");
        }
    }
    println!("{reorganizations} reorganizations, {ties} ties, {repeated} headers again");
    assert!((200..2_000).contains(&reorganizations), "{reorganizations} reorganizations");
    assert!((500..5_000).contains(&ties), "{ties} ties");
    assert!((500..5_000).contains(&repeated), "{repeated} headers again");
}

/// Of two branches with the same work, the first stays until the other has more.
#[test]
fn first_seen_wins_ties() {
    let trunk = branch(&genesis(), 5, 1);
    let (a, b) = (branch(&trunk[4], 3, 2), branch(&trunk[4], 4, 3));
    let mut chain = HeaderChain::new(Network::Regtest);
    chain.accept(&trunk, NOW).unwrap();
    chain.accept(&a, NOW).unwrap();
    assert_eq!(chain.accept(&b[..3], NOW), Ok(vec![]));
    assert_eq!(chain.tip().hash, a[2].block_hash());
    let events = chain.accept(&b[3..], NOW).unwrap();
    let kinds: Vec<_> = events
        .iter()
        .map(|event| match event {
            ChainEvent::Disconnected { at } => (false, at.height),
            ChainEvent::Connected { at, .. } => (true, at.height),
        })
        .collect();
    let expected = [(false, 8), (false, 7), (false, 6), (true, 6), (true, 7), (true, 8), (true, 9)];
    assert_eq!(kinds, expected);
    assert_eq!(chain.headers_from(6), b);
    // Switch back, from the stored headers of the first branch.
    let back = branch(&a[2], 2, 4);
    assert_eq!(chain.accept(&back, NOW).unwrap().len(), 4 + 5);
    assert_eq!(chain.tip().hash, back[1].block_hash());
}

/// A fork deeper than two periods, in messages of 2,000.
#[test]
fn deep_reorganization() {
    let (old, new) = (branch(&genesis(), 5_000, 1), branch(&genesis(), 5_001, 2));
    let mut chain = HeaderChain::new(Network::Regtest);
    for message in old.chunks(MAX_HEADERS) {
        chain.accept(message, NOW).unwrap();
    }
    let mut events = Vec::new();
    for message in new.chunks(MAX_HEADERS) {
        assert_eq!(events, []);
        events = chain.accept(message, NOW).unwrap();
    }
    assert_eq!(events.len(), 10_001);
    assert_eq!(chain.headers_from(1), new);
    assert_eq!(chain.side_headers(), 5_000);
    let work = new.iter().fold(genesis().work(), |sum, header| sum + header.work());
    assert_eq!(chain.work(), work);
    // The sums of work are right above the fork and below it.
    assert_eq!(chain.accept(&branch(&new[2_999], 1_000, 3), NOW), Ok(vec![]));
    let stronger = branch(&new[3_999], 1_002, 4);
    assert_eq!(chain.accept(&stronger, NOW).unwrap().len(), 1_001 + 1_002);
    assert_eq!(chain.work(), work + stronger[0].work());
}

/// Cheap side branches take up at most their limit. A stronger chain in one call is accepted
/// nevertheless.
#[test]
fn side_branches_are_bounded() {
    /// Largest number of headers on side branches.
    const LIMIT: usize = 100;
    let trunk = branch(&genesis(), 300, 1);
    let mut chain = HeaderChain::new(Network::Regtest).with_side_limit(LIMIT);
    chain.accept(&trunk, NOW).unwrap();
    // The strongest side branch ends one header below the tip.
    let honest = branch(&trunk[249], 60, 2);
    assert_eq!(chain.accept(&honest[..49], NOW), Ok(vec![]));
    let mut refused = 0;
    for salt in 10..300 {
        let spam = branch(&trunk[usize::try_from(salt).unwrap() % 200], 7, salt);
        match chain.accept(&spam, NOW) {
            Ok(events) => assert_eq!(events, []),
            Err(HeadersError { index, cause, events, .. }) => {
                let HeaderError::SideBranchesFull { height, limit } = cause else {
                    panic!("{cause}")
                };
                assert_eq!((limit, events), (LIMIT, vec![]));
                assert_eq!(height as usize, usize::try_from(salt).unwrap() % 200 + 2 + index);
                assert!(!chain.contains(&spam[index].block_hash()));
                refused += 1;
            }
        }
        assert!(chain.side_headers() <= LIMIT);
        assert_eq!(chain.tip().height, 300);
    }
    assert!((10..290).contains(&refused), "{refused} refused");
    // The honest branch is stronger than the spam, so it was kept and can be continued.
    assert!(chain.contains(&honest[48].block_hash()));
    let events = chain.accept(&honest[49..], NOW).unwrap();
    assert_eq!(events.len(), 50 + 60);
    assert!(chain.side_headers() <= LIMIT);

    // A branch from genesis that is longer than the limit is rejected in small messages, and
    // accepted as a whole.
    let deep = branch(&genesis(), 400, 3);
    let mut taken = 0;
    let error = deep.chunks(40).find_map(|message| {
        let result = chain.accept(message, NOW);
        taken += 40;
        result.err()
    });
    let error = error.expect("no room");
    assert!(matches!(error.cause, HeaderError::SideBranchesFull { .. }), "{error}");
    assert!(taken <= LIMIT + 40, "refused after {taken}");
    assert_eq!(chain.accept(&deep, NOW).unwrap().len(), 310 + 400);
    assert_eq!(chain.headers_from(1), deep);
    assert!(chain.side_headers() <= LIMIT);

    // With a limit of 0, a stronger chain is accepted, and then an even stronger one on the old
    // branch.
    let mut chain = chain.with_side_limit(0);
    assert_eq!(chain.side_headers(), 0);
    let other = branch(&deep[9], 400, 4);
    assert_eq!(chain.accept(&other, NOW).unwrap().len(), 390 + 400);
    assert_eq!(chain.side_headers(), 0);
    let back = [&deep[10..], &branch(&deep[399], 11, 5)].concat();
    assert_eq!(chain.accept(&back, NOW).unwrap().len(), 400 + 401);
    assert_eq!(chain.tip().height, 411);
}

/// A chain from a trusted start equals the upper part of the chain from genesis, and has no fork below
/// its start.
#[test]
fn trusted_starts() {
    let all = [vec![genesis()], branch(&genesis(), 2_100, 1)].concat();
    let mut whole = HeaderChain::new(Network::Regtest);
    whole.accept(&all, NOW).unwrap();
    for height in [0, 1, 9, 10, 11, 500, 2_015, 2_016, 2_017] {
        let trusted_start = TrustedStart {
            height,
            headers: all[(height as usize).saturating_sub(10)..=height as usize].to_vec(),
            period_first: all[(height - height % 2016) as usize],
            work: all[..=height as usize]
                .iter()
                .fold(Work::from_be_bytes([0; 32]), |sum, header| sum + header.work()),
        };
        let with = |work| {
            let trusted_start = TrustedStart { work, ..trusted_start.clone() };
            HeaderChain::from_trusted_start(Network::Regtest, trusted_start)
        };
        // The work must agree with the headers of the trusted start. The rest of the work is the user's
        // claim, and sums of work do not overflow.
        let each = genesis().work();
        let lies = match height {
            0..=10 => vec![trusted_start.work - each, trusted_start.work + each],
            _ => vec![each, (0..10).fold(each, |sum, _| sum + each)],
        };
        for work in lies {
            let error = with(work).unwrap_err();
            assert!(matches!(error, HeaderChainError::OtherWork { .. }), "{height}: {error}");
        }
        if height > 10 {
            let mut most = [0xff; 32];
            most[0] = 0x7f;
            let mut chain = with(Work::from_be_bytes(most)).unwrap();
            assert!(chain.accept(&all[height as usize + 1..], NOW).is_ok());
        }
        let mut chain = HeaderChain::from_trusted_start(Network::Regtest, trusted_start).unwrap();
        assert_eq!(chain.start().height, height);
        assert_eq!(chain.start().hash, all[height as usize].block_hash());
        assert_eq!(chain.start(), chain.tip());
        let behind = &all[height as usize + 1..];
        assert_eq!(chain.accept(behind, NOW).unwrap().len(), behind.len());
        assert_eq!((chain.tip(), chain.work()), (whole.tip(), whole.work()), "{height}");
        for at in height..=2_100 {
            assert_eq!(chain.median_time_past(at), whole.median_time_past(at), "{height} {at}");
        }
        let decoded = HeaderChain::decode(&chain.encode()).unwrap();
        assert_eq!((decoded.start(), decoded.tip()), (chain.start(), chain.tip()));
        // A fork at the start is possible. A fork below the start is not.
        let fork = branch(&all[height as usize], behind.len() + 1, 2);
        assert_eq!(chain.accept(&fork, NOW).unwrap().len(), 2 * behind.len() + 1, "{height}");
        if height > 0 {
            let below = branch(&all[height as usize - 1], 1, 3);
            let error = chain.accept(&below, NOW).unwrap_err();
            let cause = HeaderError::BelowStart { parent: height - 1, start: height };
            assert_eq!((error.index, error.cause), (0, cause));
        }
        if height > 11 {
            let lost = branch(&all[height as usize - 12], 1, 3);
            let parent = all[height as usize - 12].block_hash();
            let error = chain.accept(&lost, NOW).unwrap_err();
            assert_eq!(error.cause, HeaderError::Orphan { parent });
        }
    }
}

/// Headers that each fork off the end of a long side branch are kept beside it, and a branch that
/// grows from one of them becomes the chain.
#[test]
fn forks_off_a_side_branch_are_taken() {
    let mut chain = HeaderChain::new(Network::Regtest);
    chain.accept(&branch(&genesis(), 4_100, 1), NOW).unwrap();
    let side = branch(&genesis(), 2_015, 2);
    chain.accept(&side, NOW).unwrap();
    let fork = |salt| mine(&side[2_014], side[2_014].time + 600, salt);
    let forks: Vec<_> = (10..2_010).map(fork).collect();
    assert_eq!(chain.accept(&forks, NOW), Ok(vec![]));
    assert_eq!(chain.side_headers(), side.len() + forks.len());
    // The side branch and one fork end at height 2,016, the chain at 4,100.
    let grown = branch(&forks[1_000], 4_100 - 2_016 + 1, 4);
    let events = chain.accept(&grown, NOW).unwrap();
    assert_eq!(events.len(), 4_100 + 4_101);
    assert_eq!(chain.tip().height, 4_101);
    assert_eq!(chain.hash_at(2_016), Some(forks[1_000].block_hash()));
}

//! Followers whose anchor source returns newer blocks while they run, fails, or blocks, and followers with an
//! index.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::{Address, B256, Bloom, BloomInput};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::index::{Folder, Index, Settings, Writer};
use chainsieve_provider::{
    AnchorSource, CandidateIndex, FollowBuilder, Following, LogQuery, LogUpdates, News, Note,
    Provider,
};
use serde_json::Value;

use testkit::TestFolder;
use testkit::eth::json_rpc;
use testkit::eth::linked_headers::linked_headers;
use testkit::eth::rpc_methods::{self, BlockId};
use testkit::eth::world::{ASKED, World, WorldBlock};

/// Limit of each wait; only a failed test waits that long.
const LONG: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(100);

/// A node, and the chain that it serves.
struct Node {
    url: String,
    world: Arc<Mutex<World>>,
}

impl Node {
    fn start() -> Self {
        let mut world = World::new();
        (0..20).for_each(|seed| world.mine(seed));
        let world = Arc::new(Mutex::new(world));
        let served = Arc::clone(&world);
        let result = move |method: &str, params: &Value| {
            let world = served.lock().expect("no panic");
            rpc_methods::result(method, params, |tag| at(&world, tag).map(Into::into))
        };
        Self { url: format!("http://{}", json_rpc::serve(result)), world }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no panic")
    }

    fn mine(&self) -> u64 {
        let mut world = self.world();
        world.mine(5);
        world.head().number
    }

    fn follow(
        &self,
        source: impl AnchorSource + 'static,
        note: impl Fn(&Note) + Send + Sync + 'static,
    ) -> FollowBuilder {
        let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
        let provider = Provider::builder().url(&self.url).profile(profile).anchor(source);
        let provider = provider.on_note(move |_, it| note(it)).build().expect("it is set up");
        let query = LogQuery::new().address(ASKED).from_block(0);
        provider.follow(&query).poll(Duration::from_millis(5)).tries(1)
    }
}

fn at<'a>(world: &'a World, tag: &Value) -> Option<&'a WorldBlock> {
    match BlockId::of(tag)? {
        BlockId::Tag("latest") => world.at(world.head().number),
        BlockId::Tag("finalized") => world.at(world.finalized().number),
        BlockId::Tag(_) => None,
        BlockId::Hash(hash) => world.canonical.contains(&hash).then(|| &world.blocks[&hash]),
        BlockId::Number(number) => world.at(number),
    }
}

/// A source whose answer depends on the number of the call, from 0 on.
struct Source<F> {
    interval: Duration,
    calls: Arc<AtomicUsize>,
    answer: F,
}

impl<F> fmt::Debug for Source<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl<F: Fn(usize) -> Result<Vec<B256>, String> + Send + Sync> AnchorSource for Source<F> {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        (self.answer)(self.calls.fetch_add(1, Ordering::SeqCst))
    }

    fn refresh(&self) -> Option<Duration> {
        Some(self.interval)
    }
}

fn source<F: Fn(usize) -> Result<Vec<B256>, String> + Send + Sync>(
    interval: Duration,
    answer: F,
) -> (Source<F>, Weak<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let weak = Arc::downgrade(&calls);
    (Source { interval, calls, answer }, weak)
}

/// Returns the hash of the block that is this many blocks before the head.
fn before_head(world: &Mutex<World>, back: u64) -> B256 {
    let world = world.lock().expect("no panic");
    world.at(world.head().number - back).expect("long enough").at.hash
}

/// Reads updates until one of them is as expected.
fn read_until(
    (following, updates): (&Following, &mut LogUpdates),
    mut is_it: impl FnMut(&News) -> bool,
) {
    let end = Instant::now() + LONG;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let update = updates.next_within(left).expect("the follower goes on");
        following.acknowledge(&update);
        if is_it(&update.news) {
            return;
        }
    }
}

fn is_anchored(update: &News, number: u64) -> bool {
    matches!(update, News::Anchored(anchor) if anchor.number == number)
}

/// Waits until no thread has the source any more.
fn assert_dropped(calls: &Weak<AtomicUsize>) {
    let end = Instant::now() + LONG;
    while calls.upgrade().is_some() {
        assert!(Instant::now() < end, "a thread still has the source");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_newer_block_is_reported() {
    let node = Node::start();
    let world = Arc::clone(&node.world);
    let (source, calls) = source(INTERVAL, move |_| Ok(vec![before_head(&world, 4)]));
    let following = node.follow(source, |_| ()).start().expect("it starts");
    let mut updates = following.updates();
    read_until((&following, &mut updates), |update| is_anchored(update, 16));
    for _ in 0..3 {
        let newest = node.mine() - 4;
        read_until((&following, &mut updates), |update| is_anchored(update, newest));
    }
    // A source that returns the same block again causes no update.
    assert!(updates.next_within(3 * INTERVAL).is_none_or(|it| !is_anchored(&it.news, 19)));
    following.shutdown().expect("no fault");
    assert_dropped(&calls);
}

#[test]
fn a_source_that_fails_is_asked_again() {
    let node = Node::start();
    let world = Arc::clone(&node.world);
    let (source, calls) = source(INTERVAL, move |call| match call {
        0 | 3.. => Ok(vec![before_head(&world, 4)]),
        1 => Err("no beacon".into()),
        2 => panic!("a test of a panic"),
    });
    let notes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&notes);
    let follow = node.follow(source, move |note| {
        if let Note::NoNewerAnchor(error) = note {
            sink.lock().expect("no panic").push(error.clone());
        }
    });
    let following = follow.start().expect("it starts");
    let newest = node.mine() - 4;
    let mut updates = following.updates();
    read_until((&following, &mut updates), |update| is_anchored(update, newest));
    following.shutdown().expect("no fault");
    let expected = ["no beacon", "the anchor source has panicked"];
    assert_eq!(*notes.lock().expect("no panic"), expected);
    assert_dropped(&calls);
}

/// A call that does not return delays neither the updates nor the end.
#[test]
fn a_source_that_blocks_delays_nothing() {
    let node = Node::start();
    let world = Arc::clone(&node.world);
    let (called, is_called) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let is_released = Mutex::new(is_released);
    let (source, calls) = source(INTERVAL, move |call| {
        if call > 0 {
            called.send(()).expect("the test waits");
            // An error tells that the test has dropped the other end.
            let released = is_released.lock().expect("no panic").recv();
            assert!(released.is_err());
        }
        Ok(vec![before_head(&world, 4)])
    });
    let following = node.follow(source, |_| ()).start().expect("it starts");
    let mut updates = following.updates();
    read_until((&following, &mut updates), |update| is_anchored(update, 16));
    is_called.recv_timeout(LONG).expect("it is asked again");
    for _ in 0..3 {
        let newest = node.mine();
        read_until(
            (&following, &mut updates),
            |update| matches!(update, News::Blocks(blocks) if blocks.last.number == newest),
        );
    }
    following.shutdown().expect("no fault");
    assert!(calls.upgrade().is_some(), "the call goes on");
    drop(release);
    assert_dropped(&calls);
}

/// The thread ends with the follower, whatever ends the follower, and does not wait for its
/// interval.
#[test]
fn no_thread_is_left() {
    let node = Node::start();
    let hour = Duration::from_secs(60 * 60);
    let hash = before_head(&node.world, 4);
    let (first, first_calls) = source(hour, move |_| Ok(vec![hash]));
    drop(node.follow(first, |_| ()).start().expect("it starts"));
    assert_dropped(&first_calls);

    // The follower ends by itself, and its handle remains.
    let (second, second_calls) = source(hour, move |_| Ok(vec![hash]));
    let following = node.follow(second, |_| ()).once().start().expect("it starts");
    for update in following.updates() {
        following.acknowledge(&update);
    }
    assert_dropped(&second_calls);
    following.shutdown().expect("no fault");
}

/// The source is ahead of the node.
#[test]
fn a_node_that_lags_does_not_end_it() {
    let node = Node::start();
    let (first, newest) = {
        let mut world = node.world();
        (world.at(10).expect("mined").at.hash, world.canonical.split_off(16))
    };
    let hash = newest[2];
    let (source, calls) =
        source(INTERVAL, move |call| Ok(vec![if call == 0 { first } else { hash }]));
    let missing = Arc::new(AtomicUsize::new(0));
    let sink = Arc::clone(&missing);
    let follow = node.follow(source, move |note| {
        if let Note::Follow(_) = note {
            sink.fetch_add(1, Ordering::SeqCst);
        }
    });
    let following = follow.start().expect("it starts");
    let mut updates = following.updates();
    read_until((&following, &mut updates), |update| is_anchored(update, 10));
    while let Some(update) = updates.next_within(5 * INTERVAL) {
        following.acknowledge(&update);
    }
    assert!(following.is_running());
    assert_eq!(missing.load(Ordering::SeqCst), 1);
    node.world().canonical.extend(newest);
    read_until((&following, &mut updates), |update| is_anchored(update, 18));
    following.shutdown().expect("no fault");
    assert_dropped(&calls);
}

/// An index replaces the headers of past blocks but for the newest ones, for all queries of a follower.
#[test]
fn an_index_is_followed() {
    let node = Node::start();
    let folder = TestFolder::new("followed");
    let storage = Folder::new(folder.path());
    let provider = || {
        let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
        Provider::builder().url(&node.url).profile(profile).trust_head().build().expect("a node")
    };
    let settings = Settings::new("test").expect("a label").with_block_hashes();
    let mut writer = Writer::open(storage.clone(), &settings).expect("a new index");
    writer.append(&provider().headers(0..=20).expect("headers")).expect("they are linked");
    writer.sync().expect("it is stored");
    let head = node.world().head().number;
    assert_eq!(head, 20);
    let all = LogQuery::new().from_block(0);
    let asked = all.clone().address(ASKED);
    let expected = provider().logs(&asked.clone().to_block(head)).expect("proven").logs;
    assert!(!expected.is_empty());
    // Each query adds its own candidates.
    let nothing = all.address(Address::repeat_byte(0xee));
    for (first, also) in [(&asked, &nothing), (&nothing, &asked)] {
        let index = Index::open(storage.clone()).expect("an index");
        let follow = provider().follow(first).also(also).keep(4).index(index).once();
        let following = follow.start().expect("it starts");
        assert_eq!(following.config().index.map(|index| index.last.number), Some(head - 4));
        let mut logs = Vec::new();
        for update in following.updates() {
            if let News::Blocks(blocks) = &update.news {
                logs.extend(blocks.logs.iter().cloned());
            }
            following.acknowledge(&update);
        }
        following.shutdown().expect("no fault");
        assert_eq!(logs, expected);
    }
    // Without hashes, the headers of candidates could not be asked for.
    drop(writer);
    let folder = TestFolder::new("without-hashes");
    let storage = Folder::new(folder.path());
    let settings = Settings::new("test").expect("a label");
    let mut writer = Writer::open(storage.clone(), &settings).expect("a new index");
    writer.append(&provider().headers(0..=20).expect("headers")).expect("they are linked");
    writer.sync().expect("it is stored");
    let index = Index::open(storage).expect("an index");
    let error = provider().follow(&nothing).index(index).start().expect_err("no hashes");
    assert!(error.to_string().contains("no block hashes"), "{error}");
}

/// Many candidates come in parts. The end of each part says how far it is complete, for all queries.
#[test]
fn candidates_of_an_index_come_in_parts() {
    const LAST: u64 = 3_999;
    let [often, seldom] = [0xaa, 0xbb].map(Address::repeat_byte);
    let has = |address: Address, number: u64| match number % 5 {
        0 => false,
        1 => address == seldom,
        _ => address == often,
    };
    let blooms = (0..=LAST).map(|number| {
        let mut bloom = Bloom::default();
        for address in [often, seldom].iter().filter(|address| has(**address, number)) {
            bloom.accrue(BloomInput::Raw(address.as_slice()));
        }
        bloom.0.0
    });
    let headers = linked_headers(0, B256::ZERO, 1, &blooms.collect::<Vec<_>>());
    let folder = TestFolder::new("parts");
    let storage = Folder::new(folder.path());
    let settings = Settings::new("test").expect("a label").with_block_hashes();
    let mut writer = Writer::open(storage.clone(), &settings).expect("a new index");
    writer.append(&headers).expect("they are linked");
    writer.sync().expect("it is stored");
    let mut index = Index::open(storage).expect("an index");
    for asked in [vec![often], vec![seldom, often], vec![often, seldom]] {
        let compile = |address: &Address| LogQuery::new().address(*address).compile();
        let queries: Vec<_> = asked.iter().map(compile).collect();
        let (mut found, mut first, mut parts) = (Vec::new(), 0, 0);
        while first <= LAST {
            let part = CandidateIndex::candidates(&mut index, &queries, first..=LAST);
            let (blocks, end) = part.expect("candidates");
            assert!(blocks.last().is_none_or(|last| last.number <= end.number));
            assert_eq!(Some(end.hash), headers.block(end.number).map(|block| block.hash));
            found.extend(blocks.iter().map(|block| (block.number, block.hash)));
            (first, parts) = (end.number + 1, parts + 1);
        }
        let expected: Vec<_> = headers
            .blocks()
            .filter(|block| asked.iter().any(|address| has(*address, block.number)))
            .map(|block| (block.number, block.hash))
            .collect();
        assert_eq!(found, expected);
        assert!(parts > 1, "all at once");
    }
}

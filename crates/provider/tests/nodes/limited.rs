//! A node that refuses for a while, or never answers, beside one that answers at once: no operation
//! waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::News;
use chainsieve::eth::log_query::BlockTag;
use chainsieve_provider::{Builder, Provider};
use testkit::eth::json_rpc::Sent;

use crate::node::{Chain, honest, serve};
use crate::{every_fourth, numbers, query, world};

/// Seconds that the limited node asks for. Whoever waits for it once exceeds [`MOMENT`].
const RETRY_AFTER: u64 = 120;
/// An upper bound of what takes no wait, also on a busy machine.
const MOMENT: Duration = Duration::from_secs(60);
/// Timeout of a request to a node that never answers.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns a node that refuses every request, and the number of requests that it got.
fn limited(chain: &Chain) -> (String, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let url = serve(chain, move |_, _, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(Sent::Limited(RETRY_AFTER))
    });
    (url, asked)
}

/// Returns a node that accepts requests and never answers.
fn hung(chain: &Chain) -> String {
    serve(chain, |_, _, _| {
        loop {
            std::thread::park();
        }
    })
}

/// Returns a provider with the default number of retries.
fn provider(urls: &[&str]) -> Builder {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().profile(profile).trust_head().timeout(TIMEOUT);
    urls.iter().fold(builder, |builder, url| builder.url(url))
}

/// Carries out each operation that needs one node only.
fn operations(provider: &Provider, chain: &Chain) {
    let hash = chain.hash(8);
    let header = provider.header(BlockTag::Latest).expect("a node").expect("a block");
    assert_eq!(header.hash(), chain.hash(20));
    let (header, receipts) = provider.block(hash).expect("a node").expect("the block");
    assert!(header.hash() == hash && !receipts.is_empty());
    assert_eq!(provider.headers(3..=9).expect("a node").len(), 7);
    assert_eq!(provider.scan(&query()).expect("a node").candidates.len(), 5);
    let proven = provider.logs(&query()).expect("a node");
    assert_eq!(numbers(&proven.logs), every_fourth(20));
    let audited = provider.audit_answer(&query().to_block(20), &proven.logs).expect("a node");
    assert_eq!(audited.reports[0].undecided().count(), 0);
}

/// Follows the chain to its end.
fn follow(provider: &Provider) {
    let following = provider.follow(&query()).once().start().expect("it starts");
    let mut logs = 0;
    for update in following.updates() {
        if let News::Blocks(next) = &update.news {
            logs += next.logs.len();
        }
        following.acknowledge(&update);
    }
    following.shutdown().expect("the end");
    assert_eq!(logs, 5);
}

#[test]
fn nobody_waits_for_a_limited_node() {
    let chain = Chain::of(&world(20));
    let good = honest(&chain);
    let (bad, asked) = limited(&chain);
    for urls in [[&*bad, &*good], [&*good, &*bad]] {
        let anchored = || provider(&urls).anchor(chain.hash(20)).build().expect("it is set up");
        let began = Instant::now();
        operations(&anchored(), &chain);
        follow(&anchored());
        assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
    }
    // It is left alone while it rests.
    assert!(asked.load(Ordering::Relaxed) < 20, "{asked:?}");
}

/// It costs a timeout in the first operation, and then it rests.
#[test]
fn a_hung_node_costs_little() {
    let chain = Chain::of(&world(20));
    let (good, bad) = (honest(&chain), hung(&chain));
    for urls in [[&*bad, &*good], [&*good, &*bad]] {
        let provider = provider(&urls).anchor(chain.hash(20)).build().expect("it is set up");
        let began = Instant::now();
        operations(&provider, &chain);
        follow(&provider);
        assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
    }
}

/// A user who waits is told what for.
#[test]
fn a_timeout_is_noted_before_the_request_is_repeated() {
    let chain = Chain::of(&world(4));
    let notes = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&notes);
    let provider = provider(&[&*hung(&chain)]).timeout(Duration::from_millis(100)).retries(1);
    let provider =
        provider.on_note(move |_, note| sink.lock().expect("no panic").push(note.to_string()));
    provider.build().expect("it is set up").chain_id().expect_err("no answer");
    let notes = notes.lock().expect("no panic");
    assert!(
        matches!(&notes[..], [note] if note.contains("timeout") && note.contains("again")),
        "{notes:?}"
    );
}

/// If nobody answers, the failed requests are repeated as often as is set.
#[test]
fn two_nodes_that_fail_for_a_moment_are_asked_again() {
    let chain = Chain::of(&world(20));
    let [first, second] = [(); 2].map(|()| {
        let fails = Mutex::new(3);
        serve(&chain, move |_, _, _| {
            let mut fails = fails.lock().expect("no panic");
            *fails = i32::checked_sub(*fails, 1).filter(|left| *left >= 0)?;
            Some(Sent::Status(503))
        })
    });
    let provider = provider(&[&first, &second]).build().expect("it is set up");
    assert_eq!(
        provider.header_by_hash(chain.hash(3)).expect("a node").map(|it| it.hash()),
        Some(chain.hash(3))
    );
}

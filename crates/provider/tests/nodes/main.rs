//! Tests with several nodes, one of which refuses, lags, is on another branch, lies or is silent.
//! The other nodes' data is used where it suffices, and the results report the faulty node.

mod limited;
mod node;

use std::time::Duration;

use chainsieve::eth::audit::{AuditError, Status, Undecidable};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockSelection, BlockTag, QueryError};
use chainsieve_provider::{
    BuildError, Builder, FetchError, FollowError, LogQuery, LogsError, Provider, RpcError, Warning,
};
use serde_json::{Value, json};

use node::{Chain, honest, serve};
use testkit::eth::json_rpc::Sent;
use testkit::eth::world::{ASKED, World};

/// Kinds of blocks: with one log that matches the query, and without logs.
const WITH_LOG: u8 = 5;
const EMPTY: u8 = 0;

/// Creates a world of `blocks` blocks after block 0. Every fourth block has a log.
fn world(blocks: u8) -> World {
    let mut world = World::new();
    grow(&mut world, blocks);
    world
}

fn grow(world: &mut World, blocks: u8) {
    for _ in 0..blocks {
        let number = world.canonical.len();
        world.mine(if number.is_multiple_of(4) { WITH_LOG } else { EMPTY });
    }
}

fn provider(urls: &[&str]) -> Builder {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().retries(0).profile(profile).trust_head();
    urls.iter().fold(builder, |builder, url| builder.url(url))
}

fn build(urls: &[&str]) -> Provider {
    provider(urls).build().expect("it is set up")
}

fn query() -> LogQuery {
    LogQuery::new().address(ASKED).from_block(0)
}

fn numbers(logs: &[LocatedLog]) -> Vec<u64> {
    logs.iter().map(|log| log.block_number).collect()
}

fn every_fourth(last: u64) -> Vec<u64> {
    (1..=last).filter(|number| number.is_multiple_of(4)).collect()
}

#[test]
fn a_node_that_refuses_or_talks_nonsense_is_passed_over() {
    let chain = Chain::of(&world(20));
    let good = honest(&chain);
    let refusals: [fn() -> Sent; 3] = [
        || Sent::Status(401),
        || Sent::Error(-32000, "unauthorized"),
        || Sent::Result(json!(["nonsense"])),
    ];
    for refusal in refusals {
        let bad = serve(&chain, move |_, _, _| Some(refusal()));
        for urls in [[bad.as_str(), good.as_str()], [good.as_str(), bad.as_str()]] {
            for provider in [provider(&urls), provider(&urls).final_only()] {
                let provider = provider.build().expect("it is set up");
                let proven = provider.logs(&query()).expect("proven");
                assert_eq!(numbers(&proven.logs), every_fourth(20));
                let scan = provider.scan(&query()).expect("scanned");
                assert_eq!(scan.candidates.len(), 5);
                // The audit fails, because it also needs the answer of the bad node.
                match provider.audit(&query()) {
                    Err(FetchError::Rpc { node, .. }) => assert_eq!(node, bad),
                    other => panic!("{other:?}"),
                }
            }
        }
        let alone = build(&[&bad]).logs(&query());
        assert!(matches!(alone, Err(LogsError::Fetch(FetchError::Rpc { .. }))), "{alone:?}");
    }
}

#[test]
fn a_node_that_does_not_know_the_finalized_block_leaves_it_open() {
    let chain = Chain::of(&world(20));
    let (good, young) = (
        honest(&chain),
        serve(&chain, |_, _, params| {
            (params[0] == "finalized").then_some(Sent::Result(Value::Null))
        }),
    );
    let proven = build(&[&good, &young]).logs(&query()).expect("proven");
    assert_eq!(proven.finalized, None);
    let both = provider(&[&good, &young]).final_only().build().expect("it is set up");
    let refused = both.logs(&query());
    assert!(matches!(refused, Err(LogsError::Fetch(FetchError::NoFinalized))), "{refused:?}");
}

#[test]
fn a_node_that_lags_shortens_the_range_and_is_named() {
    let chain = Chain::of(&world(100));
    let (ahead, behind, near) =
        (honest(&chain), honest(&chain.up_to(20)), honest(&chain.up_to(36)));
    for urls in [[&*ahead, &*behind], [&*behind, &*ahead]] {
        let provider = build(&urls);
        let proven = provider.logs(&query()).expect("proven");
        assert_eq!((proven.blocks, numbers(&proven.logs)), (0..=20, every_fourth(20)));
        let lags =
            Warning::Lags { node: behind.clone(), tag: BlockTag::Latest, block: 20, highest: 100 };
        assert!(proven.warnings.contains(&lags), "{:?}", proven.warnings);
        let audited = provider.audit(&query()).expect("audited");
        assert!(audited.answers.warnings.contains(&lags), "{:?}", audited.answers.warnings);
        assert!(audited.reports.iter().all(|report| report.status() == Status::Complete));
    }
    // If one node has the last block of a range, the lagging node does not matter.
    let proven = build(&[&behind, &ahead]).logs(&query().to_block(90)).expect("proven");
    assert_eq!(numbers(&proven.logs), every_fourth(90));
    let lags = |warning: &Warning| matches!(warning, Warning::Lags { .. });
    assert!(!proven.warnings.iter().any(lags), "{:?}", proven.warnings);
    // A lag of 64 blocks causes no warning.
    let proven = build(&[&ahead, &near]).logs(&query()).expect("proven");
    assert_eq!(proven.blocks, 0..=36);
    assert_eq!(proven.warnings, []);
}

#[test]
fn one_node_that_has_the_last_block_is_enough_for_logs() {
    let chain = Chain::of(&world(40));
    let (ahead, behind) = (honest(&chain), honest(&chain.up_to(20)));
    for urls in [[&*ahead, &*behind], [&*behind, &*ahead]] {
        let provider = build(&urls);
        let query = query().to_block(35);
        let proven = provider.logs(&query).expect("proven");
        assert_eq!((proven.blocks, numbers(&proven.logs)), (0..=35, every_fourth(35)));
        let scan = provider.scan(&query).expect("scanned");
        assert_eq!((scan.blocks, scan.candidates.len()), (0..=35, 8));
        // The tag `latest` still means the newest block that all nodes have.
        let from_newest = LogQuery::new().address(ASKED).from_block(BlockTag::Latest).to_block(35);
        assert_eq!(provider.logs(&from_newest).expect("proven").blocks, 20..=35);
        // The audit fails: it needs an answer of each node, and the head of one node is before the
        // range's last block.
        let beyond = |last, head| FetchError::Blocks(QueryError::BeyondHead { last, head });
        assert_eq!(provider.audit(&query).err(), Some(beyond(35, 20)));
        let query = query.to_block(41);
        assert!(
            matches!(provider.logs(&query), Err(LogsError::Fetch(error)) if error == beyond(41, 40))
        );
        assert_eq!(provider.scan(&query).err(), Some(beyond(41, 40)));
    }
}

/// Returns two chains that share their first twelve blocks.
fn two_branches() -> [Chain; 2] {
    let mut world = world(40);
    let first = Chain::of(&world);
    world.revert(28);
    grow(&mut world, 28);
    [first, Chain::of(&world)]
}

#[test]
fn the_chain_is_that_of_the_highest_anchor() {
    let [parted, right] = two_branches();
    let (low, high) = (right.hash(10), right.hash(30));
    let (stray, good) = (honest(&parted), honest(&right));
    for (node, urls) in [(1, [&*stray, &*good]), (0, [&*good, &*stray])] {
        for anchors in [vec![low, high], vec![high, low]] {
            let provider = provider(&urls).anchor(anchors).build().expect("it is set up");
            let proven = provider.logs(&query().to_block(25)).expect("proven");
            assert_eq!((proven.tip.node, proven.tip.block.hash), (node, high));
            assert!(proven.logs.iter().all(|log| right.hash(log.block_number) == log.block_hash));
            let headers = provider.headers(0..=35).expect("headers");
            assert_eq!(headers.block(35).map(|block| block.hash), Some(right.hash(35)));
        }
        // The anchor is on both chains, so no node's chain contains a higher anchor, and the first
        // node's chain is used.
        let provider = provider(&urls).anchor(low).build().expect("it is set up");
        match provider.logs(&query().to_block(25)) {
            Err(LogsError::Incomplete(incomplete)) => {
                assert_eq!(incomplete.proven.tip.node, 0);
                assert!(incomplete.missing.iter().all(|(_, why)| *why == Undecidable::Unanchored));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_block_by_its_hash_comes_from_the_node_that_has_it() {
    let [parted, right] = two_branches();
    let hash = right.hash(24);
    let query = LogQuery::new().address(ASKED).in_blocks(BlockSelection::AtHash(hash));
    let (stray, good) = (honest(&parted), honest(&right));
    for urls in [[&*stray, &*good], [&*good, &*stray]] {
        let provider = build(&urls);
        let proven = provider.logs(&query).expect("proven");
        assert_eq!(proven.logs.iter().map(|log| log.block_hash).collect::<Vec<_>>(), [hash]);
        let candidates = provider.scan(&query).expect("scanned").candidates;
        assert_eq!(candidates.iter().map(|block| block.hash).collect::<Vec<_>>(), [hash]);
    }
    // This node returns a block of another branch, but only if the block is requested by its hash.
    let not_on_chain = FetchError::Audit(AuditError::NotOnChain { hash });
    let remembers = honest(&Chain { others: right.blocks, ..parted });
    let provider = build(&[&remembers]);
    let refused = provider.logs(&query);
    assert!(
        matches!(&refused, Err(LogsError::Fetch(error)) if *error == not_on_chain),
        "{refused:?}"
    );
    assert_eq!(provider.scan(&query).err(), Some(not_on_chain));
}

#[test]
fn a_scan_goes_on_at_the_next_node() {
    let chain = Chain::of(&world(20));
    let good = honest(&chain);
    let broken = serve(&chain, |_, method, params| {
        let fails = method == "debug_getRawHeader" && params[0] == "0xc";
        fails.then_some(Sent::Status(503))
    });
    let scan = build(&[&broken, &good]).scan(&query()).expect("scanned");
    assert_eq!(scan.candidates.len(), 5);
    assert!(matches!(scan.warnings[..], [Warning::NoChain { .. }]), "{:?}", scan.warnings);
}

/// Returns `true` if the call requests receipts of this block.
fn is_of_receipts(chain: &Chain, block: u64, method: &str, params: &Value) -> bool {
    method.contains("Receipts")
        && (params[0] == json!(chain.hash(block)) || params[0] == format!("{block:#x}"))
}

#[test]
fn what_is_proven_of_a_node_is_said_though_it_is_silent_about_the_rest() {
    let chain = Chain::of(&world(10));
    let liar = serve(&chain, |chain, method, params| {
        if is_of_receipts(chain, 8, method, params) {
            return Some(Sent::Status(503));
        }
        let logs = (method == "eth_getLogs").then(|| chain.logs(&params[0]))?;
        let told = logs.into_iter().filter(|log| log["blockNumber"] != "0x4");
        Some(Sent::Result(told.collect()))
    });
    let provider = provider(&[&liar]).anchor(chain.hash(10)).build().expect("it is set up");
    let audited = provider.audit(&query()).expect("audited");
    let report = &audited.reports[0];
    assert_eq!(report.status(), Status::Wrong, "{report:?}");
    let undecided: Vec<_> = report.undecided().collect();
    assert_eq!(undecided, [(8, Undecidable::ReceiptsNotSupplied)]);
    assert_transient(audited.fetched.unreachable.as_ref(), &liar);

    // The audit of an answer that the caller passes has the same result.
    let audited = provider.audit_answer(&query().to_block(10), &[]).expect("audited");
    assert_eq!(audited.reports[0].status(), Status::Wrong);
    assert_transient(audited.fetched.unreachable.as_ref(), &liar);
}

fn assert_transient(error: Option<&FetchError>, of: &str) {
    match error {
        Some(FetchError::Rpc { node, error: RpcError::Http { status: 503 }, .. }) => {
            assert_eq!(node, of);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_silent_node_does_not_keep_others_from_being_asked_again() {
    let chain = Chain::of(&world(10));
    let silent =
        serve(&chain, |_, method, _| method.contains("Receipts").then_some(Sent::Status(503)));
    // This node returns receipts, but not by the method that is tried first.
    let odd = serve(&chain, |_, method, _| {
        (method == "eth_getBlockReceipts").then_some(Sent::Result(Value::Null))
    });
    for urls in [[&*silent, &*odd], [&*odd, &*silent]] {
        let proven = build(&urls).logs(&query()).expect("proven");
        assert_eq!(numbers(&proven.logs), every_fourth(10));
    }
}

#[test]
fn a_fault_names_the_node_that_answered_last() {
    let chain = Chain::of(&world(10));
    let wrong = || {
        serve(&chain, |_, method, _| {
            (method == "debug_getRawReceipts").then_some(Sent::Result(json!([])))
        })
    };
    let (first, second) = (wrong(), wrong());
    let follow = build(&[&first, &second]).follow(&query()).once().tries(2);
    let following = follow.poll(Duration::from_millis(1)).start().expect("it starts");
    for update in following.updates() {
        following.acknowledge(&update);
    }
    match following.shutdown() {
        Err(FollowError::Fault { node, .. }) => assert_eq!(node, second),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_operation_holds_no_more_than_it_may() {
    // There are five logs. The estimated size of each log is more than 300 and less than 400 bytes.
    let url = honest(&Chain::of(&world(20)));
    let few = || provider(&[&url]).max_held(1_500);
    let is_of = |what: &str, error: &FetchError| match error {
        FetchError::TooMuch { what: found, limit, .. } => (*found, *limit) == (what, 1_500),
        _ => false,
    };
    let provider = few().build().expect("it is set up");
    match provider.logs(&query()) {
        Err(LogsError::Fetch(error)) => assert!(is_of("logs", &error), "{error:?}"),
        other => panic!("{other:?}"),
    }
    let error = provider.audit(&query()).expect_err("the node's own logs");
    assert!(is_of("logs", &error), "{error:?}");
    assert_eq!(provider.scan(&query()).expect("scanned").candidates.len(), 5);
    let keeping = few().keep_evidence().build().expect("it is set up");
    let error = keeping.audit(&query()).expect_err("the headers");
    assert!(is_of("headers", &error), "{error:?}");
    let enough = self::provider(&[&url]).max_held(2_000).build().expect("it is set up");
    assert_eq!(enough.logs(&query()).expect("proven").logs.len(), 5);
}

#[test]
fn receipts_without_logs_are_held_as_well() {
    // The 40 blocks have 120 receipts without logs. Their filters rule nothing out, because the
    // chain's profile says that filters are unsound.
    let mut world = World::new();
    (0..40).for_each(|_| world.mine(3));
    let url = honest(&Chain::of(&world));
    let unsound = ChainProfile::assumed("test", BloomSoundness::Unsound, ReceiptsScope::EveryLog);
    let keeping = |bytes| {
        let builder = provider(&[&url]).profile(unsound.clone()).keep_evidence();
        builder.max_held(bytes).build().expect("it is set up")
    };
    let error = keeping(30_000).audit(&query()).expect_err("the receipts");
    assert!(
        matches!(error, FetchError::TooMuch { what: "receipts", limit: 30_000, .. }),
        "{error:?}"
    );
    assert_eq!(keeping(60_000).audit(&query()).expect("audited").fetched.kept.len(), 40);
}

#[test]
fn a_header_before_any_url_is_refused() {
    let refused = Provider::builder().header("X-Key: secret").url("http://127.0.0.1:1").build();
    assert_eq!(refused.err(), Some(BuildError::HeaderBeforeUrl));
}

//! Tests `chainsieve-provider` as a log scanner uses it, blocking and from tokio. The tests run
//! against anvil, whose answers a proxy alters, and against hardhat and ganache, which serve
//! neither `eth_getBlockReceipts` nor `debug_getRawHeader`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::{Address, B256, U256, keccak256};
use chainsieve::eth::audit::{AuditReport, Status};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{BlockTag, LogQuery, Semantics};
use chainsieve_conformance::serve::ethereum::lies::{LOG_LIES, RECEIPT_LIES};
use chainsieve_conformance::serve::json_rpc::Fate;
use chainsieve_provider::{
    AuditResult, Budget, Builder, FetchError, Following, LogUpdate, LogUpdates, LogsError, News,
    ProvenLogs, Provider, Trust,
};
use futures_core::Stream as _;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::anvil::{Anvil, number, shapes_of, targets};
use crate::ethereum::{Chain, Log, Query, STEPS, runner, script};
use crate::evm_nodes::{EvmNode, Program};
use crate::harness::{PATIENCE, Scene, live, rpc_proxy};
use crate::peers::Need;

#[path = "../../../crates/provider/examples/verified_scanner.rs"]
#[expect(dead_code, reason = "its main")]
mod verified_scanner;
#[path = "../../../crates/provider/examples/with_alloy.rs"]
#[expect(dead_code, reason = "its main")]
mod with_alloy;

pub(crate) fn tests() -> Vec<Trial> {
    let anvil = &[Need::Anvil];
    vec![
        live("provider_library_lies_blocking", anvil, |scene| lies(scene, &Caller::Blocking)),
        live("provider_library_lies_tokio", anvil, |scene| lies(scene, &Caller::tokio())),
        live("provider_library_receipts_blocking", anvil, |it| receipts(it, &Caller::Blocking)),
        live("provider_library_receipts_tokio", anvil, |it| receipts(it, &Caller::tokio())),
        live("provider_library_follows_blocking", anvil, |it| follows(it, &Caller::Blocking)),
        live("provider_library_follows_tokio", anvil, |scene| follows(scene, &Caller::tokio())),
        live("provider_library_two_of_which_one_lies", anvil, two),
        live("provider_library_fails_over", anvil, fails_over),
        live("provider_library_keeps_to_its_budget", anvil, budget),
        live("provider_library_is_cancelled_with_its_future", anvil, cancelled),
        live("provider_library_hardhat", &[Need::Hardhat], |scene| other(scene, Program::Hardhat)),
        live("provider_library_ganache", &[Need::Ganache], |scene| other(scene, Program::Ganache)),
    ]
}

/// Time that one call waits for an update.
const SHORT: Duration = Duration::from_millis(30);

/// The way in which the library is called: blocking or from tokio.
enum Caller {
    Blocking,
    Tokio(Runtime),
}

impl Caller {
    fn tokio() -> Self {
        Self::Tokio(Runtime::new().expect("a runtime"))
    }

    fn audit(&self, provider: &Provider, query: &LogQuery) -> Result<AuditResult, FetchError> {
        match self {
            Self::Blocking => provider.audit(query),
            Self::Tokio(runtime) => {
                let query = query.clone();
                runtime.block_on(provider.spawn(move |provider| provider.audit(&query)))
            }
        }
    }

    fn logs(&self, provider: &Provider, query: &LogQuery) -> Result<ProvenLogs, LogsError> {
        match self {
            Self::Blocking => provider.logs(query),
            Self::Tokio(runtime) => {
                let query = query.clone();
                runtime.block_on(provider.spawn(move |provider| provider.logs(&query)))
            }
        }
    }

    fn next(&self, mut updates: LogUpdates) -> Option<LogUpdate> {
        match self {
            Self::Blocking => updates.next_within(SHORT),
            // Futures are dropped often here. No update may be lost when a future is dropped.
            Self::Tokio(runtime) => runtime.block_on(async {
                let mut updates = updates.into_stream();
                let next = poll_fn(|task| Pin::new(&mut updates).poll_next(task));
                tokio::time::timeout(SHORT, next).await.unwrap_or(None)
            }),
        }
    }
}

/// Returns a builder for these nodes. The chain id of mainnet, with which anvil is started,
/// determines the rules for its headers and receipts.
fn provider(urls: &[&str]) -> Builder {
    let builder = Provider::builder().trust_head().retries(1);
    urls.iter().fold(builder, |builder, url| builder.url(url))
}

fn query(query: &Query, head: u64) -> LogQuery {
    LogQuery::from_json(&query.filter(0, head).to_string(), Semantics::Geth).expect("a filter")
}

fn chain(scene: &Scene, seed: u64) -> (Anvil, Chain) {
    shapes_of(scene, seed, &["--chain-id", "1"])
}

fn located(logs: &[Value]) -> Vec<LocatedLog> {
    logs.iter().map(|log| LocatedLog::from_json(&log.to_string()).expect("a log")).collect()
}

fn lies(scene: &Scene, caller: &Caller) {
    let (node, chain) = chain(scene, 21);
    let head = node.height();
    let everything = query(&Query::everything(), head);
    let truth = node.logs(&Query::everything().filter(0, head));
    for query in Query::all(&chain) {
        let expected = located(&node.logs(&query.filter(0, head)));
        let honest = provider(&[node.rpc().url()]).anchor(node.hash_at(head)).build().expect("it");
        let query = LogQuery::from_json(&query.filter(0, head).to_string(), Semantics::Geth);
        let query = query.expect("a filter");
        assert_eq!(caller.logs(&honest, &query).expect("proven").logs, expected);
        let audited = caller.audit(&honest, &query).expect("audited");
        assert_eq!(audited.reports[0].status(), Status::Complete);
        let candidates = honest.scan(&query).expect("scanned").candidates;
        let with_logs = expected.iter().map(|log| log.block_hash);
        assert!(with_logs.into_iter().all(|it| candidates.iter().any(|at| at.hash == it)));
    }
    let filter = alloy_rpc_types_eth::Filter::new().from_block(0_u64).to_block(head);
    let theirs = with_alloy::logs(node.rpc().url(), &filter).expect("proven");
    let expected: Vec<alloy_rpc_types_eth::Log> =
        truth.iter().map(|log| serde_json::from_value(log.clone()).expect("a log")).collect();
    assert_eq!(theirs, expected);
    for lie in &LOG_LIES {
        let name = lie.lie.id;
        for log in targets(&truth) {
            let told = log.clone();
            let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
                if let (true, Some(logs)) =
                    (method == "eth_getLogs", answer["result"].as_array_mut())
                    && logs.contains(&told)
                {
                    (lie.tell)(logs, &told);
                }
                Fate::Answered
            });
            let url = proxy.url();
            let liar = provider(&[&url]).anchor(node.hash_at(head)).build().expect("built");
            let audited = caller.audit(&liar, &everything).expect("audited");
            let report = &audited.reports[0];
            assert_eq!(report.status(), Status::Wrong, "{name}, {log}");
            // Logs that are read from receipts are right, whatever `eth_getLogs` returns.
            if name == "eth-log-omitted" {
                let proven = caller.logs(&liar, &everything).expect("proven");
                assert_eq!(proven.logs, located(&truth));
            }
        }
    }
}

fn receipts(scene: &Scene, caller: &Caller) {
    let (node, _) = chain(scene, 22);
    let head = node.height();
    let everything = query(&Query::everything(), head);
    let truth = node.logs(&Query::everything().filter(0, head));
    let block = number(&truth[truth.len() / 2]["blockNumber"]);
    let alone = node.rpc().call("eth_getBlockReceipts", &json!([format!("{block:#x}")]));
    let alone = alone.as_array().map(Vec::len) == Some(1);
    for lie in &RECEIPT_LIES {
        let name = lie.lie.id;
        if alone && name == "eth-receipts-swapped" {
            continue;
        }
        let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
            let number = json!(format!("{block:#x}"));
            if let (true, Some(receipts)) =
                (method == "eth_getBlockReceipts", answer["result"].as_array_mut())
                && receipts[0]["blockNumber"] == number
            {
                (lie.tell)(receipts);
            }
            if method == "eth_getTransactionReceipt" && answer["result"]["blockNumber"] == number {
                answer["result"] = Value::Null;
            }
            Fate::Answered
        });
        let url = proxy.url();
        let build = |urls: &[&str]| provider(urls).anchor(node.hash_at(head)).build().expect("it");
        let missing = match caller.logs(&build(&[&url]), &everything) {
            Err(LogsError::Incomplete(incomplete)) => {
                let others = truth.iter().filter(|log| number(&log["blockNumber"]) != block);
                let others: Vec<Value> = others.cloned().collect();
                assert_eq!(incomplete.proven.logs, located(&others), "{name}");
                incomplete.missing.iter().map(|(number, _)| *number).collect::<Vec<_>>()
            }
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(missing, [block], "{name}");
        // A second node has the receipts that the first node does not return.
        let both = caller.logs(&build(&[&url, node.rpc().url()]), &everything);
        assert_eq!(both.expect("proven").logs, located(&truth), "{name}");
    }
}

/// A reader that stores its own cursor has exactly the logs of the chain, however often it is
/// interrupted.
fn follows(scene: &Scene, caller: &Caller) {
    let (node, chain) = chain(scene, 23);
    let everything = LogQuery::new().from_block(0_u64);
    let provider = provider(&[node.rpc().url()]).build().expect("built");
    let mut kept: Vec<LocatedLog> = Vec::new();
    let mut cursor = None;
    let mut chain = chain;
    for round in 0..12_u64 {
        let start = |poll| {
            let builder = provider.follow(&everything).poll(Duration::from_millis(poll)).keep(64);
            let builder = match cursor.clone() {
                Some(cursor) => builder.cursor(cursor),
                None => builder,
            };
            builder.start().expect("it starts")
        };
        let following = start(20);
        let mut seen = 0;
        let until = Instant::now() + PATIENCE;
        // Interrupt the reader after some updates, one of which is not acknowledged.
        while !caught_up(&following, &node, seen) {
            assert!(Instant::now() < until, "it goes on: {:?}", following.status());
            let Some(update) = caller.next(following.updates()) else { continue };
            seen += 1;
            let is_lost = round % 3 == 1 && seen > round % 4;
            if is_lost {
                break;
            }
            take(&mut kept, &update.news);
            cursor.clone_from(&update.cursor);
            following.acknowledge(&update);
        }
        following.shutdown().expect("nothing was wrong");
        if round % 4 == 2 {
            let depth = 1 + round % 3;
            node.reorganise(depth, &[]);
        }
        chain.mine(&node, STEPS[usize::try_from(round).expect("small") % STEPS.len()]);
    }
    let following = provider.follow(&everything).cursor(cursor.expect("one")).once();
    let following = following.start().expect("it starts");
    for update in following.updates() {
        take(&mut kept, &update.news);
        following.acknowledge(&update);
    }
    following.shutdown().expect("nothing was wrong");
    let head = node.height();
    assert_eq!(kept, located(&node.logs(&Query::everything().filter(0, head))));
}

fn caught_up(following: &Following, node: &Anvil, seen: u64) -> bool {
    seen > 0 && following.status().last.is_some_and(|last| last.number >= node.height())
}

/// Applies an update. Each log is delivered once and withdrawn once, as the cursor is stored with
/// the logs.
fn take(kept: &mut Vec<LocatedLog>, update: &News) {
    match update {
        News::Blocks(blocks) => kept.extend(blocks.logs.iter().cloned()),
        News::Removed(removed) => {
            for log in &removed.logs {
                let last = kept.pop().expect("a log to take back");
                assert_eq!((last.block_hash, last.log_index), (log.block_hash, log.log_index));
            }
        }
        _ => {}
    }
}

/// One of two providers omits a log: the audit proves which one is wrong.
fn two(scene: &Scene) {
    let (node, _) = chain(scene, 24);
    let head = node.height();
    let everything = query(&Query::everything(), head);
    let truth = node.logs(&Query::everything().filter(0, head));
    let told = truth[truth.len() / 2].clone();
    let proxy = rpc_proxy(node.rpc(), move |method, _, answer| {
        if let (true, Some(logs)) = (method == "eth_getLogs", answer["result"].as_array_mut()) {
            logs.retain(|log| *log != told);
        }
        Fate::Answered
    });
    let url = proxy.url();
    for (urls, statuses) in [
        ([url.as_str(), node.rpc().url()], [Status::Wrong, Status::Complete]),
        ([node.rpc().url(), url.as_str()], [Status::Complete, Status::Wrong]),
    ] {
        let both = provider(&urls).build().expect("built");
        let audited = both.audit(&everything).expect("audited");
        let found: Vec<Status> = audited.reports.iter().map(AuditReport::status).collect();
        assert_eq!(found, statuses);
        assert!(audited.answers.tip.trust == Trust::NoAnchor && audited.answers.tip.is_agreed());
    }
}

/// If a request to one node fails, the library and its followers send the request to the other
/// node. A follower that was started inside a future outlives that future.
fn fails_over(scene: &Scene) {
    let (node, mut chain) = chain(scene, 27);
    let dead = rpc_proxy(node.rpc(), |_, _, _| Fate::Status(503));
    let everything = query(&Query::everything(), node.height());
    let url = dead.url();
    let halved = provider(&[&url, node.rpc().url()]).retries(0).build().expect("built");
    let truth = located(&node.logs(&Query::everything().filter(0, node.height())));
    assert_eq!(halved.logs(&everything).expect("proven").logs, truth);
    starts_at_another(&node);

    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let has_failed = Arc::new(AtomicBool::new(false));
    let failed = Arc::clone(&has_failed);
    let proxy = rpc_proxy(node.rpc(), move |method, _, _| {
        let is_of_receipts = method.contains("Receipt");
        let fails = is_of_receipts && broken.load(Ordering::Relaxed);
        failed.fetch_or(fails, Ordering::Relaxed);
        if fails { Fate::Status(503) } else { Fate::Answered }
    });
    let url = proxy.url();
    let both = provider(&[&url, node.rpc().url()]).retries(0).build().expect("built");
    let runtime = Runtime::new().expect("a runtime");
    let started = both.spawn(|provider| {
        let query = LogQuery::new().from_block(0_u64);
        provider.follow(&query).poll(Duration::from_millis(20)).start()
    });
    let following = runtime.block_on(started).expect("it starts");
    let mut updates = following.updates();
    let mut kept = Vec::new();
    for round in 0..3 {
        let until = Instant::now() + PATIENCE;
        let mut seen = u64::from(round > 0);
        while !caught_up(&following, &node, seen) {
            assert!(Instant::now() < until, "{:?}", following.status());
            let Some(update) = updates.next_within(SHORT) else { continue };
            seen += 1;
            take(&mut kept, &update.news);
            following.acknowledge(&update);
        }
        is_broken.store(true, Ordering::Relaxed);
        if round < 2 {
            for step in STEPS {
                chain.mine(&node, step);
            }
        }
    }
    following.shutdown().expect("nothing was wrong");
    assert_eq!(kept, located(&node.logs(&Query::everything().filter(0, node.height()))));
    assert!(kept.len() > truth.len());
    assert!(has_failed.load(Ordering::Relaxed), "the first node was asked for receipts");
}

/// If the first node lacks the start block of a follower, the follower starts with the other node.
fn starts_at_another(node: &Anvil) {
    let none = json!({ "result": null });
    let refused = json!({ "error": { "code": -32601, "message": "no" } });
    for (what, lacks) in [
        ("eth_getBlockByHash", none.clone()),
        ("eth_getBlockByHash", refused.clone()),
        ("safe", none),
        ("safe", refused),
    ] {
        let has_lied = Arc::new(AtomicBool::new(false));
        let lies = Arc::clone(&has_lied);
        let proxy = rpc_proxy(node.rpc(), move |method, parameters, answer| {
            if method == what || parameters[0] == what {
                answer.clone_from(&lacks);
                lies.store(true, Ordering::Relaxed);
            }
            Fate::Answered
        });
        let url = proxy.url();
        let both = provider(&[&url, node.rpc().url()]).retries(0);
        let both = both.anchor(node.hash_at(node.height())).build().expect("built");
        let safe = both.nodes()[1].block(BlockTag::Safe).expect("a safe block");
        let following = both.follow(&LogQuery::new()).start_at(BlockTag::Safe).once().start();
        let following = following.expect("it starts");
        let mut kept = Vec::new();
        for update in following.updates() {
            take(&mut kept, &update.news);
            following.acknowledge(&update);
        }
        let verified = following.shutdown().expect("nothing was wrong");
        assert_eq!(verified.last.map(|last| last.number), Some(node.height()));
        let wanted = Query::everything().filter(safe.number, node.height());
        assert_eq!(kept, located(&node.logs(&wanted)));
        assert!(has_lied.load(Ordering::Relaxed), "{what}");
    }
}

/// The calls, which a proxy counts, take at least as long as the budget requires.
fn budget(scene: &Scene) {
    let (node, _) = chain(scene, 25);
    let head = node.height();
    let proxy = rpc_proxy(node.rpc(), |_, _, _| Fate::Answered);
    let budget = Budget::per_second(40.0).cost("eth_getBlockReceipts", 5);
    let url = proxy.url();
    let thrifty = provider(&[&url]).budget(budget.clone()).build().expect("built");
    let began = Instant::now();
    thrifty.logs(&query(&Query::everything(), head)).expect("proven");
    let seconds = began.elapsed().as_secs_f64();
    let calls = proxy.calls();
    let spent = |(method, calls): (&String, &usize)| {
        u64::from(budget.cost_of(method)) * u64::try_from(*calls).expect("few")
    };
    let spent: u64 = calls.iter().map(spent).sum();
    assert_eq!(thrifty.nodes()[0].num_calls(), calls.values().map(|it| *it as u64).sum::<u64>());
    assert!(spent > 80, "{calls:?}");
    // The budget of one second is available at the start, and the last request may exceed the rate
    // by its own cost.
    let allowed = 40.0 * (seconds + 1.0);
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let spent = spent as f64;
    assert!(spent <= allowed + 1.0, "{spent} in {seconds} s: {calls:?}");
}

/// Dropping a future ends the requests of its operation.
fn cancelled(scene: &Scene) {
    let (node, _) = chain(scene, 26);
    let head = node.height();
    let runtime = Runtime::new().expect("a runtime");
    let proxy = rpc_proxy(node.rpc(), |_, _, _| Fate::Status(503));
    let url = proxy.url();
    let provider = provider(&[&url]).retries(1_000_000).build().expect("built");
    let everything = query(&Query::everything(), head);
    let (ended, end) = std::sync::mpsc::channel();
    let pending = provider.spawn(move |provider| {
        let failed = provider.logs(&everything);
        ended.send(matches!(failed, Err(LogsError::Fetch(FetchError::Stopped)))).expect("heard");
    });
    runtime.block_on(async {
        assert!(tokio::time::timeout(Duration::from_millis(600), pending).await.is_err());
    });
    assert!(end.recv_timeout(PATIENCE).expect("it ends"));
    assert!(!provider.stop().is_set());
}

/// Reads a token's transfers from a node other than anvil, with the methods that this node serves.
fn other(scene: &Scene, program: Program) {
    let node = EvmNode::start(scene, program);
    let token = node.create(&runner(true));
    let transfer = keccak256("Transfer(address,address,uint256)");
    let word = |address: Address| address.into_word();
    let mut expected = Vec::new();
    for value in 1..=40_u64 {
        let (from, to) = (Address::repeat_byte(1), Address::with_last_byte(7));
        let log = Log {
            topics: vec![transfer, word(from), word(to)],
            data: U256::from(value).to_be_bytes::<32>().to_vec(),
        };
        let other = Log { topics: vec![B256::repeat_byte(9)], data: Vec::new() };
        node.call(token, &script(&[log, other], false));
        expected.push(value.to_string());
    }
    let head = node.height();
    let (url, token) = (node.rpc().url(), token.to_string());
    let block = node.rpc().call("eth_getBlockByNumber", &json!([format!("{head:#x}"), false]));
    let anchor = serde_json::from_value(block["hash"].clone()).expect("a hash");
    let transfers = verified_scanner::transfers(url, &token, (0, head), anchor).expect("proven");
    let values = transfers.iter().map(|event| {
        let event: Value = serde_json::from_str(event).expect("JSON");
        event["arguments"]["value"].as_str().expect("a number").to_owned()
    });
    assert_eq!(values.collect::<Vec<_>>(), expected);
    let everything = LogQuery::new().from_block(0_u64).to_block(head);
    let provider = provider(&[node.rpc().url()]).build().expect("built");
    let all = node
        .rpc()
        .call("eth_getLogs", &json!([{ "fromBlock": "0x0", "toBlock": format!("{head:#x}") }]));
    let all = located(all.as_array().expect("a list"));
    assert_eq!(all.len(), 80);
    let proven = provider.logs(&everything).expect("proven").logs;
    let key =
        |log: &LocatedLog| (log.block_hash, log.log_index, log.log.clone(), log.transaction_hash);
    assert_eq!(proven.iter().map(key).collect::<Vec<_>>(), all.iter().map(key).collect::<Vec<_>>());
    let audited = provider.audit(&everything).expect("audited");
    assert_eq!(audited.reports[0].status(), Status::Complete);
}

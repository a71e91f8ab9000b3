//! Transaction hashes of logs: those of the chain's own transactions, whatever a node invents, or
//! marked as a claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::follow::News;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::LogQuery;
use chainsieve_provider::{Builder, Following, Provider, Warning};
use serde_json::{Value, json};
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::{Chain, Corpus};
use testkit::eth::rpc_methods::receipts_json;
use testkit::stride;

use crate::upstream::Upstream;

/// What a node claims.
const INVENTED: B256 = B256::repeat_byte(0xee);

/// The chain has transactions of all types.
fn chain() -> Option<&'static Chain> {
    Some(&Corpus::open()?.chains["ea2026"])
}

/// Returns all logs of the chain, with their true transaction hashes.
fn expected(chain: &Chain) -> Vec<LocatedLog> {
    chain.run.blocks.iter().flat_map(|block| block.logs.clone()).collect()
}

fn with_logs(chain: &Chain) -> u64 {
    chain.run.blocks.iter().filter(|block| !block.logs.is_empty()).count() as u64
}

/// Changes a block with whole transactions, or replaces the answer with it.
type Lie = fn(Value) -> Sent;

/// A node whose receipts have invented hashes.
struct Inventor {
    node: Upstream,
    /// Number of the calls for blocks with whole transactions so far.
    bodies: Arc<AtomicU64>,
}

fn inventor(chain: &Chain, lie: Option<Lie>) -> Inventor {
    let (node, bodies) = (Upstream::start(chain), Arc::<AtomicU64>::default());
    let (of_node, asked) = (node.clone(), Arc::clone(&bodies));
    node.lie(move |method, params, honest| match (method, honest) {
        ("eth_getBlockReceipts", _) => {
            let block = of_node.blocks().iter().find(|block| json!(block.hash) == params[0])?;
            Some(Sent::Result(receipts_json(&block.rpc(), |_| INVENTED)))
        }
        ("eth_getBlockByHash", Sent::Result(block)) if params[1] == true => {
            asked.fetch_add(1, Ordering::Relaxed);
            lie.map(|lie| lie(block.clone()))
        }
        _ => None,
    });
    Inventor { node, bodies }
}

impl Inventor {
    fn num_bodies(&self) -> u64 {
        self.bodies.load(Ordering::Relaxed)
    }
}

fn builder(chain: &Chain, servers: &[&Inventor]) -> Builder {
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let builder = Provider::builder().profile(profile).retries(0).anchor(chain.run.tip());
    servers.iter().fold(builder, |builder, server| builder.url(&server.node.url()))
}

fn query(chain: &Chain) -> LogQuery {
    LogQuery::new().from_block(chain.run.first()).to_block(chain.run.last())
}

/// Returns the logs of `Provider::logs`, and its warnings.
fn proven(chain: &Chain, servers: &[&Inventor]) -> (Vec<LocatedLog>, Vec<Warning>) {
    let provider = builder(chain, servers).build().expect("it is set up");
    let proven = provider.logs(&query(chain)).expect("the logs are proven");
    (proven.logs, proven.warnings)
}

/// Returns the logs that a follower gives out.
fn followed(chain: &Chain, servers: &[&Inventor]) -> Vec<LocatedLog> {
    let provider = builder(chain, servers).build().expect("it is set up");
    let follow = provider.follow(&query(chain)).poll(Duration::from_millis(1));
    given_out(follow.start().expect("it starts"))
}

fn given_out(following: Following) -> Vec<LocatedLog> {
    let mut logs = Vec::new();
    for update in following.updates() {
        if let News::Blocks(blocks) = &update.news {
            logs.extend(blocks.logs.clone());
        }
        following.acknowledge(&update);
    }
    following.shutdown().expect("it ends at the last block");
    logs
}

/// Returns the logs with an invented claim in place of their hash.
fn claimed(logs: Vec<LocatedLog>) -> Vec<LocatedLog> {
    let claimed = |log| LocatedLog {
        transaction_hash: None,
        claimed_transaction_hash: Some(INVENTED),
        ..log
    };
    logs.into_iter().map(claimed).collect()
}

fn transactions(block: &mut Value) -> &mut Vec<Value> {
    block["transactions"].as_array_mut().expect("a list")
}

fn cut(mut block: Value) -> Sent {
    transactions(&mut block).pop();
    Sent::Result(block)
}

fn altered(mut block: Value) -> Sent {
    for transaction in transactions(&mut block) {
        transaction["value"] = json!("0x7e57");
    }
    Sent::Result(block)
}

fn of_unknown_type(mut block: Value) -> Sent {
    for transaction in transactions(&mut block) {
        transaction["type"] = json!("0x64");
    }
    Sent::Result(block)
}

/// The node ignores that whole transactions were requested.
fn hashes_alone(mut block: Value) -> Sent {
    for transaction in transactions(&mut block) {
        *transaction = json!(INVENTED);
    }
    Sent::Result(block)
}

fn empty(mut block: Value) -> Sent {
    transactions(&mut block).clear();
    Sent::Result(block)
}

fn null(_: Value) -> Sent {
    Sent::Result(Value::Null)
}

fn refused(_: Value) -> Sent {
    Sent::Error(-32601, "the method does not exist/is not available")
}

fn silent(_: Value) -> Sent {
    Sent::Status(503)
}

/// A block with logs.
const LACKING: u64 = 17;

fn lacking_one(block: Value) -> Sent {
    if block["number"] == json!("0x11") { null(block) } else { Sent::Result(block) }
}

const LIES: [(&str, Lie); 8] = [
    ("cut", cut),
    ("altered", altered),
    ("of an unknown type", of_unknown_type),
    ("hashes alone", hashes_alone),
    ("empty", empty),
    ("null", null),
    ("refused", refused),
    ("silent", silent),
];

#[test]
fn an_invented_hash_does_not_get_through() {
    let Some(chain) = chain() else { return };
    let node = inventor(chain, None);
    assert_eq!(proven(chain, &[&node]), (expected(chain), vec![]));
    // The transactions of each block with a match are requested once.
    assert_eq!(node.num_bodies(), with_logs(chain));
    assert_eq!(followed(chain, &[&node]), expected(chain));
    assert_eq!(node.num_bodies(), 2 * with_logs(chain));
}

#[test]
fn without_the_right_transactions_the_logs_are_proven_and_the_hash_is_a_claim() {
    let Some(chain) = chain() else { return };
    for (name, lie) in LIES {
        let node = inventor(chain, Some(lie));
        let (logs, warnings) = proven(chain, &[&node]);
        assert_eq!(logs, claimed(expected(chain)), "{name}");
        let [Warning::UnprovenHashes { blocks, first, node: of, .. }] = &warnings[..] else {
            panic!("{name}: {warnings:?}")
        };
        assert_eq!((*blocks, *first), (with_logs(chain), logs[0].block_number), "{name}");
        assert_eq!(*of, node.node.url(), "{name}");
        assert_eq!(followed(chain, &[&node]), claimed(expected(chain)), "{name}");
    }
}

/// After three failures in a row, a node is not asked for the transactions of further blocks, except
/// of the few whose requests are under way.
#[test]
fn a_silent_node_is_not_asked_for_each_block() {
    let Some(chain) = chain() else { return };
    assert!(with_logs(chain) > 10);
    for (name, lie, is_silent) in [("silent", silent as Lie, true), ("null", null, false)] {
        let node = inventor(chain, Some(lie));
        let provider = builder(chain, &[&node]).batch(1).parallel(1).build().expect("it is set up");
        provider.logs(&query(chain)).expect("the logs are proven");
        let expected = if is_silent { 3..=5 } else { with_logs(chain)..=with_logs(chain) };
        assert!(expected.contains(&node.num_bodies()), "{name}: {}", node.num_bodies());
    }
}

#[test]
fn another_node_has_the_right_transactions() {
    let Some(chain) = chain() else { return };
    let honest = inventor(chain, None);
    for (index, (name, lie)) in LIES.into_iter().enumerate() {
        let liar = inventor(chain, Some(lie));
        // A liar that is asked last is hardly asked, so few lies are told in this order.
        let orders = if index.is_multiple_of(stride(8)) { 2 } else { 1 };
        for servers in [[&liar, &honest], [&honest, &liar]].into_iter().take(orders) {
            assert_eq!(proven(chain, &servers), (expected(chain), vec![]), "{name}");
            assert_eq!(followed(chain, &servers), expected(chain), "{name}");
        }
    }
}

#[test]
fn one_block_without_transactions_spoils_no_other() {
    let Some(chain) = chain() else { return };
    let node = inventor(chain, Some(lacking_one));
    let mut expected = expected(chain);
    let of_block = |log: &&mut LocatedLog| log.block_number == LACKING;
    for log in expected.iter_mut().filter(of_block) {
        *log = claimed(vec![log.clone()]).remove(0);
    }
    assert!(expected.iter().any(|log| log.transaction_hash.is_none()));
    let (logs, warnings) = proven(chain, &[&node]);
    assert_eq!(logs, expected);
    assert!(
        matches!(&warnings[..], [Warning::UnprovenHashes { blocks: 1, first: LACKING, .. }]),
        "{warnings:?}"
    );
    assert_eq!(followed(chain, &[&node]), expected);
}

#[test]
fn without_transaction_hashes_no_transactions_are_requested() {
    let Some(chain) = chain() else { return };
    let node = inventor(chain, None);
    let provider = builder(chain, &[&node]).without_transaction_hashes();
    let provider = provider.build().expect("it is set up");
    let proven = provider.logs(&query(chain)).expect("proven");
    assert_eq!((proven.logs, proven.warnings), (claimed(expected(chain)), vec![]));
    let logs = given_out(provider.follow(&query(chain)).start().expect("it starts"));
    assert_eq!(logs, claimed(expected(chain)));
    assert_eq!(node.num_bodies(), 0);
}

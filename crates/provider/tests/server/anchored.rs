//! The head comes from a light client, over a beacon node that nobody trusts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve_provider::{AnchorSource, BeaconClient, Provider};
use serde_json::{Value, json};
use testkit::eth::beacon_server::{BeaconServer, Quirk};
use testkit::eth::final_blocks::FinalBlocks;
use testkit::eth::json_rpc::serve_any;
use testkit::eth::log_chains::Corpus;
use testkit::eth::state_chain::StateChain;

use crate::upstream::{Block, Upstream, ask, get};
use crate::{provider, started, until};

/// Time after which a light client gives up on a request.
const TIMEOUT: Duration = Duration::from_secs(240);

/// Returns a light client that starts from the chain's checkpoint, and asks a server.
pub(crate) fn light_client(blocks: &FinalBlocks, server: &BeaconServer) -> BeaconClient {
    let network = blocks.world.network.clone();
    let builder = BeaconClient::builder(network).checkpoint(blocks.checkpoint());
    let poll = Duration::from_millis(50);
    builder.url(server.url()).retries(0).timeout(TIMEOUT).poll(poll).build().expect("a client")
}

/// Returns a light client of a beacon chain that finalises a block, and its server.
fn finalised(blocks: &mut FinalBlocks, header: &[u8]) -> (BeaconClient, BeaconServer) {
    let data = blocks.finalise(header);
    let server = BeaconServer::start(&blocks.world.network, data);
    (light_client(blocks, &server), server)
}

#[test]
fn the_head_is_the_one_of_the_light_client() {
    let Some(corpus) = Corpus::open() else { return };
    let chain = &corpus.chains["ethtest"];
    let upstream = Upstream::start(chain);
    let block = |number: usize| &upstream.blocks()[number];
    let mut blocks = FinalBlocks::new(false);
    let (client, beacon) = finalised(&mut blocks, &block(300).header);
    let builder = provider(&[&upstream]).anchor(client).build().expect("nodes").serve();
    let server = started(builder.poll(Duration::from_millis(20)));
    let address = server.address();
    let head = || ask(address, "eth_blockNumber", &json!([]))["result"].clone();
    assert_eq!(head(), "0x12c");
    let filter = id_of(&ask(address, "eth_newFilter", &json!([{}])));
    let logs = |from: &str, to: &str| {
        ask(address, "eth_getLogs", &json!([{ "fromBlock": from, "toBlock": to }]))
    };
    let expected: usize = (0..=300).map(|number| block(number).logs.len()).sum();
    let all = logs("earliest", "latest");
    assert_eq!(all["result"].as_array().map(Vec::len), Some(expected), "{}", all["error"]);
    assert_eq!(logs("earliest", "finalized"), all);
    // Whatever the node has after it is not verified.
    let error = &logs("0x12d", "0x12d")["error"];
    assert_eq!(error["data"]["reason"], "beyond_verified_head", "{error}");
    assert_eq!(error["data"]["verifiedHead"], 300);
    let later = json!([{ "blockHash": block(301).hash }]);
    assert_eq!(ask(address, "eth_getLogs", &later)["error"]["message"], "unknown block");
    let receipt = json!([block(301).hashes[0]]);
    assert_eq!(ask(address, "eth_getTransactionReceipt", &receipt)["result"], Value::Null);

    beacon.set(blocks.finalise(&block(420).header));
    until("the head", || head() == "0x1a4");
    let new: Vec<_> = (301..=420).flat_map(|number| &block(number).logs).collect();
    let changes = ask(address, "eth_getFilterChanges", &json!([filter]));
    assert_eq!(changes["result"], json!(new), "{}", changes["error"]);
}

fn id_of(answer: &Value) -> String {
    answer["result"].as_str().expect("an id").to_owned()
}

#[test]
fn a_node_of_another_chain_is_never_ready() {
    let Some(corpus) = Corpus::open() else { return };
    let (chain, other) = (&corpus.chains["ethtest"], &corpus.chains["ea2026"]);
    let header = &chain.run.blocks[300].header;
    let (client, _beacon) = finalised(&mut FinalBlocks::new(true), header);
    let upstream = Upstream::start(other);
    let builder = provider(&[&upstream]).anchor(client).build().expect("nodes").serve();
    let (said, happened) = std::sync::mpsc::channel();
    let builder = builder.on_event(move |event| drop(said.send(event.to_string())));
    let server = builder.start("127.0.0.1:0".parse().expect("one")).expect("it starts");
    let event = happened.recv_timeout(Duration::from_secs(60)).expect("an event");
    assert!(event.contains("the node does not have"), "{event}");
    assert_eq!(get(server.address(), "/health").0, 503);
    let answer = ask(server.address(), "eth_getLogs", &json!([{}]));
    assert_eq!(answer["error"]["data"]["reason"], "not_ready", "{answer}");
}

/// Hashes that are trusted, and the number of times that somebody asked for them.
#[derive(Debug, Clone)]
struct Counted(Vec<B256>, Arc<AtomicU64>);

impl AnchorSource for Counted {
    fn blocks(&self) -> Result<Vec<B256>, String> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.clone())
    }
}

/// The headers of trusted hashes are fetched once, also those of lower ones.
#[test]
fn an_idle_endpoint_with_anchors_asks_for_nothing() {
    let upstream = Upstream::of(Block::chain(1, 100));
    let hashes = [10, 80, 50].map(|number: usize| upstream.blocks()[number].hash);
    let polls = Arc::new(AtomicU64::new(0));
    let anchor = Counted(hashes.to_vec(), Arc::clone(&polls));
    let serve = provider(&[&upstream]).anchor(anchor).build().expect("a node").serve();
    let server = started(serve.poll(Duration::from_millis(5)).without_comparison());
    assert_eq!(server.head().map(|head| head.number), Some(80));
    let some_polls = || {
        let before = polls.load(Ordering::Relaxed);
        until("some polls", || polls.load(Ordering::Relaxed) > before + 20);
    };
    some_polls();
    upstream.take_calls();
    some_polls();
    assert_eq!(upstream.take_calls(), [""; 0]);
}

/// A range far below the head needs its own headers, and a proof by the history contract.
#[test]
fn old_blocks_are_linked_by_the_history_contract() {
    const HEAD: u64 = 20_000;
    let chain = Arc::new(StateChain::new(HEAD, 0, &[HEAD, HEAD - 8191, HEAD - 2 * 8191]));
    let (headers, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let address = {
        let (chain, headers, calls) =
            (Arc::clone(&chain), Arc::clone(&headers), Arc::clone(&calls));
        serve_any(move |method, params| {
            calls.fetch_add(1, Ordering::Relaxed);
            let is_header = ["debug_getRawHeader", "eth_getBlockByNumber"].contains(&method);
            headers.fetch_add(u64::from(is_header), Ordering::Relaxed);
            chain.answer(method, params)
        })
    };
    let (client, beacon) = finalised(&mut FinalBlocks::new(false), chain.header(HEAD));
    let provider = Provider::builder()
        .url(&format!("http://{address}"))
        .profile(ChainProfile::ethereum())
        .retries(0)
        .anchor(client)
        .build()
        .expect("a node");
    let server = provider.serve().poll(Duration::from_millis(20)).without_comparison();
    let server = started(server);
    // A beacon node that stalls delays no question about blocks that are final already.
    beacon.set_quirk(Some(Quirk::Silent));
    beacon.take_asked();
    until("the light client asks", || !beacon.take_asked().is_empty());
    let began = Instant::now();
    let old = json!([{ "fromBlock": "0x64", "toBlock": "0x77" }]);
    headers.store(0, Ordering::Relaxed);
    for _ in 0..2 {
        let answer = ask(server.address(), "eth_getLogs", &old);
        assert_eq!(answer["result"], json!([]), "{answer}");
        // One more, because the first one tells if the node has the method.
        let asked = headers.load(Ordering::Relaxed);
        assert!((20..=25).contains(&asked), "{asked}");
    }
    assert!(began.elapsed() < TIMEOUT / 2, "it waited for the beacon node");
    // So are nearer ones: a proof costs a handful of calls.
    calls.store(0, Ordering::Relaxed);
    let near = json!([{ "fromBlock": "0x36b0", "toBlock": "0x36b0" }]);
    assert_eq!(ask(server.address(), "eth_getLogs", &near)["result"], json!([]));
    let asked = calls.load(Ordering::Relaxed);
    assert!((1..=10).contains(&asked), "{asked} calls for one block");
    headers.store(0, Ordering::Relaxed);
    // The nearest ones are reached by the headers in between.
    let near = json!([{ "fromBlock": "0x4d00", "toBlock": "0x4d01" }]);
    assert_eq!(ask(server.address(), "eth_getLogs", &near)["result"], json!([]));
    // The newest 256 are known from the start on.
    let between = HEAD - 0x4d00 - 256;
    assert!((between..between + 10).contains(&headers.load(Ordering::Relaxed)), "{headers:?}");
}

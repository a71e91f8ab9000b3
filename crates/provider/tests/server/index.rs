//! The index of filters beside the endpoint: it answers like the headers, and proves nothing by itself.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::index::{Folder as IndexFolder, Index, Settings, Writer};
use chainsieve_provider::{RpcServer, RpcServerBuilder, RpcServerEvent};
use serde_json::{Value, json};
use testkit::Rng;
use testkit::eth::log_chains::{Chain, Corpus};

use crate::lies::question;
use crate::upstream::{Upstream, ask, get};
use testkit::TestFolder;

use crate::{endpoint, forgetful, provider, started, until};

fn chain(name: &str) -> Option<&'static Chain> {
    Some(&Corpus::open()?.chains[name])
}

/// Starts an endpoint, and returns what it says of its index.
fn watched(builder: RpcServerBuilder) -> (RpcServer, Receiver<RpcServerEvent>) {
    let (said, events) = mpsc::channel();
    let server = builder
        .on_event(move |event| {
            let is_of_index = matches!(
                event,
                RpcServerEvent::Indexed { .. } | RpcServerEvent::IndexFailed { .. }
            );
            if is_of_index {
                let _ = said.send(event.clone());
            }
        })
        .start("127.0.0.1:0".parse().expect("an address"))
        .expect("it starts");
    (server, events)
}

fn next(events: &Receiver<RpcServerEvent>) -> RpcServerEvent {
    events.recv_timeout(Duration::from_secs(60)).expect("an event")
}

/// Asks questions, and compares the answers with the chain's own blocks.
fn answers_are_right(server: &RpcServer, upstream: &Upstream, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..60 {
        let (filter, expected) = question(&mut rng, upstream.blocks());
        let answer = ask(server.address(), "eth_getLogs", &json!([filter]));
        assert_eq!(answer["result"], json!(expected), "{filter}: {}", answer["error"]);
    }
}

fn is_header(method: &str) -> bool {
    ["debug_getRawHeader", "eth_getBlockByHash", "eth_getBlockByNumber"].contains(&method)
}

#[test]
fn an_index_takes_the_place_of_headers() {
    let Some(chain) = chain("ethtest") else { return };
    let (upstream, last) = (Upstream::start(chain), chain.run.last());
    let [index, blocks] = ["index", "blocks-of-index"].map(TestFolder::absent);
    let builder = || {
        let builder = endpoint(&[&upstream], chain.run.tip()).limits(forgetful());
        builder.without_comparison().index(index.path()).index_from(5).folder(blocks.path())
    };
    let all = RpcServerEvent::Indexed { blocks: 5..=last };
    {
        let (server, events) = watched(builder());
        assert_eq!(next(&events), all);
        answers_are_right(&server, &upstream, 1);
        let health: Value =
            serde_json::from_str(&get(server.address(), "/health").1).expect("JSON");
        assert_eq!(health["index"], json!({ "start": 5, "end": last }));
        let metrics = get(server.address(), "/metrics").1;
        assert!(metrics.contains(&format!("chainsieve_index_last_block {last}\n")), "{metrics}");
    }
    // A later run asks for the headers of candidates alone.
    let (server, events) = watched(builder());
    assert_eq!(next(&events), all);
    upstream.take_calls();
    let nobody = json!([{
        "address": B256::repeat_byte(0x5c).to_string()[..42], "fromBlock": "0x5", "toBlock": "latest",
    }]);
    let answer = ask(server.address(), "eth_getLogs", &nobody);
    assert_eq!(answer["result"], json!([]), "{answer}");
    let ruled_out = upstream.take_calls();
    let headers = ruled_out.iter().filter(|method| is_header(method.as_str())).count();
    assert!(headers * 20 < chain.run.blocks.len(), "{headers} headers: {answer}");
    // Where most blocks are candidates, many headers come at once.
    let everything = json!([{ "fromBlock": "0x5", "toBlock": "latest" }]);
    let before = upstream.num_requests();
    upstream.take_calls();
    assert!(ask(server.address(), "eth_getLogs", &everything)["result"].is_array());
    let calls = upstream.take_calls();
    let headers = calls.iter().filter(|method| is_header(method.as_str())).count() as u64;
    let requests = upstream.num_requests() - before;
    assert!(requests + headers / 2 < calls.len() as u64, "{requests} requests, {headers} headers");
    answers_are_right(&server, &upstream, 2);
    // Blocks before the index are reached, too.
    let logs = |from: u64, to: u64| {
        let filter = json!([{ "fromBlock": format!("{from:#x}"), "toBlock": format!("{to:#x}") }]);
        ask(server.address(), "eth_getLogs", &filter)["result"].clone()
    };
    let expected = |from: u64, to: u64| {
        let blocks = upstream.blocks().iter().filter(|block| (from..=to).contains(&block.number));
        json!(blocks.flat_map(|block| &block.logs).collect::<Vec<_>>())
    };
    assert_eq!(logs(0, 40), expected(0, 40));
    assert_eq!(logs(0, 4), expected(0, 4));
}

#[test]
fn an_index_of_another_chain_is_not_used() {
    let (Some(chain), Some(other)) = (chain("ethtest"), chain("ea2026")) else { return };
    let folder = TestFolder::absent("index-of-another-chain");
    {
        let upstream = Upstream::start(other);
        let builder = endpoint(&[&upstream], other.run.tip()).index(folder.path());
        let (_server, events) = watched(builder.index_from(other.run.last() - 20));
        assert!(matches!(next(&events), RpcServerEvent::Indexed { .. }));
    }
    let upstream = Upstream::start(chain);
    let builder = endpoint(&[&upstream], chain.run.tip()).index(folder.path());
    let (server, events) = watched(builder);
    let RpcServerEvent::IndexFailed { why } = next(&events) else { panic!("it was used") };
    assert!(why.contains("of the index is"), "{why}");
    until("a head", || get(server.address(), "/health").0 == 200);
    answers_are_right(&server, &upstream, 3);
}

/// Only what the verified chain has counts, also if the index goes on with other blocks.
#[test]
fn an_index_ahead_of_the_head_is_used_up_to_it() {
    let Some(chain) = chain("ethtest") else { return };
    let folder = TestFolder::absent("index-ahead");
    let upstream = Upstream::start(chain);
    {
        let builder = endpoint(&[&upstream], chain.run.tip()).index(folder.path()).index_from(0);
        assert!(matches!(next(&watched(builder).1), RpcServerEvent::Indexed { .. }));
    }
    let anchor = upstream.blocks()[300].hash;
    let (server, events) = watched(endpoint(&[&upstream], anchor).index(folder.path()));
    assert_eq!(next(&events), RpcServerEvent::Indexed { blocks: 0..=300 });
    answers_are_right_up_to(&server, &upstream, 300);
    let error = &ask(server.address(), "eth_getLogs", &json!([{ "toBlock": "0x12d" }]))["error"];
    assert_eq!(error["data"]["reason"], "beyond_verified_head", "{error}");
    let hash = json!([{ "blockHash": upstream.blocks()[301].hash }]);
    assert_eq!(ask(server.address(), "eth_getLogs", &hash)["error"]["message"], "unknown block");
}

#[test]
fn an_index_grows_with_what_is_final() {
    let Some(chain) = chain("ethtest") else { return };
    let folder = TestFolder::absent("index-grows");
    let upstream = Upstream::start(chain);
    upstream.set_head(100);
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = provider.serve().index(folder.path());
    let server = started(server.poll(Duration::from_millis(10)));
    let last = || {
        let health = get(server.address(), "/health").1;
        serde_json::from_str::<Value>(&health).expect("JSON")["index"].clone()
    };
    for head in [100, 101, 250, 400] {
        upstream.set_head(head);
        until("the index", || last() == json!({ "start": 100, "end": head }));
    }
    answers_are_right_up_to(&server, &upstream, 400);
    // It can be read by others, and has what the chain's headers have.
    let index = Index::open(IndexFolder::new(folder.path())).expect("an index");
    assert_eq!(index.settings().label(), "chain 1337");
    let hashes = index.hashes_around(100).expect("readable").expect("hashes").1;
    let expected = upstream.blocks()[100..=400].iter().map(|block| block.hash);
    assert_eq!(hashes, expected.collect::<Vec<_>>());
}

fn answers_are_right_up_to(server: &RpcServer, upstream: &Upstream, last: u64) {
    let filter = json!([{ "fromBlock": "0x0", "toBlock": format!("{last:#x}") }]);
    let answer = ask(server.address(), "eth_getLogs", &filter);
    let blocks = upstream.blocks().iter().filter(|block| block.number <= last);
    let expected = blocks.flat_map(|block| &block.logs).collect::<Vec<_>>();
    assert_eq!(answer["result"], json!(expected), "{}", answer["error"]);
}

/// When the head moves to another chain, the index is not used from the same moment on.
#[test]
fn an_index_ends_with_its_branch() {
    let (Some(chain), Some(other)) = (chain("ethtest"), chain("ea2026")) else { return };
    let folder = TestFolder::absent("index-branch");
    let (upstream, other) = (Upstream::start(chain), Upstream::start(other));
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = provider.serve().index(folder.path()).index_from(0);
    let (server, events) = watched(server.poll(Duration::from_millis(10)).limits(forgetful()));
    assert!(matches!(next(&events), RpcServerEvent::Indexed { .. }));
    answers_are_right(&server, &upstream, 4);
    upstream.answer_like(&other);
    let last = other.blocks().last().expect("blocks");
    let is_head = || {
        let health = get(server.address(), "/health").1;
        let health: Value = serde_json::from_str(&health).expect("JSON");
        health["head"]["hash"] == json!(last.hash)
    };
    until("the head", is_head);
    answers_are_right_up_to(&server, &other, last.number);
    answers_are_right(&server, &other, 5);
    let RpcServerEvent::IndexFailed { why } = next(&events) else { panic!("it is used") };
    assert!(why.contains("the index is not used"), "{why}");
    let health: Value = serde_json::from_str(&get(server.address(), "/health").1).expect("JSON");
    assert_eq!(health["index"], Value::Null);
    let metrics = get(server.address(), "/metrics").1;
    assert!(metrics.contains("chainsieve_index_last_block 0\n"), "{metrics}");
}

#[test]
fn an_index_that_begins_later_says_so() {
    let Some(chain) = chain("ethtest") else { return };
    let (upstream, folder) = (Upstream::start(chain), TestFolder::absent("index-later"));
    upstream.set_head(100);
    let provider = provider(&[&upstream]).build().expect("nodes");
    let server = provider.serve().index(folder.path()).index_from(120);
    let (_server, events) = watched(server.poll(Duration::from_millis(10)));
    let RpcServerEvent::IndexFailed { why } = next(&events) else { panic!("block 120 is final") };
    assert!(
        why.ends_with("the index begins at block 120, and the newest final block is 100"),
        "{why}"
    );
    upstream.set_head(130);
    until(
        "an index",
        || matches!(next(&events), RpcServerEvent::Indexed { blocks } if blocks == (120..=130)),
    );
}

#[test]
fn a_folder_that_does_not_fit_is_an_error() {
    let Some(chain) = chain("ethtest") else { return };
    let upstream = Upstream::start(chain);
    let start = |folder: &TestFolder| {
        let builder = endpoint(&[&upstream], chain.run.tip()).index(folder.path());
        builder.start("127.0.0.1:0".parse().expect("one")).expect_err("it does not fit").to_string()
    };
    let made = |name: &str, settings: &Settings| {
        let folder = TestFolder::absent(name);
        std::fs::create_dir_all(folder.path()).expect("a folder");
        let mut writer = Writer::open(IndexFolder::new(folder.path()), settings).expect("a writer");
        let mut headers = chainsieve::eth::header::LinkedHeaders::new();
        let header = chain.run.blocks[0].header.clone();
        headers.extend_from_rlp(&header).expect("a header");
        writer.append(&headers).expect("it can be added");
        writer.sync().expect("it can be written");
        (folder, writer)
    };
    let file = TestFolder::absent("index-is-a-file");
    std::fs::write(file.path(), "").expect("a file");
    assert!(start(&file).ends_with("is a file, and a folder is needed"), "{}", start(&file));
    std::fs::remove_file(file.path()).expect("it is there");
    let label = |label: &str| Settings::new(label).expect("a label");
    let (folder, writer) = made("index-without-hashes", &label("test"));
    drop(writer);
    assert!(start(&folder).contains("--block-hashes"));
    let (folder, writer) = made("index-of-mainnet", &label("mainnet").with_block_hashes());
    drop(writer);
    let error = start(&folder);
    assert!(error.contains("mainnet") && error.contains("1337"), "{error}");
    let (folder, _writer) = made("index-in-use", &label("test").with_block_hashes());
    assert!(start(&folder).contains("another"), "{}", start(&folder));
}

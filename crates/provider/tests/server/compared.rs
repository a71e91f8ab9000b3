//! Lies of a node about the logs of an answer: none is passed on, and the comparison with the proven logs
//! counts each.

use std::sync::mpsc;

use chainsieve::alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve::eth::header::HeaderView;
use chainsieve::eth::log::LocatedLog;
use chainsieve_provider::RpcServerEvent;
use serde_json::json;
use testkit::eth::json_rpc::Sent;
use testkit::eth::log_lies::{LIES, Place, tell};

use crate::upstream::{Block, Upstream, ask, get};
use crate::{counter, forgetful, provider, until};

#[test]
fn each_lie_is_counted_and_none_is_passed_on() {
    let log = Log::new_unchecked(
        Address::repeat_byte(1),
        [2, 3, 4].map(B256::repeat_byte).to_vec(),
        Bytes::from(vec![5; 40]),
    );
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..6 {
        let block = Block::made_up(blocks.last(), 0, vec![log.clone(); 2], None);
        blocks.push(block);
    }
    let place = |block: &Block| Place {
        hash: block.hash,
        number: block.number,
        timestamp: HeaderView::decode(&block.header).expect("a header").timestamp(),
    };
    let places: Vec<_> = blocks.iter().map(place).collect();
    let truth: Vec<LocatedLog> = blocks.iter().flat_map(|block| block.logs.clone()).collect();
    let upstream = Upstream::of(blocks);
    let serve = provider(&[&upstream]).build().expect("a node").serve().limits(forgetful());
    let (sink, events) = mpsc::channel();
    let serve = serve.on_event(move |event| {
        if let RpcServerEvent::WrongLogs { block, log_index, .. } = event {
            sink.send((*block, *log_index)).expect("the test waits");
        }
    });
    let server = serve.start("127.0.0.1:0".parse().expect("an address")).expect("it starts");
    until("a head", || get(server.address(), "/health").0 == 200);
    let compared = || counter(&server, "chainsieve_upstream_compared_answers_total");
    let found = || -> u64 {
        let names = ["altered", "invented", "omitted"];
        names
            .map(|name| counter(&server, &format!("chainsieve_upstream_{name}_logs_total")))
            .iter()
            .sum()
    };
    let mut told_lies = 0;
    for lie in LIES {
        let told = tell(lie, &[5], &truth, &places, |_| true);
        if told.lies == 0 {
            continue;
        }
        told_lies += 1;
        let answer = json!(told.answer);
        upstream.lie(move |method, _, _| {
            (method == "eth_getLogs").then(|| Sent::Result(answer.clone()))
        });
        let before = (compared(), found());
        let all = json!([{ "fromBlock": "earliest", "toBlock": "latest" }]);
        let answer = ask(server.address(), "eth_getLogs", &all);
        assert_eq!(answer["result"], json!(truth), "{lie:?}");
        until(&format!("{lie:?} is compared"), || compared() > before.0);
        assert!(found() > before.1, "{lie:?}");
        assert_eq!(events.recv().ok(), first_difference(&truth, &told.answer), "{lie:?}");
    }
    assert!(told_lies >= 17, "{told_lies}");
}

/// Returns the block and the index of the first log that only one of the two lists has. A log that both have
/// in one place, with different contents, stands where it is proven.
fn first_difference(proven: &[LocatedLog], answered: &[LocatedLog]) -> Option<(u64, u64)> {
    let mut open = proven.to_vec();
    let mut others = Vec::new();
    for log in answered {
        match open.iter().position(|known| known == log) {
            Some(at) => drop(open.remove(at)),
            None => others.push(log),
        }
    }
    let is_at = |one: &LocatedLog, other: &LocatedLog| {
        one.block_hash == other.block_hash && one.log_index == other.log_index
    };
    others.retain(|log| !open.iter().any(|known| is_at(known, log)));
    let all = open.iter().chain(others);
    all.map(|log| (log.block_number, log.log_index)).min()
}

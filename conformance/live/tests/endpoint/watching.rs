//! Filters and subscriptions of clients while the chain grows and reorganises. Each stream must
//! have exactly what happened, in order: the removed logs of the blocks that left the chain, the
//! highest block first, and then the logs of the new branch.

use serde_json::{Value, json};

use super::clients::Client;
use super::truth::{self, Block, Truth};
use super::{Endpoint, questions};
use crate::anvil::Anvil;
use crate::command::Lines;
use crate::ethereum::{Chain, Step};
use crate::harness::{Scene, wait_for, wait_until};

/// What a stream of events must have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stream {
    Logs,
    LogsOfTheAddress,
    Hashes,
    Heads,
    /// The number of each block that joined the chain.
    Numbers,
    /// Numbers without a gap, from any block on: of a client that polls the number.
    Ascending,
}

fn streams(client: Client) -> Vec<(&'static str, Stream)> {
    let mut streams = vec![
        ("http logs", Stream::Logs),
        ("http logs of the address", Stream::LogsOfTheAddress),
        ("ws logs", Stream::Logs),
        ("ws logs of the address", Stream::LogsOfTheAddress),
    ];
    streams.extend(match client {
        Client::Ethers => [("http numbers", Stream::Ascending), ("ws numbers", Stream::Numbers)],
        Client::Viem | Client::Web3Py => {
            [("http blocks", Stream::Hashes), ("ws heads", Stream::Heads)]
        }
    });
    streams
}

/// What happened to the chain, as read from the node.
#[derive(Debug)]
struct Story {
    now: Truth,
    /// Blocks that joined the chain, and (`true`) blocks that left it.
    changes: Vec<(Block, bool)>,
}

impl Story {
    /// Adds what changed since the last call, and waits until the endpoint has seen it.
    fn note(&mut self, node: &Anvil, endpoint: &Endpoint) {
        let now = Truth::of(node);
        let common = self.now.blocks.iter().zip(&now.blocks);
        let common = common.take_while(|(old, new)| old.json["hash"] == new.json["hash"]).count();
        let left = self.now.blocks[common..].iter().rev().map(|block| (block.clone(), true));
        let joined = now.blocks[common..].iter().map(|block| (block.clone(), false));
        self.changes.extend(left.chain(joined));
        self.now = now;
        endpoint.until_head(node);
    }

    fn expected(&self, client: Client, stream: Stream, address: &Value) -> Vec<Value> {
        let joined = self.changes.iter().filter(|(_, left)| !left).map(|(block, _)| &block.json);
        let filter = match stream {
            Stream::LogsOfTheAddress => json!({ "address": address }),
            _ => json!({}),
        };
        match stream {
            Stream::Logs | Stream::LogsOfTheAddress => {
                // ethers gives removed logs to no listener of a filter.
                let changes = self.changes.iter();
                let changes = changes.filter(|(_, left)| !left || client != Client::Ethers);
                let logs = changes.flat_map(|(block, left)| {
                    block.logs().map(move |log| {
                        let mut log = truth::log(log);
                        log["removed"] = json!(left);
                        log
                    })
                });
                logs.filter(|log| truth::matches(&filter, log)).collect()
            }
            Stream::Hashes => joined.map(|block| block["hash"].clone()).collect(),
            Stream::Heads => joined.map(truth::head).collect(),
            Stream::Numbers => joined.map(|block| block["number"].clone()).collect(),
            Stream::Ascending => vec![json!(format!("{:#x}", self.now.height()))],
        }
    }
}

pub(super) fn watch(scene: &Scene, client: Client) {
    let (node, mut chain) = questions::chain(scene, 42);
    let endpoint = Endpoint::of(scene, &node);
    let address = json!(chain.runners[0]);
    let arguments = ["watch", endpoint.http(), &endpoint.ws(), address.as_str().expect("text")];
    let mut process = scene.start("client", &mut client.script(&arguments));
    let mut lines = Lines::of(process.output());
    // Two filters of logs, and one of blocks by viem and web3.py; the same over WebSocket.
    let filters = if client == Client::Ethers { 2 } else { 3 };
    wait_until("filters and subscriptions", || {
        assert!(process.ended().is_none(), "{}", process.log());
        let open =
            (endpoint.metric("chainsieve_filters"), endpoint.metric("chainsieve_subscriptions"));
        open == (filters, 3)
    });

    let mut story = Story { now: Truth::of(&node), changes: Vec::new() };
    // Each client sees each block before the next change: what joins and leaves the chain between
    // two polls need not be told.
    let mut seen = |chain: &mut Chain, story: &mut Story| {
        story.note(&node, &endpoint);
        for (name, stream) in streams(client) {
            let mut polls = 0;
            wait_until(name, || {
                assert!(process.ended().is_none(), "{}", process.log());
                // ethers polls its filters when it sees a new block, and misses one that comes while
                // it polls. Empty blocks change no logs.
                polls += 1;
                if client == Client::Ethers && polls % 50 == 0 && name.starts_with("http logs") {
                    chain.mine(&node, Step::Empty);
                    story.note(&node, &endpoint);
                }
                let expected = story.expected(client, stream, &address).len();
                let found = lines.read().iter().filter(|line| line["stream"] == name).count();
                stream == Stream::Ascending || found >= expected
            });
        }
    };
    happen(&node, &mut chain, &mut story, &mut seen);
    let removed = story.changes.iter().filter(|(block, left)| *left && block.logs().count() > 0);
    assert!(removed.count() >= 3, "blocks with logs left the chain");

    for (name, stream) in streams(client) {
        let expected = story.expected(client, stream, &address);
        let items = wait_for(name, || {
            assert!(process.ended().is_none(), "{}", process.log());
            let lines = lines.read().iter();
            let items =
                lines.filter(|line| line["stream"] == name).map(|line| line["item"].clone());
            let items: Vec<_> = items.collect();
            let is_complete = match stream {
                Stream::Ascending => items.last() == expected.last(),
                _ => items.len() >= expected.len(),
            };
            is_complete.then_some(items)
        });
        if stream == Stream::Ascending {
            let numbers: Vec<_> = items.iter().map(crate::anvil::number).collect();
            assert!(numbers.windows(2).all(|pair| pair[1] <= pair[0] + 1), "{name}: {numbers:?}");
        } else {
            assert_eq!(items, expected, "{name}");
        }
    }
    let errors: Vec<_> = lines.read().iter().filter(|line| line["stream"] == "error").collect();
    assert!(errors.is_empty(), "{errors:?}");
    endpoint.end();
}

/// The chain grows, and two reorganisations follow. Everyone sees each of them.
fn happen(
    node: &Anvil,
    chain: &mut Chain,
    story: &mut Story,
    seen: &mut dyn FnMut(&mut Chain, &mut Story),
) {
    for step in [Step::Several(2), Step::EveryAddress, Step::Empty, Step::One(2)] {
        chain.mine(node, step);
        seen(chain, story);
    }
    // Several blocks at once.
    for step in [Step::Several(2), Step::Plain, Step::EveryAddress] {
        chain.mine(node, step);
    }
    seen(chain, story);
    chain.reorganise(node, 5);
    seen(chain, story);
    // The node's head moves back, and another branch grows from there.
    let snapshot = node.rpc().call("evm_snapshot", &json!([]));
    let height = node.height();
    for step in [Step::Several(3), Step::One(1)] {
        chain.mine(node, step);
        seen(chain, story);
    }
    assert_eq!(node.rpc().call("evm_revert", &json!([snapshot])), json!(true));
    wait_until("the older head", || node.height() == height);
    chain.mine(node, Step::EveryAddress);
    chain.mine(node, Step::Several(2));
    seen(chain, story);
    // The last logs: when they arrive, nothing before them is missing.
    chain.mine(node, Step::EveryAddress);
    seen(chain, story);
}

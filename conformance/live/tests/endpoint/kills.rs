//! `eth serve --cache --index` is killed at random moments while clients ask, and started again with the
//! same folders: the folders open, and every answer is right.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::Rng;
use testkit::eth::http_rpc::HttpRpc;

use super::truth::Truth;
use super::{Endpoint, questions};
use crate::ethereum::Step;
use crate::harness::{Scene, wait_until};

const ROUNDS: u64 = 10;
/// Clients that ask at the same time.
const CLIENTS: u64 = 3;

/// What clients report while they ask.
#[derive(Default)]
struct Asked {
    answers: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Asked {
    /// Asks random questions until the server is gone.
    fn ask(&self, rpc: &HttpRpc, questions: &[(Value, Value)], mut rng: Rng) {
        loop {
            let (filter, right) = rng.pick(questions);
            match rpc.try_call("eth_getLogs", &json!([filter])) {
                Ok(logs) if logs == *right => {}
                Ok(logs) => return self.wrong(format!("{filter}: {logs}")),
                // The server's own errors are objects; any other error is that of a lost connection.
                Err(error) if error.starts_with('{') => {
                    return self.wrong(format!("{filter}: {error}"));
                }
                Err(_) => return,
            }
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().expect("no panic holds it").push(what);
    }

    fn is_wrong(&self) -> bool {
        !self.wrong.lock().expect("no panic holds it").is_empty()
    }
}

pub(super) fn kills(scene: &Scene) {
    let (node, mut chain) = questions::chain(scene, 45);
    // anvil's final block is 64 blocks below its head.
    node.mine(30);
    let [blocks, index] = ["blocks", "index"].map(|name| scene.path(name));
    let [blocks, index] = [&blocks, &index].map(|path| path.to_str().expect("text"));
    let start = || {
        let more = ["--trust-head", "--cache", blocks, "--index", index, "--index-from", "0"];
        let endpoint = Endpoint::start(scene, node.rpc().url(), &more);
        endpoint.until_head(&node);
        endpoint
    };
    let mut rng = Rng::new(8);
    let mut total = 0;
    for round in 0..ROUNDS {
        // New blocks, so that there is always something to store.
        for step in [Step::Several(3), Step::EveryAddress, Step::Full(40)] {
            chain.mine(&node, step);
        }
        let truth = Truth::of(&node);
        let filters = questions::filters(&truth, &chain);
        let answered = |filter: &Value| truth.logs(filter).into_iter().cloned().collect();
        let questions: Vec<(Value, Value)> =
            filters.iter().map(|filter| (filter.clone(), answered(filter))).collect();
        let endpoint = start();
        let wanted = rng.below(20);
        let pause = Duration::from_micros(rng.below(20_000) as u64);
        let asked = Asked::default();
        thread::scope(|threads| {
            for client in 0..CLIENTS {
                let rng = Rng::new(100 * round + client);
                let rpc = endpoint.rpc.clone();
                let (asked, questions) = (&asked, &questions);
                threads.spawn(move || asked.ask(&rpc, questions, rng));
            }
            wait_until("answers", || {
                asked.answers.load(Ordering::Relaxed) >= wanted || asked.is_wrong()
            });
            thread::sleep(pause);
            endpoint.running.kill();
        });
        let wrong = asked.wrong.into_inner().expect("no panic holds it");
        assert!(wrong.is_empty(), "round {round}: {wrong:?}");
        total += asked.answers.into_inner();
    }
    assert!(total >= 20, "{total} answers before the kills");

    let endpoint = start();
    let truth = Truth::of(&node);
    for filter in questions::filters(&truth, &chain) {
        let right: Value = truth.logs(&filter).into_iter().cloned().collect();
        assert_eq!(endpoint.call("eth_getLogs", &json!([filter])), right, "{filter}");
    }
    let on_disk = endpoint.metric("chainsieve_blocks_found_total{place=\"disk\"}");
    assert!(on_disk > 0, "nothing was found in the folder");
    wait_until("the index", || endpoint.metric("chainsieve_index_last_block") > 0);
    endpoint.end();
}

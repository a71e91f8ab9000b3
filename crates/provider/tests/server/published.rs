//! What go-ethereum answered on test chains, request by request, and the filters of the corpus.

use serde::Deserialize;
use serde_json::{Value, json};
use testkit::eth::log_chains::Corpus;

use crate::upstream::{Upstream, ask};
use crate::{endpoint, started};

/// Returns the request and the answer of a recorded file.
fn recorded(text: &str) -> (Value, Value) {
    let line = |mark: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(mark));
        serde_json::from_str(line.expect("a line")).expect("JSON")
    };
    (line(">> "), line("<< "))
}

#[test]
fn answers_of_go_ethereum() {
    let Some(corpus) = Corpus::open() else { return };
    let mut equal = 0;
    for name in ["ea2026", "ea2025b"] {
        let chain = &corpus.chains[name];
        let upstream = Upstream::start(chain);
        let server = started(endpoint(&[&upstream], chain.run.tip()));
        for file in corpus.names(&format!("io/{name}/")) {
            let (request, mut expected) = recorded(&corpus.text(file));
            let method = request["method"].as_str().expect("a method");
            let mut answer = ask(server.address(), method, &request["params"]);
            for answer in [&mut expected, &mut answer] {
                for receipt in answer["result"].as_array_mut().into_iter().flatten() {
                    // Not determined by the block: documented.
                    receipt.as_object_mut().map(|receipt| receipt.remove("blobGasPrice"));
                    // Older fixtures have no time.
                    receipt.as_object_mut().map(|log| log.remove("blockTimestamp"));
                    for log in receipt["logs"].as_array_mut().into_iter().flatten() {
                        log.as_object_mut().map(|log| log.remove("blockTimestamp"));
                    }
                }
            }
            if expected["error"].is_object() {
                for member in ["code", "message"] {
                    assert_eq!(
                        answer["error"][member], expected["error"][member],
                        "{file}: {answer}"
                    );
                }
            } else {
                assert_eq!(answer["result"], expected["result"], "{file}: {answer}");
            }
            equal += 1;
        }
    }
    assert_eq!(equal, 31);
}

#[derive(Deserialize)]
struct Case {
    id: String,
    chain: String,
    filter: Value,
    expect: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    /// Block number and index in the block of each log.
    Logs(Vec<[u64; 2]>),
    Error(String),
}

#[test]
fn filters_of_the_corpus() {
    let Some(corpus) = Corpus::open() else { return };
    let text = corpus.text("queries/cases.jsonl");
    let cases: Vec<Case> =
        text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect();
    let (mut proven, mut refused) = (0, 0);
    // Of mainnet's blocks, the corpus has no transactions.
    for (name, chain) in corpus.chains.iter().filter(|(name, _)| **name != "mainnet") {
        let upstream = Upstream::start(chain);
        let server = started(endpoint(&[&upstream], chain.run.tip()));
        for case in cases.iter().filter(|case| case.chain == *name) {
            let answer = ask(server.address(), "eth_getLogs", &json!([case.filter]));
            match &case.expect {
                Expected::Logs(places) => {
                    let logs = answer["result"].as_array();
                    let logs = logs.unwrap_or_else(|| panic!("{}: {answer}", case.id));
                    let of_chain = upstream.blocks().iter().flat_map(|block| &block.logs);
                    let expected: Vec<Value> = of_chain
                        .filter(|log| places.contains(&[log.block_number, log.log_index]))
                        .map(|log| serde_json::to_value(log).expect("JSON"))
                        .collect();
                    assert_eq!(logs, &expected, "{}", case.id);
                    proven += 1;
                }
                Expected::Error(said) => {
                    assert!(answer["error"]["code"].is_i64(), "{}: {answer}, {said}", case.id);
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((proven, refused), (169, 29));
}

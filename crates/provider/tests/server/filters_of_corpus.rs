//! Runs filters of the corpus through a provider, for the semantics of go-ethereum and of alloy. With
//! `CHAINSIEVE_CASES=all`, each filter is run. For each of the two semantics, the logs that the
//! provider reads from receipts must be the expected ones. An answer of `eth_getLogs` with these logs
//! must be proven complete.

use chainsieve::eth::audit::Status;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log_query::{LogQuery, Semantics};
use chainsieve_provider::{FetchError, LogsError, Provider};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use testkit::eth::json_rpc::Sent;
use testkit::eth::log_chains::Corpus;
use testkit::stride;

use crate::upstream::Upstream;

#[derive(Deserialize)]
struct Case<'a> {
    id: String,
    chain: String,
    #[serde(borrow)]
    filter: &'a RawValue,
    expect: Expected,
    alloy: Option<Expected>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expected {
    /// Block number and index in the block of each log.
    Logs(Vec<[u64; 2]>),
    Error(String),
}

/// Number of answers that are audited a second time with one log missing.
const FEW: usize = 20;

/// Lets a node answer with the logs of these places that are in the range of a filter.
fn answer(node: &Upstream, places: &[[u64; 2]]) {
    let logs = node.blocks().iter().flat_map(|block| &block.logs);
    let logs = logs.filter(|log| places.contains(&[log.block_number, log.log_index]));
    let (logs, of_node) = (logs.cloned().collect::<Vec<_>>(), node.clone());
    node.lie(move |method, params, _| {
        let range = (method == "eth_getLogs").then(|| of_node.range(&params[0]))?;
        let logs = logs.iter().filter(|log| range.contains(&log.block_number));
        Some(Sent::Result(logs.map(|log| json!(log)).collect()))
    });
}

#[test]
fn every_filter_by_either_reading() {
    let Some(corpus) = Corpus::open() else { return };
    let text = corpus.text("queries/cases.jsonl");
    let cases: Vec<Case<'_>> =
        text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect();
    assert_eq!(cases.len(), 335);
    let (mut proven, mut complete, mut refused, mut calls) = (0, 0, 0, 0);
    for (name, chain) in &corpus.chains {
        let node = Upstream::start(chain);
        for semantics in [Semantics::Geth, Semantics::Alloy] {
            let profile =
                ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
            let provider = Provider::builder()
                .url(&node.url())
                .profile(profile)
                .semantics(semantics)
                .retries(0)
                .anchor(chain.run.tip())
                .build()
                .expect("it is set up");
            let of_chain = cases.iter().enumerate().filter(|(_, case)| case.chain == *name);
            for (index, case) in of_chain.step_by(stride(3)) {
                let at = format!("{}, {semantics:?}", case.id);
                let own = if semantics == Semantics::Alloy { case.alloy.as_ref() } else { None };
                let expected = own.unwrap_or(&case.expect);
                let query = LogQuery::from_json(case.filter.get(), semantics);
                let (query, places) = match (query, expected) {
                    (Ok(query), Expected::Logs(places)) => (query, places),
                    (Ok(query), Expected::Error(said)) => {
                        let failed = provider.logs(&query).map(|proven| proven.logs);
                        let is_of_blocks = matches!(
                            failed,
                            Err(LogsError::Fetch(
                                FetchError::Blocks(_) | FetchError::UnknownBlock(_)
                            ))
                        );
                        assert!(is_of_blocks, "{at}: {failed:?}, expected {said}");
                        refused += 1;
                        continue;
                    }
                    (Err(_), Expected::Error(_)) => {
                        refused += 1;
                        continue;
                    }
                    (Err(error), Expected::Logs(_)) => panic!("{at}: {error}"),
                };
                answer(&node, places);
                let found = provider.logs(&query).unwrap_or_else(|error| panic!("{at}: {error}"));
                let found_at: Vec<_> =
                    found.logs.iter().map(|log| [log.block_number, log.log_index]).collect();
                assert_eq!(found_at, *places, "{at}");
                // The corpus has no transactions of mainnet, but their hashes. Of all other chains,
                // each hash is proven.
                for log in &found.logs {
                    let block = chain.run.block(log.block_number);
                    let log_index = usize::try_from(log.log_index).expect("an index");
                    let mut expected = block.logs[log_index].clone();
                    expected.transaction_hash.take_if(|_| name == &"mainnet");
                    assert_eq!(*log, expected, "{at}");
                }
                proven += 1;
                // Some answers have megabytes of logs. If both semantics select the same logs, only
                // one of the two answers is audited: geth's answer for one filter, and alloy's
                // answer for the next filter.
                let is_turn = index.is_multiple_of(2) == (semantics == Semantics::Geth);
                if case.alloy.is_none() && !is_turn {
                    continue;
                }
                let audited =
                    provider.audit(&query).unwrap_or_else(|error| panic!("{at}: {error}"));
                let report = &audited.reports[0];
                assert_eq!(report.status(), Status::Complete, "{at}: {:?}", report.findings);
                complete += 1;
                if let Some((_, others)) = places.split_last().filter(|(_, it)| it.len() < FEW) {
                    answer(&node, others);
                    let audited = provider.audit(&query).expect("an answer");
                    // If only one of the semantics selects the missing log, its absence does not
                    // prove that the answer is wrong.
                    assert_ne!(audited.reports[0].status(), Status::Complete, "{at}");
                }
            }
        }
        calls += node.take_calls().len();
    }
    if stride(3) == 1 {
        assert_eq!((proven, complete, refused), (606, 345, 64));
    }
    assert!(proven > 150 && complete > 80 && refused > 15, "{proven}, {complete}, {refused}");
    assert!(calls > 400, "{calls}");
}

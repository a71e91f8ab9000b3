//! Queries drawn from the values of every block. The library must answer as alloy does, and as a
//! plain filter written from the specification.

use std::collections::HashMap;

use alloy_primitives::{Address, B256, Bloom, BloomInput};
use alloy_rpc_types_eth::Filter;
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::log_query::{LogQuery, Semantics, TopicSet};

use testkit::eth::corpus::{EthBlock, EthCorpus};
use testkit::eth::naive_logs::{self, NaiveLog, NaiveQuery};
use testkit::eth::query_draws;
use testkit::{Rng, stride};

/// Returns the number of queries for each block.
fn queries() -> usize {
    10_000 / stride(5)
}

/// Numbers of queries by outcome, and number of logs that they found.
#[derive(Debug, Default)]
struct Found {
    by_geth: usize,
    by_arity: usize,
    said_no: usize,
    logs: usize,
}

#[test]
fn queries_of_every_block_find_what_a_plain_filter_finds() {
    let Some(corpus) = EthCorpus::open() else { return };
    let blocks = corpus.blocks();
    assert_eq!(blocks.len(), 37);
    let (empty, full): (Vec<_>, Vec<_>) =
        blocks.values().partition(|block| block.logs().is_empty());
    assert_eq!(
        empty.iter().map(|block| block.header.number).collect::<Vec<_>>(),
        [1, 100, 19_840_104]
    );
    // Blocks without logs have no values to draw from, so draw from another block.
    let other = blocks[&17_686_111].logs();
    for block in empty {
        let found = check(block, &other);
        assert_eq!((found.by_geth, found.by_arity), (0, 0), "{}", block.name);
        assert!(found.said_no > queries() / 2, "{}: {found:?}", block.name);
    }
    let (mut half, mut arity) = (0, 0);
    for block in full {
        let found = check(block, &block.logs());
        println!("{}: {found:?}", block.name);
        assert!(found.by_geth >= queries() / 2, "{}: {found:?}", block.name);
        half += 1;
        arity += found.by_arity;
        // The one bloom with every bit set rules out no query. Each of the others rules out some.
        let is_full = block.header.number == 15_537_394;
        assert_eq!(found.said_no == 0, is_full, "{}: {found:?}", block.name);
    }
    assert_eq!(half, 34);
    assert!(arity > 1_000 / stride(5), "only {arity} queries depend on the number of topics");
}

fn check(block: &EthBlock, values: &[alloy_primitives::Log]) -> Found {
    let logs = block.logs();
    let naive: Vec<_> = logs.iter().map(NaiveLog::of).collect();
    assert_eq!(naive_logs::bloom(&naive), block.header.logs_bloom, "{}", block.name);
    let values: Vec<_> = values.iter().map(NaiveLog::of).collect();
    let mut rng = Rng::new(block.header.number);
    let mut blooms = HashMap::new();
    let mut found = Found::default();
    for _ in 0..queries() {
        let drawn = query_draws::query(&mut rng, &values);
        let json = query_draws::json(&mut rng, &drawn);
        let query =
            LogQuery::from_json(&json, Semantics::Geth).unwrap_or_else(|e| panic!("{json}: {e}"));
        assert_eq!(LogQuery::from_json(&json, Semantics::Alloy).as_ref(), Ok(&query), "{json}");
        assert_eq!(built(&drawn), query, "{json}");
        let filter: Filter = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));

        let (mut by_geth, mut by_alloy) = (0, 0);
        for (log, naive) in logs.iter().zip(&naive) {
            let alloy = drawn.wanted_by_alloy(naive);
            let geth = alloy && drawn.wanted_by_geth(naive);
            let ours = (query.matches(log, Semantics::Geth), query.matches(log, Semantics::Alloy));
            assert_eq!(ours, (geth, alloy), "{}: {json} on {log:?}", block.name);
            assert_eq!(filter.matches(log), alloy, "{}: {json} on {log:?}", block.name);
            by_geth += usize::from(geth);
            by_alloy += usize::from(alloy);
        }
        found.by_geth += usize::from(by_geth > 0);
        found.by_arity += usize::from(by_alloy > by_geth);
        found.logs += by_geth;

        let answer = query.compile().answer(&block.header.logs_bloom);
        assert!(by_alloy == 0 || answer.is_candidate(), "{}: {json} is lost", block.name);
        let expected = match passes(&drawn, &block.header.logs_bloom, &mut blooms) {
            _ if block.header.logs_bloom == Bloom::repeat_byte(0xff) => BloomAnswer::NoInformation,
            true => BloomAnswer::Maybe,
            false => BloomAnswer::No,
        };
        assert_eq!(answer, expected, "{}: {json}", block.name);
        let by_rival = filter.matches_bloom(block.header.logs_bloom);
        assert_eq!(answer.is_candidate(), by_rival, "{}: {json}", block.name);
        found.said_no += usize::from(answer == BloomAnswer::No);
    }
    found
}

/// Builds the query with the library's methods instead of JSON.
fn built(drawn: &NaiveQuery) -> LogQuery {
    let query = LogQuery::new().addresses(drawn.addresses.iter().copied().map(Address::new));
    let positions = drawn.positions.iter().enumerate();
    positions.fold(query, |query, (position, values)| {
        let set: TopicSet = values.iter().copied().map(B256::new).collect();
        match position {
            0 => query.topic0(set),
            1 => query.topic1(set),
            2 => query.topic2(set),
            _ => query.topic3(set),
        }
    })
}

/// Does the same as [`NaiveQuery::passes`], with alloy's bloom of each value. Results are cached in
/// `kept`.
fn passes(query: &NaiveQuery, bloom: &Bloom, kept: &mut HashMap<Vec<u8>, bool>) -> bool {
    let mut has = |value: &[u8]| {
        let test = || bloom.contains(&Bloom::from(BloomInput::Raw(value)));
        *kept.entry(value.to_vec()).or_insert_with(test)
    };
    (query.addresses.is_empty() || query.addresses.iter().any(|address| has(address)))
        && query.positions.iter().all(|set| set.is_empty() || set.iter().any(|topic| has(topic)))
}

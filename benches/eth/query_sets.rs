//! An indexer: many pairs of address and topic over the history of a chain.

use alloy_rpc_types_eth::Filter;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan::QuerySet;
use chainsieve::simd::Backend;

use crate::scan::{as_alloy, blooms, positions};
use testkit::Rng;
use testkit::timer::Report;

/// Number of queries, each for an address and a topic.
const PAIRS: usize = 1_000;

pub(crate) fn run(report: &mut Report) {
    let count = if report.is_quick() { 2_048 } else { 16_384 };
    let mut random = Rng::new(3);
    let blooms = blooms(&mut random, count, 30, 50);
    let theirs = as_alloy(&blooms);
    let pairs: Vec<_> = (0..PAIRS).map(|_| (random.address(), random.word())).collect();
    let filter = |&(address, topic)| Filter::new().address(address).event_signature(topic);
    let filters: Vec<Filter> = pairs.iter().map(filter).collect();
    let plain = || {
        let mut found = Vec::new();
        for (block, bloom) in (0_u64..).zip(&theirs) {
            let numbered = filters.iter().enumerate();
            let matching = numbered.filter(|(_, filter)| filter.matches_bloom(*bloom));
            found.extend(matching.map(|(number, _)| (block, number)));
        }
        found
    };
    // The first call caches the filters' blooms.
    let expected = plain();
    for backend in Backend::available() {
        let mut set = QuerySet::new().with_backend(backend);
        for (address, topic) in &pairs {
            let clauses = vec![positions(&[address]), positions(&[topic])];
            set.insert(CompiledQuery::new(clauses), 0);
        }
        let scan = || {
            let hits = set.clone().scan(0, &blooms);
            let pairs = hits.iter().flat_map(|(block, ids)| ids.iter().map(move |&id| (block, id)));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(scan(), expected);
        report.ratio(
            &format!(
                "{PAIRS} pairs of address and topic, 30 to 50 % full, per filter, {backend:?} vs \
                 alloy's Filter one by one"
            ),
            count,
            || set.clone().scan(0, &blooms),
            plain,
        );
    }
}

//! Many watches over one new block.

use std::hint::black_box;

use alloy_primitives::Bloom;
use alloy_rpc_types_eth::Filter;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan::QueryList;
use chainsieve::simd::Backend;

use crate::scan::{as_alloy, blooms, positions};
use testkit::Rng;
use testkit::timer::Report;

/// Number of watches in the list.
const WATCHES: usize = 10_000;

pub(crate) fn run(report: &mut Report) {
    let mut random = Rng::new(2);
    for (fill, least, most) in [("3 to 10 %", 3, 10), ("30 to 50 %", 30, 50)] {
        // Several blooms, so that the CPU can't learn their branches.
        let blooms = blooms(&mut random, 16, least, most);
        let theirs = as_alloy(&blooms);
        for (name, with_topic) in [("address", false), ("address and topic", true)] {
            let (mut filters, mut queries) = (Vec::new(), Vec::new());
            for _ in 0..WATCHES {
                let (address, topic) = (random.address(), random.word());
                let mut filter = Filter::new().address(address);
                let mut clauses = vec![positions(&[address])];
                if with_topic {
                    filter = filter.event_signature(topic);
                    clauses.push(positions(&[topic]));
                }
                filters.push(filter);
                queries.push(CompiledQuery::new(clauses));
            }
            let list = QueryList::new(&queries);
            for backend in Backend::available() {
                // The first call caches the filters' blooms.
                for (bloom, their) in blooms.iter().zip(&theirs) {
                    assert_eq!(list.matching_on(backend, bloom), plain(&filters, their));
                }
                report.ratio(
                    &format!(
                        "{WATCHES} watches of {name}, {fill} full, per header, {backend:?} vs alloy's Filter"
                    ),
                    blooms.len(),
                    || blooms.iter().map(|bloom| list.matching_on(backend, bloom)).map(black_box).count(),
                    || theirs.iter().map(|bloom| plain(&filters, bloom)).map(black_box).count(),
                );
            }
        }
    }
}

fn plain(filters: &[Filter], bloom: &Bloom) -> Vec<u32> {
    let numbered = (0..).zip(filters);
    numbered.filter(|(_, filter)| filter.matches_bloom(*bloom)).map(|(i, _)| i).collect()
}

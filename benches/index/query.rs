//! Queries over the whole chain, to a bitmap and a count. The queries are compared with alloy's
//! `Bloom::contains` over the same blooms in memory, and with reading the rows that each query
//! needs.

use std::hint::black_box;

use alloy_primitives::{B256, Bloom, BloomInput};
use chainsieve::eth::bloom::{self, BloomAnswer, BloomView};
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan;
use chainsieve::simd::Backend;

use crate::blooms::{Chain, Filter, TRANSFER};
use crate::mapped::{Segments, stream};
use crate::store::Store;
use testkit::timer::Report;

/// A query of the bench.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) query: CompiledQuery,
    /// Blooms of which a candidate must contain one.
    wanted: Vec<Bloom>,
}

impl Case {
    /// Creates a query for blocks that have all values of one of `alternatives`.
    fn new(name: &'static str, alternatives: &[Vec<&[u8]>]) -> Self {
        let of_values = |values: &Vec<&[u8]>| {
            let mut bloom = Bloom::ZERO;
            for value in values {
                bloom.accrue(BloomInput::Raw(value));
            }
            bloom
        };
        let wanted = alternatives.iter().map(of_values).collect();
        let clauses = match alternatives {
            [values] => values.iter().map(|value| vec![bloom::positions(value)]).collect(),
            _ => vec![alternatives.iter().map(|values| bloom::positions(values[0])).collect()],
        };
        Self { name, query: CompiledQuery::new(clauses), wanted }
    }

    /// Returns the rows that the query needs.
    pub(crate) fn rows(&self) -> Vec<u16> {
        let values = self.query.clauses().iter().flatten();
        let mut rows: Vec<u16> = values.flatten().copied().collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Answers the query with alloy: a bitmap and its count.
    fn plain(&self, filters: &[Filter]) -> (Vec<u64>, u32) {
        let is_candidate = |filter: &Filter| {
            let filter = <&Bloom>::from(filter);
            self.wanted.iter().any(|wanted| filter.contains(wanted))
        };
        let word = |filters: &[Filter]| {
            let bits = filters.iter().enumerate();
            bits.fold(0, |word, (bit, filter)| word | u64::from(is_candidate(filter)) << bit)
        };
        let words: Vec<u64> = filters.chunks(64).map(word).collect();
        let count = words.iter().map(|word| word.count_ones()).sum();
        (words, count)
    }
}

/// Returns the queries of the bench.
pub(crate) fn cases(chain: &Chain) -> Vec<Case> {
    let logs = chain.planted();
    let address = logs[0].address.as_slice();
    let [first, second] = logs[0].topics.each_ref().map(B256::as_slice);
    let addresses = |count| -> Vec<_> {
        logs[..count].iter().map(|log| vec![log.address.as_slice()]).collect()
    };
    vec![
        Case::new("address", &[vec![address]]),
        Case::new("address and topic", &[vec![address, first]]),
        Case::new("address and two topics", &[vec![address, first, second]]),
        Case::new("address and Transfer", &[vec![address, TRANSFER.as_slice()]]),
        Case::new("10 addresses", &addresses(10)),
        Case::new("1,000 addresses", &addresses(1_000)),
    ]
}

pub(crate) fn run(report: &mut Report, chain: &Chain, filters: &[Filter], store: &Store) {
    let index = store.index();
    let segments = Segments::map(&store.path);
    let all = || index.numbers().expect("blocks");
    let backend = Backend::best();
    for case in cases(chain) {
        let Case { name, query, .. } = &case;
        let expected = scan::candidates_on(backend, query, filters);
        check(&case, chain, filters, &expected);
        // Unsealed blocks are stored bloom by bloom.
        let unsealed =
            filters[usize::try_from(index.sealed()).expect("in memory")..].as_flattened();
        let mut rows = segments.rows(&case.rows());
        let bytes: usize = rows.iter().map(|row| row.len()).sum();
        println!(
            "# {name}: {} candidates, {bytes} bytes of rows, {} of filters not sealed",
            expected.len(),
            unsealed.len()
        );
        rows.push(unsealed);
        for backend in Backend::available() {
            let found = index.candidates_on(backend, query, all()).expect("a sound index");
            assert_eq!(found.count(), expected.len() as u64);
            assert!(found.iter().eq(expected.iter().map(|number| *number as u64)));
        }
        let ours = || index.candidates_on(backend, query, all()).expect("a sound index").count();
        report.ratio(&format!("{name}, vs Bloom::contains"), 1, ours, || case.plain(filters));
        report.ratio(&format!("{name}, vs reading its rows"), 1, ours, || stream(&rows));
        report.figure(&format!("{name}, counted only"), 1, || index.count(query, all()));
        report.figure(&format!("{name}, every block's number"), 1, || {
            let found = index.candidates_on(backend, query, all()).expect("a sound index");
            found.iter().map(black_box).fold(0, u64::max)
        });
        report.figure_of(
            &format!("{name}, first query after opening"),
            1,
            || store.index(),
            |index| index.candidates_on(backend, query, all()).expect("a sound index").count(),
        );
    }
}

/// Checks that the row scan finds what alloy finds, and the logs that were put into known blocks.
fn check(case: &Case, chain: &Chain, filters: &[Filter], expected: &[usize]) {
    let (words, count) = case.plain(filters);
    assert_eq!(count as usize, expected.len());
    assert!(expected.iter().all(|block| words[block / 64] >> (block % 64) & 1 == 1));
    let filter = |block: &usize| BloomView::from(&filters[*block]);
    assert!(expected.iter().all(|block| case.query.answer(filter(block)) != BloomAnswer::No));
    let planted = chain.planted_blocks().filter(|(_, log)| *log == 0);
    // The log has no Transfer topic, although nearly every block has this topic.
    if !case.name.contains("Transfer") {
        let mut planted = planted.peekable();
        assert!(planted.peek().is_some());
        assert!(planted.all(|(block, _)| expected.binary_search(&block).is_ok()));
    }
}

//! Whole blocks against a wallet's filter.

use std::hint::black_box;

use bitcoin::Block;
use bitcoin::consensus::deserialize;
use chainsieve::btc::bip37::{BlockElements, BloomFilter, UpdateMode};
use chainsieve::simd::Backend;

use crate::element::{half_full, ours};
use crate::plain::{Extracted, PlainFilter};
use testkit::Rng;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let heights: &[u32] = if report.is_quick() { &[413_567] } else { &[413_567, 702_861] };
    for (height, raw) in crate::blocks(heights) {
        block(report, height, &raw);
    }
}

fn block(report: &mut Report, height: u32, raw: &[u8]) {
    let block: Block = deserialize(raw).expect("a block of the corpus");
    let elements = BlockElements::from_raw(raw).expect("a block of the corpus");
    let extracted = Extracted::new(&block);
    let count = elements.elements().num_elements();
    assert_eq!(count, extracted.num_elements());
    println!("# block {height}: {} transactions, {count} elements", block.txdata.len());

    // Several filters each: what a branch predictor learns of one filter does not help with the
    // next.
    let mut random = Rng::new(11);
    let cases: [(&str, Vec<PlainFilter>); 3] = [
        ("36,000 B half full, k = 10", (0..4).map(|_| half_full(10, &mut random).1).collect()),
        ("36,000 B half full, k = 17", (0..4).map(|_| half_full(17, &mut random).1).collect()),
        ("1,000 elements at 1e-4", (0..4).map(|_| thousand(&mut random)).collect()),
    ];
    for (name, filters) in &cases {
        for (flags, flags_name) in [(0, "NONE"), (1, "ALL")] {
            for backend in Backend::available() {
                let filters: Vec<(BloomFilter, &PlainFilter)> = filters
                    .iter()
                    .map(|plain| (ours(plain, flags).with_backend(backend), plain))
                    .collect();
                for (filter, plain) in &filters {
                    let (mut ours, mut theirs) = (filter.clone(), (*plain).clone());
                    let expected = extracted.matches(&mut theirs, flags == 1);
                    let matches = ours.match_block(&elements);
                    let matched: Vec<u32> = matches.iter().map(|found| found.index).collect();
                    assert_eq!((matched, ours.data()), (expected, &theirs.data[..]));
                }
                report.ratio(
                    &format!("match block {height}, {name}, {flags_name}, {backend:?} vs mur3"),
                    count * filters.len(),
                    || {
                        for (filter, _) in &filters {
                            black_box(filter.clone().match_block(&elements));
                        }
                    },
                    || {
                        for (_, plain) in &filters {
                            black_box(extracted.matches(&mut (*plain).clone(), flags == 1));
                        }
                    },
                );
            }
        }
    }
    let filter = ours(&cases[2].1[0], 0);
    let txids: Vec<_> = block.txdata.iter().map(bitcoin::Transaction::compute_txid).collect();
    assert_eq!(elements.txids(), txids);
    report.ratio(
        &format!("take apart and match block {height} vs bitcoin's txids alone"),
        1,
        || {
            let elements = BlockElements::from_raw(raw).expect("checked above");
            filter.clone().match_block(&elements)
        },
        || block.txdata.iter().map(bitcoin::Transaction::compute_txid).collect::<Vec<_>>(),
    );
    report.figure(&format!("take apart block {height}"), 1, || BlockElements::from_raw(raw));
}

/// Returns a filter sized for 1,000 elements at 1e-4, with 1,000 elements in it.
fn thousand(random: &mut Rng) -> PlainFilter {
    let mut filter = BloomFilter::new(1_000, 1e-4, 99, UpdateMode::None).expect("sized");
    (0..1_000).for_each(|_| filter.insert(&random.bytes(20)));
    PlainFilter {
        data: filter.data().to_vec(),
        hash_funcs: filter.hash_funcs(),
        tweak: filter.tweak(),
    }
}

//! Whole blocks against a wallet's filter.

use bitcoin::Block;
use bitcoin::consensus::deserialize;
use chainsieve::btc::bip37::{BlockElements, BloomFilter};
use chainsieve::simd::Backend;

use crate::element::{Random, half_full, ours};
use crate::plain::{Extracted, PlainFilter};
use crate::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let blocks: &[u32] = if report.is_quick() { &[413_567] } else { &[413_567, 702_861] };
    for &height in blocks {
        let raw = crate::corpus_block(height);
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

    let mut random = Random(11);
    let filters = [
        ("36,000 B half full, k = 10", half_full(10, &mut random).1),
        ("36,000 B half full, k = 17", half_full(17, &mut random).1),
        ("1,000 elements at 1e-4", thousand(&mut random)),
    ];
    for (name, plain) in &filters {
        for (flags, flags_name) in [(0, "NONE"), (1, "ALL")] {
            let mut after = plain.clone();
            let expected = extracted.matches(&mut after, flags == 1);
            for backend in Backend::available() {
                let filter = ours(plain, flags).with_backend(backend);
                let run = || {
                    let mut filter = filter.clone();
                    let matches = filter.match_block(&elements);
                    (matches, filter)
                };
                let (matches, filter_after) = run();
                let matched: Vec<u32> = matches.iter().map(|found| found.index).collect();
                assert_eq!((matched, filter_after.data()), (expected.clone(), &after.data[..]));
                report.ratio(
                    &format!("match block {height}, {name}, {flags_name}, {backend:?} vs mur3"),
                    count,
                    run,
                    || extracted.matches(&mut plain.clone(), flags == 1),
                );
            }
        }
    }
    let filter = ours(&filters[2].1, 0);
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

/// A filter sized for 1,000 elements at 1e-4, with 1,000 of them in.
fn thousand(random: &mut Random) -> PlainFilter {
    let mut filter = BloomFilter::new(1_000, 1e-4, 99, Default::default()).expect("sized");
    (0..1_000).for_each(|_| filter.insert(&random.bytes(20)));
    PlainFilter {
        data: filter.data().to_vec(),
        hash_funcs: filter.hash_funcs(),
        tweak: filter.tweak(),
    }
}

//! An index of real blooms: those of the corpus, each used many times.

use alloy_primitives::{B256, Bloom};
use chainsieve::eth::bloom::FillHistogram;
use chainsieve::eth::index::{Folder, Index, Settings, Writer};
use chainsieve::eth::scan;
use chainsieve::simd::Backend;

use crate::eth_scans;
use testkit::eth::corpus::EthCorpus;
use testkit::eth::linked_headers::linked_headers;
use testkit::{Rng, TestFolder};

/// Number of the first block.
const FIRST: u64 = 17_000_000;

#[test]
fn sections_full_of_real_values() {
    let Some(corpus) = EthCorpus::open() else { return };
    let mut rng = Rng::new(5);
    let real = eth_scans::blooms(&corpus);
    // Two full sections and a tail, with blooms in random order.
    let blooms: Vec<[u8; 256]> = (0..2 * 8_192 + 700).map(|_| rng.pick(&real).0.0).collect();
    let rivals: Vec<Bloom> = blooms.iter().map(Bloom::from).collect();
    let chain = linked_headers(FIRST, B256::ZERO, 0, &blooms);
    let last = FIRST + blooms.len() as u64 - 1;

    let folder = TestFolder::new("index-of-real-values");
    let settings = Settings::new("repeated").expect("a label").with_block_hashes();
    let mut writer = Writer::open(Folder::new(folder.path()), &settings).expect("a writer");
    writer.append(&chain).expect("linked");
    writer.sync().expect("synced");
    let index = Index::open(Folder::new(folder.path())).expect("an index");
    assert_eq!(index.numbers(), Some(FIRST..=last));
    assert_eq!(index.sealed(), 2 * 8_192);
    index.check(|_, _| ()).expect("nothing damaged");
    let mut verifier = index.verifier();
    verifier.add(&chain).expect("the headers it was built from");
    verifier.finish().expect("the headers it was built from");
    assert_eq!(verifier.blocks, index.numbers());

    let mut found_some = 0;
    for (at, (naive, query)) in eth_scans::queries(&corpus, 300, 11).into_iter().enumerate() {
        let (a, b) = (rng.below(blooms.len()), rng.below(blooms.len()));
        let range = if at % 3 == 0 { 0..blooms.len() } else { a.min(b)..a.max(b) + 1 };
        let numbers = FIRST + range.start as u64..=FIRST + range.end as u64 - 1;
        let expected: Vec<u64> = if at % 10 == 0 {
            let passes = eth_scans::by_rival(&naive, &rivals);
            range.clone().filter(|&index| passes[index]).map(|index| FIRST + index as u64).collect()
        } else {
            let found = scan::candidates(&query, &blooms[range.clone()]);
            found.into_iter().map(|index| numbers.start() + index as u64).collect()
        };
        found_some += usize::from(!expected.is_empty() && expected.len() < range.len());
        for backend in Backend::available() {
            let found = index.candidates_on(backend, &query, numbers.clone()).expect("an answer");
            assert!(found.iter().eq(expected.iter().copied()), "{naive:?} on {backend:?}");
            assert_eq!(index.count(&query, numbers.clone()), Ok(expected.len() as u64));
        }
    }
    assert!(found_some > 200, "only {found_some} queries match some blocks, but not all");

    let mut fills = FillHistogram::default();
    fills.add(chain.blooms());
    assert_eq!(index.fills(FIRST..=last), Ok(fills));
}

//! Scans of malformed filters, and the memory of scans.

use std::ops::ControlFlow;

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::scan::{
    Candidate, CandidateReason, FilterItem, FilterScan, NoAnswer, ScanCursor,
};
use chainsieve::btc::bip158::{BlockFilter, GcsParams, filter_key, gcs};
use chainsieve::simd::Backend;

use crate::survives;
use testkit::Rng;
use testkit::allocation::requested_by;

fn filter(rng: &mut Rng, elements: usize) -> BlockFilter {
    let block_hash = BlockHash::from_byte_array(rng.array());
    let elements: Vec<[u8; 22]> = (0..elements).map(|_| rng.array()).collect();
    let elements = elements.iter().map(<[u8; 22]>::as_slice);
    let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements).expect("few");
    BlockFilter { block_hash, content }
}

fn scan_for(rng: &mut Rng, backend: Backend, scripts: usize) -> FilterScan {
    let mut scan = FilterScan::new(ScanCursor::at(0)).with_backend(backend);
    let wallet = scan.wallets_mut().add(0);
    scan.wallets_mut().extend(wallet, (0..scripts).map(|_| rng.array::<22>()));
    scan
}

fn items(filters: &[BlockFilter]) -> impl Iterator<Item = FilterItem<'_>> {
    (0..).zip(filters).map(|(height, filter)| FilterItem {
        height,
        block_hash: filter.block_hash,
        content: &filter.content,
        commitment: None,
    })
}

/// Returns the candidates of one pass from height 0 on.
fn pass(scan: &mut FilterScan, filters: &[BlockFilter]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    scan.rewind(0);
    let done = scan.scan(items(filters), |candidate, _| {
        candidates.push(candidate);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(done, Ok(ControlFlow::Continue(())));
    candidates
}

#[test]
fn a_filter_that_cannot_be_read_is_a_candidate() {
    let mut rng = Rng::new(1_158);
    let whole: Vec<_> = (0..4).map(|number| filter(&mut rng, 3 + number)).collect();
    let mut made = Vec::new();
    for BlockFilter { block_hash, content } in &whole {
        for cut in 0..content.len() {
            let content = content[..cut].to_vec();
            made.push(BlockFilter { block_hash: *block_hash, content });
        }
        for more in [&[0][..], &[0xff], &[0; 9]] {
            let content = [content, more].concat();
            made.push(BlockFilter { block_hash: *block_hash, content });
        }
        // A count larger than the bytes can hold, or above every limit.
        for count in [&[0x7f][..], &[0xfd, 0xff, 0xff], &[0xfe, 0, 0, 0, 2], &[0xff; 9]] {
            let content = [count, &content[1..]].concat();
            made.push(BlockFilter { block_hash: *block_hash, content });
        }
    }
    for backend in Backend::available() {
        let mut scan = scan_for(&mut rng, backend, 5);
        for filter in &made {
            let filter = std::slice::from_ref(filter);
            let run = || pass(&mut scan, filter);
            let candidates = survives("Scan", &filter[0].content, 64, 4_000, run);
            let [Candidate { reason: CandidateReason::NoAnswer(NoAnswer::Unreadable(_)), .. }] =
                &candidates[..]
            else {
                panic!("{candidates:?} of {}", hex::encode(&filter[0].content));
            };
        }
        assert_eq!(scan.statistics().no_answers, made.len() as u64);
        assert_eq!(scan.statistics().questions, 0);
        assert_eq!(pass(&mut scan, &whole), []);
        assert_eq!(scan.statistics().questions, 4 * 5);
    }
}

#[test]
fn nothing_is_allocated_from_filter_to_filter() {
    let mut rng = Rng::new(2_158);
    let filters: Vec<_> = (0..200).map(|number| filter(&mut rng, 100 + number % 50)).collect();
    for backend in Backend::available() {
        for scripts in [1, 10, 1_000] {
            let mut scan = scan_for(&mut rng, backend, scripts);
            assert_eq!(pass(&mut scan, &filters), [], "a false positive: try another seed");
            let passes = [&filters[..50], &filters].map(|filters| {
                let (found, requested) = requested_by(|| pass(&mut scan, filters));
                assert_eq!(found, []);
                requested
            });
            assert_eq!(passes[0], passes[1], "{backend:?}, {scripts} scripts");
        }
    }
}

//! Batched Keccak-256 against alloy's, tested through the functions that use it.

use alloy_primitives::{Bloom, BloomInput, keccak256};
use chainsieve::eth::bloom::{accrue, positions_of_each_on, positions_of_hash};
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::eth::fixtures;

/// Batches of every size below 40. Many values have a length close to a multiple of the rate, 136
/// bytes.
#[test]
fn batches_hash_as_alloy_does() {
    let mut rng = Rng::new(5);
    for size in 0..40 {
        for _ in 0..12 {
            let values: Vec<Vec<u8>> = (0..size)
                .map(|_| {
                    let length = match rng.below(4) {
                        0 => 20,
                        1 => 32,
                        2 => (136 * (1 + rng.below(6)) + rng.below(3)) - 1,
                        _ => rng.below(1_000),
                    };
                    rng.bytes(length)
                })
                .collect();
            let slices: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> =
                values.iter().map(|value| positions_of_hash(&keccak256(value))).collect();
            for backend in Backend::available() {
                let found = positions_of_each_on(backend, &slices);
                assert_eq!(found, expected, "{size} values on {backend:?}");
            }
            for (value, positions) in values.iter().zip(&expected) {
                let mut bloom = [0; 256];
                accrue(&mut bloom, positions);
                assert_eq!(Bloom::from(bloom), Bloom::from(BloomInput::Raw(value)));
            }
        }
    }
}

/// Compares whole hashes instead of bloom positions: the hashes of headers, in runs of every
/// length.
#[test]
fn hashes_of_header_batches() {
    let headers = fixtures::headers();
    let run: Vec<_> = (18_090_205..=18_090_213)
        .map(|number| headers.iter().find(|header| header.number == number).expect("a run"))
        .collect();
    for backend in Backend::available() {
        for end in 1..=run.len() {
            let rlp: Vec<u8> = run[..end].iter().flat_map(|header| header.rlp.clone()).collect();
            let mut chain = LinkedHeaders::new();
            assert_eq!(chain.extend_from_rlp_on(backend, &rlp), Ok(end));
            let hashes: Vec<_> = chain.blocks().map(|block| block.hash).collect();
            let expected: Vec<_> = run[..end].iter().map(|header| keccak256(&header.rlp)).collect();
            assert_eq!(hashes, expected, "{backend:?}");
        }
    }
}

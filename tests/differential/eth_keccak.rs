//! Batched Keccak-256 against alloy's, tested through the functions that use it.

use alloy_primitives::{Bloom, BloomInput, keccak256};
use chainsieve::eth::bloom::{accrue, positions_of_each_on, positions_of_hash};
use chainsieve::simd::Backend;

use testkit::Rng;

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

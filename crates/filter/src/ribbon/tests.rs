//! Tests of the internals of ribbon filters.

use super::*;

fn random(count: usize, seed: u64) -> Vec<u64> {
    let mut rng = testkit::Rng::new(seed);
    (0..count).map(|_| rng.u64()).collect()
}

#[test]
fn every_small_size() {
    for count in 0..2000 {
        let hashes = random(count, count as u64);
        let filter = RibbonFilter::build(&hashes, 0.01, 1, KeyHasher::xxh3(0)).unwrap();
        assert_eq!(filter.len(), count as u64);
        assert!(hashes.iter().all(|hash| filter.contains_hash(*hash)), "{count}");
        let bytes = filter.encode().unwrap();
        assert_eq!(RibbonFilter::decode(&bytes).unwrap(), filter);
    }
}

/// The ratio of the filter's bits to the lower bound is as the docs of the module claim.
#[test]
#[expect(clippy::cast_precision_loss, reason = "counts become a ratio")]
fn overhead() {
    for (count, most) in [(10_000, 1.04), (100_000, 1.04), (300_000, 1.04)] {
        let hashes = random(count, count as u64);
        for fpr in [0.01, 0.001, 1.0 / 256.0] {
            let filter = RibbonFilter::build(&hashes, fpr, 1, KeyHasher::xxh3(0)).unwrap();
            let bits = filter.num_bits() as f64 / count as f64 / -fpr.log2();
            assert!((1.015..most).contains(&bits), "{count} at {fpr}: {bits}");
        }
    }
}

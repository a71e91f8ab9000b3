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
        let filter = RibbonFilter::build(&hashes, 0.01, KeyHasher::xxh3(0)).unwrap();
        assert_eq!(filter.len(), count as u64);
        assert!(hashes.iter().all(|hash| filter.contains_hash(*hash)), "{count}");
        let bytes = filter.encode().unwrap();
        assert_eq!(RibbonFilter::decode(&bytes).unwrap(), filter);
    }
}

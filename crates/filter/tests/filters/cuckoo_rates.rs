//! Rates of cuckoo filters: they match the formula for every width, many sizes and all key
//! families. Filters with few buckets differ by chance, so each of these filters is compared with
//! its own exact rate.

use chainsieve_filter::cuckoo::{CuckooFilter, CuckooFilter16};
use chainsieve_filter::{Filter, Insert, KeyHasher};

use crate::cuckoo::hashes;
use crate::key_families::{Family, SEEDS};
use testkit::assert_rate;

fn filled<const BITS: u32>(buckets: u64, keys: &[u64], hasher: KeyHasher) -> CuckooFilter<BITS> {
    let mut filter = CuckooFilter::with_buckets(buckets, hasher).expect("memory");
    filter.insert_batch(keys).expect("room");
    filter
}

fn hits<const BITS: u32>(filter: &CuckooFilter<BITS>, strangers: &[u64]) -> u64 {
    let mut answers = vec![false; strangers.len()];
    filter.contains_batch(strangers, &mut answers);
    answers.iter().filter(|answer| **answer).count() as u64
}

/// Checks the rate of each seed and of all seeds together, at two loads.
fn rates<const BITS: u32>(n: u64, strangers: u64, design: f64) {
    for percent in [94, 50] {
        let load = percent as f64 / 100.0;
        let (mut all_hits, mut fpr) = (0, 0.0);
        for seed in SEEDS {
            let buckets = (n * 100).div_ceil(percent * 4);
            let filter = filled::<BITS>(buckets, &hashes(seed, 0..n), KeyHasher::xxh3(0));
            fpr = filter.expected_fpr();
            let hits = hits(&filter, &hashes(seed, n..n + strangers));
            assert_rate(
                &format!("{BITS} bits, {n} keys, {load}, seed {seed}"),
                fpr,
                hits,
                strangers,
            );
            all_hits += hits;
        }
        let probes = strangers * SEEDS.len() as u64;
        assert_rate(&format!("{BITS} bits, {n} keys, {load}"), fpr, all_hits, probes);
        assert!(all_hits > 3_600 / 2 || load < 0.9, "{all_hits} hits are too few");
        // The rate agrees with the figures in textbooks and in this library's tables within two per
        // cent.
        assert!((fpr / (design * load / 0.94) - 1.0).abs() < 0.02, "{fpr}");
    }
}

#[test]
fn rates_of_8_bits() {
    rates::<8>(1_000, 30_000, 0.0291);
    rates::<8>(20_000, 100_000, 0.0291);
}

#[test]
fn rates_of_12_bits() {
    rates::<12>(3_001, 300_000, 0.001_835);
    rates::<12>(50_000, 300_000, 0.001_835);
}

#[test]
fn rates_of_16_bits() {
    rates::<16>(65_536, 4_000_000, 0.000_114_7);
}

fn families<const BITS: u32>(n: u64, strangers: u64, hasher_of: fn(u64) -> KeyHasher) {
    for family in Family::some() {
        let (mut all_hits, mut fpr) = (0, 0.0);
        for seed in SEEDS {
            let hasher = hasher_of(seed);
            let hash = |index| hasher.hash::<u64>(&family.key(seed, index));
            let keys: Vec<u64> = (0..n).map(hash).collect();
            let buckets = (n * 100).div_ceil(94 * 4);
            let filter = filled::<BITS>(buckets, &keys, hasher);
            assert!(keys.iter().all(|key| filter.contains_hash(*key)), "{family:?}, seed {seed}");
            fpr = filter.expected_fpr();
            let asked: Vec<u64> = (n..n + strangers).map(hash).collect();
            let hits = hits(&filter, &asked);
            assert_rate(&format!("{BITS} bits, {family:?}, seed {seed}"), fpr, hits, strangers);
            all_hits += hits;
        }
        let probes = strangers * SEEDS.len() as u64;
        assert_rate(&format!("{BITS} bits, {family:?}"), fpr, all_hits, probes);
    }
}

#[test]
fn rates_of_families_of_keys() {
    families::<8>(5_000, 15_000, KeyHasher::xxh3);
    families::<12>(10_000, 100_000, |seed| KeyHasher::siphash_1_3([seed, 1]));
    families::<16>(10_000, 200_000, KeyHasher::xxh3);
}

/// Returns one hash for every pair of bucket and fingerprint. By the documented mapping, the high
/// bits of a hash choose the bucket, and its low half chooses the fingerprint.
fn one_for_each_place(buckets: u64, bits: u32) -> Vec<u64> {
    let fingerprints = (1_u64 << bits) - 1;
    let scaled = |at: u64, of: u64, width: u32| {
        // Returns the middle of the range of hashes that are scaled to the number `at`, out of `of`
        // numbers.
        u64::try_from((u128::from(at) * 2 + 1 << width) / (u128::from(of) * 2)).expect("below `of`")
    };
    let high = |bucket| scaled(bucket, buckets, 64) & !0xffff_ffff;
    let low = |fingerprint| scaled(fingerprint, fingerprints, 32);
    let places = (0..buckets).flat_map(|at| (0..fingerprints).map(move |low| (at, low)));
    places.map(|(bucket, fingerprint)| high(bucket) | low(fingerprint)).collect()
}

/// Checks small filters against their exact rate: the share of (bucket, fingerprint) pairs that the
/// filter reports as present. Strangers are reported at the exact rate of their filter, and the
/// mean of the exact rates of many filters is the rate of the formula.
fn small<const BITS: u32>(buckets: u64, len: u64) {
    let (places, mut exact_sum, mut fpr) = (one_for_each_place(buckets, BITS), 0.0, 0.0);
    let mut filters = 0;
    for seed in (0..60).map(|round| 1000 + round) {
        let mut filter =
            CuckooFilter::<BITS>::with_buckets(buckets, KeyHasher::xxh3(0)).expect("memory");
        if filter.insert_batch(&hashes(seed, 0..len)).is_err() {
            continue;
        }
        let exact = hits(&filter, &places) as f64 / places.len() as f64;
        if SEEDS.contains(&(seed - 1000)) {
            let strangers = hashes(seed, len..len + 60_000);
            let name = format!("{BITS} bits, {len} in {buckets} buckets, seed {seed}");
            assert_rate(&name, exact, hits(&filter, &strangers), 60_000);
        }
        exact_sum += exact;
        fpr = filter.expected_fpr();
        filters += 1;
    }
    assert!(filters > 30, "{filters} of 60");
    let mean = exact_sum / f64::from(filters);
    // The rate of one filter deviates by about 1/sqrt(len) at most, as two keys, or a key's two
    // buckets, may coincide. The mean rate of sixty filters deviates by an eighth of 1/sqrt(len).
    let tolerance = 0.5 / (len as f64).sqrt() / 2.0;
    assert!((mean / fpr - 1.0).abs() < tolerance, "{len} in {buckets}: {mean:e}, not {fpr:e}");
}

#[test]
fn rates_of_small_filters() {
    for (buckets, len) in [(1, 1), (1, 3), (1, 4), (2, 3), (2, 6), (3, 9), (5, 12), (7, 22)] {
        small::<8>(buckets, len);
    }
    for (buckets, len) in [(8, 25), (9, 25), (31, 100), (32, 110), (33, 110)] {
        small::<8>(buckets, len);
    }
    small::<12>(9, 25);
    small::<12>(16, 48);
    small::<16>(5, 15);
}

/// Copies of a key occupy slots, but do not raise the rate for strangers.
#[test]
fn copies_count_as_slots_and_not_as_rate() {
    let keys = hashes(1, 0..10_000);
    let mut filter = CuckooFilter16::with_capacity(60_000, KeyHasher::xxh3(0)).expect("memory");
    for _ in 0..3 {
        filter.insert_batch(&keys).expect("room");
    }
    assert_eq!(filter.len(), 30_000);
    let hits = hits(&filter, &hashes(2, 0..4_000_000));
    assert_rate("three copies", filter.expected_fpr() / 3.0, hits, 4_000_000);
}

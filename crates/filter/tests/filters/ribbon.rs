//! Ribbon filters: rates for any number of columns, every key found, size against the theoretical
//! minimum, bytes.

use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::{Filter, KeyHasher, Portable};

use crate::fuse::{batch, hashes};
use crate::golden;
use crate::key_families::{Family, SEEDS};
use testkit::assert_rate;

const HASHER: KeyHasher = KeyHasher::xxh3(7);

fn hits(filter: &RibbonFilter, hashes: &[u64]) -> u64 {
    batch(filter, hashes).iter().filter(|answer| **answer).count() as u64
}

fn build(hashes: &[u64], fpr: f64, seed: u64) -> RibbonFilter {
    RibbonFilter::build_with_seed(hashes, fpr, HASHER, seed).expect("a filter")
}

#[test]
fn rates_are_as_asked() {
    const PROBES: u64 = 100_000;
    for family in Family::ALL {
        for seed in SEEDS {
            let hasher = match seed % 3 {
                0 => KeyHasher::siphash_1_3([seed, !seed]),
                1 => KeyHasher::xxh3(seed),
                _ => KeyHasher::new(HashFunction::Fnv1a),
            };
            let keys = family.keys(seed, 0..3000);
            let keys: Vec<_> = keys.iter().map(|key| hasher.hash::<u64>(key)).collect();
            let probes = PROBES / 10;
            let strangers = family.keys(seed, 1 << 40..(1 << 40) + probes);
            let mut strangers: Vec<_> = strangers.iter().map(|key| hasher.hash(key)).collect();
            strangers.extend(hashes(seed ^ 1 << 63, PROBES - probes));
            for (count, fpr) in [(1, 0.2), (100, 0.05), (3000, 0.01), (3000, 1.0 / 128.0)] {
                let filter = RibbonFilter::build_with_seed(&keys[..count], fpr, hasher, seed)
                    .expect("a filter");
                let name = format!("{family:?}, seed {seed}, {count} keys at {fpr}");
                assert_eq!(hits(&filter, &keys[..count]), count as u64, "{name}");
                let expected = filter.expected_fpr();
                // Filters have whole blocks. A small filter has few blocks, so its rate may be well
                // below the requested one.
                let least = if count < 3000 { 0.5 } else { 0.94 };
                assert!((fpr * least..=fpr * 1.000_001).contains(&expected), "{name}: {expected}");
                assert_rate(&name, expected, hits(&filter, &strangers), PROBES);
            }
        }
    }
}

/// Every number of columns from 1 to 32. Up to eight columns the rate is measured; above that, hits
/// are too rare, and only an upper bound is checked.
#[test]
fn every_number_of_columns() {
    for columns in 1..=32 {
        let keys = hashes(columns.into(), 1500);
        let filter = RibbonFilter::build_with_columns(&keys, columns, HASHER).expect("a filter");
        assert_eq!((filter.columns(), filter.len()), (columns, 1500));
        assert_eq!(hits(&filter, &keys), 1500);
        let bits = 12 * 128 * u64::from(columns) + 64;
        assert!((bits..=bits + 128 * u64::from(columns)).contains(&filter.num_bits()));
        let (fpr, probes) = (libm::exp2(-f64::from(columns)), 100_000);
        assert!((filter.expected_fpr() / fpr - 1.0).abs() < 1e-12);
        let found = hits(&filter, &hashes(1 << 40, probes));
        if columns <= 8 {
            assert_rate(&format!("{columns} columns"), fpr, found, probes);
        } else {
            assert!((found as f64) < 30.0 + 2.0 * fpr * probes as f64, "{columns}: {found}");
        }
    }
}

/// A low rate, measured with many strangers in several shards.
#[test]
fn twelve_columns() {
    const PROBES: u64 = 8_000_000;
    let (mut found, mut answers) = (0, vec![false; 1 << 16]);
    let filter =
        RibbonFilter::build_with_columns(&hashes(1, 40_000), 12, HASHER).expect("a filter");
    for first in 0..PROBES >> 16 {
        let strangers: Vec<_> = (first << 16..first + 1 << 16).map(|hash| hash | 1 << 50).collect();
        filter.contains_batch(&strangers, &mut answers);
        found += answers.iter().filter(|answer| **answer).count() as u64;
    }
    assert_rate("12 columns", libm::exp2(-12.0), found, PROBES >> 16 << 16);
}

/// The purpose of the ribbon filter: its size is close to the theoretical minimum.
#[test]
fn bits_over_the_floor() {
    for (count, fpr, most) in [
        (1000, 0.01, 1.21),
        (10_000, 0.01, 1.04),
        (10_000, 0.001, 1.03),
        (16_385, 0.01, 1.05),
        (100_000, 0.01, 1.04),
        (100_000, 1.0 / 65536.0, 1.03),
        (400_000, 0.05, 1.05),
    ] {
        let keys = hashes(count, count);
        let filter = build(&keys, fpr, 1);
        assert_eq!(hits(&filter, &keys), count);
        let over = filter.num_bits() as f64 / count as f64 / -libm::log2(fpr);
        assert!((1.01..most).contains(&over), "{count} at {fpr}: {over}");
        let strangers = hashes(count ^ 1 << 60, 200_000);
        assert_rate("in shards", filter.expected_fpr(), hits(&filter, &strangers), 200_000);
        let one_by_one: Vec<_> = strangers.iter().map(|hash| filter.contains_hash(*hash)).collect();
        assert_eq!(batch(&filter, &strangers), one_by_one);
    }
}

#[test]
fn the_empty_set() {
    for seed in SEEDS {
        let filter = build(&[], 0.01, seed);
        assert!(filter.is_empty());
        let found = hits(&filter, &hashes(seed, 100_000));
        assert_rate("no keys", filter.expected_fpr(), found, 100_000);
    }
}

#[test]
fn keys_that_come_twice_count_once() {
    for (count, twice) in [(1, 1), (100, 100), (5000, 7), (40_000, 40_000)] {
        let once = hashes(2, count);
        let keys = [&once[..], &once[..twice]].concat();
        let filter = build(&keys, 0.01, 3);
        assert_eq!((filter.len(), hits(&filter, &keys)), (count, keys.len() as u64));
    }
    let same = build(&vec![42; 100_000], 0.001, 1);
    assert!(same.len() == 1 && same.contains_hash(42));
}

#[test]
fn seeds_differ_and_order_does_not() {
    let mut keys = hashes(3, 40_000);
    let filter = build(&keys, 0.01, 5).encode().expect("a filter");
    assert_ne!(build(&keys, 0.01, 6).encode().expect("a filter"), filter);
    keys.reverse();
    assert_eq!(build(&keys, 0.01, 5).encode().expect("a filter"), filter);
}

#[test]
fn rates_there_are_none_of() {
    let fails = |fpr| RibbonFilter::build(&[1, 2, 3], fpr, HASHER).expect_err("no filter");
    for fpr in [1e-10, f64::MIN_POSITIVE] {
        assert!(matches!(fails(fpr), BuildError::OutOfReach { .. }), "{fpr}");
    }
    for columns in [0, 33, u32::MAX] {
        let error = RibbonFilter::build_with_columns(&[1], columns, HASHER).expect_err("no filter");
        assert!(matches!(error, BuildError::Parameter { min: 1, max: 32, .. }));
    }
    for fpr in [0.999_999, 0.75, 0.5, libm::exp2(-32.0)] {
        let filter = build(&hashes(1, 1000), fpr, 1);
        assert!(hits(&filter, &hashes(1, 1000)) == 1000 && filter.expected_fpr() <= fpr);
    }
}

#[test]
fn golden_file() {
    let (hasher, keys) = (golden::HASHER, golden::keys());
    let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
    let filter = RibbonFilter::build_with_seed(&hashes, 0.2, hasher, 1).expect("a filter");
    golden::check("ribbon", &filter);
}

#[test]
fn bytes_in_shards_that_lie() {
    let filter = build(&hashes(1, 20_000), 0.6, 1);
    assert_eq!((filter.num_shards(), filter.columns()), (2, 1));
    let bytes = filter.encode().expect("a filter");
    assert_eq!(RibbonFilter::decode(&bytes).as_ref(), Ok(&filter));
    let len = bytes.len();
    // Change every bit of the directory, except the bits of the ordinals of the seeds.
    for at in len - 24..len - 8 {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            golden::mend(&mut changed);
            assert_eq!(RibbonFilter::decode(&changed).is_ok(), at % 8 == 2, "byte {at}, bit {bit}");
        }
    }
    let words = (len as u64 - 72) / 8;
    for params in [
        [0, words, 1],
        [1, words, 1],
        [1 | 1 << 8, words, 1],
        [1 | 3 << 8, words, 1],
        [0x21 | 2 << 8, words, 1],
        [1 | 2 << 8 | 1 << 32, words, 1],
        [2 | 2 << 8, words, 1],
        [2 | 2 << 8 | u64::from(u32::MAX) << 32, words, 1],
        [1 | 0xff_ffff << 8, words, 1],
        [1 | 2 << 8, 1, 1],
        [1 | 2 << 8, u64::MAX, 1],
        [u64::MAX, u64::MAX, 1],
    ] {
        assert!(RibbonFilter::decode(&golden::with_params(&bytes, params)).is_err(), "{params:x?}");
    }
    let error = RibbonFilter::decode(&golden::with_word(&bytes, 32, 30_000));
    assert!(matches!(error, Err(DecodeError::Parameter { what: "number of keys", .. })));
}

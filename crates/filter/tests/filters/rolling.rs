//! Rolling filters: what they certainly remember, what they forget, rates, bytes.

use std::collections::VecDeque;

use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::sizing::classic::{self, Rolling};
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::golden;
use crate::key_families::{Family, SEEDS};
use crate::model::Laws;
use testkit::assert_rate;

fn rolling(capacity: u64, fpr: f64, seed: u64) -> RollingBloomFilter {
    RollingBloomFilter::with_fpr(capacity, fpr, KeyHasher::xxh3(seed)).expect("a size")
}

/// As long as nothing is forgotten, the filter obeys the laws of all filters.
#[test]
fn laws() {
    for fpr in [0.3, 0.01, 1e-6] {
        let size = classic::rolling(12_000, fpr).expect("a size");
        let hasher = KeyHasher::siphash_1_3([3, 4]);
        Laws::new(move || RollingBloomFilter::with_size(size, hasher).expect("a size"))
            .counting_new_keys_only()
            .portable()
            .run(60);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u16),
    InsertBatch(Vec<u16>),
    /// Inserts one key a thousand times.
    Repeat(u16),
    Rotate,
    Recode,
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![0..40_u16, any::<u16>()];
    let step = prop_oneof![
        30 => key.clone().prop_map(Step::Insert),
        10 => vec(key.clone(), 0..40).prop_map(Step::InsertBatch),
        3 => key.prop_map(Step::Repeat),
        2 => Just(Step::Rotate),
        3 => Just(Step::Recode),
        1 => Just(Step::Clear),
    ];
    vec(step, 0..120)
}

/// Keys that must be found: the keys that were inserted at most two rotations ago. A generation
/// that is nearly full ends at the next insertion, and each of the following generations ends after
/// `n/2` insertions. So without manual rotations, the newest key and the `n` before it must be
/// found.
struct Promised {
    generation_len: usize,
    /// The keys, the newest first, each with the number of manual rotations since the key's
    /// insertion.
    keys: VecDeque<(u16, usize)>,
}

impl Promised {
    fn insert(&mut self, key: u16) {
        self.keys.push_front((key, 0));
        self.forget();
    }

    fn rotate(&mut self) {
        self.keys.iter_mut().for_each(|(_, rotations)| *rotations += 1);
        self.forget();
    }

    fn forget(&mut self) {
        let rotations = |insertions: usize| insertions.div_ceil(self.generation_len);
        let mut newer = 0..;
        self.keys.retain(|(_, by_hand)| {
            newer.next().is_some_and(|newer| by_hand + rotations(newer) <= 2)
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn the_last_n_are_remembered(
        capacity in select(vec![1, 2, 3, 10, 57, 200]),
        fpr in select(vec![0.3, 0.01, 1e-5]),
        by_hand in any::<bool>(),
        steps in steps(),
    ) {
        let mut filter = rolling(capacity, fpr, 77);
        let n = usize::try_from(filter.capacity()).expect("few");
        prop_assert_eq!(filter.capacity(), capacity.next_multiple_of(2));
        let mut promised = Promised { generation_len: n / 2, keys: VecDeque::new() };
        let mut inserted = 0;
        for step in steps {
            match step {
                Step::Insert(key) => {
                    let was_there = filter.contains(&key.to_le_bytes());
                    let is_new = filter.insert(&key.to_le_bytes()).expect("never full");
                    prop_assert_eq!(is_new, !was_there);
                    promised.insert(key);
                    inserted += 1;
                }
                Step::InsertBatch(keys) => {
                    let hash = |key: &u16| filter.hasher().hash(&key.to_le_bytes());
                    let hashes: Vec<_> = keys.iter().map(hash).collect();
                    filter.insert_batch(&hashes).expect("never full");
                    for key in &keys {
                        promised.insert(*key);
                    }
                    inserted += keys.len();
                }
                Step::Repeat(key) => {
                    for _ in 0..1_000 {
                        filter.insert(&key.to_le_bytes()).expect("never full");
                    }
                    // Only the first of the thousand insertions is counted.
                    promised.insert(key);
                    inserted += 1;
                }
                Step::Rotate if by_hand => {
                    filter.rotate();
                    promised.rotate();
                }
                Step::Rotate => {}
                Step::Recode => {
                    let bytes = filter.encode().expect("a key of ours");
                    let decoded = RollingBloomFilter::decode(&bytes).expect("what was written");
                    prop_assert_eq!(&decoded, &filter);
                    filter = decoded;
                }
                Step::Clear => {
                    filter.clear();
                    prop_assert!(filter.is_empty() && filter.fill() <= 0.0);
                    promised.keys.clear();
                    inserted = 0;
                }
            }
            if !by_hand {
                prop_assert_eq!(promised.keys.len(), inserted.min(n + 1));
            }
            for (newer, (key, _)) in promised.keys.iter().enumerate() {
                let found = filter.contains(&key.to_le_bytes());
                prop_assert!(found, "{} is lost after {} more insertions", key, newer);
            }
            prop_assert!(filter.len() <= filter.capacity() / 2 * 3);
        }
    }
}

/// Distinct keys are inserted one after another. Keys older than `1.5·n` insertions are forgotten:
/// they are found only at the filter's false-positive rate. No key is forgotten earlier than
/// promised.
#[test]
fn older_keys_are_forgotten_at_the_rate() {
    let cases = [(100, 0.05, 30_000, 4), (4_000, 0.01, 100_000, 4), (20_000, 1e-3, 400_000, 2)];
    for (n, fpr, strangers, families) in cases {
        for family in Family::some().take(families) {
            let (mut hits, mut total, mut expected) = (0, 0, 0.0);
            for seed in SEEDS {
                let mut filter = rolling(n, fpr, seed);
                // Three whole generations are kept, and earlier generations are dropped.
                let inserted = 3 * n;
                for at in 0..inserted {
                    filter.insert(&family.key(seed, at)).expect("never full");
                    // The oldest key that must still be found.
                    let edge = family.key(seed, (at + 1).saturating_sub(n));
                    assert!(filter.contains(&edge), "{family:?}, {seed}: {n} before {at}");
                }
                assert!(filter.len() <= n * 3 / 2 && filter.len() > n);
                // Query forgotten keys and strangers alike.
                let strangers = (1 << 40)..(1 << 40) + strangers;
                let probes: Vec<_> = (0..inserted - n * 3 / 2).chain(strangers).collect();
                let found = probes.iter().filter(|at| filter.contains(&family.key(seed, **at)));
                hits += found.count() as u64;
                total += probes.len() as u64;
                expected += filter.expected_fpr() * probes.len() as f64;
            }
            let (rate, name) = (expected / total as f64, format!("{family:?} of {n} at {fpr}"));
            assert_rate(&name, rate, hits, total);
            let tolerance = if n < 1_000 { 0.2 } else { 0.03 };
            assert!((rate / fpr - 1.0).abs() < tolerance, "{name}: {rate} by places");
        }
    }
}

/// `len` is at most 1.5·n, which is the number of keys in three whole generations.
#[test]
fn len_and_estimate() {
    let mut filter = rolling(10_000, 1e-3, 4);
    for at in 0..40_000_u64 {
        filter.insert(&at.to_le_bytes()).expect("never full");
        let counted = filter.len();
        assert!(counted <= 15_000 && counted > at.min(10_000), "{counted} at {at}");
    }
    assert_eq!(filter.len(), 15_000);
    // A key is not counted if it is a false positive in the newest generation. Newer keys overwrite
    // cells of older keys, so the estimate includes all generations.
    let estimated = filter.estimated_len().expect("not full");
    assert!((estimated / 15_000.0 - 1.0).abs() < 0.02, "{estimated}");
}

/// Repeating a key pushes no other key out.
#[test]
fn a_key_repeated_counts_once() {
    let mut filter = rolling(100, 1e-6, 5);
    let keys = Family::Random.keys(1, 0..100);
    for key in &keys {
        filter.insert(key).expect("never full");
    }
    for _ in 0..10_000 {
        assert!(!filter.insert(&keys[99]).expect("never full"));
    }
    assert_eq!(filter.len(), 100);
    assert!(keys.iter().all(|key| filter.contains(key)));
}

/// A time window: the filter is rotated every half window.
#[test]
fn a_key_outlives_two_rotations() {
    let mut filter = rolling(1_000, 1e-6, 6);
    for (window, key) in Family::Random.keys(1, 0..50).iter().enumerate() {
        assert!(filter.insert(key).expect("never full"), "new in window {window}");
        filter.rotate();
        assert!(filter.contains(key));
        filter.rotate();
        assert!(filter.contains(key), "lost after two rotations");
        assert_eq!(filter.len(), 1);
        filter.rotate();
        assert!(!filter.contains(key), "present after three rotations");
        assert!(filter.is_empty() && filter.fill() <= 0.0);
    }
}

/// Compares sizes with Bitcoin Core's `CRollingBloomFilter`: the number of hash functions and of
/// positions by its formula.
#[test]
fn sizes_against_core() {
    for (n, fpr) in [(50_000_u64, 1e-6), (120_000, 1e-6), (48_000, 1e-6), (1_000, 1e-3)] {
        let k = (f64::ln(fpr) / f64::ln(0.5)).round().clamp(1.0, 50.0);
        let most = (3 * n.div_ceil(2)) as f64;
        let places = (-k * most / (1.0 - (fpr.ln() / k).exp()).ln()).ceil();
        let bits = (places / 64.0).ceil() * 128.0;
        let ours = rolling(n, fpr, 0);
        let ratio = ours.num_bits() as f64 / bits;
        // The difference may be one word of 64 positions.
        let rest = 128.0 / bits;
        assert!((0.995 - rest..=1.0005 + rest).contains(&ratio), "{n} at {fpr}: {ratio} of Core's");
        let size = ours.size();
        // We take the number of hash functions that gives the smaller filter; Core rounds to the
        // nearest whole number.
        let off = f64::from(size.hash_funcs) - k;
        assert!(off.abs() <= 1.0, "{} hash functions, Core has {k}", size.hash_funcs);
        assert!(size.fpr() <= fpr && size.fpr() > fpr * 0.97, "{}", size.fpr());
    }
    let bits_each = |n: u64, fpr| (rolling(n, fpr, 0).num_bits() as f64 / n as f64).round();
    assert!((bits_each(50_000, 1e-6) - 86.0).abs() < 0.1);
    assert!((bits_each(50_000, 1e-3) - 43.0).abs() < 0.1);
    // The size is that of a classic filter of 1.5·n keys, times two.
    let classic = classic::size(75_000, 1e-6).expect("a size");
    assert_eq!(rolling(50_000, 1e-6, 0).num_bits(), classic.num_bits.next_multiple_of(64) * 2);
}

#[test]
fn sizes_that_are_none() {
    let hasher = KeyHasher::xxh3(0);
    let made = RollingBloomFilter::with_fpr(50_000, 1e-14, hasher);
    assert!(matches!(made, Err(BuildError::HashTooShort { .. })), "{made:?}");
    assert!(RollingBloomFilter::with_fpr(u64::MAX, 0.01, hasher).is_err());
    let size = Rolling { num_places: 64, hash_funcs: 1, per_generation: 1 };
    for wrong in [
        Rolling { num_places: 0, ..size },
        Rolling { num_places: u64::MAX, ..size },
        Rolling { hash_funcs: 0, ..size },
        Rolling { hash_funcs: 129, ..size },
        Rolling { per_generation: 0, ..size },
        Rolling { per_generation: u64::MAX, ..size },
    ] {
        let made = RollingBloomFilter::with_size(wrong, hasher);
        assert!(matches!(made, Err(BuildError::Parameter { .. })), "{wrong:?}: {made:?}");
    }
    let random = RollingBloomFilter::new(10, 0.1).expect("a size");
    assert!(random.hasher().is_secret() && random.encode().is_err());
}

fn golden() -> RollingBloomFilter {
    golden::filled(RollingBloomFilter::with_fpr(60, 0.01, golden::HASHER).expect("a size"))
}

#[test]
fn golden_bytes() {
    golden::check("rolling", &golden());
    assert_eq!(golden().len(), 70);
}

#[test]
fn hostile_bytes() {
    let bytes = golden().encode().expect("a key of ours");
    let Rolling { num_places: places, per_generation: each, .. } = golden().size();
    let params = [
        [0, places, 7],
        [u64::MAX, places, 7],
        [each, 0, 7],
        [each, places + 1, 7],
        [each, u64::MAX, 7],
        [each, 1 << 60, 7],
        [each, places, 0],
        [each, places, 129],
        [each, places, u64::MAX],
        // The header claims fewer keys than the generations have, or fewer hash functions than the
        // number of set cells requires.
        [10, places, 7],
        [each, places, 1],
    ];
    // The first eight words of the body contain the newest generation, three counts and zeros. The
    // number of keys is in the header.
    let words = [(64, 0), (64, 4), (64, 1 << 32), (72, 31), (80, 0), (96, 1), (120, 9), (32, 71)];
    golden::refuses::<RollingBloomFilter>(&bytes, &params, &words, &[[each, 1 << 54, 7]]);
}

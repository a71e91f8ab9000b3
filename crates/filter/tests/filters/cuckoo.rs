//! Cuckoo filters: laws against an exact model, loads, full filters, and the ways in which other
//! packages lose keys or waste memory.

use chainsieve_filter::cuckoo::{CuckooFilter, CuckooFilter8, CuckooFilter12, CuckooFilter16};
use chainsieve_filter::membership::{MergeError, NotContained};
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::{Filter, Insert, KeyHasher, Merge, Portable, Remove};

use crate::key_families::SEEDS;
use crate::model::Laws;
use testkit::split_mix;

fn hasher() -> KeyHasher {
    KeyHasher::siphash_1_3([3, 4])
}

pub(crate) fn hashes(seed: u64, range: std::ops::Range<u64>) -> Vec<u64> {
    let base = split_mix(seed) & 0xffff_ffff << 32;
    range.map(|index| split_mix(base ^ index)).collect()
}

fn with_buckets<const BITS: u32>(buckets: u64) -> CuckooFilter<BITS> {
    CuckooFilter::with_buckets(buckets, hasher()).expect("memory")
}

/// Runs the laws on a filter with few buckets, so that some sequences fill the filter.
fn laws_hold<const BITS: u32>(buckets: u64, keys: u16, most_copies: u32) {
    Laws::new(move || with_buckets::<BITS>(buckets))
        .keys(keys)
        .most_copies(most_copies)
        .removing()
        .merging()
        .portable()
        .run(14);
}

#[test]
fn the_laws_hold() {
    for buckets in [1, 2, 3, 17, 64, 200] {
        laws_hold::<8>(buckets, 600, u32::MAX);
        laws_hold::<12>(buckets, 600, u32::MAX);
        laws_hold::<16>(buckets, 600, u32::MAX);
    }
    // Few keys, each inserted often.
    laws_hold::<8>(50, 12, u32::MAX);
    laws_hold::<16>(50, 12, 8);
}

/// The planned load of 94 % is reached without spare buckets, and no key is refused.
#[test]
fn a_load_of_94_percent_is_reached() {
    fn fill<const BITS: u32>(n: u64, seed: u64) {
        let hashes = hashes(seed, 0..n);
        let mut filter = with_buckets::<BITS>((n * 100).div_ceil(94 * 4));
        if seed.is_multiple_of(2) {
            assert_eq!(filter.insert_batch(&hashes), Ok(()), "{n} keys, seed {seed}");
        } else {
            for hash in &hashes {
                filter.insert_hash(*hash).expect("room");
            }
        }
        let load = filter.fill();
        assert!(load > 0.94 - 4.0 / n as f64 && load <= 0.94, "{load}");
        let mut answers = vec![false; hashes.len()];
        filter.contains_batch(&hashes, &mut answers);
        assert!(!answers.contains(&false), "{n} keys, seed {seed}");
    }
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        for seed in SEEDS {
            fill::<16>(n, seed);
            // The width determines which fingerprints can be moved, but not how fingerprints are
            // moved.
            if n <= 100_000 {
                fill::<8>(n, seed);
                fill::<12>(n, seed);
            }
        }
    }
}

#[test]
fn every_capacity_is_reached() {
    for n in (0..130).chain([200, 300, 500, 999]) {
        for seed in SEEDS {
            let mut filter = CuckooFilter16::with_capacity(n, hasher()).expect("memory");
            assert!(filter.capacity() >= n);
            assert_eq!(filter.insert_batch(&hashes(seed, 0..n)), Ok(()), "{n} keys, seed {seed}");
        }
    }
}

/// A full filter refuses a key and changes nothing. Another package drops a different key instead
/// of refusing the new one.
#[test]
fn a_refused_key_costs_no_other() {
    fn fill<const BITS: u32>(buckets: u64, seed: u64) -> f64 {
        let keys = hashes(seed, 0..buckets * 5);
        let mut filter = with_buckets::<BITS>(buckets);
        let inserted = keys.iter().take_while(|key| filter.insert_hash(**key).is_ok()).count();
        let load = filter.fill();
        let before = filter.encode().expect("no secret key");
        // Insert the refused key and others again: insertions that fail change not a single byte.
        let mut refused = 0;
        for key in keys[inserted..].iter().take(50) {
            let mut copy = filter.clone();
            if let Err(full) = copy.insert_hash(*key) {
                assert_eq!((full.len, full.capacity), (inserted as u64, buckets * 4));
                assert_eq!(copy.encode().expect("no secret key"), before);
                refused += 1;
            }
        }
        assert!(refused > 0);
        assert!(keys[..inserted].iter().all(|key| filter.contains_hash(*key)), "a key is lost");
        load
    }
    for buckets in [1, 2, 3, 5, 64, 127, 1000] {
        for seed in SEEDS {
            let loads = [fill::<8>(buckets, seed), fill::<12>(buckets, seed)];
            let load = fill::<16>(buckets, seed).min(loads[0]).min(loads[1]);
            assert!(buckets < 1000 || load > 0.96, "{buckets}, seed {seed}: {load}");
        }
    }
}

/// Memory follows the number of keys. Rounding up to a power of two would leave up to half of the
/// memory empty.
#[test]
fn sizes_follow_the_keys() {
    for n in [100_000, 123_456, (1 << 17) + 1, (1 << 18) - 1, 262_145, 900_001] {
        let bits = |filter: &dyn Filter<Hash = u64>| filter.num_bits() as f64 / n as f64;
        let eight = CuckooFilter8::with_capacity(n, hasher()).expect("memory");
        let twelve = CuckooFilter12::with_capacity(n, hasher()).expect("memory");
        let sixteen = CuckooFilter16::with_capacity(n, hasher()).expect("memory");
        let all = [bits(&eight), bits(&twelve), bits(&sixteen)];
        assert!((8.51..8.52).contains(&all[0]), "{n}: {all:?}");
        assert!((12.76..12.78).contains(&all[1]), "{n}: {all:?}");
        assert!((17.02..17.04).contains(&all[2]), "{n}: {all:?}");
    }
}

#[test]
fn rates_asked_for_are_kept() {
    for (n, fpr) in [(1, 0.5), (10, 0.03), (1000, 0.02), (1000, 0.01), (77_777, 0.029)] {
        let mut filter = CuckooFilter8::with_fpr(n, fpr, hasher()).expect("a size");
        filter.insert_batch(&hashes(3, 0..n)).expect("room");
        assert!(filter.expected_fpr() <= fpr, "{n}, {fpr}: {}", filter.expected_fpr());
        // There are no more slots than needed: the load of 94 % or the rate determines the number
        // of slots, and at most twenty buckets are added.
        let slots = (n as f64 / 0.94).max(8.0 * n as f64 / (255.0 * fpr));
        assert!((filter.num_slots() as f64) < slots * 1.02 + 80.0, "{n}, {fpr}");
    }
    let refused = CuckooFilter16::with_fpr(1000, 1e-6, hasher()).err();
    assert!(matches!(refused, Some(BuildError::OutOfReach { .. })), "{refused:?}");
    for refused in [
        CuckooFilter16::with_capacity(u64::MAX, hasher()).err(),
        CuckooFilter16::with_capacity(1 << 34, hasher()).err(),
        CuckooFilter16::with_buckets(0, hasher()).err(),
        CuckooFilter16::with_buckets(u64::MAX, hasher()).err(),
    ] {
        let is_parameter =
            matches!(refused, Some(BuildError::Parameter { what: "a number of buckets", .. }));
        assert!(is_parameter, "{refused:?}");
    }
}

#[test]
fn a_key_has_room_for_eight_copies() {
    let mut in_two = 0;
    for key in hashes(5, 0..200) {
        let mut filter = with_buckets::<16>(20);
        let copies = (0..9).take_while(|_| filter.insert_hash(key).is_ok()).count();
        in_two += u32::from(copies == 8);
        // For one bucket in twenty, the alternative bucket is the same bucket: then there is room
        // for only four copies of a key.
        assert!(copies == 8 || copies == 4, "{copies}");
        let full = filter.clone();
        let refusal = filter.insert_hash(key).expect_err("no ninth");
        assert_eq!((refusal.len, refusal.capacity), (copies as u64, 80));
        let batch = filter.insert_batch(&[key; 3]).expect_err("no ninth");
        assert_eq!((batch.inserted, &filter), (0, &full));
        for left in (0..copies).rev() {
            assert!(filter.contains_hash(key));
            assert_eq!(filter.remove_known_hash(key), Ok(()));
            assert_eq!(filter.len(), left as u64);
        }
        assert_eq!(filter.remove_known_hash(key), Err(NotContained));
        assert_eq!(filter, with_buckets(20));
    }
    assert!((170..200).contains(&in_two), "{in_two}");
    // In a batch, the copies after the first refused one leave no trace.
    for key in hashes(6, 0..20) {
        let mut filter = with_buckets::<16>(20);
        let refused = filter.insert_batch(&[key; 12]).expect_err("four too many").inserted;
        assert!((refused == 8 || refused == 4) && filter.len() == refused as u64, "{refused}");
        for _ in 0..refused {
            assert_eq!(filter.remove_known_hash(key), Ok(()));
        }
        assert_eq!(filter, with_buckets(20));
    }
}

#[test]
fn merged_filters_hold_both_sets() {
    let (left, right) = (hashes(1, 0..2_000), hashes(2, 0..1_700));
    let filled = |keys: &[u64]| {
        let mut filter = with_buckets::<12>(1000);
        filter.insert_batch(keys).expect("room");
        filter
    };
    let mut merged = filled(&left);
    merged.merge(&filled(&right)).expect("room for both");
    assert_eq!(merged.len(), 3_700);
    assert!(left.iter().chain(&right).all(|key| merged.contains_hash(*key)));
    for key in left.iter().chain(&right) {
        merged.remove_known_hash(*key).expect("it is there");
    }
    assert_eq!(merged, with_buckets(1000));

    // First there is one key more than there are slots. Then there is one key fewer than there are
    // slots, but no moves of fingerprints make room for every key.
    for len in [2_001, 1_999] {
        let mut full = filled(&left);
        let before = full.encode().expect("no secret key");
        let refused = full.merge(&filled(&hashes(3, 0..len)));
        assert!(matches!(refused, Err(MergeError::Full(full)) if full.len == 2_000), "{refused:?}");
        assert_eq!(full.encode().expect("no secret key"), before);
    }
    let mut filter = filled(&left);
    let (what, ours, theirs) = ("number of buckets", 1000, 1001);
    let refused = filter.merge(&with_buckets(1001));
    assert_eq!(refused, Err(MergeError::Shape { what, ours, theirs }));
    let other_key = KeyHasher::siphash_1_3([3, 5]);
    let other = CuckooFilter12::with_buckets(1000, other_key).expect("memory");
    assert_eq!(filter.merge(&other), Err(MergeError::Hasher));
    assert_eq!(filter, filled(&left));
}

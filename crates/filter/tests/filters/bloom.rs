//! Classic and partitioned Bloom filters: laws that hold for any sequence of operations.

use crate::model::{Laws, Model};
use chainsieve_filter::bloom::{AtomicBloomFilter, BloomFilter, CompressedBloomFilter};
use chainsieve_filter::hashing::KeyHash;
use chainsieve_filter::membership::MergeError;
use chainsieve_filter::sizing::{BuildError, classic};
use chainsieve_filter::textbook::PartitionedBloomFilter;
use chainsieve_filter::{Filter, Fold, Insert, KeyHasher, Merge, Portable};
use testkit::{split_mix, stride};

const HASHER: KeyHasher = KeyHasher::xxh3(7);

pub(crate) fn hashes(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| split_mix(split_mix(seed).wrapping_add(at))).collect()
}

fn wide(hash: u64) -> u128 {
    u128::from(split_mix(!hash)) << 64 | u128::from(hash)
}

/// Returns the laws of any Bloom filter, with folds among the operations.
fn laws<F>(make: impl Fn() -> F + 'static) -> Laws<F>
where
    F: Insert + Merge + Fold + Portable,
{
    Laws::new(make).merging_folded().portable().step("folded", |filter, _, _| {
        if let Some(folded) = filter.folded().expect("memory") {
            *filter = folded;
        }
    })
}

#[test]
fn sequences_of_operations_lose_no_key() {
    for (bits, hash_funcs) in [(2_000, 1), (4_000, 11), (64_000, 2), (256_000, 7)] {
        laws(move || <BloomFilter>::with_bits(bits, hash_funcs, HASHER).expect("a shape"))
            .step("compressed", |filter, _, _| {
                let coded = CompressedBloomFilter::of(filter);
                let back = CompressedBloomFilter::decode(&coded.encode().expect("no secret"));
                assert_eq!(back.as_ref(), Ok(&coded));
                let opened = coded.open(filter.num_bits()).expect("no more bits than that");
                assert_eq!(&opened, filter);
            })
            .step("shared", |filter, model, number| {
                let key = Model::key(number % 600);
                let shared = AtomicBloomFilter::from_filter(filter).expect("memory");
                assert_eq!(shared.insert(&key), !filter.contains(&key));
                model.insert(&key);
                assert!(model.keys().all(|key| shared.contains(key)));
                let bytes = shared.encode().expect("no secret");
                let back = AtomicBloomFilter::decode(&bytes).expect("our own bytes");
                *filter = back.to_filter().expect("memory");
                assert_eq!(filter.encode().as_ref(), Ok(&bytes));
            })
            .run(64);
        laws(move || BloomFilter::<u128>::with_bits(bits, hash_funcs, HASHER).expect("a shape"))
            .run(64);
        let slice_bits = bits / 4;
        laws(move || {
            <PartitionedBloomFilter>::with_slices(slice_bits, hash_funcs, HASHER).expect("a shape")
        })
        .run(64);
    }
}

/// Checks that a folded filter equals a filter that was built with half the bits.
#[test]
fn a_fold_is_the_filter_of_half_the_size() {
    let keys = hashes(1, 700);
    for num_bits in [2, 6, 64, 126, 128, 130, 1_000, 4_096, 9_600, 100_002] {
        for hash_funcs in [1, 3, 7, 20] {
            let of = |num_bits| {
                let mut filter = <BloomFilter>::with_bits(num_bits, hash_funcs, HASHER).unwrap();
                filter.insert_batch(&keys).unwrap();
                filter
            };
            let (whole, half) = (of(num_bits), of(num_bits / 2));
            assert_eq!(whole.folded().unwrap().as_ref(), Some(&half), "{num_bits} {hash_funcs}");
            assert_eq!(whole.fpr_folded(), Some(half.expected_fpr()), "{num_bits} {hash_funcs}");
            let of = |slice_bits| {
                let hasher = HASHER;
                let mut filter =
                    <PartitionedBloomFilter>::with_slices(slice_bits, hash_funcs, hasher).unwrap();
                filter.insert_batch(&keys).unwrap();
                filter
            };
            let (whole, half) = (of(num_bits), of(num_bits / 2));
            assert_eq!(whole.folded().unwrap().as_ref(), Some(&half), "{num_bits} {hash_funcs}");
            assert_eq!(whole.fpr_folded(), Some(half.expected_fpr()), "{num_bits} {hash_funcs}");
        }
    }
    let odd = <BloomFilter>::with_bits(77, 3, HASHER).unwrap();
    assert_eq!((odd.folded().unwrap(), odd.fpr_folded()), (None, None));
    let odd = <PartitionedBloomFilter>::with_slices(77, 4, HASHER).unwrap();
    assert_eq!((odd.folded().unwrap(), odd.fpr_folded()), (None, None));
}

/// A filter sized for eight times the inserted keys is folded to the size that the keys need.
#[test]
fn folding_to_a_rate_keeps_it() {
    let mut filter = <BloomFilter>::with_bits(1 << 20, 7, HASHER).unwrap();
    filter.insert_batch(&hashes(2, 12_000)).unwrap();
    assert_eq!(filter.fold_to_fpr(0.01), Ok(3));
    assert_eq!(filter.num_bits(), 1 << 17);
    assert!(filter.expected_fpr() <= 0.01 && filter.fpr_folded().unwrap() > 0.01);
    // Without keys the rate is always low enough, so folding ends only at one bit.
    let mut empty = <BloomFilter>::with_bits(64, 7, HASHER).unwrap();
    assert_eq!((empty.fold_to_fpr(0.5), empty.num_bits()), (Ok(6), 1));
}

#[test]
fn a_union_is_the_filter_of_both_sets() {
    let (ours, theirs) = (hashes(3, 500), hashes(4, 400));
    let of = |keys: &[u64]| {
        let mut filter = <BloomFilter>::with_fpr(1_000, 0.01, HASHER).unwrap();
        filter.insert_batch(keys).unwrap();
        filter
    };
    let mut both = of(&ours);
    both.merge(&of(&theirs)).unwrap();
    assert_eq!(both, of(&[ours, theirs].concat()));

    let unchanged = both.clone();
    let (bits, hash_funcs) = (both.num_bits(), both.hash_funcs());
    let other =
        |bits, hash_funcs, hasher| <BloomFilter>::with_bits(bits, hash_funcs, hasher).unwrap();
    let other_seed = both.merge(&other(bits, hash_funcs, KeyHasher::xxh3(8)));
    assert_eq!(other_seed, Err(MergeError::Hasher));
    let other_function = both.merge(&other(bits, hash_funcs, KeyHasher::siphash_1_3([7, 0])));
    assert_eq!(other_function, Err(MergeError::Hasher));
    for (bits, hash_funcs) in
        [(bits + 64, hash_funcs), (bits - 1, hash_funcs), (bits, hash_funcs + 1)]
    {
        let shape = both.merge(&other(bits, hash_funcs, HASHER));
        assert!(matches!(shape, Err(MergeError::Shape { .. })), "{shape:?}");
    }
    assert_eq!(both, unchanged);
}

#[test]
fn batches_answer_as_one_by_one() {
    for hash_funcs in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 17, 20, 33, 128] {
        let bits = 3_000 * u64::from(hash_funcs);
        let mut filter = <BloomFilter>::with_bits(bits, hash_funcs, HASHER).unwrap();
        let mut sliced = <PartitionedBloomFilter>::with_slices(3_000, hash_funcs, HASHER).unwrap();
        let mut wider = BloomFilter::<u128>::with_bits(bits, hash_funcs, HASHER).unwrap();
        let (keys, others) = (hashes(5, 2_000), hashes(6, 700));
        let mut by_one = filter.clone();
        for key in &keys {
            by_one.insert_hash(*key).unwrap();
        }
        filter.insert_batch(&keys).unwrap();
        assert_eq!(filter, by_one);
        sliced.insert_batch(&keys).unwrap();
        wider.insert_batch(&keys.iter().map(|key| wide(*key)).collect::<Vec<_>>()).unwrap();
        // Keys and strangers alternate, in batches of every length around the length of a chunk.
        let mixed: Vec<u64> = keys.iter().zip(&others).flat_map(|(a, b)| [*a, *b, !*a]).collect();
        for len in (0..200).chain([1_000, mixed.len()]) {
            let batch = &mixed[..len];
            let mut answers = vec![true; len];
            filter.contains_batch(batch, &mut answers);
            assert!(answers.iter().zip(batch).all(|(a, hash)| *a == filter.contains_hash(*hash)));
            answers.fill(true);
            sliced.contains_batch(batch, &mut answers);
            assert!(answers.iter().zip(batch).all(|(a, hash)| *a == sliced.contains_hash(*hash)));
            let batch: Vec<u128> = batch.iter().map(|hash| wide(*hash)).collect();
            wider.contains_batch(&batch, &mut answers);
            assert!(answers.iter().zip(&batch).all(|(a, hash)| *a == wider.contains_hash(*hash)));
        }
    }
}

/// Filters larger than the CPU's caches are queried in rounds; the answers must be the same as
/// those of single queries.
#[test]
fn batches_of_large_filters_answer_as_one_by_one() {
    let cases = [(1, 500_000), (7, 2_000_000), (10, 1_500_000), (17, 800_000)];
    for (hash_funcs, keys) in cases.into_iter().step_by(stride(2)) {
        let mut filter = <BloomFilter>::with_bits(35_000_000, hash_funcs, HASHER).unwrap();
        let slice_bits = 35_000_000 / u64::from(hash_funcs);
        let mut sliced =
            <PartitionedBloomFilter>::with_slices(slice_bits, hash_funcs, HASHER).unwrap();
        let keys = hashes(7, keys);
        let (some, rest) = keys.split_at(1_000);
        for key in some {
            filter.insert_hash(*key).unwrap();
        }
        filter.insert_batch(rest).unwrap();
        sliced.insert_batch(&keys).unwrap();
        let strangers = hashes(8, 2_000_000);
        let mixed = rest.iter().take(50_000).zip(&strangers).flat_map(|(a, b)| [*a, *b]);
        let asked: Vec<u64> =
            keys.iter().copied().chain(mixed).chain(strangers.iter().copied()).collect();
        let mut answers = vec![false; asked.len()];
        filter.contains_batch(&asked, &mut answers);
        assert!(answers.iter().zip(&asked).all(|(a, hash)| *a == filter.contains_hash(*hash)));
        assert!(!answers[..keys.len()].contains(&false));
        sliced.contains_batch(&asked, &mut answers);
        assert!(answers.iter().zip(&asked).all(|(a, hash)| *a == sliced.contains_hash(*hash)));
        assert!(!answers[..keys.len()].contains(&false));
    }
}

/// Bitcoin Core once divided by the size of an empty filter (CVE-2013-5700).
#[test]
fn an_empty_filter_is_empty() {
    for bits in [1, 64, 1_000] {
        let mut filter = <BloomFilter>::with_bits(bits, 3, HASHER).unwrap();
        let stats = filter.stats();
        assert_eq!((stats.len, stats.estimated_len, stats.num_bits), (0, Some(0.0), bits));
        assert_eq!((stats.fill, stats.expected_fpr), (0.0, 0.0));
        assert!(!filter.contains(b"") && !filter.contains(b"key") && filter.is_empty());
        assert!(filter.insert(b"").unwrap() && filter.contains(b"") && filter.len() == 1);
    }
    let no_bits = <BloomFilter>::with_bits(0, 3, HASHER);
    assert!(matches!(no_bits, Err(BuildError::Parameter { value: 0, .. })));
    assert!(<BloomFilter>::with_bits(64, 0, HASHER).is_err());
    assert!(<BloomFilter>::with_bits(64, u32::MAX, HASHER).is_err());
    assert!(<PartitionedBloomFilter>::with_slices(0, 3, HASHER).is_err());
    assert!(<AtomicBloomFilter>::with_bits(0, 3, HASHER).is_err());
    // A filter sized for no keys still has room for one key.
    assert!(<BloomFilter>::with_fpr(0, 0.01, HASHER).unwrap().num_bits() >= 10);
    // With every bit set, every key may be in the filter, and the number of keys can't be
    // estimated.
    let mut full = <BloomFilter>::with_bits(8, 2, HASHER).unwrap();
    full.insert_batch(&hashes(1, 1_000)).unwrap();
    assert_eq!((full.expected_fpr(), full.estimated_len()), (1.0, Some(f64::INFINITY)));
}

/// 5·10⁸ keys at a rate of 10⁻¹²: packages that hash to 64 bits have 27 times the rate here, so the
/// constructor refuses this size.
#[test]
fn hashes_are_as_wide_as_the_rate_takes() {
    let narrow = <BloomFilter>::with_fpr(500_000_000, 1e-12, HASHER);
    assert!(matches!(narrow, Err(BuildError::HashTooShort { bits: 64, .. })), "{narrow:?}");
    let narrow = <PartitionedBloomFilter>::with_fpr(1_000, 1e-16, HASHER);
    assert!(matches!(narrow, Err(BuildError::HashTooShort { bits: 64, .. })), "{narrow:?}");
    assert!(BloomFilter::<u128>::with_fpr(1_000, 1e-16, HASHER).is_ok());
    for hasher in [
        KeyHasher::new(chainsieve_filter::hashing::HashFunction::Fnv1a),
        KeyHasher::new(chainsieve_filter::hashing::HashFunction::Xxh64 { seed: 0 }),
    ] {
        assert!(BloomFilter::<u128>::with_fpr(1_000, 1e-3, hasher).is_err());
        assert!(<BloomFilter>::with_fpr(1_000, 1e-3, hasher).is_ok());
    }
    // Two keys whose hashes have equal low words.
    let mut filter = BloomFilter::<u128>::with_bits(100_000, 10, HASHER).unwrap();
    filter.insert_hash(42).unwrap();
    assert!((1..1_000u128).all(|high| !filter.contains_hash((high << 64) + 42)));
    let [low, high] = u128::of(&HASHER, b"key").to_words();
    assert_eq!(u128::of(&HASHER, b"key"), u128::from(high) << 64 | u128::from(low));
}

#[test]
fn counts_are_estimated() {
    let mut filter = <BloomFilter>::with_fpr(10_000, 0.001, HASHER).unwrap();
    for (at, key) in hashes(9, 20_000).into_iter().enumerate() {
        if [100, 1_000, 10_000].contains(&at) {
            let estimate = filter.estimated_len().unwrap();
            assert!((estimate / at as f64 - 1.0).abs() < 0.02, "{estimate} of {at}");
        }
        filter.insert_hash(key).unwrap();
        // The key is inserted again: `len` counts the key twice, but the estimate from the bits
        // counts it once.
        filter.insert_hash(key).unwrap();
    }
    let estimate = filter.estimated_len().unwrap();
    assert!((estimate / 20_000.0 - 1.0).abs() < 0.02 && filter.len() == 40_000, "{estimate}");
    let by_size = classic::fpr(20_000, filter.num_bits(), filter.hash_funcs());
    assert!((filter.expected_fpr() / by_size - 1.0).abs() < 0.1);
}

//! Binary fuse filters: rates, every key found, sets that other packages fail on, bytes.

use std::collections::HashSet;

use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, FuseFingerprint};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::{Filter, KeyHasher, Portable, interop};

use crate::golden;
use crate::key_families::{Family, SEEDS};
use testkit::assert_rate;
use testkit::split_mix;

const HASHER: KeyHasher = KeyHasher::xxh3(7);

/// Returns `count` hashes; different seeds give different hashes.
pub(crate) fn hashes(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|index| split_mix(split_mix(seed) ^ index)).collect()
}

pub(crate) fn batch(filter: &impl Filter<Hash = u64>, hashes: &[u64]) -> Vec<bool> {
    let mut answers = vec![false; hashes.len()];
    filter.contains_batch(hashes, &mut answers);
    answers
}

fn hits(filter: &impl Filter<Hash = u64>, hashes: &[u64]) -> u64 {
    batch(filter, hashes).iter().filter(|answer| **answer).count() as u64
}

fn build<F: FuseFingerprint>(hashes: &[u64], seed: u64) -> BinaryFuse<F> {
    BinaryFuse::build_with_seed(hashes, HASHER, seed).expect("a filter")
}

#[test]
fn eight_bits_have_the_rate_of_eight_bits() {
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
            // Strangers of the same family, and random hashes: the filter's own mixing must give
            // both the same rate.
            let probes = PROBES / 10;
            let strangers = family.keys(seed, 1 << 40..(1 << 40) + probes);
            let mut strangers: Vec<_> = strangers.iter().map(|key| hasher.hash(key)).collect();
            strangers.extend(hashes(seed ^ 1 << 63, PROBES - probes));
            for count in [1, 100, 3000] {
                let filter =
                    BinaryFuse8::build_with_seed(&keys[..count], hasher, seed).expect("a filter");
                let name = format!("{family:?}, seed {seed}, {count} keys");
                assert_eq!(hits(&filter, &keys[..count]), count as u64, "{name}");
                assert_rate(&name, filter.expected_fpr(), hits(&filter, &strangers), PROBES);
            }
        }
    }
}

/// The hashes are plain consecutive numbers, without any mixing of their own.
#[test]
fn raw_numbers_have_the_rate_too() {
    let numbers: Vec<u64> = (0..210_000).collect();
    for seed in SEEDS {
        let filter = build::<u8>(&numbers[..10_000], seed);
        assert_eq!(hits(&filter, &numbers[..10_000]), 10_000);
        let false_ones = hits(&filter, &numbers[10_000..]);
        assert_rate(&format!("seed {seed}"), 1.0 / 256.0, false_ones, 200_000);
    }
}

/// Reads a `u32` at offset `at`, little-endian.
pub(crate) fn field(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// Returns the XOR of a hash's fingerprint and its three cells, computed from the documented layout
/// and not with our code. The result is zero exactly if the filter reports the hash as present.
#[expect(clippy::cast_possible_truncation, reason = "as the text does")]
fn left_over(bytes: &[u8], hash: u64) -> u16 {
    let (length, places) = (field(bytes, 12), field(bytes, 20));
    let seed = u64::from(field(bytes, 4)) << 32 | u64::from(field(bytes, 0));
    let mut h = hash.wrapping_add(seed);
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^= h >> 33;
    let first = ((u128::from(h) * u128::from(places)) >> 64) as u32;
    let second = (first + length) ^ ((h >> 18) as u32 & (length - 1));
    let third = (first + 2 * length) ^ (h as u32 & (length - 1));
    let cells = bytes[28..].as_chunks::<2>().0;
    let cell = |at: u32| u16::from_le_bytes(cells[at as usize]);
    (h ^ h >> 32) as u16 ^ cell(first) ^ cell(second) ^ cell(third)
}

/// Measuring the rate itself well takes about 10⁸ strangers. Fewer strangers are needed to measure
/// the parts of the rate: of the sixteen bits that must match, twelve given bits match at a rate of
/// 2⁻¹².
#[test]
fn sixteen_bits_have_the_rate_of_sixteen_bits() {
    const PROBES: u64 = 1_500_000;
    let (mut low, mut high, mut all) = (0, 0, 0);
    for seed in SEEDS {
        let keys = hashes(seed, 2000);
        let filter = build::<u16>(&keys, seed);
        let bytes = interop::xor_singleheader::encode(&filter).expect("one shard");
        assert!(keys.iter().all(|hash| left_over(&bytes, *hash) == 0));
        let first = split_mix(seed) >> 1;
        for hash in first..first + PROBES {
            let left = left_over(&bytes, hash);
            low += u64::from(left.trailing_zeros() >= 12);
            high += u64::from(left.leading_zeros() >= 12);
            all += u64::from(left == 0);
            if left.trailing_zeros() >= 8 {
                assert_eq!(filter.contains_hash(hash), left == 0);
            }
        }
        assert!((filter.expected_fpr() - libm::exp2(-16.0)).abs() < 1e-12);
    }
    let probes = PROBES * SEEDS.len() as u64;
    assert_rate("lower bits", libm::exp2(-12.0), low, probes);
    assert_rate("upper bits", libm::exp2(-12.0), high, probes);
    assert_rate("all bits", libm::exp2(-16.0), all, probes);
}

/// An empty filter has the documented rate too.
#[test]
fn the_empty_set() {
    for seed in SEEDS {
        let (eight, sixteen) = (build::<u8>(&[], seed), build::<u16>(&[], seed));
        assert!(eight.is_empty() && sixteen.is_empty());
        let strangers = hashes(seed, 200_000);
        assert_rate("8 bits", 1.0 / 256.0, hits(&eight, &strangers), 200_000);
        assert!(hits(&sixteen, &strangers) < 30);
    }
}

#[test]
fn sizes_where_segments_change() {
    // The segment length changes near the sizes 3.33^(k + 0.75).
    for step in [27, 91, 303, 1009, 3361, 11_192, 37_272, 124_117] {
        for count in step - 1..step + 3 {
            let keys = hashes(count, count);
            let filter = build::<u8>(&keys, count);
            assert_eq!(hits(&filter, &keys), count, "{count}");
        }
    }
}

#[test]
fn keys_that_come_twice_count_once() {
    for copies in [2, 63, 64, 65, 255, 256, 257, 1000] {
        // One key is repeated more often than a counter of six bits can count.
        let mut keys = hashes(1, 500);
        keys.extend(std::iter::repeat_n(keys[7], copies - 1));
        let filter = build::<u16>(&keys, 3);
        assert_eq!((filter.len(), hits(&filter, &keys)), (500, keys.len() as u64));
        assert_eq!(filter.num_shards(), 1);
    }
    for twice in [1, 10, 5000] {
        let once = hashes(2, 5000);
        let keys = [&once[..], &once[..twice]].concat();
        let filter = build::<u8>(&keys, 3);
        assert_eq!((filter.len(), hits(&filter, &keys)), (5000, keys.len() as u64));
    }
    let same = build::<u16>(&vec![42; 10_000], 1);
    assert!(same.len() == 1 && same.contains_hash(42));
}

/// Other packages have constant seeds. Here a set that can't be built under one seed is built under
/// the next one, and a seed from the caller gives another filter.
#[test]
fn seeds_differ_and_order_does_not() {
    let mut keys = hashes(3, 1000);
    let filters: Vec<_> =
        (0..50).map(|seed| build::<u8>(&keys, seed).encode().expect("a filter")).collect();
    assert_eq!(filters.iter().collect::<HashSet<_>>().len(), 50);
    keys.reverse();
    assert_eq!(build::<u8>(&keys, 5).encode().expect("a filter"), filters[5]);
}

#[test]
fn shards_hold_what_one_piece_holds() {
    for (count, num_shards) in [(0, 2), (1, 3), (10_000, 2), (50_000, 7), (100_000, 33)] {
        let mut keys = hashes(count, count);
        keys.extend_from_within(..keys.len() / 10);
        let filter = BinaryFuse16::build_in_shards(&keys, num_shards, HASHER).expect("a filter");
        assert_eq!((filter.num_shards(), filter.len()), (num_shards, count));
        assert_eq!(hits(&filter, &keys), keys.len() as u64);
        let strangers = hashes(count ^ 1 << 60, 100_000);
        let one_by_one: Vec<_> = strangers.iter().map(|hash| filter.contains_hash(*hash)).collect();
        assert_eq!(batch(&filter, &strangers), one_by_one);
        let eight = BinaryFuse8::build_in_shards(&keys, num_shards, HASHER).expect("a filter");
        assert_rate("8 bits in shards", 1.0 / 256.0, hits(&eight, &strangers), 100_000);
        assert_eq!(BinaryFuse::decode(&filter.encode().expect("no secret")), Ok(filter));
        assert_eq!(BinaryFuse::decode(&eight.encode().expect("no secret")), Ok(eight));
    }
}

/// Hashes that share their upper bits, as in one shard of a cuckoo filter, are still spread over
/// the shards.
#[test]
fn shards_of_hashes_of_one_shard() {
    let keys: Vec<_> = hashes(1, 100_000).iter().map(|hash| hash >> 12).collect();
    let filter = BinaryFuse16::build_in_shards(&keys, 8, HASHER).expect("a filter");
    assert!(filter.num_bits() < 100_000 * 21, "{} bits", filter.num_bits());
    assert_eq!(hits(&filter, &keys), 100_000);
}

fn golden_fuse<F: FuseFingerprint>() -> BinaryFuse<F> {
    let (hasher, keys) = (golden::HASHER, golden::keys());
    let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
    BinaryFuse::build_with_seed(&hashes, hasher, 1).expect("a filter")
}

#[test]
fn golden_files() {
    golden::check("fuse8", &golden_fuse::<u8>());
    golden::check("fuse16", &golden_fuse::<u16>());
}

/// A directory that contradicts the body is refused, although the checksum is corrected.
#[test]
fn directories_that_lie() {
    let bytes = golden_fuse::<u16>().encode().expect("a filter");
    // The directory has four words, followed by the checksum.
    let entry = bytes.len() - 40;
    let with =
        |at: usize, value| BinaryFuse16::decode(&golden::with_word(&bytes, entry + 8 * at, value));
    let shape = [field(&bytes, entry + 8), field(&bytes, entry + 12)];
    assert_eq!(shape, [64, 1], "one segment of 64 for first fingerprints");
    assert!(with(0, 99).is_ok(), "any seed is one");
    let parameter = |result: Result<_, DecodeError>| match result {
        Err(DecodeError::Parameter { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    for length in [0, 3, 63, 65, 1 << 19, u64::from(u32::MAX)] {
        assert_eq!(parameter(with(1, 1 << 32 | length)), "segment length", "{length}");
    }
    for count in [0, u64::from(u32::MAX), u64::from(u32::MAX) - 1, 1 << 26] {
        assert_eq!(parameter(with(1, count << 32 | 64)), "segment count", "{count}");
    }
    for shape in [2 << 32 | 64, 1 << 32 | 128, 1 << 32 | 1, 3 << 32 | 32] {
        assert!(with(1, shape).is_err(), "{shape:#x}: not the size of the body");
    }
    assert_eq!(parameter(with(2, 8)), "start of a shard");
    assert_eq!(parameter(with(2, u64::MAX)), "start of a shard");
    assert_eq!(parameter(with(3, 99)), "number of keys");
    assert_eq!(parameter(with(3, u64::MAX)), "number of keys");
    // Half the segment length gives as many cells if the padding is included, but the padding is
    // not zero then.
    for params in [
        [0, 52, 0],
        [2, 52, 0],
        [u64::MAX, 52, 0],
        [1, 0, 0],
        [1, u64::MAX, 0],
        [1, 52, 1],
        [u64::MAX / 4, u64::MAX, 0],
        [13, 52, 0],
    ] {
        assert!(BinaryFuse16::decode(&golden::with_params(&bytes, params)).is_err(), "{params:?}");
    }
    assert!(matches!(
        BinaryFuse8::decode(&bytes),
        Err(DecodeError::OtherKind { found: "fuse16", expected: "fuse8" })
    ));
}

#[test]
fn what_stands_behind_the_fingerprints_is_zero() {
    let filter = build::<u8>(&hashes(1, 3), 1);
    let bytes = filter.encode().expect("a filter");
    // The body has 24 fingerprints and is padded to 64 bytes.
    for at in 64 + 24..128 {
        let mut bytes = bytes.clone();
        bytes[at] = 1;
        golden::mend(&mut bytes);
        assert_eq!(
            BinaryFuse8::decode(&bytes),
            Err(DecodeError::NotZero("bytes after the fingerprints"))
        );
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let error = BuildError::NoSeed { keys: 7, tries: 100 };
    assert_eq!(
        error.to_string(),
        "no filter of 7 keys after 100 seeds: try another seed, and hash with another key"
    );
}

//! Encodings of classic, partitioned and compressed Bloom filters: golden files, views, hostile
//! bytes.

use chainsieve_filter::bloom::{AtomicBloomFilter, BloomFilter, CompressedBloomFilter};
use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::hashing::KeyHash;
use chainsieve_filter::sizing::classic;
use chainsieve_filter::textbook::{PartitionedBloomFilter, PartitionedBloomFilterRef};
use chainsieve_filter::{AnyFilter, Filter, Insert, Portable};

use crate::bloom::hashes;
use crate::golden::{HASHER, aligned, check, filled, mend, with_params, with_word};

fn classic() -> BloomFilter {
    filled(BloomFilter::with_fpr(100, 0.01, HASHER).expect("a size"))
}

fn wide() -> BloomFilter<u128> {
    filled(BloomFilter::with_fpr(100, 0.001, HASHER).expect("a size"))
}

fn partitioned() -> PartitionedBloomFilter {
    filled(PartitionedBloomFilter::with_slices(130, 7, HASHER).expect("a size"))
}

fn sparse() -> BloomFilter {
    filled(BloomFilter::with_bits(6_101, 2, HASHER).expect("a size"))
}

#[test]
fn golden_files() {
    check("bloom", &classic());
    let bytes = classic().encode().unwrap();
    assert_eq!(AtomicBloomFilter::decode(&bytes).unwrap().to_filter().unwrap(), classic());
    check("wide_bloom", &wide());
    check("partitioned", &partitioned());
    let coded = CompressedBloomFilter::of(&sparse());
    check("compressed", &coded);
    assert_eq!(coded.open(6_101).unwrap(), sparse());
}

/// Impossible parameters are rejected with a specific error, before any memory is allocated.
#[test]
fn impossible_parameters_are_refused() {
    let bytes = classic().encode().unwrap();
    let decode = |params| <BloomFilter>::decode(&with_params(&bytes, params));
    let (bits, k) = (classic().num_bits(), u64::from(classic().hash_funcs()));
    assert_eq!(decode([bits, k, 0]), Ok(classic()));
    // A filter of zero bits: Bitcoin Core once divided by the number of bits (CVE-2013-5700).
    assert!(matches!(decode([0, k, 0]), Err(DecodeError::Parameter { value: 0, .. })));
    // Numbers of hash functions that overflow when one is added, as happened in `fastbloom`.
    for hash_funcs in [0, 129, u32::MAX.into(), 1 << 32, (1 << 32) | k, u64::MAX] {
        let error = decode([bits, hash_funcs, 0]);
        assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{hash_funcs}: {error:?}");
        let slices = partitioned().encode().unwrap();
        let error = <PartitionedBloomFilter>::decode(&with_params(&slices, [130, hash_funcs, 0]));
        assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{hash_funcs}: {error:?}");
    }
    for num_bits in [bits + 64, 1 << 40, 1 << 56] {
        assert!(matches!(decode([num_bits, k, 0]), Err(DecodeError::Truncated { .. })));
    }
    for num_bits in [(1 << 56) + 1, u64::MAX] {
        assert!(matches!(decode([num_bits, k, 0]), Err(DecodeError::Parameter { .. })));
    }
    assert!(matches!(decode([bits - 64, k, 0]), Err(DecodeError::TooLong { .. })));
    assert!(matches!(decode([bits, k, 1]), Err(DecodeError::NotZero(_))));
    // All bits of the last word are set here. If the header claims a slightly shorter filter, there
    // are set bits after the claimed end.
    let mut full = <BloomFilter>::with_bits(128, 2, HASHER).unwrap();
    full.insert_batch(&hashes(1, 2_000)).unwrap();
    let error = <BloomFilter>::decode(&with_params(&full.encode().unwrap(), [120, 2, 0]));
    assert!(matches!(error, Err(DecodeError::NotZero(_))), "{error:?}");
    // The header claims different numbers of keys: 0 and 1 keys are too few to have set these bits.
    // An empty filter must claim no keys.
    for (len, is_right) in [(0, false), (1, false), (99, true), (u64::MAX, true)] {
        let bytes = with_word(&bytes, 32, len);
        assert_eq!(<BloomFilter>::decode(&bytes).is_ok(), is_right, "{len}");
    }
    let empty = <BloomFilter>::with_bits(100, 3, HASHER).unwrap();
    let bytes = empty.encode().unwrap();
    assert_eq!(BloomFilter::decode(&bytes), Ok(empty));
    assert!(<BloomFilter>::decode(&with_word(&bytes, 32, 1)).is_err());
}

#[test]
fn kinds_and_hashes_are_not_mixed_up() {
    let (narrow, wider) = (classic().encode().unwrap(), wide().encode().unwrap());
    let other = |result: Result<(), DecodeError>| {
        assert!(matches!(result, Err(DecodeError::OtherKind { .. })), "{result:?}");
    };
    other(BloomFilter::<u128>::decode(&narrow).map(drop));
    other(BloomFilter::<u64>::decode(&wider).map(drop));
    other(<PartitionedBloomFilter>::decode(&narrow).map(drop));
    other(CompressedBloomFilter::decode(&narrow).map(drop));
    // A 64-bit hash function in a 128-bit filter: all keys would share the high half of the hash.
    let mut bytes = wider;
    bytes[11] = 5;
    bytes[16..32].fill(0);
    mend(&mut bytes);
    let error = BloomFilter::<u128>::decode(&bytes);
    assert!(matches!(error, Err(DecodeError::Parameter { value: 64, .. })), "{error:?}");
}

/// A few bytes that decode to an enormous filter are decompressed only if the caller's limit allows
/// so large a filter.
#[test]
fn codes_are_no_bombs() {
    let bytes = CompressedBloomFilter::of(&sparse()).encode().unwrap();
    let coded = CompressedBloomFilter::decode(&bytes).unwrap();
    assert!(coded.open(6_100).is_err() && coded.open(6_101).is_ok());
    let mut params: Vec<u64> =
        bytes[40..64].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    params[0] = 1 << 50;
    let huge = with_params(&bytes, [params[0], params[1], params[2]]);
    let huge = CompressedBloomFilter::decode(&huge).expect("only sparser");
    assert_eq!(huge.num_bits(), 1 << 50);
    assert!(huge.open(1 << 40).is_err() && huge.coded_bits() < 2_000);
    // The header claims more set bits than the code contains, or more set bits than the filter has
    // bits, or a Rice parameter that is too large.
    for num_set in [params[2] + 1, 6_101, 6_102, u64::MAX] {
        let bytes = with_params(&bytes, [6_101, params[1], num_set]);
        let error = CompressedBloomFilter::decode(&bytes);
        assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{error:?}");
    }
    let fewer = with_params(&bytes, [6_101, params[1], params[2] - 40]);
    assert!(CompressedBloomFilter::decode(&fewer).is_err());
    let code_words = params[1] >> 16 << 16;
    for shape in [2 | 33 << 8, 2 | 255 << 8, 0, 129].map(|shape| shape | code_words) {
        assert!(
            CompressedBloomFilter::decode(&with_params(&bytes, [6_101, shape, params[2]])).is_err()
        );
    }
    for words in [0, 1 << 47] {
        let shape = params[1] & 0xffff | words << 16;
        assert!(
            CompressedBloomFilter::decode(&with_params(&bytes, [6_101, shape, params[2]])).is_err()
        );
    }
    // The code consists of ones only, so it is a unary number that does not end.
    let mut ones = bytes;
    let end = ones.len() - 8;
    ones[64..end].fill(0xff);
    mend(&mut ones);
    assert!(CompressedBloomFilter::decode(&ones).is_err());
}

/// Sparse, half full, full and empty filters: compression is lossless, and the size is about as
/// predicted.
#[test]
fn codes_take_what_was_foretold() {
    for (n, fpr) in [(100, 0.01), (5_000, 0.01), (5_000, 0.001), (5_000, 1e-6)] {
        let (size, bits) = classic::compressed_size(n, fpr).unwrap();
        let mut filter = <BloomFilter>::with_bits(size.num_bits, size.hash_funcs, HASHER).unwrap();
        filter.insert_batch(&hashes(n, n)).unwrap();
        let coded = CompressedBloomFilter::of(&filter);
        let spread = 64.0 + bits * 0.03;
        assert!((coded.coded_bits() as f64 - bits).abs() < spread, "{} {bits}", coded.coded_bits());
        assert_eq!(coded.open(u64::MAX), Ok(filter));
    }
    for keys in [0, 1, 500, 100_000] {
        for bits in [1, 63, 64, 65, 1_000] {
            let mut filter = <BloomFilter>::with_bits(bits, 3, HASHER).unwrap();
            filter.insert_batch(&hashes(1, keys)).unwrap();
            let coded = CompressedBloomFilter::of(&filter);
            let back = CompressedBloomFilter::decode(&coded.encode().unwrap()).unwrap();
            assert_eq!(back, coded);
            assert_eq!(back.open(bits), Ok(filter));
            assert!(coded.coded_bits() <= bits * 2 + 64);
        }
    }
    assert_eq!(u64::of(&HASHER, b"key").to_words()[1], 0);
}

/// Each position of a key depends on all bits of its hash. If bytes written for 128-bit hashes were
/// read as a filter of 64-bit hashes, its keys would not be found.
#[test]
fn slices_of_wide_hashes_are_not_read_as_of_narrow_ones() {
    let wide = PartitionedBloomFilter::<u128>::with_slices(130, 7, HASHER).unwrap();
    let wide = filled(wide);
    let bytes = wide.encode().unwrap();
    let narrow = partitioned().encode().unwrap();
    assert_eq!(PartitionedBloomFilter::<u128>::decode(&bytes).unwrap(), wide);
    let parameter = |result: Result<(), DecodeError>| {
        assert!(matches!(result, Err(DecodeError::Parameter { .. })), "{result:?}");
    };
    parameter(PartitionedBloomFilter::<u64>::decode(&bytes).map(drop));
    parameter(PartitionedBloomFilter::<u128>::decode(&narrow).map(drop));
    parameter(AnyFilter::decode(&bytes).map(drop));
    aligned(&bytes, |bytes| {
        let view = PartitionedBloomFilterRef::<u128>::view(bytes).unwrap();
        assert!(view.contains(&0u64.to_le_bytes()));
        parameter(PartitionedBloomFilterRef::<u64>::view(bytes).map(drop));
    });
}

/// A number of keys from untrusted bytes does not overflow when keys are added.
#[test]
fn shared_filters_count_to_the_end() {
    let bytes = with_word(&classic().encode().unwrap(), 32, u64::MAX);
    let filter = <AtomicBloomFilter>::decode(&bytes).unwrap();
    assert_eq!(filter.encode().unwrap(), bytes);
    for key in hashes(1, 100) {
        filter.insert_hash(key);
    }
    assert_eq!(filter.len(), u64::MAX);
    assert!(<BloomFilter>::decode(&filter.encode().unwrap()).is_ok());
}

/// Each filter and Rice parameter has exactly one encoding: nothing can be hidden after the last
/// gap.
#[test]
fn codes_end_with_the_last_gap() {
    let coded = CompressedBloomFilter::of(&sparse());
    let bytes = coded.encode().unwrap();
    let mut hidden = bytes.clone();
    hidden[bytes.len() - 9] ^= 1;
    mend(&mut hidden);
    let error = CompressedBloomFilter::decode(&hidden);
    assert!(matches!(error, Err(DecodeError::NotZero(_))), "{error:?}");
    // The code has an extra word of zeros, and its length includes this word.
    let mut longer = bytes;
    let end = longer.len() - 8;
    longer.splice(end..end, [0; 8]);
    longer[50] += 1;
    mend(&mut longer);
    let error = CompressedBloomFilter::decode(&longer);
    assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{error:?}");
}

//! Parquet's Bloom filters: we read what the crate of Apache Arrow writes, and the crate reads what
//! we write. Malformed bytes are refused.

use ::parquet::bloom_filter::Sbbf;
use chainsieve_filter::encoding::EncodeError;
use chainsieve_filter::interop::parquet::{
    self, DecodeError, HASHER, decode, decode_prefix, encode,
};
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::split_block::SplitBlockFilter256;
use chainsieve_filter::{Filter, Insert, KeyHasher};

use crate::key_families::Family;

/// The bytes of a header after the 32-bit number of field 1: three unions whose field 1 is an empty
/// struct, and the end of the header.
const UNIONS: [u8; 13] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0];

fn keys(family: Family, range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    family.keys(3, range)
}

fn ours(num_blocks: u64, keys: &[Vec<u8>]) -> SplitBlockFilter256 {
    let mut filter = SplitBlockFilter256::with_blocks(num_blocks, HASHER).expect("small");
    for key in keys {
        filter.insert(key).expect("no limit");
    }
    filter
}

fn theirs(num_blocks: u64, keys: &[Vec<u8>]) -> Sbbf {
    let mut filter = Sbbf::new_with_num_of_bytes(usize::try_from(num_blocks * 32).expect("small"));
    for key in keys {
        filter.insert(key.as_slice());
    }
    filter
}

fn bytes_of(filter: &Sbbf) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write(&mut bytes).expect("memory");
    bytes
}

#[test]
fn both_write_the_same_bytes_and_answer_alike() {
    for family in Family::ALL {
        let strangers = keys(family, 1 << 40..(1 << 40) + 5_000);
        for (num_blocks, count) in [(1, 0), (1, 7), (4, 50), (256, 4_000), (4096, 50_000)] {
            let keys = keys(family, 0..count);
            let (ours, theirs) = (ours(num_blocks, &keys), theirs(num_blocks, &keys));
            let bytes = encode(&ours).expect("a power of two");
            assert!(bytes == bytes_of(&theirs), "{family:?}, {count} in {num_blocks}");

            let read_by_them = Sbbf::from_bytes(&bytes).expect("what we wrote");
            let read_by_us = decode(&bytes_of(&theirs)).expect("what they wrote");
            assert!(keys.iter().all(|key| read_by_them.check(key.as_slice())));
            let mut hits = 0;
            for key in keys.iter().chain(&strangers) {
                let expected = theirs.check(key.as_slice());
                assert_eq!(ours.contains(key), expected);
                assert_eq!(read_by_us.contains(key), expected);
                assert_eq!(read_by_them.check(key.as_slice()), expected);
                hits += u64::from(expected);
            }
            assert!(hits >= count && (num_blocks == 1 || hits < count + 2_500));

            // The number of keys is not in the bytes, so it is estimated.
            let error = (read_by_us.len() as f64 - count as f64).abs();
            assert!(error <= 0.02 * count as f64 + 3.0, "{} for {count}", read_by_us.len());
        }
    }
}

/// A filter that parquet-mr wrote for the strings a0 to a9, from the tests of Arrow's crate.
#[test]
fn a_filter_of_parquet_mr() {
    let bitset = [
        200, 1, 80, 20, 64, 68, 8, 109, 6, 37, 4, 67, 144, 80, 96, 32, 8, 132, 43, 33, 0, 5, 99,
        65, 2, 0, 224, 44, 64, 78, 96, 4,
    ];
    let bytes = [&[0x15, 64][..], &UNIONS, &bitset].concat();
    let strings: Vec<_> = (0..10).map(|number| format!("a{number}").into_bytes()).collect();
    let filter = decode(&bytes).expect("a filter");
    assert!(strings.iter().all(|string| filter.contains(string)));
    assert_eq!(encode(&ours(1, &strings)), Ok(bytes));
    // The XXH64 of no bytes with seed 0, as published.
    assert_eq!(HASHER.hash::<u64>(b""), 0xef46_db37_51d8_e999);
}

/// Parquet's filters have twice the requested rate if they are sized by the formula of classic
/// filters. The test uses a number of keys for which rounding up to a power of two adds almost no
/// space, because more space would hide the difference.
#[test]
fn the_classic_formula_undersizes_and_ours_does_not() {
    let (count, target) = (71_700, 0.001);
    let keys = keys(Family::Random, 0..count);
    let strangers = keys_of_strangers(400_000);
    let mut theirs = Sbbf::new_with_ndv_fpp(count, target).expect("a rate");
    assert_eq!(theirs.num_blocks(), 4096);
    for key in &keys {
        theirs.insert(key.as_slice());
    }
    let measured = |contains: &dyn Fn(&[u8]) -> bool| {
        strangers.iter().filter(|key| contains(key)).count() as f64 / strangers.len() as f64
    };
    let rate = measured(&|key| theirs.check(key));
    assert!((1.9 * target..2.4 * target).contains(&rate), "{rate}");
    // The rate that the filter computes from its bits agrees with the measured rate.
    let read = decode(&bytes_of(&theirs)).expect("what they wrote");
    assert!((read.expected_fpr() / rate - 1.0).abs() < 0.1, "{}", read.expected_fpr());

    let mut sized = SplitBlockFilter256::with_fpr(count, target, HASHER).expect("a size");
    for key in &keys {
        sized.insert(key).expect("no limit");
    }
    let rate = measured(&|key| sized.contains(key));
    assert!((0.85 * target..1.15 * target).contains(&rate), "{rate}");
    assert_eq!(parquet::num_blocks(count, target), Ok(8192));
}

fn keys_of_strangers(count: u64) -> Vec<Vec<u8>> {
    keys(Family::Random, 1 << 40..(1 << 40) + count)
}

#[test]
fn sizes_that_readers_take() {
    for (capacity, fpr, expected) in [(0, 0.01, 1), (1, 0.01, 1), (100_000, 0.01, 1 << 13)] {
        assert_eq!(parquet::num_blocks(capacity, fpr), Ok(expected), "{capacity}");
    }
    let error = parquet::num_blocks(1 << 30, 0.01);
    let wrong = |error| matches!(error, Err(BuildError::Parameter { max: 4_194_304, .. }));
    assert!(wrong(error), "{error:?}");
    assert!(wrong(parquet::num_blocks(1 << 40, 0.01)));
    assert_eq!(parquet::num_blocks(100, 1.0), Err(BuildError::Fpr { fpr: 1.0 }));

    for num_blocks in [3, 5, 4095, (1 << 22) + 1, 1 << 23] {
        let filter = SplitBlockFilter256::with_blocks(num_blocks, HASHER).expect("room");
        assert_eq!(encode(&filter), Err(EncodeError::ParquetBlocks(num_blocks)));
    }
    let other = SplitBlockFilter256::with_blocks(1, KeyHasher::xxh3(0)).expect("small");
    assert_eq!(encode(&other), Err(EncodeError::ParquetHasher));
}

/// Returns a filter with `length` after the type byte of field 1, followed by the unions and a
/// bitset of zeros.
fn with_length(length: &[u8], bitset: usize) -> Vec<u8> {
    [&[0x15], length, &UNIONS, &vec![0; bitset]].concat()
}

#[test]
fn lengths_that_lie() {
    assert_eq!(decode(&with_length(&[0x40], 32)).map(|filter| filter.num_blocks()), Ok(1));
    assert_eq!(decode(&with_length(&[0xc0, 0x01], 96)).map(|f| f.num_blocks()), Ok(3));
    for (length, bytes) in [
        (0, vec![0]),
        (-32, vec![0x3f]),
        (31, vec![0x3e]),
        (33, vec![0x42]),
        (i32::MAX, vec![0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, vec![0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        let error = decode(&with_length(&bytes, 64)).map(drop);
        assert_eq!(error, Err(DecodeError::BitsetLength(length)));
    }
    // The header claims 2^31 - 32 bytes: no memory is allocated for them.
    let error = decode(&with_length(&[0xc0, 0xff, 0xff, 0xff, 0x0f], 64)).map(drop);
    assert_eq!(error, Err(DecodeError::Truncated { found: 64, needed: (1 << 31) - 32 }));
    // The field has a length of 2^31, or is a number that does not end.
    for bytes in [vec![0x80, 0x80, 0x80, 0x80, 0x10], vec![0xff; 9], vec![0xff; 11]] {
        let error = decode(&with_length(&bytes, 64)).map(drop);
        assert!(matches!(error, Err(DecodeError::TooLarge(_))), "{error:?}");
    }
    let error = decode(&with_length(&[0x40], 33)).map(drop);
    assert_eq!(error, Err(DecodeError::Trailing(1)));
    let bytes = with_length(&[0x40], 35);
    let (_, behind) = decode_prefix(&bytes).expect("a filter");
    assert_eq!(behind, [0; 3]);
    let bytes = with_length(&[0x40], 32);
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
}

#[test]
fn headers_of_another_kind() {
    let bytes = with_length(&[0x40], 32);
    for (at, what) in [(3, "algorithm"), (7, "hash function"), (11, "compression")] {
        let mut changed = bytes.clone();
        changed[at] = 0x2c;
        assert_eq!(decode(&changed).map(drop), Err(DecodeError::Unknown { what, id: 2 }));
        // If no field of the union is set, the header is two bytes shorter.
        let mut unset = bytes.clone();
        unset.drain(at..at + 2);
        assert_eq!(decode(&unset).map(drop), Err(DecodeError::Missing(what)));
        // Two fields of the union are set.
        let mut two = bytes.clone();
        two.splice(at + 2..at + 2, [0x1c, 0]);
        assert_eq!(decode(&two).map(drop), Err(DecodeError::Missing(what)));
    }
    let error = decode(&[0, 1, 2]).map(drop);
    assert_eq!(error, Err(DecodeError::Missing("length of the bitset")));
}

/// Fields that later versions may add are skipped, whatever their type. Field ids in the long form
/// are understood.
#[test]
fn fields_to_come() {
    let unknown: [&[u8]; 8] = [
        &[0x11],                                           // a boolean
        &[0x13, 7],                                        // a byte
        &[0x16, 0xff, 0xff, 0x03],                         // a number
        &[0x17, 1, 2, 3, 4, 5, 6, 7, 8],                   // a float
        &[0x18, 3, b'a', b'b', b'c'],                      // a string
        &[0x19, 0x25, 2, 4],                               // two numbers in a list
        &[0x1b, 1, 0x58, 2, 1, b'x'],                      // a map of numbers to strings
        &[0x1c, 0x1c, 0x15, 2, 0, 0x19, 0xf1, 2, 1, 2, 0], // nested structs with a long list
    ];
    let plain = with_length(&[0x40], 32);
    let expected = decode(&plain).expect("a filter");
    for field in unknown {
        let mut bytes = plain.clone();
        bytes.splice(14..14, field.iter().copied());
        assert_eq!(decode(&bytes), Ok(expected.clone()), "{field:x?}");
        for cut in 0..14 + field.len() {
            assert!(decode(&bytes[..cut]).is_err());
        }
    }
    // Field 1 comes last, with its id in full instead of the difference from the previous id.
    let at_the_end = [&UNIONS[..12], &[0x05, 2, 0x40, 0]].concat();
    let mut bytes = [&at_the_end[..], &[0; 32]].concat();
    bytes[0] = 0x2c;
    assert_eq!(decode(&bytes), Ok(expected));
}

#[test]
fn headers_that_do_not_end() {
    // Nested structs that never end.
    let error = decode(&[0x1c; 10_000]).map(drop);
    assert_eq!(error, Err(DecodeError::TooDeep(16)));
    // Nested lists that never end, and a list of 2^63 structs.
    let lists: Vec<u8> = [0x19].into_iter().chain([0x19; 10_000]).collect();
    assert_eq!(decode(&lists).map(drop), Err(DecodeError::TooDeep(16)));
    let many = [&[0x19, 0xfc][..], &[0xff; 9], &[0x00; 9]].concat();
    assert!(matches!(decode(&many), Err(DecodeError::HeaderTruncated(_))));
    let many = [&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0; 500]].concat();
    let error = decode(&many).map(drop);
    assert_eq!(error, Err(DecodeError::HeaderTruncated(507)));
    // A step past the largest possible id, and unknown types.
    let past = [0x05, 0xfe, 0xff, 0x03, 0x40, 0x15, 0x40];
    assert!(matches!(decode(&past), Err(DecodeError::TooLarge(_))));
    for kind in [0x10, 0x1d, 0x1e, 0x1f] {
        let error = decode(&[kind, 0, 0]).map(drop);
        assert!(matches!(error, Err(DecodeError::Kind { .. })), "{error:?}");
    }
}

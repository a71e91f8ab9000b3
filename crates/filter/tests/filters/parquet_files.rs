//! Parquet's Bloom filters: a filter of parquet-mr is read, and malformed bytes are refused. The package
//! `benches` compares the filters with those of Apache Arrow's crate.

use chainsieve_filter::encoding::EncodeError;
use chainsieve_filter::interop::parquet::{
    self, DecodeError, HASHER, decode, decode_prefix, encode,
};
use chainsieve_filter::sizing::BuildError;
use chainsieve_filter::split_block::SplitBlockFilter256;
use chainsieve_filter::{Filter, Insert, KeyHasher};

/// The bytes of a header after the 32-bit number of field 1: three unions whose field 1 is an empty
/// struct, and the end of the header.
const UNIONS: [u8; 13] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0];

fn ours(num_blocks: u64, keys: &[Vec<u8>]) -> SplitBlockFilter256 {
    let mut filter = SplitBlockFilter256::with_blocks(num_blocks, HASHER).expect("small");
    for key in keys {
        filter.insert(key).expect("no limit");
    }
    filter
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

//! `filterload` and `filteradd`: every truncation, and false lengths.

use chainsieve::btc::bip37::{AddedData, BloomFilter, PayloadError};

use crate::survives;
use testkit::btc::slow_bip37::tree::compact_size;

/// Returns the error for a length that exceeds the payload, in which `left` bytes follow the
/// length.
fn too_long(length: u64, left: usize) -> PayloadError {
    if length > 0x0200_0000 {
        // Core's limit for any length that it reads.
        PayloadError::LengthTooLarge(length)
    } else {
        PayloadError::Truncated { needed: length, left }
    }
}

/// The largest lengths of each form, and those around Core's limit.
const MAXED: [(u8, u64); 5] = [
    (0xfd, 0xffff),
    (0xfe, 0x0200_0000),
    (0xfe, 0x0200_0001),
    (0xfe, 0xffff_ffff),
    (0xff, u64::MAX),
];

/// Encodes a length in the form that `marker` announces, minimal or not.
fn length_as(marker: u8, length: u64) -> Vec<u8> {
    let bytes = length.to_le_bytes();
    match marker {
        0xfd => [&[0xfd], &bytes[..2]].concat(),
        0xfe => [&[0xfe], &bytes[..4]].concat(),
        0xff => [&[0xff], &bytes[..]].concat(),
        _ => vec![bytes[0]],
    }
}

fn decode_filter(payload: &[u8]) -> Result<BloomFilter, PayloadError> {
    let any_size =
        || BloomFilter::decode_any_size(payload).map(|(filter, rest)| (filter, rest.len()));
    let any_size = survives("decode_any_size", payload, 2, 200, any_size);
    let decoded = survives("decode", payload, 2, 200, || BloomFilter::decode(payload));
    if let Ok(filter) = &decoded {
        assert_eq!(any_size, Ok((filter.clone(), 0)));
        assert_eq!(filter.encode(), payload);
    }
    decoded
}

fn decode_data(payload: &[u8]) -> Result<AddedData, PayloadError> {
    survives("AddedData::decode", payload, 2, 200, || AddedData::decode(payload))
}

/// Sizes of filters around the boundaries of the length encoding and around the limit.
const FILTER_SIZES: [usize; 9] = [0, 1, 2, 252, 253, 254, 1_000, 35_999, 36_000];
/// The number of hash functions, the tweak and the flags.
const TAIL: [u8; 9] = [11, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0x81];

fn filterload(size: usize) -> Vec<u8> {
    [compact_size(size), vec![0xa5; size], TAIL.to_vec()].concat()
}

#[test]
fn filterload_truncated_at_every_byte() {
    for size in FILTER_SIZES {
        let payload = filterload(size);
        let filter = decode_filter(&payload).expect("a valid payload");
        assert_eq!((filter.data().len(), filter.hash_funcs(), filter.flags()), (size, 11, 0x81));
        for end in 0..payload.len() {
            match decode_filter(&payload[..end]) {
                Err(PayloadError::Truncated { needed, left }) => {
                    assert!(needed > left as u64 && left <= end, "{size} cut at {end}");
                }
                other => panic!("{size} bytes cut at {end}: {other:?}"),
            }
        }
    }
}

#[test]
fn filteradd_truncated_at_every_byte() {
    for size in [0, 1, 36, 252, 253, 519, 520] {
        let payload = [compact_size(size), vec![0x5a; size]].concat();
        assert_eq!(decode_data(&payload).expect("a valid payload").as_bytes().len(), size);
        for end in 0..payload.len() {
            let cut = decode_data(&payload[..end]);
            assert!(
                matches!(cut, Err(PayloadError::Truncated { needed, left }) if needed > left as u64),
                "{size} bytes cut at {end}: {cut:?}"
            );
        }
    }
}

#[test]
fn filterload_lengths_that_lie() {
    for size in FILTER_SIZES {
        let with_length =
            |length: Vec<u8>| decode_filter(&[length, vec![0xa5; size], TAIL.to_vec()].concat());
        // A length that is one too small shifts the following fields by one byte.
        if size > 0 {
            let short = with_length(compact_size(size - 1));
            // The byte before the tail becomes the first byte of the number of hash functions:
            // 0x0ba5.
            assert_eq!(short, Err(PayloadError::TooManyHashFuncs(0x0000_0ba5)), "{size} - 1");
        }
        let long = with_length(compact_size(size + 1));
        assert_eq!(long, Err(PayloadError::Truncated { needed: 1, left: 0 }), "{size} + 1");
        for (marker, most) in MAXED {
            let maxed = with_length(length_as(marker, most));
            let expected = too_long(most, size + TAIL.len());
            assert_eq!(maxed, Err(expected), "{size} bytes said to be {most}");
        }
        for (marker, least) in [(0xfd, 0xfd), (0xfe, 0x1_0000), (0xff, 0x1_0000_0000)] {
            let length = size as u64;
            if length < least {
                let padded = with_length(length_as(marker, length));
                let expected = PayloadError::NonMinimalLength(length);
                assert_eq!(padded, Err(expected), "{size} after {marker:#x}");
            }
        }
    }
}

#[test]
fn filteradd_lengths_that_lie() {
    for size in [0_usize, 1, 2, 252, 253, 519, 520] {
        let with_length = |length: Vec<u8>| decode_data(&[length, vec![0x5a; size]].concat());
        if size > 0 {
            let short = with_length(compact_size(size - 1));
            assert_eq!(short, Err(PayloadError::TrailingBytes(1)), "{size} - 1");
        }
        let needed = size as u64 + 1;
        let long = with_length(compact_size(size + 1));
        assert_eq!(long, Err(PayloadError::Truncated { needed, left: size }), "{size} + 1");
        for (marker, most) in MAXED {
            let maxed = with_length(length_as(marker, most));
            assert_eq!(maxed, Err(too_long(most, size)), "{size} bytes said to be {most}");
        }
        for marker in [0xfd, 0xfe, 0xff] {
            if marker > 0xfd || size < 0xfd {
                let padded = with_length(length_as(marker, size as u64));
                let expected = PayloadError::NonMinimalLength(size as u64);
                assert_eq!(padded, Err(expected), "{size} after {marker:#x}");
            }
        }
    }
}

#[test]
fn limits_are_inclusive() {
    let too_large = filterload(36_001);
    assert_eq!(decode_filter(&too_large), Err(PayloadError::FilterTooLarge(36_001)));
    let (filter, _) = BloomFilter::decode_any_size(&too_large).expect("any size");
    assert!(!filter.is_within_size_constraints());
    for (functions, fits) in [(50_u32, true), (51, false), (u32::MAX, false)] {
        let mut payload = filterload(3);
        payload[4..8].copy_from_slice(&functions.to_le_bytes());
        let expected = Err(PayloadError::TooManyHashFuncs(functions));
        let decoded = decode_filter(&payload);
        assert_eq!(decoded.is_ok(), fits, "{functions} functions");
        assert!(fits || decoded == expected, "{functions} functions: {decoded:?}");
    }
    for (size, fits) in [(520, true), (521, false)] {
        let payload = [compact_size(size), vec![0; size]].concat();
        let decoded = decode_data(&payload);
        assert_eq!(decoded.is_ok(), fits, "{size} bytes");
        assert!(fits || decoded == Err(PayloadError::DataTooLarge(size)), "{decoded:?}");
        assert_eq!(AddedData::new(vec![0; size]).is_ok(), fits, "{size} bytes");
    }
}

#[test]
fn trailing_bytes_are_counted() {
    for more in [1, 2, 300] {
        let payload = [filterload(5), vec![0; more]].concat();
        assert_eq!(decode_filter(&payload), Err(PayloadError::TrailingBytes(more)));
        let (filter, rest) = BloomFilter::decode_prefix(&payload).expect("a valid prefix");
        assert_eq!((filter.encode(), rest.len()), (filterload(5), more));

        let payload = [compact_size(5), vec![9; 5 + more]].concat();
        assert_eq!(decode_data(&payload), Err(PayloadError::TrailingBytes(more)));
        let (data, rest) = AddedData::decode_prefix(&payload).expect("a valid prefix");
        assert_eq!((data.as_bytes(), rest.len()), (&[9; 5][..], more));
    }
}

#[test]
fn errors_say_the_number_and_the_limit() {
    let cases = [
        (PayloadError::FilterTooLarge(36_001), vec!["36001", "36000"]),
        (PayloadError::TooManyHashFuncs(51), vec!["51", "50"]),
        (PayloadError::DataTooLarge(521), vec!["521", "520"]),
        (PayloadError::Truncated { needed: 7, left: 3 }, vec!["7", "3"]),
        (PayloadError::NonMinimalLength(4), vec!["4"]),
        (PayloadError::TrailingBytes(12), vec!["12"]),
    ];
    for (error, numbers) in cases {
        let message = error.to_string();
        let all = numbers.iter().all(|number| message.contains(number));
        assert!(all, "{error:?} says only: {message}");
    }
}

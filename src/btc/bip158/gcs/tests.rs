//! Encoded sets written by hand, with one error for each fault.

use super::*;

/// Remainders of 2 bits and `M` = 8: the range of a set of two values is 16.
const SMALL: GcsParams = match GcsParams::new(2, 8) {
    Ok(params) => params,
    Err(_) => panic!("fine parameters"),
};

const KEY: SipKey = SipKey { k0: 1, k1: 2 };

/// Decodes `bytes` on every backend, and checks that all backends return the same result.
fn decode(bytes: &[u8], acceptance: Acceptance) -> Result<Vec<u64>, GcsError> {
    let decode = |backend| {
        let mut values = alloc::vec![3, 2, 1];
        GcsFilter::parse(SMALL, KEY, bytes, acceptance)?.decode_into_on(backend, &mut values)?;
        Ok(values)
    };
    let answer = decode(Backend::SCALAR);
    for backend in Backend::available() {
        assert_eq!(decode(backend), answer, "{backend:?}");
    }
    answer
}

#[test]
fn whole_sets() {
    for acceptance in [Acceptance::Strict, Acceptance::Core] {
        assert_eq!(decode(&[0], acceptance), Ok(alloc::vec![]));
        // The value 3 is encoded as 0 11, and the value 15 by the difference 12, as 1110 00.
        assert_eq!(decode(&[2, 0b0111_1100, 0], acceptance), Ok(alloc::vec![3, 15]));
        // The set contains the same value twice.
        assert_eq!(decode(&[2, 0b1001_0000], acceptance), Ok(alloc::vec![5, 5]));
        // The value 5 is encoded as 10 01, and the difference 6 as 10 10. There is no padding.
        assert_eq!(decode(&[2, 0b1001_1010], acceptance), Ok(alloc::vec![5, 11]));
    }
}

#[test]
fn faults_that_core_refuses_too() {
    for acceptance in [Acceptance::Strict, Acceptance::Core] {
        let refused = |bytes: &[u8], error: GcsError| {
            assert_eq!(decode(bytes, acceptance), Err(error), "{acceptance:?}, {bytes:?}");
        };
        refused(&[], GcsError::CountTruncated { length: 0 });
        refused(&[0xfd, 1], GcsError::CountTruncated { length: 2 });
        refused(&[0xff, 1, 2, 3, 4, 5, 6, 7], GcsError::CountTruncated { length: 8 });
        refused(&[0xfd, 1, 0, 0], GcsError::CountNonMinimal(1));
        refused(&[0xfe, 0xff, 0xff, 0, 0], GcsError::CountNonMinimal(0xffff));
        refused(&[0xfe, 1, 0, 0, 2], GcsError::CountTooLarge(0x0200_0001));
        refused(&[0xff; 9], GcsError::CountTooLarge(u64::MAX));
        // The count equals the limit of Core, and the bytes cannot contain that many.
        refused(&[0xfe, 0, 0, 0, 2], GcsError::CountOverBytes { count: 0x0200_0000, most: 0 });
        refused(&[3, 0], GcsError::CountOverBytes { count: 3, most: 2 });
        refused(&[0, 0], GcsError::TrailingBytes(1));
        refused(&[2, 0b0111_1100, 0, 0], GcsError::TrailingBytes(1));
        refused(&[2, 0b0111_1100, 0, 1, 2, 3], GcsError::TrailingBytes(3));
        // The first set has the bits 0 11 and then only ones. The second set has the bits 0 11 and
        // 1110 0, and the last bit is missing.
        refused(&[2, 0b0111_1111], GcsError::Truncated { index: 1, count: 2 });
        refused(&[2, 0b0111_1100], GcsError::Truncated { index: 1, count: 2 });
        refused(&[1, 0xff], GcsError::Truncated { index: 0, count: 1 });
    }
}

#[test]
fn faults_that_core_accepts() {
    // The set contains the values 3 and 3 + 13 = 16. The value 16 is the exclusive end of the
    // range.
    let over_range = [2, 0b0111_1100, 0b1000_0000];
    let error = GcsError::ValueOverRange { index: 1, value: 16, range: 16 };
    assert_eq!(decode(&over_range, Acceptance::Strict), Err(error));
    assert_eq!(decode(&over_range, Acceptance::Core), Ok(alloc::vec![3, 16]));

    for bit in 0..7 {
        let padded = [2, 0b0111_1100, 1 << bit];
        assert_eq!(decode(&padded, Acceptance::Strict), Err(GcsError::PaddingNotZero));
        assert_eq!(decode(&padded, Acceptance::Core), Ok(alloc::vec![3, 15]));
    }

    // Only the first fault is reported. Here, that is a value beyond the range; the truncation
    // follows later in the bytes.
    let error = GcsError::ValueOverRange { index: 0, value: 17, range: 16 };
    assert_eq!(decode(&[2, 0b1111_0011], Acceptance::Strict), Err(error));
    let error = GcsError::Truncated { index: 1, count: 2 };
    assert_eq!(decode(&[2, 0b1111_0011], Acceptance::Core), Err(error));
}

#[test]
fn a_quotient_of_millions() {
    let params = GcsParams::new(32, u32::MAX).unwrap();
    // The bytes are the count, eight million ones, a zero, the remainder 0, and seven padding bits.
    let mut bytes = alloc::vec![0xff; 1_000_006];
    bytes[0] = 1;
    bytes[1_000_001..].fill(0);
    for backend in Backend::available() {
        let mut values = Vec::new();
        let filter = GcsFilter::parse(params, KEY, &bytes, Acceptance::Core).unwrap();
        filter.decode_into_on(backend, &mut values).unwrap();
        assert_eq!(values, [8_000_000 << 32]);
        let filter = GcsFilter::parse(params, KEY, &bytes, Acceptance::Strict).unwrap();
        let range = u64::from(u32::MAX);
        let error = GcsError::ValueOverRange { index: 0, value: 8_000_000 << 32, range };
        assert_eq!(filter.decode_into_on(backend, &mut values), Err(error));
    }
}

/// Unevenly distributed hashes, as an attacker who knows the key can choose them, are sorted too.
#[test]
fn hashes_are_sorted_however_they_lie() {
    let even = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let lies: [fn(u64) -> u64; 6] = [
        |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        |i| i,
        |i| u64::MAX - i % 7,
        |_| 5,
        |i| (i % 2) << 63 | i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40,
        |i| u64::MAX - i,
    ];
    for count in [0, 1, 2, 3, 255, 256, 1_000] {
        for lie in lies {
            let hashes: Vec<u64> = (0..count).map(|i| lie(even(i) % 3_000)).collect();
            let mut expected: Vec<(u64, usize)> = hashes.iter().copied().zip(0..).collect();
            expected.sort_unstable();
            assert_eq!(sorted(&hashes), expected);
        }
    }
}

/// Elements are counted by their bytes, even if their hashes are equal.
#[test]
fn elements_of_one_hash_are_told_apart() {
    let elements: [&[u8]; 5] = [b"a", b"b", b"a", b"", b"c"];
    assert_eq!(distinct_elements(&[(9, 0), (9, 2)], &elements), 1);
    assert_eq!(distinct_elements(&[(9, 0), (9, 1), (9, 2), (9, 3)], &elements), 3);
}

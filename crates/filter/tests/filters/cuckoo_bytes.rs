//! Encodings of cuckoo filters: golden files, views, and malformed bytes.

use chainsieve_filter::cuckoo::{CuckooFilter, CuckooFilter8, CuckooFilter12, CuckooFilter16};
use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};

use crate::golden::{HASHER, check, filled, mended, with_word};

const HEADER: usize = 64;

/// Returns a filter with the numbers 0 to 99 as keys of 8 bytes, little-endian, inserted one by
/// one.
fn golden<const BITS: u32>(buckets: u64, hasher: KeyHasher) -> CuckooFilter<BITS> {
    filled(CuckooFilter::with_buckets(buckets, hasher).expect("memory"))
}

#[test]
fn golden_files_are_read_and_written() {
    check("cuckoo8", &golden::<8>(31, KeyHasher::xxh3(0)));
    check("cuckoo12", &golden::<12>(29, KeyHasher::xxh3(1)));
    check("cuckoo16", &golden::<16>(27, HASHER));
}

/// Computes the body of a filter of one key from the documentation, bit by bit, and compares it
/// with the encoded body.
#[test]
fn places_are_where_the_documents_say() {
    for bits in [8, 12, 16_u32] {
        for buckets in [1, 3, 8, 1000_u64] {
            let hasher = KeyHasher::xxh3(0);
            for key in 0..200_u64 {
                let hash: u64 = hasher.hash(&key.to_le_bytes());
                let bytes = match bits {
                    8 => one_key::<8>(buckets, hash),
                    12 => one_key::<12>(buckets, hash),
                    _ => one_key::<16>(buckets, hash),
                };
                let first = (u128::from(hash) * u128::from(buckets) >> 64) as u64;
                let fingerprint = ((hash % (1 << 32)) * ((1 << bits) - 1) >> 32) + 1;
                // Both buckets are empty: the fingerprint goes to the first slot of the first
                // bucket.
                let bit = first * 4 * u64::from(bits);
                let mut body = vec![0_u8; bytes.len() - HEADER - 8];
                for at in 0..u64::from(bits) {
                    let to = usize::try_from(bit + at).expect("few");
                    body[to / 8] |= u8::from(fingerprint >> at & 1 == 1) << (to % 8);
                }
                assert_eq!(bytes[HEADER..bytes.len() - 8], body, "{bits} bits, key {key}");
            }
        }
    }
}

fn one_key<const BITS: u32>(buckets: u64, hash: u64) -> Vec<u8> {
    let filter = CuckooFilter::<BITS>::with_buckets(buckets, KeyHasher::xxh3(0));
    let mut filter = filter.expect("memory");
    filter.insert_hash(hash).expect("room");
    filter.encode().expect("no secret key")
}

fn changed(bytes: &[u8], at: usize, change: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = change(bytes[at]);
    mended(bytes)
}

fn hostile_bytes_are_refused<const BITS: u32>(buckets: u64) {
    let filter = golden::<BITS>(buckets, KeyHasher::xxh3(0));
    let bytes = filter.encode().expect("no secret key");
    let decode = |bytes: &[u8]| CuckooFilter::<BITS>::decode(bytes);
    assert_eq!(decode(&bytes), Ok(filter));
    for len in [0, 1, 99, 101, buckets * 4, buckets * 4 + 1, u64::MAX] {
        let error = DecodeError::Parameter {
            what: "number of keys",
            value: len,
            limit: "the number of taken slots",
        };
        assert_eq!(decode(&with_word(&bytes, 32, len)), Err(error));
    }
    for buckets in [0, (1 << 32) + 1, 1 << 58, 1 << 62, u64::MAX] {
        let (what, limit) = ("number of buckets", "from 1 to 2^32");
        let error = DecodeError::Parameter { what, value: buckets, limit };
        assert_eq!(decode(&with_word(&bytes, 40, buckets)), Err(error));
    }
    for others in [1, buckets - 9, buckets + 9, 1 << 32] {
        let error = decode(&with_word(&bytes, 40, others)).expect_err("another length");
        let is_length =
            matches!(error, DecodeError::Truncated { .. } | DecodeError::TooLong { .. });
        assert!(is_length, "{others}: {error}");
    }
    for at in [48, 56] {
        let error = decode(&with_word(&bytes, at, 1)).expect_err("no third parameter");
        assert!(matches!(error, DecodeError::NotZero(_)), "{error}");
    }
    // Changed bytes are refused if their number of occupied slots differs from the number of keys.
    for at in HEADER..bytes.len() - 8 {
        let emptied = decode(&changed(&bytes, at, |_| 0));
        let filled = decode(&changed(&bytes, at, |_| 0xff));
        let same_len = |result: &Result<CuckooFilter<BITS>, _>| {
            result.as_ref().is_ok_and(|filter| filter.len() == 100)
        };
        assert!(emptied.is_err() || same_len(&emptied), "byte {at}");
        assert!(filled.is_err() || same_len(&filled), "byte {at}");
        assert!(BITS != 8 || emptied.is_err() || bytes[at] == 0, "byte {at}");
    }
    // Bits after the last bucket must not be set.
    let used = usize::try_from((buckets * u64::from(4 * BITS)).div_ceil(8)).expect("few");
    for at in HEADER + used..bytes.len() - 8 {
        let error = decode(&changed(&bytes, at, |_| 1));
        assert_eq!(error, Err(DecodeError::NotZero("bytes after the last bucket")));
    }
}

#[test]
fn hostile_bytes() {
    for buckets in 31..35 {
        hostile_bytes_are_refused::<8>(buckets);
        hostile_bytes_are_refused::<12>(buckets);
        hostile_bytes_are_refused::<16>(buckets);
    }
}

#[test]
fn other_widths_are_refused() {
    let bytes = golden::<12>(30, KeyHasher::xxh3(0)).encode().expect("no secret key");
    let (found, expected) = ("cuckoo12", "cuckoo16");
    let refused = CuckooFilter16::decode(&bytes);
    assert_eq!(refused, Err(DecodeError::OtherKind { found, expected }));
    assert!(CuckooFilter8::decode(&bytes).is_err() && CuckooFilter12::decode(&bytes).is_ok());
}

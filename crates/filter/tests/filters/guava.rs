//! Filters that Guava has written, and Guava's answers for them.

use chainsieve_filter::encoding::DecodeError;
use chainsieve_filter::interop::guava::{GuavaBloomFilter, Strategy};
use chainsieve_filter::{Filter, Insert, Merge};
use serde_json::Value;

fn fixtures() -> Vec<Value> {
    let text = include_str!("../../../../fixtures/filters/guava.json");
    let filters: Vec<Value> = serde_json::from_str(text).expect("JSON");
    assert_eq!(filters.len(), 6);
    filters
}

fn bytes(filter: &Value) -> Vec<u8> {
    hex::decode(filter["bytes"].as_str().expect("hex")).expect("hex")
}

fn number(filter: &Value, field: &str) -> u64 {
    filter[field].as_u64().expect("a number")
}

/// Returns key `i` of the fixtures.
fn key(i: u64) -> Vec<u8> {
    let mut key = format!("key {i}").into_bytes();
    let [low, ..] = i.to_le_bytes();
    key.extend((0..i % 7).map(|_| 0x80 | low));
    key
}

#[test]
fn guavas_filters_answer_as_guava_does() {
    for fixture in fixtures() {
        let filter = GuavaBloomFilter::read_from(&bytes(&fixture)).expect("Guava's bytes");
        let keys = number(&fixture, "keys");
        assert!((0..keys).all(|i| filter.contains(&key(i))));
        let found: Vec<u64> =
            (keys..number(&fixture, "until")).filter(|i| filter.contains(&key(*i))).collect();
        assert_eq!(Value::from(found), fixture["false_positives"]);
        let fpr = fixture["expected_fpr"].as_f64().expect("a rate");
        assert!((filter.expected_fpr() / fpr - 1.0).abs() < 1e-12);
        let estimate = filter.estimated_len().expect("an estimate").round();
        assert_eq!(Some(estimate), fixture["estimated_len"].as_f64());
        assert_eq!(filter.write_to(), bytes(&fixture));
    }
}

/// The same keys in a filter of the same size give the same bytes, so Guava can read our filters.
#[test]
fn our_filters_are_guavas() {
    for fixture in fixtures() {
        let theirs = GuavaBloomFilter::read_from(&bytes(&fixture)).expect("Guava's bytes");
        let keys = number(&fixture, "keys");
        let is_64 = fixture["strategy"] == "MURMUR128_MITZ_64";
        let strategy = if is_64 { Strategy::Murmur128Mitz64 } else { Strategy::Murmur128Mitz32 };
        assert_eq!(theirs.strategy(), strategy);
        let mut ours = theirs.clone();
        if is_64 {
            let fpr = fixture["fpr"].as_f64().expect("a rate");
            ours = GuavaBloomFilter::with_fpr(keys, fpr).expect("a size");
        }
        ours.clear();
        assert!(ours.is_empty() && ours.fill() == 0.0 && !ours.contains(&key(0)));
        for i in 0..keys {
            let was_there = ours.contains(&key(i));
            assert_eq!(ours.insert(&key(i)), Ok(!was_there));
            assert_eq!(ours.insert(&key(i)), Ok(false));
        }
        assert_eq!(ours.write_to(), bytes(&fixture));
        let mut empty = ours.clone();
        empty.clear();
        empty.merge(&ours).expect("equal shapes");
        assert_eq!(empty, ours);
    }
}

#[test]
fn other_shapes_are_not_merged() {
    let mut filters: Vec<_> = fixtures()
        .iter()
        .map(|fixture| GuavaBloomFilter::read_from(&bytes(fixture)).expect("Guava's bytes"))
        .collect();
    for at in 1..filters.len() {
        let (ours, others) = filters.split_at_mut(at);
        assert!(ours[0].merge(&others[0]).is_err());
    }
    // Filters of the same shape but with different strategies can't be merged.
    let mut bytes = filters[1].write_to();
    bytes[0] = 0;
    let other = GuavaBloomFilter::read_from(&bytes).expect("MITZ_32");
    assert!(filters[1].merge(&other).is_err());
}

#[test]
fn hostile_bytes_are_refused() {
    let whole = bytes(&fixtures()[1]);
    for len in 0..whole.len() {
        let error = GuavaBloomFilter::read_from(&whole[..len]);
        assert!(matches!(error, Err(DecodeError::Truncated { .. })), "{len}");
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert!(matches!(GuavaBloomFilter::read_from(&longer), Err(DecodeError::TooLong { .. })));
    for strategy in 2..=255 {
        let mut bytes = whole.clone();
        bytes[0] = strategy;
        assert_eq!(GuavaBloomFilter::read_from(&bytes), Err(DecodeError::Kind(strategy)));
    }
    for header in
        [[1, 0, 0, 0, 0, 12], [1, 5, 0, 0, 0, 0], [1, 5, 0x80, 0, 0, 0], [1, 5, 255, 255, 255, 255]]
    {
        let mut bytes = whole.clone();
        bytes[..6].copy_from_slice(&header);
        let error = GuavaBloomFilter::read_from(&bytes);
        assert!(matches!(error, Err(DecodeError::Parameter { .. })), "{header:?}: {error:?}");
        assert!(GuavaBloomFilter::read_from(&bytes[..6]).is_err());
    }
    // The largest number of words that the header allows, with no word present.
    assert!(GuavaBloomFilter::read_from(&[1, 5, 0x7f, 255, 255, 255]).is_err());
    assert!(GuavaBloomFilter::with_fpr(1 << 40, 0.01).is_err());
    assert!(GuavaBloomFilter::with_fpr(10, 1e-100).is_err());
    assert!(
        GuavaBloomFilter::with_fpr(10, 0.0).is_err()
            && GuavaBloomFilter::with_fpr(10, 1.0).is_err()
    );
}

/// The bytes do not contain the number of keys, but an empty filter can be told from a filter with
/// keys.
#[test]
fn a_filter_that_was_read_is_not_empty() {
    let mut filter = GuavaBloomFilter::with_fpr(100, 0.01).expect("a size");
    assert!(filter.is_empty());
    assert!(GuavaBloomFilter::read_from(&filter.write_to()).expect("read").is_empty());
    filter.insert(b"key").expect("never full");
    let mut read = GuavaBloomFilter::read_from(&filter.write_to()).expect("read");
    assert!(read.contains(b"key") && !read.is_empty());
    read.clear();
    assert!(read.is_empty());
}

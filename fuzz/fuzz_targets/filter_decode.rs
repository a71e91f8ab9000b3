//! Encoded membership filters of every kind, with a corrected checksum and corrected first bytes:
//! an error, or a filter whose batch answers equal its single answers and that encodes to the same
//! bytes.
#![no_main]

use chainsieve_filter::{AnyFilter, KeyHasher};
use libfuzzer_sys::fuzz_target;

/// Length of the checksum, and of the queried keys, in bytes.
const CHECKSUM: usize = 8;

fuzz_target!(|data: &[u8]| {
    let _ = AnyFilter::decode(data);
    let mut bytes = b"CHSIEVEF\x01\x00".to_vec();
    bytes.extend_from_slice(data);
    if let Some(zeros) = bytes.get_mut(12..16) {
        zeros.fill(0);
    }
    let checksum: u64 = KeyHasher::xxh3(0).hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    let Ok(filter) = AnyFilter::decode(&bytes) else { return };
    assert_eq!(filter.encode().as_deref(), Ok(&bytes[..]), "one encoding for each filter");
    let stats = filter.stats();
    assert!((0.0..=1.0).contains(&stats.fill) && (0.0..=1.0).contains(&stats.expected_fpr));
    assert!(!filter.params().is_empty());
    let keys: Vec<&[u8]> = bytes.chunks(CHECKSUM).take(600).collect();
    let mut answers = vec![false; keys.len()];
    filter.contains_batch(&keys, &mut answers);
    for (key, answer) in keys.iter().zip(answers) {
        assert_eq!(filter.contains(key), answer);
    }
});

//! Filters in the formats of Parquet, Guava and `xor_singleheader`: an error, or a filter that can
//! be queried and whose encoding decodes to the same filter.
#![no_main]

use chainsieve_filter::fuse::{BinaryFuse, FuseFingerprint};
use chainsieve_filter::interop::guava::GuavaBloomFilter;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::{Filter, KeyHasher};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((format, data)) = data.split_first() else { return };
    match format % 4 {
        0 => {
            let Ok(filter) = parquet::decode(data) else { return };
            asked(&filter, data);
            // The encoder writes only numbers of blocks that every reader accepts.
            if let Ok(bytes) = parquet::encode(&filter) {
                assert_eq!(parquet::decode(&bytes).as_ref(), Ok(&filter));
            }
        }
        1 => {
            let Ok(filter) = GuavaBloomFilter::read_from(data) else { return };
            asked(&filter, data);
            assert_eq!(filter.write_to(), data);
        }
        2 => fuse::<u8>(data),
        _ => fuse::<u16>(data),
    }
});

fn fuse<F: FuseFingerprint + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let hasher = KeyHasher::xxh3(0);
    let Ok(filter) = xor_singleheader::decode::<F>(data, hasher) else { return };
    asked(&filter, data);
    let bytes = xor_singleheader::encode(&filter).expect("one shard");
    // Filters with 16-bit fingerprints may have four trailing bytes.
    assert!(data.starts_with(&bytes) && data.len() - bytes.len() <= 4);
    let again: BinaryFuse<F> = xor_singleheader::decode(&bytes, hasher).expect("its own bytes");
    assert_eq!(again, filter);
}

fn asked<F: Filter>(filter: &F, data: &[u8]) {
    let stats = filter.stats();
    assert!((0.0..=1.0).contains(&stats.fill) && (0.0..=1.0).contains(&stats.expected_fpr));
    let mut hashes = Vec::new();
    filter.hasher().hash_each(data.chunks(8).take(100), &mut hashes);
    let mut answers = vec![false; hashes.len()];
    filter.contains_batch(&hashes, &mut answers);
    for (hash, answer) in hashes.into_iter().zip(answers) {
        assert_eq!(filter.contains_hash(hash), answer);
    }
}

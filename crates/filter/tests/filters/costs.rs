//! Sizes of built filters against the sizes that `Kind::cost` computes.

use chainsieve_filter::bloom::{BloomFilter, CompressedBloomFilter};
use chainsieve_filter::cuckoo::CuckooFilter16;
use chainsieve_filter::fuse::BinaryFuse16;
use chainsieve_filter::membership::Filter;
use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::sizing::classic;
use chainsieve_filter::split_block::{SplitBlockFilter256, SplitBlockFilter512};
use chainsieve_filter::textbook::{CountingBloomFilter, PartitionedBloomFilter};
use chainsieve_filter::{Insert as _, KeyHasher, Kind};

const HASHER: KeyHasher = KeyHasher::siphash_1_3([1, 2]);

fn bits(filter: Result<impl Filter, impl core::fmt::Debug>) -> u64 {
    filter.expect("a filter").num_bits()
}

/// Returns the size of a filter of each kind for these keys.
fn built(keys: &[[u8; 8]], fpr: f64) -> [(Kind, u64); 11] {
    let n = keys.len() as u64;
    let keys = || keys.iter().map(<[u8; 8]>::as_slice);
    let mut scalable = ScalableBloomFilter::with_fpr(n / 100, fpr, HASHER).expect("a filter");
    let (size, _) = classic::compressed_size(n, fpr).expect("a size");
    let mut bloom =
        BloomFilter::<u64>::with_bits(size.num_bits, size.hash_funcs, HASHER).expect("a filter");
    for key in keys() {
        scalable.insert(key).expect("room");
        bloom.insert(key).expect("room");
    }
    [
        (Kind::Bloom, bits(BloomFilter::<u64>::with_fpr(n, fpr, HASHER))),
        (Kind::Partitioned, bits(PartitionedBloomFilter::<u64>::with_fpr(n, fpr, HASHER))),
        (Kind::SplitBlock512, bits(SplitBlockFilter512::with_fpr(n, fpr, HASHER))),
        (Kind::SplitBlock256, bits(SplitBlockFilter256::with_fpr(n, fpr, HASHER))),
        (Kind::Counting, bits(CountingBloomFilter::with_fpr(n, fpr, HASHER))),
        (Kind::Rolling, bits(RollingBloomFilter::with_fpr(n, fpr, HASHER))),
        (Kind::Cuckoo16, bits(CuckooFilter16::with_fpr(n, fpr, HASHER))),
        (Kind::Fuse16, bits(BinaryFuse16::build_from_keys(keys(), HASHER))),
        (Kind::Ribbon, bits(RibbonFilter::build_from_keys(keys(), fpr, HASHER))),
        (Kind::Scalable, bits(Ok::<_, ()>(scalable))),
        (Kind::Compressed, CompressedBloomFilter::of(&bloom).coded_bits()),
    ]
}

#[test]
fn costs_are_those_of_built_filters() {
    for (n, fpr) in [(10_000_u64, 1e-3), (100_000, 1e-2), (300_000, 1.1e-4), (1_000_000, 0.001)] {
        let keys: Vec<[u8; 8]> = (0..n).map(u64::to_le_bytes).collect();
        for (kind, built) in built(&keys, fpr) {
            let cost = kind.cost(n, fpr).expect("a cost");
            let ratio = built as f64 / cost.num_bits as f64;
            let allowed = match kind {
                Kind::Ribbon => 0.92..=1.0,
                Kind::Rolling | Kind::Cuckoo16 | Kind::Compressed => 0.998..=1.002,
                Kind::Fuse16 | Kind::Scalable => 0.98..=1.02,
                _ => 1.0..=1.0,
            };
            assert!(allowed.contains(&ratio), "{kind} for {n} keys at {fpr:e}: {ratio}");
            assert_eq!(cost.is_upper_bound, kind == Kind::Ribbon);
        }
    }
}

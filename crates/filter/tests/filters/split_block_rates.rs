//! Rates of split-block filters: the measured rate matches the filter's own estimate and the rate
//! that its size was planned for.

use chainsieve_filter::sizing::blocked;
use chainsieve_filter::split_block::{Bits256, Bits512, BlockShape, SplitBlockFilter};
use chainsieve_filter::{Filter, Fold, Insert, KeyHasher};

use crate::key_families::{Family, SEEDS};
use testkit::assert_rate;
use testkit::split_mix;

/// Returns the number of hits among hashes queried in a batch.
fn hits<B: BlockShape>(filter: &SplitBlockFilter<B>, hashes: &[u64]) -> u64 {
    let mut answers = vec![false; hashes.len()];
    filter.contains_batch(hashes, &mut answers);
    answers.iter().filter(|answer| **answer).count() as u64
}

fn filled<B: BlockShape>(
    capacity: u64,
    fpr: f64,
    hasher: KeyHasher,
    hashes: &[u64],
) -> SplitBlockFilter<B> {
    let mut filter = SplitBlockFilter::with_fpr(capacity, fpr, hasher).expect("a size");
    filter.insert_batch(hashes).expect("no limit");
    assert_eq!(hits(&filter, hashes), hashes.len() as u64, "a key is lost");
    filter
}

/// Returns one of three hashers, with different parameters for every seed.
fn hasher(seed: u64) -> KeyHasher {
    match seed % 3 {
        0 => KeyHasher::siphash_1_3([seed, !seed]),
        1 => KeyHasher::xxh3(seed),
        _ => KeyHasher::new(chainsieve_filter::hashing::HashFunction::Xxh64 { seed }),
    }
}

/// The measured rate matches the estimate from the filter's bits, for keys of every family, and for
/// filters of few and of many blocks.
#[test]
fn rates_are_those_of_the_bits() {
    const PROBES: u64 = 100_000;
    for family in Family::some() {
        for seed in SEEDS {
            let hasher = hasher(seed);
            let hash = |key: Vec<u8>| hasher.hash::<u64>(&key);
            let keys: Vec<_> = (0..20_000).map(|index| hash(family.key(seed, index))).collect();
            let strangers = (1 << 40)..(1 << 40) + PROBES;
            let strangers: Vec<_> = strangers.map(|index| hash(family.key(seed, index))).collect();
            for (count, fpr) in [(20, 0.04), (500, 0.04), (20_000, 0.05)] {
                let keys = &keys[..count];
                let name = format!("{family:?}, seed {seed}, {count} keys");
                let filter = filled::<Bits512>(count as u64, fpr, hasher, keys);
                assert_rate(&name, filter.expected_fpr(), hits(&filter, &strangers), PROBES);
                let filter = filled::<Bits256>(count as u64, fpr, hasher, keys);
                assert_rate(&name, filter.expected_fpr(), hits(&filter, &strangers), PROBES);
            }
        }
    }
}

/// Low rates and large filters, with random numbers as hashes. The hits of all seeds together are
/// compared with the rate that the size was planned for.
fn rates_are_those_planned<B: BlockShape>(word_bits: u32, count: u64, fpr: f64, probes: u64) {
    let (mut all_hits, mut planned) = (0, 0.0);
    for seed in SEEDS {
        let of = |index| split_mix(split_mix(seed).wrapping_add(index));
        let keys: Vec<_> = (0..count).map(of).collect();
        let strangers: Vec<_> = (1 << 40..(1 << 40) + probes).map(of).collect();
        let filter = filled::<B>(count, fpr, KeyHasher::xxh3(seed), &keys);
        let hits = hits(&filter, &strangers);
        assert_rate(&format!("{count} at {fpr}, seed {seed}"), filter.expected_fpr(), hits, probes);
        all_hits += hits;
        planned = blocked::split_fpr(count, filter.num_blocks(), word_bits);
        assert!(planned <= fpr && planned > fpr * 0.999, "{planned} is not just below {fpr}");
    }
    assert_rate(&format!("{count} at {fpr}"), planned, all_hits, probes * SEEDS.len() as u64);
}

#[test]
fn rates_are_those_planned_512() {
    rates_are_those_planned::<Bits512>(64, 1_000_000, 0.01, 400_000);
    rates_are_those_planned::<Bits512>(64, 1_000_000, 0.001, 1_000_000);
    rates_are_those_planned::<Bits512>(64, 300_000, 0.0001, 4_000_000);
}

#[test]
fn rates_are_those_planned_256() {
    rates_are_those_planned::<Bits256>(32, 1_000_000, 0.01, 400_000);
    rates_are_those_planned::<Bits256>(32, 1_000_000, 0.001, 1_000_000);
    rates_are_those_planned::<Bits256>(32, 300_000, 0.0001, 4_000_000);
}

/// Filters that are far fuller than planned, and folded filters.
#[test]
fn rates_beyond_capacity_and_after_folding() {
    for seed in SEEDS {
        let of = |index| split_mix(split_mix(seed).wrapping_add(index));
        let keys: Vec<_> = (0..40_000).map(of).collect();
        let strangers: Vec<_> = (1 << 40..(1 << 40) + 100_000).map(of).collect();
        let mut filter =
            SplitBlockFilter::<Bits512>::with_blocks(960, KeyHasher::xxh3(seed)).expect("small");
        filter.insert_batch(&keys).expect("no limit");
        for num_blocks in [960, 480, 240, 30] {
            while filter.num_blocks() > num_blocks {
                filter = filter.folded().expect("memory").expect("even");
            }
            let hits = hits(&filter, &strangers);
            let name = format!("seed {seed}, {} blocks", filter.num_blocks());
            let fpr = filter.expected_fpr();
            if fpr < 1.0 {
                assert_rate(&name, fpr, hits, 100_000);
            } else {
                assert_eq!(hits, 100_000, "{name}");
            }
        }
    }
}

/// Keys whose hashes share the high half are in the same block. Keys whose hashes share the low
/// half have the same bits in their blocks. Neither half determines the other.
#[test]
fn halves_of_the_hash_are_independent() {
    let mut filter =
        SplitBlockFilter::<Bits512>::with_blocks(1 << 10, KeyHasher::xxh3(0)).expect("small");
    // Every block gets the bits of the same ten low halves.
    let lows: Vec<u64> = (0..10).map(|index| split_mix(index) >> 32).collect();
    let highs = (0..1 << 10).map(|block: u64| block << 54);
    let keys: Vec<_> = highs.flat_map(|high| lows.iter().map(move |low| high | low)).collect();
    filter.insert_batch(&keys).expect("no limit");
    for hash in (0..1000).map(|index| split_mix(1 << 50 | index)) {
        let by_block = |block: u64| filter.contains_hash(block << 54 | hash & 0xffff_ffff);
        assert!((1..1 << 10).all(|block| by_block(block) == by_block(0)), "{hash:x}");
    }
}

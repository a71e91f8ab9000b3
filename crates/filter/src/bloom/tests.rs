//! Tests of the positions in filters larger than any that a test can allocate.

use alloc::vec::Vec;

use super::positions::Positions;

/// `SplitMix64`.
fn hashes(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|at| crate::hashing::fmix64(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Every position of a key is uniform over the range: each part of the range is hit equally often.
/// Odd and even positions are hit equally often too. Several packages truncate positions to 32 bits
/// and so have rates of 90 % in large filters.
#[test]
fn positions_reach_all_of_a_range_beyond_32_bits() {
    const KEYS: u64 = 64_000;
    for range in [(1 << 40) - 1, 1 << 34, 3_000_000_000_000, super::MAX_RANGE] {
        let positions = Positions::<false> { range, hash_funcs: 20 };
        let (mut stretches, mut odd) = ([[0u64; 64]; 20], [0u64; 20]);
        for hash in hashes(KEYS) {
            for (i, position) in positions.of(hash).enumerate() {
                assert!(position < range);
                let stretch = u128::from(position) * 64 / u128::from(range);
                stretches[i][usize::try_from(stretch).expect("below 64")] += 1;
                odd[i] += position % 2;
            }
        }
        // The expected counts are 1,000 with a standard deviation of 31, and 32,000 with a standard
        // deviation of 126.
        assert!(stretches.as_flattened().iter().all(|count| count.abs_diff(1_000) < 190));
        assert!(odd.iter().all(|count| count.abs_diff(KEYS / 2) < 700), "{odd:?}");
    }
}

/// Both words of a 128-bit hash influence the positions: keys whose hashes have only one word in
/// common have different positions.
#[test]
fn both_words_of_a_wide_hash_reach_the_positions() {
    let positions = Positions::<false> { range: 1 << 40, hash_funcs: 8 };
    let of = |low: u64, high: u64| -> Vec<u64> {
        positions.of(u128::from(high) << 64 | u128::from(low)).collect()
    };
    for (low, high) in hashes(1_000).zip(hashes(2_000).skip(1_000)) {
        for (other_low, other_high) in [(low, high ^ 1), (low ^ 1, high), (low, 0)] {
            let (ours, others) = (of(low, high), of(other_low, other_high));
            let equal = ours.iter().zip(&others).skip(1).filter(|(a, b)| a == b).count();
            assert_eq!(equal, 0, "{low:x} {high:x}");
        }
    }
}

/// The positions of keys in one shard are spread over the whole range, although the hashes share
/// their highest bits.
#[test]
fn keys_of_a_shard_spread_over_the_range() {
    let positions = Positions::<false> { range: 1 << 20, hash_funcs: 4 };
    for i in 0..4 {
        let shard = hashes(64_000).map(|hash| hash >> 12 | 0xabc << 52);
        let low =
            shard.filter(|hash| positions.of(*hash).nth(i).expect("of four") < 1 << 19).count();
        assert!(low.abs_diff(32_000) < 700, "{low}");
    }
}

#[test]
fn slices_follow_one_another() {
    let positions = Positions::<true> { range: 1_000, hash_funcs: 5 };
    assert_eq!(positions.num_bits(), 5_000);
    for hash in hashes(1_000) {
        let slices: Vec<u64> = positions.of(hash).map(|position| position / 1_000).collect();
        assert_eq!(slices, [0, 1, 2, 3, 4]);
    }
}

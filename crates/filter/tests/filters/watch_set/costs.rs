//! Promises of watch sets about cost: bits per key, also after growth, and rates.

use chainsieve_filter::KeyHasher;
use chainsieve_filter::watch_set::{Probe, WatchSet, WatchSetBuilder};

use crate::key_families::{Family, SEEDS};
use testkit::assert_rate;
use testkit::split_mix;

/// Returns the number of hits among `strangers` random hashes, queried in batches. The keys are
/// empty: the filters never read them.
fn hits(set: &WatchSet, seed: u64, strangers: u64) -> u64 {
    let keys = vec![[0_u8; 0]; 8_192];
    let mut probe = Probe::new();
    let mut hits = 0;
    let mut next = 0;
    while next < strangers {
        let hash = |index| split_mix(split_mix(seed) ^ index);
        let hashes: Vec<_> = (next..next + 8_192).map(hash).collect();
        hits += set.contains_hashed(&keys, &hashes, &mut probe).len() as u64;
        next += 8_192;
    }
    hits
}

fn large(seed: u64, has_gate: bool, keys: u64, family: Family) -> WatchSet {
    let hasher = KeyHasher::siphash_1_3([seed, !seed]);
    let builder = WatchSetBuilder::new().hasher(hasher).exact_up_to(0).shard_keys(1 << 10);
    let builder = if has_gate { builder } else { builder.without_gate() };
    builder.from_keys(family.keys(seed, 0..keys), |_| ()).expect("memory")
}

#[test]
fn without_a_gate_the_rate_is_that_of_the_cuckoo_filters() {
    let strangers = 8_192 * 400;
    let mut families = Family::ALL.into_iter().cycle();
    for (seed, keys) in SEEDS.into_iter().zip([7_000, 40_000, 150_000].into_iter().cycle()) {
        let family = families.next().expect("a cycle");
        let set = large(seed, false, keys, family);
        let stats = set.stats();
        assert!(stats.fpr > 0.9e-4 && stats.fpr < 1.25e-4 && stats.gate_fpr > 0.999, "{stats}");
        assert_rate(&format!("{family:?}"), stats.fpr, hits(&set, seed, strangers), strangers);
    }
}

#[test]
fn with_a_gate_a_stranger_in_a_million_is_a_hit() {
    let strangers = 8_192 * 300;
    let (mut all, mut expected) = (0, 0.0);
    for seed in SEEDS {
        let set = large(seed, true, 20_000, Family::WitnessScripts);
        let stats = set.stats();
        assert!(stats.fpr < 1.5e-6 && stats.gate_fpr < 0.0145 && stats.gate_fpr > 0.006, "{stats}");
        all += hits(&set, seed, strangers);
        expected += stats.fpr / SEEDS.len() as f64;
    }
    assert_rate("gate and cuckoo", expected, all, strangers * SEEDS.len() as u64);
}

#[test]
fn thirty_bits_a_key_hold_through_growth() {
    // The set starts with all keys at once, and then three times as many keys are added one by one.
    for shard_keys in [4 << 10, 24 << 10] {
        let builder = WatchSetBuilder::new().shard_keys(shard_keys).exact_up_to(10_000);
        let first = Family::WitnessScripts.keys(1, 0..200_000);
        let set = builder.from_keys(first, |_| ()).expect("memory");
        let (mut most, mut sum, mut counted) = (0.0_f64, 0.0, 0.0);
        let mut look = |set: &WatchSet| {
            let stats = set.stats();
            // Each shard has some hundred bytes of overhead, which is much for few keys.
            let is_large = shard_keys == 24 << 10 && set.len() >= 500_000;
            let bound = if is_large { 30.0 } else { 33.0 };
            assert!(stats.bits_per_key() <= bound, "{stats}");
            most = most.max(stats.bits_per_key());
            sum += stats.bits_per_key();
            counted += 1.0;
            for shard in set.shard_stats() {
                // Shards consist of whole blocks and buckets.
                let bound = 29.9 + 576.0 / shard.keys as f64;
                assert!(shard.bits_per_key() <= bound && shard.load <= 0.941, "{shard:?}");
            }
        };
        look(&set);
        for index in 200_000..800_000 {
            set.add(&Family::WitnessScripts.key(1, index)).expect("memory");
            if index % 20_000 == 0 {
                look(&set);
            }
        }
        // The bound also holds while the set shrinks to fewer keys than at the start.
        for index in 0..650_000 {
            set.remove(&Family::WitnessScripts.key(1, index)).expect("it is there");
            if index % 20_000 == 0 {
                look(&set);
            }
        }
        let mean = sum / counted;
        assert!((26.5..=30.0).contains(&mean), "{mean:.2} on average");
        println!("{shard_keys} keys per shard: {most:.2} bits at most, {mean:.2} on average");
    }
}

#[test]
fn stale_bits_are_counted_and_cleared() {
    let set = large(1, true, 50_000, Family::WitnessScripts);
    assert_eq!(set.stats().stale, 0);
    let key = |index| Family::WitnessScripts.key(1, index);
    (0..2_000).for_each(|index| _ = set.remove(&key(index)).expect("it is there"));
    let few = set.stats();
    assert!((1_500..=2_000).contains(&few.stale), "{few}");
    // Remove as many keys as are added: the gates fill up, and are rebuilt before they let many
    // strangers pass.
    let mut worst = few.gate_fpr;
    for index in 50_000..250_000 {
        set.add(&key(index)).expect("memory");
        set.remove(&key(index - 48_000)).expect("it is there");
        if index % 5_000 == 0 {
            let stats = set.stats();
            worst = worst.max(stats.gate_fpr);
            assert!(stats.stale < 48_000 / 3, "{stats}");
            assert!(set.shard_stats().iter().all(|shard| shard.stale <= shard.capacity / 4 + 64));
        }
    }
    assert!(worst > 0.012 && worst < 0.03, "{worst}");
    set.rebuild().expect("memory");
    let after = set.stats();
    assert!(after.stale == 0 && after.gate_fpr < 0.0145, "{after}");
}

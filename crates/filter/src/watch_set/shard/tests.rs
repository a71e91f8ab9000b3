use alloc::vec::Vec;

use super::*;

const OPTIONS: FilterOptions = FilterOptions { hasher: KeyHasher::xxh3(0), has_gate: true };

/// Returns hashes like those of one shard: the first twenty bits are equal.
fn hashes(seed: u64, range: core::ops::Range<u64>) -> impl Iterator<Item = u64> {
    range.map(move |index| 0xabcde << 44 | fmix64(fmix64(seed) ^ index) >> 20)
}

fn built(seed: u64, keys: u64) -> Shard {
    let members: Vec<_> = hashes(seed, 0..keys).collect();
    Shard::build(&members, 0.0, OPTIONS).expect("memory")
}

/// Fails if the number of hits deviates from the rate by more than 4.9 standard deviations, which
/// happens by chance about once in a million calls.
#[track_caller]
fn assert_rate(what: &str, rate: f64, hits: u64, probes: u64) {
    let expected = rate * probes as f64;
    let sigmas = (hits as f64 - expected) / (expected * (1.0 - rate)).sqrt();
    assert!(sigmas.abs() < 4.9, "{what}: {hits} of {probes}, {expected:.1} expected");
}

#[test]
fn bits_that_chose_the_part_do_not_spoil_the_rates() {
    for seed in 1..=10 {
        let shard = built(seed, 20_000);
        let (mut gate, mut cuckoo) = (0, 0);
        let strangers = 1_000_000;
        for hash in hashes(seed, 1 << 40..(1 << 40) + strangers) {
            let gate_hash = gate_hash(hash);
            gate += u64::from(shard.passes_gate(gate_hash));
            cuckoo += u64::from(shard.is_behind_gate(hash, cuckoo_hash(gate_hash)));
        }
        assert!(shard.gate_fpr() > 0.01 && shard.gate_fpr() < 0.0145, "{}", shard.gate_fpr());
        assert_rate("gate", shard.gate_fpr(), gate, strangers);
        assert_rate("cuckoo", shard.cuckoo.expected_fpr(), cuckoo, strangers);
    }
}

#[test]
fn who_passes_one_filter_is_no_likelier_to_pass_the_other() {
    let (mut of_cuckoo, mut of_both, mut expected) = (0, 0, 0.0);
    for seed in 1..=4 {
        let mut shard = built(seed, 20_000);
        // The bits of other keys are set in the gate, until at least a fifth of the keys outside
        // the set pass the gate.
        let others: Vec<_> = hashes(seed + 100, 0..30_000).map(gate_hash).collect();
        let gate = shard.gate.as_mut().expect("a gate");
        gate.insert_batch(&others).expect("a Bloom filter is never full");
        assert!(shard.gate_fpr() > 0.2, "{}", shard.gate_fpr());
        for hash in hashes(seed, 1 << 40..(1 << 40) + 10_000_000) {
            let gate_hash = gate_hash(hash);
            if shard.is_behind_gate(hash, cuckoo_hash(gate_hash)) {
                of_cuckoo += 1;
                of_both += u64::from(shard.passes_gate(gate_hash));
            }
        }
        expected += shard.gate_fpr() / 4.0;
    }
    assert!(of_cuckoo > 3_600, "{of_cuckoo}");
    assert_rate("gate, of those that pass the cuckoo filter", expected, of_both, of_cuckoo);
}

#[test]
fn what_the_cuckoo_filter_has_no_place_for_is_found_and_removed() {
    // Thirty copies of one hash, of which eight fit into the cuckoo filter.
    let mut members: Vec<_> = hashes(1, 0..1_000).collect();
    members.extend([7; 30]);
    let mut shard = Shard::build(&members, 1.0, OPTIONS).expect("memory");
    assert_eq!((shard.keys, shard.stash.len()), (1_030, 22));
    assert!(shard.contains(7) && !shard.has_long_stash());
    (0..23).for_each(|_| shard.insert(7));
    assert!(shard.has_long_stash());
    for left in (0..53).rev() {
        assert!(shard.contains(7));
        assert_eq!(shard.remove(7), Ok(()));
        assert_eq!(shard.stash.len(), usize::max(left, 8) - 8);
    }
    assert!(!shard.contains(7));
    assert_eq!(shard.remove(7), Err(NotContained));
    assert!(hashes(1, 0..1_000).all(|hash| shard.contains(hash)));
    assert_eq!((shard.keys, shard.stale), (1_000, 53));
}

#[test]
fn keys_beside_a_full_cuckoo_filter_are_found() {
    // 72 slots for 200 keys: most keys have no fingerprint in the cuckoo filter.
    let mut shard = Shard::build(&[], 1.0, OPTIONS).expect("memory");
    let members: Vec<_> = hashes(1, 0..200).collect();
    for hash in &members {
        shard.insert(*hash);
    }
    assert_eq!(shard.stash.len(), 128);
    assert!(members.iter().all(|hash| shard.contains(*hash)));
    for (at, hash) in members.iter().enumerate() {
        assert_eq!(shard.remove(*hash), Ok(()));
        assert!(members[at + 1..].iter().all(|hash| shard.contains(*hash)));
    }
    assert_eq!((shard.keys, shard.stash.len()), (0, 0));
}

#[test]
fn keys_that_collide_do_not_let_a_part_be_made_anew_at_each_removal() {
    for headroom in [0.0, 1.0] {
        let members: Vec<_> = hashes(1, 0..1_000).chain([7; 300]).collect();
        let mut shard = Shard::build(&members, headroom, OPTIONS).expect("memory");
        assert_eq!(shard.stash.len(), 292);
        assert!(!shard.is_spoiled(), "{} keys in {}", shard.keys, shard.capacity);
        assert_eq!(shard.remove(7), Ok(()));
        assert!(!shard.is_spoiled() && shard.contains(7));
    }
}

#[test]
fn parts_are_full_sparse_or_stale_when_they_say_so() {
    let mut shard = built(1, 10_000);
    assert!(shard.is_full() && !shard.is_spoiled() && shard.capacity == 10_000);
    let shrinking = hashes(1, 0..10_000);
    let removed = shrinking.take_while(|hash| {
        shard.remove(*hash).expect("it is there");
        !shard.is_spoiled()
    });
    assert_eq!(removed.count(), 1_100);
    let mut shard = built(1, 10_000);
    for (at, hash) in hashes(1, 0..2_501).enumerate() {
        assert!(!shard.is_spoiled(), "after {at}");
        shard.remove(hash).expect("it is there");
        shard.insert(hash);
    }
    assert!(shard.is_spoiled() && shard.keys == 10_000);
    // The greatest number of stale keys: a quarter of the keys is replaced by others.
    let mut stale = built(1, 10_000);
    let full = stale.gate_fpr();
    for (old, new) in hashes(1, 0..2_500).zip(hashes(1, 1 << 40..(1 << 40) + 2_500)) {
        stale.remove(old).expect("it is there");
        stale.insert(new);
    }
    let more = stale.gate_fpr() / full;
    assert!(!stale.is_spoiled() && more > 2.5 && more < 3.0, "{more} times as many strangers");
    // Such a small shard is never rebuilt.
    let mut few = built(1, 10);
    assert!(hashes(1, 0..10).all(|hash| few.remove(hash).is_ok() && !few.is_spoiled()));
}

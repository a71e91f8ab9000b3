//! Tests of the internals: slots, buckets and moves.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::table::{Bucket, fingerprint_of, other_bucket, store};
use super::*;
use crate::hashing::fmix64;

fn hash(index: u64) -> u64 {
    fmix64(index.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn filter<const BITS: u32>(buckets: u64) -> CuckooFilter<BITS> {
    CuckooFilter::with_buckets(buckets, KeyHasher::xxh3(0)).expect("small")
}

fn check_slots<const BITS: u32>(slots: [u32; 4], asked: u32) {
    let bucket = (0..).zip(slots).fold(Bucket::<BITS>(0), |all, (at, slot)| all.with(at, slot));
    let position = |wanted| (0..).zip(slots).find(|(_, slot)| *slot == wanted).map(|(at, _)| at);
    assert_eq!([0, 1, 2, 3].map(|at| bucket.get(at)), slots);
    assert_eq!(bucket.free_slot(), position(0));
    assert_eq!(bucket.slot_of(asked), position(asked));
    assert_eq!(bucket.taken() as usize, slots.iter().filter(|slot| **slot != 0).count());
    let empty = Bucket::<BITS>(0);
    assert_eq!(bucket.either_has(empty, asked), slots.contains(&asked));
    assert_eq!(empty.either_has(bucket, asked), slots.contains(&asked));
}

/// Returns slot values, among them those whose comparison borrows from neighbouring slots.
fn slot(bits: u32) -> impl Strategy<Value = u32> {
    let most = (1 << bits) - 1;
    prop_oneof![Just(0), Just(1), Just(2), Just(most), Just(1 << (bits - 1)), 0..=most]
}

fn slots(bits: u32) -> impl Strategy<Value = ([u32; 4], u32)> {
    let asked = slot(bits).prop_filter("zero is no fingerprint", |asked| *asked != 0);
    ([slot(bits), slot(bits), slot(bits), slot(bits)], asked)
}

fn any_buckets() -> impl Strategy<Value = u64> {
    prop_oneof![1..=40_u64, 1..=MAX_BUCKETS, (0..=32_u32).prop_map(|bits| 1 << bits)]
}

fn check_entry<const BITS: u32>(hash: u64, buckets: u64) {
    let entry = Entry::of::<BITS>(hash, buckets);
    let Entry { first, second, fingerprint } = entry;
    assert!(u64::from(first) < buckets && u64::from(second) < buckets, "{entry:?}");
    assert!((1..1 << BITS).contains(&fingerprint), "{entry:?}");
    assert_eq!(other_bucket(second, fingerprint, buckets), first, "{entry:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_those_of_an_array(eight in slots(8), twelve in slots(12), sixteen in slots(16)) {
        check_slots::<8>(eight.0, eight.1);
        check_slots::<12>(twelve.0, twelve.1);
        check_slots::<16>(sixteen.0, sixteen.1);
    }

    #[test]
    fn the_other_bucket_of_the_other_is_the_first(hash in any::<u64>(), buckets in any_buckets()) {
        check_entry::<8>(hash, buckets);
        check_entry::<12>(hash, buckets);
        check_entry::<16>(hash, buckets);
    }
}

#[test]
fn the_other_bucket_leads_back_from_every_bucket() {
    for buckets in [1, 2, 3, 4, 5, 7, 8, 9, 10, 63, 64, 65, 1009] {
        for fingerprint in 1..=255 {
            let mut seen = vec![false; usize::try_from(buckets).expect("few")];
            for bucket in 0..u32::try_from(buckets).expect("few") {
                let other = other_bucket(bucket, fingerprint, buckets);
                assert_eq!(other_bucket(other, fingerprint, buckets), bucket);
                seen[other as usize] = true;
            }
            assert!(!seen.contains(&false), "no bucket is left out: {buckets}, {fingerprint}");
        }
    }
}

fn check_buckets<const BITS: u32>() {
    let mut words = vec![0; usize::try_from(words_for::<BITS>(9)).expect("few")];
    let mask = u64::MAX >> (64 - 4 * BITS);
    for round in 0..3 {
        let value = |at: u32| Bucket::<BITS>(hash(u64::from(round * 9 + at)) & mask);
        // All buckets are written before any is read, so that a write to a neighbour would be
        // detected.
        (0..9).for_each(|at| store(&mut words, at, value(at)));
        for at in 0..9 {
            assert_eq!(load::<BITS>(&words, at), value(at), "{BITS} bits, bucket {at}");
        }
    }
    // The bytes must be those of the encoded format.
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in (0..9).zip(bytes.chunks((BITS / 2) as usize)) {
        let value = load::<BITS>(&words, at).0.to_le_bytes();
        assert_eq!(bytes, &value[..bytes.len()], "{BITS} bits, bucket {at}");
    }
}

#[test]
fn buckets_follow_one_another_byte_by_byte() {
    check_buckets::<8>();
    check_buckets::<12>();
    check_buckets::<16>();
}

/// Counts the low halves of a hash that give each fingerprint, out of 2³². Maps each count to its
/// number of fingerprints.
fn shares<const BITS: u32>() -> BTreeMap<u64, u64> {
    let mut shares = BTreeMap::new();
    let mut start = 0_u64;
    for fingerprint in 1..1_u32 << BITS {
        // A binary search for the first low half that gives a greater fingerprint.
        let (mut low, mut high) = (start, 1_u64 << 32);
        while low < high {
            let middle = low.midpoint(high);
            if fingerprint_of::<BITS>(middle) > fingerprint {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        *shares.entry(low - start).or_default() += 1;
        start = low;
    }
    assert_eq!(start, 1 << 32);
    shares
}

/// The numbers of hashes per fingerprint differ by at most one. If zero were replaced by one, one
/// fingerprint would be twice as likely as the others.
#[test]
fn no_fingerprint_is_likelier_than_another_by_more_than_one_in_all() {
    for (bits, shares) in [(8, shares::<8>()), (12, shares::<12>()), (16, shares::<16>())] {
        let (least, most) =
            (shares.keys().min().expect("some"), shares.keys().max().expect("some"));
        assert!(most - least <= 1 && *least > 0, "{bits} bits: {shares:?}");
        assert_eq!(shares.values().sum::<u64>(), (1 << bits) - 1);
    }
}

/// A bucket number computed from a 32-bit hash would never reach the buckets beyond 2³² slots, and
/// would favour some buckets long before that size.
#[test]
fn bucket_numbers_have_all_their_bits() {
    for buckets in [1 << 32, (1 << 32) - 1, 3 << 30, 100_000_007] {
        let entries = || (0..100_000).map(|index| Entry::of::<16>(hash(index), buckets));
        for which in [|entry: Entry| entry.first, |entry: Entry| entry.second] {
            let mut numbers: Vec<u32> = entries().map(which).collect();
            numbers.sort_unstable();
            let in_upper_half = numbers.iter().filter(|at| u64::from(**at) >= buckets / 2).count();
            assert!((49_200..50_800).contains(&in_upper_half), "{buckets}: {in_upper_half}");
            numbers.dedup();
            // Few of the first buckets coincide. The second bucket of a key is the hash of its
            // fingerprint (one of 65,535 values) minus the first bucket.
            assert!(numbers.len() > 99_900 - usize::from(buckets < 1 << 30) * 100, "{buckets}");
        }
    }
    let error = CuckooFilter16::with_buckets(MAX_BUCKETS + 1, KeyHasher::xxh3(0)).err();
    let (what, value, min, max) = ("a number of buckets", MAX_BUCKETS + 1, 1, MAX_BUCKETS);
    assert_eq!(error, Some(BuildError::Parameter { what, value, min, max }));
}

/// Fills a filter up, which moves fingerprints, and checks that every fingerprint is still in one
/// of its key's buckets.
fn fills_up_and_empties<const BITS: u32>(buckets: u64) {
    let mut filter = filter::<BITS>(buckets);
    let mut inserted = 0;
    while filter.insert_hash(hash(inserted)).is_ok() {
        inserted += 1;
    }
    let mut of_keys: Vec<_> = (0..inserted).map(|index| filter.entry(hash(index))).collect();
    let mut stored: Vec<_> = filter.entries().collect();
    for entries in [&mut of_keys, &mut stored] {
        for entry in entries.iter_mut() {
            let Entry { first, second, .. } = *entry;
            (entry.first, entry.second) = (first.min(second), first.max(second));
        }
        entries.sort_unstable_by_key(|entry| (entry.first, entry.second, entry.fingerprint));
    }
    assert_eq!(of_keys, stored, "{BITS} bits, {buckets} buckets");
    for index in 0..inserted {
        filter.remove_known_hash(hash(index)).expect("it is there");
    }
    assert!(filter.is_empty() && filter.words.as_ref().iter().all(|word| *word == 0));
}

#[test]
fn moves_keep_every_fingerprint_in_one_of_its_buckets() {
    for buckets in [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 1009, 4096, 4097] {
        fills_up_and_empties::<8>(buckets);
        fills_up_and_empties::<12>(buckets);
        fills_up_and_empties::<16>(buckets);
    }
}

/// A batch that does not fit inserts exactly the reported number of keys, at whatever position the
/// failure occurs.
#[test]
fn batches_end_where_they_say() {
    for buckets in (1..60).chain([1000]) {
        let hashes: Vec<u64> = (0..buckets * 5).map(|index| hash(index + buckets)).collect();
        let mut filter = filter::<16>(buckets);
        let full = filter.insert_batch(&hashes).expect_err("more than there is room for");
        let (went_in, rest) = hashes.split_at(full.inserted);
        assert_eq!((filter.len(), full.len), (went_in.len() as u64, went_in.len() as u64));
        assert_eq!(full.capacity, buckets * 4);
        let before = filter.clone();
        assert!(filter.insert_hash(rest[0]).is_err(), "{buckets}: the next one would have fit");
        assert_eq!(filter, before);
        for hash in went_in {
            filter.remove_known_hash(*hash).expect("it is there");
        }
        assert!(filter.is_empty() && filter.words.as_ref().iter().all(|word| *word == 0));
    }
}

#[test]
fn capacity_is_what_sizes_are_made_for() {
    for buckets in (1..2000).chain([1 << 20, MAX_BUCKETS]) {
        let capacity = cuckoo::capacity_of(buckets);
        assert!(cuckoo::buckets_for(capacity) <= buckets, "{buckets}");
        assert!(cuckoo::buckets_for(capacity + 1) > buckets, "{buckets}");
    }
    // More keys never get fewer buckets.
    assert!((0..5000).is_sorted_by_key(cuckoo::buckets_for));
    assert_eq!(cuckoo::buckets_for(100_000_000), 26_595_745 + 4);
}

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::hashing::fmix64;

/// Returns hashes like those of one shard: the first twelve bits are equal.
fn hash_of(key: &[u8]) -> u64 {
    0x123 << 52 | KeyHasher::xxh3(1).hash::<u64>(key) >> 12
}

fn check(table: &KeyTable, model: &BTreeMap<Vec<u8>, u64>) {
    assert_eq!(table.len(), model.len());
    let shown: BTreeMap<_, _> = table.iter().map(|(key, count)| (key.to_vec(), count)).collect();
    assert_eq!(&shown, model);
    assert!(model.iter().all(|(key, count)| table.count(hash_of(key), key) == *count));
    assert!(model.keys().all(|key| table.contains(hash_of(key), key)));
}

#[test]
fn counts_are_those_of_a_map() {
    let (mut table, mut model) = (KeyTable::default(), BTreeMap::<Vec<u8>, u64>::new());
    let mut state = 1_u64;
    for step in 0..60_000 {
        state = fmix64(state.wrapping_add(step));
        // The keys have 0 to 299 bytes. The first ten keys are added more often than the others.
        let choice = usize::try_from(state >> 32).expect("64 bits");
        let index = if state.is_multiple_of(3) { choice % 10 } else { choice % 300 };
        let key = vec![1_u8; index];
        let hash = hash_of(&key);
        let grows = state >> 8 & 15 < if index < 10 { 9 } else { 7 };
        if grows {
            let count = model.entry(key.clone()).or_default();
            *count += 1;
            let expected = if *count == 1 { Added::New } else { Added::Again };
            assert_eq!(table.acquire(hash, &key, hash_of), Ok(expected));
        } else {
            let expected = match model.get_mut(&key) {
                None => None,
                Some(1) => Some(Removed::Gone),
                Some(_) => Some(Removed::StillHeld),
            };
            if expected == Some(Removed::Gone) {
                model.remove(&key);
            } else if let Some(count) = model.get_mut(&key) {
                *count -= 1;
            }
            assert_eq!(table.release(hash, &key, hash_of), expected);
        }
        let holes = FEW_BYTES.max(table.arena.len() / 4);
        assert!(table.dead <= holes, "{} bytes of {}", table.dead, table.arena.len());
        if step % 1_000 == 0 {
            check(&table, &model);
        }
    }
    check(&table, &model);
    let most = model.values().max().expect("keys");
    assert!(*most > 300, "counts of more than a byte: {most}");
}

#[test]
fn counts_survive_copies() {
    let mut table = KeyTable::default();
    let mut model = BTreeMap::new();
    for (index, count) in [1, 2, 253, 254, 255, 256, 70_000].into_iter().enumerate() {
        let key = vec![7; index];
        table.push(hash_of(&key), &key, count, hash_of).expect("short");
        model.insert(key, count);
    }
    check(&table, &model);
    let is_lower = |hash: u64| hash.is_multiple_of(2);
    let mut copy = table.copy_of(is_lower, hash_of);
    let other = table.copy_of(|hash| !is_lower(hash), hash_of);
    assert!(copy.len() > 0 && other.len() > 0 && copy.len() + other.len() == 7);
    copy.append(&other, hash_of).expect("short");
    check(&copy, &model);
    // The count falls to values that fit into a byte, and then rises again.
    let key = vec![7; 5];
    for count in (250..256).rev() {
        assert_eq!(copy.release(hash_of(&key), &key, hash_of), Some(Removed::StillHeld));
        assert_eq!(copy.count(hash_of(&key), &key), count);
    }
    for count in 251..260 {
        assert_eq!(copy.acquire(hash_of(&key), &key, hash_of), Ok(Added::Again));
        assert_eq!(copy.count(hash_of(&key), &key), count);
    }
}

#[test]
fn keys_take_little_more_than_their_bytes() {
    let mut table = KeyTable::default();
    for index in 0..28_000_u64 {
        let key = [fmix64(index), index, 3, 4].map(u64::to_le_bytes).concat();
        table.push(hash_of(&key), &key, 1, hash_of).expect("short");
    }
    // The arena has 32 bytes for each key, two bytes for its count and length, and up to an eighth
    // of spare room. The hash table has 32,768 slots of five bytes.
    let bytes = table.bytes();
    assert!((28_000 * 34..=28_000 * 34 * 9 / 8 + 28_000 * 6).contains(&bytes), "{bytes}");
}

//! Watch sets when stores fail, panic or are changed by others, and with unusual keys.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chainsieve_filter::KeyHasher;
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::watch_set::{
    Added, KeepError, KeyStore as _, Probe, Removed, WatchAnswer, WatchError, WatchSet,
    WatchSetBuilder,
};

use super::laws::contents;
use super::stores::{HASHER, NoDisk, Tree};
use crate::key_families::Family;

fn builder() -> WatchSetBuilder {
    WatchSetBuilder::new().hasher(HASHER).exact_up_to(100).shard_keys(100)
}

/// Returns a set over a tree, to which the test also keeps a reference.
fn over(keys: &[Vec<u8>]) -> (Arc<Tree>, WatchSet<Arc<Tree>>) {
    let tree = Arc::new(Tree::of(keys.iter().map(Vec::as_slice)));
    let set = builder().over(Arc::clone(&tree), |_| ()).expect("a disk");
    (tree, set)
}

#[test]
fn removing_an_unknown_key_changes_nothing() {
    let members = Family::WitnessScripts.keys(1, 0..5_000);
    for exact_up_to in [0, 100_000] {
        let builder = WatchSetBuilder::new().exact_up_to(exact_up_to);
        let set = builder.from_keys(&members, |_| ()).expect("memory");
        let before = set.stats();
        // There are enough strangers that some of them have the fingerprint and bucket of a member.
        for index in 0..200_000 {
            let stranger = Family::WitnessScripts.key(2, index);
            assert_eq!(set.remove(&stranger), Err(WatchError::Unknown));
        }
        assert_eq!(set.stats(), before);
        assert!(members.iter().all(|key| set.contains(key)));
        // Removing a member twice is an error too.
        assert_eq!(set.remove(&members[0]), Ok(Removed::Gone));
        assert_eq!(set.remove(&members[0]), Err(WatchError::Unknown));
        assert!(members[1..].iter().all(|key| set.contains(key)));
    }
}

#[test]
fn adding_often_takes_no_place() {
    let set = WatchSetBuilder::new().exact_up_to(0).empty();
    // A cuckoo filter has room for eight copies of a key at most.
    for again in 0..1_000 {
        let added = if again == 0 { Added::New } else { Added::Again };
        assert_eq!(set.add(b"script"), Ok(added));
    }
    assert_eq!((set.len(), set.count(b"script"), set.stats().stashed), (1, 1_000, 0));
    for left in (0..1_000).rev() {
        assert!(set.contains(b"script"));
        let removed = if left == 0 { Removed::Gone } else { Removed::StillHeld };
        assert_eq!(set.remove(b"script"), Ok(removed));
    }
    assert!(!set.contains(b"script"));
}

#[test]
fn keys_of_all_lengths_are_kept() {
    let lengths = [0, 1, 2, 22, 34, 253, 254, 255, 256, 257, 10_003, 65_534, 65_535];
    let keys: Vec<_> = lengths.iter().map(|len| vec![7_u8; *len]).collect();
    for exact_up_to in [0, 100] {
        let set = WatchSetBuilder::new().exact_up_to(exact_up_to).empty();
        for key in &keys {
            _ = set.add(key).expect("short enough");
        }
        assert!(keys.iter().all(|key| set.confirm(key) == Ok(true)));
        let too_long = KeepError::KeyTooLong { bytes: 65_536, max: 65_535 };
        assert_eq!(set.add(&vec![7; 65_536]), Err(WatchError::Store(too_long)));
        assert_eq!(set.add(&vec![8; 65_536]), Err(WatchError::Store(too_long)));
        assert_eq!((set.len(), set.confirm(&vec![7; 65_536])), (13, Ok(false)));
        let mut all: Vec<_> = contents(&set).into_iter().map(|(key, _)| key).collect();
        all.sort_by_key(Vec::len);
        assert_eq!(all, keys);
        for key in &keys {
            assert_eq!(set.remove(key), Ok(Removed::Gone));
        }
        assert!(set.is_empty());
    }
    // A caller's store may keep keys that are too long for the exact copy. Then the set has no
    // exact copy.
    let (_, set) = over(&[]);
    assert_eq!(set.add(&vec![7; 100_000]), Ok(Added::New));
    assert!(!set.is_exact() && set.ask(&vec![7; 100_000]) == WatchAnswer::Maybe);
}

#[test]
fn a_store_that_fails_is_reported_and_nothing_lost() {
    let keys = Family::Random.keys(1, 0..20_000);
    let (tree, set) = over(&keys[..5_000]);
    // Full shards can't grow without the store; the other shards accept keys.
    tree.fails.store(true, Ordering::Relaxed);
    let (mut failed, mut before) = (Vec::new(), 5_000);
    for key in &keys[5_000..] {
        match set.add(key) {
            Ok(added) => assert_eq!(added, Added::New),
            Err(error) => {
                assert_eq!(error, WatchError::Store(NoDisk));
                failed.push(key);
            }
        }
        before += 1;
    }
    assert!(failed.len() > 10_000 && failed.len() < 15_000, "{} failed", failed.len());
    assert_eq!((set.len(), tree.len()), (before - failed.len() as u64, set.len()));
    assert_eq!(set.confirm(&keys[0]), Err(WatchError::Store(NoDisk)));
    let mut probe = Probe::new();
    assert_eq!(set.confirm_batch(&keys, &mut probe), Err(WatchError::Store(NoDisk)));
    assert_eq!(set.rebuild(), Err(WatchError::Store(NoDisk)));
    assert_eq!(builder().over(&*tree, |_| ()).err(), Some(WatchError::Store(NoDisk)));
    let held = |key: &&Vec<u8>| tree.holds(HASHER.hash(key), key) == Ok(true);
    tree.fails.store(false, Ordering::Relaxed);
    assert!(failed.iter().all(|key| !held(key)));
    assert!(keys.iter().filter(held).all(|key| set.contains(key)));
    for key in &failed {
        assert_eq!(set.add(key), Ok(Added::New));
    }
    assert!(keys.iter().all(|key| set.contains(key)));
    // Removals do not read the store's keys.
    tree.fails.store(true, Ordering::Relaxed);
    for key in &keys[1..] {
        assert_eq!(set.remove(key), Ok(Removed::Gone));
    }
    assert!(set.contains(&keys[0]) && set.len() == 1);
}

#[test]
fn a_small_set_that_cannot_become_large_stays_right() {
    let keys = Family::Random.keys(1, 0..150);
    let (tree, set) = over(&[]);
    for key in &keys[..100] {
        _ = set.add(key).expect("small");
    }
    tree.fails.store(true, Ordering::Relaxed);
    let failed = keys[100..].iter().filter(|key| set.add(key).is_err()).count();
    assert!(failed > 0 && keys[..100].iter().all(|key| set.contains(key)));
    tree.fails.store(false, Ordering::Relaxed);
    for key in &keys[100..] {
        _ = set.add(key).expect("a disk");
    }
    assert!(keys.iter().all(|key| set.contains(key)));
    set.rebuild().expect("a disk");
    assert!(keys.iter().all(|key| set.contains(key)) && !set.is_exact());
}

#[test]
fn a_store_that_panics_is_read_anew() {
    let keys = Family::Random.keys(1, 0..3_000);
    for known in [0, 50, 2_000] {
        let (tree, set) = over(&keys[..known]);
        tree.panics.store(true, Ordering::Relaxed);
        // The key is in the store, but its addition did not reach the filters.
        let lost = &keys[known];
        assert!(catch_unwind(AssertUnwindSafe(|| set.add(lost))).is_err());
        assert_eq!(tree.len(), known as u64 + 1);
        assert_eq!(set.add(lost), Ok(Added::Again));
        assert!(set.contains(lost), "{known} keys");
        assert!(keys[..known].iter().all(|key| set.contains(key)));
        assert_eq!(set.len(), known as u64 + 1);
    }
}

#[test]
fn a_store_that_others_change_is_read_anew_by_a_rebuild() {
    let keys = Family::Random.keys(1, 0..4_000);
    for known in [50, 2_000] {
        let (tree, set) = over(&keys[..known]);
        for key in &keys[known..] {
            tree.acquire(HASHER.hash(key), key).expect("a disk");
        }
        for key in &keys[..known / 2] {
            tree.release(HASHER.hash(key), key).expect("a disk");
        }
        set.rebuild().expect("a disk");
        assert!(keys[known / 2..].iter().all(|key| set.contains(key)));
        assert!(keys[..known / 2].iter().filter(|key| set.contains(key)).count() < 10);
        assert_eq!(set.len(), 4_000 - known as u64 / 2);
        // Without a rebuild, removing keys that others added does no harm to the other keys.
        let other = Family::Random.keys(2, 0..100);
        for key in &other {
            tree.acquire(HASHER.hash(key), key).expect("a disk");
            assert_eq!(set.remove(key), Ok(Removed::Gone));
        }
        assert!(keys[known / 2..].iter().all(|key| set.contains(key)));
    }
}

#[test]
fn keys_that_collide_are_all_found() {
    // FNV-1a has no secret key. These eight bytes set the state of FNV-1a to zero, and zero bytes
    // leave the state at zero (www.isthe.com/chongo/tech/comp/fnv, "FNV hash history"). So an
    // attacker can make any number of keys with the same hash, but a cuckoo filter has only eight
    // slots for such keys.
    let hasher = KeyHasher::new(HashFunction::Fnv1a);
    let zero = [0xd5, 0x6b, 0xb9, 0x53, 0x42, 0x87, 0x08, 0x36];
    let keys: Vec<_> = (0..300).map(|more| [&zero[..], &vec![0; more]].concat()).collect();
    assert!(keys.iter().all(|key| hasher.hash::<u64>(key) == 0));
    let set = WatchSetBuilder::new().hasher(hasher).exact_up_to(0).shard_keys(16).empty();
    for key in &keys {
        assert_eq!(set.add(key), Ok(Added::New));
    }
    assert!(keys.iter().all(|key| set.contains(key)));
    set.rebuild().expect("memory");
    for (at, key) in keys.iter().enumerate() {
        assert!(keys[at..].iter().all(|key| set.contains(key)));
        assert_eq!(set.remove(key), Ok(Removed::Gone));
    }
    assert!(set.is_empty());
}

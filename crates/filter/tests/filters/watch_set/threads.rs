//! Readers beside writers: a key that stays in the set is found at every moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use chainsieve_filter::watch_set::{KeyStore, Probe, WatchError, WatchSet, WatchSetBuilder};

use super::laws::contents;
use super::stores::{HASHER, Tree};
use crate::key_families::Family;

/// Counts of the work that the threads did.
#[derive(Debug, Default)]
struct Work {
    asked: AtomicU64,
    missed: AtomicU64,
    changed: AtomicU64,
    rebuilt: AtomicU64,
    most_shards: AtomicU64,
}

/// Runs two readers, two writers and one thread that rebuilds the set, until the writers are done.
fn run<S: KeyStore<Error: Send + std::fmt::Debug>>(set: &WatchSet<S>, rounds: u64) -> Work
where
    WatchSet<S>: Sync,
{
    let (work, is_over) = (Work::default(), AtomicBool::new(false));
    let stable = Family::WitnessScripts.keys(1, 0..500);
    for key in &stable {
        _ = set.add(key).expect("memory");
    }
    assert!(set.is_exact());
    let write = |writer: u64| {
        let base = (writer + 1) << 32;
        for round in 0..rounds {
            // The set grows to some thousand keys, and then shrinks to none: shards grow, split,
            // collect stale bits, and join.
            let keys = Family::WitnessScripts.keys(2, base..base + 1_000 + 2_000 * (round % 3));
            for key in &keys {
                set.add(key).expect("memory");
                assert!(set.contains(key), "a writer finds its own key");
            }
            for key in &keys {
                set.remove(key).expect("it was added");
            }
            assert!(matches!(set.remove(&keys[0]), Err(WatchError::Unknown)));
            work.changed.fetch_add(2 * keys.len() as u64, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| scope.spawn(move || write(writer)));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let missed = stable.iter().filter(|key| !set.contains(key)).count();
                work.missed.fetch_add(missed as u64, Ordering::Relaxed);
                work.asked.fetch_add(stable.len() as u64, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            let mut probe = Probe::new();
            while !is_over.load(Ordering::Relaxed) {
                let hits = set.contains_batch(&stable, &mut probe).len();
                let missed = stable.len() - hits;
                work.missed.fetch_add(missed as u64, Ordering::Relaxed);
                work.asked.fetch_add(stable.len() as u64, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                work.most_shards.fetch_max(set.stats().shards, Ordering::Relaxed);
                set.rebuild().expect("memory");
                work.rebuilt.fetch_add(1, Ordering::Relaxed);
            }
        });
        let ends = writers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "a writer panicked");
    });
    // The set was large for a while; a rebuild makes it exact again.
    set.rebuild().expect("memory");
    assert!(set.is_exact() && set.len() == 500);
    assert!(stable.iter().all(|key| set.confirm(key).is_ok_and(|holds| holds)));
    work
}

fn check(work: &Work) {
    assert_eq!(work.missed.load(Ordering::Relaxed), 0, "{work:?}");
    let all = [&work.asked, &work.changed, &work.rebuilt];
    assert!(all.iter().all(|count| count.load(Ordering::Relaxed) > 10), "{work:?}");
}

#[test]
fn nothing_is_missed_while_others_write() {
    let builder = WatchSetBuilder::new().hasher(HASHER).exact_up_to(1_000);
    // Small shards, which are split and joined all the time.
    let small = builder.clone().shard_keys(16);
    for work in [
        run(&small.empty(), 12),
        run(&small.over(Tree::default(), |_| ()).expect("an empty set"), 12),
    ] {
        check(&work);
        assert!(work.most_shards.load(Ordering::Relaxed) > 64, "{work:?}");
    }
    // Large shards, which take long to build while others write.
    check(&run(&builder.empty(), 12));
}

#[test]
fn references_of_several_threads_are_counted() {
    let set = WatchSetBuilder::new().exact_up_to(50).shard_keys(16).empty();
    let keys = Family::Random.keys(1, 0..300);
    let changes = AtomicU64::new(0);
    let count = |counted: bool| _ = changes.fetch_add(u64::from(counted), Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    for key in &keys {
                        count(
                            set.add(key).expect("memory")
                                == chainsieve_filter::watch_set::Added::New,
                        );
                    }
                    for key in &keys {
                        assert!(set.contains(key));
                        count(
                            set.remove(key).expect("held")
                                == chainsieve_filter::watch_set::Removed::Gone,
                        );
                    }
                }
            });
        }
    });
    // As many keys were removed as were added.
    assert_eq!(changes.load(Ordering::Relaxed) % 2, 0);
    assert!(set.is_empty() && contents(&set).is_empty());
}

//! Callbacks of the watch set, and calls to the set from inside a callback.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use chainsieve_filter::watch_set::{KeyStore as _, WatchAnswer, WatchSet, WatchSetBuilder};

use super::stores::{HASHER, Tree};
use crate::key_families::Family;

fn builder() -> WatchSetBuilder {
    WatchSetBuilder::new().hasher(HASHER).exact_up_to(100).shard_keys(16)
}

/// Returns `true` if `work` ends within a minute. If `work` does not end, its thread keeps running.
fn ends(work: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = channel();
    thread::spawn(move || {
        work();
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(Duration::from_secs(60)) != Err(RecvTimeoutError::Timeout)
}

#[test]
fn the_set_may_be_changed_by_who_is_shown_its_keys() {
    for keys in [50, 3_000] {
        let members = Family::WitnessScripts.keys(1, 0..keys);
        let set: WatchSet = builder().from_keys(&members, |_| ()).expect("memory");
        assert!(ends(move || {
            let mut shown = 0_usize;
            set.for_each_key(|key, count| {
                // Each key is shown once, with the count that the set has at that moment.
                assert_eq!((set.count(key), count), (1, 1));
                set.add(key).expect("memory");
                set.add(&[key, b"'s friend"].concat()).expect("memory");
                shown += usize::from(!key.ends_with(b"'s friend"));
                set.remove(&[key, b"'s friend"].concat()).expect("it was added");
            });
            assert_eq!(shown, members.len());
            assert!(members.iter().all(|key| set.count(key) == 2));
        }));
    }
}

#[test]
fn a_key_whose_addition_panicked_behind_the_change_is_found_at_once() {
    let keys = Family::Random.keys(1, 0..3_000);
    for known in [50, 2_000] {
        let tree = Arc::new(Tree::of(keys[..known].iter().map(Vec::as_slice)));
        let set = builder().over(Arc::clone(&tree), |_| ()).expect("a disk");
        let lost = &keys[known];
        assert_eq!(set.ask(lost), WatchAnswer::No);
        tree.panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| set.add(lost))).is_err());
        // The store has the key, and no other writer has changed the set since the panic.
        assert_eq!(tree.holds(HASHER.hash(lost), lost), Ok(true));
        assert_eq!(set.ask(lost), WatchAnswer::Yes, "{known} keys");
        assert_eq!(set.confirm(lost), Ok(true));
        // If the store can't answer, the key may be in the set.
        tree.fails.store(true, Ordering::Relaxed);
        assert_eq!(set.ask(lost), WatchAnswer::Maybe);
        tree.fails.store(false, Ordering::Relaxed);
        // A rebuild makes new filters from the keys in the store.
        set.rebuild().expect("a disk");
        assert!(set.contains(lost) && set.len() == known as u64 + 1);
        assert!(keys[..known].iter().all(|key| set.contains(key)));
    }
}

//! Filters that threads share: no insertion is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use chainsieve_filter::bloom::{AtomicBloomFilter, BloomFilter};
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};

use crate::bloom::hashes;

const HASHER: KeyHasher = KeyHasher::xxh3(1);
const THREADS: usize = 4;

/// Threads fill the same few words at the same time, many times over. An update that is not atomic
/// would lose the bits of other threads here.
#[test]
fn threads_insert_into_the_same_words() {
    for round in 0..300 {
        let filter = <AtomicBloomFilter>::with_bits(1 << 12, 4, HASHER).unwrap();
        let keys: Vec<Vec<u64>> =
            (0..THREADS as u64).map(|thread| hashes(round << 8 | thread, 256)).collect();
        let start = Barrier::new(THREADS);
        let new = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for keys in &keys {
                let (filter, start, new) = (&filter, &start, &new);
                scope.spawn(move || {
                    start.wait();
                    for (at, key) in keys.iter().enumerate() {
                        if at % 8 == 7 {
                            filter.insert_batch(&[*key]);
                        } else if filter.insert_hash(*key) {
                            new.fetch_add(1, Ordering::Relaxed);
                        }
                        // Each thread finds what it has inserted.
                        assert!(filter.contains_hash(*key));
                    }
                });
            }
        });
        let mut alone = <BloomFilter>::with_bits(1 << 12, 4, HASHER).unwrap();
        let mut new_alone = 0;
        for key in keys.into_iter().flatten() {
            new_alone += u64::from(alone.insert_hash(key).unwrap());
        }
        assert_eq!(filter.to_filter().unwrap(), alone, "round {round}");
        assert_eq!(filter.len(), (THREADS * 256) as u64);
        assert!(new.load(Ordering::Relaxed) > 100 && new_alone > 100);
    }
}

/// When several threads insert the same key, each bit is set by exactly one of them. So at least
/// one thread learns that the key is new. Once the key is present, no thread is told that the key
/// is new.
#[test]
fn a_key_is_new_once() {
    for round in 0..300 {
        let filter = <AtomicBloomFilter>::with_bits(1 << 12, 4, HASHER).unwrap();
        let key = hashes(round, 1)[0];
        let start = Barrier::new(THREADS);
        let told = |filter: &AtomicBloomFilter| {
            let news: Vec<bool> = std::thread::scope(|scope| {
                let insert = || {
                    start.wait();
                    filter.insert_hash(key)
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(insert)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            news.into_iter().filter(|is_new| *is_new).count()
        };
        // A key has four bits, so at most four threads can be the first to set one of its bits.
        assert!((1..=4).contains(&told(&filter)));
        assert_eq!(told(&filter), 0);
    }
}

/// A reader that knows that a key was inserted finds the key, while another thread still inserts
/// keys.
#[test]
fn readers_find_what_they_know_of() {
    let keys = hashes(77, 200_000);
    let filter = <AtomicBloomFilter>::with_fpr(keys.len() as u64, 0.01, HASHER).unwrap();
    let (inserted, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (at, key) in keys.iter().enumerate() {
                filter.insert_hash(*key);
                inserted.store(at + 1, Ordering::Release);
            }
            ended.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut asked = 0;
            while !ended.load(Ordering::Acquire) {
                let known = inserted.load(Ordering::Acquire);
                for key in keys.iter().take(known).rev().take(50) {
                    assert!(filter.contains_hash(*key));
                    asked += 1;
                }
            }
            assert!(asked > 0);
        });
    });
    let mut answers = vec![false; keys.len()];
    filter.contains_batch(&keys, &mut answers);
    assert!(!answers.contains(&false));
}

#[test]
fn a_shared_filter_is_emptied() {
    let mut filter = <AtomicBloomFilter>::with_fpr(100, 0.01, HASHER).unwrap();
    filter.insert(b"key");
    assert!(filter.contains(b"key") && filter.len() == 1 && !filter.is_empty());
    filter.clear();
    assert!(!filter.contains(b"key") && filter.is_empty() && filter.fill() == 0.0);
}

/// A filter that is encoded or copied while another thread inserts can be decoded: the count of the
/// copy is at least the number of keys that the set bits require.
#[test]
fn filters_are_encoded_while_threads_insert() {
    for round in 0..400 {
        let filter = <AtomicBloomFilter>::with_bits(1 << 22, 1, HASHER).unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                (0..round * 8).for_each(|_| std::hint::spin_loop());
                // This key's bit is the first one, which is copied long before the count is read.
                filter.insert_hash(0);
            });
            start.wait();
            let (encoded, copy) = (filter.encode().unwrap(), filter.to_filter().unwrap());
            for bytes in [encoded, copy.encode().unwrap()] {
                let error = <BloomFilter>::decode(&bytes).err();
                assert_eq!(error, None, "round {round}");
            }
        });
    }
}

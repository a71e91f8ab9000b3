//! Key stores as callers implement them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve_filter::KeyHasher;
use chainsieve_filter::watch_set::{Added, Kept, KeyStore, Removed};

/// Hasher for stores that find keys by their hash.
pub(crate) const HASHER: KeyHasher = KeyHasher::siphash_1_3([3, 4]);

/// Keys in a tree ordered by hash, as in a database with an index.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    keys: Mutex<BTreeMap<(u64, Vec<u8>), u64>>,
    /// The data that `visit` passes on: hashes only, all keys whatever the range, or the keys in
    /// the range.
    pub(crate) shows: Shows,
    /// `true` if the next visits and look-ups fail. The field `panics` is `true` if the next
    /// addition panics after it changed the tree.
    pub(crate) fails: AtomicBool,
    pub(crate) panics: AtomicBool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    #[default]
    Keys,
    AllKeys,
    Hashes,
}

/// Error of a store whose disk is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoDisk;

impl Tree {
    pub(crate) fn showing(shows: Shows) -> Self {
        Self { shows, ..Self::default() }
    }

    pub(crate) fn of<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Self {
        let tree = Self::default();
        for key in keys {
            tree.acquire(HASHER.hash(key), key).expect("a disk");
        }
        tree
    }
}

impl KeyStore for Tree {
    type Error = NoDisk;

    fn acquire(&self, hash: u64, key: &[u8]) -> Result<Added, NoDisk> {
        let mut keys = self.keys.lock().expect("no panic under it");
        let count = keys.entry((hash, key.to_vec())).or_default();
        *count += 1;
        let is_first = *count == 1;
        drop(keys);
        assert!(!self.panics.swap(false, Ordering::Relaxed), "after the change");
        Ok(if is_first { Added::New } else { Added::Again })
    }

    fn release(&self, hash: u64, key: &[u8]) -> Result<Option<Removed>, NoDisk> {
        let mut keys = self.keys.lock().expect("no panic under it");
        let key = (hash, key.to_vec());
        Ok(match keys.get_mut(&key) {
            None => None,
            Some(1) => {
                keys.remove(&key);
                Some(Removed::Gone)
            }
            Some(count) => {
                *count -= 1;
                Some(Removed::StillHeld)
            }
        })
    }

    fn holds(&self, hash: u64, key: &[u8]) -> Result<bool, NoDisk> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(NoDisk);
        }
        Ok(self.keys.lock().expect("no panic under it").contains_key(&(hash, key.to_vec())))
    }

    fn len(&self) -> u64 {
        self.keys.lock().expect("no panic under it").len() as u64
    }

    fn visit(
        &self,
        hashes: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Kept<'_>),
    ) -> Result<(), NoDisk> {
        let keys = self.keys.lock().expect("no panic under it");
        let all = (0, Vec::new());
        let range = match self.shows {
            Shows::AllKeys => keys.range(all..),
            _ => keys.range((*hashes.start(), Vec::new())..),
        };
        for (shown, (hash, key)) in range.map(|(key, _)| key).enumerate() {
            if self.shows != Shows::AllKeys && hash > hashes.end() {
                break;
            }
            if shown == 3 && self.fails.load(Ordering::Relaxed) {
                return Err(NoDisk);
            }
            visit(if self.shows == Shows::Hashes { Kept::Hash(*hash) } else { Kept::Key(key) });
        }
        if self.fails.load(Ordering::Relaxed) { Err(NoDisk) } else { Ok(()) }
    }
}

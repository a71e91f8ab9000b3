//! Keys with counts, in little more memory than their bytes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashTable;

use super::key_store::{Acquired, Released};

/// The longest key.
pub(super) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// A count that stands beside the arena, as do all from here on.
const MANY: u8 = u8::MAX;
/// A length that stands in the two bytes behind this one.
const LONG: u8 = u8::MAX;
/// Bytes of removed keys that are not worth a compaction.
const FEW_BYTES: usize = 4096;

/// Why a key is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The key is too long.
    #[error("a key of {bytes} bytes: at most {max} are kept")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest there can be.
        max: usize,
    },
    /// More than 4 GiB of keys, of long ones whose hashes are nearly the same.
    #[error("more than 4 GiB of keys whose hashes begin alike")]
    TooManyBytes,
}

/// Keys one behind the other, and a table of where they are.
///
/// A key takes its bytes, two more (its count and its length) and five to eleven of the table.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// Offsets into the arena.
    places: HashTable<u32>,
    /// Entries: count (0: removed), length, key.
    arena: Vec<u8>,
    /// Bytes of removed entries.
    dead: usize,
    /// Counts that take more than a byte, by offset.
    many: BTreeMap<u32, u64>,
}

/// An entry of the arena, taken apart.
#[derive(Clone, Copy)]
struct Entry<'a> {
    count: u8,
    key: &'a [u8],
    /// Bytes of the whole entry.
    bytes: usize,
}

impl<'a> Entry<'a> {
    /// The entry that `arena` begins with.
    fn read(arena: &'a [u8]) -> Option<Self> {
        let (count, rest) = arena.split_first()?;
        let (len, rest) = rest.split_first()?;
        let (len, rest) = match *len {
            LONG => {
                let (len, rest) = rest.split_first_chunk::<2>()?;
                (usize::from(u16::from_le_bytes(*len)), rest)
            }
            len => (usize::from(len), rest),
        };
        let key = rest.get(..len)?;
        Some(Self { count: *count, key, bytes: arena.len() - rest.len() + len })
    }
}

/// The bits of a hash that a table is to be found by: it takes the lowest for the place and the
/// highest seven for the tag, and the highest of a set's part are all the same.
#[inline]
const fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

impl KeyTable {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn contains(&self, hash: u64, key: &[u8]) -> bool {
        self.find(hash, key).is_some()
    }

    /// The count of a key.
    pub(super) fn count(&self, hash: u64, key: &[u8]) -> u64 {
        let Some(at) = self.find(hash, key) else { return 0 };
        self.count_at(at)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.places.find(spread(hash), |at| self.key_at(*at) == Some(key)).copied()
    }

    fn key_at(&self, at: u32) -> Option<&[u8]> {
        Some(Entry::read(self.arena.get(at as usize..)?)?.key)
    }

    fn count_at(&self, at: u32) -> u64 {
        match self.arena.get(at as usize) {
            Some(&MANY) => self.many.get(&at).copied().unwrap_or(u64::from(MANY)),
            count => count.copied().map_or(0, u64::from),
        }
    }

    fn set_count(&mut self, at: u32, count: u64) {
        let byte = u8::try_from(count).unwrap_or(MANY);
        if byte == MANY {
            self.many.insert(at, count);
        } else {
            self.many.remove(&at);
        }
        if let Some(place) = self.arena.get_mut(at as usize) {
            *place = byte;
        }
    }

    /// One more reference. `hash_of` hashes the keys that are there, should the table grow.
    pub(super) fn acquire(
        &mut self,
        hash: u64,
        key: &[u8],
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<Acquired, KeepError> {
        if let Some(at) = self.find(hash, key) {
            self.set_count(at, self.count_at(at).saturating_add(1));
            return Ok(Acquired::Again);
        }
        self.push(hash, key, 1, hash_of)?;
        Ok(Acquired::First)
    }

    /// A key that is not here.
    pub(super) fn push(
        &mut self,
        hash: u64,
        key: &[u8],
        count: u64,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<(), KeepError> {
        let too_long = KeepError::KeyTooLong { bytes: key.len(), max: MAX_KEY_BYTES };
        let len = u16::try_from(key.len()).map_err(|_| too_long)?;
        let at = u32::try_from(self.arena.len()).map_err(|_| KeepError::TooManyBytes)?;
        self.reserve(key.len() + 4);
        self.arena.push(0);
        match u8::try_from(len) {
            Ok(len) if len != LONG => self.arena.push(len),
            _ => {
                self.arena.push(LONG);
                self.arena.extend(len.to_le_bytes());
            }
        }
        self.arena.extend_from_slice(key);
        self.set_count(at, count);
        let Self { places, arena, .. } = self;
        let key_at = |at: u32| Entry::read(arena.get(at as usize..)?).map(|entry| entry.key);
        places
            .insert_unique(spread(hash), at, |at| spread(hash_of(key_at(*at).unwrap_or_default())));
        Ok(())
    }

    /// Room for so many more bytes, and not for as many again as there are.
    fn reserve(&mut self, bytes: usize) {
        if self.arena.capacity() - self.arena.len() < bytes {
            self.arena.reserve_exact(bytes.max(self.arena.len() / 8));
        }
    }

    /// One reference less.
    pub(super) fn release(
        &mut self,
        hash: u64,
        key: &[u8],
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Released {
        let Some(at) = self.find(hash, key) else { return Released::Unknown };
        let count = self.count_at(at) - 1;
        self.set_count(at, count);
        if count > 0 {
            return Released::StillHeld;
        }
        if let Ok(place) = self.places.find_entry(spread(hash), |place| *place == at) {
            place.remove();
        }
        let entry = self.arena.get(at as usize..).and_then(Entry::read);
        self.dead += entry.map_or(0, |entry| entry.bytes);
        if self.dead > FEW_BYTES.max(self.arena.len() / 4) {
            *self = self.copy_of(|_| true, hash_of);
        }
        Released::Last
    }

    /// Keys with their counts, in the order in which they came.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            loop {
                let entry = self.arena.get(at..).and_then(Entry::read)?;
                let here = u32::try_from(at).unwrap_or(u32::MAX);
                at += entry.bytes;
                if entry.count > 0 {
                    return Some((entry.key, self.count_at(here)));
                }
            }
        })
    }

    /// A copy to [`iter`](Self::iter) over, by which nothing is found.
    pub(super) fn listing(&self) -> Self {
        let (arena, many) = (self.arena.clone(), self.many.clone());
        Self { places: HashTable::new(), arena, dead: self.dead, many }
    }

    /// A table of those keys whose hashes are wanted, without holes.
    pub(super) fn copy_of(
        &self,
        wanted: impl Fn(u64) -> bool,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Self {
        let mut copy = Self::default();
        for (key, count) in self.iter() {
            let hash = hash_of(key);
            if wanted(hash) {
                // A part of what fitted fits.
                let _ = copy.push(hash, key, count, &hash_of);
            }
        }
        copy.arena.shrink_to_fit();
        copy
    }

    /// Takes in the keys of a table that shares none with this one.
    pub(super) fn append(
        &mut self,
        other: &Self,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<(), KeepError> {
        other.iter().try_for_each(|(key, count)| self.push(hash_of(key), key, count, &hash_of))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        // A node of the tree holds eleven counts.
        self.arena.capacity() + self.places.allocation_size() + self.many.len() * 16
    }
}

#[cfg(test)]
mod tests;

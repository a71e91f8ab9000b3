//! Keys with reference counts, in little more memory than the bytes of the keys.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashTable;

use super::key_store::{Acquired, Released};

/// Greatest length of a key in bytes.
pub(super) const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// Value of the count byte for every count of 255 and above. These counts are stored in a separate
/// map.
const COUNT_ELSEWHERE: u8 = u8::MAX;
/// Value of the length byte for every length of 255 and above. Such a length is stored in the next
/// two bytes.
const LENGTH_FOLLOWS: u8 = u8::MAX;
/// A table with at most this many bytes of removed keys is never compacted.
const FEW_BYTES: usize = 4096;

/// The reason why a key can't be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The key is too long.
    #[error("the key has {bytes} bytes, but at most {max} are possible")]
    KeyTooLong {
        /// Length of the key in bytes.
        bytes: usize,
        /// Greatest length possible.
        max: usize,
    },
    /// One table would have more than 4 GiB of keys. A table becomes that large only with long keys
    /// whose hashes share many leading bits.
    #[error("more than 4 GiB of keys whose hashes share their leading bits")]
    TooManyBytes,
}

/// Keys in one byte array (the arena), and a hash table of their offsets.
///
/// Each key takes its own bytes, two bytes for the count and the length, and five to eleven bytes
/// of the hash table.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    /// Offsets of the entries in the arena.
    places: HashTable<u32>,
    /// The entries, one after another: count (0 if removed), length, key.
    arena: Vec<u8>,
    /// Number of bytes of removed entries.
    dead: usize,
    /// Counts that do not fit into a byte, by offset.
    many: BTreeMap<u32, u64>,
}

/// A decoded entry of the arena.
#[derive(Clone, Copy)]
struct Entry<'a> {
    count: u8,
    key: &'a [u8],
    /// Length of the whole entry in bytes.
    bytes: usize,
}

impl<'a> Entry<'a> {
    /// Decodes the entry at the start of `arena`.
    fn read(arena: &'a [u8]) -> Option<Self> {
        let (count, rest) = arena.split_first()?;
        let (len, rest) = rest.split_first()?;
        let (len, rest) = match *len {
            LENGTH_FOLLOWS => {
                let (len, rest) = rest.split_first_chunk::<2>()?;
                (usize::from(u16::from_le_bytes(*len)), rest)
            }
            len => (usize::from(len), rest),
        };
        let key = rest.get(..len)?;
        Some(Self { count: *count, key, bytes: arena.len() - rest.len() + len })
    }
}

/// Rotates a hash for use in the hash table. The table takes the lowest bits for the position and
/// the highest seven bits for the tag. Without the rotation, the highest bits would be equal for
/// all keys of a shard.
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

    /// Returns the reference count of a key.
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
            Some(&COUNT_ELSEWHERE) => {
                self.many.get(&at).copied().unwrap_or(u64::from(COUNT_ELSEWHERE))
            }
            count => count.copied().map_or(0, u64::from),
        }
    }

    fn set_count(&mut self, at: u32, count: u64) {
        let byte = u8::try_from(count).unwrap_or(COUNT_ELSEWHERE);
        if byte == COUNT_ELSEWHERE {
            self.many.insert(at, count);
        } else {
            self.many.remove(&at);
        }
        if let Some(place) = self.arena.get_mut(at as usize) {
            *place = byte;
        }
    }

    /// Increments the reference count of a key. `hash_of` computes the hashes of the existing keys,
    /// in case the table grows.
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

    /// Adds a key that is not in the table, with the given reference count.
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
            Ok(len) if len != LENGTH_FOLLOWS => self.arena.push(len),
            _ => {
                self.arena.push(LENGTH_FOLLOWS);
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

    /// Reserves room for `bytes` more bytes. The arena grows by an eighth instead of doubling, to
    /// save memory.
    fn reserve(&mut self, bytes: usize) {
        if self.arena.capacity() - self.arena.len() < bytes {
            self.arena.reserve_exact(bytes.max(self.arena.len() / 8));
        }
    }

    /// Decrements the reference count of a key, and removes the key if the count becomes zero.
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
        // More than a quarter of the arena consists of holes, so the arena is compacted.
        if self.dead > FEW_BYTES.max(self.arena.len() / 4) {
            *self = self.copy_of(|_| true, hash_of);
        }
        Released::Last
    }

    /// Returns the keys with their reference counts, in the order of insertion.
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

    /// Returns a copy for use with [`iter`](Self::iter) only. The copy has no hash table, so it
    /// finds no keys.
    pub(super) fn listing(&self) -> Self {
        let (arena, many) = (self.arena.clone(), self.many.clone());
        Self { places: HashTable::new(), arena, dead: self.dead, many }
    }

    /// Returns a table without holes that contains the keys whose hashes satisfy `wanted`.
    pub(super) fn copy_of(
        &self,
        wanted: impl Fn(u64) -> bool,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Self {
        let mut copy = Self::default();
        for (key, count) in self.iter() {
            let hash = hash_of(key);
            if wanted(hash) {
                // The insertion can't fail: a subset of the keys needs no more room than all keys.
                let _ = copy.push(hash, key, count, &hash_of);
            }
        }
        copy.arena.shrink_to_fit();
        copy
    }

    /// Adds the keys of another table, which has no key in common with this table.
    pub(super) fn append(
        &mut self,
        other: &Self,
        hash_of: impl Fn(&[u8]) -> u64,
    ) -> Result<(), KeepError> {
        other.iter().try_for_each(|(key, count)| self.push(hash_of(key), key, count, &hash_of))
    }

    /// Returns the memory of the table in bytes.
    pub(super) fn bytes(&self) -> usize {
        // This estimates 16 bytes for each count of the map, whose nodes store up to eleven counts.
        self.arena.capacity() + self.places.allocation_size() + self.many.len() * 16
    }
}

#[cfg(test)]
mod tests;

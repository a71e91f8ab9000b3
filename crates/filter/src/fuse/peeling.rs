//! Construction of the fingerprints by peeling.
//!
//! A cell that only one remaining key uses is assigned to that key, and the key is removed. This
//! repeats until no keys are left. Then the cells are filled in the reverse order.

use alloc::vec::Vec;

use super::super::static_build::{BuildError, distinct, reserved, split_mix, zeroed};
use super::super::words::NoMemory;
use super::layout::{FuseFingerprint, Shape, mixed};

/// Number of seeds tried for one shard. Each attempt succeeds with a probability above one half.
const TRIES: u32 = 100;
/// Greatest number of keys in a shard. Cells have 32-bit indices, and late attempts use up to 2.8
/// cells per key.
const MAX_KEYS: u64 = 1 << 30;
/// Sets with fewer hashes than this are not sorted: their working set fits into the nearest caches
/// in any order.
const SORTED_FROM: usize = 1 << 15;

/// The fingerprints of one shard.
#[derive(Debug)]
pub(super) struct Peeled<F> {
    pub(super) seed: u64,
    pub(super) shape: Shape,
    /// Number of distinct keys.
    pub(super) keys: u64,
    pub(super) fingerprints: Vec<F>,
}

/// Computes the fingerprints for these hashes.
///
/// Duplicate hashes make the first attempt fail, because neither of two equal hashes ever has a
/// cell of its own. So duplicates are removed only after a failure.
pub(super) fn build<F: FuseFingerprint>(
    hashes: &[u64],
    mut seeds: u64,
) -> Result<Peeled<F>, BuildError> {
    let mut once: Option<Vec<u64>> = None;
    let mut work = Work::default();
    for attempt in 0..TRIES {
        let hashes = once.as_deref().unwrap_or(hashes);
        let keys = hashes.len() as u64;
        let too_many = BuildError::TooManyKeys { keys, limit: MAX_KEYS };
        let count = u32::try_from(keys).ok().filter(|_| keys <= MAX_KEYS).ok_or(too_many)?;
        let shape = Shape::for_keys(count, attempt);
        let seed = split_mix(&mut seeds);
        if work.peel(hashes, seed, shape)? {
            let fingerprints = work.fingerprints(shape)?;
            return Ok(Peeled { seed, shape, keys, fingerprints });
        }
        // Duplicates are the likeliest reason for a failure of the first attempt.
        if once.is_none() {
            once = Some(distinct(hashes)?);
        }
    }
    Err(BuildError::NoSeed { keys: hashes.len() as u64, tries: TRIES })
}

/// Working memory that the attempts reuse: about 25 bytes per key.
#[derive(Default)]
pub(super) struct Work {
    /// For each cell, the exclusive or of the hashes that use it.
    hashes: Vec<u64>,
    /// For each cell, four times the number of hashes that use it. The lowest two bits are the
    /// exclusive or of the ordinals of the cell: for each hash that uses it, 0, 1 or 2 for the
    /// first, second or third position.
    counts: Vec<u8>,
    /// Cells that only one hash uses.
    alone: Vec<u32>,
    /// Contains the mixed hashes in the order of their segments at first, and later the removed
    /// hashes in the order of their removal.
    order: Vec<u64>,
    /// For each removed hash, the ordinal of the cell that is assigned to it.
    owned: Vec<u8>,
}

impl Work {
    /// Returns `true` if all hashes could be removed.
    pub(super) fn peel(
        &mut self,
        hashes: &[u64],
        seed: u64,
        shape: Shape,
    ) -> Result<bool, NoMemory> {
        Ok(self.enter(hashes, seed, shape)? && self.take_out(shape) == hashes.len())
    }

    /// Adds all hashes to their cells. Returns `false` if a counter overflows.
    pub(super) fn enter(
        &mut self,
        hashes: &[u64],
        seed: u64,
        shape: Shape,
    ) -> Result<bool, NoMemory> {
        let cells = shape.cells() as usize;
        refill(&mut self.hashes, cells)?;
        refill(&mut self.counts, cells)?;
        // The loops write an entry before they know whether to keep it. So the array has two
        // entries more than there are cells.
        resize(&mut self.alone, cells + 2)?;
        resize(&mut self.order, hashes.len())?;
        resize(&mut self.owned, hashes.len())?;
        self.sort(hashes, seed, shape)?;
        Ok(self.count(shape))
    }

    /// Mixes the hashes and orders them by segment, so that the following loops read and write
    /// memory from front to back.
    #[expect(clippy::cast_possible_truncation, reason = "some of the bits")]
    fn sort(&mut self, hashes: &[u64], seed: u64, shape: Shape) -> Result<(), NoMemory> {
        if hashes.len() < SORTED_FROM {
            for (to, hash) in self.order.iter_mut().zip(hashes) {
                *to = mixed(*hash, seed);
            }
            return Ok(());
        }
        let bits = shape.segment_count.next_power_of_two().trailing_zeros().max(1);
        let block = |hash: u64| (hash >> (64 - bits)) as usize;
        let mut ends = zeroed::<usize>(1 << bits)?;
        for hash in hashes {
            ends[block(mixed(*hash, seed))] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            (*end, start) = (start, start + *end);
        }
        for hash in hashes {
            let hash = mixed(*hash, seed);
            let place = &mut ends[block(hash)];
            self.order[*place] = hash;
            *place += 1;
        }
        Ok(())
    }

    /// Adds every hash to its three cells. Returns `false` if a counter overflows.
    fn count(&mut self, shape: Shape) -> bool {
        let (mut overflowed, counts) = (false, self.counts.as_mut_slice());
        for hash in &self.order {
            for (which, place) in (0_u8..).zip(shape.places(*hash)) {
                let count = &mut counts[place as usize];
                *count = count.wrapping_add(4) ^ which;
                overflowed |= *count < 4;
                self.hashes[place as usize] ^= hash;
            }
        }
        !overflowed
    }

    /// Repeatedly removes a hash that has a cell to itself. Returns the number of hashes removed.
    ///
    /// The order is that of `xor_singleheader`, so the same seed gives the same fingerprints.
    #[expect(clippy::cast_possible_truncation, reason = "cells are numbered by 32 bits")]
    fn take_out(&mut self, shape: Shape) -> usize {
        let (hashes, counts) = (self.hashes.as_mut_slice(), self.counts.as_mut_slice());
        let (alone, order) = (self.alone.as_mut_slice(), self.order.as_mut_slice());
        let owned = self.owned.as_mut_slice();
        let mut waiting = 0;
        for (cell, count) in counts.iter().enumerate() {
            alone[waiting] = cell as u32;
            waiting += usize::from(*count >> 2 == 1);
        }
        let mut taken = 0;
        while waiting > 0 {
            waiting -= 1;
            let cell = alone[waiting] as usize;
            if counts[cell] >> 2 != 1 || taken == order.len() {
                continue;
            }
            let (hash, which) = (hashes[cell], counts[cell] & 3);
            (order[taken], owned[taken]) = (hash, which);
            taken += 1;
            let [a, b, c] = shape.places(hash);
            let others = match which {
                0 => [(b, 1), (c, 2)],
                1 => [(c, 2), (a, 0)],
                _ => [(a, 0), (b, 1)],
            };
            for (other, which) in others {
                let count = &mut counts[other as usize];
                alone[waiting] = other;
                waiting += usize::from(*count >> 2 == 2);
                *count = count.wrapping_sub(4) ^ which;
                hashes[other as usize] ^= hash;
            }
        }
        taken
    }

    /// Fills the cells, in the reverse order of removal.
    fn fingerprints<F: FuseFingerprint>(&self, shape: Shape) -> Result<Vec<F>, NoMemory> {
        let mut cells = zeroed::<F>(shape.cells() as usize)?;
        for (hash, which) in self.order.iter().zip(&self.owned).rev() {
            let places = shape.places(*hash);
            // The cell assigned to this hash is still zero, so it does not change the exclusive or.
            let all = places.iter().fold(F::of(*hash), |all, at| all.xor(cells[*at as usize]));
            cells[places[usize::from(*which) % 3] as usize] = all;
        }
        Ok(cells)
    }
}

/// Resets `items` to `len` zeros.
fn refill<T: Default + Clone>(items: &mut Vec<T>, len: usize) -> Result<(), NoMemory> {
    items.clear();
    resize(items, len)
}

/// Resizes `items` to `len` entries with arbitrary contents.
fn resize<T: Default + Clone>(items: &mut Vec<T>, len: usize) -> Result<(), NoMemory> {
    if items.capacity() < len {
        *items = reserved(len)?;
    }
    items.resize(len, T::default());
    Ok(())
}

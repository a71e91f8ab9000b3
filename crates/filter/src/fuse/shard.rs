//! One shard of a binary fuse filter: the positions of a key's three cells, in the layout of
//! `xor_singleheader` and `xorf`, and the construction of the fingerprints by peeling.
//!
//! Peeling: a cell that only one remaining key uses is assigned to that key, and the key is removed.
//! This step is repeated until no keys are left. Then the cells are filled in the reverse order.

use alloc::vec::Vec;

use bytemuck::Pod;

use super::super::encoding::{DecodeError, Kind, parameter, refuse_if};
use super::super::hashing::fmix64;
use super::super::sizing::BuildError;
use super::super::static_build::{distinct, mul_high, split_mix};
use super::super::words::{NoMemory, reserved, zeroed};

/// The type of a fingerprint: `u8` or `u16`.
pub trait FuseFingerprint: Pod + Eq + Default + Send + Sync + sealed::Sealed {
    /// Width of the fingerprint in bits.
    const BITS: u32;
    /// The kind of filters with such fingerprints.
    const KIND: Kind;

    /// Computes the fingerprint of a mixed hash.
    fn of(hash: u64) -> Self;

    /// Returns the exclusive or of two fingerprints.
    #[must_use]
    fn xor(self, other: Self) -> Self;
}

macro_rules! fingerprint {
    ($word:ty, $kind:ident) => {
        impl FuseFingerprint for $word {
            const BITS: u32 = <$word>::BITS;
            const KIND: Kind = Kind::$kind;

            #[inline(always)]
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a fingerprint consists of the low bits"
            )]
            fn of(hash: u64) -> Self {
                (hash ^ hash >> 32) as Self
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    };
}

fingerprint!(u8, Fuse8);
fingerprint!(u16, Fuse16);

mod sealed {
    #[expect(unnameable_types, reason = "no other crate implements the trait")]
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
}

/// Greatest segment length. The second and third positions take 18 bits each from the hash.
const MAX_SEGMENT_LENGTH: u32 = 1 << 18;

/// The division of the array into segments. The three cells of a key are in three consecutive
/// segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Number of cells in a segment, a power of two.
    pub(crate) segment_length: u32,
    /// Number of segments that can contain a key's first cell: two less than the number of all
    /// segments.
    pub(crate) segment_count: u32,
}

impl Segments {
    /// Returns the shape for a number of keys, as `xor_singleheader` chooses it, varied by the
    /// attempt.
    ///
    /// Every second attempt halves the segment length, because the formula's length is too great
    /// just after each of its steps. From the ninth attempt on, the array grows.
    #[expect(clippy::cast_possible_truncation, reason = "a shard has at most 2^30 keys")]
    #[expect(clippy::cast_sign_loss, reason = "the logarithms of numbers above 1 are positive")]
    pub(crate) fn for_keys(keys: u32, attempt: u32) -> Self {
        let ln = |x: f64| libm::log(x);
        let size = f64::from(keys);
        let (length, capacity) = if keys <= 1 {
            (4, 0)
        } else {
            let exponent = libm::floor(ln(size) / ln(3.33) + 2.25) as u32;
            let factor = (0.875 + 0.25 * ln(1e6) / ln(size)).max(1.125);
            let growth = 1.0 + f64::from(attempt.saturating_sub(7)) / 64.0;
            (1 << exponent.min(18), libm::round(size * factor * growth) as u32)
        };
        let mut segment_length: u32 = length;
        while segment_length > 256 && capacity.div_ceil(segment_length) < 32 + 2 {
            segment_length /= 2;
        }
        if attempt % 2 == 1 && segment_length > 4 {
            segment_length /= 2;
        }
        let segment_count = capacity.div_ceil(segment_length).saturating_sub(2).max(1);
        Self { segment_length, segment_count }
    }

    /// Checks a segment length and a segment count from untrusted bytes.
    pub(crate) fn new(segment_length: u32, segment_count: u32) -> Result<Self, DecodeError> {
        let is_wrong = !segment_length.is_power_of_two() || segment_length > MAX_SEGMENT_LENGTH;
        refuse_if(is_wrong, "segment length", segment_length.into(), "a power of two up to 2^18")?;
        let segments = segment_count.checked_add(2);
        let cells = segments.and_then(|segments| segments.checked_mul(segment_length));
        if segment_count == 0 || cells.is_none() {
            let limit = "at least 1, with fewer than 2^32 cells in all";
            return Err(parameter("segment count", segment_count.into(), limit));
        }
        Ok(Self { segment_length, segment_count })
    }

    /// Reads the shape from a word of the directory.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub(super) fn of_word(word: u64) -> Self {
        Self { segment_length: word as u32, segment_count: (word >> 32) as u32 }
    }

    pub(super) fn word(self) -> u64 {
        u64::from(self.segment_count) << 32 | u64::from(self.segment_length)
    }

    /// Returns the number of cells that can be a key's first cell.
    #[inline(always)]
    pub(crate) fn first_places(self) -> u32 {
        self.segment_count * self.segment_length
    }

    /// Returns the number of cells.
    pub(crate) fn cells(self) -> u32 {
        (self.segment_count + 2) * self.segment_length
    }

    /// Returns the indices of the three cells of a mixed hash.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "places are below 2^32")]
    pub(super) fn places(self, hash: u64) -> [u32; 3] {
        let mask = self.segment_length - 1;
        let first = mul_high(hash, u64::from(self.first_places())) as u32;
        let second = (first + self.segment_length) ^ ((hash >> 18) as u32 & mask);
        let third = (first + 2 * self.segment_length) ^ (hash as u32 & mask);
        [first, second, third]
    }
}

/// Mixes a hash with the seed. The positions and the fingerprint of a key are computed from the
/// result.
#[inline(always)]
pub(super) fn mixed(hash: u64, seed: u64) -> u64 {
    fmix64(hash.wrapping_add(seed))
}

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
    pub(super) shape: Segments,
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
        let shape = Segments::for_keys(count, attempt);
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
        shape: Segments,
    ) -> Result<bool, NoMemory> {
        Ok(self.enter(hashes, seed, shape)? && self.take_out(shape) == hashes.len())
    }

    /// Adds all hashes to their cells. Returns `false` if a counter overflows.
    pub(super) fn enter(
        &mut self,
        hashes: &[u64],
        seed: u64,
        shape: Segments,
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
    fn sort(&mut self, hashes: &[u64], seed: u64, shape: Segments) -> Result<(), NoMemory> {
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
    fn count(&mut self, shape: Segments) -> bool {
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
    fn take_out(&mut self, shape: Segments) -> usize {
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

    /// Fills the cells for the keys, in the reverse of the order in which the keys were removed.
    fn fingerprints<F: FuseFingerprint>(&self, shape: Segments) -> Result<Vec<F>, NoMemory> {
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

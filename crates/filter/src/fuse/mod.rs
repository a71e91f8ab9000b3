//! Binary fuse filters: static sets at 9 or 18 bits per key.
//!
//! Each key has a fingerprint of 8 or 16 bits, which equals the exclusive or of three cells of an
//! array. The contents of the cells are computed once the whole set is known. A query reads three
//! cache lines.
//!
//! - **Bits per key**: 9.0 ([`BinaryFuse8`]) and 18.0 ([`BinaryFuse16`]) from 10⁶ keys on, which is
//!   1.125 times the width of the fingerprint. Smaller sets take more: a key takes 1.25 times the
//!   width in a set of 10⁴ keys, and 1.4 times the width in a set of 10³ keys.
//! - **Rate**: 2⁻⁸ = 0.39 % for 8 bits, and 2⁻¹⁶ = 0.0015 % for 16 bits. An empty filter has the
//!   same rate: its cells are zero, and one key in 2⁸ or 2¹⁶ has a fingerprint of zero.
//! - **`true`** means that the key is in the set, or that its fingerprint matches by chance.
//!   `false` is certain.
//! - **Building** needs all keys at once, and temporarily about 25 bytes per key of a shard.
//!   Building may fail for a seed. The construction is then repeated with other seeds and another
//!   segment length, and finally with a larger array. The claim that these filters "never fail" is
//!   wrong: with the segment lengths of the paper, 20 to 40 % of all sets of about 11,500 keys
//!   fail.
//! - **When to use it**: for a static set that is queried often or sent to others. Programs in
//!   other languages can read the layout: [`xor_singleheader`](super::interop::xor_singleheader).
//! - **When not to use it**: for a set that changes (use a cuckoo filter or a watch set), or for
//!   few keys, where an exact table is as small. **What is better**: a [ribbon
//!   filter](super::ribbon::RibbonFilter) is smaller at any rate, but slower. A split-block filter
//!   is faster, but takes more bits at the same rate.
//!
//! Source: Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022.
//!
//! # Bytes
//! The parameters are the number of shards, the number of words, and zero.
//!
//! The body begins with the fingerprints of each shard, in the order of `xor_singleheader`. Each
//! shard starts at a multiple of eight words and is padded with zeros. A directory follows, with
//! four words for each shard:
//!
//! 1. the seed;
//! 2. the segment length in the lower half, and the segment count (the number of segments that can
//!    contain the first cell of a key) in the upper half;
//! 3. the index of the word at which the shard's fingerprints start;
//! 4. the number of keys.
//!
//! A key is in shard `((hash · 0x9e3779b97f4a7c15 mod 2⁶⁴) · shards) >> 64`.

mod shard;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::marker::PhantomData;

use chainsieve_lanes::simd::prefetch;

pub use shard::FuseFingerprint;
pub(super) use shard::Segments;
use shard::{Peeled, mixed};

use super::encoding::{
    DecodeError, EncodeError, Header, Opened, Portable, parameter, refuse_if, refuse_nonzero,
};
use super::hashing::KeyHasher;
use super::membership::Filter;
use super::sizing::BuildError;
use super::static_build::{build_shards, shard_of};
#[cfg(feature = "xor-singleheader")]
use super::words::reserved;
use super::words::{LINE_WORDS, NoMemory, Words};

/// Number of words per shard in the directory.
const ENTRY_WORDS: usize = 4;
/// Sets with more keys than this are split into shards.
const SHARDED_FROM: usize = 1 << 24;
/// Number of keys in a shard of a split set: few enough to need little temporary memory, and enough
/// for 1.125 cells per key.
const SHARD_KEYS: usize = 1 << 22;
/// Filters below this size fit into the nearest caches, where prefetching costs more than it saves.
const PREFETCHED_FROM_BYTES: usize = 2 << 20;
/// Number of keys whose memory is prefetched before the first of them is tested.
const BATCH: usize = 32;

/// Binary fuse filter with 8-bit fingerprints: 9 bits per key, and a rate of 0.39 %.
pub type BinaryFuse8<S = Words> = BinaryFuse<u8, S>;
/// Binary fuse filter with 16-bit fingerprints: 18 bits per key, and a rate of 0.0015 %.
pub type BinaryFuse16<S = Words> = BinaryFuse<u16, S>;
/// A [`BinaryFuse8`] that queries encoded bytes in place, without owning them.
pub type BinaryFuse8Ref<'a> = BinaryFuse<u8, &'a [u64]>;
/// A [`BinaryFuse16`] that queries encoded bytes in place, without owning them.
pub type BinaryFuse16Ref<'a> = BinaryFuse<u16, &'a [u64]>;

/// A binary fuse filter with fingerprints of type `F`: [`BinaryFuse8`] or [`BinaryFuse16`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryFuse<F, S = Words> {
    words: S,
    num_shards: usize,
    /// The first shard, usually the only one, stored here to save reading the directory.
    first: ShardEntry,
    len: u64,
    hasher: KeyHasher,
    fingerprints: PhantomData<F>,
}

/// Seed, shape and position of a shard's fingerprints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ShardEntry {
    seed: u64,
    shape: Segments,
    /// Index of the shard's first fingerprint.
    start: usize,
}

impl<F: FuseFingerprint> BinaryFuse<F> {
    /// Builds the filter of a set from the hashes of its keys under `hasher`. Duplicate hashes are
    /// counted once.
    ///
    /// Sets of more than 2²⁴ hashes are split into shards, which are built on all cores with
    /// feature `rayon`. The encoded bytes do not depend on the order of the hashes. They depend on
    /// the hashes and the number of duplicates, which can change the positions of fingerprints.
    ///
    /// # Errors
    /// Returns an error if there is no memory, or if no seed leads to a filter.
    pub fn build(hashes: &[u64], hasher: KeyHasher) -> Result<Self, BuildError> {
        Self::build_with_seed(hashes, hasher, 0)
    }

    /// Builds the filter of a set from its keys, as [`build`](Self::build) does from hashes.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_from_keys<'k>(
        keys: impl IntoIterator<Item = &'k [u8]>,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let mut hashes = Vec::new();
        hasher.hash_each(keys, &mut hashes);
        Self::build(&hashes, hasher)
    }

    /// Builds the filter of a set, as [`build`](Self::build) does, but starts the search for the
    /// positions of fingerprints from another seed than 0. Filters of different seeds have different
    /// bytes and different false positives.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_with_seed(
        hashes: &[u64],
        hasher: KeyHasher,
        seed: u64,
    ) -> Result<Self, BuildError> {
        let num_shards = match hashes.len() {
            ..=SHARDED_FROM => 1,
            keys => keys.div_ceil(SHARD_KEYS),
        };
        Self::build_of(hashes, num_shards, hasher, seed)
    }

    /// Builds the filter of a set in the given number of shards, as [`build`](Self::build) does. If
    /// the number is zero, the filter has one shard.
    ///
    /// Use one shard to exchange the filter with [other
    /// languages](super::interop::xor_singleheader), or several shards to use more cores.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build). Also returns an error if a shard would
    /// have more than 2³⁰ keys.
    pub fn build_in_shards(
        hashes: &[u64],
        num_shards: usize,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        Self::build_of(hashes, num_shards, hasher, 0)
    }

    fn build_of(
        hashes: &[u64],
        num_shards: usize,
        hasher: KeyHasher,
        seed: u64,
    ) -> Result<Self, BuildError> {
        let built = if num_shards <= 1 {
            Vec::from([shard::build::<F>(hashes, seed)?])
        } else {
            build_shards(hashes, num_shards, |hashes| shard::build::<F>(hashes, seed))?
        };
        Ok(Self::assemble(&built, hasher)?)
    }

    fn assemble(shards: &[Peeled<F>], hasher: KeyHasher) -> Result<Self, NoMemory> {
        let shard_words = |shard: &Peeled<F>| words_of_cells::<F>(shard.shape.cells());
        let all_words = shards.iter().map(shard_words).sum::<usize>();
        let mut words = Words::zeroed((all_words + shards.len() * ENTRY_WORDS) as u64)?;
        let (mut rest, entries) = words.as_mut().split_at_mut(all_words);
        let mut start = 0;
        for (entry, shard) in entries.as_chunks_mut::<ENTRY_WORDS>().0.iter_mut().zip(shards) {
            *entry = [shard.seed, shard.shape.word(), start as u64, shard.keys];
            let (to, behind) = rest.split_at_mut(shard_words(shard));
            let cells: &mut [F] = bytemuck::cast_slice_mut(to);
            for (at, cell) in shard.fingerprints.iter().enumerate() {
                cells[at ^ cell_order::<F>()] = *cell;
            }
            (rest, start) = (behind, start + to.len());
        }
        let len = shards.iter().map(|shard| shard.keys).sum();
        Ok(Self::of_words(words, shards.len(), len, hasher))
    }

    /// Creates a filter of one shard from a foreign layout. `cells` are its fingerprints as
    /// little-endian bytes.
    #[cfg(feature = "xor-singleheader")]
    pub(super) fn of_cells(
        seed: u64,
        shape: Segments,
        keys: u64,
        cells: &[u8],
        hasher: KeyHasher,
    ) -> Result<Self, NoMemory> {
        let fingerprints = cells.chunks_exact(size_of::<F>()).map(|cell| {
            let mut fingerprint = F::default();
            bytemuck::bytes_of_mut(&mut fingerprint).copy_from_slice(cell);
            if cfg!(target_endian = "big") {
                bytemuck::bytes_of_mut(&mut fingerprint).reverse();
            }
            fingerprint
        });
        let mut cells = reserved(cells.len() / size_of::<F>())?;
        cells.extend(fingerprints);
        Self::assemble(&[Peeled { seed, shape, keys, fingerprints: cells }], hasher)
    }
}

impl<F: FuseFingerprint, S: AsRef<[u64]>> BinaryFuse<F, S> {
    fn of_words(words: S, num_shards: usize, len: u64, hasher: KeyHasher) -> Self {
        let first = ShardEntry::of_entry::<F>(words.as_ref(), num_shards, 0);
        Self { words, num_shards, first, len, hasher, fingerprints: PhantomData }
    }

    /// Returns the number of shards that the set is split into.
    pub fn num_shards(&self) -> usize {
        self.num_shards
    }

    /// Returns the seed, the shape and the fingerprints (as words) of the only shard. Returns
    /// `None` if there are several shards.
    #[cfg(feature = "xor-singleheader")]
    pub(super) fn only_shard(&self) -> Option<(u64, Segments, &[u64])> {
        let one = self.num_shards == 1;
        one.then(|| (self.first.seed, self.first.shape, self.words.as_ref()))
    }

    /// Returns the only shard. The constant start of 0 lets the compiler omit an addition per cell.
    #[inline(always)]
    fn only(&self) -> ShardEntry {
        ShardEntry { start: 0, ..self.first }
    }

    #[inline(always)]
    fn cells(&self) -> &[F] {
        bytemuck::cast_slice(self.words.as_ref())
    }

    #[inline(always)]
    fn shard_of(&self, hash: u64) -> ShardEntry {
        let at = shard_of(hash, self.num_shards);
        ShardEntry::of_entry::<F>(self.words.as_ref(), self.num_shards, at)
    }

    #[inline(never)]
    fn contains_in_shards(&self, hash: u64) -> bool {
        let shard = self.shard_of(hash);
        shard.contains(self.cells(), mixed(hash, shard.seed))
    }

    #[inline(always)]
    fn contains_each(
        cells: &[F],
        shard_of: impl Fn(u64) -> ShardEntry,
        hashes: &[u64],
        may_contain: &mut [bool],
    ) {
        let bytes: &[u8] = bytemuck::cast_slice(cells);
        let mut found = [(ShardEntry::default(), 0); BATCH];
        for (hashes, answers) in hashes.chunks(BATCH).zip(may_contain.chunks_mut(BATCH)) {
            for (found, hash) in found.iter_mut().zip(hashes) {
                let shard = shard_of(*hash);
                let mixed = mixed(*hash, shard.seed);
                for place in shard.places::<F>(mixed) {
                    prefetch(&bytes[place * size_of::<F>()]);
                }
                *found = (shard, mixed);
            }
            // Computing the positions again is faster than storing them.
            for (answer, (shard, mixed)) in answers.iter_mut().zip(&found) {
                *answer = shard.contains(cells, *mixed);
            }
        }
    }

    /// Checks a body against its header.
    fn checked(header: &Header, words: S) -> Result<Self, DecodeError> {
        let body = words.as_ref();
        // `words_in_header` has checked that the directory fits the body.
        let num_shards = usize::try_from(header.params[0]).unwrap_or(usize::MAX);
        let (cells, entries) = body.split_at(body.len() - ENTRY_WORDS * num_shards);
        let mut start = 0_usize;
        let mut len = 0_u64;
        for [_, shape, at, keys] in entries.as_chunks::<ENTRY_WORDS>().0 {
            let shape = Segments::of_word(*shape);
            let shape = Segments::new(shape.segment_length, shape.segment_count)?;
            let is_wrong = *at != start as u64;
            refuse_if(is_wrong, "start of a shard", *at, "the end of the preceding shard")?;
            let is_wrong = *keys > u64::from(shape.cells());
            refuse_if(is_wrong, "number of keys", *keys, "at most one for each fingerprint")?;
            start = start.saturating_add(words_of_cells::<F>(shape.cells()));
            let end = cells.get(..start);
            let used = shape.cells() as usize * size_of::<F>() % (8 * LINE_WORDS);
            let unused = end.and_then(<[u64]>::last_chunk::<LINE_WORDS>).map(|line| {
                let bytes = line.iter().flat_map(|word| word.to_le_bytes());
                bytes.skip(if used == 0 { 8 * LINE_WORDS } else { used }).any(|byte| byte != 0)
            });
            match unused {
                None => {
                    return Err(parameter("shape of a shard", start as u64, "within the body"));
                }
                Some(true) => return Err(DecodeError::NotZero("bytes after the fingerprints")),
                Some(false) => len = len.saturating_add(*keys),
            }
        }
        let is_wrong = start != cells.len();
        refuse_if(is_wrong, "number of words", body.len() as u64, "the sum over all shards")?;
        refuse_if(len != header.len, "number of keys", header.len, "the sum over all shards")?;
        Ok(Self::of_words(words, num_shards, len, header.hasher))
    }
}

impl<'a, F: FuseFingerprint> BinaryFuse<F, &'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not exactly one valid filter, or can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, F::KIND, words_in_header)?;
        Self::checked(&opened.header, opened.words_in_place()?)
    }
}

impl<F: FuseFingerprint> Portable for BinaryFuse<F> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let params = [self.num_shards as u64, self.words.as_ref().len() as u64, 0];
        let header = Header { kind: F::KIND, hasher: self.hasher, len: self.len, params };
        header.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, F::KIND, words_in_header)?;
        Self::checked(&opened.header, opened.words()?)
    }
}

impl<F: FuseFingerprint, S: AsRef<[u64]>> Filter for BinaryFuse<F, S> {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline(always)]
    fn contains_hash(&self, hash: u64) -> bool {
        if self.num_shards != 1 {
            return self.contains_in_shards(hash);
        }
        self.only().contains(self.cells(), mixed(hash, self.first.seed))
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        let cells = self.cells();
        if self.num_shards != 1 {
            return Self::contains_each(cells, |hash| self.shard_of(hash), hashes, may_contain);
        }
        let only = self.only();
        // Only filters beyond the nearest caches gain from prefetching.
        if size_of_val(cells) > PREFETCHED_FROM_BYTES {
            return Self::contains_each(cells, |_| only, hashes, may_contain);
        }
        for (answer, hash) in may_contain.iter_mut().zip(hashes) {
            *answer = only.contains(cells, mixed(*hash, only.seed));
        }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    /// Returns the fraction of cells that are assigned to a key.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn fill(&self) -> f64 {
        let words = self.words.as_ref();
        let shards =
            (0..self.num_shards).map(|at| ShardEntry::of_entry::<F>(words, self.num_shards, at));
        let cells: u64 = shards.map(|shard| u64::from(shard.shape.cells())).sum();
        self.len as f64 / cells as f64
    }

    fn expected_fpr(&self) -> f64 {
        libm::exp2(-f64::from(F::BITS))
    }
}

impl ShardEntry {
    /// Reads the entry of a shard in a checked directory.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a place in memory")]
    fn of_entry<F: FuseFingerprint>(words: &[u64], num_shards: usize, at: usize) -> Self {
        let directory = &words[words.len() - ENTRY_WORDS * num_shards..];
        let entry = directory.as_chunks::<ENTRY_WORDS>().0[at];
        let start = entry[2] as usize * (8 / size_of::<F>());
        Self { seed: entry[0], shape: Segments::of_word(entry[1]), start }
    }

    /// Returns the indices of the three cells of a mixed hash.
    #[inline(always)]
    fn places<F: FuseFingerprint>(&self, mixed: u64) -> [usize; 3] {
        let order = cell_order::<F>();
        self.shape.places(mixed).map(|at| self.start + (at as usize ^ order))
    }

    #[inline(always)]
    fn contains<F: FuseFingerprint>(&self, cells: &[F], mixed: u64) -> bool {
        let [a, b, c] = self.places::<F>(mixed);
        F::of(mixed) == cells[a].xor(cells[b]).xor(cells[c])
    }
}

/// Returns the value that is combined by XOR with each cell index. The value is 0, except on
/// big-endian hosts, where the cells of a word lie in the opposite order.
#[inline(always)]
const fn cell_order<F>() -> usize {
    if cfg!(target_endian = "big") { 8 / size_of::<F>() - 1 } else { 0 }
}

fn words_of_cells<F>(cells: u32) -> usize {
    (cells as usize * size_of::<F>()).div_ceil(8 * LINE_WORDS) * LINE_WORDS
}

/// Returns the number of words that a header claims, and checks that the claimed directory fits
/// into them.
fn words_in_header(header: &Header) -> Result<u64, DecodeError> {
    let [num_shards, words, zero] = header.params;
    refuse_nonzero(zero != 0, "the third parameter")?;
    if num_shards == 0 || num_shards > words / (ENTRY_WORDS as u64) {
        return Err(parameter(
            "number of shards",
            num_shards,
            "at least 1, with a directory that fits the body",
        ));
    }
    Ok(words)
}

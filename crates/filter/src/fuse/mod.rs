//! Binary fuse filters: static sets at 9 or 18 bits a key.
//!
//! Each key has a fingerprint of 8 or 16 bits, which is the exclusive or of three cells of an
//! array; the array is solved for when the set is known. A probe reads three cache lines.
//!
//! - **Bits a key**: 9.0 ([`BinaryFuse8`]) and 18.0 ([`BinaryFuse16`]) from 10⁶ keys on, 1.125
//!   times the fingerprint; more below (10⁴: 1.25 times; 10³: 1.4 times).
//! - **Rate**: 2⁻⁸ = 0.39 % and 2⁻¹⁶ = 0.0015 %. An empty filter has it too: its cells are as
//!   zero as one fingerprint in 2⁸ or 2¹⁶.
//! - **`true`** means that the key is in the set or that its fingerprint fits by chance; `false`
//!   is certain.
//! - **Building** takes all keys at once and about 25 bytes a key of the shard for a moment. It
//!   may fail for a seed, and then goes on with others, with the array cut differently, and at
//!   last with a larger array. It is not true that these filters "never fail": layouts with the
//!   segments of the paper fail for 20 to 40 % of all sets of about 11,500 keys.
//! - **When**: the set is static, and asked often, or shipped. Other languages read the layout:
//!   [`xor_singleheader`](super::interop::xor_singleheader).
//! - **When not**: the set changes (cuckoo, watch sets); few keys, where an exact table is as
//!   small. **What beats it**: in bytes a [ribbon](super::ribbon::RibbonFilter), at any rate, for slower
//!   probes; in speed a split-block filter, for more bits at the same rate.
//!
//! Source: Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters", 2022.
//!
//! # Bytes
//! The parameters are the number of shards, the number of words, and zero. The body begins with
//! the fingerprints: those of each shard begin at a multiple of eight words, in the order of
//! `xor_singleheader`, with zeros behind them. Then follow four words for each shard: the seed;
//! the length of its segments and, in the upper half, the number of them that first fingerprints
//! are in; the word at which its fingerprints begin; its keys. A key is in shard
//! `(hash · 0x9e3779b97f4a7c15 mod 2⁶⁴) · shards >> 64`.

mod layout;
mod peeling;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::marker::PhantomData;

use chainsieve_lanes::simd::prefetch;

pub use layout::FuseFingerprint;
pub(super) use layout::Shape;
use layout::mixed;
use peeling::Peeled;

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::KeyHasher;
use super::membership::Filter;
pub use super::static_build::BuildError;
#[cfg(feature = "xor-singleheader")]
use super::static_build::reserved;
use super::static_build::{build_shards, shard_of};
use super::words::{NoMemory, Words};

/// Words of a shard in the directory.
const ENTRY_WORDS: usize = 4;
/// Shards begin at cache lines.
const LINE_WORDS: usize = 8;
/// More keys than this are cut into shards.
const SHARDED_FROM: usize = 1 << 24;
/// Keys of a shard then: few enough for little memory, many enough for 1.125 cells a key.
const SHARD_KEYS: usize = 1 << 22;
/// Smaller filters are in the nearest caches, where asking costs more than it saves.
const PREFETCHED_FROM_BYTES: usize = 2 << 20;
/// Keys whose memory is asked for before the first is tested.
const BATCH: usize = 32;

/// Binary fuse filter with fingerprints of 8 bits: 9 bits a key, 0.39 % false positives.
pub type BinaryFuse8<S = Words> = BinaryFuse<u8, S>;
/// Binary fuse filter with fingerprints of 16 bits: 18 bits a key, 0.0015 % false positives.
pub type BinaryFuse16<S = Words> = BinaryFuse<u16, S>;
/// A [`BinaryFuse8`] in encoded bytes, asked where they are.
pub type BinaryFuse8Ref<'a> = BinaryFuse<u8, &'a [u64]>;
/// A [`BinaryFuse16`] in encoded bytes, asked where they are.
pub type BinaryFuse16Ref<'a> = BinaryFuse<u16, &'a [u64]>;

/// Binary fuse filter: [`BinaryFuse8`], [`BinaryFuse16`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinaryFuse<F, S = Words> {
    words: S,
    num_shards: usize,
    /// The first shard, mostly the only one.
    first: Shard,
    len: u64,
    hasher: KeyHasher,
    fingerprints: PhantomData<F>,
}

/// Where to look for a shard's keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shard {
    seed: u64,
    shape: Shape,
    /// In fingerprints.
    start: usize,
}

impl<F: FuseFingerprint> BinaryFuse<F> {
    /// The filter of a set, given by its hashes under `hasher`. Hashes that are there twice count
    /// once. From 2²⁴ on the set is cut into shards, built on all cores with feature `rayon`.
    ///
    /// The same hashes, in any order, and the same seed give the same bytes: the same as often each,
    /// for those that come again can change where fingerprints lie.
    ///
    /// # Errors
    /// If memory runs out, or no seed works.
    pub fn build(hashes: &[u64], seed: u64, hasher: KeyHasher) -> Result<Self, BuildError> {
        let num_shards = match hashes.len() {
            ..=SHARDED_FROM => 1,
            keys => keys.div_ceil(SHARD_KEYS),
        };
        Self::build_in_shards(hashes, num_shards, seed, hasher)
    }

    /// As [`build`](Self::build), from keys.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_from_keys<'k>(
        keys: impl IntoIterator<Item = &'k [u8]>,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let mut hashes = Vec::new();
        hasher.hash_each(keys, &mut hashes);
        Self::build(&hashes, seed, hasher)
    }

    /// As [`build`](Self::build), in so many shards (at least one): in one whatever the size, as
    /// [other languages](super::interop::xor_singleheader) read it, or in several for more cores.
    ///
    /// # Errors
    /// As [`build`](Self::build); in one shard there can be 2³⁰ keys.
    pub fn build_in_shards(
        hashes: &[u64],
        num_shards: usize,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let built = if num_shards <= 1 {
            Vec::from([peeling::build::<F>(hashes, seed)?])
        } else {
            build_shards(hashes, num_shards, |_, hashes| peeling::build::<F>(hashes, seed))?
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

    /// A filter of one shard, laid out elsewhere; `cells` in little-endian bytes.
    #[cfg(feature = "xor-singleheader")]
    pub(super) fn of_cells(
        seed: u64,
        shape: Shape,
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
        let first = Shard::of_entry::<F>(words.as_ref(), num_shards, 0);
        Self { words, num_shards, first, len, hasher, fingerprints: PhantomData }
    }

    /// Shards that the set is cut into.
    pub fn num_shards(&self) -> usize {
        self.num_shards
    }

    /// The one shard, if there are no more: seed, shape, and the fingerprints as words.
    #[cfg(feature = "xor-singleheader")]
    pub(super) fn only_shard(&self) -> Option<(u64, Shape, &[u64])> {
        let one = self.num_shards == 1;
        one.then(|| (self.first.seed, self.first.shape, self.words.as_ref()))
    }

    /// The one shard there is. That it begins where the body does is said for the compiler.
    #[inline(always)]
    fn only(&self) -> Shard {
        Shard { start: 0, ..self.first }
    }

    #[inline(always)]
    fn cells(&self) -> &[F] {
        bytemuck::cast_slice(self.words.as_ref())
    }

    #[inline(always)]
    fn shard_of(&self, hash: u64) -> Shard {
        let at = shard_of(hash, self.num_shards);
        Shard::of_entry::<F>(self.words.as_ref(), self.num_shards, at)
    }

    #[inline(never)]
    fn contains_in_shards(&self, hash: u64) -> bool {
        let shard = self.shard_of(hash);
        shard.contains(self.cells(), mixed(hash, shard.seed))
    }

    #[inline(always)]
    fn contains_each(
        cells: &[F],
        shard_of: impl Fn(u64) -> Shard,
        hashes: &[u64],
        may_contain: &mut [bool],
    ) {
        let bytes: &[u8] = bytemuck::cast_slice(cells);
        let mut found = [(Shard::default(), 0); BATCH];
        for (hashes, answers) in hashes.chunks(BATCH).zip(may_contain.chunks_mut(BATCH)) {
            for (found, hash) in found.iter_mut().zip(hashes) {
                let shard = shard_of(*hash);
                let mixed = mixed(*hash, shard.seed);
                for place in shard.places::<F>(mixed) {
                    prefetch(&bytes[place * size_of::<F>()]);
                }
                *found = (shard, mixed);
            }
            // To compute the places again is faster than to keep them.
            for (answer, (shard, mixed)) in answers.iter_mut().zip(&found) {
                *answer = shard.contains(cells, *mixed);
            }
        }
    }

    fn header(&self) -> Header {
        let params = [self.num_shards as u64, self.words.as_ref().len() as u64, 0];
        Header { kind: F::KIND, hasher: self.hasher, len: self.len, params }
    }

    /// Checks a body against its header.
    fn checked(header: &Header, words: S) -> Result<Self, DecodeError> {
        let body = words.as_ref();
        // That it fits the body is checked.
        let num_shards = usize::try_from(header.params[0]).unwrap_or(usize::MAX);
        let (cells, entries) = body.split_at(body.len() - ENTRY_WORDS * num_shards);
        let mut start = 0_usize;
        let mut len = 0_u64;
        for [_, shape, at, keys] in entries.as_chunks::<ENTRY_WORDS>().0 {
            let shape = Shape::of_word(*shape);
            let shape = Shape::new(shape.segment_length, shape.segment_count)?;
            if *at != start as u64 {
                return Err(parameter("start of a shard", *at, "the end of the one before"));
            }
            if *keys > u64::from(shape.cells()) {
                return Err(parameter("number of keys", *keys, "at most one for each fingerprint"));
            }
            start = start.saturating_add(words_of_cells::<F>(shape.cells()));
            let end = cells.get(..start);
            let used = shape.cells() as usize * size_of::<F>() % (8 * LINE_WORDS);
            let unused = end.and_then(<[u64]>::last_chunk::<LINE_WORDS>).map(|line| {
                let bytes = line.iter().flat_map(|word| word.to_le_bytes());
                bytes.skip(if used == 0 { 8 * LINE_WORDS } else { used }).any(|byte| byte != 0)
            });
            match unused {
                None => {
                    return Err(parameter(
                        "shape of a shard",
                        start as u64,
                        "one that fits the body",
                    ));
                }
                Some(true) => return Err(DecodeError::NotZero("behind the fingerprints")),
                Some(false) => len = len.saturating_add(*keys),
            }
        }
        if start != cells.len() {
            return Err(parameter(
                "number of words",
                body.len() as u64,
                "as many as the shards have",
            ));
        }
        if len != header.len {
            return Err(parameter("number of keys", header.len, "the sum of the shards'"));
        }
        Ok(Self::of_words(words, num_shards, len, header.hasher))
    }
}

impl<'a, F: FuseFingerprint> BinaryFuse<F, &'a [u64]> {
    /// The filter in these bytes, which [`Portable::encode`] made, without a copy.
    ///
    /// # Errors
    /// If the bytes are anything else, or can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, F::KIND, words_in_header)?;
        Self::checked(&opened.header, opened.words_in_place()?)
    }
}

impl<F: FuseFingerprint> Portable for BinaryFuse<F> {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.header().encode(&[self.words.as_ref()])
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

    /// The share of fingerprints that a key owns.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn fill(&self) -> f64 {
        let words = self.words.as_ref();
        let shards =
            (0..self.num_shards).map(|at| Shard::of_entry::<F>(words, self.num_shards, at));
        let cells: u64 = shards.map(|shard| u64::from(shard.shape.cells())).sum();
        self.len as f64 / cells as f64
    }

    fn expected_fpr(&self) -> f64 {
        libm::exp2(-f64::from(F::BITS))
    }
}

impl Shard {
    /// Of a directory that was checked.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a place in memory")]
    fn of_entry<F: FuseFingerprint>(words: &[u64], num_shards: usize, at: usize) -> Self {
        let directory = &words[words.len() - ENTRY_WORDS * num_shards..];
        let entry = directory.as_chunks::<ENTRY_WORDS>().0[at];
        let start = entry[2] as usize * (8 / size_of::<F>());
        Self { seed: entry[0], shape: Shape::of_word(entry[1]), start }
    }

    /// The three places of a mixed hash.
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

/// What an index has to be changed by where words are big-endian.
#[inline(always)]
const fn cell_order<F>() -> usize {
    if cfg!(target_endian = "big") { 8 / size_of::<F>() - 1 } else { 0 }
}

fn words_of_cells<F>(cells: u32) -> usize {
    (cells as usize * size_of::<F>()).div_ceil(8 * LINE_WORDS) * LINE_WORDS
}

/// The words that a header speaks of, at least those of the directory it speaks of.
fn words_in_header(header: &Header) -> Result<u64, DecodeError> {
    let [num_shards, words, zero] = header.params;
    if zero != 0 {
        return Err(DecodeError::NotZero("the third parameter"));
    }
    if num_shards == 0 || num_shards > words / (ENTRY_WORDS as u64) {
        return Err(parameter(
            "number of shards",
            num_shards,
            "at least 1, with a directory in the body",
        ));
    }
    Ok(words)
}

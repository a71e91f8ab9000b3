//! Ribbon filters: static sets at 1.03 times the theoretical minimum of bits.
//!
//! Each key is a linear equation over 128 neighbouring slots. The filter stores the solution of all
//! equations, with as many bits (columns) per slot as the rate requires. A query evaluates the
//! equation column by column and stops at the first columns that contradict it.
//!
//! - **Bits per key**: 1.02 to 1.04 times the number of columns, from 10⁴ keys on. For rates
//!   between two powers of two, some blocks have one column less, which costs up to 1.3 % more
//!   bits. A rate of 1 % takes 6.9 bits per key. At 1 % a Bloom filter takes 9.6 bits per key, and
//!   no fuse filter has this rate.
//! - **Rate**: any rate from 1/2 to 2⁻³². An empty filter has this rate too.
//! - **`true`** means that the key is in the set, or that its equation holds by chance. `false` is
//!   certain.
//! - **Cost**: a query computes 128 bits of coefficients, and reads 16 bytes per column from each
//!   of two adjacent blocks. For a key that is not in the set, a query reads two to four cache
//!   lines.
//! - **When to use it**: if size matters most, as for a set that is sent to others, or if no other
//!   static filter has the required rate. **When not to use it**: if the set changes, or if queries
//!   must be fast. **What is better**: queries of a [fuse filter](super::fuse::BinaryFuse) are two
//!   to three times as fast, for 9 to 10 % more bits. Bumped ribbon filters take 1.01 times the
//!   minimum, but a query may have to look in a second place.
//!
//! Large sets are split into shards of about 2¹⁴ keys, each with a system of equations of its own.
//! The reason is that larger systems need more slots per key at the same width of 128.
//!
//! Source: Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021.
//!
//! # Bytes
//! The first parameter contains the number of columns (lowest 8 bits), the number of shards (next
//! 24 bits), and the share of starts with one column less, in units of 2⁻³² (upper half). The
//! second parameter is the number of words, and the third is the seed.
//!
//! The body begins with the blocks of each shard. A block has 128 slots and is stored column by
//! column. A column takes two words, and its lowest bit belongs to the first slot. In each shard,
//! the first `(((128 · blocks - 127) · share) >> 32) / 128` blocks have one column less.
//!
//! A directory follows, with one word for each shard: its number of blocks (16 bits), the ordinal
//! of its seed (8 bits), and the index at which its blocks start, in pairs of words (40 bits).

mod shard;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Backend, Kernel, prefetch};

use shard::{Columns, Equation, MAX_COLUMNS, Solved, WIDTH, mixed, starts};

use super::encoding::{
    DecodeError, EncodeError, Header, Kind, Opened, Portable, parameter, refuse_if,
};
use super::hashing::KeyHasher;
use super::membership::Filter;
use super::sizing::{BuildError, checked};
use super::static_build::{build_shards, shard_of};
use super::words::{NoMemory, Words};

/// Number of keys in a shard: few enough that the system of equations needs few extra slots, and
/// enough that rounding to blocks and the directory take little memory.
const SHARD_KEYS: usize = 1 << 14;
/// Number of keys whose memory is prefetched before the first of them is tested.
const BATCH: usize = 32;
/// Number of bytes in a column of a block.
const WORD_BYTES: usize = 16;
/// Number of columns that are tested with one branch.
const GROUP: usize = 4;

/// A ribbon filter: a static set with any rate from 1/2 to 2⁻³².
#[derive(Debug, Clone, PartialEq)]
pub struct RibbonFilter<S = Words> {
    words: S,
    columns: Columns,
    num_shards: usize,
    seed: u64,
    len: u64,
    expected_fpr: f64,
    hasher: KeyHasher,
    backend: Backend,
}

/// A [`RibbonFilter`] that queries encoded bytes in place, without owning them.
pub type RibbonFilterRef<'a> = RibbonFilter<&'a [u64]>;

impl RibbonFilter {
    /// Builds the filter of a set from the hashes of its keys under `hasher`, with a rate of at
    /// most `fpr`. Duplicate hashes are counted once.
    ///
    /// Shards are built on all cores with feature `rayon`. The encoded bytes do not depend on the
    /// order of the hashes. They depend on the hashes and the number of duplicates, which can change
    /// the number of shards.
    ///
    /// # Errors
    /// Returns an error if `fpr` is not between 0 and 1 or is below 2⁻³², if collisions of 64-bit
    /// hashes would exceed the rate, if there is no memory, or if no seed leads to a filter.
    pub fn build(hashes: &[u64], fpr: f64, hasher: KeyHasher) -> Result<Self, BuildError> {
        Self::build_with_seed(hashes, fpr, hasher, 0)
    }

    /// Builds the filter of a set from its keys, as [`build`](Self::build) does from hashes.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_from_keys<'k>(
        keys: impl IntoIterator<Item = &'k [u8]>,
        fpr: f64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let mut hashes = Vec::new();
        hasher.hash_each(keys, &mut hashes);
        Self::build(&hashes, fpr, hasher)
    }

    /// Builds the filter of a set, as [`build`](Self::build) does, but with equations of another seed
    /// than 0. Filters of different seeds have different bytes and different false positives.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_with_seed(
        hashes: &[u64],
        fpr: f64,
        hasher: KeyHasher,
        seed: u64,
    ) -> Result<Self, BuildError> {
        let best = libm::exp2(-f64::from(MAX_COLUMNS));
        if checked(fpr)? < best {
            return Err(BuildError::OutOfReach { fpr, layout: "a ribbon filter", best });
        }
        Self::build_of(hashes, Columns::for_fpr(fpr), hasher, seed)
    }

    /// Builds the filter of a set, as [`build`](Self::build) does, with a rate of 2⁻ᶜ for `c`
    /// columns, from 1 to 32.
    ///
    /// # Errors
    /// Returns the same errors as [`build`](Self::build). Also returns an error if `columns` is not
    /// from 1 to 32.
    pub fn build_with_columns(
        hashes: &[u64],
        columns: u32,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        BuildError::unless_within("a number of columns", columns.into(), MAX_COLUMNS.into())?;
        Self::build_of(hashes, Columns { most: columns, lower_share: 0 }, hasher, 0)
    }

    fn build_of(
        hashes: &[u64],
        columns: Columns,
        hasher: KeyHasher,
        seed: u64,
    ) -> Result<Self, BuildError> {
        check_hash_width(hashes.len() as u64, columns)?;
        let num_shards = hashes.len().div_ceil(SHARD_KEYS).max(1);
        let solved = if num_shards == 1 {
            Vec::from([shard::build(hashes, seed, columns)?])
        } else {
            build_shards(hashes, num_shards, |hashes| shard::build(hashes, seed, columns))?
        };
        Ok(Self::assemble(&solved, columns, seed, hasher)?)
    }

    fn assemble(
        shards: &[Solved],
        columns: Columns,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, NoMemory> {
        let all_words = shards.iter().map(|shard| shard.words.len()).sum::<usize>();
        let mut words = Words::zeroed((all_words + shards.len()) as u64)?;
        let (mut rest, entries) = words.as_mut().split_at_mut(all_words);
        let mut start = 0;
        for (entry, shard) in entries.iter_mut().zip(shards) {
            *entry = ShardEntry { blocks: shard.blocks, attempt: shard.attempt, start }.word();
            let (to, behind) = rest.split_at_mut(shard.words.len());
            to.copy_from_slice(&shard.words);
            (rest, start) = (behind, start + to.len() / 2);
        }
        let len = shards.iter().map(|shard| shard.keys).sum();
        Ok(Self::of_words(words, columns, shards.len(), seed, len, hasher))
    }
}

/// Returns an error if collisions of 64-bit hashes, which no column can tell apart, would exceed a
/// twentieth of the rate.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn check_hash_width(keys: u64, columns: Columns) -> Result<(), BuildError> {
    let fpr = columns.fpr(1);
    if keys as f64 * libm::exp2(-64.0) > fpr / 20.0 {
        return Err(BuildError::HashTooShort { capacity: keys, fpr, bits: 64 });
    }
    Ok(())
}

impl<S: AsRef<[u64]>> RibbonFilter<S> {
    fn of_words(
        words: S,
        columns: Columns,
        num_shards: usize,
        seed: u64,
        len: u64,
        hasher: KeyHasher,
    ) -> Self {
        let (expected_fpr, backend) = (0.0, Backend::best());
        let mut filter =
            Self { words, columns, num_shards, seed, len, expected_fpr, hasher, backend };
        filter.expected_fpr = filter.mean_fpr();
        filter
    }

    /// Returns the mean rate over all shards. Keys that are not in the set are spread evenly over
    /// the shards, and over the starts in each shard.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    fn mean_fpr(&self) -> f64 {
        if self.columns.lower_share == 0 {
            return libm::exp2(-f64::from(self.columns.most));
        }
        let rate = |entry: &u64| self.columns.fpr(ShardEntry::of_word(*entry).blocks);
        self.directory().iter().map(rate).sum::<f64>() / self.num_shards as f64
    }

    /// Returns the number of columns: the number of bits per slot, in the blocks that have the most
    /// columns.
    pub fn columns(&self) -> u32 {
        self.columns.most
    }

    /// Returns the number of shards that the set is split into.
    pub fn num_shards(&self) -> usize {
        self.num_shards
    }

    #[inline(always)]
    fn directory(&self) -> &[u64] {
        let words = self.words.as_ref();
        &words[words.len() - self.num_shards..]
    }

    #[inline(always)]
    fn lookup(&self, directory: &[u64], hash: u64) -> Lookup {
        let shard = ShardEntry::of_word(directory[shard_of(hash, self.num_shards)]);
        let mixed = mixed(hash, self.seed, shard.attempt);
        let equation = Equation::of(mixed, starts(shard.blocks));
        let lower = self.columns.lower_blocks(shard.blocks);
        let (block, shift) = (equation.start / WIDTH, equation.start % WIDTH);
        let first = shard.start + self.columns.block_start(block, lower);
        let columns = self.columns.of_block(block, lower);
        // In the last block, an equation can start only at the first slot, because it spans as many
        // slots as a block has. Such an equation needs no second block, so `second` stays in
        // bounds.
        let (second, rest) = match shift {
            0 => (first, 0),
            _ => (first + columns as usize, equation.coefficients >> (WIDTH - shift)),
        };
        let coefficients = [equation.coefficients << shift, rest];
        Lookup { first, second, columns, coefficients, result: equation.result }
    }

    /// Checks a body against its header.
    fn checked(header: &Header, words: S) -> Result<Self, DecodeError> {
        let (columns, num_shards) = shape_of(header)?;
        let body = words.as_ref();
        // `words_in_header` has checked that the body has a word for each shard.
        let (solution, entries) = body.split_at(body.len() - num_shards);
        let (mut start, mut slots) = (0, 0_u64);
        for entry in entries {
            let shard = ShardEntry::of_word(*entry);
            let limit = "the end of the preceding shard";
            refuse_if(shard.start != start, "start of a shard", shard.start as u64, limit)?;
            refuse_if(shard.blocks == 0, "blocks of a shard", 0, "at least 1")?;
            start += columns.words_of(shard.blocks);
            slots += u64::from(shard.blocks * WIDTH);
        }
        let is_wrong = start.checked_mul(2) != Some(solution.len());
        refuse_if(is_wrong, "number of words", body.len() as u64, "the sum over all shards")?;
        refuse_if(header.len > slots, "number of keys", header.len, "at most the number of slots")?;
        Ok(Self::of_words(words, columns, num_shards, header.params[2], header.len, header.hasher))
    }
}

impl<'a> RibbonFilter<&'a [u64]> {
    /// Opens an encoded filter in place, without copying its bytes.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not exactly one valid filter, or can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Ribbon, words_in_header)?;
        Self::checked(&opened.header, opened.words_in_place()?)
    }
}

impl Portable for RibbonFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let shape = self.columns.param() | (self.num_shards as u64) << 8;
        let params = [shape, self.words.as_ref().len() as u64, self.seed];
        let header = Header { kind: Kind::Ribbon, hasher: self.hasher, len: self.len, params };
        header.encode(&[self.words.as_ref()])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Ribbon, words_in_header)?;
        Self::checked(&opened.header, opened.words()?)
    }
}

impl<S: AsRef<[u64]>> Filter for RibbonFilter<S> {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    #[inline]
    fn contains_hash(&self, hash: u64) -> bool {
        self.backend.run(One { filter: self, hash })
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        assert_eq!(hashes.len(), may_contain.len(), "an answer for every hash");
        self.backend.run(Batch { filter: self, hashes, may_contain });
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn num_bits(&self) -> u64 {
        self.words.as_ref().len() as u64 * 64
    }

    /// Returns the fraction of slots that are determined by a key.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn fill(&self) -> f64 {
        let slots = |entry: &u64| u64::from(ShardEntry::of_word(*entry).blocks * WIDTH);
        self.len as f64 / self.directory().iter().map(slots).sum::<u64>() as f64
    }

    fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }
}

// Vector lanes do not make these kernels faster. The kernels run on a backend only to use its
// instruction that counts bits.

struct One<'a, S> {
    filter: &'a RibbonFilter<S>,
    hash: u64,
}

impl<S: AsRef<[u64]>> Kernel for One<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn scalar(self) -> bool {
        let Self { filter, hash } = self;
        filter.lookup(filter.directory(), hash).holds(filter.words.as_ref().as_chunks().0)
    }
}

struct Batch<'a, S> {
    filter: &'a RibbonFilter<S>,
    hashes: &'a [u64],
    may_contain: &'a mut [bool],
}

impl<S: AsRef<[u64]>> Kernel for Batch<'_, S> {
    type Output = ();

    #[inline(always)]
    fn scalar(self) {
        let Self { filter, hashes, may_contain } = self;
        let (directory, words) = (filter.directory(), filter.words.as_ref());
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let mut lookups = [Lookup::default(); BATCH];
        for (hashes, answers) in hashes.chunks(BATCH).zip(may_contain.chunks_mut(BATCH)) {
            for (lookup, hash) in lookups.iter_mut().zip(hashes) {
                *lookup = filter.lookup(directory, *hash);
                prefetch(&bytes[lookup.first * WORD_BYTES]);
                prefetch(&bytes[lookup.second * WORD_BYTES]);
            }
            for (answer, lookup) in answers.iter_mut().zip(&lookups) {
                *answer = lookup.holds(words.as_chunks().0);
            }
        }
    }
}

/// The entry of a shard in the directory.
#[derive(Debug, Clone, Copy)]
struct ShardEntry {
    blocks: u32,
    attempt: u32,
    /// Index of the shard's first block, in words of 128 bits.
    start: usize,
}

impl ShardEntry {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a place in memory")]
    fn of_word(word: u64) -> Self {
        let (blocks, attempt) = (word as u32 & 0xffff, (word >> 16) as u32 & 0xff);
        Self { blocks, attempt, start: (word >> 24) as usize }
    }

    fn word(self) -> u64 {
        (self.start as u64) << 24 | u64::from(self.attempt) << 16 | u64::from(self.blocks)
    }
}

/// The equation of a key and the positions of its columns.
#[derive(Debug, Clone, Copy, Default)]
struct Lookup {
    /// Index of the first block, in words of 128 bits.
    first: usize,
    /// Index of the second block, in words of 128 bits.
    second: usize,
    columns: u32,
    /// The coefficients of the slots in each of the two blocks.
    coefficients: [u128; 2],
    result: u32,
}

impl Lookup {
    /// Returns `true` if the equation holds in every column.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "halves of words")]
    fn holds(&self, words: &[[u64; 2]]) -> bool {
        let columns = self.columns as usize;
        let [a, b] = self.coefficients.map(|bits| [bits as u64, (bits >> 64) as u64]);
        let parity = |x: &[u64; 2], y: &[u64; 2]| {
            let bits = (x[0] & a[0]) ^ (x[1] & a[1]) ^ (y[0] & b[0]) ^ (y[1] & b[1]);
            bits.count_ones() & 1
        };
        let (first, second) = (&words[self.first..], &words[self.second..]);
        let (first, rest_of_first) = first[..columns].as_chunks::<GROUP>();
        let (second, rest_of_second) = second[..columns].as_chunks::<GROUP>();
        let mut result = self.result;
        for ([x0, x1, x2, x3], [y0, y1, y2, y3]) in first.iter().zip(second) {
            let low = parity(x0, y0) | parity(x1, y1) << 1;
            let found = low | parity(x2, y2) << 2 | parity(x3, y3) << 3;
            if (found ^ result) & 0xf != 0 {
                return false;
            }
            result >>= GROUP;
        }
        let rest = rest_of_first.iter().zip(rest_of_second);
        let found = rest.rev().fold(0, |found, (x, y)| found << 1 | parity(x, y));
        (found ^ result) & ((1 << rest_of_first.len()) - 1) == 0
    }
}

/// Reads the columns and the number of shards from a header.
fn shape_of(header: &Header) -> Result<(Columns, usize), DecodeError> {
    let [shape, words, _] = header.params;
    let num_shards = shape >> 8 & 0xff_ffff;
    let limit = "at least 1, with a directory that fits the body";
    let wrong = parameter("number of shards", num_shards, limit);
    let checked = usize::try_from(num_shards).ok().filter(|_| (1..=words).contains(&num_shards));
    Ok((Columns::new(shape & 0xff, shape >> 32)?, checked.ok_or(wrong)?))
}

/// Returns the number of words that a header claims, and checks that the claimed directory fits
/// into them.
fn words_in_header(header: &Header) -> Result<u64, DecodeError> {
    shape_of(header)?;
    Ok(header.params[1])
}

//! Ribbon filters: static sets at 1.03 times the bits that any filter needs.
//!
//! Each key is an equation over 128 neighbouring slots, whose solution, of as many bits a slot as
//! the rate asks for, is what the filter stores. A probe evaluates the equation column by column
//! and stops at a column that contradicts.
//!
//! - **Bits a key**: 1.02 to 1.04 times the columns from 10⁴ keys on; between whole numbers of
//!   columns the rate costs up to 1.3 % more, because some blocks have one column fewer. One
//!   percent takes 6.9 bits (a Bloom filter 9.6, a fuse filter cannot have it).
//! - **Rate**: any from 1/2 to 2⁻³². An empty filter has it too.
//! - **`true`** means that the key is in the set or that its equation holds by chance; `false` is
//!   certain.
//! - **Cost**: a probe computes 128 bits of coefficients and reads two blocks of 16 bytes a column,
//!   which neighbour each other: two to four cache lines when the key is absent.
//! - **When**: bytes are what counts, as for a set that is shipped, or the rate is none that other
//!   static filters have. **When not**: the set changes; probes are what counts.
//!   **What beats it**: a [fuse filter](super::fuse::BinaryFuse) is two to three times as fast to ask,
//!   for 9 to 10 % more bits; bumped ribbons take 1.01 times the bits, for a second place to look.
//!
//! Large sets are cut into shards of about 2¹⁴ keys, each a system of its own: the larger a
//! system, the more slots it needs for 128 to be width enough.
//!
//! Source: Dillinger and Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021.
//!
//! # Bytes
//! The parameters are columns (lowest eight bits), the number of shards (24 bits) and the share
//! of starts with one column fewer (upper half); the number of words; the seed. The body begins
//! with the shards' blocks, one shard after another: of each block of 128 slots column after
//! column, of each column two words, the lowest bit that of the first slot. Of the blocks of a
//! shard the first `((128 · blocks - 127) · share >> 32) / 128` have one column fewer. Then
//! follows one word for each shard: its blocks (16 bits), the ordinal of its seed (8), where its
//! blocks begin, in pairs of words (40).

mod banding;
mod layout;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use chainsieve_lanes::simd::{Backend, Kernel, Lanes, prefetch};

use banding::Solved;
use layout::{Columns, Equation, MAX_COLUMNS, WIDTH, mixed, starts};

use super::encoding::{DecodeError, EncodeError, Header, Opened, Portable, parameter};
use super::hashing::KeyHasher;
use super::kind::Kind;
use super::membership::Filter;
use super::sizing::{SizingError, checked};
pub use super::static_build::BuildError;
use super::static_build::{build_shards, shard_of};
use super::words::{NoMemory, Words};

/// Keys of a shard: few enough for little overhead, many enough that rounding to blocks and the
/// directory cost little.
const SHARD_KEYS: usize = 1 << 14;
/// Keys whose memory is asked for before the first is tested.
const BATCH: usize = 32;
/// Bytes of a column of a block.
const WORD_BYTES: usize = 16;
/// Columns that are tested at once.
const GROUP: usize = 4;

/// Ribbon filter.
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

/// A [`RibbonFilter`] in encoded bytes, asked where they are.
pub type RibbonFilterRef<'a> = RibbonFilter<&'a [u64]>;

impl RibbonFilter {
    /// The filter of a set, given by its hashes under `hasher`, with a rate of `fpr` or a little
    /// less. Hashes that are there twice count once. Shards are built on all cores with feature
    /// `rayon`.
    ///
    /// The same hashes, in any order, and the same seed give the same bytes: the same as often each,
    /// for those that come again can change into how many shards the set is cut.
    ///
    /// # Errors
    /// If the rate is none, is below 2⁻³² or would be spoilt by keys that share a hash; if memory
    /// runs out, or no seed works.
    pub fn build(
        hashes: &[u64],
        fpr: f64,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        checked(fpr)?;
        let best = libm::exp2(-f64::from(MAX_COLUMNS));
        if fpr < best {
            return Err(SizingError::OutOfReach { fpr, layout: "a ribbon filter", best }.into());
        }
        Self::build_of(hashes, Columns::for_fpr(fpr), seed, hasher)
    }

    /// As [`build`](Self::build), with a rate of 2⁻ᶜ for `c` columns, from 1 to 32.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with_columns(
        hashes: &[u64],
        columns: u32,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let columns = Columns::new(columns.into(), 0).map_err(|_| SizingError::Parameter {
            what: "number of columns",
            value: columns.into(),
            min: 1,
            max: MAX_COLUMNS.into(),
        })?;
        Self::build_of(hashes, columns, seed, hasher)
    }

    /// As [`build`](Self::build), from keys.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_from_keys<'k>(
        keys: impl IntoIterator<Item = &'k [u8]>,
        fpr: f64,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        let mut hashes = Vec::new();
        hasher.hash_each(keys, &mut hashes);
        Self::build(&hashes, fpr, seed, hasher)
    }

    fn build_of(
        hashes: &[u64],
        columns: Columns,
        seed: u64,
        hasher: KeyHasher,
    ) -> Result<Self, BuildError> {
        check_hash_width(hashes.len() as u64, columns)?;
        let num_shards = hashes.len().div_ceil(SHARD_KEYS).max(1);
        let solved = if num_shards == 1 {
            Vec::from([banding::build(hashes, seed, columns)?])
        } else {
            build_shards(hashes, num_shards, |_, hashes| banding::build(hashes, seed, columns))?
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
            *entry = Shard { blocks: shard.blocks, attempt: shard.attempt, start }.word();
            let (to, behind) = rest.split_at_mut(shard.words.len());
            to.copy_from_slice(&shard.words);
            (rest, start) = (behind, start + to.len() / 2);
        }
        let len = shards.iter().map(|shard| shard.keys).sum();
        Ok(Self::of_words(words, columns, shards.len(), seed, len, hasher))
    }
}

/// Keys that share a hash are false positives that no column tells apart.
#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn check_hash_width(keys: u64, columns: Columns) -> Result<(), SizingError> {
    let fpr = columns.fpr(1);
    if keys as f64 * libm::exp2(-64.0) > fpr / 20.0 {
        return Err(SizingError::HashTooShort { capacity: keys, fpr, bits: 64 });
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

    /// Strangers are spread evenly over the shards, and over the starts of each.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    fn mean_fpr(&self) -> f64 {
        if self.columns.lower_share == 0 {
            return libm::exp2(-f64::from(self.columns.most));
        }
        let rate = |entry: &u64| self.columns.fpr(Shard::of_word(*entry).blocks);
        self.directory().iter().map(rate).sum::<f64>() / self.num_shards as f64
    }

    /// Columns: the bits of a slot, in those blocks that have the most.
    pub fn columns(&self) -> u32 {
        self.columns.most
    }

    /// Shards that the set is cut into.
    pub fn num_shards(&self) -> usize {
        self.num_shards
    }

    #[inline(always)]
    fn directory(&self) -> &[u64] {
        let words = self.words.as_ref();
        &words[words.len() - self.num_shards..]
    }

    #[inline(always)]
    fn probe(&self, directory: &[u64], hash: u64) -> Probe {
        let shard = Shard::of_word(directory[shard_of(hash, self.num_shards)]);
        let mixed = mixed(hash, self.seed, shard.attempt);
        let equation = Equation::of(mixed, starts(shard.blocks));
        let lower = self.columns.lower_blocks(shard.blocks);
        let (block, shift) = (equation.start / WIDTH, equation.start % WIDTH);
        let first = shard.start + self.columns.block_start(block, lower);
        let columns = self.columns.of_block(block, lower);
        // The last block is only met by equations that begin where it does.
        let (second, rest) = match shift {
            0 => (first, 0),
            _ => (first + columns as usize, equation.coefficients >> (WIDTH - shift)),
        };
        let coefficients = [equation.coefficients << shift, rest];
        Probe { first, second, columns, coefficients, result: equation.result }
    }

    fn header(&self) -> Header {
        let shape = self.columns.param() | (self.num_shards as u64) << 8;
        let params = [shape, self.words.as_ref().len() as u64, self.seed];
        Header { kind: Kind::Ribbon, hasher: self.hasher, len: self.len, params }
    }

    /// Checks a body against its header.
    fn checked(header: &Header, words: S) -> Result<Self, DecodeError> {
        let (columns, num_shards) = shape_of(header)?;
        let body = words.as_ref();
        // That there are as many is checked.
        let (solution, entries) = body.split_at(body.len() - num_shards);
        let (mut start, mut slots) = (0, 0_u64);
        for entry in entries {
            let shard = Shard::of_word(*entry);
            if shard.start != start {
                return Err(parameter(
                    "start of a shard",
                    shard.start as u64,
                    "the end of the one before",
                ));
            }
            if shard.blocks == 0 {
                return Err(parameter("blocks of a shard", 0, "at least 1"));
            }
            start += columns.words_of(shard.blocks);
            slots += u64::from(shard.blocks * WIDTH);
        }
        if start.checked_mul(2) != Some(solution.len()) {
            return Err(parameter(
                "number of words",
                body.len() as u64,
                "as many as the shards have",
            ));
        }
        if header.len > slots {
            return Err(parameter("number of keys", header.len, "at most one for each slot"));
        }
        Ok(Self::of_words(words, columns, num_shards, header.params[2], header.len, header.hasher))
    }
}

impl<'a> RibbonFilter<&'a [u64]> {
    /// The filter in these bytes, which [`Portable::encode`] made, without a copy.
    ///
    /// # Errors
    /// If the bytes are anything else, or can't be read in place.
    pub fn view(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = Opened::read(bytes, Kind::Ribbon, words_in_header)?;
        Self::checked(&opened.header, opened.words_in_place()?)
    }
}

impl Portable for RibbonFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.header().encode(&[self.words.as_ref()])
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

    /// The share of slots that a key decides.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn fill(&self) -> f64 {
        let slots = |entry: &u64| u64::from(Shard::of_word(*entry).blocks * WIDTH);
        self.len as f64 / self.directory().iter().map(slots).sum::<u64>() as f64
    }

    fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }
}

// Neither is faster over lanes: what they gain is one instruction to count bits.

struct One<'a, S> {
    filter: &'a RibbonFilter<S>,
    hash: u64,
}

impl<S: AsRef<[u64]>> Kernel for One<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn scalar(self) -> bool {
        let Self { filter, hash } = self;
        filter.probe(filter.directory(), hash).holds(filter.words.as_ref().as_chunks().0)
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) -> bool {
        self.scalar()
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
        let mut probes = [Probe::default(); BATCH];
        for (hashes, answers) in hashes.chunks(BATCH).zip(may_contain.chunks_mut(BATCH)) {
            for (probe, hash) in probes.iter_mut().zip(hashes) {
                *probe = filter.probe(directory, *hash);
                prefetch(&bytes[probe.first * WORD_BYTES]);
                prefetch(&bytes[probe.second * WORD_BYTES]);
            }
            for (answer, probe) in answers.iter_mut().zip(&probes) {
                *answer = probe.holds(words.as_chunks().0);
            }
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) {
        self.scalar();
    }
}

/// What the directory says of a shard.
#[derive(Debug, Clone, Copy)]
struct Shard {
    blocks: u32,
    attempt: u32,
    /// In words of 128 bits.
    start: usize,
}

impl Shard {
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

/// An equation, and where its columns are.
#[derive(Debug, Clone, Copy, Default)]
struct Probe {
    /// Where its first block begins, in words of 128 bits.
    first: usize,
    /// Where the next one does.
    second: usize,
    columns: u32,
    /// Over the slots of either.
    coefficients: [u128; 2],
    result: u32,
}

impl Probe {
    /// Whether the equation holds in every column.
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

/// Columns and shards of a header.
fn shape_of(header: &Header) -> Result<(Columns, usize), DecodeError> {
    let [shape, words, _] = header.params;
    let num_shards = shape >> 8 & 0xff_ffff;
    let limit = "at least 1, with a word each in the body";
    let wrong = parameter("number of shards", num_shards, limit);
    let checked = usize::try_from(num_shards).ok().filter(|_| (1..=words).contains(&num_shards));
    Ok((Columns::new(shape & 0xff, shape >> 32)?, checked.ok_or(wrong)?))
}

/// The words that a header speaks of, at least those of the directory it speaks of.
fn words_in_header(header: &Header) -> Result<u64, DecodeError> {
    shape_of(header)?;
    Ok(header.params[1])
}

//! The command `filter build`, and how it fills filters.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chainsieve_filter::bloom::{BloomFilter, CompressedBloomFilter, OpenedBloomFilter};
use chainsieve_filter::cuckoo::CuckooFilter;
use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse16};
use chainsieve_filter::hashing::KeyHash;
use chainsieve_filter::interop::guava::GuavaBloomFilter;
use chainsieve_filter::membership::Full;
use chainsieve_filter::ribbon::RibbonFilter;
use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::scalable::ScalableBloomFilter;
use chainsieve_filter::sizing::{BuildError, blocked, classic};
use chainsieve_filter::split_block::{Bits256, Bits512, BlockShape, SplitBlockFilter};
use chainsieve_filter::textbook::{CountingBloomFilter, PartitionedBloomFilter};
use chainsieve_filter::{AnyFilter, Filter as _, Insert, KeyHasher, Kind};
use chainsieve_report::{Progress, Reader, Report, Status, UsageError, grouped, named, rate};
use rayon::slice::ParallelSliceMut as _;
use serde_json::json;

use super::convert::Asked;
use super::keys::{KeyLines, hash_words, hasher, seed_hex};
use super::{bits_per_key, check_out, param_words, params_json, size_words};
use super::{write_out, written_report};
use crate::args::filter::{BuildArgs, HashName, Made};

/// Default false-positive rate of kinds without a rate of their own.
const RATE: f64 = 0.001;
/// Initial capacity of a scalable filter, in keys.
const ROOM: u64 = 1024;

pub(crate) fn run(args: &BuildArgs, json: bool) -> anyhow::Result<Report> {
    Reader::of(&args.keys)?;
    makes_sense(args)?;
    check_out(&args.out, args.keys.iter().map(AsRef::as_ref), (json, args.overwrite.force))?;
    let (filter, counts, bytes) = match args.kind {
        Made::Guava => guava(args)?,
        Made::Native(kind) => {
            let name = args.hash.unwrap_or(HashName::Siphash13);
            let built = native(args, kind, hasher(name, args.seed.as_deref())?);
            let (filter, counts) = built.map_err(|error| match error.downcast_ref() {
                Some(BuildError::HashTooShort { .. }) => {
                    error.context("a filter of this size needs a 128-bit hash: use wide-bloom")
                }
                _ => error,
            })?;
            let bytes = filter.encode()?;
            (Asked::Any(filter), counts, bytes)
        }
    };
    write_out(&args.out, &bytes)?;
    Ok(report(args, &filter, &counts, bytes.len()))
}

/// Returns an error for arguments that the kind of filter does not support.
fn makes_sense(args: &BuildArgs) -> Result<(), UsageError> {
    let Made::Native(kind) = args.kind else {
        return match (args.hash, &args.seed) {
            (None | Some(HashName::Murmur3), None) => by_rate(args, false, false),
            _ => Err(UsageError("--hash, --seed: guava filters always use murmur3 without a seed")),
        };
    };
    let is_solved = matches!(kind, Kind::Fuse8 | Kind::Fuse16 | Kind::Ribbon);
    if is_solved && args.capacity.is_some() {
        return Err(UsageError("--capacity: fuse8, fuse16 and ribbon need all keys at once"));
    }
    if kind == Kind::Rolling && args.capacity.is_none() {
        return Err(UsageError("--capacity is missing: the number of keys that rolling remembers"));
    }
    let has_blocks = matches!(kind, Kind::SplitBlock512 | Kind::SplitBlock256);
    by_rate(args, has_blocks || matches!(kind, Kind::Bloom | Kind::WideBloom), has_blocks)
}

/// Returns an error for `--power-of-two` or `--bits-per-key` with a kind whose size follows from
/// the rate alone.
fn by_rate(args: &BuildArgs, has_bits: bool, has_blocks: bool) -> Result<(), UsageError> {
    if args.power_of_two && !has_blocks {
        return Err(UsageError("--power-of-two is for split-block-512 and split-block-256 only"));
    }
    if args.bits_per_key.is_some() && !has_bits {
        return Err(UsageError(
            "--bits-per-key is for bloom, wide-bloom, split-block-512 and split-block-256 only: the \
             size of other kinds follows from --fpr",
        ));
    }
    Ok(())
}

fn native(args: &BuildArgs, kind: Kind, hasher: KeyHasher) -> anyhow::Result<(AnyFilter, Counts)> {
    let keys = &Keys { files: &args.keys, hex: args.hex, hasher };
    let (capacity, fpr) = (args.capacity, args.fpr.unwrap_or(RATE));
    match kind {
        Kind::Bloom => filled(keys, capacity, |n| bloom::<u64>(args, n, hasher)),
        Kind::WideBloom => filled(keys, capacity, |n| bloom::<u128>(args, n, hasher)),
        Kind::Partitioned => {
            filled(keys, capacity, |n| PartitionedBloomFilter::<u64>::with_fpr(n, fpr, hasher))
        }
        Kind::SplitBlock512 => filled(keys, capacity, |n| split_block::<Bits512>(args, n, hasher)),
        Kind::SplitBlock256 => filled(keys, capacity, |n| split_block::<Bits256>(args, n, hasher)),
        Kind::Counting => filled(keys, capacity, |n| CountingBloomFilter::with_fpr(n, fpr, hasher)),
        Kind::Scalable => {
            let room = capacity.unwrap_or(ROOM);
            as_they_come(keys, ScalableBloomFilter::with_fpr(room, fpr, hasher)?)
        }
        Kind::Rolling => {
            let last = capacity.unwrap_or(ROOM);
            as_they_come(keys, RollingBloomFilter::with_fpr(last, fpr, hasher)?)
        }
        Kind::Compressed => {
            let sized = |n| {
                let (size, _) = classic::compressed_size(n, fpr)?;
                BloomFilter::<u64>::with_bits(size.num_bits, size.hash_funcs, hasher)
            };
            let (filter, counts) = filled_as(keys, capacity, sized)?;
            Ok((OpenedBloomFilter::of(CompressedBloomFilter::of(&filter))?.into(), counts))
        }
        Kind::Cuckoo8 => filled(keys, capacity, |n| cuckoo::<8>(args, n, hasher)),
        Kind::Cuckoo12 => filled(keys, capacity, |n| cuckoo::<12>(args, n, hasher)),
        Kind::Cuckoo16 => filled(keys, capacity, |n| cuckoo::<16>(args, n, hasher)),
        Kind::Fuse8 => {
            reachable(args, kind)?;
            solved(keys, |hashes| BinaryFuse8::build(hashes, hasher))
        }
        Kind::Fuse16 => {
            reachable(args, kind)?;
            solved(keys, |hashes| BinaryFuse16::build(hashes, hasher))
        }
        Kind::Ribbon => {
            reachable(args, kind)?;
            solved(keys, |hashes| RibbonFilter::build(hashes, fpr, hasher))
        }
        other => bail!("this version cannot build filters of kind {}", other.name()),
    }
}

/// Builds a Guava filter; returns the filter, the counts of keys, and the bytes of the filter.
fn guava(args: &BuildArgs) -> anyhow::Result<(Asked, Counts, Vec<u8>)> {
    let sized = |n| GuavaBloomFilter::with_fpr(n, args.fpr.unwrap_or(RATE));
    let hasher = *sized(1)?.hasher();
    let keys = &Keys { files: &args.keys, hex: args.hex, hasher };
    let (filter, counts) = filled_as(keys, args.capacity, sized)?;
    let bytes = filter.write_to();
    Ok((Asked::Guava(filter), counts, bytes))
}

fn bloom<H: KeyHash>(
    args: &BuildArgs,
    keys: u64,
    hasher: KeyHasher,
) -> Result<BloomFilter<H>, BuildError> {
    let Some(bits) = args.bits_per_key else {
        return BloomFilter::with_fpr(keys, args.fpr.unwrap_or(RATE), hasher);
    };
    // A size that overflows saturates, and `with_bits` rejects it.
    let bits = bits_for(keys, bits).max(64).checked_next_multiple_of(64).unwrap_or(u64::MAX);
    BloomFilter::with_bits(bits, classic::hash_funcs(keys, bits), hasher)
}

/// Returns an error, before keys are read, if the kind cannot reach the requested rate at any size.
fn reachable(args: &BuildArgs, kind: Kind) -> Result<(), BuildError> {
    args.fpr.map_or(Ok(()), |fpr| kind.cost(1, fpr).map(drop))
}

fn split_block<B: BlockShape>(
    args: &BuildArgs,
    keys: u64,
    hasher: KeyHasher,
) -> Result<SplitBlockFilter<B>, BuildError> {
    let fpr = args.fpr.unwrap_or(RATE);
    let blocks = match args.bits_per_key {
        Some(bits) => bits_for(keys, bits).div_ceil(u64::from(B::WORD_BITS) * 8).max(1),
        None if !args.power_of_two => return SplitBlockFilter::with_fpr(keys, fpr, hasher),
        None => blocked::split_blocks(keys, fpr, B::WORD_BITS)?,
    };
    let blocks = if args.power_of_two { blocks.next_power_of_two() } else { blocks };
    SplitBlockFilter::with_blocks(blocks, hasher)
}

fn cuckoo<const BITS: u32>(
    args: &BuildArgs,
    keys: u64,
    hasher: KeyHasher,
) -> Result<CuckooFilter<BITS>, BuildError> {
    match args.fpr {
        Some(fpr) => CuckooFilter::with_fpr(keys, fpr, hasher),
        None => CuckooFilter::with_capacity(keys, hasher),
    }
}

/// Returns the number of bits for a number of keys.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the cast saturates, and no filter has that many bits"
)]
fn bits_for(keys: u64, bits_per_key: f64) -> u64 {
    (keys as f64 * bits_per_key).ceil() as u64
}

fn report(args: &BuildArgs, filter: &Asked, counts: &Counts, file_bytes: usize) -> Report {
    let stats = filter.stats();
    let hasher = filter.hasher();
    let is_drawn =
        args.seed.is_none() && args.kind != Made::Guava && args.hash != Some(HashName::Fnv1a);
    let target_rate = match args.bits_per_key {
        Some(_) => None,
        None if has_own_rate(args.kind) => args.fpr,
        None => Some(args.fpr.unwrap_or(RATE)),
    };
    let keys = counts.distinct.unwrap_or(counts.keys);
    let duplicates = counts.distinct.map(|distinct| counts.keys - distinct);
    let warnings = warnings(args, filter, counts, is_drawn);
    let json = json!({
        "kind": filter.kind_name(),
        "keys": keys,
        "lines": counts.keys + counts.empty,
        "empty": counts.empty,
        "duplicates": duplicates,
        "hash": hasher.name(),
        "seed": seed_hex(hasher),
        "seed_random": is_drawn,
        "target_rate": target_rate,
        "rate": stats.expected_fpr,
        "fill": stats.fill,
        "bits": stats.num_bits,
        "bits_per_key": bits_per_key(stats.num_bits, keys),
        "bytes": file_bytes,
        "parameters": params_json(filter.params()),
        "out": named(&args.out),
    });
    let mut keys_words = grouped(keys);
    let left_out = [(duplicates.unwrap_or(0), "duplicates"), (counts.empty, "empty lines")];
    for (count, what) in left_out.into_iter().filter(|(count, _)| *count > 0) {
        keys_words.extend(["; ", what, " left out: ", &grouped(count)]);
    }
    let drawn = if is_drawn { ", drawn at random" } else { "" };
    let asked = target_rate.map_or_else(String::new, |fpr| format!(", {} requested", rate(fpr)));
    let mut fields = vec![
        ("kind", filter.kind_name().to_owned()),
        ("keys", keys_words),
        ("hash", format!("{}{drawn}", hash_words(hasher))),
        ("size", size_words(stats.num_bits, keys)),
        ("rate", format!("{} of other keys{asked}", rate(stats.expected_fpr))),
    ];
    let params = filter.params();
    fields.extend(params.into_iter().map(|(name, param)| (name, param_words(param))));
    written_report(&args.out, fields, json, warnings)
}

/// Returns `true` for kinds whose fingerprints have a fixed size, which determines the rate.
fn has_own_rate(made: Made) -> bool {
    use Kind::{Cuckoo8, Cuckoo12, Cuckoo16, Fuse8, Fuse16};
    matches!(made, Made::Native(Cuckoo8 | Cuckoo12 | Cuckoo16 | Fuse8 | Fuse16))
}

fn warnings(args: &BuildArgs, filter: &Asked, counts: &Counts, is_drawn: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_drawn {
        let seed = seed_hex(filter.hasher()).unwrap_or_default();
        warnings.push(format!(
            "the seed was drawn at random and is stored in the file: anyone who has the file can \
             search for false positives. To build the same filter again, or a filter that can be \
             merged with it, give --seed {seed}"
        ));
    }
    if counts.keys == 0 {
        warnings.push("the input contains no keys: the filter is empty".into());
    }
    if let Some(capacity) = args.capacity
        && counts.keys > capacity
        && !matches!(args.kind, Made::Native(Kind::Rolling | Kind::Scalable))
    {
        warnings.push(format!(
            "sized for {}, but {} keys were inserted: the rate is now {}",
            grouped(capacity),
            grouped(counts.keys),
            rate(filter.stats().expected_fpr)
        ));
    }
    warnings
}

/// Number of keys between two updates of the progress bar.
const STEP: u64 = 65_536;
/// Number of hashes that are inserted together.
const BATCH: usize = 4096;

/// The source of keys, and their hash function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) files: &'a [PathBuf],
    pub(super) hex: bool,
    pub(super) hasher: KeyHasher,
}

/// Counts of the keys that were read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    /// Number of keys, including duplicates.
    pub(super) keys: u64,
    /// Number of empty lines.
    pub(super) empty: u64,
    /// Number of distinct keys; `None` if it was not counted.
    pub(super) distinct: Option<u64>,
}

impl Keys<'_> {
    /// Calls `take` with the hash of every key, in the order of the files.
    fn each<H: KeyHash>(
        &self,
        mut take: impl FnMut(H) -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        let progress = Progress::over_files(self.files.iter().filter_map(|file| file.to_str()));
        let mut status = (!progress.is_shown()).then(Status::default);
        let mut counts = Counts::default();
        let mut before = 0;
        for file in self.files {
            let mut lines = KeyLines::open(file, self.hex)?;
            while let Some(key) = lines.next_key()? {
                take(self.hasher.hash(key))?;
                counts.keys += 1;
                if counts.keys.is_multiple_of(STEP) {
                    progress.at(before + lines.offset());
                    if let Some(status) = &mut status {
                        status.show(|| format!("{} keys", grouped(counts.keys)));
                    }
                }
            }
            before += lines.offset();
            counts.empty += lines.empty;
        }
        Ok(counts)
    }

    /// Returns the distinct hashes, sorted.
    fn distinct<H: KeyHash>(&self) -> anyhow::Result<(Vec<H>, Counts)> {
        let mut hashes = Vec::new();
        let counts = self.each(|hash| {
            // If memory ran out, `push` alone would abort the process.
            if hashes.len() == hashes.capacity() {
                hashes
                    .try_reserve(hashes.len().max(BATCH))
                    .context("the memory is too small for the hashes of all keys")?;
            }
            hashes.push(hash);
            Ok(())
        })?;
        if hashes.is_empty() {
            bail!("the input contains no keys: no filter was built");
        }
        hashes.par_sort_unstable();
        hashes.dedup();
        let distinct = Some(hashes.len() as u64);
        Ok((hashes, Counts { distinct, ..counts }))
    }
}

/// Builds a filter that supports insertion, sized for `capacity` keys, or for the number of
/// distinct keys.
pub(super) fn filled<F: Insert>(
    keys: &Keys<'_>,
    capacity: Option<u64>,
    make: impl Fn(u64) -> Result<F, BuildError>,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (filter, counts) = filled_as(keys, capacity, make)?;
    Ok((filter.into(), counts))
}

/// Builds a filter as [`filled`] does, but returns the filter's own type `F`.
pub(super) fn filled_as<F: Insert>(
    keys: &Keys<'_>,
    capacity: Option<u64>,
    make: impl Fn(u64) -> Result<F, BuildError>,
) -> anyhow::Result<(F, Counts)> {
    let Some(capacity) = capacity else {
        let (hashes, counts) = keys.distinct()?;
        return Ok((with_all(&hashes, make)?, counts));
    };
    streamed(keys, make(capacity)?).map_err(|error| {
        let words = || format!("sized for {} keys by --capacity", grouped(capacity));
        if error.is::<Full>() { error.context(words()) } else { error }
    })
}

/// Inserts all keys into a filter, in their order.
pub(super) fn as_they_come<F: Insert>(
    keys: &Keys<'_>,
    filter: F,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (filter, counts) = streamed(keys, filter)?;
    Ok((filter.into(), counts))
}

/// Builds a filter that contains all these keys. About one set of keys in a million does not fit
/// into its computed size, so larger sizes are tried too.
fn with_all<F: Insert>(
    hashes: &[F::Hash],
    make: impl Fn(u64) -> Result<F, BuildError>,
) -> anyhow::Result<F> {
    let keys = hashes.len() as u64;
    for room in [0, keys / 50 + 4, keys / 20 + 16] {
        let mut filter = make(keys + room)?;
        if filter.insert_batch(hashes).is_ok() {
            return Ok(filter);
        }
    }
    bail!(
        "{} keys do not fit into the filter: build it with another seed, or another hash if it has no seed",
        grouped(keys)
    )
}

fn streamed<F: Insert>(keys: &Keys<'_>, mut filter: F) -> anyhow::Result<(F, Counts)> {
    let mut batch = Vec::with_capacity(BATCH);
    let counts = keys.each(|hash| {
        batch.push(hash);
        if batch.len() == BATCH {
            filter.insert_batch(&batch)?;
            batch.clear();
        }
        Ok(())
    })?;
    filter.insert_batch(&batch)?;
    Ok((filter, counts))
}

/// Builds a static filter, which is computed from all its keys at once.
pub(super) fn solved<F, H: KeyHash>(
    keys: &Keys<'_>,
    build: impl FnOnce(&[H]) -> Result<F, BuildError>,
) -> anyhow::Result<(AnyFilter, Counts)>
where
    AnyFilter: From<F>,
{
    let (hashes, counts) = keys.distinct()?;
    Ok((build(&hashes)?.into(), counts))
}

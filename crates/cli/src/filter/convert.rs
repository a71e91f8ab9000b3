//! The command `filter convert`, and filters in the formats of other programs.

use anyhow::{Context as _, bail};
use chainsieve_filter::any::Param;
use chainsieve_filter::bloom::{CompressedBloomFilter, OpenedBloomFilter};
use chainsieve_filter::hashing::KeyHash as _;
use chainsieve_filter::interop::guava::GuavaBloomFilter;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::membership::Stats;
use chainsieve_filter::{AnyFilter, Filter as _, Fold, KeyHasher};
use chainsieve_report::{Input, Reader, Report, UsageError, count, named, rate};
use serde_json::json;

use super::keys::hasher;
use super::{check_out, params_json, size_words, write_out, written_report};
use crate::args::filter::{ConvertArgs, Format, KeyHashArgs, Target};
use crate::args::word;

pub(crate) fn run(args: &ConvertArgs, json: bool) -> anyhow::Result<Report> {
    let key_hasher = key_hasher(args.format, &args.key_hash)?;
    check_out(&args.out, [args.filter.as_ref()], (json, args.overwrite.force))?;
    let input = super::read(&Reader::default(), &args.filter)?;
    let Asked::Any(filter) = read_foreign(args.format, &input, key_hasher)? else {
        bail!(GUAVA);
    };
    let before = filter.stats();
    let (filter, folds) = folded(filter, args)?;
    let (filter, bytes) = written(filter, args.to.unwrap_or(Target::Native))?;
    write_out(&args.out, &bytes)?;
    Ok(report(args, (&before, input.bytes.len()), &filter, (folds, bytes.len())))
}

const GUAVA: &str = "filters can't be converted to or from Guava's format: it places the bits of a key \
                     differently, and a filter does not contain its keys. `filter build --kind \
                     guava` builds such a filter from keys, `filter test --as guava` tests keys";

/// Folds the filter as the arguments require; returns it with the number of folds.
fn folded(filter: AnyFilter, args: &ConvertArgs) -> anyhow::Result<(AnyFilter, u32)> {
    if args.fold.is_none() && args.fold_to_fpr.is_none() {
        return Ok((filter, 0));
    }
    match filter {
        AnyFilter::Bloom(filter) => fold(args, filter),
        AnyFilter::WideBloom(filter) => fold(args, filter),
        AnyFilter::Partitioned(filter) => fold(args, filter),
        AnyFilter::SplitBlock512(filter) => fold(args, filter),
        AnyFilter::SplitBlock256(filter) => fold(args, filter),
        other => bail!(
            "a {} filter can't be folded: the union of its halves would lose keys. bloom, wide-bloom, \
             partitioned, split-block-512 and split-block-256 can be folded",
            other.kind().name()
        ),
    }
}

/// Halves a filter until the requested number of folds or rate is reached.
fn fold<F: Fold>(args: &ConvertArgs, mut filter: F) -> anyhow::Result<(AnyFilter, u32)>
where
    AnyFilter: From<F>,
{
    let mut folds = 0;
    let goes_on = |folds, filter: &F| match args.fold {
        Some(times) => folds < times,
        None => filter.fpr_folded().is_some_and(|rate| args.fold_to_fpr >= Some(rate)),
    };
    while goes_on(folds, &filter) {
        filter = filter.folded()?.with_context(|| {
            format!("an odd size cannot be halved after {}", count(folds as usize, "fold"))
        })?;
        folds += 1;
    }
    Ok((filter.into(), folds))
}

/// Encodes a filter in a format; returns the encoded filter and its bytes.
fn written(filter: AnyFilter, target: Target) -> anyhow::Result<(AnyFilter, Vec<u8>)> {
    let bytes = match (target, &filter) {
        (Target::Native, _) | (Target::Bloom, AnyFilter::Bloom(_)) => filter.encode()?,
        (Target::Compressed, AnyFilter::Bloom(bloom)) => {
            let coded = OpenedBloomFilter::of(CompressedBloomFilter::of(bloom)).context(
                "the filter is almost empty: readers would reject the expansion ratio of \
                 its compressed form",
            )?;
            return encoded(coded.into());
        }
        (Target::Bloom, AnyFilter::Compressed(coded)) => {
            return encoded(coded.opened().clone().into());
        }
        (Target::Compressed, other) => bail!(misfit(other, "compressed", "bloom")),
        (Target::Bloom, other) => bail!(misfit(other, "bloom", "compressed")),
        (Target::Guava, _) => bail!(GUAVA),
        (Target::Parquet, AnyFilter::SplitBlock256(filter)) => parquet::encode(filter)?,
        (Target::Parquet, other) => bail!(misfit(other, "parquet", "split-block-256")),
        (Target::Xor8, AnyFilter::Fuse8(filter)) => xor_singleheader::encode(filter)?,
        (Target::Xor8, other) => bail!(misfit(other, "xor8", "fuse8")),
        (Target::Xor16, AnyFilter::Fuse16(filter)) => xor_singleheader::encode(filter)?,
        (Target::Xor16, other) => bail!(misfit(other, "xor16", "fuse16")),
    };
    Ok((filter, bytes))
}

fn encoded(filter: AnyFilter) -> anyhow::Result<(AnyFilter, Vec<u8>)> {
    let bytes = filter.encode()?;
    Ok((filter, bytes))
}

fn misfit(filter: &AnyFilter, format: &str, kind: &str) -> String {
    let is = filter.kind().name();
    format!("a {is} filter can't be converted to {format}: only {kind} can")
}

fn report(
    args: &ConvertArgs,
    (before, bytes_before): (&Stats, usize),
    filter: &AnyFilter,
    (folds, bytes): (u32, usize),
) -> Report {
    let after = filter.stats();
    let from = word(&args.format);
    let to = word(&args.to.unwrap_or(Target::Native));
    let mut warnings = Vec::new();
    if args.fold_to_fpr.is_some() && folds == 0 {
        warnings.push(
            "not folded: half the size is impossible, or its rate is higher than --fold-to-fpr"
                .to_owned(),
        );
    }
    if args.to == Some(Target::Compressed) && bytes >= bytes_before && folds == 0 {
        warnings.push(
            "the file is not smaller: the filter is too full to be compressed. `filter build \
             --kind compressed` builds a sparse filter, which is small when compressed"
                .to_owned(),
        );
    }
    let json = json!({
        "from": from,
        "to": to,
        "kind": filter.kind().name(),
        "bytes_before": bytes_before,
        "bytes": bytes,
        "rate_before": before.expected_fpr,
        "rate": after.expected_fpr,
        "folds": folds,
        "parameters": params_json(filter.params()),
        "out": named(&args.out),
    });
    let mut fields = vec![
        ("kind", filter.kind().name().to_owned()),
        ("format", format!("{to}, from {from}")),
        ("size", size_words(after.num_bits, after.len)),
        ("file", format!("{}, {} before", count(bytes, "byte"), count(bytes_before, "byte"))),
    ];
    if folds > 0 {
        fields.push(("folded", count(folds as usize, "time")));
    }
    let was =
        if folds > 0 { format!(", {} before", rate(before.expected_fpr)) } else { String::new() };
    fields.push(("rate", format!("{} of other keys{was}", rate(after.expected_fpr))));
    written_report(&args.out, fields, json, warnings)
}

/// A filter that can be queried.
#[derive(Debug)]
pub(super) enum Asked {
    /// A filter of a kind that chainsieve's own format supports.
    Any(AnyFilter),
    /// Guava's Bloom filter, which places the bits of a key differently.
    Guava(GuavaBloomFilter),
}

impl Asked {
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Self::Any(filter) => filter.kind().name(),
            Self::Guava(_) => "guava",
        }
    }

    pub(super) fn hasher(&self) -> &KeyHasher {
        match self {
            Self::Any(filter) => filter.hasher(),
            Self::Guava(filter) => filter.hasher(),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Any(filter) => filter.stats(),
            Self::Guava(filter) => filter.stats(),
        }
    }

    pub(super) fn params(&self) -> Vec<(&'static str, Param)> {
        match self {
            Self::Any(filter) => filter.params(),
            Self::Guava(filter) => {
                vec![
                    ("strategy", Param::Word(filter.strategy().name())),
                    ("num_bits", Param::Number(filter.num_bits())),
                    ("hash_funcs", Param::Number(filter.hash_funcs().into())),
                ]
            }
        }
    }

    pub(super) fn contains_batch(&self, keys: &[&[u8]], may_contain: &mut [bool]) {
        match self {
            Self::Any(filter) => filter.contains_batch(keys, may_contain),
            Self::Guava(filter) => {
                for (answer, key) in may_contain.iter_mut().zip(keys) {
                    *answer = filter.contains_hash(u128::of(filter.hasher(), key));
                }
            }
        }
    }
}

/// Returns `true` if a format stores the hash function of the keys.
pub(super) fn says_hasher(format: Format) -> bool {
    !matches!(format, Format::Xor8 | Format::Xor16)
}

/// Returns `true` if a format stores the number of keys; otherwise the number is an estimate.
pub(super) fn says_len(format: Format) -> bool {
    !matches!(format, Format::Parquet | Format::Guava)
}

/// Returns the hasher of `--hash` and `--seed`, which are required if and only if the format does
/// not store the hash function.
pub(super) fn key_hasher(format: Format, args: &KeyHashArgs) -> anyhow::Result<Option<KeyHasher>> {
    match args.hash {
        Some(_) if says_hasher(format) => {
            Err(UsageError("--hash and --seed are for xor8 and xor16 only: other formats store them").into())
        }
        None if !says_hasher(format) => Err(UsageError(
            "--hash and --seed are missing: xor8 and xor16 do not store the hash function of the keys",
        )
        .into()),
        hash => hash.map(|hash| hasher(hash, args.seed.as_deref())).transpose(),
    }
}

/// Reads a filter in a format. If the format does not store the hash function and no hasher is
/// given, the filter can be described but not queried.
pub(super) fn read_foreign(
    format: Format,
    input: &Input,
    key_hasher: Option<KeyHasher>,
) -> anyhow::Result<Asked> {
    let bytes = &input.bytes;
    let hasher = key_hasher.unwrap_or(KeyHasher::xxh3(0));
    let read = || -> anyhow::Result<Asked> {
        Ok(Asked::Any(match format {
            Format::Native => AnyFilter::decode(bytes)?,
            Format::Parquet => parquet::decode(bytes)?.into(),
            Format::Guava => return Ok(Asked::Guava(GuavaBloomFilter::read_from(bytes)?)),
            Format::Xor8 => xor_singleheader::decode::<u8>(bytes, hasher)?.into(),
            Format::Xor16 => xor_singleheader::decode::<u16>(bytes, hasher)?.into(),
        }))
    };
    read().with_context(|| match format {
        Format::Native => format!("filter, {}", input.source),
        format => format!("filter, {}, as {}", input.source, word(&format)),
    })
}

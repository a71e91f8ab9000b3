//! Filters in the formats of other programs.

use anyhow::Context as _;
use chainsieve_filter::{AnyFilter, Filter as _, KeyHasher};
use chainsieve_filter::any::Param;
use chainsieve_filter::fuse::{BinaryFuse16, BinaryFuse8};
use chainsieve_filter::hashing::KeyHash as _;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::interop::guava::GuavaBloomFilter;
use chainsieve_filter::membership::Stats;
use chainsieve_report::{Input, UsageError};

use crate::args::filter::{Format, KeyHashArgs, Target};
use super::hasher::hasher;

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
pub(super) fn read(
    format: Format,
    input: &Input,
    key_hasher: Option<KeyHasher>,
) -> anyhow::Result<Asked> {
    let bytes = &input.bytes;
    let hasher = key_hasher.unwrap_or(KeyHasher::xxh3(0));
    let filter: anyhow::Result<Asked> = match format {
        Format::Native => AnyFilter::decode(bytes).map(Asked::Any).map_err(Into::into),
        Format::Parquet => {
            parquet::decode(bytes).map(|filter| Asked::Any(filter.into())).map_err(Into::into)
        }
        Format::Guava => GuavaBloomFilter::read_from(bytes).map(Asked::Guava).map_err(Into::into),
        Format::Xor8 => xor_singleheader::decode(bytes, hasher)
            .map(|filter: BinaryFuse8| Asked::Any(filter.into()))
            .map_err(Into::into),
        Format::Xor16 => xor_singleheader::decode(bytes, hasher)
            .map(|filter: BinaryFuse16| Asked::Any(filter.into()))
            .map_err(Into::into),
    };
    filter.with_context(|| match format {
        Format::Native => format!("filter, {}", input.source),
        format => format!("filter, {}, as {}", input.source, name(format)),
    })
}

/// Returns the name of a format, as `--as` accepts it.
pub(super) fn name(format: Format) -> &'static str {
    match format {
        Format::Native => "native",
        Format::Parquet => "parquet",
        Format::Guava => "guava",
        Format::Xor8 => "xor8",
        Format::Xor16 => "xor16",
    }
}

/// Returns the name of a format, as `--to` accepts it.
pub(super) fn target_name(target: Target) -> &'static str {
    match target {
        Target::Native => "native",
        Target::Compressed => "compressed",
        Target::Bloom => "bloom",
        Target::Parquet => "parquet",
        Target::Guava => "guava",
        Target::Xor8 => "xor8",
        Target::Xor16 => "xor16",
    }
}

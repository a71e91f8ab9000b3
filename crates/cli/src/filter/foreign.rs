//! Filters in other programs' formats.

use anyhow::Context as _;
use chainsieve_filter::any::Param;
use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse16};
use chainsieve_filter::hashing::KeyHash as _;
use chainsieve_filter::interop::guava::GuavaBloomFilter;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::membership::Stats;
use chainsieve_filter::{AnyFilter, Filter as _, KeyHasher};

use super::hasher::hasher;
use crate::args::UsageError;
use crate::args::filter::{Format, KeyHashArgs, Target};
use crate::input::Input;

/// A filter that can be asked.
#[derive(Debug)]
pub(super) enum Asked {
    /// One that our format has a kind for.
    Any(AnyFilter),
    /// Guava's, whose bits lie elsewhere than those of ours.
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

/// Whether a format says how keys are hashed.
pub(super) fn says_hasher(format: Format) -> bool {
    !matches!(format, Format::Xor8 | Format::Xor16)
}

/// Whether a format says how many keys there are; a filter's own count is else an estimate.
pub(super) fn says_len(format: Format) -> bool {
    !matches!(format, Format::Parquet | Format::Guava)
}

/// The hasher of keys for a format: given if the format doesn't say it, and only then.
pub(super) fn key_hasher(format: Format, args: &KeyHashArgs) -> anyhow::Result<Option<KeyHasher>> {
    match args.hash {
        Some(_) if says_hasher(format) => {
            Err(UsageError("--hash and --seed are for xor8 and xor16: other formats say it").into())
        }
        None if !says_hasher(format) => Err(UsageError(
            "--hash and --seed: how the keys were hashed, which xor8 and xor16 don't say",
        )
        .into()),
        hash => hash.map(|hash| hasher(hash, args.seed.as_deref())).transpose(),
    }
}

/// Reads a filter in a format. Without a hasher one whose format says none can only be looked at.
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

/// The name, as `--as` takes it.
pub(super) fn name(format: Format) -> &'static str {
    match format {
        Format::Native => "native",
        Format::Parquet => "parquet",
        Format::Guava => "guava",
        Format::Xor8 => "xor8",
        Format::Xor16 => "xor16",
    }
}

/// The name, as `--to` takes it.
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

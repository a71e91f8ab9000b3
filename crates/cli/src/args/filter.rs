//! Arguments of `filter …`.

use std::path::PathBuf;

use chainsieve_filter::Kind;
use chainsieve_report::args::count;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::OverwriteArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Compare the sizes of all kinds of filters for a number of keys and a false-positive rate
    Size(SizeArgs),
    /// Build a filter of the keys in files or standard input
    Build(Box<BuildArgs>),
    /// Test whether a filter may contain keys
    Test(TestArgs),
    /// Show a filter's kind, parameters, hash function, fill and false-positive rate
    Info(InfoArgs),
    /// Fold or compress a filter, or convert it to or from another program's format
    Convert(ConvertArgs),
}

const SIZE_HELP: &str = "\
The table shows the size of the filter that `filter build` builds for this number of distinct keys,
without the file header. Sizes are exact, or within 2 % for rolling, cuckoo, compressed, fuse and scalable
filters. The size of a ribbon filter is an upper bound: the filter takes 2 to 8 % less. The rate is the
false-positive rate of the filter after all keys are inserted. It is at most --fpr. It is lower for kinds
whose fingerprints have only a few possible sizes. The floor, log2(1/rate) bits per key, is the smallest
size that any filter of a fixed set can have.";

/// Compare the sizes of all kinds of filters for a number of keys and a false-positive rate.
#[derive(Debug, Args)]
#[command(after_long_help = SIZE_HELP)]
pub(crate) struct SizeArgs {
    /// Number of distinct keys
    #[arg(long, value_name = "COUNT", value_parser = count(1..=u64::MAX))]
    pub(crate) keys: u64,
    /// The highest false-positive rate: the share of absent keys that the filter reports as present
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fpr: f64,
    /// Write an SVG chart to this file: bits per key at each rate, for light and dark pages
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const BUILD_HELP: &str = "\
A key is a line without its line break, or with --hex the bytes that the line encodes. Empty lines are
skipped. Duplicate keys are inserted once. The filter is sized for the number of distinct keys. To count
them, the command keeps the hashes of all keys in memory: 8 bytes per key, 16 for wide-bloom. With
--capacity only the filter is kept in memory, and keys are inserted as they are read; fuse8, fuse16 and
ribbon cannot be built this way. With --kind scalable, keys are always inserted as they are read, and
--capacity is the initial size, by default 1,024 keys. With --kind rolling, the filter remembers the last
--capacity keys.

With --kind guava, the file has the format of Guava's BloomFilter.writeTo, and its keys are those of
Funnels.byteArrayFunnel().

The seed is stored in the filter. Anyone who has the filter can search for keys that are false positives,
with any hash function. Without the filter, this is possible if the seed is known, or if the hash function
is weak even with a secret seed: use siphash13, the default, if strangers choose the keys. A seed is a
number in hex; for siphash13 it is the key of 16 bytes in hex.

The file is written under a temporary name and then renamed, so an incomplete file is never visible.";

/// Build a filter of the keys in files or standard input.
#[derive(Debug, Args)]
#[command(after_long_help = BUILD_HELP)]
pub(crate) struct BuildArgs {
    /// Files of keys, one key per line; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) keys: Vec<PathBuf>,
    /// The kind of filter; `filter size` compares them
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub(crate) kind: Made,
    /// The highest false-positive rate [default: 0.001; for cuckoo and fuse, the rate of the kind]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fpr: Option<f64>,
    /// Size the filter by bits per key instead of by a rate
    #[arg(long, value_name = "BITS", conflicts_with = "fpr", value_parser = bits_per_key)]
    pub(crate) bits_per_key: Option<f64>,
    /// Size the filter for this many keys, and insert keys as they are read
    #[arg(long, value_name = "COUNT", value_parser = count(1..=u64::MAX))]
    pub(crate) capacity: Option<u64>,
    /// Round the number of blocks up to a power of two, as readers of Parquet require
    #[arg(long)]
    pub(crate) power_of_two: bool,
    /// Each line is a key in hex
    #[arg(long)]
    pub(crate) hex: bool,
    /// The hash function of the keys [default: siphash13; guava always uses murmur3]
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub(crate) hash: Option<HashName>,
    /// The seed or key of the hash function [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Write the filter to this file; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// Possible values of `--kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// A kind of filter in chainsieve's own format.
    Native(Kind),
    /// Guava's Bloom filter, in Guava's format.
    Guava,
}

/// The hash function of a filter whose file format does not store it.
#[derive(Debug, Args)]
pub(crate) struct KeyHashArgs {
    /// The hash function of the keys of an xor8 or xor16 filter
    #[arg(long, value_enum, value_name = "FUNCTION", requires = "seed")]
    pub(crate) hash: Option<HashName>,
    /// The seed or key of the hash function --hash
    #[arg(long, value_name = "HEX", requires = "hash")]
    pub(crate) seed: Option<String>,
}

/// Possible values of `--hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashName {
    /// SipHash-1-3, key of 16 bytes: safe if strangers choose the keys
    Siphash13,
    /// XXH3, seed of 8 bytes: the fastest
    Xxh3,
    /// XXH64, seed of 8 bytes; Parquet uses seed 0
    Xxh64,
    /// murmur3 of 128 bits, seed of 4 bytes; Guava uses seed 0
    Murmur3,
    /// FNV-1a, no seed
    Fnv1a,
}

const TEST_HELP: &str = "\
Prints a line for each key: \"maybe\" or \"no\", and the key. \"no\" is certain. For keys that are not in
the filter, \"maybe\" is printed at the filter's false-positive rate. The summary is written to standard
error.

Exit codes: 0 at least one key may be in the filter · 1 none of the keys is in the filter";

/// Test whether a filter may contain keys.
#[derive(Debug, Args)]
#[command(after_long_help = TEST_HELP)]
pub(crate) struct TestArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// Keys to test; - reads them from standard input, one key per line
    #[arg(value_name = "KEY", required_unless_present = "file")]
    pub(crate) keys: Vec<String>,
    /// A file of keys, one key per line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// The keys are in hex
    #[arg(long)]
    pub(crate) hex: bool,
    /// Which keys to print
    #[arg(long, value_enum, default_value_t = Answers::All, value_name = "ANSWERS")]
    pub(crate) show: Answers,
    /// The file format of the filter
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) key_hash: KeyHashArgs,
}

/// Possible values of `--show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answers {
    /// Every key
    All,
    /// Keys that may be in the filter
    Maybe,
    /// Keys that are not in the filter
    No,
    /// No key, only the summary
    None,
}

const INFO_HELP: &str = "\
The checksum is verified, and every parameter is checked against the length of the file, before anything
is shown.";

/// Show a filter's kind, parameters, hash function, fill and false-positive rate.
#[derive(Debug, Args)]
#[command(after_long_help = INFO_HELP)]
pub(crate) struct InfoArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// The file format of the filter
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
}

const CONVERT_HELP: &str = "\
Only exact conversions are possible:
  parquet     to and from split-block-256 with hash function xxh64, seed 0, and a number of blocks that
              is a power of two
  xor8        to and from fuse8. The format does not store the hash function: to read such a filter, give
              the --hash and --seed with which its keys were hashed
  xor16       to and from fuse16; reading needs --hash and --seed, as for xor8
  compressed  from bloom
  bloom       from compressed
Nothing can be converted to or from Guava's format, which places the bits of a key differently. `filter
build --kind guava` makes such filters, `filter test --as guava` reads them.

--fold halves a bloom, wide-bloom, partitioned, split-block-512 or split-block-256 filter the given number
of times. Each fold halves the memory and raises the false-positive rate. No key is lost.";

/// Fold or compress a filter, or convert it to or from another program's format.
#[derive(Debug, Args)]
#[command(after_long_help = CONVERT_HELP)]
pub(crate) struct ConvertArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// The file format of the filter
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// The format to write [default: native]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<Target>,
    /// Halve the filter this many times
    #[arg(long, value_name = "TIMES", conflicts_with = "fold_to_fpr",
        value_parser = count(1..=63_u32))]
    pub(crate) fold: Option<u32>,
    /// Halve the filter as long as its false-positive rate stays at most RATE
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fold_to_fpr: Option<f64>,
    #[command(flatten)]
    pub(crate) key_hash: KeyHashArgs,
    /// Write the filter to this file; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// Possible values of `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// chainsieve's own format
    Native,
    /// Parquet's split-block filter: its header and bits
    Parquet,
    /// The format of Guava's `BloomFilter.writeTo`
    Guava,
    /// `xor_singleheader`'s binary fuse filter of 8 bits
    Xor8,
    /// `xor_singleheader`'s binary fuse filter of 16 bits
    Xor16,
}

/// Possible values of `--to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// chainsieve's own format
    Native,
    /// chainsieve's compressed Bloom filter
    Compressed,
    /// chainsieve's Bloom filter, not compressed
    Bloom,
    /// Parquet's split-block filter: its header and bits
    Parquet,
    /// Not possible: the error says why
    Guava,
    /// `xor_singleheader`'s binary fuse filter of 8 bits
    Xor8,
    /// `xor_singleheader`'s binary fuse filter of 16 bits
    Xor16,
}

/// Returns the parser of `--kind`. `CountMin` is left out, as the command has no input for counts.
fn kind() -> impl TypedValueParser<Value = Made> {
    let kinds = || Kind::ALL.into_iter().filter(|kind| *kind != Kind::CountMin);
    let by_name = move |name: String| kinds().find(|kind| kind.name() == name);
    PossibleValuesParser::new(kinds().map(Kind::name).chain([GUAVA]))
        .map(move |name| by_name(name).map_or(Made::Guava, Made::Native))
}

const GUAVA: &str = "guava";

/// Parses a false-positive rate. Unlike `btc bloom new`, a rate of 1 is invalid here: a filter that
/// matches every key is of no use.
fn fpr(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate < 1.0);
    rate.ok_or_else(|| "not a rate between 0 and 1".into())
}

fn bits_per_key(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits| (0.1..=1000.0).contains(bits));
    bits.ok_or_else(|| "not a number of bits from 0.1 to 1000".into())
}

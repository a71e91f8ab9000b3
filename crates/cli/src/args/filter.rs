//! `filter …`.

use std::path::PathBuf;

use chainsieve_filter::Kind;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::number::count;
use crate::args::OverwriteArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// What a number of keys and a rate of false positives cost in each kind of filter
    Size(SizeArgs),
    /// Build a filter of the keys in files or standard input
    Build(Box<BuildArgs>),
    /// Ask a filter for keys
    Test(TestArgs),
    /// Show a filter's kind, parameters, hash function, fill and rate
    Info(InfoArgs),
    /// Fold a filter, compress it, or turn it into another program's format and back
    Convert(ConvertArgs),
}

const SIZE_HELP: &str = "\
Sizes are those of the filter that `filter build` makes for so many distinct keys, without its header.
They are exact, or within 2 % for rolling, cuckoo, compressed, fuse and scalable filters. The size of a
ribbon filter is an upper bound: the filter takes 2 to 8 % less. The rate is what the filter has when
all keys are in it: at most the rate asked for, and lower where the kind's fingerprints come in few
sizes. The least that any filter of a fixed set can have is log2(1/rate) bits per key.

JSON: keys, fpr, floor (bits per key), layouts[{layout, possible, why (where not), bits_per_key, bytes,
upper_bound (whether bytes is one), hash_funcs, rate, lines_absent, lines_present (cache lines that a
probe of a key that is not there, and of one that is, reads), insert, remove, merge}]";

/// What a number of keys and a rate of false positives cost in each kind of filter.
#[derive(Debug, Args)]
#[command(after_long_help = SIZE_HELP)]
pub(crate) struct SizeArgs {
    /// Distinct keys
    #[arg(long, value_name = "COUNT", value_parser = count(1..=u64::MAX))]
    pub(crate) keys: u64,
    /// The share of other keys that may be in the filter wrongly
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fpr: f64,
    /// Draw bits per key against rates, readable on light and on dark pages
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const BUILD_HELP: &str = "\
Keys are the lines as they are, without their line break, or with --hex the bytes that they stand
for. Empty lines are passed over. Keys that come twice are one: for that the hashes of all keys are held,
8 bytes for each (16 for wide-bloom), until the number of distinct ones is known, which the filter is sized
for. With --capacity nothing is held but the filter, where its kind can be filled as keys come: not so
fuse8, fuse16 and ribbon. scalable is filled as keys come in any case; --capacity is the room that it
begins with, 1,024 if not given. rolling remembers the last --capacity keys.

guava is written as Guava's BloomFilter.writeTo does, for Funnels.byteArrayFunnel().

The seed is written into the filter. Whoever has the filter can look for keys that are in it wrongly,
under any hash function; whoever has not, only where the seed is known or does not matter: keep
siphash13 where strangers choose keys. A seed is its number in hex; that of siphash13 is its 16 bytes.

The file is written beside its place and then renamed: it is there whole or not at all.

JSON: kind, keys (distinct), lines, empty, duplicates (null with --capacity where it can't be told),
hash, seed, seed_random, target_rate (null: as the kind has it), rate, fill, bits, bits_per_key, bytes,
parameters{}, out, warnings[]";

/// Build a filter of the keys in files or standard input.
#[derive(Debug, Args)]
#[command(after_long_help = BUILD_HELP)]
pub(crate) struct BuildArgs {
    /// Files of keys, one on each line; - is standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) keys: Vec<PathBuf>,
    /// The kind of filter; `filter size` compares them
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub(crate) kind: Made,
    /// The share of other keys that may be in the filter wrongly [default: 0.001, or what the
    /// kind's fingerprints have]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fpr: Option<f64>,
    /// Memory per key in place of a rate
    #[arg(long, value_name = "BITS", conflicts_with = "fpr", value_parser = bits_per_key)]
    pub(crate) bits_per_key: Option<f64>,
    /// Size the filter for this many keys and fill it while they come
    #[arg(long, value_name = "COUNT", value_parser = count(1..=u64::MAX))]
    pub(crate) capacity: Option<u64>,
    /// Round the number of blocks up to a power of two, as Parquet's readers take them
    #[arg(long)]
    pub(crate) power_of_two: bool,
    /// Lines are hex
    #[arg(long)]
    pub(crate) hex: bool,
    /// The hash function of keys [default: siphash13; guava has murmur3]
    #[arg(long, value_enum, value_name = "FUNCTION")]
    pub(crate) hash: Option<HashName>,
    /// Its seed or key [default: random]
    #[arg(long, value_name = "HEX")]
    pub(crate) seed: Option<String>,
    /// Write the filter to this file; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// `--kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// In our format.
    Native(Kind),
    /// In Guava's.
    Guava,
}

/// How the keys of a filter were hashed whose format doesn't say.
#[derive(Debug, Args)]
pub(crate) struct KeyHashArgs {
    /// How the keys of an xor8 or xor16 filter were hashed
    #[arg(long, value_enum, value_name = "FUNCTION", requires = "seed")]
    pub(crate) hash: Option<HashName>,
    /// The seed or key of that function
    #[arg(long, value_name = "HEX", requires = "hash")]
    pub(crate) seed: Option<String>,
}

/// `--hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashName {
    /// SipHash-1-3, key of 16 bytes: for keys that strangers choose
    Siphash13,
    /// XXH3, seed of 8 bytes: the fastest
    Xxh3,
    /// XXH64, seed of 8 bytes: Parquet's, with seed 0
    Xxh64,
    /// murmur3 of 128 bits, seed of 4 bytes: Guava's, with seed 0
    Murmur3,
    /// FNV-1a, no seed
    Fnv1a,
}

const TEST_HELP: &str = "\
Prints a line for each key: \"maybe\" or \"no\", and the key. \"no\" is certain; \"maybe\" is wrong for
as many keys as the filter's rate says. The summary goes to standard error.

Exits with 0 if any key may be in the filter, with 1 if none is.

JSON: lines, told apart by kind:
  answer   key, may_contain, and where the key is not UTF-8 key_hex: of each key
  summary  asked, maybe, no, empty, rate (of the filter), expected_by_chance (maybes, if none of the
           keys is in the filter), warnings[]: the last line";

/// Ask a filter for keys.
#[derive(Debug, Args)]
#[command(after_long_help = TEST_HELP)]
pub(crate) struct TestArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// Keys; - reads them from standard input, one on each line
    #[arg(value_name = "KEY", required_unless_present = "file")]
    pub(crate) keys: Vec<String>,
    /// A file of keys, one on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// Keys are hex
    #[arg(long)]
    pub(crate) hex: bool,
    /// The answers to print
    #[arg(long, value_enum, default_value_t = Answers::All, value_name = "ANSWERS")]
    pub(crate) show: Answers,
    /// What the filter is written in
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) key_hash: KeyHashArgs,
}

/// `--show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Answers {
    /// Every key
    All,
    /// Keys that may be in the filter
    Maybe,
    /// Keys that are not
    No,
    /// None, only the summary
    None,
}

const INFO_HELP: &str = "\
The checksum is compared, and every parameter with the length, before anything is shown.

JSON: format, kind, version, checksum, hash, seed, keys (as counted), estimated_keys (null where the
fill says nothing), bytes, bits, bits_per_key (null for none), fill, rate, parameters{}, warnings[]";

/// Show a filter's kind, parameters, hash function, fill and rate.
#[derive(Debug, Args)]
#[command(after_long_help = INFO_HELP)]
pub(crate) struct InfoArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// What the file is written in
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
}

const CONVERT_HELP: &str = "\
What maps exactly is converted, and nothing else:
  parquet     split-block-256 under xxh64 with seed 0 and of a power of two blocks, and back
  xor8        fuse8, and back; xor16 the same of fuse16. The format says nothing of how keys become
              numbers: a filter that is read takes the --hash and --seed that its keys were hashed by
  compressed  out of bloom
  bloom       out of compressed
Nothing is converted into Guava's format or out of it: the bits of a key lie elsewhere in it. `filter
build --kind guava` makes such filters, `filter test --as guava` asks them.

--fold halves a bloom, wide-bloom, partitioned, split-block-512 or split-block-256 filter so many times:
half the memory, and a rate that is a multiple of what it was. No key is lost.

JSON: from, to, kind, bytes_before, bytes, rate_before, rate, folds, out, warnings[]";

/// Fold a filter, compress it, or turn it into another program's format and back.
#[derive(Debug, Args)]
#[command(after_long_help = CONVERT_HELP)]
pub(crate) struct ConvertArgs {
    /// The filter: a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// What the file is written in
    #[arg(long = "as", value_enum, default_value_t = Format::Native, value_name = "FORMAT")]
    pub(crate) format: Format,
    /// What to write [default: native]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<Target>,
    /// Halve it so many times
    #[arg(long, value_name = "TIMES", conflicts_with = "fold_to_fpr",
        value_parser = count(1..=63_u32))]
    pub(crate) fold: Option<u32>,
    /// Halve it as often as its rate stays at most this
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fold_to_fpr: Option<f64>,
    #[command(flatten)]
    pub(crate) key_hash: KeyHashArgs,
    /// Write it to this file; - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// chainsieve's own
    Native,
    /// Parquet's split-block filter: its header and bits
    Parquet,
    /// Guava's `BloomFilter.writeTo`
    Guava,
    /// `xor_singleheader`'s binary fuse filter of 8 bits
    Xor8,
    /// The same of 16 bits
    Xor16,
}

/// `--to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// chainsieve's own
    Native,
    /// The same, compressed
    Compressed,
    /// The same, not compressed
    Bloom,
    /// Parquet's split-block filter: its header and bits
    Parquet,
    /// Guava's: refused, with the reason
    Guava,
    /// `xor_singleheader`'s binary fuse filter of 8 bits
    Xor8,
    /// The same of 16 bits
    Xor16,
}

/// A kind by its name. `CountMin` is left out: the command has no input for counts.
fn kind() -> impl TypedValueParser<Value = Made> {
    let kinds = || Kind::ALL.into_iter().filter(|kind| *kind != Kind::CountMin);
    let by_name = move |name: String| kinds().find(|kind| kind.name() == name);
    PossibleValuesParser::new(kinds().map(Kind::name).chain([GUAVA]))
        .map(move |name| by_name(name).map_or(Made::Guava, Made::Native))
}

const GUAVA: &str = "guava";

/// As `btc bloom new` takes it, but that nothing is asked of a filter that all keys are in.
fn fpr(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate < 1.0);
    rate.ok_or_else(|| "not a rate between 0 and 1".into())
}

fn bits_per_key(text: &str) -> Result<f64, String> {
    let bits = text.parse().ok().filter(|bits| (0.1..=1000.0).contains(bits));
    bits.ok_or_else(|| "not a number of bits from 0.1 to 1000".into())
}

//! Arguments of the commands that read headers: `eth scan`, `forecast`, `header` and `stats`.

use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::eth::files::FileFormat;
use chainsieve_report::args::{Choice, choice, count};
use clap::{Arg, Args};

use super::anchor::{BeaconArgs, beacon_help, needs_rpc};
use super::audit::TrustArgs;
use crate::args::OverwriteArgs;
use crate::eth::RpcArgs;
use crate::eth::query::QueryArgs;

/// Help text about the sources of headers, for every command that reads headers.
macro_rules! formats_help {
    () => {
        "\
Headers are given as files, as hex, or - for standard input. A file contains concatenated RLP headers (or
blocks, as geth export writes them); JSON objects of headers or blocks, as concatenated objects, in an
array or in a node's replies; hex from debug_getRawHeader, one header per line; or it is an era1 or ere
archive. The format is detected from the first bytes. A header in JSON is accepted only if its fields
hash to the block hash that it claims."
    };
}
pub(crate) use formats_help;

/// The format of headers; `None` detects it from the first bytes.
pub(crate) type HeaderFormat = Option<FileFormat>;

/// Possible values of `--format`.
pub(super) const FORMATS: [Choice<HeaderFormat>; 5] = [
    ("auto", None, "Detect the format from the first bytes"),
    ("rlp", Some(FileFormat::Rlp), "Concatenated RLP headers or blocks"),
    ("json", Some(FileFormat::Json), "JSON objects, or hex strings in JSON"),
    ("hex", Some(FileFormat::Hex), "Hex, one header per line"),
    ("era", Some(FileFormat::Era), "An era1 or ere archive"),
];

pub(super) const HEADER_HELP: &str = formats_help!();

/// Headers that need not form a chain.
#[derive(Debug, Args)]
pub(crate) struct HeadersArgs {
    /// The headers: hex, files, or - for standard input
    #[arg(value_name = "HEADERS", required = true)]
    pub(crate) headers: Vec<String>,
    /// The format of the headers
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto")]
    pub(crate) format: HeaderFormat,
}

const STATS_HELP: &str = concat!(
    formats_help!(),
    "

A rate is the false-positive rate of one, two or three values at once: the share of blocks whose filter
answers \"maybe\" although the block does not contain the values. It is the mean of p^3, p^6 and p^9 over
the blocks, where p is the fill of each block's filter. A value is an address or a topic."
);

/// Show the fill of a chain's log filters, and the false-positive rates that follow from it.
#[derive(Debug, Args)]
#[command(after_long_help = STATS_HELP)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) source: HeadersArgs,
    /// The rows of the table: auto, year, month, or a number of blocks
    #[arg(long, value_name = "ROWS", default_value = "auto")]
    pub(crate) by: Buckets,
    /// Write a chart to this file, for light and dark pages
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The title of the chart
    #[arg(long, value_name = "TEXT", requires = "svg")]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// The blocks that a row of the table covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buckets {
    /// A round number of blocks, chosen so that the table has about twenty rows.
    Auto,
    /// A year.
    Year,
    /// A month.
    Month,
    /// This number of blocks.
    Blocks(u64),
}

impl FromStr for Buckets {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "year" => Ok(Self::Year),
            "month" => Ok(Self::Month),
            number => number
                .replace([',', '_'], "")
                .parse()
                .ok()
                .filter(|&blocks| blocks > 0)
                .map(Self::Blocks)
                .ok_or("neither auto, year, month nor a number of blocks"),
        }
    }
}

const SCAN_HELP: &str = concat!(
    formats_help!(),
    "

A candidate is a block that may contain a log of the query, because its filter does not rule that out.
All other blocks provably contain none, if their hashes are authentic. Each header must be the child of
the previous one. A trusted hash authenticates its block and all earlier blocks, so trust, with --anchor,
the hash of the last queried block or of a later one. Without --anchor, the result is only as reliable as
the source of the headers.

With --rpc, headers are requested with debug_getRawHeader if the node serves it, otherwise as JSON that
must hash to the block hash. The range starts at --from and ends at the finalised block: --to selects an
earlier end, --unfinalized allows a later one. Headers up to the --anchor are fetched too.

",
    beacon_help!(),
    "

Headers from files define the range: --from, --to and block numbers in --query narrow it; latest and
other tags do not.

If the filters of the --chain do not commit to every log, every block is a candidate. Without --chain,
headers in files are assumed to be Ethereum mainnet's, and headers from a provider are assumed to be of
the chain whose id it returns.

Exit codes: 0 candidates were found
            1 no candidates
            4 an --anchor is given, and no header at or after the end of the range has its hash"
);

/// Find the blocks that may contain logs of a query.
#[derive(Debug, Args)]
#[command(
    after_long_help = SCAN_HELP,
    mut_arg("headers", headers_or_rpc),
    mut_arg("format", unless_rpc),
    mut_arg("threads", unless_rpc),
    mut_args(needs_rpc)
)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) linked: LinkedHeaderArgs,
    /// Print counts only, not each candidate
    #[arg(long)]
    pub(crate) count: bool,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    /// Include blocks after the finalised block, which a reorganisation may still remove
    #[arg(long, requires = "rpc", help_heading = "The provider")]
    pub(crate) unfinalized: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
}

/// Makes the headers argument required only if `--rpc` is not given.
pub(super) fn headers_or_rpc(headers: Arg) -> Arg {
    unless_rpc(headers).required(false).required_unless_present("rpc")
}

pub(super) fn unless_rpc(arg: Arg) -> Arg {
    arg.conflicts_with("rpc")
}

/// Headers that must form one chain.
#[derive(Debug, Args)]
pub(crate) struct LinkedHeaderArgs {
    /// The headers, in order: files, - for standard input, or hex
    #[arg(value_name = "HEADERS", required = true)]
    pub(crate) headers: Vec<String>,
    /// The format of the headers
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto", hide_short_help = true)]
    pub(crate) format: HeaderFormat,
    /// Number of threads that hash and scan, at most 1024 [default: one per core]
    #[arg(long, value_name = "COUNT", value_parser = count(1..=1024_u16))]
    pub(crate) threads: Option<u16>,
}

const FORECAST_HELP: &str = concat!(
    formats_help!(),
    "

The command computes the cost of answering a query with proof, from the headers alone. With --rpc, the
headers of --from to --to are fetched; without --to, up to the finalised block. Candidates are counted.
The candidates without a match, the receipts and the bytes are estimated. Estimates of receipts and bytes
use means over mainnet blocks of 2019 to 2025: single blocks differ by a factor of up to two."
);

/// Estimate the cost of a query before anything is fetched.
#[derive(Debug, Args)]
#[command(
    after_long_help = FORECAST_HELP,
    mut_arg("headers", headers_or_rpc),
    mut_arg("format", unless_rpc),
    mut_arg("threads", unless_rpc)
)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    pub(crate) headers: LinkedHeaderArgs,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

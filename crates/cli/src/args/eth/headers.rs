//! `eth header` and `eth stats`.

use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::eth::files::FileFormat;
use clap::Args;

use crate::args::OverwriteArgs;
use crate::args::{Choice, choice};

/// What sources of headers are, for each command that reads them.
macro_rules! formats_help {
    () => {
        "\
Headers come from files, - for standard input, or as hex. Files hold RLP headers (or blocks, as geth
export writes them) one behind the other; JSON objects of headers or blocks, bare, a line each, in
an array or in a node's replies; hex of debug_getRawHeader, one a line; or are era1 and ere archives.
Which it is shows at their start. A header from JSON is taken only if its fields have its hash."
    };
}
pub(crate) use formats_help;

/// What headers are written in; none to look at the first bytes.
pub(crate) type HeaderFormat = Option<FileFormat>;

/// `--format`.
pub(super) const FORMATS: [Choice<HeaderFormat>; 5] = [
    ("auto", None, "Look at the first bytes"),
    ("rlp", Some(FileFormat::Rlp), "RLP headers, or blocks, one behind the other"),
    ("json", Some(FileFormat::Json), "JSON objects, or hex strings in JSON"),
    ("hex", Some(FileFormat::Hex), "Hex, one header a line"),
    ("era", Some(FileFormat::Era), "An era1 or ere archive"),
];

pub(super) const HEADER_HELP: &str = concat!(
    formats_help!(),
    "

JSON: headers[{source, place, hash, number, parent_hash, timestamp, time, layout (frontier | london |
shanghai | cancun | prague | amsterdam | unknown), fields, bytes, beneficiary, state_root,
transactions_root, receipts_root, ommers_hash, difficulty, gas_limit, gas_used, extra_data, mix_hash,
nonce, base_fee_per_gas, withdrawals_root, blob_gas_used, excess_blob_gas, parent_beacon_block_root,
requests_hash, block_access_list_hash, slot_number (each of these null if the header has none),
logs_bloom{bytes, bits_set, fill, rates[of 1 to 3 absent values], estimated_values (null without
bound), informative}}], count, linked (each is the parent of the next)"
);

/// Headers of any kind.
#[derive(Debug, Args)]
pub(crate) struct HeadersArgs {
    /// The headers: hex, files, or - for standard input
    #[arg(value_name = "HEADERS", required = true)]
    pub(crate) headers: Vec<String>,
    /// What the headers are written in
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto")]
    pub(crate) format: HeaderFormat,
}

const STATS_HELP: &str = concat!(
    formats_help!(),
    "

A rate is the share of blocks whose filter says \"maybe\" for values that they do not hold: the mean
of p^3, p^6 and p^9 over the blocks, p being the fill of each. Values are an address or a topic.

JSON: blocks, first, last, linked, first_time, last_time, no_information (filters that are full or
not of 256 bytes), empty (no bit set), fill{min, p10, median, mean, p90, max}, rates[of 1 to 3
values], buckets[{first, last, first_time, last_time, blocks, no_information, empty, fill{…},
rates[…]}]. A fill is a share of 2048 bits, a time is in seconds since 1970."
);

/// How full the filters of a chain are, and what that costs a query.
#[derive(Debug, Args)]
#[command(after_long_help = STATS_HELP)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) source: HeadersArgs,
    /// The rows of the table: auto, month, or a number of blocks
    #[arg(long, value_name = "ROWS", default_value = "auto")]
    pub(crate) by: Buckets,
    /// Draw a chart, readable on light and on dark pages
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// The chart's title
    #[arg(long, value_name = "TEXT", requires = "svg")]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// What a row of the table covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buckets {
    /// A round number of blocks that gives some twenty rows.
    Auto,
    /// A month.
    Month,
    /// So many blocks.
    Blocks(u64),
}

impl FromStr for Buckets {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "month" => Ok(Self::Month),
            number => number
                .replace([',', '_'], "")
                .parse()
                .ok()
                .filter(|&blocks| blocks > 0)
                .map(Self::Blocks)
                .ok_or("neither auto, month nor a number of blocks"),
        }
    }
}

//! Arguments of `eth header` and `eth stats`.

use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::eth::files::FileFormat;
use clap::Args;

use crate::args::OverwriteArgs;
use crate::args::{Choice, choice};

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

pub(super) const HEADER_HELP: &str = concat!(
    formats_help!(),
    "

JSON: headers[{source, place, hash, number, parent_hash, timestamp, time, layout (frontier | london |
shanghai | cancun | prague | amsterdam | unknown), fields, bytes, beneficiary, state_root,
transactions_root, receipts_root, ommers_hash, difficulty, gas_limit, gas_used, extra_data, mix_hash,
nonce, base_fee_per_gas, withdrawals_root, blob_gas_used, excess_blob_gas, parent_beacon_block_root,
requests_hash, block_access_list_hash, slot_number (each of these null if the header has none),
logs_bloom{bytes, bits_set, fill, rates[of 1 to 3 absent values], estimated_values (null if
unbounded), informative}}], count, linked (true if each header is the parent of the next)"
);

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
the blocks, where p is the fill of each block's filter. A value is an address or a topic.

JSON: blocks, first, last, linked, first_time, last_time, no_information (filters that are full or
not of 256 bytes), empty (no bit set), fill{min, p10, median, mean, p90, max}, rates[of 1 to 3
values], buckets[{first, last, first_time, last_time, blocks, no_information, empty, fill{…},
rates[…]}]. A fill is a share of 2048 bits, a time is in seconds since 1970."
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

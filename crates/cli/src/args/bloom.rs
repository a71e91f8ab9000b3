//! Arguments of `btc bloom …`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::bitcoin::Network;
use chainsieve::btc::bip37::UpdateMode;
use clap::Args;

use super::{Choice, choice, network};
use crate::args::OverwriteArgs;
use crate::args::number::count;

const NEW_HELP: &str = "\
The kind of an item is detected from its form: an address, TXID:VOUT, a public key, or a descriptor
(anything with a parenthesis). The kind of other hex cannot be detected: write script:HEX, data:HEX
or txid:HEX. Any item may be written KIND:VALUE. Files and standard input contain one item per line;
# starts a comment.

The payload is written to standard output as hex, the table to standard error. `chainsieve btc match
--help` describes how a filter is matched.

JSON: payload, elements[{kind, item, index, data}], sized_for, bytes, hash_funcs, tweak,
tweak_random, update, target_rate, rate, privacy{own, others} (numbers of addresses expected to match),
warnings[]";

/// Build the filter of a wallet: the payload of a filterload message.
#[derive(Debug, Args)]
#[command(after_long_help = NEW_HELP)]
pub(crate) struct NewArgs {
    /// Items to watch; their kinds are detected; - reads standard input
    #[arg(value_name = "ITEM")]
    pub(crate) items: Vec<String>,
    /// An address
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Vec<String>,
    /// An output script: each of its data pushes is inserted
    #[arg(long, value_name = "HEX")]
    pub(crate) script: Vec<String>,
    /// A public key: its hash is inserted, and with --with-keys the key itself too
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Vec<String>,
    /// An outpoint: the transaction that spends it matches
    #[arg(long, value_name = "TXID:VOUT")]
    pub(crate) outpoint: Vec<String>,
    /// A transaction id
    #[arg(long, value_name = "TXID")]
    pub(crate) txid: Vec<String>,
    /// Bytes that a script pushes
    #[arg(long, value_name = "HEX")]
    pub(crate) data: Vec<String>,
    /// An output descriptor with public keys; it may be ranged or multipath
    #[arg(long, value_name = "DESCRIPTOR")]
    pub(crate) descriptor: Vec<String>,
    /// A file of items, one per line; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,

    /// The indices of ranged descriptors: a single index, or FIRST-LAST
    #[arg(long, value_name = "RANGE", default_value = "0-99")]
    pub(crate) range: Range,
    /// Insert public keys as well as their hashes: this finds also P2PK and multisig outputs, but
    /// reduces privacy
    #[arg(long)]
    pub(crate) with_keys: bool,
    /// The false-positive rate: the share of elements outside the filter that match too
    #[arg(long, value_name = "RATE", default_value_t = 0.00001, allow_negative_numbers = true, value_parser = fpr)]
    pub(crate) fpr: f64,
    /// Size the filter for this many elements [default: the number inserted, plus 100 for outpoints
    /// unless --update none]
    #[arg(long, value_name = "COUNT", value_parser = count(1..=u32::MAX))]
    pub(crate) elements: Option<u32>,
    /// The tweak, decimal or 0x…: a wallet must always use the same one [default: random]
    #[arg(long, value_name = "NUMBER", value_parser = tweak)]
    pub(crate) tweak: Option<u32>,
    /// The matching outputs whose outpoints the node inserts into the filter
    #[arg(long, value_parser = choice(&UPDATES), default_value = "all")]
    pub(crate) update: UpdateMode,
    /// The network of the addresses
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the payload to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the payload to the file as raw bytes, not hex
    #[arg(long, requires = "out")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const INSPECT_HELP: &str = "\
Exit code 1 means that nodes reject the filter because it exceeds their size limits.

JSON: bytes, hash_funcs, tweak, flags, update, bits, bits_set, fill, rate, estimated_elements (null
if unbounded), matches_everything, accepted_by_nodes, trailing_bytes, warnings[]";

/// Show the fields, fill and false-positive rate of a filter, and warn of anything unusual.
#[derive(Debug, Args)]
#[command(after_long_help = INSPECT_HELP)]
pub(crate) struct InfoArgs {
    /// The payload of a filterload message: hex, a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
}

/// Possible values of `--update`.
const UPDATES: [Choice<UpdateMode>; 3] = [
    ("none", UpdateMode::None, "No outputs: later spends of matched outputs are not found"),
    ("all", UpdateMode::All, "Every output that matches"),
    ("p2pubkey-only", UpdateMode::P2PubkeyOnly, "Only outputs to a bare public key or multisig"),
];

/// Returns the word for an update mode, as `--update` accepts it.
pub(crate) fn update_name(mode: UpdateMode) -> &'static str {
    match mode {
        UpdateMode::None => "none",
        UpdateMode::All => "all",
        UpdateMode::P2PubkeyOnly => "p2pubkey-only",
    }
}

pub(super) fn fpr(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate) && *rate > 0.0);
    rate.ok_or_else(|| String::from("not a rate between 0 and 1"))
}

fn tweak(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| String::from("not a number from 0 to 4294967295"))
}

/// The indices of a descriptor: `7` or `0-99`.
#[derive(Debug, Clone)]
pub(crate) struct Range(pub(crate) RangeInclusive<u32>);

impl FromStr for Range {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            return Err("neither an index nor FIRST-LAST");
        };
        // The largest filter that nodes accept has 288,000 bits, so a wider range is a typing
        // error.
        match last.checked_sub(first) {
            None => Err("the first index is greater than the last"),
            Some(288_000..) => Err("more indices than the largest filter has bits, 288000"),
            Some(_) => Ok(Self(first..=last)),
        }
    }
}

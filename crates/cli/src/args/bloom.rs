//! Arguments of the commands of BIP37: `btc bloom …`, `btc match` and `btc prove …`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::bitcoin::{BlockHash, Network};
use chainsieve::btc::bip37::UpdateMode;
use chainsieve_report::args::{Choice, choice, count, network};
use clap::{Args, ValueEnum};

use super::OverwriteArgs;

const NEW_HELP: &str = "\
The kind of an item is detected from its form: an address, TXID:VOUT, a public key, or a descriptor
(anything with a parenthesis). The kind of other hex cannot be detected: write script:HEX, data:HEX
or txid:HEX. Any item may be written KIND:VALUE. Files and standard input contain one item per line;
# starts a comment.

The payload is written to standard output as hex, the table to standard error. `chainsieve btc match
--help` describes how a filter is matched.";

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
    /// The tweak, decimal or 0x…: a wallet must always use the same tweak [default: random]
    #[arg(long, value_name = "NUMBER", value_parser = tweak)]
    pub(crate) tweak: Option<u32>,
    /// Which matching outputs make the node insert their outpoints into the filter
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
Exit code 1 means that nodes reject the filter because it exceeds their size limits.";

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
    UPDATES.iter().find(|(_, own, _)| *own == mode).map_or("", |(word, ..)| word)
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

const MATCH_HELP: &str = "\
The filter is updated as a node updates it, across all inputs in their order: a coin received in one
block is found when a later block spends it. Witness data is never matched.
Exit code 1 means that nothing matched.";

/// Match blocks or transactions against a filter, as a node does.
#[derive(Debug, Args)]
#[command(after_long_help = MATCH_HELP)]
pub(crate) struct MatchArgs {
    /// The payload of a filterload message: hex, a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// Blocks or transactions: hex, files (raw, or one hex item per line), or -
    #[arg(value_name = "BLOCK|TX", required = true)]
    pub(crate) inputs: Vec<String>,
    /// The kind of the inputs
    #[arg(long = "as", value_enum, default_value_t = Contents::Auto, value_name = "KIND")]
    pub(crate) contents: Contents,
    /// The network whose addresses are shown
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the updated filter to this file, as hex
    #[arg(long, value_name = "FILE")]
    pub(crate) filter_out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// Possible values of `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contents {
    /// A block if the input decodes as one, otherwise a transaction
    Auto,
    /// Blocks
    Block,
    /// Transactions
    Tx,
}

const VERIFY_HELP: &str = "\
Exit codes: 0 the merkleblock is valid, and proves all given transactions
            1 the merkleblock is valid, but does not prove all given transactions
            3 the merkleblock is invalid, or its block is not --block-hash

If nothing matched, a node sends a valid merkleblock without transactions: exit code 0. If the
merkleblock contains the coinbase transaction, give that transaction too: only the coinbase proves the
height of the merkle tree.";

/// Verify a merkleblock, and list what it proves and what it does not prove.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP)]
pub(crate) struct VerifyArgs {
    /// The payload of a merkleblock message: hex, a file, or - for standard input
    #[arg(value_name = "MERKLEBLOCK")]
    pub(crate) merkle_block: String,
    /// Transactions delivered with the merkleblock: hex, files (raw, or one hex item per line), or
    /// -
    #[arg(value_name = "TX")]
    pub(crate) transactions: Vec<String>,
    /// The network, whose proof-of-work limit applies
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// The set of checks that the merkleblock must pass
    #[arg(long, value_enum, default_value_t = PolicyName::Strict)]
    pub(crate) policy: PolicyName,
    /// The expected block hash, which you know to be in the chain
    #[arg(long, value_name = "HASH")]
    pub(crate) block_hash: Option<BlockHash>,
}

/// Possible values of `--policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Check tree and proof of work; reject 64-byte transactions, and inner nodes that decode as a
    /// transaction
    Strict,
    /// Check the tree only, as Bitcoin Core does
    Core,
}

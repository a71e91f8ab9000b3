//! Arguments of `eth index …`.

use std::path::PathBuf;

use chainsieve::eth::index::Settings;
use chainsieve::eth::log_query::BlockTag;
use chainsieve_report::args::count;
use clap::{Args, Subcommand};

use super::anchor::{BeaconArgs, needs_rpc};
use super::scan::{LinkedHeaderArgs, formats_help, headers_or_rpc};
use crate::eth::RpcArgs;
use crate::eth::query::{QueryArgs, block_number};

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Build an index of headers, or add headers to an index
    Build(Box<BuildArgs>),
    /// Find the blocks that may contain logs of a query
    Query(Box<QueryIndexArgs>),
    /// Show the contents and the size of an index, and the fill of its filters
    Info(InfoArgs),
    /// Check a whole index: its checksums, and its contents against headers
    Verify(VerifyIndexArgs),
}

/// Help text that defines an index, for each command that uses one.
macro_rules! index_help {
    () => {
        "\
An index is a folder. It is a cache of headers that its builder verified, and proves nothing to anyone
else: its checksums detect accidents, not forgery. `verify` with headers compares every bit."
    };
}

const BUILD_HELP: &str = concat!(
    formats_help!(),
    "

Each header must be the child of the previous one. The folder is created if it is missing. Blocks are
durable after each sync (--sync-every). If the command is killed, the index ends at the last sync, and the
same command continues from there.

If the index exists, headers are added to it. Headers of blocks that it contains are skipped: sealed blocks
without a comparison, the others if the hashes are equal. The first other header must be the child of a block
of the index. If that block is not the last one, the headers are of another branch: the blocks after it are
removed and listed, also if an error ends the command later. The command cannot decide which of two branches
is the better one: a file of an old branch removes newer blocks, also if it is shorter. If a sealed block
would have to be removed, nothing changes, and the error says what to do.

The newest blocks (--confirmations) stay unsealed, so that they can be removed. All earlier blocks are
sealed, in sections of 8,192.

With --rpc, headers are fetched from a provider, a hundred per request and several requests at a time.
Each header is hashed locally and must be the child of the previous one. Which chain the headers belong to
is the provider's claim, unless a light client brings the newest finalised block (--data, or --checkpoint and
--beacon): the range then ends there by default, and it is an error if the provider has another block
there. If the last block of the index is not on the provider's chain, the blocks after the last common block
are removed and listed. Ctrl-C ends the command; blocks added so far are kept.

",
    index_help!()
);

#[derive(Debug, Args)]
#[command(after_long_help = BUILD_HELP)]
pub(crate) struct BuildArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// With --rpc, the first block of a new index
    #[arg(long, value_name = "BLOCK", requires = "rpc", value_parser = block_number)]
    pub(crate) from: Option<u64>,
    /// A label for the chain, of 1 to 32 bytes [default: mainnet, or the label of an existing
    /// index]
    ///
    /// The label of an existing index cannot be changed
    #[arg(long, value_name = "LABEL", value_parser = label)]
    pub(crate) label: Option<String>,
    /// Store the hash of each block of a new index, 32 bytes per block: queries then print the
    /// hashes of candidates
    #[arg(long)]
    pub(crate) block_hashes: bool,
    #[command(flatten)]
    pub(crate) adding: AddingArgs,
    // These arguments come last, because their heading applies to all arguments after the heading.
    #[command(flatten)]
    pub(crate) headers: AddedHeaders,
}

/// Headers that must form one chain, from files or from a provider.
#[derive(Debug, Args)]
#[command(mut_arg("headers", headers_or_rpc), mut_args(needs_rpc))]
pub(crate) struct AddedHeaders {
    #[command(flatten)]
    pub(crate) linked: LinkedHeaderArgs,
    /// With --rpc, the last block: a number, latest, safe or finalized [default: latest]
    #[arg(long, value_name = "BLOCK", requires = "rpc", value_parser = block_tag)]
    pub(crate) to: Option<BlockTag>,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
}

/// Parses a block number, or one of the tags `latest`, `safe` and `finalized`.
fn block_tag(text: &str) -> Result<BlockTag, String> {
    match text {
        "latest" => Ok(BlockTag::Latest),
        "safe" => Ok(BlockTag::Safe),
        "finalized" => Ok(BlockTag::Finalized),
        number => match block_number(number) {
            Ok(number) => Ok(BlockTag::Number(number)),
            Err(_) => Err("neither a number nor latest, safe or finalized".into()),
        },
    }
}

/// Arguments about how headers are added.
#[derive(Debug, Args)]
pub(crate) struct AddingArgs {
    /// Number of newest blocks that stay unsealed
    ///
    /// This is the maximum depth of a reorganisation that can be undone
    #[arg(long, value_name = "BLOCKS", default_value_t = 256, value_parser = count(0..=u64::MAX))]
    pub(crate) confirmations: u64,
    /// Make added blocks durable after this many headers, also every 5 seconds and at the end
    #[arg(
        long,
        value_name = "HEADERS",
        default_value_t = 262_144,
        value_parser = count(1..=u64::MAX),
        hide_short_help = true
    )]
    pub(crate) sync_every: u64,
}

const QUERY_HELP: &str = concat!(
    "\
The candidates are those of `chainsieve eth scan` over the same headers: blocks that may contain a log of
the query, because their filter does not rule that out. All other blocks contain none, provided that the
index matches the headers.

The index defines the range: --from, --to and block numbers in --query narrow it; latest and other tags
do not. A query for one blockHash is an error. Exit code 1 means that there is no candidate.

",
    index_help!(),
    "
Before you rely on a candidate, link its header to a hash that you trust. If the index stores block hashes,
compare the hash of the candidate. Otherwise use the headers from the candidate to the next block whose
hash the index stores: the last block of its section of 8,192."
);

#[derive(Debug, Args)]
#[command(after_long_help = QUERY_HELP)]
pub(crate) struct QueryIndexArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    /// Print counts only, not each candidate
    #[arg(long)]
    pub(crate) count: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

const INFO_HELP: &str = concat!(
    index_help!(),
    "

A rate is the false-positive rate of one, two or three values at once: the share of blocks whose filter
answers \"maybe\" although the block does not contain the values. It is the mean of p^3, p^6 and p^9 over
the blocks, where p is the fill of each block's filter. A value is an address or a topic."
);

#[derive(Debug, Args)]
#[command(after_long_help = INFO_HELP)]
pub(crate) struct InfoArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
}

const VERIFY_HELP: &str = concat!(
    "\
Without headers, the command checks every checksum, every row's bits against their count, the chain of
hashes from section to section, and the unsealed blocks one by one. This detects accidents.

With headers, it also compares every bit, hash, fill and sum of gas of the blocks of these headers. Headers
of blocks that the index does not contain are an error. Headers that do not cover the whole index are an
error too, unless --part is given. Fills, times and sums of gas are compared for sections whose headers are
all given.

",
    formats_help!(),
    "

Exit codes: 0 valid · 3 the index differs from the headers · 5 the index is damaged. The error contains
the file, the part and the block."
);

#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP, mut_arg("headers", |headers| headers.required(false)))]
pub(crate) struct VerifyIndexArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) linked: LinkedHeaderArgs,
    /// Accept headers that cover only a part of the index
    #[arg(long, requires = "headers")]
    pub(crate) part: bool,
}

/// Parses the label of a chain; the index accepts 1 to 32 bytes.
fn label(text: &str) -> Result<String, String> {
    Settings::new(text).map(|settings| settings.label().to_owned()).map_err(|e| e.to_string())
}

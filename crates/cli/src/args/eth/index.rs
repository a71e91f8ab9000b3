//! `eth index …`.

use std::path::PathBuf;

use chainsieve::eth::index::Settings;
use chainsieve::eth::log_query::BlockTag;
use clap::{Args, Subcommand};

use super::headers::formats_help;
use super::query::{QueryArgs, block_number};
use super::rpc::RpcArgs;
use super::scan::{LinkedHeaders, headers_or_rpc};
use crate::args::number::count;

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Index headers, in a new folder or on from where an earlier build stopped
    Build(BuildArgs),
    /// Add headers to an index, and take a reorganisation back if they are of another branch
    Append(AppendArgs),
    /// Find the blocks that may have logs of a query
    Query(Box<QueryIndexArgs>),
    /// What a query reads and what it will cost, without running it
    Explain(Box<ExplainArgs>),
    /// What an index holds, how large it is, how full its filters are
    Info(InfoArgs),
    /// Check all of an index, by itself or against the headers
    Verify(VerifyIndexArgs),
}

/// What an index is, for each command.
macro_rules! index_help {
    () => {
        "\
An index is a folder. It is a cache of headers that whoever built it verified, and proves nothing to
anyone else: checksums find accidents, not liars. `verify` with headers compares every bit."
    };
}

/// Where headers come from if not out of files.
macro_rules! rpc_help {
    () => {
        "\
With --rpc, headers come from a provider, a hundred in a request and several requests at a time. The
hash of each is computed here, and each must be the child of the one before: which chain it is
remains the provider's word. If the index's last block is not on the provider's chain, the blocks
down to the last common one are taken off and listed. Ctrl-C ends the command with what there is."
    };
}

/// What building prints.
macro_rules! added_help {
    () => {
        "\
JSON: lines, told apart by kind:
  synced   number, hash: of the last block that is durable, each time that blocks became so
  summary  label, added, removed[{number, hash}] (1,000 at the most), removed_blocks, first, last,
           last_hash, sealed_sections (by this command), seconds, headers_per_second, bytes (of the
           folder), bytes_per_header, block_hashes, warnings[]: the last line"
    };
}

const BUILD_HELP: &str = concat!(
    formats_help!(),
    "

Each header must be the child of the one before. The folder is made if it is not there. Blocks are
durable each time that they are synced (--sync-every): killed at any moment, the command leaves an
index up to the last sync, and the same command goes on from there. Files are then read again, but
headers below the index's next block are neither hashed nor compared; the one behind its last block
must be its child.

The newest blocks (--confirmations) stay unsealed, so that `append` can take them back. All before
are sealed, 8,192 at a time.

",
    rpc_help!(),
    "\n\n",
    index_help!(),
    "\n\n",
    added_help!()
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
    /// A label for the chain, of 1 to 32 bytes
    ///
    /// Compared each time that headers are added
    #[arg(long, value_name = "LABEL", default_value = "mainnet", value_parser = label)]
    pub(crate) label: String,
    /// Keep the hash of each block, 32 bytes: candidates then come with it
    #[arg(long)]
    pub(crate) block_hashes: bool,
    #[command(flatten)]
    pub(crate) adding: AddingArgs,
    // After the rest: a heading holds for all that comes after it.
    #[command(flatten)]
    pub(crate) headers: AddedHeaders,
}

const APPEND_HELP: &str = concat!(
    formats_help!(),
    "

Each header must be the child of the one before, and the first the child of a block of the index. If
that is not the last one, the headers are another branch: the blocks above are taken off and listed.
Nothing here knows which of two branches is the better one. Only unsealed blocks can be taken off; if
it takes a sealed one, nothing changes and the way out is said. Headers that the index has are
skipped: the sealed ones without a look, the others by their hash.

",
    rpc_help!(),
    "\n\n",
    index_help!(),
    "\n\n",
    added_help!()
);

#[derive(Debug, Args)]
#[command(after_long_help = APPEND_HELP)]
pub(crate) struct AppendArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) adding: AddingArgs,
    #[command(flatten)]
    pub(crate) headers: AddedHeaders,
}

/// Headers that must be one chain, out of files or from a provider.
#[derive(Debug, Args)]
#[command(mut_arg("headers", headers_or_rpc))]
pub(crate) struct AddedHeaders {
    #[command(flatten)]
    pub(crate) linked: LinkedHeaders,
    /// With --rpc, the last block: a number, latest, safe or finalized [default: latest]
    #[arg(long, value_name = "BLOCK", requires = "rpc", value_parser = block_tag)]
    pub(crate) to: Option<BlockTag>,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
}

/// A block by number or by its role.
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

/// How headers are added.
#[derive(Debug, Args)]
pub(crate) struct AddingArgs {
    /// The newest blocks that stay unsealed
    ///
    /// How deep a reorganisation can be taken back
    #[arg(long, value_name = "BLOCKS", default_value_t = 256, value_parser = count(0..=u64::MAX))]
    pub(crate) confirmations: u64,
    /// Make what was added durable after so many headers, after some seconds, and at the end
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
The same candidates as those of `chainsieve eth scan` over the same headers: blocks that may have
such a log, since their filter does not rule it out. Of all others it is as sure that they have none
as the index is true to the headers.

The index is the range: --from, --to and block numbers in --query narrow it, latest and other tags do
not. A query for one blockHash takes an index with block hashes. Exits with 1 if there is no
candidate.

",
    index_help!(),
    "
Before a candidate counts for anything, link its header to a hash that you trust: with block hashes
by its own, else by the headers from it to the next block whose hash the index has, which is the last
of its section of 8,192.

JSON: lines, told apart by kind:
  candidate  number, hash (null unless the index has it)
  summary    label, blocks, first, last, candidates, share, expected_false (candidates by chance, if
             none held a match), link{number, hash} (of the last candidate: the block to which its
             header is linked; null without a candidate), seconds, query, semantics, warnings[]: the
             last line"
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

const EXPLAIN_HELP: &str = concat!(
    "\
What answering takes, without the headers: the plan of the query on the index, and what looking into
its candidates will cost, as `chainsieve eth forecast` says it of headers. Candidates are counted;
receipts and bytes are estimated from how full filters are and the gas of blocks as full, which the
index has for each section.

",
    index_help!(),
    "

JSON: blocks, first, last, candidates, share, expected_false, fill{median, mean}, receipts,
most_receipts, slim_bytes, consensus_bytes, clauses[{what (addresses | topic0 | …), values (how
many), candidates, share, selects_nothing, each[{value, share}]}], query, label, plan{rows[{row (the
bit, 0 to 2047; in the order in which they are read), clause (of which it is), density (share of
blocks that have it, without skipped sections), sections, bytes}], sections, skipped_sections, bytes
(at the most), unsealed_blocks (tested one by one)}, semantics, warnings[]."
);

#[derive(Debug, Args)]
#[command(after_long_help = EXPLAIN_HELP)]
pub(crate) struct ExplainArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

const INFO_HELP: &str = concat!(
    index_help!(),
    "

A rate is the share of blocks whose filter says \"maybe\" for values that they do not hold: the mean
of p^3, p^6 and p^9 over the blocks, p being the fill of each. Values are an address or a topic.

JSON: label, block_hashes, blocks, first, last, first_hash (null while it is not sealed), last_hash,
first_time, last_time, sealed_sections, segments[{file, sections, first, last, bytes}], unsealed
(blocks), bytes (of the folder), bytes_per_header, no_information, empty, fill{min, p10, median,
mean, p90, max}, rates[of 1 to 3 values], buckets[{first, last, blocks, no_information, empty,
fill{…}, rates[…]}]."
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
Without headers: every checksum, every row's bits against their count, the chain of hashes from
section to section, and the unsealed blocks one by one. This finds accidents.

With headers: every bit, hash, fill and sum of gas of the blocks that the headers are of, besides.
Headers of blocks that the index does not have are an error; so are headers that leave blocks of the
index out, unless --part says that they may. Fills, times and sums of gas are compared of the
sections of which all headers are given.

",
    formats_help!(),
    "

Exit codes: 0 valid · 3 the index differs from the headers · 5 the index is damaged. File, part and
block are printed.

JSON: valid, error (null if valid), label, blocks, first, last, sections, bytes, compared{blocks,
first, last, sections (whole ones)} (null without headers), warnings[]."
);

#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP, mut_arg("headers", |headers| headers.required(false)))]
pub(crate) struct VerifyIndexArgs {
    /// The folder of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: PathBuf,
    #[command(flatten)]
    pub(crate) linked: LinkedHeaders,
    /// The headers are of a part of the index only
    #[arg(long, requires = "headers")]
    pub(crate) part: bool,
}

/// A label of a chain that can be written.
fn label(text: &str) -> Result<String, String> {
    Settings::new(text).map(|settings| settings.label().to_owned()).map_err(|e| e.to_string())
}

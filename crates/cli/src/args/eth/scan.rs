//! `eth scan` and `eth forecast`.

use clap::{Arg, Args};

use super::audit::TrustArgs;
use super::headers::{FORMATS, HeaderFormat, formats_help};
use super::query::QueryArgs;
use super::rpc::RpcArgs;
use crate::args::choice;
use crate::args::number::count;

const SCAN_HELP: &str = concat!(
    formats_help!(),
    "

A candidate is a block that may have such a log, since its filter does not rule it out; of all
others it is proven that they have none, if their hashes are authentic. Each header must be the
child of the one before. A hash authenticates its block and all before it, so a trusted --anchor is
the last header or one behind the queried blocks; without one, the result is the word of
whoever gave the headers.

With --rpc, the headers are asked for, by debug_getRawHeader where the node serves it, else as JSON
under their hash. The range then begins at --from and ends at the finalised block, unless --to says
earlier or --unfinalized allows later; headers up to the --anchor are fetched too.

The headers given are the range: --from, --to and block numbers in --query narrow it, latest and
other tags do not.

Where the filters of the --chain do not commit to every log, each block is a candidate. Without
--chain, headers in files are taken for Ethereum's, and those of a provider for the chain whose id it
returns.

Exit codes: 0 candidates · 1 none · 4 an --anchor is given, and no header of the range or after it
has its hash.

JSON: lines, told apart by kind:
  candidate  number, hash, answer (maybe | no_information)
  summary    blocks, first, last, last_hash, candidates, no_information, share, rate (share of
             blocks that pass by chance), fill (mean), anchored_to (null: nothing is), query,
             semantics, chain, chain_from (user | provider | assumed), warnings[], provider{host}
             (with --rpc): the last line"
);

/// Find the blocks that may have logs of a query.
#[derive(Debug, Args)]
#[command(
    after_long_help = SCAN_HELP,
    mut_arg("headers", headers_or_rpc),
    mut_arg("format", unless_rpc),
    mut_arg("threads", unless_rpc)
)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) linked: LinkedHeaders,
    /// Print counts only, not each candidate
    #[arg(long)]
    pub(crate) count: bool,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    /// Take blocks behind the finalised one too, which may still leave the chain
    #[arg(long, requires = "rpc", help_heading = "The provider")]
    pub(crate) unfinalized: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Headers, unless they come from a provider.
pub(super) fn headers_or_rpc(headers: Arg) -> Arg {
    unless_rpc(headers).required(false).required_unless_present("rpc")
}

pub(super) fn unless_rpc(arg: Arg) -> Arg {
    arg.conflicts_with("rpc")
}

/// Headers that must be one chain.
#[derive(Debug, Args)]
pub(crate) struct LinkedHeaders {
    /// The headers, in order: files, - for standard input, or hex
    #[arg(value_name = "HEADERS", required = true)]
    pub(crate) headers: Vec<String>,
    /// What the headers are written in
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto", hide_short_help = true)]
    pub(crate) format: HeaderFormat,
    /// Threads that hash and scan, 1024 at most [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = count(1..=1024_u16))]
    pub(crate) threads: Option<u16>,
}

const FORECAST_HELP: &str = concat!(
    formats_help!(),
    "

What it will take to answer a query with proof, from the headers alone. Candidates are counted;
which of them hold nothing, their receipts and bytes are estimated, the last two from means over
mainnet blocks of 2019 to 2025: single blocks differ by a factor of up to two.

JSON: blocks, first, last, candidates, share, expected_false, fill{median, mean}, receipts,
most_receipts, slim_bytes, consensus_bytes, clauses[{what (addresses | topic0 | …), values (how
many), candidates, share, selects_nothing, each[{value, share}]}], query, semantics, warnings[]."
);

/// What a query will cost, before anything is fetched.
#[derive(Debug, Args)]
#[command(after_long_help = FORECAST_HELP)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    pub(crate) headers: LinkedHeaders,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

//! Arguments of `eth scan` and `eth forecast`.

use clap::{Arg, Args};

use super::audit::TrustArgs;
use super::beacon::{BeaconArgs, beacon_help, needs_rpc};
use super::headers::{FORMATS, HeaderFormat, formats_help};
use super::query::QueryArgs;
use super::rpc::RpcArgs;
use crate::args::choice;
use crate::args::number::count;

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
            4 an --anchor is given, and no header at or after the end of the range has its hash

JSON: one object per line, of one of these kinds:
  candidate  number, hash, answer (maybe | no_information)
  summary    blocks, first, last, last_hash, candidates, no_information, share, rate (share of
             blocks that pass by chance), fill (mean), anchored_to (null: no block), query,
             semantics, chain, chain_from (user | provider | assumed), warnings[], provider{host}
             (with --rpc), anchor_from (user | light_client | provider), light_client (as in `eth
             anchor sync`, without folder and warnings, and linked{number, hash, grade, by[]}; or
             null): the last line"
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
    /// Include blocks after the finalised one, which a reorganisation may still remove
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

The command computes the cost of answering a query with proof, from the headers alone. Candidates are
counted. The candidates without a match, the receipts and the bytes are estimated. Estimates of receipts
and bytes use means over mainnet blocks of 2019 to 2025: single blocks differ by a factor of up to two.

JSON: blocks, first, last, candidates, share, expected_false (candidates without a match), fill{median,
mean}, receipts, most_receipts, slim_bytes, consensus_bytes, clauses[{what (addresses | topic0 | …),
values (their number), candidates, share, selects_nothing, each[{value, share}]}], query, semantics,
warnings[]."
);

/// Estimate the cost of a query before anything is fetched.
#[derive(Debug, Args)]
#[command(after_long_help = FORECAST_HELP)]
pub(crate) struct ForecastArgs {
    #[command(flatten)]
    pub(crate) headers: LinkedHeaderArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}

//! Arguments of `eth serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::audit::TrustArgs;
use super::beacon::BeaconArgs;
use super::rpc::RpcArgs;
use crate::args::number::count;

const SERVE_HELP: &str = "\
Listens for JSON-RPC over HTTP and WebSocket. An answer leaves only if it is proven: its blocks lead to a hash
that you trust, and its logs are read from all receipts of each block that may have one, under the receipts root
of the block's header. What an upstream leaves out is therefore in the answer all the same, and is counted.
Transaction hashes are bound by the transactions root. If something cannot be proven, the answer is an error that
says what is missing.

Proven: eth_getLogs, eth_newFilter, eth_newBlockFilter, eth_getFilterChanges, eth_getFilterLogs,
eth_uninstallFilter, eth_subscribe (logs, newHeads), eth_getBlockReceipts, eth_getTransactionReceipt,
eth_getBlockByNumber, eth_getBlockByHash, eth_blockNumber, eth_chainId, net_version; web3_clientVersion names
this program. `latest` is the newest verified block, `safe` and `finalized` are the newest final one. Any other
method is refused, or passed on without a proof (--unverified pass): single calls over HTTP, whose answers have
the header chainsieve-unverified.
What cannot be proven of these methods: that a transaction or hash is in no block (null), and blobGasPrice (left out).

The head comes from --beacon and --checkpoint (a light client: the newest block that two thirds of a sync committee
signed), from --anchor (that block, and no newer one), or with --trust-head from the upstreams: then all answers
are only as authentic as the head that they name.

Also served: GET /health (503 until a block is verified), GET /metrics (for Prometheus). Errors have the codes of
EIP-1474 and data.reason: not_ready, beyond_verified_head, limit, unknown_block, unverified_method, no_receipts,
no_transactions, no_withdrawals, no_ommers, unknown_type,
no_headers, chain_profile, gap, upstream. An error for lack of receipts has data.proven (ranges that are proven) and
data.missing.

Ends at Ctrl-C or SIGTERM with exit code 0.

JSON: one object per line, of one of these kinds:
  listening    address, trust, chain_id, upstreams[], warnings[]: the first line
  head         head{number, hash}, finalized, removed (number of blocks that left the chain)
  head_failed  why
  indexed      blocks{start, end}: the index has them
  index_failed why
  wrong_logs   upstream, range{start, end}, found{omitted, altered, invented}
  summary      head{number, hash}, calls (of clients), warnings[]: the last line";

/// What happens to calls whose answers cannot be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unverified {
    /// They get an error.
    Refuse,
    /// They are passed to an upstream, and the answer is marked.
    Pass,
}

/// Serve JSON-RPC whose answers are proven
#[derive(Debug, Args)]
#[command(mut_arg("rpc", |rpc| rpc.required(true)), after_long_help = SERVE_HELP)]
pub(crate) struct ServeArgs {
    /// The address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8546")]
    pub(crate) listen: SocketAddr,
    /// Allow an address that other machines can reach
    ///
    /// Whoever reaches it can use the upstreams at your cost
    #[arg(long)]
    pub(crate) listen_anywhere: bool,
    /// Answer only requests for this host, as in their Host header, for example `localhost:*`
    ///
    /// Unless given, an address of this machine answers only requests for this machine, so that no web
    /// page can ask through a name of its own; with --listen-anywhere, every host is answered
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Let pages of this origin use the endpoint from a browser, for example `https://app.example`; `*` for all
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Keep proven receipts, transactions and headers in this folder, for later questions and runs
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Maximum size of the folder's contents in MiB; the oldest are removed
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = count(1..=1_u64 << 24), requires = "cache")]
    pub(crate) cache_size: u64,
    /// Keep the filters of final blocks in an index in this folder, so that questions about past blocks
    /// need few headers
    ///
    /// An empty folder gets an index; one that `eth index build --block-hashes` made is continued
    #[arg(long, value_name = "DIR")]
    pub(crate) index: Option<PathBuf>,
    /// First block of a new index; the newest final block unless given
    #[arg(long, value_name = "BLOCK", requires = "index")]
    pub(crate) index_from: Option<u64>,
    /// What happens to calls whose answers cannot be proven
    #[arg(long, value_enum, default_value_t = Unverified::Refuse)]
    pub(crate) unverified: Unverified,
    /// Do not ask the upstreams for logs to count what they leave out
    #[arg(long)]
    pub(crate) no_compare: bool,
    /// Seconds between requests for a newer head
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::follow::seconds)]
    pub(crate) poll: f64,
    /// Maximum number of blocks in a query
    #[arg(long, value_name = "BLOCKS", default_value_t = 100_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_blocks: u64,
    /// Maximum number of logs in an answer
    #[arg(long, value_name = "LOGS", default_value_t = 100_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_logs: u64,
    /// Maximum number of headers in memory, at 368 bytes
    #[arg(long, value_name = "BLOCKS", default_value_t = 1_000_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_headers: u64,
    /// Maximum number of calls that are worked on at the same time
    #[arg(long, value_name = "CALLS", default_value_t = 128, value_parser = count(1..=4096_u64), hide_short_help = true)]
    pub(crate) max_calls: u64,
    /// Maximum size of proven headers, receipts and bodies in memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = count(1..=1_u64 << 20), hide_short_help = true)]
    pub(crate) memory: u64,
    /// Trust the head that the upstreams name
    #[arg(long, help_heading = "What you trust", conflicts_with_all = ["anchor", "beacon", "data", "checkpoint"])]
    pub(crate) trust_head: bool,
    // These arguments come last, because their heading applies to all arguments after the heading.
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
}

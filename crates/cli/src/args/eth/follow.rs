//! Arguments of `eth follow` and `eth serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chainsieve_provider::RpcServerLimits;
use chainsieve_report::args::count;
use clap::{Args, ValueEnum};

use super::anchor::BeaconArgs;
use super::audit::TrustArgs;
use crate::eth::RpcArgs;
use crate::eth::query::QueryArgs;

const FOLLOW_HELP: &str = "\
Prints the logs of a query block by block: from the first block (--from, by default the provider's newest)
through past blocks, then new blocks as they appear. Each header is hashed locally and must be the child of
the previous one. Blocks whose filter rules out a match are skipped. For every other block, all receipts are
fetched and compared with the receipts root of the header, and the logs are read from the receipts. eth_getLogs
is never called. If a log matches, all transactions of the block are fetched too, and compared with the
transactions root: they prove transactionHash. If the provider does not have them, transactionHash is missing, and
claimedTransactionHash is the provider's claim. A log is therefore as reliable as the chain of headers. That
chain is the provider's claim; --anchor compares it with a hash that you trust. With --beacon and --checkpoint,
or with --data, the trusted hashes come from a light client: each newer finalised block, as long as the command
runs (see `eth anchor sync --help`). Headers do not show which of two branches is the better one.

If the filters of a chain prove nothing (see --chain and --assume-bloom; this includes unknown chains), the
receipts of every block are fetched.

With --index, the candidates up to the end of the index, minus --keep blocks, are read from the index. Only
their headers are fetched, by the hashes in the index. The index is a cache of its builder: the builder checked
that the blocks of the index form one chain. The last block of the index is compared with the provider's.

Reorganisations: the logs of removed blocks are printed again with removed: true, the last log first, then
the logs of the new blocks. A reorganisation deeper than --keep blocks, or below the block that the provider
called finalised, ends the command with an error. If the provider's head moves back on the same branch, the
provider lags, and the command waits for it.

Blocks that the provider does not have yet, and receipts that do not belong to their block, are requested again
with increasing waits. Receipts are requested with each method that the provider serves. Transactions that are
missing are requested three times; then the logs are printed without the proven transaction hash. After
2 * --retries + 2 failures in a row, the command ends with an error. If the provider cannot be reached, the
command waits for it, except with --once.

With --cursor, the position is stored in a file. After Ctrl-C, a kill or a power cut, the same command
continues from there. The file is written before the first line and contains the number of the first block; if
--from is a tag or missing, that number is determined once, at the first start. The file is written again before
and after lines are printed, so no log is lost. Lines of the last blocks may be printed twice, and so may lines
with removed: true, even for a log that was never printed. For each blockHash and logIndex, the last line is
valid.

Memory: header data of 8,192 blocks; about 32 MB of receipts at a time, estimated from gas and filters, or the
receipts of one block if these are larger; hashes and logs of the last --keep blocks; of the final blocks, only
the hash of the last one.

Exit code 0: after Ctrl-C or SIGTERM; when --to is reached (and the anchor, if the anchor is a later block); with
--once, at the provider's head.

CSV: block_number, block_hash, transaction_index, transaction_hash (empty if it is not proven), log_index,
removed, address, topic0 to topic3, data, claimed_transaction_hash (only if nothing proves it), event and
arguments (a JSON object; both empty unless --abi decodes the log).";

/// Follow the logs of a query: first in past blocks, then in new blocks
#[derive(Debug, Args)]
#[command(mut_arg("rpc", |rpc| rpc.required(true)), after_long_help = FOLLOW_HELP)]
pub(crate) struct FollowArgs {
    /// Store the position in this file, and continue from there
    #[arg(long, value_name = "FILE")]
    pub(crate) cursor: Option<PathBuf>,
    /// Decode logs with the events of this ABI
    ///
    /// A JSON list, or a compiler's JSON object with the member abi
    ///
    /// May be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) abi: Vec<PathBuf>,
    /// Print logs as CSV (RFC 4180) with a header line; everything else is written to standard
    /// error
    #[arg(long)]
    pub(crate) csv: bool,
    /// An index of the chain, with --block-hashes
    ///
    /// Candidates among past blocks are read from the index, not from headers. The last --keep
    /// blocks of the index are not used
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<PathBuf>,
    /// Print a block when this many blocks follow it
    #[arg(long, value_name = "BLOCKS", default_value_t = 0, value_parser = depth(0))]
    pub(crate) confirmations: u64,
    /// Maximum number of printed blocks that a reorganisation may remove
    #[arg(long, value_name = "BLOCKS", default_value_t = 256, value_parser = depth(1))]
    pub(crate) keep: u64,
    /// End at the provider's head instead of waiting for new blocks
    #[arg(long)]
    pub(crate) once: bool,
    /// Fetch no transactions: each transaction hash is then only the provider's claim
    #[arg(long)]
    pub(crate) no_transaction_hashes: bool,
    /// Seconds between requests for the provider's head
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) poll: f64,
    // These arguments come last, because their heading applies to all arguments after the heading.
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
}

fn depth(least: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=65_536)
}

/// Parses a polling interval: 0.05 to 3,600 seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| String::from("not a number"))?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(String::from("not between 0.05 and 3,600 seconds"))
    }
}

const SERVE_HELP: &str = "\
Listens for JSON-RPC over HTTP and WebSocket. An answer is sent only if it is proven: its blocks are linked to a
hash that you trust, and its logs are read from all receipts of each block that may have a matching log. The
receipts root of the block's header proves the receipts. If a node omits a log, the answer therefore still
contains it, and the omission is counted. The transactions root proves transaction hashes. If something cannot be
proven, the answer is an error that says what is missing.

Proven: eth_getLogs, eth_newFilter, eth_newBlockFilter, eth_getFilterChanges, eth_getFilterLogs,
eth_uninstallFilter, eth_subscribe (logs, newHeads), eth_getBlockReceipts, eth_getTransactionReceipt,
eth_getBlockByNumber, eth_getBlockByHash, eth_getHeaderByNumber, eth_getHeaderByHash, eth_getTransactionByHash and
the other methods for transactions, ommers and encodings of blocks (docs/endpoint.md lists them), eth_blockNumber,
eth_chainId, net_version; web3_clientVersion names this program. `latest` is the newest verified block, `safe`
and `finalized` are the newest final block. Any other method is refused, or passed to a node without a proof
(--unverified pass): such an answer has the member `unverified`, and over HTTP the header chainsieve-unverified.
Two results of these methods cannot be proven: that a transaction or hash is in no block (the answer is null), and
blobGasPrice (it is left out).

The head comes from --beacon and --checkpoint (a light client: the newest block that two thirds of a sync committee
signed), from --anchor (that block, and no newer block), or with --trust-head from the nodes: then all answers are
only as authentic as the head that the nodes name.

Also served: GET /health (503 until a block is verified, or while the head is too old), GET /metrics (for
Prometheus). Errors have the codes of EIP-1474 and data.reason: not_ready, beyond_verified_head, limit (the same
call always exceeds it), busy (call again later), abandoned (the call took too long), unknown_block,
unverified_method, no_receipts, no_transactions, no_withdrawals, no_ommers, unknown_type, no_headers,
chain_profile, gap, upstream (no node answered). An error for lack of receipts has data.proven (ranges that are
proven) and data.missing.

Ends at Ctrl-C or SIGTERM with exit code 0.";

/// The treatment of calls whose answers cannot be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unverified {
    /// Such calls get an error.
    Refuse,
    /// Such calls are passed to a node, and the answer is marked.
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
    /// Everyone who can reach the address can use the nodes at your cost
    #[arg(long)]
    pub(crate) listen_anywhere: bool,
    /// Answer only requests whose Host header names this host, for example `localhost:*`
    ///
    /// By default, an endpoint on a loopback address answers only requests for this machine, so that
    /// no web page can use it through a host name of its own (DNS rebinding). With --listen-anywhere,
    /// requests for every host are answered
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Let pages of this origin use the endpoint from a browser, for example `https://app.example`; `*` for all
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Store proven receipts, transactions and headers in this folder, for later queries and runs
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Maximum size of the folder's contents in MiB; the oldest contents are removed first
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = count(1..=1_u64 << 24), requires = "cache")]
    pub(crate) cache_size: u64,
    /// Store the filters of final blocks in an index in this folder, so that queries for past blocks
    /// need few headers
    ///
    /// In an empty folder, a new index is made. An index that `eth index build --block-hashes` made
    /// is continued
    #[arg(long, value_name = "DIR")]
    pub(crate) index: Option<PathBuf>,
    /// First block of a new index [default: the newest final block]
    #[arg(long, value_name = "BLOCK", requires = "index")]
    pub(crate) index_from: Option<u64>,
    /// What happens to calls whose answers cannot be proven
    #[arg(long, value_enum, default_value_t = Unverified::Refuse)]
    pub(crate) unverified: Unverified,
    /// Do not compare the nodes' own answers to eth_getLogs with the proven logs
    #[arg(long)]
    pub(crate) no_compare: bool,
    /// Seconds between requests for a newer head
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::follow::seconds)]
    pub(crate) poll: f64,
    /// Maximum age of the head in seconds: with an older head, /health says that the endpoint is
    /// not ready [default: 600 with --beacon or --data, otherwise no maximum]
    #[arg(long, value_name = "SECONDS", value_parser = count(1..=u64::MAX))]
    pub(crate) max_head_age: Option<u64>,
    /// Trust the head that the nodes name
    #[arg(long, help_heading = "What you trust", conflicts_with_all = ["anchor", "beacon", "data", "checkpoint"])]
    pub(crate) trust_head: bool,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    // These arguments come last, because their heading applies to all arguments after the heading.
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
}

/// Limits of what clients may ask for and hold.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Limits (a client is an IPv4 address, or an IPv6 network of 64 bits)"
)]
pub(crate) struct LimitArgs {
    /// Take the last address in X-Forwarded-For as the client, because the endpoint is behind a
    /// proxy
    #[arg(long, hide_short_help = true)]
    pub(crate) behind_proxy: bool,
    /// Maximum number of blocks in a query
    #[arg(long, value_name = "BLOCKS", default_value_t = 100_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_blocks: u64,
    /// Maximum number of blocks in a query whose filters do not rule a match out
    #[arg(long, value_name = "BLOCKS", default_value_t = 10_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_candidates: u64,
    /// Maximum number of logs in an answer
    #[arg(long, value_name = "LOGS", default_value_t = 100_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_logs: u64,
    /// Maximum number of headers in memory, at 368 bytes
    #[arg(long, value_name = "BLOCKS", default_value_t = 1_000_000, value_parser = count(1..=u64::MAX), hide_short_help = true)]
    pub(crate) max_headers: u64,
    /// Maximum size in MiB of proven headers, receipts and bodies in memory
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = count(1..=1_u64 << 20), hide_short_help = true)]
    pub(crate) memory: u64,
    /// Maximum size in MiB of all requests and answers that are processed or not read yet; one
    /// client may use a quarter of this size
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = count(1..=1_u64 << 20), hide_short_help = true)]
    pub(crate) answer_memory: u64,
    /// Maximum size in MiB of an answer
    #[arg(long, value_name = "MIB", default_value_t = 128, value_parser = count(1..=4095_u64), hide_short_help = true)]
    pub(crate) max_answer: u64,
    /// Maximum size in KiB of a request
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = count(1..=65_536_u64), hide_short_help = true)]
    pub(crate) max_request: u64,
    /// Maximum number of calls in a batch
    #[arg(long, value_name = "CALLS", default_value_t = 1000, value_parser = count(1..=100_000_u64), hide_short_help = true)]
    pub(crate) max_batch: u64,
    /// Maximum number of calls that are processed at the same time
    #[arg(long, value_name = "CALLS", default_value_t = 128, value_parser = count(1..=4096_u64), hide_short_help = true)]
    pub(crate) max_calls: u64,
    /// Maximum number of calls of one client that are processed at the same time
    #[arg(long, value_name = "CALLS", default_value_t = 32, value_parser = count(1..=4096_u64), hide_short_help = true)]
    pub(crate) max_calls_of_client: u64,
    /// Maximum time that a call waits for other calls to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = count(0..=86_400_u64), hide_short_help = true)]
    pub(crate) max_wait: u64,
    /// Maximum time for the answer to a call
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = count(1..=86_400_u64), hide_short_help = true)]
    pub(crate) call_timeout: u64,
    /// Maximum number of connections
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_connections: u64,
    /// Maximum number of connections of one client
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_connections_of_client: u64,
    /// Maximum time until a request has arrived completely
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=86_400_u64), hide_short_help = true)]
    pub(crate) request_timeout: u64,
    /// Maximum number of subscriptions
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_subscriptions: u64,
    /// Maximum number of subscriptions of one client
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_subscriptions_of_client: u64,
    /// Maximum number of subscriptions of one connection
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_subscriptions_of_connection: u64,
    /// Maximum number of installed filters
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_filters: u64,
    /// Maximum number of installed filters of one client
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = count(1..=1_000_000_u64), hide_short_help = true)]
    pub(crate) max_filters_of_client: u64,
    /// Maximum size in MiB of filters and subscriptions; one client may use a quarter of this size
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = count(1..=1_u64 << 20), hide_short_help = true)]
    pub(crate) filter_memory: u64,
}

impl LimitArgs {
    /// Returns the limits of an endpoint, as the arguments set them.
    pub(crate) fn limits(&self) -> RpcServerLimits {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let mut limits = RpcServerLimits::default();
        limits.max_blocks = self.max_blocks;
        limits.max_candidates = self.max_candidates;
        limits.max_logs = self.max_logs;
        limits.max_headers = self.max_headers;
        limits.memory = self.memory << 20;
        limits.answer_memory = self.answer_memory << 20;
        limits.max_answer = small(self.max_answer << 20);
        limits.max_request = small(self.max_request << 10);
        limits.max_batch = small(self.max_batch);
        limits.max_calls = self.max_calls;
        limits.max_calls_of_client = self.max_calls_of_client;
        limits.max_wait = Duration::from_secs(self.max_wait);
        limits.call_timeout = Duration::from_secs(self.call_timeout);
        limits.max_connections = small(self.max_connections);
        limits.max_connections_of_client = small(self.max_connections_of_client);
        limits.request_timeout = Duration::from_secs(self.request_timeout);
        limits.max_subscriptions = self.max_subscriptions;
        limits.max_subscriptions_of_client = self.max_subscriptions_of_client;
        limits.max_subscriptions_of_connection = small(self.max_subscriptions_of_connection);
        limits.max_filters = usize::try_from(self.max_filters).unwrap_or(usize::MAX);
        limits.max_filters_of_client = self.max_filters_of_client;
        limits.filter_memory = self.filter_memory << 20;
        limits.behind_proxy = self.behind_proxy;
        limits
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        limits: LimitArgs,
    }

    /// The command and the library have the same defaults.
    #[test]
    fn unless_given_the_limits_are_those_of_the_library() {
        let limits = Command::parse_from(["test"]).limits.limits();
        assert_eq!(format!("{limits:?}"), format!("{:?}", RpcServerLimits::default()));
    }
}

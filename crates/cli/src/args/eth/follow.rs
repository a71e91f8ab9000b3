//! Arguments of `eth follow`.

use std::path::PathBuf;

use clap::Args;

use super::audit::TrustArgs;
use super::beacon::BeaconArgs;
use super::query::QueryArgs;
use super::rpc::RpcArgs;

const FOLLOW_HELP: &str = "\
Prints the logs of a query block by block: from the first block (--from, by default the provider's newest)
through past blocks, then new blocks as they appear. Each header is hashed locally and must be the child of
the previous one. Blocks whose filter rules out a match are skipped. For every other block, all receipts are
fetched, must match the receipts root of the header, and the logs are read from them. eth_getLogs is never
called. Where a log matches, all transactions of the block are fetched too, and must match the transactions
root: they prove transactionHash. If the provider does not have them, transactionHash is missing, and
claimedTransactionHash is the provider's claim. A log is therefore as reliable as the chain of headers. That chain is the provider's claim; --anchor
compares it with a hash that you trust. With --beacon and --checkpoint, or with --data, these hashes come from a
light client: each newer finalised block, as long as the command runs (see `eth anchor sync --help`). Headers
do not decide which of two branches is the better one.

If the filters of a chain prove nothing (see --chain and --assume-bloom; this includes unknown chains), the
receipts of every block are fetched.

With --index, the candidates up to the end of the index, minus --keep blocks, are read from the index. Only
their headers are fetched, by the hashes in the index. The index is a cache of whoever built it: the builder
checked that its blocks form one chain, and its last block is compared with the provider's.

Reorganisations: the logs of removed blocks are printed again with removed: true, the last log first, then
the logs of the new blocks. A reorganisation deeper than --keep blocks, or below the block that the provider
called finalised, ends the command with an error. If the provider's head moves back on the same branch, the
provider lags, and the command waits for it.

Blocks that the provider does not have yet, and receipts that are not the block's, are requested again with
increasing waits. Receipts are requested with each method that the provider serves. Transactions that are
missing are requested three times; then the logs are printed without them. After 2 * --retries + 2
failures in a row, the command ends with an error. A provider that cannot be reached is waited for, except
with --once.

With --cursor, the position is stored in a file. After Ctrl-C, a kill or a power cut, the same command
continues from there. The file is written before the first line and contains the first block: if that is the
newest block or a tag, its number at the first start is stored. The file is written again before and after
lines are printed, so no log is lost. Lines of the last blocks may be printed twice, also removed lines, even
for a log that was never printed. For each blockHash and logIndex, the last line is valid.

Memory: header data of 8,192 blocks; receipts of about 32 MB at a time, estimated from gas and filters, or of
one block if that is more; hashes and logs of the last --keep blocks; of final blocks only the last hash.

Exit code 0: after Ctrl-C or SIGTERM; when --to is reached, and also the anchor if it is a later block; with
--once, at the provider's head.

CSV: block_number, block_hash, transaction_index, transaction_hash (empty if it is not proven), log_index,
removed, address, topic0 to topic3, data, claimed_transaction_hash (only if nothing proves it), event and
arguments (a JSON object; both empty unless --abi decodes the log).

JSON: one object per line, of one of these kinds:
  follow      chain_id, chain, provider, from, to, resumed (last block printed by an earlier
              run, or null), bloom (exact | superset | absent | unsound: at the first block),
              anchors[{number, hash}], light_client (as in `eth anchor sync`, without folder and
              warnings; null if none), confirmations, keep, index_to (last block whose candidates are
              read from the index), query, semantics, warnings[]: the first line
  log         the members of eth_getLogs, transactionHash only if it is proven, otherwise
              claimedTransactionHash, and evidence (receipts: the log was read from the
              receipts of the block, which match its receipts root), and with --abi decoded{event,
              signature, arguments{name: value}} or undecoded (why a log of a known event does not
              fit): numbers are decimal text; an indexed argument of dynamic size is {keccak256}
  reorg       ancestor, hash (of the last block that stays; null if none stays), blocks (number of
              removed blocks), logs (number of removed lines that follow)
  anchor      number, hash: the chain contains this anchor, so all blocks up to it are as authentic
              as the anchor; of several anchors, the highest; printed in each run
  checkpoint  block, hash, finalized: all lines up to this block, inclusive, are printed; finalized is
              the newest final block on this chain, or null
  summary     blocks, receipts (number of blocks whose receipts were verified), logs, removed
              (number of lines of each), first, last, last_hash (the last block printed), seconds,
              warnings[]: the last line";

/// Follow the logs of a query: first in past blocks, then in new ones
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

//! `eth follow`.

use std::path::PathBuf;

use clap::Args;

use super::audit::TrustArgs;
use super::query::QueryArgs;
use super::rpc::RpcArgs;

const FOLLOW_HELP: &str = "\
From the first block (--from, by default the provider's newest) through the past, and then live: the
logs of a query, block by block. Each header must be the child of the one before, its hash is
computed here. A block whose filter rules a match out is passed over; of each other all receipts are
fetched and must have the header's receipts root, and the logs are read out of them. What the
provider says of logs by itself (eth_getLogs) is never asked. So a log is as true as the chain of
headers is, and that is the provider's word: --anchor compares it with a hash that you trust. Not
bound by a header are transactionHash, which is what the provider says, and which of two branches is
the better one.

Where the filters of a chain prove nothing (--chain, --assume-bloom; an unknown chain too), the
receipts of every block are fetched.

With --index the candidates up to its end, less --keep blocks, come out of the index, and only their
headers are fetched, by the hashes that it has. The index is a cache of whoever built it: that its
blocks are one chain was checked then, and its last block is compared with the provider's.

Reorganisations: the logs of blocks that left the chain come again with removed: true, the last one
first, and then those of the new blocks. One that goes deeper than --keep blocks, or below what the
provider called finalised, ends the command with an error. A provider whose head goes back on the
same branch lags behind, and is waited for.

What the provider does not have yet, and receipts that are not the block's, are asked for again,
after longer and longer waits, receipts by each way that it serves; after twice --retries and two
more tries in a row the command ends with an error. If it can't be reached, it is waited for, but
with --once.

With --cursor, what was printed is noted in a file, and the same command goes on from there after
Ctrl-C, a kill or a power cut, wherever they came. The file is written before the first line, with
the block that it starts at: the newest block, or a tag, means the one at the first start. It is
written again before lines are printed and after, so that nothing is lost: the lines of the last
blocks may come twice, and so may removed ones, also of a log that was never printed. Keep the last
word for each blockHash and logIndex.

Memory: what headers of 8,192 blocks say; receipts of some 32 MB at a time, as a forecast from gas and
filters has it (of one block at the least); hashes and logs of the last --keep blocks, of those that
are final the hash of the last one only.

Exits with 0 after Ctrl-C and SIGTERM, once --to is reached, and the anchor if that comes after it,
and with --once at the provider's head.

CSV: block_number, block_hash, transaction_index, transaction_hash, log_index, removed, address,
topic0 to topic3, data; with --abi also event, and a column EVENT.ARGUMENT for each argument of each
event.

JSON: lines, told apart by kind:
  follow      chain_id, chain, provider, from, to, resumed (the last block printed before, or null),
              bloom (exact | superset | absent | unsound: at the first block), anchors[{number,
              hash}], confirmations, keep, index_to (up to this block candidates are those of the
              index), query, semantics, warnings[]: the first line
  log         the members of eth_getLogs, and evidence (receipts: read out of all receipts of the
              block, which have its receipts root), and with --abi decoded{event, signature,
              arguments{name: value}} or undecoded (why a log of a known event does not fit):
              numbers are decimal text, of an indexed argument of dynamic size there is {keccak256}
  reorg       ancestor, hash (of the last block that stays; null: of none), blocks (how many left),
              logs (how many removed lines follow)
  anchor      number, hash: the chain holds this anchor, so that all blocks up to it are as authentic
              as the anchor; of several the highest, and in each run again
  checkpoint  block, hash, finalized: all lines up to and with this block are out; finalized is the
              newest final block on this chain, or null
  summary     blocks, receipts (of how many blocks they were looked into), logs, removed (lines of
              each), first, last, last_hash (the last block printed), seconds, warnings[]: the last
              line";

/// Follow the logs of a query, from the past on into live blocks
#[derive(Debug, Args)]
#[command(mut_arg("rpc", |rpc| rpc.required(true)), after_long_help = FOLLOW_HELP)]
pub(crate) struct FollowArgs {
    /// Note in this file what was printed, and go on from there
    #[arg(long, value_name = "FILE")]
    pub(crate) cursor: Option<PathBuf>,
    /// Decode logs by the events of this ABI
    ///
    /// Its JSON list, or an object that has it as abi, as compilers write; may be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) abi: Vec<PathBuf>,
    /// Print logs as CSV (RFC 4180), with a line of names first
    ///
    /// What else there is to tell goes to standard error
    #[arg(long)]
    pub(crate) csv: bool,
    /// An index of the chain, with --block-hashes
    ///
    /// The past is looked up there instead of in headers, but for the last --keep blocks of it
    #[arg(long, value_name = "INDEX")]
    pub(crate) index: Option<PathBuf>,
    /// Print a block when so many are behind it
    #[arg(long, value_name = "BLOCKS", default_value_t = 0, value_parser = depth(0))]
    pub(crate) confirmations: u64,
    /// How deep a reorganisation of printed blocks is followed
    #[arg(long, value_name = "BLOCKS", default_value_t = 256, value_parser = depth(1))]
    pub(crate) keep: u64,
    /// End at the provider's head instead of waiting for new blocks
    #[arg(long)]
    pub(crate) once: bool,
    /// Ask for a new head after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(crate) poll: f64,
    // After the rest: a heading holds for all that comes after it.
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

fn depth(least: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=65_536)
}

/// A time that can be waited for.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| String::from("not a number"))?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(String::from("between 0.05 and 3,600 seconds"))
    }
}

//! `btc prove …`.

use std::path::PathBuf;

use chainsieve::bitcoin::{BlockHash, Network, Txid};
use clap::{Args, ValueEnum};

use super::network;
use crate::args::OverwriteArgs;

const MAKE_HELP: &str = "\
With --filter, the transactions that match it, as a node answers a getdata for a filtered block;
with --txid, those named. The merkleblock goes to standard output as hex, the table to standard
error. Exits with 1 if the filter matched nothing; the merkleblock is valid then too.

JSON: merkleblock, block_hash, block_bytes, transactions, proven[{index, txid, hex, reasons[…]}],
payload (the filter afterwards, null without --filter), warnings[]. Reasons are those of
`chainsieve btc match --help`; hex is the transaction without witness, as nodes send it.";

/// Make the merkleblock of a block: the proof that transactions are in it.
#[derive(Debug, Args)]
#[command(after_long_help = MAKE_HELP)]
pub(crate) struct MakeArgs {
    /// The block: hex, a file, or - for standard input
    #[arg(value_name = "BLOCK")]
    pub(crate) block: String,
    /// Prove what matches this filter
    #[arg(long, value_name = "FILTER", required_unless_present = "txid", conflicts_with = "txid")]
    pub(crate) filter: Option<String>,
    /// Prove this transaction; may be given again
    #[arg(long, value_name = "TXID")]
    pub(crate) txid: Vec<Txid>,
    /// Prove the coinbase transaction too: it is what shows the height of the tree
    #[arg(long)]
    pub(crate) coinbase: bool,
    /// The chain whose addresses to show
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the merkleblock to a file, as hex, in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the proven transactions without witness, one line of hex each
    #[arg(long, value_name = "FILE")]
    pub(crate) txs_out: Option<PathBuf>,
    /// Write the filter as it is afterwards, as hex
    #[arg(long, value_name = "FILE", requires = "filter", conflicts_with = "txid")]
    pub(crate) filter_out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const VERIFY_HELP: &str = "\
Exit codes: 0 the merkleblock is valid, and proves each of the transactions given · 1 it is valid, and
does not prove each of them · 3 it is invalid, or of another block than --block-hash. A valid one
without any transaction is the response of a node where nothing matched: exit code 0. Give the
coinbase transaction too where the merkleblock has it: only that shows the height of the tree.

JSON: valid, error (null if valid), policy, network, block_hash, previous_block, time,
proof_of_work (checked or not), named (the header is that of --block-hash), depth (coinbase |
unproven), transactions (as claimed), proven[{index, txid, delivered}], not_in_tree[txid],
not_proven[], warnings[]";

/// Verify a merkleblock, and say what it proves and what it does not.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP)]
pub(crate) struct VerifyArgs {
    /// The payload of a merkleblock message: hex, a file, or - for standard input
    #[arg(value_name = "MERKLEBLOCK")]
    pub(crate) merkle_block: String,
    /// Transactions delivered with it: hex, files (raw, or one hex item per line), or -
    #[arg(value_name = "TX")]
    pub(crate) transactions: Vec<String>,
    /// The chain whose limit of work holds
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// What to ask of the merkleblock
    #[arg(long, value_enum, default_value_t = PolicyName::Strict)]
    pub(crate) policy: PolicyName,
    /// The block it must be of: one that you know to be in the chain
    #[arg(long, value_name = "HASH")]
    pub(crate) block_hash: Option<BlockHash>,
}

/// `--policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Tree, proof of work, and no 64-byte transaction or inner node that reads as one
    Strict,
    /// The tree alone, as Bitcoin Core
    Core,
}

//! Arguments of `btc prove …`.

use std::path::PathBuf;

use chainsieve::bitcoin::{BlockHash, Network, Txid};
use clap::{Args, ValueEnum};

use super::network;
use crate::args::OverwriteArgs;

const MAKE_HELP: &str = "\
With --filter, the merkleblock proves the transactions that match the filter, like a node's answer to a
getdata for a filtered block. With --txid, it proves these transactions. The merkleblock is written
to standard output as hex, the table to standard error. Exit code 1 means that the filter matched
nothing; the merkleblock is valid in this case too.

JSON: merkleblock, block_hash, block_bytes, transactions, proven[{index, txid, hex, reasons[…]}],
payload (the updated filter, null without --filter), warnings[]. The reasons are described in
`chainsieve btc match --help`; hex is the transaction without witness, as nodes send it.";

/// Make the merkleblock of a block: the proof that the block contains some transactions.
#[derive(Debug, Args)]
#[command(after_long_help = MAKE_HELP)]
pub(crate) struct MakeArgs {
    /// The block: hex, a file, or - for standard input
    #[arg(value_name = "BLOCK")]
    pub(crate) block: String,
    /// Prove the transactions that match this filter
    #[arg(long, value_name = "FILTER", required_unless_present = "txid", conflicts_with = "txid")]
    pub(crate) filter: Option<String>,
    /// Prove this transaction; may be given again
    #[arg(long, value_name = "TXID")]
    pub(crate) txid: Vec<Txid>,
    /// Prove the coinbase transaction too, which proves the height of the merkle tree
    #[arg(long)]
    pub(crate) coinbase: bool,
    /// The network whose addresses are shown
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the merkleblock to this file, as hex, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the proven transactions without witness to this file, one line of hex each
    #[arg(long, value_name = "FILE")]
    pub(crate) txs_out: Option<PathBuf>,
    /// Write the updated filter to this file, as hex
    #[arg(long, value_name = "FILE", requires = "filter", conflicts_with = "txid")]
    pub(crate) filter_out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const VERIFY_HELP: &str = "\
Exit codes: 0 the merkleblock is valid, and proves all given transactions
            1 the merkleblock is valid, but does not prove all given transactions
            3 the merkleblock is invalid, or its block is not --block-hash

If nothing matched, a node sends a valid merkleblock without transactions: exit code 0. If the
merkleblock contains the coinbase transaction, give that transaction too: only the coinbase proves the
height of the merkle tree.

JSON: valid, error (null if valid), policy, network, block_hash, previous_block, time,
proof_of_work (true if checked), named (true if the header is that of --block-hash), depth (coinbase |
unproven), transactions (number, as claimed), proven[{index, txid, delivered}], not_in_tree[txid],
not_proven[], warnings[]";

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

//! Arguments of `btc prove …`.

use chainsieve::bitcoin::{BlockHash, Network};
use clap::{Args, ValueEnum};

use super::network;

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

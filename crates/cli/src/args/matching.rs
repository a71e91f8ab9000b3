//! Arguments of `btc match`.

use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use clap::{Args, ValueEnum};

use super::network;
use crate::args::OverwriteArgs;

const MATCH_HELP: &str = "\
The filter is updated as a node updates it, across all inputs in their order: a coin received in one
block is found when a later block spends it. Witness data is never matched.
Exit code 1 means that nothing matched.

JSON: inputs[{source, kind, hash, transactions, matches[{index, txid, reasons[…]}]}], matched,
inserted, payload (the updated filter), warnings[]. A reason is {kind: everything | txid}, {kind:
output, vout, push, data, script, address, satoshis, inserted}, {kind: spent, vin, outpoint}, or
{kind: input_data, vin, push, data}";

/// Match blocks or transactions against a filter, as a node does.
#[derive(Debug, Args)]
#[command(after_long_help = MATCH_HELP)]
pub(crate) struct MatchArgs {
    /// The payload of a filterload message: hex, a file, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// Blocks or transactions: hex, files (raw, or one hex item per line), or -
    #[arg(value_name = "BLOCK|TX", required = true)]
    pub(crate) inputs: Vec<String>,
    /// The kind of the inputs
    #[arg(long = "as", value_enum, default_value_t = Contents::Auto, value_name = "KIND")]
    pub(crate) contents: Contents,
    /// The network whose addresses are shown
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the updated filter to this file, as hex
    #[arg(long, value_name = "FILE")]
    pub(crate) filter_out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// Possible values of `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contents {
    /// A block if the input decodes as one, otherwise a transaction
    Auto,
    /// Blocks
    Block,
    /// Transactions
    Tx,
}

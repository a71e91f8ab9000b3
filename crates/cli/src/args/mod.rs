//! The command line: what `--help` says and what each command takes.

pub(crate) mod client;
pub(crate) mod compact;
pub(crate) mod eth;
mod filter;
mod matching;
pub(crate) mod membership;
mod prove;
mod serve;

use core::fmt;

use chainsieve::bitcoin::Network;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};

use crate::exit::EXIT_CODES;

pub(crate) use compact::WatchArgs;
pub(crate) use filter::{InspectArgs, NewArgs, Range, update_name};
pub(crate) use matching::{Contents, MatchArgs};
pub(crate) use prove::{MakeArgs, PolicyName, VerifyArgs};
pub(crate) use serve::ServeArgs;

/// Filters for light clients, and what an answer proves.
#[derive(Debug, Parser)]
#[command(name = "chainsieve", version, after_help = after_help(), arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print JSON, with the fields that each command's --help lists
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The end of the command's `--help`.
fn after_help() -> String {
    format!(
        "{EXIT_CODES}

Wherever a command reads a filter, a block or a transaction, it takes hex, the name of a file
(raw or hex), or - for standard input. Results go to standard output, all else to standard error."
    )
}

const DEMO_HELP: &str = "\
JSON: block_hash, block_bytes, transactions, watched[], payload, rate, matches[{index, txid,
reasons[…], own}], merkleblock, delivered_bytes, depth, not_proven[], seconds{build, parse,
match, answer, verify}, audit{headers[], anchor, query, rate, receipts, answered (logs), omitted (the
log), receipt_proof{transactionIndex, nodes[]}, complete (logs), certificate, seconds{audit,
verify}}. Reasons are those of `chainsieve btc match --help`.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bitcoin: Bloom filters, merkle blocks, compact block filters
    #[command(subcommand)]
    Btc(BtcCommand),
    /// Ethereum: headers and the filters of their logs, queries, audits of answers
    #[command(subcommand)]
    Eth(eth::EthCommand),
    /// Membership filters that know no chain: Bloom and its family, cuckoo, fuse, ribbon
    #[command(subcommand)]
    Filter(membership::MembershipCommand),
    /// Both on real blocks, without a network: a wallet's filter, and a log that a node left out
    #[command(after_help = DEMO_HELP)]
    Demo,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BtcCommand {
    /// Bloom filters (new, inspect) and compact block filters (all others)
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Match blocks or transactions against a filter, as a node does
    Match(MatchArgs),
    /// Make merkleblocks and verify them
    #[command(subcommand)]
    Prove(ProveCommand),
    /// Serve a folder of blocks to wallets' tests: a node with BIP37 and BIP157
    Serve(ServeArgs),
    /// Fetch headers, filter headers and filters from peers, and compare what they say
    Sync(Box<client::SyncArgs>),
    /// Watch addresses, scripts, keys and coins with peers: the past, then live
    Watch(Box<client::WatchLiveArgs>),
    /// Go over past blocks again with peers, for more items
    Rescan(Box<client::RescanArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProveCommand {
    /// Make the merkleblock of a block: the proof that transactions are in it
    Make(MakeArgs),
    /// Verify a merkleblock, and say what it proves and what it does not
    Verify(VerifyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilterCommand {
    /// Build the Bloom filter of a wallet: the payload of a filterload message
    New(Box<NewArgs>),
    /// Show a Bloom filter's fields, fill, rate and what is odd about it
    Inspect(InspectArgs),
    /// Build the compact filters of blocks and the headers over them
    Build(compact::BuildArgs),
    /// Look for scripts in the compact filters of many blocks
    Scan(compact::ScanArgs),
    /// Compare a compact filter with its block: valid, proven wrong, or not to be decided
    Audit(compact::AuditArgs),
    /// Verify what `audit --proof-out` wrote, without the block
    VerifyProof(compact::VerifyProofArgs),
    /// Filter headers
    #[command(subcommand)]
    Headers(compact::HeadersCommand),
}

/// A word of the command line, what it stands for, and what `--help` says of it.
type Choice<T> = (&'static str, T, &'static str);

/// Takes one of these words.
fn choice<T>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = choices.iter().map(|(word, _, help)| PossibleValue::new(word).help(help));
    let named = |name: String| choices.iter().find(|(word, ..)| *word == name);
    PossibleValuesParser::new(words).map(move |name| named(name).expect("a possible word").1)
}

/// The chain that addresses and limits of work belong to.
fn network() -> impl TypedValueParser<Value = Network> {
    let networks = [
        ("mainnet", Network::Bitcoin),
        ("testnet", Network::Testnet),
        ("testnet4", Network::Testnet4),
        ("signet", Network::Signet),
        ("regtest", Network::Regtest),
    ];
    let named = move |name: String| networks.into_iter().find(|(known, _)| *known == name);
    PossibleValuesParser::new(networks.map(|(name, _)| name))
        .map(move |name| named(name).expect("a possible name").1)
}

/// The name of a chain as `--network` takes it.
pub(crate) fn network_name(network: Network) -> String {
    if network == Network::Bitcoin { "mainnet".into() } else { network.to_string() }
}

/// A command line that parses and yet makes no sense.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) &'static str);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for UsageError {}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

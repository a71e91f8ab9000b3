//! The command line: arguments and help texts of every command.

pub(crate) mod bloom;
pub(crate) mod cf;
pub(crate) mod client;
pub(crate) mod eth;
pub(crate) mod filter;

use std::path::PathBuf;

use anyhow::Context as _;
use chainsieve_report::args::OutputArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use directories::ProjectDirs;

use crate::exit::EXIT_CODES;

pub(crate) use bloom::{
    Contents, InfoArgs, MatchArgs, NewArgs, PolicyName, Range, VerifyArgs, update_name,
};
pub(crate) use cf::WatchArgs;
pub(crate) use client::TestNodeArgs;

/// Filters Bitcoin and Ethereum for light clients, and verifies what nodes answer.
#[derive(Debug, Parser)]
#[command(
    name = "chainsieve",
    version,
    long_version = LONG_VERSION,
    after_help = EXIT_CODES,
    after_long_help = after_help(),
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Text of `--version`: the standards and formats that this build supports.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\n",
    "Bitcoin: BIP37, BIP157, BIP158, descriptors\n",
    "Ethereum: logs, receipts, era1 and ere archives, JSON-RPC, light-client objects\n",
    "Filters: Bloom, cuckoo, fuse, ribbon, Parquet, Guava, xor_singleheader"
);

/// Returns the word for a value, as the command line accepts it.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Reads a folder that may be created. If a URL were used as a folder's name, everyone who lists the folder
/// would see the URL.
fn folder(text: &str) -> Result<PathBuf, &'static str> {
    if text.contains("://") { Err("a folder, not a URL") } else { Ok(text.into()) }
}

/// Returns the platform's folder for the data of this command, which is used without `--data`.
pub(crate) fn platform_folder() -> anyhow::Result<PathBuf> {
    let platform = ProjectDirs::from("", "", "chainsieve");
    let platform = platform.context("the platform has no data folder: give --data")?;
    Ok(platform.data_dir().to_owned())
}

/// Returns the last part of the command's `--help`; `-h` ends with the exit codes.
fn after_help() -> String {
    format!(
        "{EXIT_CODES}

Wherever a command reads a filter, a block or a transaction, it takes hex, the name of a file
(raw or hex), or - for standard input. Results go to standard output, errors, warnings and notes to
standard error. With --json, a command that prints several lines prints one JSON object on each line.
The first member of such an object is kind. In the last line, kind is summary. The page docs/json.md of the
repository lists the members of every command."
    )
}

const COMPLETIONS_HELP: &str = "\
The script goes to standard output:
  bash  chainsieve completions bash > ~/.local/share/bash-completion/completions/chainsieve
  fish  chainsieve completions fish > ~/.config/fish/completions/chainsieve.fish
  zsh   chainsieve completions zsh > _chainsieve, in a folder of $fpath";

const MAN_HELP: &str = "\
The folder is created if it is missing. If it contains a page of chainsieve already, --force is needed,
and replaces all pages. `man -l DIR/chainsieve.1` shows the page of the command itself.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bitcoin: Bloom filters, merkle blocks, compact block filters
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Btc(BtcCommand),
    /// Ethereum: headers and their log filters, log queries, audits of answers
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Eth(eth::EthCommand),
    /// Membership filters for keys of any kind: Bloom variants, cuckoo, fuse, ribbon
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Filter(filter::FilterCommand),
    /// Run examples on built-in blocks, offline: a wallet's filter, the proof that a log was omitted,
    /// and a finalised block from a checkpoint
    Demo,
    /// Print completions for a shell
    #[command(after_long_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell to print completions for
        shell: Shell,
    },
    /// Write the manual pages, one for each command
    #[command(after_long_help = MAN_HELP)]
    Man {
        /// The folder to write the pages to, created if missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        #[command(flatten)]
        overwrite: OverwriteArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BtcCommand {
    /// Bloom filters, BIP37: build, describe
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Bloom(BloomCommand),
    /// Compact block filters, BIP158: build, scan, audit
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Cf(CfCommand),
    /// Match blocks or transactions against a filter, as a node does
    Match(MatchArgs),
    /// Proofs that transactions are in a block: merkleblocks
    #[command(subcommand, after_long_help = EXIT_CODES)]
    Prove(ProveCommand),
    /// Run a test node for wallets: serve a folder of blocks with BIP37 and BIP157
    TestNode(TestNodeArgs),
    /// Fetch headers, filter headers and filters from peers, and compare the peers' answers
    Sync(Box<client::SyncArgs>),
    /// Watch addresses, scripts, keys and coins through peers, in past blocks and then in new blocks
    Watch(Box<client::WatchLiveArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProveCommand {
    /// Verify a merkleblock, and list what it proves and what it does not prove
    Verify(VerifyArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BloomCommand {
    /// Build the Bloom filter of a wallet: the payload of a filterload message
    New(Box<NewArgs>),
    /// Show the fields, fill and false-positive rate of a Bloom filter
    Info(InfoArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CfCommand {
    /// Build the compact filters of blocks and the filter headers
    Build(cf::BuildArgs),
    /// Search the compact filters of many blocks for scripts
    Scan(cf::ScanArgs),
    /// Compare a compact filter with its block: valid, proven invalid, or not decided; or verify such
    /// a proof
    Audit(cf::AuditArgs),
    /// Recompute the filter headers of a file of filters and compare them
    VerifyHeaders(cf::VerifyHeadersArgs),
}

/// Options for output files that exist already.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OverwriteArgs {
    /// Replace output files that already exist
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Returns the number of rows that a text fills on a terminal of 100 columns.
    fn rows(text: &str) -> usize {
        text.trim_end().lines().map(|line| line.chars().count().div_ceil(100).max(1)).sum()
    }

    /// Calls `check` for each command, with the command and its full name.
    fn each(command: &mut Command, names: &str, check: &mut impl FnMut(&mut Command, &str)) {
        check(command, names);
        for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help")
        {
            let names = format!("{names} {}", command.get_name());
            each(command, &names, check);
        }
    }

    /// The output of `-h` fits on a screen, and the output of `--help` is longer.
    #[test]
    fn short_help_fits_a_screen() {
        let mut cli = Cli::command();
        cli.build();
        let mut commands = 0;
        each(&mut cli, "chainsieve", &mut |command, names| {
            let [short, long] =
                [command.render_help(), command.render_long_help()].map(|help| help.to_string());
            assert!(rows(&short) <= 50, "{names}: {} rows\n{short}", rows(&short));
            assert!(rows(&long) > rows(&short), "{names}\n{long}");
            commands += 1;
        });
        assert!(commands >= 35, "{commands}");
    }
}

//! The `chainsieve` command.
//!
//! Each command returns an [`Report`], which contains the same facts as a table for people
//! and as JSON for programs. Commands that run for long also print lines while they run.

mod args;
mod btc;
mod demo;
mod eth;
mod exit;
mod filter;
mod shell;
mod svg;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use args::{BloomCommand, BtcCommand, CfCommand, Cli, Command, ProveCommand};
use args::eth::EthCommand;
use chainsieve_report::{Report, stdin_is_piped};
use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

fn main() -> ExitCode {
    chainsieve_report::run(parse(), |cli: &Cli| cli.output, run, exit::of_cause)
}

/// Names of arguments that accept `-`, as clap's errors show them.
const MAY_BE_STDIN: [&str; 9] = [
    "<BLOCK>",
    "<BLOCK|TX>...",
    "<BLOCKS>...",
    "<CERTIFICATE>",
    "<FILES>...",
    "<FILTER>",
    "<HEADERS>...",
    "<KEY>...",
    "<MERKLEBLOCK>",
];

/// Parses the command line. If a required argument is missing, the command line is parsed again
/// with a further argument: `--rpc` with the URL of `ETH_RPC_URL` for an `eth` command, or `-` for
/// another command if standard input is piped.
fn parse() -> Result<Cli, clap::Error> {
    let mut args: Vec<OsString> = env::args_os().collect();
    Cli::try_parse_from(&args).or_else(|mut error| {
        if error.kind() != ErrorKind::MissingRequiredArgument {
            return Err(error);
        }
        let url = env::var_os("ETH_RPC_URL").filter(|url| !url.is_empty());
        let is_eth = args.iter().any(|arg| arg == "eth");
        let missing = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(names)) => &names[..],
            _ => &[],
        };
        let may_be_stdin = |name: &String| MAY_BE_STDIN.contains(&name.as_str());
        match (url, missing) {
            (Some(url), _) if is_eth => args.extend([OsString::from("--rpc"), url]),
            (_, [name]) if may_be_stdin(name) && stdin_is_piped() => args.push("-".into()),
            (_, missing) => {
                let with_rpc = args.iter().cloned().chain(["--rpc".into(), "http://[::1]".into()]);
                let accepts_rpc = Cli::try_parse_from(with_rpc)
                    .map_or_else(|error| error.kind() != ErrorKind::UnknownArgument, |_| true);
                if accepts_rpc && missing.iter().any(|name| name == "<HEADERS>...") {
                    let tip = "give --rpc or ETH_RPC_URL to fetch headers from a provider";
                    let tips = ContextValue::StyledStrs(vec![tip.into()]);
                    error.insert(ContextKind::Suggested, tips);
                }
                return Err(error);
            }
        }
        Cli::try_parse_from(args).map_err(|_| error)
    })
}

fn run(cli: &Cli) -> anyhow::Result<Report> {
    match &cli.command {
        Command::Btc(BtcCommand::Bloom(BloomCommand::New(args))) => btc::bloom::new::run(args),
        Command::Btc(BtcCommand::Bloom(BloomCommand::Info(args))) => btc::bloom::info::run(args),
        Command::Btc(BtcCommand::Cf(command)) => match command {
            CfCommand::Build(args) => btc::cf::build::run(args, cli.output.json),
            CfCommand::Scan(args) => btc::cf::scan::run(args, cli.output.json),
            CfCommand::Audit(args) => btc::cf::audit::run(args),
            CfCommand::VerifyHeaders(args) => btc::cf::headers::run(args),
        },
        Command::Btc(BtcCommand::Match(args)) => btc::matching::run(args),
        Command::Btc(BtcCommand::Prove(ProveCommand::Verify(args))) => btc::prove::verify(args),
        Command::Btc(BtcCommand::TestNode(args)) => btc::test_node::run(args, cli.output.json),
        Command::Btc(BtcCommand::Sync(args)) => btc::client::sync(args),
        Command::Btc(BtcCommand::Watch(args)) => btc::client::watch(args, cli.output.json),
        Command::Eth(command) => match command {
            EthCommand::Anchor(command) => eth::anchor::run(command, cli.output.json),
            EthCommand::Audit(args) => eth::audit::run(args),
            EthCommand::VerifyCertificate(args) => eth::certificate::run(args),
            EthCommand::Scan(args) => eth::scan::run(args, cli.output.json),
            EthCommand::Follow(args) => eth::follow::run(args, cli.output.json),
            EthCommand::Serve(args) => eth::serve::run(args, cli.output.json),
            EthCommand::Forecast(args) => eth::forecast::run(args),
            EthCommand::Header(args) => eth::header::run(args),
            EthCommand::Stats(args) => eth::stats::run(args),
            EthCommand::Index(command) => eth::index::run(command, cli.output.json),
        },
        Command::Filter(command) => filter::run(command, cli.output.json),
        Command::Demo => demo::run(),
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man { folder, overwrite } => shell::manual(folder, overwrite.force),
    }
}

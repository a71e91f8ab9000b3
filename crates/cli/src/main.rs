//! The `chainsieve` command.
//!
//! Each command returns an [`output::Report`], which contains the same facts as a table for people
//! and as JSON for programs. Commands that run for long also print lines while they run.

mod args;
mod btc;
mod calendar;
mod demo;
mod eth;
mod exit;
mod filter;
mod input;
mod output;
mod progress;
mod secret;
mod shell;
mod source;
mod stop;
mod svg;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::eth::EthCommand;
use args::{BloomCommand, BtcCommand, CfCommand, Cli, Command, ProveCommand};
use exit::Exit;
use output::Report;

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) if secret::holds_private_key(&error.to_string()) => {
            output::print_error(&anyhow::anyhow!(secret::NOT_SHOWN));
            return Exit::Usage.into();
        }
        // A provider's URL often contains an API key, so an error of the parser must not repeat it,
        // even if it was given at the wrong place.
        Err(error) if error.use_stderr() && error.to_string().contains("://") => {
            output::print_error(&anyhow::anyhow!(secret::URL_NOT_SHOWN));
            return Exit::Usage.into();
        }
        Err(error) => of_printable_arguments(error).exit(),
    };
    output::set_quiet(cli.quiet);
    if cli.verbose {
        output::set_verbose();
    }
    let result = run(&cli).and_then(|report| report.print(cli.json));
    output::print_time_taken();
    match result {
        Ok(exit) => exit,
        Err(error) => {
            output::print_error(&error);
            Exit::of_error(&error).into()
        }
    }
}

/// Returns the error about the same arguments, each of them escaped: the parser's errors repeat them.
fn of_printable_arguments(error: clap::Error) -> clap::Error {
    let given = || env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<_> = given().map(|arg| output::printable(&arg).into_owned()).collect();
    if given().eq(args.iter().cloned()) {
        return error;
    }
    Cli::try_parse_from(args).err().unwrap_or(error)
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
            (_, [name]) if may_be_stdin(name) && source::stdin_is_piped() => args.push("-".into()),
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
            CfCommand::Build(args) => btc::cf::build::run(args, cli.json),
            CfCommand::Scan(args) => btc::cf::scan::run(args, cli.json),
            CfCommand::Audit(args) => btc::cf::audit::run(args),
            CfCommand::VerifyHeaders(args) => btc::cf::headers::run(args),
        },
        Command::Btc(BtcCommand::Match(args)) => btc::matching::run(args),
        Command::Btc(BtcCommand::Prove(ProveCommand::Verify(args))) => btc::prove::verify(args),
        Command::Btc(BtcCommand::TestNode(args)) => btc::test_node::run(args, cli.json),
        Command::Btc(BtcCommand::Sync(args)) => btc::client::sync(args),
        Command::Btc(BtcCommand::Watch(args)) => btc::client::watch(args, cli.json),
        Command::Eth(command) => match command {
            EthCommand::Anchor(command) => eth::anchor::run(command, cli.json),
            EthCommand::Audit(args) => eth::audit::run(args),
            EthCommand::VerifyCertificate(args) => eth::certificate::run(args),
            EthCommand::Scan(args) => eth::scan::run(args, cli.json),
            EthCommand::Follow(args) => eth::follow::run(args, cli.json),
            EthCommand::Serve(args) => eth::serve::run(args, cli.json),
            EthCommand::Forecast(args) => eth::forecast::run(args),
            EthCommand::Header(args) => eth::header::run(args),
            EthCommand::Stats(args) => eth::stats::run(args),
            EthCommand::Index(command) => eth::index::run(command, cli.json),
        },
        Command::Filter(command) => filter::run(command, cli.json),
        Command::Demo => demo::run(),
        Command::Completions { shell } => shell::completions(*shell),
        Command::Man { folder, overwrite } => shell::manual(folder, overwrite.force),
    }
}

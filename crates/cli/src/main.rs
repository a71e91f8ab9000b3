//! The `chainsieve` command.
//!
//! Each command returns a [`Report`], which contains the same facts as a table for people and as
//! JSON for programs. Commands that run for a long time also print lines while they run.

mod args;
mod btc;
mod demo;
mod eth;
mod exit;
mod filter;
mod svg;

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use args::eth::EthCommand;
use args::{BloomCommand, BtcCommand, CfCommand, Cli, Command, ProveCommand};
use chainsieve_report::{Exit, Page, Report, check_overwrite, count, named, stdin_is_piped};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use clap_complete::Shell;
use serde_json::json;

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
                let tip = if missing.iter().any(|name| name == "--rpc <URL>") {
                    Some("the environment variable ETH_RPC_URL can name the provider, too")
                } else if accepts_rpc && missing.iter().any(|name| name == "<HEADERS>...") {
                    Some("give --rpc or ETH_RPC_URL to fetch headers from a provider")
                } else {
                    None
                };
                if let Some(tip) = tip {
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
        Command::Btc(BtcCommand::Bloom(BloomCommand::New(args))) => btc::bloom::new(args),
        Command::Btc(BtcCommand::Bloom(BloomCommand::Info(args))) => btc::bloom::info(args),
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
        Command::Completions { shell } => completions(*shell),
        Command::Man { folder, overwrite } => manual(folder, overwrite.force),
    }
}

/// Runs `completions`: returns the completion script for a shell.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<Report> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "chainsieve", &mut script);
    let script = String::from_utf8(script).context("completions")?;
    let json = json!({ "shell": shell.to_string(), "script": script });
    Ok(Report::new(Page::default(), json, Exit::Yes).with_payload(script))
}

/// Writes the manual pages of `man` into a folder.
pub(crate) fn manual(folder: &Path, force: bool) -> anyhow::Result<Report> {
    let cannot = || format!("cannot write {}", named(folder));
    fs::create_dir_all(folder).with_context(cannot)?;
    // The folder may contain the pages of other programs.
    let is_ours = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with("chainsieve");
    let ours = || anyhow::Ok(fs::read_dir(folder).with_context(cannot)?.flatten().filter(is_ours));
    for page in ours()? {
        check_overwrite(&page.path(), force)?;
    }
    clap_mangen::generate_to(Cli::command(), folder).with_context(cannot)?;
    let pages = ours()?.count();
    let mut page = Page::default();
    page.line(format!("{} in {}", count(pages, "page"), named(folder)));
    Ok(Report::new(page, json!({ "folder": folder, "pages": pages }), Exit::Yes))
}

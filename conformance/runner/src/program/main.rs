//! The program `chainsieve-conformance`: asks implementations the vectors, runs nodes that lie, and
//! audits running nodes.

mod args;
mod blocks;
mod exit;
mod export;
mod files;
mod list;
mod node;
mod node_args;
mod output;
mod progress;
mod run;
mod show;
mod stop;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use chainsieve_conformance::Pack;
use clap::Parser as _;

use args::{Cli, Command, PackArgs};
use exit::Exit;
use files::named;
use output::Report;

/// The variable that names the folder of the corpus.
const CORPUS: &str = "CHAINSIEVE_CORPUS";
/// Message in place of one that would show a URL.
const URL_NOT_SHOWN: &str = "a URL in the wrong place, or an invalid value beside a URL (not shown, \
                             because a URL may be secret): see --help for the options that accept a URL";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // A node's URL often contains an API key, so an error of the parser must not repeat it, even
        // if it was given at the wrong place.
        Err(error) if error.use_stderr() && error.to_string().contains("://") => {
            output::print_error(&anyhow::anyhow!(URL_NOT_SHOWN));
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

fn run(cli: &Cli) -> anyhow::Result<Report> {
    match &cli.command {
        Command::Run(args) if args.list => list::run(args),
        Command::Run(args) => match &args.show {
            Some(id) => show::run(id, &args.pack),
            None => run::run(args),
        },
        Command::Export(args) => export::run(args),
        Command::ServeNode(args) => node::serve(args, cli.json),
        Command::AuditNode(args) => node::audit(args),
    }
}

/// Reads the vectors of a folder, or those that are part of the program.
fn pack(folder: Option<&Path>) -> anyhow::Result<Pack> {
    match folder {
        Some(folder) => Pack::from_folder(folder).context("--pack"),
        None => Ok(Pack::built_in()?),
    }
}

/// Returns the folder of the corpus, by the option or by the environment.
///
/// # Errors
/// If it is no folder: the cases that need it would be left out although it was given.
fn corpus(args: &PackArgs) -> anyhow::Result<Option<PathBuf>> {
    let variable = || env::var_os(CORPUS).filter(|value| !value.is_empty());
    let (name, folder) = match &args.corpus {
        Some(folder) => ("--corpus", Some(folder.clone())),
        None => (CORPUS, variable().map(PathBuf::from)),
    };
    if let Some(folder) = &folder {
        ensure!(folder.is_dir(), "{name}: {} is not a folder", named(folder));
    }
    Ok(folder)
}

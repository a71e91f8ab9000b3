//! The program `chainsieve-conformance`: asks implementations the vectors, runs nodes that lie, and
//! audits running nodes.

mod args;
mod export;
mod list;
mod node;
mod run;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use chainsieve_conformance::audit::AuditError;
use chainsieve_conformance::{Inputs, Pack};
use chainsieve_report::{Exit, Report, named};
use clap::Parser as _;

use args::{Cli, Command, PackArgs};

/// The variable that names the folder of the corpus.
const CORPUS: &str = "CHAINSIEVE_CORPUS";

fn main() -> ExitCode {
    chainsieve_report::run(
        Cli::try_parse(),
        |cli: &Cli| cli.output,
        run,
        |cause| match cause.downcast_ref() {
            Some(AuditError::Reorganised(_)) => Some(Exit::Undecided),
            _ => None,
        },
    )
}

fn run(cli: &Cli) -> anyhow::Result<Report> {
    match &cli.command {
        Command::Run(args) if args.list => list::list(args),
        Command::Run(args) => match &args.show {
            Some(id) => list::show(id, &args.pack),
            None => run::run(args),
        },
        Command::Export(args) => export::run(args),
        Command::ServeNode(args) => node::serve(args, cli.output.json),
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

/// Returns the inputs of a pack with the corpus of the option or of the environment.
///
/// # Errors
/// If the corpus is no folder: the cases that need it would be left out although it was given.
fn inputs<'p>(pack: &'p Pack, args: &PackArgs) -> anyhow::Result<Inputs<'p>> {
    let variable = || env::var_os(CORPUS).filter(|value| !value.is_empty());
    let (name, folder) = match &args.corpus {
        Some(folder) => ("--corpus", Some(folder.clone())),
        None => (CORPUS, variable().map(PathBuf::from)),
    };
    let inputs = Inputs::new(pack);
    let Some(folder) = folder else { return Ok(inputs) };
    ensure!(folder.is_dir(), "{name}: {} is not a folder", named(&folder));
    Ok(inputs.with_corpus(folder))
}

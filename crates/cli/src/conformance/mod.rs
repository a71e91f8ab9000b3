//! The `conformance` commands.

mod answer;
mod export;
mod list;
mod node;
mod run;
mod show;
mod subject;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use chainsieve_conformance::Pack;

use crate::args::conformance::{ConformanceCommand, PackArgs};
use crate::input::named;
use crate::output::Report;

/// The variable that names the folder of the corpus.
const CORPUS: &str = "CHAINSIEVE_CORPUS";

pub(crate) fn run(command: &ConformanceCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        ConformanceCommand::Run(args) => run::run(args),
        ConformanceCommand::List(args) => list::run(args),
        ConformanceCommand::Show(args) => show::run(args),
        ConformanceCommand::Export(args) => export::run(args),
        ConformanceCommand::Answer(args) => subject::run(args, json),
        ConformanceCommand::ServeNode(args) => node::serve(args, json),
        ConformanceCommand::AuditNode(args) => node::audit(args),
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
    let variable = || std::env::var_os(CORPUS).filter(|value| !value.is_empty());
    let (name, folder) = match &args.corpus {
        Some(folder) => ("--corpus", Some(folder.clone())),
        None => (CORPUS, variable().map(PathBuf::from)),
    };
    if let Some(folder) = &folder {
        ensure!(folder.is_dir(), "{name}: {} is not a folder", named(folder));
    }
    Ok(folder)
}

//! The `conformance` commands.

mod answer;
mod export;
mod list;
mod node;
mod run;
mod show;
mod subject;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chainsieve_conformance::Pack;

use crate::args::conformance::{ConformanceCommand, PackArgs};
use crate::output::Report;

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
fn corpus(args: &PackArgs) -> Option<PathBuf> {
    let variable = || std::env::var_os("CHAINSIEVE_CORPUS").filter(|value| !value.is_empty());
    args.corpus.clone().or_else(|| variable().map(PathBuf::from))
}

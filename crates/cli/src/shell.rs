//! Shell completions and manual pages, generated from the types of the command line.

use std::fs::{self, DirEntry};
use std::path::Path;

use anyhow::Context as _;
use chainsieve_report::{Exit, Page, Report, check_overwrite, count, named};
use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;

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

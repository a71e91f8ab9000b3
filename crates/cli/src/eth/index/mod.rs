//! `eth index …`.

mod add;
mod adding;
mod explain;
mod info;
mod mapped;
mod provider;
mod query;
mod verify;

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, bail};
use chainsieve::eth::index::Index;
use chainsieve::eth::log_query::{BlockSelection, LogQuery};
use mapped::MappedFolder;

use crate::args::UsageError;
use crate::args::eth::IndexCommand;
use crate::input;
use crate::output::Report;

pub(crate) fn run(command: &IndexCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        IndexCommand::Build(args) => add::build(args, json),
        IndexCommand::Append(args) => add::append(args, json),
        IndexCommand::Query(args) => query::run(args, json),
        IndexCommand::Explain(args) => explain::run(args),
        IndexCommand::Info(args) => info::run(args),
        IndexCommand::Verify(args) => verify::run(args),
    }
}

/// An index in a folder, its sealed segments mapped.
pub(crate) type MappedIndex = Index<MappedFolder>;

/// An index with at least one block.
pub(crate) fn open(path: &Path) -> anyhow::Result<MappedIndex> {
    let index = Index::open(MappedFolder::new(path)).with_context(|| named(path))?;
    if index.numbers().is_none() {
        bail!("{}: it has no blocks", named(path));
    }
    Ok(index)
}

/// The blocks of an index that [`open`] gave.
pub(crate) fn numbers(index: &MappedIndex) -> RangeInclusive<u64> {
    index.numbers().expect("it has blocks")
}

pub(crate) fn named(path: &Path) -> String {
    format!("index, {}", input::named(path))
}

/// Bytes of all files of a folder.
fn size(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path).with_context(|| named(path))? {
        // A file may go while a writer is at work.
        bytes += entry.and_then(|entry| entry.metadata()).map_or(0, |metadata| metadata.len());
    }
    Ok(bytes)
}

/// The blocks that a query asks an index about.
fn range(query: &LogQuery, index: &Index<MappedFolder>) -> anyhow::Result<RangeInclusive<u64>> {
    if matches!(query.blocks(), BlockSelection::AtHash(_)) {
        return Err(UsageError(
            "an index is asked by number: give --from and --to, not a query for one blockHash",
        )
        .into());
    }
    let (first, last) = numbers(index).into_inner();
    let (from, to) = super::query::bounds(query);
    let (from, to) = (from.unwrap_or(first), to.unwrap_or(last));
    if from < first {
        bail!("the index begins at block {first}, the range at block {from}");
    }
    if to > last {
        bail!("the index ends at block {last}, the range at block {to}");
    }
    if from > to {
        bail!("the index has blocks {first} to {last}, none of them in the range");
    }
    Ok(from..=to)
}

#[expect(clippy::cast_precision_loss, reason = "counts for people")]
fn float(count: u64) -> f64 {
    count as f64
}

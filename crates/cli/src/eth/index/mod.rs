//! `eth index …`: commands on an index of log filters.

mod adding;
mod info;
mod mapped;
mod provider;
mod query;
mod verify;

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use adding::Adding;
use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::index::{Folder, Index, IndexError, Settings};
use chainsieve::eth::log_query::{BlockSelection, LogQuery};
use chainsieve_report::{Report, UsageError};
use mapped::MappedFolder;

use crate::args::eth::{BuildArgs, IndexCommand};

pub(crate) fn run(command: &IndexCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        IndexCommand::Build(args) => build(args, json),
        IndexCommand::Query(args) => query::run(args, json),
        IndexCommand::Info(args) => info::run(args),
        IndexCommand::Verify(args) => verify::run(args),
    }
}

/// Builds an index, or adds headers to an existing one.
fn build(args: &BuildArgs, json: bool) -> anyhow::Result<Report> {
    let existing = match Index::open(Folder::new(&args.index)) {
        Ok(index) => Some(index.settings().clone()),
        Err(IndexError::NoIndex) => None,
        Err(error) => return Err(error).with_context(|| named(&args.index)),
    };
    let kept = existing.as_ref();
    // An existing index has its label and its columns: what is given must agree with them.
    let label = args.label.as_deref().or(kept.map(Settings::label)).unwrap_or("mainnet");
    let mut settings = Settings::new(label)?;
    if args.block_hashes || kept.is_some_and(Settings::has_block_hashes) {
        settings = settings.with_block_hashes();
    }
    let mut adding = Adding::new(&args.index, settings, &args.adding, json);
    // A new index is created only when the first headers are read, so that an early error leaves no
    // folder behind.
    if existing.is_some() {
        adding.open()?;
    }
    if args.headers.rpc.is_given() {
        return provider::run(adding, &args.headers, args.from.unwrap_or(0));
    }
    adding.run(&args.headers.linked)
}

/// Number of blocks in a section.
const SECTION: u64 = 8192;

/// An index in a folder, with its sealed segments mapped into memory.
pub(crate) type MappedIndex = Index<MappedFolder>;

/// Opens an index; an index without blocks is an error.
pub(crate) fn open(path: &Path) -> anyhow::Result<MappedIndex> {
    let index = Index::open(MappedFolder::new(path)).with_context(|| named(path))?;
    if index.numbers().is_none() {
        bail!("{}: the index has no blocks", named(path));
    }
    Ok(index)
}

/// Returns the blocks of an index that [`open`] returned.
pub(crate) fn numbers(index: &MappedIndex) -> RangeInclusive<u64> {
    index.numbers().expect("it has blocks")
}

/// Hashes of consecutive blocks, which the index stores together.
#[derive(Default)]
pub(crate) struct Hashes {
    /// The number of the first block.
    first: u64,
    hashes: Vec<B256>,
}

impl Hashes {
    /// Returns the hash of a block, if the index stores it.
    pub(crate) fn get(
        &mut self,
        index: &MappedIndex,
        number: u64,
    ) -> Result<Option<B256>, IndexError> {
        let end = self.first + self.hashes.len() as u64;
        if !(self.first..end).contains(&number) {
            let (first, hashes) = index.hashes_around(number)?.unwrap_or_default();
            *self = Self { first, hashes };
        }
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        Ok(place.and_then(|place| self.hashes.get(place).copied()))
    }
}

pub(crate) fn named(path: &Path) -> String {
    format!("index, {}", chainsieve_report::named(path))
}

/// Returns the size of all files of a folder in bytes.
fn size(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path).with_context(|| named(path))? {
        // A concurrent writer may delete a file.
        bytes += entry.and_then(|entry| entry.metadata()).map_or(0, |metadata| metadata.len());
    }
    Ok(bytes)
}

/// Returns the blocks of a query's range, which the index must contain.
fn range(query: &LogQuery, index: &MappedIndex) -> anyhow::Result<RangeInclusive<u64>> {
    if matches!(query.blocks(), BlockSelection::AtHash(_)) {
        bail!(UsageError(
            "an index is queried by block number: give --from and --to, not one blockHash"
        ));
    }
    let (first, last) = numbers(index).into_inner();
    let (from, to) = super::query::bounds(query);
    let (from, to) = (from.unwrap_or(first), to.unwrap_or(last));
    if from < first {
        bail!("the index begins at block {first}, but the range begins at block {from}");
    }
    if to > last {
        bail!("the index ends at block {last}, but the range ends at block {to}");
    }
    if from > to {
        bail!("the index has blocks {first} to {last}, but none of them is in the range");
    }
    Ok(from..=to)
}

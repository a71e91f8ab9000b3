//! `eth index …`: commands on an index of log filters; `query` is here.

mod build;
mod mapped;
mod verify;

use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::forecast::expected_false;
use chainsieve::eth::index::{Index, IndexError};
use chainsieve::eth::log_query::{BlockSelection, CompiledQuery, LogQuery};
use chainsieve_report::{
    Lines, Page, Report, UsageError, duration, estimate, float, grouped, json_line, share, span,
};
use mapped::MappedFolder;
use serde_json::json;

use super::query;
use crate::args::eth::{IndexCommand, QueryIndexArgs};

pub(crate) fn run(command: &IndexCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        IndexCommand::Build(args) => build::run(args, json),
        IndexCommand::Query(args) => query_index(args, json),
        IndexCommand::Info(args) => verify::info(args),
        IndexCommand::Verify(args) => verify::verify(args),
    }
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

/// A cache of block hashes: those of one group of consecutive blocks, which the index stores
/// together.
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
    let (from, to) = query::bounds(query);
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

/// Number of bytes that are collected before lines are printed.
const PRINTED: usize = 64 << 10;

fn query_index(args: &QueryIndexArgs, json: bool) -> anyhow::Result<Report> {
    let query = query::of_args(&args.query, [])?;
    let index = open(&args.index)?;
    let blocks = range(&query, &index)?;
    let compiled = query.compile();
    let named = || named(&args.index);

    let hashes = Hashes::default();
    let mut search = Search { index: &index, json, hashes, found: 0, last: None };
    let started = Instant::now();
    let (elapsed, link) = if args.count {
        let found = index.count(&compiled, blocks.clone());
        search.found = found.with_context(named)?;
        (started.elapsed(), None)
    } else {
        let asked = index.iter(&compiled, blocks.clone()).with_context(named)?;
        search.print(asked).with_context(named)?;
        let elapsed = started.elapsed();
        (
            elapsed,
            search.last.map(|last| index.next_known_hash(last)).transpose().with_context(named)?,
        )
    };
    let candidates = search.found;

    let fills = index.fills(blocks.clone()).with_context(named)?;
    let (first, last) = blocks.into_inner();
    let num_blocks = last - first + 1;
    let passed = float(candidates) / float(num_blocks);
    let by_chance = expected_false(&compiled, &fills);
    let warnings = warnings(&compiled, search.last, link);
    let json = json!({
        "label": index.settings().label(),
        "blocks": num_blocks,
        "first": first,
        "last": last,
        "candidates": candidates,
        "share": passed,
        "expected_false": by_chance,
        "link": link.map(|(number, hash)| json!({ "number": number, "hash": hash })),
        "seconds": elapsed.as_secs_f64(),
        "query": query,
        "semantics": args.query.semantics,
    });
    let mut page = Page::default();
    if candidates > 0 && !args.count {
        page.line("");
    }
    page.fields(vec![
        ("blocks", span(first, last, num_blocks)),
        (
            "candidates",
            format!("{}, {} ({})", grouped(candidates), share(passed), duration(elapsed)),
        ),
        ("by chance", format!("about {}, if no block contained a match", estimate(by_chance))),
    ]);
    Ok(Report::new(page, json, candidates > 0).with_warnings(warnings).after_lines())
}

/// A search for candidates, and its results so far.
struct Search<'a> {
    index: &'a MappedIndex,
    json: bool,
    hashes: Hashes,
    found: u64,
    last: Option<u64>,
}

impl Search<'_> {
    /// Prints one line per candidate.
    fn print(
        &mut self,
        candidates: impl Iterator<Item = Result<u64, IndexError>>,
    ) -> anyhow::Result<()> {
        let mut lines = Lines::default();
        let mut text = String::new();
        let has_hashes = self.index.settings().has_block_hashes();
        let unsealed = numbers(self.index).start() + self.index.sealed();
        for number in candidates {
            let number = number?;
            let has_hash = has_hashes || number >= unsealed;
            let hash = if has_hash { self.hashes.get(self.index, number)? } else { None };
            if self.found == 0 && !self.json {
                text += "block        hash\n";
            }
            self.found += 1;
            self.last = Some(number);
            if self.json {
                text += &json_line("candidate", json!({ "number": number, "hash": hash }));
            } else {
                let hash = hash.map_or("not in the index".into(), |hash| hash.to_string());
                writeln!(text, "{:<11}  {hash}", grouped(number))?;
            }
            if text.len() >= PRINTED && !lines.is_closed() {
                lines.print(&text)?;
                text.clear();
            }
        }
        Ok(lines.print(&text)?)
    }
}

fn warnings(compiled: &CompiledQuery, last: Option<u64>, link: Option<(u64, B256)>) -> Vec<String> {
    let mut warnings = vec![match (last, link) {
        (Some(last), Some((block, hash))) if last < block => format!(
            "the result is only as reliable as the builder of the index. Link the header of a \
             candidate to the next block whose hash the index stores, the last block of its section \
             of 8,192, and link that block to a hash that you trust. For block {last}, use the \
             headers up to block {block}, {hash}"
        ),
        (Some(_), Some(_)) => String::from(
            "the result is only as reliable as the builder of the index: link the hash of a \
             candidate to a hash that you trust",
        ),
        _ => String::from("the result is only as reliable as the builder of the index"),
    }];
    if compiled.matches_everything() {
        warnings.push(String::from("the query matches every log: every block is a candidate"));
    }
    warnings
}

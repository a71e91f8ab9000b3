//! The command `eth index query`.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Context as _;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::forecast::expected_false;
use chainsieve::eth::index::IndexError;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve_report::{Lines, Page, Report, duration, estimate, float, grouped, json_line, share, span};
use serde_json::json;

use crate::args::eth::QueryIndexArgs;
use crate::eth::query;
use super::{Hashes, MappedIndex, named, numbers, range};

/// Number of bytes that are collected before lines are printed.
const PRINTED: usize = 64 << 10;

pub(super) fn run(args: &QueryIndexArgs, json: bool) -> anyhow::Result<Report> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let index = super::open(&args.index)?;
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
        "warnings": warnings,
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
    page.warnings(&warnings);
    Ok(Report::new(page, json, candidates > 0).after_lines())
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

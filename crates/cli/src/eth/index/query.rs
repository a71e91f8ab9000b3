//! `eth index query`.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::Context as _;
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::forecast::expected_false;
use chainsieve::eth::index::Index;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::simd::Backend;
use serde_json::json;

use super::mapped::MappedFolder;
use super::{float, named, numbers, range};
use crate::args::eth::QueryIndexArgs;
use crate::eth::query;
use crate::output::{Exit, Lines, Page, Report, duration, estimate, grouped, share};

/// Bytes of lines printed at once.
const PRINTED: usize = 64 << 10;

pub(super) fn run(args: &QueryIndexArgs, json: bool) -> anyhow::Result<Report> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let index = super::open(&args.index)?;
    let blocks = range(&query, &index)?;
    let compiled = query.compile(Backend::best());
    let named = || named(&args.index);

    let mut search = Search { index: &index, json, hashes: (0, Vec::new()), found: 0, last: None };
    let started = Instant::now();
    let (elapsed, link) = if args.count {
        search.found =
            index.count(Backend::best(), &compiled, blocks.clone()).with_context(named)?;
        (started.elapsed(), None)
    } else {
        let asked = index.iter(Backend::best(), &compiled, blocks.clone()).with_context(named)?;
        search.print(asked).with_context(named)?;
        let elapsed = started.elapsed();
        (elapsed, search.last.map(|last| index.anchor(last)).transpose().with_context(named)?)
    };
    let candidates = search.found;

    let fills = index.fills(blocks.clone()).with_context(named)?;
    let (first, last) = blocks.into_inner();
    let num_blocks = last - first + 1;
    let passed = float(candidates) / float(num_blocks);
    let by_chance = expected_false(&compiled, &fills);
    let warnings = warnings(&compiled, search.last, link);
    let json = json!({
        "chain": index.settings().chain(),
        "blocks": num_blocks,
        "first": first,
        "last": last,
        "candidates": candidates,
        "share": passed,
        "expected_false": by_chance,
        "link": link.map(|(number, hash)| json!({ "number": number, "hash": hash })),
        "seconds": elapsed.as_secs_f64(),
        "query": query,
        "semantics": args.query.semantics.rules(),
        "warnings": warnings,
    });
    let mut page = Page::default();
    if candidates > 0 && !args.count {
        page.line("");
    }
    page.fields(vec![
        ("blocks", format!("{}, {} to {}", grouped(num_blocks), grouped(first), grouped(last))),
        (
            "candidates",
            format!("{}, {} ({})", grouped(candidates), share(passed), duration(elapsed)),
        ),
        ("by chance", format!("about {}, if no block held a match", estimate(by_chance))),
    ]);
    page.warnings(&warnings);
    let exit = if candidates > 0 { Exit::YesAfterLines } else { Exit::NoAfterLines };
    Ok(Report { page, json, payload: None, exit })
}

/// What is being found.
struct Search<'a> {
    index: &'a Index<MappedFolder>,
    json: bool,
    /// Hashes from a block on.
    hashes: (u64, Vec<B256>),
    found: u64,
    last: Option<u64>,
}

impl Search<'_> {
    /// Prints each candidate on a line.
    fn print(
        &mut self,
        candidates: impl Iterator<Item = Result<u64, chainsieve::eth::index::IndexError>>,
    ) -> anyhow::Result<()> {
        let mut lines = Lines::default();
        let mut text = String::new();
        let has_hashes = self.index.settings().has_block_hashes();
        let unsealed = numbers(self.index).start() + self.index.sealed();
        for number in candidates {
            let number = number?;
            let hash = if has_hashes || number >= unsealed { self.hash(number)? } else { None };
            if self.found == 0 && !self.json {
                text += "block        hash\n";
            }
            self.found += 1;
            self.last = Some(number);
            if self.json {
                writeln!(text, "{}", json!({ "number": number, "hash": hash }))?;
            } else if let Some(hash) = hash {
                writeln!(text, "{:<11}  {hash}", grouped(number))?;
            } else {
                writeln!(text, "{:<11}  not in the index", grouped(number))?;
            }
            if text.len() >= PRINTED && !lines.is_closed() {
                lines.print(&text)?;
                text.clear();
            }
        }
        Ok(lines.print(&text)?)
    }

    fn hash(&mut self, number: u64) -> anyhow::Result<Option<B256>> {
        let at = |(first, hashes): &(u64, Vec<B256>)| {
            let place = usize::try_from(number.checked_sub(*first)?).ok()?;
            hashes.get(place).copied()
        };
        if at(&self.hashes).is_none() {
            self.hashes = self.index.hashes_around(number)?.unwrap_or_default();
        }
        Ok(at(&self.hashes))
    }
}

fn warnings(compiled: &CompiledQuery, last: Option<u64>, link: Option<(u64, B256)>) -> Vec<String> {
    let mut warnings = vec![match (last, link) {
        (Some(last), Some((block, hash))) if last < block => format!(
            "an index is as good as its builder. Link the header of a candidate to the next block \
             whose hash the index has, the last of its section of 8,192, and that to a hash that \
             you trust: block {last} by the headers up to block {block}, {hash}"
        ),
        (Some(_), Some(_)) => String::from(
            "an index is as good as its builder: link the hash of a candidate to one that you trust",
        ),
        _ => String::from("an index is as good as its builder"),
    }];
    if compiled.matches_everything() {
        warnings.push(String::from("the query wants every log: every block is a candidate"));
    }
    warnings
}

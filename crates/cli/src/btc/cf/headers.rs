//! The command `btc cf verify-headers`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::{Context as _, ensure};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve_report::{Exit, Page, Progress, Report, grouped, named};
use serde_json::json;

use super::{BlockHashes, FilterFiles};
use crate::args::cf::{HeaderAt, VerifyHeadersArgs};

pub(crate) fn run(args: &VerifyHeadersArgs) -> anyhow::Result<Report> {
    let mut given = given(args)?;
    for &HeaderAt { height, header } in &args.header {
        if let Some(other) = given.insert(height, header) {
            ensure!(other == header, "two different filter headers are given for height {height}");
        }
    }
    let blocks = BlockHashes::read(&args.blocks, 0..=u32::MAX)?;
    let mut files = FilterFiles::open(&args.filters)?.of_blocks(blocks);
    let progress = Progress::over(files.bytes());
    let first = files.header().start_height;
    let (mut filters, mut compared) = (0_u32, 0_u64);
    let mut last = None;
    let mut mismatch = None;
    let damage = files.for_each_batch(|batch, headers, bytes| {
        for (item, header) in batch.iter().zip(headers) {
            filters += 1;
            last = Some((item.height, item.block_hash, *header));
            let Some(trusted) = given.get(&item.height) else { continue };
            compared += 1;
            if trusted != header {
                mismatch = Some((item.height, *header, *trusted));
                return Ok(ControlFlow::Break(()));
            }
        }
        progress.at(bytes);
        Ok(ControlFlow::Continue(()))
    })?;
    drop(progress);
    let (last, last_hash, header) = last.with_context(|| match &damage {
        Some(damage) => damage.clone(),
        None => format!("{}: the file contains no filters", named(&args.filters)),
    })?;
    ensure!(
        compared > 0 || given.is_empty() || damage.is_some(),
        "nothing to compare: the filters of heights {} to {} are at none of the given heights",
        grouped(first),
        grouped(last)
    );
    let mut warnings = Vec::new();
    let page = Page::of_fields(vec![
        (
            "filters",
            format!("{}, height {} to {}", grouped(filters), grouped(first), grouped(last)),
        ),
        ("last block", last_hash.to_string()),
        ("filter header", header.to_string()),
        (
            "compared",
            match (&mismatch, compared) {
                (Some((height, ..)), _) => {
                    format!("differs at height {}", grouped(*height))
                }
                (None, 0) => "with nothing".into(),
                (None, compared) => format!("{}, all equal", grouped(compared)),
            },
        ),
    ]);
    if let Some((height, computed, trusted)) = &mismatch {
        warnings.push(format!(
            "height {height}: computed filter header {computed}, given {trusted}; this is the first \
             difference"
        ));
    } else if compared < given.len() as u64 {
        let rest = given.len() as u64 - compared;
        warnings.push(format!(
            "{} given filter headers have heights that the file does not contain",
            grouped(rest)
        ));
    }
    if given.is_empty() {
        warnings.push(String::from(
            "the filter headers were computed from the filters and compared with nothing: to check the \
             filters, give trusted filter headers with --headers or --header",
        ));
    }
    warnings.extend(damage.clone());
    let exit = match (&mismatch, &damage) {
        (Some(_), _) => Exit::Wrong,
        (None, Some(_)) => Exit::Failed,
        // A filter header that the user trusts was not compared with any filter.
        (None, None) if compared < given.len() as u64 => Exit::Undecided,
        (None, None) => Exit::Yes,
    };
    let json = json!({
        "filters": filters,
        "first": first,
        "last": last,
        "last_hash": last_hash.to_string(),
        "filter_header": header.to_string(),
        "compared": compared,
        "mismatch": mismatch.map(|(height, computed, given)| json!({
            "height": height,
            "computed": computed.to_string(),
            "given": given.to_string(),
        })),
        "damage": damage,
    });
    Ok(Report::new(page, json, exit).with_warnings(warnings))
}

/// Reads the filter headers of `--headers`, by height.
fn given(args: &VerifyHeadersArgs) -> anyhow::Result<BTreeMap<u32, FilterHeader>> {
    let Some(path) = &args.headers else { return Ok(BTreeMap::new()) };
    let bytes = std::fs::read(path).with_context(|| named(path))?;
    let headers = match str::from_utf8(&bytes) {
        Ok(text) => from_lines(text),
        Err(_) => from_raw(&bytes),
    };
    let headers = headers.with_context(|| named(path))?;
    let heights = args.headers_from..=u32::MAX;
    let given: BTreeMap<_, _> = heights.zip(headers.iter().copied()).collect();
    ensure!(!given.is_empty(), "{}: the file contains no filter headers", named(path));
    ensure!(
        given.len() == headers.len(),
        "{}: the file has {} filter headers from height {} on, but the highest height is {}",
        named(path),
        grouped(headers.len()),
        args.headers_from,
        u32::MAX
    );
    Ok(given)
}

fn from_lines(text: &str) -> anyhow::Result<Vec<FilterHeader>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line): (u32, _)| {
            line.trim().parse().with_context(|| format!("line {number}: not a filter header"))
        })
        .collect()
}

fn from_raw(bytes: &[u8]) -> anyhow::Result<Vec<FilterHeader>> {
    let (headers, rest) = bytes.as_chunks::<32>();
    ensure!(rest.is_empty(), "{} bytes, not a multiple of 32", grouped(bytes.len()));
    Ok(headers.iter().map(|header| FilterHeader::from_byte_array(*header)).collect())
}

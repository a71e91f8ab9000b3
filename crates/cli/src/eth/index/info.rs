//! The command `eth index info`.

use anyhow::Context as _;
use chainsieve::eth::index::IndexError;
use chainsieve_report::{Exit, Page, Report, bytes, count, float, grouped, span};
use chainsieve_report::calendar::Utc;
use serde_json::json;

use crate::args::eth::{Buckets, InfoArgs};
use crate::eth::stats::{self, Bucket};
use super::{MappedIndex, SECTION, named, numbers, size};

/// Maximum number of rows of the table, so that it stays readable.
const ROWS: u64 = 24;
/// Maximum number of segments that the page lists; the JSON lists all.
const SHOWN: usize = 8;

pub(super) fn run(args: &InfoArgs) -> anyhow::Result<Report> {
    let index = super::open(&args.index)?;
    let named = || named(&args.index);
    let (first, last) = numbers(&index).into_inner();
    let rows = buckets(&index).with_context(named)?;
    let mut total = rows.first().cloned().context("the index has no blocks")?;
    rows[1..].iter().for_each(|row| total.merge(row));
    // The first block starts a section or is unsealed, so `anchor` returns the block itself.
    let (_, first_hash) = index.next_known_hash(first).with_context(named)?;
    let (_, last_hash) = index.next_known_hash(last).with_context(named)?;
    let blocks = last - first + 1;
    let segments: Vec<_> = index.segment_files().collect();
    let unsealed = blocks - index.sealed();
    let settings = index.settings();
    let size = size(&args.index)?;
    let per_header = float(size) / float(blocks);

    let mut json = json!({
        "label": settings.label(),
        "block_hashes": settings.has_block_hashes(),
        "blocks": blocks,
        "first": first,
        "last": last,
        "first_hash": first_hash,
        "last_hash": last_hash,
        "first_time": total.first_time,
        "last_time": total.last_time,
        "sealed_sections": index.sealed() / SECTION,
        "segments": segments.iter().map(|segment| json!({
            "file": segment.name,
            "sections": segment.sections,
            "first": segment.first,
            "last": segment.last,
            "bytes": segment.bytes,
        })).collect::<Vec<_>>(),
        "unsealed": unsealed,
        "bytes": size,
        "bytes_per_header": per_header,
    });
    let filled = total.json();
    for field in ["no_information", "empty", "fill", "rates"] {
        json[field] = filled[field].clone();
    }
    json["buckets"] = rows.iter().map(Bucket::json).collect();

    let mut page = Page::default();
    let hashes = if settings.has_block_hashes() { "of each block" } else { "of section ends" };
    let date = |time: u64| Utc::new(time).date_time();
    page.fields(vec![
        ("label", settings.label().to_owned()),
        ("blocks", span(first, last, blocks)),
        ("first", format!("{first_hash}, {}", date(total.first_time))),
        ("last", format!("{last_hash}, {}", date(total.last_time))),
        ("hashes", hashes.into()),
        (
            "sealed",
            format!(
                "{} of 8,192 blocks in {}",
                count(index.sealed() / SECTION, "section"),
                count(segments.len(), "segment")
            ),
        ),
        ("unsealed", count(unsealed, "block")),
        ("size", format!("{}, {per_header:.1} bytes per header", bytes(float(size)))),
    ]);
    page.line("");
    if !segments.is_empty() {
        let skipped = segments.len().saturating_sub(SHOWN);
        let shown = segments[skipped..].iter().map(|segment| {
            let blocks = format!("{} – {}", grouped(segment.first), grouped(segment.last));
            vec![segment.name.clone(), blocks, bytes(float(segment.bytes))]
        });
        page.table(vec!["segment", "blocks", "size"], shown.collect());
        if skipped > 0 {
            page.line(format!("and {} earlier segments", grouped(skipped)));
        }
        page.line("");
    }
    stats::table(&mut page, &rows, &total, Buckets::Auto);
    Ok(Report::new(page, json, Exit::Yes))
}

/// Returns rows of a round number of sections each; the last row ends at the last block.
fn buckets(index: &MappedIndex) -> Result<Vec<Bucket>, IndexError> {
    let (first, last) = numbers(index).into_inner();
    let sections = (index.sealed() / SECTION).max(1);
    let width = (0..).flat_map(|zeros| [1, 2, 5].map(|digit| digit * 10_u64.pow(zeros)));
    let width = width.take(40).find(|width| sections.div_ceil(*width) <= ROWS);
    let rows = sections.div_ceil(width.unwrap_or(sections));
    let width = width.unwrap_or(sections) * SECTION;
    let row = |key: u64| {
        let from = first + key * width;
        let to = if key + 1 == rows { last } else { from + width - 1 };
        // Rows start and end with sections, whose times the index stores.
        let time = |number| Ok::<_, IndexError>(index.time(number)?.unwrap_or_default());
        Ok(Bucket {
            key,
            first: from,
            last: to,
            first_time: time(from)?,
            last_time: time(to)?,
            without_filter: 0,
            fills: index.fills(from..=to)?,
        })
    };
    (0..rows).map(row).collect()
}

//! The commands `eth index info` and `eth index verify`.

use std::ops::RangeInclusive;

use anyhow::{Context as _, bail};
use chainsieve::eth::index::{Index, IndexError};
use chainsieve_report::calendar::Utc;
use chainsieve_report::{Exit, Page, Progress, Reader, Report, bytes, count, float, grouped, span};
use serde_json::json;

use super::mapped::MappedFolder;
use super::{MappedIndex, SECTION, named, numbers, size};
use crate::args::eth::{Buckets, InfoArgs, VerifyIndexArgs};
use crate::eth::headers::{Bounds, for_each_linked};
use crate::eth::stats::{self, Bucket};

/// Maximum number of rows of the table, so that it stays readable.
const ROWS: u64 = 24;
/// Maximum number of segments that the page lists; the JSON lists all.
const SHOWN: usize = 8;

pub(super) fn info(args: &InfoArgs) -> anyhow::Result<Report> {
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

/// The number of checked bytes of the index. If headers were given, also the blocks and the number of whole
/// sections that were compared with them.
type Outcome = (u64, Option<(RangeInclusive<u64>, u64)>);

pub(super) fn verify(args: &VerifyIndexArgs) -> anyhow::Result<Report> {
    Reader::of(&args.linked.headers)?;
    let opened = Index::open(MappedFolder::new(&args.index)).with_context(|| named(&args.index));
    let checked = opened.map(|index| (check(args, &index), index));
    let (checked, index) =
        checked.map_or_else(|error| (Err(error), None), |(checked, index)| (checked, Some(index)));
    let index = index.as_ref();
    match checked {
        Ok(outcome) => Ok(report(args, index, Ok(&outcome))),
        Err(error) => match error.downcast_ref() {
            // These errors mean that the index is damaged or wrong, which is a result of the
            // command; any other error ends the command.
            Some(
                found @ (IndexError::Damaged { .. }
                | IndexError::Differs { .. }
                | IndexError::NotOfAnIndex { .. }),
            ) => Ok(report(args, index, Err(found))),
            _ => Err(error),
        },
    }
}

fn check(args: &VerifyIndexArgs, index: &MappedIndex) -> anyhow::Result<Outcome> {
    let named = || named(&args.index);
    let all = index.numbers().with_context(|| format!("{}: the index has no blocks", named()))?;
    let mut progress: Option<Progress> = None;
    let checked = index.check(|done, total| {
        progress.get_or_insert_with(|| Progress::over(total)).at(done);
    });
    drop(progress);
    let checked = checked.with_context(named)?;
    if args.linked.headers.is_empty() {
        return Ok((checked, None));
    }
    let mut verifier = index.verifier();
    for_each_linked(&args.linked, Bounds::default(), |_| (), |chain, ()| Ok(verifier.add(chain)?))?;
    verifier.finish()?;
    if verifier.blocks.as_ref() != Some(&all) && !args.part {
        let given = verifier.blocks.map_or("none of its blocks".into(), |blocks| {
            format!("blocks {} to {}", blocks.start(), blocks.end())
        });
        bail!(
            "{}: the index has blocks {} to {}, but the headers are of {given}: give all headers, \
             or add --part",
            named(),
            all.start(),
            all.end()
        );
    }
    Ok((checked, verifier.blocks.zip(Some(verifier.sections))))
}

fn report(
    args: &VerifyIndexArgs,
    index: Option<&MappedIndex>,
    outcome: Result<&Outcome, &IndexError>,
) -> Report {
    let range = index.and_then(Index::numbers);
    let blocks = range.as_ref().map(|range| range.end() - range.start() + 1);
    let sealed = index.map(|index| index.sealed() / SECTION);
    let mut warnings = Vec::new();
    if outcome.is_ok() && args.linked.headers.is_empty() {
        warnings.push(String::from(
            "checked without headers, which detects only accidents: give headers to compare every \
             bit",
        ));
    }
    let compared = outcome.ok().and_then(|(_, compared)| {
        let (blocks, sections) = compared.clone()?;
        let (first, last) = blocks.into_inner();
        Some((first, last, last - first + 1, sections))
    });
    let json = json!({
        "valid": outcome.is_ok(),
        "error": outcome.err().map(ToString::to_string),
        "label": index.map(|index| index.settings().label()),
        "blocks": blocks,
        "first": range.as_ref().map(RangeInclusive::start),
        "last": range.as_ref().map(RangeInclusive::end),
        "sections": sealed,
        "bytes": outcome.ok().map(|(checked, _)| checked),
        "compared": compared.map(|(first, last, blocks, sections)| json!({
            "blocks": blocks,
            "first": first,
            "last": last,
            "sections": sections,
        })),
    });
    let mut page = Page::default();
    match outcome {
        Err(error) => page.line(format!("not valid: {error}")),
        Ok((checked, _)) => {
            let blocks = range.zip(blocks).map(|(it, all)| span(*it.start(), *it.end(), all));
            let mut fields = vec![
                ("valid", format!("all of {}", bytes(float(*checked)))),
                ("blocks", blocks.unwrap_or_default()),
                ("sealed", count(sealed.unwrap_or_default(), "section")),
            ];
            if let Some((_, _, blocks, sections)) = compared {
                let (blocks, sections) = (count(blocks, "header"), count(sections, "section"));
                fields.push(("compared", format!("every bit of {blocks}, {sections} completely")));
            }
            page.fields(fields);
        }
    }
    // Only headers prove that an index is wrong. A wrong checksum of the index shows that a file is
    // damaged.
    let exit = match outcome {
        Ok(_) => Exit::Yes,
        Err(IndexError::Differs { .. }) => Exit::Wrong,
        Err(_) => Exit::Failed,
    };
    Report::new(page, json, exit).with_warnings(warnings)
}

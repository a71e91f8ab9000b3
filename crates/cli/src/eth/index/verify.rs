//! `eth index verify`.

use std::ops::RangeInclusive;

use anyhow::Context as _;
use chainsieve::eth::index::{Checked, Index, IndexError, Verified};
use chainsieve::simd::Backend;
use serde_json::json;

use super::mapped::MappedFolder;
use super::{float, named, numbers};
use crate::args::eth::{LinkedHeaders, VerifyIndexArgs};
use crate::eth::linked::{self, Bounds};
use crate::input::Reader;
use crate::output::{Exit, Page, Report, bytes, count, grouped};
use crate::progress::Progress;

/// Blocks of a section.
const SECTION: u64 = 8192;

/// What came of it; the error if the index is not as it should be.
type Outcome<T> = Result<T, IndexError>;

pub(super) fn run(args: &VerifyIndexArgs) -> anyhow::Result<Report> {
    Reader::of(&args.headers)?;
    let opened = Index::open(MappedFolder::new(&args.index));
    let index = match opened {
        Err(error) if is_finding(&error) => return Ok(report(args, None, &Err(error), None)),
        opened => opened.with_context(|| named(&args.index))?,
    };
    if index.numbers().is_none() {
        anyhow::bail!("{}: it has no blocks", named(&args.index));
    }
    let mut progress: Option<Progress> = None;
    let checked = index.check(|done, total| {
        progress.get_or_insert_with(|| Progress::over(total)).at(done);
    });
    drop(progress);
    let checked = finding(checked).with_context(|| named(&args.index))?;
    if args.headers.is_empty() || checked.is_err() {
        return Ok(report(args, Some(&index), &checked, None));
    }
    let compared = compare(args, &index)?;
    if let Ok(Verified { blocks, .. }) = &compared {
        let all = numbers(&index);
        if blocks.as_ref() != Some(&all) && !args.part {
            let (first, last) = all.into_inner();
            let given = blocks.as_ref().map_or_else(
                || String::from("none of its blocks"),
                |blocks| format!("blocks {} to {}", blocks.start(), blocks.end()),
            );
            anyhow::bail!(
                "{}: it has blocks {first} to {last}, the headers are of {given}: give all, or say \
                 --part",
                named(&args.index)
            );
        }
    }
    let compared = match compared {
        Ok(compared) => compared,
        Err(error) => return Ok(report(args, Some(&index), &Err(error), None)),
    };
    Ok(report(args, Some(&index), &checked, Some(&compared)))
}

/// Compares the index with the headers.
fn compare(
    args: &VerifyIndexArgs,
    index: &Index<MappedFolder>,
) -> anyhow::Result<Outcome<Verified>> {
    let headers =
        LinkedHeaders { headers: args.headers.clone(), format: args.format, threads: args.threads };
    let mut verifier = index.verifier();
    let mut found = None;
    let read = linked::for_each(
        &headers,
        Bounds::default(),
        |_| (),
        |chain, (), _| {
            if let Err(error) = finding(verifier.add(Backend::best(), chain))? {
                found = Some(error);
                // Nothing more is read.
                anyhow::bail!("a difference");
            }
            Ok(())
        },
    );
    if let Some(error) = found {
        return Ok(Err(error));
    }
    read?;
    Ok(finding(verifier.finish(Backend::best()))?)
}

/// Whether an error says that the index is not as it should be.
fn is_finding(error: &IndexError) -> bool {
    matches!(
        error,
        IndexError::Damaged { .. } | IndexError::Differs { .. } | IndexError::NotOfAnIndex { .. }
    )
}

/// Keeps apart what is found and what went wrong.
fn finding<T>(result: Outcome<T>) -> Outcome<Outcome<T>> {
    match result {
        Err(error) if !is_finding(&error) => Err(error),
        result => Ok(result),
    }
}

fn report(
    args: &VerifyIndexArgs,
    index: Option<&Index<MappedFolder>>,
    checked: &Outcome<Checked>,
    compared: Option<&Verified>,
) -> Report {
    let range = index.and_then(Index::numbers);
    let valid = checked.is_ok();
    let mut warnings = Vec::new();
    if valid && args.headers.is_empty() {
        warnings.push(String::from(
            "checked by itself, which finds accidents: with headers every bit is compared",
        ));
    }
    let compared_json = compared.and_then(|compared| {
        let blocks = compared.blocks.as_ref()?;
        let (first, last) = (blocks.start(), blocks.end());
        let sections = compared.sections;
        Some(json!({ "blocks": last - first + 1, "first": first, "last": last, "sections": sections }))
    });
    let json = json!({
        "valid": valid,
        "error": checked.as_ref().err().map(ToString::to_string),
        "chain": index.map(|index| index.settings().chain()),
        "blocks": range.as_ref().map(|range| range.end() - range.start() + 1),
        "first": range.as_ref().map(RangeInclusive::start),
        "last": range.as_ref().map(RangeInclusive::end),
        "sections": index.map(|index| index.sealed() / SECTION),
        "bytes": checked.as_ref().ok().map(|checked| checked.bytes),
        "compared": compared_json,
        "warnings": warnings,
    });
    let mut page = Page::default();
    match checked {
        Err(error) => page.line(format!("not valid: {error}")),
        Ok(checked) => {
            let blocks = range.map_or_else(String::new, |range| {
                format!(
                    "{}, {} to {}",
                    grouped(checked.blocks),
                    grouped(*range.start()),
                    grouped(*range.end())
                )
            });
            let mut fields = vec![
                ("valid", format!("all of {}", bytes(float(checked.bytes)))),
                ("blocks", blocks),
                ("sealed", count_of(checked.sections, "section")),
            ];
            if let Some(Verified { blocks: Some(blocks), sections, .. }) = compared {
                let number = blocks.end() - blocks.start() + 1;
                fields.push((
                    "compared",
                    format!(
                        "every bit of {}, {} whole",
                        count_of(number, "header"),
                        count_of(*sections, "section")
                    ),
                ));
            }
            page.fields(fields);
        }
    }
    page.warnings(&warnings);
    Report { page, json, payload: None, exit: Exit::from(valid) }
}

fn count_of(number: u64, noun: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

//! The command `eth index verify`.

use std::ops::RangeInclusive;

use anyhow::{Context as _, bail};
use chainsieve::eth::index::{Checked, Index, IndexError, Verified};
use chainsieve_report::{Exit, Page, Progress, Reader, Report, bytes, count, float, span};
use serde_json::json;

use crate::args::eth::VerifyIndexArgs;
use crate::eth::linked::{self, Bounds};
use super::{MappedIndex, SECTION, named};
use super::mapped::MappedFolder;

/// The result of the check of the index itself, and the result of the comparison with the given
/// headers, if any.
type Outcome = (Checked, Option<Verified>);

pub(super) fn run(args: &VerifyIndexArgs) -> anyhow::Result<Report> {
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
    linked::for_each(
        &args.linked,
        Bounds::default(),
        |_| (),
        |chain, ()| Ok(verifier.add(chain)?),
    )?;
    let compared = verifier.finish()?;
    if compared.blocks.as_ref() != Some(&all) && !args.part {
        let given = compared.blocks.map_or("none of its blocks".into(), |blocks| {
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
    Ok((checked, Some(compared)))
}

fn report(
    args: &VerifyIndexArgs,
    index: Option<&MappedIndex>,
    outcome: Result<&Outcome, &IndexError>,
) -> Report {
    let range = index.and_then(Index::numbers);
    let mut warnings = Vec::new();
    if outcome.is_ok() && args.linked.headers.is_empty() {
        warnings.push(String::from(
            "checked without headers, which detects only accidents: give headers to compare every \
             bit",
        ));
    }
    let compared = outcome.ok().and_then(|(_, compared)| {
        let Verified { blocks, sections, .. } = compared.as_ref()?;
        let (first, last) = blocks.clone()?.into_inner();
        Some((first, last, last - first + 1, *sections))
    });
    let json = json!({
        "valid": outcome.is_ok(),
        "error": outcome.err().map(ToString::to_string),
        "label": index.map(|index| index.settings().label()),
        "blocks": range.as_ref().map(|range| range.end() - range.start() + 1),
        "first": range.as_ref().map(RangeInclusive::start),
        "last": range.as_ref().map(RangeInclusive::end),
        "sections": index.map(|index| index.sealed() / SECTION),
        "bytes": outcome.ok().map(|(checked, _)| checked.bytes),
        "compared": compared.map(|(first, last, blocks, sections)| json!({
            "blocks": blocks,
            "first": first,
            "last": last,
            "sections": sections,
        })),
        "warnings": warnings,
    });
    let mut page = Page::default();
    match outcome {
        Err(error) => page.line(format!("not valid: {error}")),
        Ok((checked, _)) => {
            let blocks = range.map(|it| span(*it.start(), *it.end(), checked.blocks));
            let mut fields = vec![
                ("valid", format!("all of {}", bytes(float(checked.bytes)))),
                ("blocks", blocks.unwrap_or_default()),
                ("sealed", count(checked.sections, "section")),
            ];
            if let Some((_, _, blocks, sections)) = compared {
                let (blocks, sections) = (count(blocks, "header"), count(sections, "section"));
                fields.push(("compared", format!("every bit of {blocks}, {sections} completely")));
            }
            page.fields(fields);
        }
    }
    page.warnings(&warnings);
    // Only headers prove that an index is wrong. A wrong checksum of the index shows that a file is
    // damaged.
    let exit = match outcome {
        Ok(_) => Exit::Yes,
        Err(IndexError::Differs { .. }) => Exit::Wrong,
        Err(_) => Exit::Failed,
    };
    Report::new(page, json, exit)
}

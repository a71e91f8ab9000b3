//! `run --list`: the areas of the vectors, or cases of theirs.

use chainsieve_conformance::{Area, Case, Selection};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::exit::{Exit, UsageError};
use crate::output::{Page, Report, count, grouped};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.pack.as_deref())?;
    let selection = Selection::new(&pack, &args.area, &args.id, None)
        .map_err(|error| anyhow::Error::from(error).context(UsageError("nothing to list")))?;
    if !args.area.is_empty() || !args.id.is_empty() {
        let areas = pack.areas().iter();
        return Ok(cases(&areas.flat_map(|area| selection.cases(area)).collect::<Vec<_>>()));
    }
    let mut page = Page::default();
    let rows = pack.areas().iter().map(|area| {
        let needing = needing_corpus(area);
        let needing = if needing == 0 { String::new() } else { grouped(needing) };
        vec![area.name.clone(), grouped(area.cases.len()), needing, area.title.clone()]
    });
    page.table(vec!["area", "cases", "need the corpus", "title"], rows.collect());
    let profiles = pack.profiles().iter();
    let rows = profiles.map(|(name, profile)| vec![name.clone(), profile.about.clone()]).collect();
    page.table(vec!["profile", "accepts"], rows);
    let total: usize = pack.areas().iter().map(|area| area.cases.len()).sum();
    page.line(format!("Version {}: {}", pack.version(), count(total, "case")));
    let areas = pack.areas().iter().map(|area| {
        json!({
            "area": area.name,
            "title": area.title,
            "source": area.source,
            "licence": area.licence,
            "cases": area.cases.len(),
            "needs_corpus": needing_corpus(area),
            "flags": area.flags,
        })
    });
    let profiles = pack.profiles().iter().map(|(name, profile)| {
        json!({ "name": name, "areas": profile.areas, "by": profile.by, "about": profile.about })
    });
    let json = json!({
        "version": pack.version(),
        "licence": pack.licence(),
        "areas": areas.collect::<Vec<_>>(),
        "profiles": profiles.collect::<Vec<_>>(),
    });
    Ok(Report::new(page, json, Exit::Yes))
}

fn needing_corpus(area: &Area) -> usize {
    area.cases.iter().filter(|case| case.needs.is_some()).count()
}

/// Lists cases.
fn cases(cases: &[&Case]) -> Report {
    let row = |case: &&Case| {
        vec![case.id.clone(), case.level.name().into(), case.flags.join(", "), case.comment.clone()]
    };
    let mut page = Page::default();
    page.table(vec!["case", "level", "flags", "why it is there"], cases.iter().map(row).collect());
    let cases: Vec<Value> = cases
        .iter()
        .map(|case| {
            json!({
                "id": case.id,
                "level": case.level.name(),
                "flags": case.flags,
                "comment": case.comment,
                "needs": case.needs,
            })
        })
        .collect();
    Report::new(page, json!({ "cases": cases }), Exit::Yes)
}

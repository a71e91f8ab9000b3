//! `run --list` and `run --show`: the areas of the vectors, cases of theirs, or one case.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow};
use chainsieve_conformance::{Area, Case, Pack, Selection, shortened};
use chainsieve_report::{Exit, Page, Report, UsageError, count, grouped, printable_json};
use serde_json::{Map, Value, json};

use crate::args::{PackArgs, RunArgs};

pub(crate) fn list(args: &RunArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.pack.as_deref())?;
    let selection = Selection::all(&pack).with_areas(&args.area);
    let selection = selection
        .and_then(|selection| selection.with_ids(&args.id))
        .context(UsageError("nothing to list"))?;
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

pub(crate) fn show(id: &str, args: &PackArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.as_deref())?;
    let mut cases =
        pack.areas().iter().flat_map(|area| area.cases.iter().map(move |case| (area, case)));
    let (area, case) = cases.find(|(_, case)| case.id == id).ok_or_else(|| {
        let area = pack.areas().iter().find(|area| id.starts_with(&area.name));
        let area = area.map_or("AREA", |area| &area.name);
        anyhow!("no case has the id {id:?}: run --list --area {area} lists the cases")
    })?;
    let inputs = super::inputs(&pack, args)?;
    let mut warnings = Vec::new();
    let input = inputs.of(case).unwrap_or_else(|error| {
        warnings.push(format!("the input is shown with its references: {error}"));
        case.written_input()
    });
    let expect = case.expect.json();
    let flags: Map<String, Value> = case
        .flags
        .iter()
        .map(|flag| (flag.clone(), json!(meaning(&pack, &area.flags, flag))))
        .collect();
    let mut page = Page::default();
    let mut fields = vec![
        ("case", case.id.clone()),
        ("why", case.comment.clone()),
        ("level", case.level.name().to_owned()),
        ("source", case.source.clone()),
    ];
    for (flag, meaning) in &flags {
        fields.push(("flag", format!("{flag}: {}", meaning.as_str().unwrap_or_default())));
    }
    if let Some(needs) = &case.needs {
        fields
            .push(("needs", format!("block {} of {}, {}", needs.height, needs.chain, needs.hash)));
    }
    fields.push(("input", printable_json(shortened(&input).to_string())));
    fields.push(("expected", printable_json(shortened(&expect).to_string())));
    page.fields(fields);
    page.warnings(&warnings);
    let json = json!({
        "id": case.id,
        "area": area.name,
        "title": area.title,
        "comment": case.comment,
        "level": case.level.name(),
        "source": case.source,
        "flags": flags,
        "needs": case.needs,
        "input": input,
        "expect": expect,
        "warnings": warnings,
    });
    Ok(Report::new(page, json, Exit::Yes))
}

/// Returns what a flag means, by its area or by the pack.
fn meaning<'a>(
    pack: &'a Pack,
    flags: &'a BTreeMap<String, String>,
    flag: &str,
) -> Option<&'a String> {
    flags.get(flag).or_else(|| pack.flags().get(flag))
}

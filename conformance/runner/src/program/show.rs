//! `run --show ID`: one case.

use anyhow::anyhow;
use chainsieve_conformance::{Inputs, Pack, shortened};
use serde_json::{Map, Value, json};

use crate::args::PackArgs;
use crate::exit::Exit;
use crate::output::{Page, Report, printable_json};

pub(crate) fn run(id: &str, args: &PackArgs) -> anyhow::Result<Report> {
    let pack = super::pack(args.pack.as_deref())?;
    let mut cases =
        pack.areas().iter().flat_map(|area| area.cases.iter().map(move |case| (area, case)));
    let (area, case) = cases.find(|(_, case)| case.id == id).ok_or_else(|| {
        let area = pack.areas().iter().find(|area| id.starts_with(&area.name));
        let area = area.map_or("AREA", |area| &area.name);
        anyhow!("no case has the id {id:?}: run --list --area {area} lists the cases")
    })?;
    let inputs = Inputs::new(&pack, super::corpus(args)?);
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
    flags: &'a std::collections::BTreeMap<String, String>,
    flag: &str,
) -> Option<&'a String> {
    flags.get(flag).or_else(|| pack.flags().get(flag))
}

//! The command `eth index explain`.

use anyhow::Context as _;
use chainsieve::eth::index::Explanation;
use serde_json::{Value, json};

use super::{named, range};
use crate::args::eth::ExplainArgs;
use crate::eth::forecast::{self, Clauses};
use crate::eth::query;
use crate::exit::Exit;
use crate::output::{Page, Report, bytes, count, float, grouped, share};

/// Maximum number of rows that the page shows; the JSON lists all.
const SHOWN: usize = 12;

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<Report> {
    let reader = query::stdin_once(&args.query, [])?;
    let query = query::read(&args.query, &reader)?;
    let index = super::open(&args.index)?;
    let blocks = range(&query, &index)?;
    let named = || named(&args.index);
    let compiled = query.compile();
    let plan = index.explain(&compiled, blocks.clone()).with_context(named)?;
    let forecast = index.forecast(&compiled, blocks.clone()).with_context(named)?;
    let clauses = query::clauses(&query);
    let warnings = forecast::warnings(&forecast, &clauses);
    let bounds = (*blocks.start(), *blocks.end());
    let mut page = forecast::page(&forecast, bounds, &clauses, &[]);
    show(&mut page, &plan, &clauses);
    page.warnings(&warnings);
    let mut json = forecast::json(&forecast, bounds, &clauses, &query);
    json["label"] = json!(index.settings().label());
    json["plan"] = plan_json(&plan, &clauses);
    json["semantics"] = json!(args.query.semantics);
    json["warnings"] = json!(warnings);
    Ok(Report::new(page, json, Exit::Yes))
}

fn clause_name(clauses: &Clauses, clause: usize) -> &str {
    clauses.get(clause).map_or("", |(name, _)| name)
}

fn show(page: &mut Page, plan: &Explanation, clauses: &Clauses) {
    page.line("");
    let mut fields = Vec::new();
    if plan.sections > 0 {
        let rows = plan.rows.iter().filter(|row| row.bytes > 0).count();
        fields.push((
            "reads",
            format!(
                "{} of sealed blocks, at most {}",
                count(rows, "row"),
                bytes(float(plan.bytes))
            ),
        ));
        fields.push((
            "skips",
            format!(
                "{} of {} sections, where a bit that the query needs is set in no block",
                grouped(plan.skipped_sections),
                grouped(plan.sections)
            ),
        ));
    }
    let unsealed = format!("{} unsealed blocks, one by one", grouped(plan.unsealed_blocks));
    fields.push(("tests", unsealed));
    page.fields(fields);
    if plan.sections == 0 || plan.rows.is_empty() {
        return;
    }
    let rows = plan.rows.iter().take(SHOWN).map(|row| {
        vec![
            row.position.to_string(),
            clause_name(clauses, row.clause).to_owned(),
            share(row.density()),
            grouped(row.sections),
            bytes(float(row.bytes)),
        ]
    });
    page.line("");
    page.table(
        vec!["row, in reading order", "clause", "blocks with this bit", "sections", "bytes"],
        rows.collect(),
    );
    if let Some(more) = plan.rows.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        page.line(format!("and {} more", grouped(more)));
    }
}

fn plan_json(plan: &Explanation, clauses: &Clauses) -> Value {
    let rows = plan.rows.iter().map(|row| {
        json!({
            "row": row.position,
            "clause": clause_name(clauses, row.clause),
            "density": row.density(),
            "sections": row.sections,
            "bytes": row.bytes,
        })
    });
    json!({
        "rows": rows.collect::<Vec<_>>(),
        "sections": plan.sections,
        "skipped_sections": plan.skipped_sections,
        "bytes": plan.bytes,
        "unsealed_blocks": plan.unsealed_blocks,
    })
}

//! The command `eth forecast`.

use anyhow::bail;
use chainsieve::eth::forecast::Forecast;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::log_query::{BlockSelection, LogQuery};
use chainsieve_provider::Stop;
use chainsieve_report::{
    Exit, Page, Report, UsageError, bytes, estimate, float, grouped, share, span,
};
use serde_json::{Value, json};

use super::headers::{Bounds, for_each_linked};
use super::{builder, in_words_of_the_command, query, words_of_all};
use crate::args::eth::ForecastArgs;

/// Maximum number of values of a clause that the page shows; the JSON lists all.
const SHOWN: usize = 8;

pub(crate) fn run(args: &ForecastArgs) -> anyhow::Result<Report> {
    let query = query::of_args(&args.query, args.headers.headers.iter().map(AsRef::as_ref))?;
    if matches!(query.blocks(), BlockSelection::AtHash(_)) {
        bail!(UsageError("a query for one blockHash cannot be forecast: give --from and --to"));
    }
    let mut forecast = Forecast::new(query.compile());
    let mut range: Option<(u64, u64)> = None;
    let mut add = |chain: &LinkedHeaders| {
        forecast.add(chain);
        if let Some(numbers) = chain.numbers() {
            let first = range.map_or(*numbers.start(), |(first, _)| first);
            range = Some((first, *numbers.end()));
        }
    };
    let mut noted = Vec::new();
    if args.rpc.is_given() {
        noted = of_provider(args, &query, &mut add)?;
    } else {
        let (from, to) = query::bounds(&query);
        for_each_linked(
            &args.headers,
            Bounds { from, to },
            |_| (),
            |chain, ()| {
                add(chain);
                Ok(())
            },
        )?;
        if let Some(found) = range {
            query::check_coverage(found, (from, to))?;
        }
    }
    let Some((first, last)) = range else {
        bail!("none of the headers is in the block range of the query");
    };
    let clauses = query::clauses(&query);
    let warnings = [noted, warnings(&forecast, &clauses)].concat();
    let page = page(&forecast, (first, last), &clauses);
    let mut json = json(&forecast, (first, last), &clauses, &query);
    json["semantics"] = json!(args.query.semantics);
    Ok(Report::new(page, json, Exit::Yes).with_warnings(warnings))
}

/// Passes the headers of the range from a provider to `add`; returns the provider's warnings.
fn of_provider(
    args: &ForecastArgs,
    query: &LogQuery,
    add: &mut dyn FnMut(&LinkedHeaders),
) -> anyhow::Result<Vec<String>> {
    query::require_from(&args.query)?;
    let (builder, _) = builder(&args.rpc, vec![args.rpc.endpoint()?], Stop::new());
    let provider = builder.final_only().build()?;
    let added = provider.scan_parts(query, |_, part| {
        add(part.chain);
        true
    });
    let (_, warnings) = added.map_err(in_words_of_the_command)?;
    Ok(words_of_all(&args.query, &warnings).collect())
}

type Clauses = [(String, Vec<String>)];

fn warnings(forecast: &Forecast, clauses: &Clauses) -> Vec<String> {
    let mut warnings = Vec::new();
    if clauses.is_empty() {
        warnings.push("the query matches every log: every block is a candidate".into());
    }
    for ((name, _), clause) in clauses.iter().zip(forecast.clauses()) {
        if clause.selects_nothing() {
            warnings.push(format!(
                "the clause {name} excludes few blocks: {} of the blocks pass it",
                share(clause.share())
            ));
        }
    }
    warnings
}

fn page(forecast: &Forecast, (first, last): (u64, u64), clauses: &Clauses) -> Page {
    let fills = forecast.fills();
    let passed = float(forecast.candidates()) / float(forecast.blocks().max(1));
    let mut page = Page::of_fields(vec![
        ("blocks", span(first, last, forecast.blocks())),
        ("fill", format!("{} in the median block", share(fills.quantile(0.5)))),
        (
            "candidates",
            format!("{}, {} of the blocks", grouped(forecast.candidates()), share(passed)),
        ),
        (
            "by chance",
            format!("about {} of them contain no match", estimate(forecast.expected_false())),
        ),
        (
            "receipts",
            format!(
                "about {}, at most {}",
                estimate(forecast.receipts()),
                grouped(forecast.most_receipts())
            ),
        ),
        (
            "bytes",
            format!(
                "about {} without filters (eth/69, ere), {} with them",
                bytes(forecast.slim_bytes()),
                bytes(forecast.consensus_bytes())
            ),
        ),
    ]);
    if !clauses.is_empty() {
        let mut rows = Vec::new();
        for ((name, values), clause) in clauses.iter().zip(forecast.clauses()) {
            let whole = match values.len() {
                1 => values[0].clone(),
                many => format!("one of {}", grouped(many)),
            };
            rows.push(vec![name.clone(), whole, share(clause.share())]);
            if (2..=SHOWN).contains(&values.len()) {
                for (value, passed) in values.iter().zip(clause.values()) {
                    rows.push(vec![String::new(), value.clone(), share(passed)]);
                }
            }
        }
        page.line("");
        page.table(vec!["clause", "", "blocks that pass it"], rows);
    }
    page
}

fn json(
    forecast: &Forecast,
    (first, last): (u64, u64),
    clauses: &Clauses,
    query: &LogQuery,
) -> Value {
    let clauses: Vec<_> = clauses
        .iter()
        .zip(forecast.clauses())
        .map(|((name, values), clause)| {
            let each: Vec<_> = values
                .iter()
                .zip(clause.values())
                .map(|(value, share)| json!({ "value": value, "share": share }))
                .collect();
            json!({
                "what": name,
                "values": values.len(),
                "candidates": clause.candidates(),
                "share": clause.share(),
                "selects_nothing": clause.selects_nothing(),
                "each": each,
            })
        })
        .collect();
    let blocks = float(forecast.blocks());
    json!({
        "blocks": forecast.blocks(),
        "first": first,
        "last": last,
        "candidates": forecast.candidates(),
        "share": float(forecast.candidates()) / blocks.max(1.0),
        "expected_false": forecast.expected_false(),
        "fill": {
            "median": forecast.fills().quantile(0.5),
            "mean": forecast.fills().mean_fill(),
        },
        "receipts": forecast.receipts(),
        "most_receipts": forecast.most_receipts(),
        "slim_bytes": forecast.slim_bytes(),
        "consensus_bytes": forecast.consensus_bytes(),
        "clauses": clauses,
        "query": query,
    })
}

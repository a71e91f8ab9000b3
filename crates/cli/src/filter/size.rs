//! The command `filter size`.

use chainsieve_filter::Kind;
use chainsieve_filter::sizing::{self, BuildError, Cost};
use chainsieve_report::{Exit, Page, Report, bytes, grouped, rate, with_separators, write};
use serde_json::{Value, json};

use super::chart::{self, Chart, Line, Stroke};
use crate::args::filter::SizeArgs;

/// Number of points in each decade of rates, for a line without steps.
const POINTS: i32 = 10;
/// Number of points in each decade of rates, for a line with steps.
const STAIR_POINTS: i32 = 60;

/// The lines of the chart, in the order of its colours. The line with an empty list of kinds is the
/// theoretical minimum.
///
/// Kinds that differ only in the size of fingerprints share a line, which shows the kind that needs
/// the fewest bits at each rate. The exact table is left out, because it would be far above all
/// other lines.
const LINES: [(&str, &[Kind]); 12] = [
    ("floor: log2(1/rate)", &[]),
    ("bloom", &[Kind::Bloom]),
    ("split-block-512", &[Kind::SplitBlock512]),
    ("split-block-256", &[Kind::SplitBlock256]),
    ("counting", &[Kind::Counting]),
    ("scalable, grown 100-fold", &[Kind::Scalable]),
    ("rolling", &[Kind::Rolling]),
    ("cuckoo8, 12, 16", &[Kind::Cuckoo8, Kind::Cuckoo12, Kind::Cuckoo16]),
    ("fuse8, 16", &[Kind::Fuse8, Kind::Fuse16]),
    ("ribbon", &[Kind::Ribbon]),
    ("partitioned", &[Kind::Partitioned]),
    ("compressed", &[Kind::Compressed]),
];

pub(crate) fn run(args: &SizeArgs) -> anyhow::Result<Report> {
    let &SizeArgs { keys, fpr, .. } = args;
    let floor = sizing::floor(keys, fpr)?;
    if let Some(path) = &args.svg {
        write(path, chart::svg(&drawn(keys, fpr)).as_bytes(), args.overwrite.force)?;
    }
    // Wide hashes do not change the size of a filter. The size of a count-min sketch does not
    // depend on a false-positive rate.
    let is_shown = |kind: &Kind| !matches!(kind, Kind::WideBloom | Kind::CountMin);
    let kinds = Kind::ALL.into_iter().filter(is_shown);
    let costs = kinds.map(|kind| (kind.name(), kind.cost(keys, fpr)));
    let exact_table = ("exact-table", sizing::exact_table(keys, fpr));
    let mut possible = Vec::new();
    let mut impossible = Vec::new();
    for (layout, cost) in costs.chain([exact_table]) {
        match cost {
            Ok(cost) => possible.push((layout, cost)),
            Err(BuildError::OutOfReach { best, .. }) => {
                impossible
                    .push((layout, format!("the lowest rate is {}, at any size", rate(best))));
            }
            Err(error) => impossible.push((layout, error.to_string())),
        }
    }
    possible.sort_by_key(|(_, cost)| cost.num_bits);
    let mut page = Page::default();
    page.fields(vec![
        ("keys", grouped(keys)),
        ("rate", format!("at most {} of other keys", rate(fpr))),
        (
            "floor",
            format!("{:.2} bits per key: no filter of a fixed set needs fewer", floor.bits_per_key),
        ),
    ]);
    page.line("");
    let header = vec!["layout", "bits per key", "size", "hash functions", "rate", "lines", "can"];
    page.table(header, possible.iter().map(|(layout, cost)| row(layout, cost)).collect());
    page.line("");
    page.line(
        "lines: mean number of cache lines that a query reads, for an absent or a present key",
    );
    if !impossible.is_empty() {
        page.line("");
        page.line("not possible");
        let names = impossible.iter().map(|(layout, why)| (*layout, why.clone()));
        page.fields(names.collect());
    }
    let mut rows: Vec<Value> =
        possible.iter().map(|(layout, cost)| cost_json(layout, cost)).collect();
    rows.extend(
        impossible
            .iter()
            .map(|(layout, why)| json!({ "layout": layout, "possible": false, "why": why })),
    );
    let json = json!({
        "keys": keys,
        "fpr": fpr,
        "floor": floor.bits_per_key,
        "layouts": rows,
    });
    Ok(Report::new(page, json, Exit::Yes))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn row(layout: &str, cost: &Cost) -> Vec<String> {
    let can = [(cost.inserts, "insert"), (cost.removes, "remove"), (cost.merges, "merge")];
    let can: Vec<_> = can.into_iter().filter(|(can, _)| *can).map(|(_, what)| what).collect();
    vec![
        layout.into(),
        format!("{}{:.2}", if cost.is_upper_bound { "≤ " } else { "" }, cost.bits_per_key),
        bytes(cost.num_bits as f64 / 8.0),
        cost.hash_funcs.map_or_else(String::new, |number| number.to_string()),
        rate(cost.fpr),
        lines(cost),
        if can.is_empty() { "only query".into() } else { can.join(", ") },
    ]
}

/// Formats the number of cache lines that a probe reads for an absent key. If the number differs
/// for a present key, both numbers are shown.
fn lines(cost: &Cost) -> String {
    let (absent, present) =
        (format!("{:.1}", cost.lines_absent), format!("{:.1}", cost.lines_present));
    if absent == present { absent } else { format!("{absent} or {present}") }
}

fn cost_json(layout: &str, cost: &Cost) -> Value {
    json!({
        "layout": layout,
        "possible": true,
        "bits_per_key": cost.bits_per_key,
        "bytes": cost.num_bits.div_ceil(8),
        "upper_bound": cost.is_upper_bound,
        "hash_funcs": cost.hash_funcs,
        "rate": cost.fpr,
        "lines_absent": cost.lines_absent,
        "lines_present": cost.lines_present,
        "insert": cost.inserts,
        "remove": cost.removes,
        "merge": cost.merges,
    })
}

fn drawn(keys: u64, asked: f64) -> Chart {
    let rates = |points: i32| {
        let rate = move |step| 10_f64.powf(-1.0 - f64::from(step) / f64::from(points));
        (0..=chart::DECADES * points).map(rate)
    };
    let line = |(colour, (name, kinds)): (usize, (&str, &[Kind]))| {
        let bits = |rate: f64| {
            if kinds.is_empty() {
                return Some(sizing::floor(keys, rate).ok()?.bits_per_key);
            }
            let bits = |kind: &Kind| Some(kind.cost(keys, rate).ok()?.bits_per_key);
            kinds.iter().filter_map(bits).min_by(f64::total_cmp)
        };
        let cost = |rate: f64| Some((rate, bits(rate)?));
        let is_stairs = kinds.len() > 1 || kinds == [Kind::Ribbon];
        let points =
            rates(if is_stairs { STAIR_POINTS } else { POINTS }).filter_map(cost).collect();
        let stroke = match kinds {
            [] => Stroke::Dots,
            // Partitioned filters have the same size as classic filters. Their line is dashed, so
            // that the line of the classic filters stays visible below it.
            [Kind::Partitioned] => Stroke::Dashes,
            _ => Stroke::Line,
        };
        Line { name: name.to_owned(), colour, stroke, points }
    };
    let mut lines: Vec<_> = LINES.into_iter().enumerate().map(line).collect();
    // The legend lists the lines in the order of their right ends.
    let last = |line: &Line| line.points.last().map_or(0.0, |&(_, bits)| bits);
    lines.sort_by(|a, b| last(b).total_cmp(&last(a)));
    Chart {
        title: "Size of filters against their false-positive rate".into(),
        subtitle: format!(
            "{} keys; the smallest filter whose rate is at most that on the axis",
            with_separators(keys)
        ),
        asked,
        lines,
    }
}

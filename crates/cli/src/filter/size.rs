//! The command `filter size`, and its chart: bits per key against the false-positive rate, for each layout.

use chainsieve_filter::Kind;
use chainsieve_filter::sizing::{self, BuildError, Cost};
use chainsieve_report::{
    Exit, Page, Report, bytes, grouped, rate, rate_with_separators, with_separators, write,
};
use serde_json::{Value, json};

use crate::args::filter::SizeArgs;
use crate::svg::{self, Drawing};

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
        write(path, svg(&drawn(keys, fpr)).as_bytes(), args.overwrite.force)?;
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
        (0..=DECADES * points).map(rate)
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

/// The contents of a chart.
#[derive(Debug)]
struct Chart {
    title: String,
    subtitle: String,
    /// The requested rate.
    asked: f64,
    /// The lines, in the order of the legend.
    lines: Vec<Line>,
}

/// Bits per key of a layout.
#[derive(Debug)]
struct Line {
    name: String,
    /// Index into `COLOURS`; a layout has the same colour in every chart.
    colour: usize,
    stroke: Stroke,
    /// Pairs of a rate and bits per key, in descending order of rates.
    points: Vec<(f64, f64)>,
}

/// The stroke of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stroke {
    Line,
    Dashes,
    Dots,
}

/// Number of decades of rates on the horizontal axis, from 10⁻¹ on.
const DECADES: i32 = 5;
const SUPERSCRIPTS: [&str; 6] = ["¹", "²", "³", "⁴", "⁵", "⁶"];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 700.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 484.0;
/// Bits per key at the top of the chart; lines are clipped there.
const MOST_BITS: f64 = 48.0;
const GRID_BITS: usize = 8;
/// Distance between the lines of the legend, in pixels.
const LEGEND: f64 = 25.0;

/// Colours of the lines, each for light and for dark pages.
const COLOURS: [(&str, &str); 12] = [
    ("#59636e", "#9198a1"),
    ("#0969da", "#58a6ff"),
    ("#1a7f37", "#56d364"),
    ("#7a9a01", "#b8d84a"),
    ("#8250df", "#bc8cff"),
    ("#bf3989", "#f778ba"),
    ("#9a6700", "#d4a72c"),
    ("#cf222e", "#ff7b72"),
    ("#bf5700", "#f0883e"),
    ("#0c7d8c", "#39c5cf"),
    ("#24425f", "#a5c8f0"),
    ("#6e4b2a", "#c9a27e"),
];

/// Draws a chart.
fn svg(chart: &Chart) -> String {
    let colours = |colour: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        let class = |(index, pair)| format!("  .c{index} {{ stroke: {} }}\n", colour(pair));
        COLOURS.iter().enumerate().map(class).collect()
    };
    let light = colours(|(light, _)| light)
        + "  .dashes { stroke-dasharray: 9 9 } .dots { stroke-dasharray: 2 5 } .asked { stroke: #8c959f; stroke-dasharray: 6 4 }\n";
    let about = (chart.title.as_str(), chart.subtitle.as_str());
    let dark = colours(|(_, dark)| dark);
    let mut out = Drawing::new((WIDTH, HEIGHT), about, (&light, &dark));
    out.text("title", (LEFT, 42.0), "start", &chart.title);
    out.text("text", (LEFT, 64.0), "start", &chart.subtitle);
    axes(&mut out);
    asked(&mut out, chart.asked);
    out.raw(format_args!(
        "<clipPath id=\"panel\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/></clipPath>\n\
         <g clip-path=\"url(#panel)\">\n",
        RIGHT - LEFT,
        BOTTOM - TOP
    ));
    for line in &chart.lines {
        out.polyline(&class(line), line.points.iter().map(|&(rate, bits)| (x(rate), y(bits))));
    }
    out.raw(format_args!("</g>\n"));
    let mut at = TOP + 10.0;
    for line in &chart.lines {
        out.polyline(
            &class(line),
            [(RIGHT + 24.0, at - 4.0), (RIGHT + 56.0, at - 4.0)].into_iter(),
        );
        out.text("text", (RIGHT + 66.0, at), "start", &line.name);
        at += LEGEND;
    }
    out.finish()
}

fn class(line: &Line) -> String {
    let stroke = match line.stroke {
        Stroke::Line => "",
        Stroke::Dashes => " dashes",
        Stroke::Dots => " dots",
    };
    format!("c{}{stroke}", line.colour)
}

fn axes(out: &mut Drawing) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a constant")]
    let most = MOST_BITS as usize;
    for bits in (0..=most).step_by(GRID_BITS) {
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let y = y(bits as f64);
        out.line(if bits == 0 { "axis" } else { "grid" }, (LEFT, y), (RIGHT, y));
        out.text("text", (LEFT - 10.0, y + 4.0), "end", &bits.to_string());
    }
    for (decade, superscript) in (1..).zip(SUPERSCRIPTS) {
        let x = x(10_f64.powi(-decade));
        out.line("grid", (x, TOP), (x, BOTTOM));
        out.line("axis", (x, BOTTOM), (x, BOTTOM + 5.0));
        out.text("text", (x, BOTTOM + 21.0), "middle", &format!("10⁻{superscript}"));
    }
    let middle = TOP.midpoint(BOTTOM);
    out.raw(format_args!(
        "<text class=\"text\" text-anchor=\"middle\" transform=\"translate(34 {middle}) rotate(-90)\">\
         bits per key</text>\n"
    ));
    let what = "false-positive rate: the share of absent keys that the filter reports as present";
    out.text("text", (LEFT.midpoint(RIGHT), HEIGHT - 26.0), "middle", what);
}

/// Draws the requested rate, if it is within the chart.
fn asked(out: &mut Drawing, asked: f64) {
    if !(10_f64.powi(-DECADES - 1)..=0.1).contains(&asked) {
        return;
    }
    let (x, words) = (x(asked), rate_with_separators(asked));
    out.line("asked", (x, TOP), (x, BOTTOM));
    // The label is on the right of the line, or on its left if the right has no room.
    if x + 8.0 + svg::width(&words) < RIGHT {
        out.text("text", (x + 6.0, BOTTOM - 8.0), "start", &words);
    } else {
        out.text("text", (x - 6.0, BOTTOM - 8.0), "end", &words);
    }
}

fn x(rate: f64) -> f64 {
    LEFT + (-rate.log10() - 1.0) / f64::from(DECADES) * (RIGHT - LEFT)
}

fn y(bits: f64) -> f64 {
    BOTTOM - bits / MOST_BITS * (BOTTOM - TOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_a_legend_for_each_layout() {
        let line = |colour: usize| Line {
            name: format!("layout <{colour}>"),
            colour,
            stroke: [Stroke::Line, Stroke::Dots, Stroke::Dashes][colour % 3],
            points: vec![
                (0.1, 4.0),
                (1e-6, 20.0 + 3.0 * f64::from(u8::try_from(colour).expect("few"))),
            ],
        };
        for asked in [0.1, 1e-3, 1e-6, 0.5, 1e-12] {
            let title = "a & b".to_owned();
            let lines = (0..COLOURS.len()).map(line).collect();
            let svg = svg(&Chart { title, subtitle: String::new(), asked, lines });
            assert_eq!(svg.matches("<path ").count(), 2 * COLOURS.len());
            assert_eq!(svg.contains("class=\"asked\""), (1e-6..=0.1).contains(&asked));
            assert!(svg.contains("layout &lt;11&gt;</text>") && svg.contains("10⁻⁶"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
            for (attribute, limit) in [(" x=\"", WIDTH), (" y=\"", HEIGHT)] {
                for value in svg.split(attribute).skip(1) {
                    let value: f64 = value.split('"').next().unwrap().parse().unwrap();
                    assert!((0.0..=limit).contains(&value), "{value}");
                }
            }
        }
    }
}

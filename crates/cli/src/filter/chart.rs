//! The chart of `filter size`: bits per key against the false-positive rate, for each layout.

use chainsieve_report::rate_with_separators;

use crate::svg::{self, Drawing};

/// The contents of a chart.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// The requested rate.
    pub(super) asked: f64,
    /// The lines, in the order of the legend.
    pub(super) lines: Vec<Line>,
}

/// Bits per key of a layout.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// Index into `COLOURS`; a layout has the same colour in every chart.
    pub(super) colour: usize,
    pub(super) stroke: Stroke,
    /// Pairs of a rate and bits per key, in descending order of rates.
    pub(super) points: Vec<(f64, f64)>,
}

/// The stroke of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    Line,
    Dashes,
    Dots,
}

/// Number of decades of rates on the horizontal axis, from 10⁻¹ on.
pub(super) const DECADES: i32 = 5;
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
pub(super) const COLOURS: [(&str, &str); 12] = [
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
pub(super) fn svg(chart: &Chart) -> String {
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

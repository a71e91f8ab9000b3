//! The chart of `eth stats`: fill and false-positive rates of filters over the blocks of a chain.

use chainsieve_report::calendar::{Utc, midnight};
use chainsieve_report::{float, with_separators};

use crate::svg::{self, Drawing};

/// The contents of a chart.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) subtitle: String,
    /// `true` if the horizontal axis shows Unix times in seconds, `false` if it shows block
    /// numbers.
    pub(crate) by_time: bool,
    /// The points in ascending order; at least one.
    pub(crate) points: Vec<Point>,
}

/// A group of blocks that is drawn as one point. Fills and rates are from 0 to 1.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
    /// The shares of blocks whose filter reports one, two and three absent values as present.
    pub(crate) rates: [f64; 3],
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 664.0;
const LEFT: f64 = 84.0;
/// Right end of the axes. The margin to the right of the axes has room for half of the number that
/// is centred under the last tick.
const RIGHT: f64 = WIDTH - 52.0;
const FILL_PANEL: Panel = Panel { top: 142.0, bottom: 322.0 };
const RATE_PANEL: Panel = Panel { top: 412.0, bottom: 592.0 };
/// The lowest rate that is drawn.
const LOWEST: f64 = 1e-6;
/// The minimum number of decades on the axis of rates.
const FEWEST_DECADES: i32 = 2;
/// Maximum number of points that are drawn as dots; more dots would hide the line.
const DOTS: usize = 48;

const LIGHT: &str = "\
  .fill { stroke: #0969da } .fill-area { fill: #0969da; fill-opacity: 0.18 } .fill-dot { fill: #0969da }
  .one { stroke: #bf5700 } .two { stroke: #a11f7f } .three { stroke: #1a7f37 }
  .one-dot { fill: #bf5700 } .two-dot { fill: #a11f7f } .three-dot { fill: #1a7f37 }
";
const DARK: &str = "\
    .fill { stroke: #58a6ff } .fill-area { fill: #58a6ff; fill-opacity: 0.22 } .fill-dot { fill: #58a6ff }
    .one { stroke: #f0883e } .two { stroke: #f778ba } .three { stroke: #56d364 }
    .one-dot { fill: #f0883e } .two-dot { fill: #f778ba } .three-dot { fill: #56d364 }
";

/// Vertical position of a pair of axes, in pixels.
struct Panel {
    top: f64,
    bottom: f64,
}

impl Panel {
    /// Returns the vertical position of a share from 0 (bottom) to 1 (top).
    fn y(&self, share: f64) -> f64 {
        self.bottom - share.clamp(0.0, 1.0) * (self.bottom - self.top)
    }
}

/// Draws a chart.
pub(crate) fn svg(chart: &Chart) -> String {
    let scale = Scale::of(&chart.points);
    let about = (chart.title.as_str(), chart.subtitle.as_str());
    let mut out = Drawing::new((WIDTH, HEIGHT), about, (LIGHT, DARK));
    out.text("title", (LEFT, 42.0), "start", &chart.title);
    out.text("text", (LEFT, 64.0), "start", &chart.subtitle);
    fills(&mut out, &chart.points, &scale);
    rates(&mut out, &chart.points, &scale);
    let ticks = if chart.by_time { scale.time_ticks() } else { scale.block_ticks() };
    for panel in [FILL_PANEL, RATE_PANEL] {
        out.line("axis", (LEFT, panel.bottom), (RIGHT, panel.bottom));
        for (x, label) in &ticks {
            out.line("axis", (*x, panel.bottom), (*x, panel.bottom + 5.0));
            out.text("text", (*x, panel.bottom + 20.0), "middle", label);
        }
    }
    let what = if chart.by_time { "time of the block (UTC)" } else { "block number" };
    out.text("text", (LEFT.midpoint(RIGHT), HEIGHT - 22.0), "middle", what);
    out.finish()
}

fn fills(out: &mut Drawing, points: &[Point], scale: &Scale) {
    let panel = FILL_PANEL;
    out.text("head", (LEFT, 100.0), "start", "Share of a filter's 2,048 bits that are set");
    let entries = [
        ("fill-dot", "fill", "median block"),
        ("fill-area", "", "8 of 10 blocks (10th to 90th percentile)"),
    ];
    let spread = points.iter().any(|point| point.low < point.high);
    legend(out, 122.0, if spread { &entries } else { &entries[..1] });
    for percent in [0, 25, 50, 75, 100] {
        let y = panel.y(f64::from(percent) / 100.0);
        out.line("grid", (LEFT, y), (RIGHT, y));
        out.text("text", (LEFT - 10.0, y + 4.0), "end", &format!("{percent} %"));
    }
    let upper = points.iter().map(|point| (scale.x(point.x), panel.y(point.high)));
    let lower = points.iter().rev().map(|point| (scale.x(point.x), panel.y(point.low)));
    let area = svg::path(upper.chain(lower));
    out.raw(format_args!("<path class=\"fill-area\" d=\"{area}Z\"/>\n"));
    series(out, "fill", points.iter().map(|point| (scale.x(point.x), panel.y(point.median))));
}

fn rates(out: &mut Drawing, points: &[Point], scale: &Scale) {
    let panel = RATE_PANEL;
    let heading =
        "False-positive rate: share of blocks whose filter matches absent values (logarithmic)";
    out.text("head", (LEFT, 370.0), "start", heading);
    let entries = [
        ("", "one", "one address or topic"),
        ("", "two", "two at once"),
        ("", "three", "three at once"),
    ];
    legend(out, 392.0, &entries);
    let decades = decades(points);
    for decade in 0..=decades {
        let y = panel.y(1.0 - f64::from(decade) / f64::from(decades));
        out.line("grid", (LEFT, y), (RIGHT, y));
        out.text("text", (LEFT - 10.0, y + 4.0), "end", &percent_of_decade(decade));
    }
    let share = |rate: f64| 1.0 + rate.max(LOWEST / 10.0).log10() / f64::from(decades);
    for (index, class) in ["one", "two", "three"].into_iter().enumerate() {
        let at = |point: &Point| (scale.x(point.x), panel.y(share(point.rates[index])));
        series(out, class, points.iter().map(at));
    }
}

/// Returns the number of decades below 100 % to draw, down to the lowest rate.
fn decades(points: &[Point]) -> i32 {
    let rates = points.iter().flat_map(|point| point.rates).filter(|rate| *rate > 0.0);
    let lowest = rates.fold(1.0, f64::min).max(LOWEST);
    let most = (-LOWEST.log10()).round();
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 6")]
    let decades = (-lowest.log10()).ceil().min(most) as i32;
    decades.max(FEWEST_DECADES)
}

/// Formats the label of a decade: `100 %`, `10 %`, `0.01 %`.
fn percent_of_decade(decade: i32) -> String {
    let digits = usize::try_from(decade - 2).unwrap_or(0);
    format!("{:.digits$} %", 10_f64.powi(2 - decade))
}

/// Draws a line through points, with dots if there are few points.
fn series(out: &mut Drawing, class: &str, points: impl Iterator<Item = (f64, f64)> + Clone) {
    out.polyline(class, points.clone());
    if points.clone().count() <= DOTS {
        for (x, y) in points {
            let dot = format_args!(
                "<circle class=\"{class}-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n"
            );
            out.raw(dot);
        }
    }
}

/// Draws the entries of a legend side by side, each with a line or an area.
fn legend(out: &mut Drawing, y: f64, entries: &[(&str, &str, &str)]) {
    let mut x = LEFT;
    for (area, stroke, words) in entries {
        if *area == "fill-area" {
            let rect = format_args!(
                "<rect class=\"{area}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"24\" height=\"10\"/>\n",
                y - 9.0
            );
            out.raw(rect);
        } else {
            out.polyline(stroke, [(x + 1.0, y - 4.0), (x + 23.0, y - 4.0)].into_iter());
        }
        out.text("text", (x + 32.0, y), "start", words);
        x += 32.0 + svg::width(words) + 24.0;
    }
}

/// The horizontal axis.
struct Scale {
    first: f64,
    last: f64,
}

impl Scale {
    fn of(points: &[Point]) -> Self {
        let first = points.first().map_or(0.0, |point| point.x);
        let last = points.last().map_or(1.0, |point| point.x);
        // A single point is drawn in the middle.
        if last - first < 1.0 {
            Self { first: first - 1.0, last: first + 1.0 }
        } else {
            Self { first, last }
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.first) / (self.last - self.first) * (RIGHT - LEFT)
    }

    /// Returns the positions and labels of round block numbers.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a block's number")]
    fn block_ticks(&self) -> Vec<(f64, String)> {
        let rough = (self.last - self.first) / 7.0;
        let decade = 10_f64.powf(rough.log10().floor()).max(1.0);
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(decade * 10.0);
        let mut ticks = Vec::new();
        let mut at = (self.first / step).ceil() * step;
        while at <= self.last && ticks.len() < 20 {
            if at >= 0.0 {
                ticks.push((self.x(at), block_label(at as u64, step as u64)));
            }
            at += step;
        }
        ticks
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
    fn time_ticks(&self) -> Vec<(f64, String)> {
        let year_of = |time: f64| Utc::new(time.max(0.0) as u64).year;
        let (first, last) = (year_of(self.first), year_of(self.last));
        let years = last - first + 1;
        let mut ticks = Vec::new();
        if years > 3 {
            let step = years.div_ceil(12);
            // Timestamps are untrusted and may span very many years, so only the years to be drawn
            // are visited.
            let round = first.div_ceil(step).saturating_mul(step);
            let within = |year: &u64| *year <= last;
            let years = (0..=12).map(|tick| round.saturating_add(tick * step)).take_while(within);
            for year in years {
                ticks.push((self.x(start_of_month(year, 0)), year.to_string()));
            }
        } else {
            let months = first * 12..(last + 1) * 12;
            let within = |month: &u64| {
                (self.first..=self.last).contains(&start_of_month(month / 12, month % 12))
            };
            let months: Vec<_> = months.filter(within).collect();
            let step = months.len().div_ceil(10).max(1);
            for month in months.into_iter().step_by(step) {
                let (year, month) = (month / 12, month % 12);
                ticks.push((
                    self.x(start_of_month(year, month)),
                    format!("{year}-{:02}", month + 1),
                ));
            }
        }
        ticks.retain(|(x, _)| (LEFT..=RIGHT).contains(x));
        if ticks.is_empty() {
            // All points are within a month: both ends are labelled.
            for (time, x) in [(self.first, LEFT + 20.0), (self.last, RIGHT - 20.0)] {
                ticks.push((x, Utc::new(time.max(0.0) as u64).date()));
            }
        }
        ticks
    }
}

/// Returns the Unix time of the start of a month, which is counted from 0.
fn start_of_month(year: u64, month: u64) -> f64 {
    float(midnight(year, month + 1, 1))
}

/// Formats a block number as `17,686,111`, or as `17.5 M` if the steps are multiples of 100,000.
fn block_label(number: u64, step: u64) -> String {
    const MILLION: u64 = 1_000_000;
    if number == 0 || !step.is_multiple_of(100_000) {
        return with_separators(number);
    }
    match number % MILLION / 100_000 {
        0 => format!("{} M", with_separators(number / MILLION)),
        tenths => format!("{}.{tenths} M", with_separators(number / MILLION)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_axes() {
        assert_eq!(percent_of_decade(0), "100 %");
        assert_eq!(percent_of_decade(2), "1 %");
        assert_eq!(percent_of_decade(5), "0.001 %");
        assert_eq!(block_label(17_500_000, 500_000), "17.5 M");
        assert_eq!(block_label(17_000_000, 500_000), "17 M");
        assert_eq!(block_label(17_686_120, 20), "17,686,120");
        assert_eq!(block_label(0, 1_000_000), "0");
    }

    #[test]
    fn months_start_where_the_calendar_says() {
        for (year, month, expected) in [
            (1970, 0, 0.0),
            (2000, 2, 951_868_800.0),
            (2024, 0, 1_704_067_200.0),
            (2100, 2, 4_107_542_400.0),
        ] {
            assert!((start_of_month(year, month) - expected).abs() < 0.5, "{year}");
        }
    }

    #[test]
    fn every_coordinate_is_on_the_page() {
        let point = |x: f64, fill: f64| Point {
            x,
            low: fill / 2.0,
            median: fill,
            high: fill,
            rates: [fill.powi(3), fill.powi(6), fill.powi(9)],
        };
        for points in [
            vec![point(7.0, 0.0)],
            vec![point(0.0, 1.0), point(1e18, 0.5)],
            (0..300).map(|x| point(f64::from(x) * 1e5, f64::from(x) / 300.0)).collect(),
        ] {
            for by_time in [false, true] {
                let title = "<a & \"b\">\u{0}".to_owned();
                let points = points.iter().map(|p| point(p.x, p.median)).collect();
                let svg = svg(&Chart { title, subtitle: String::new(), by_time, points });
                assert!(svg.contains("&lt;a &amp; &quot;b&quot;&gt;</title>"));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                for (attribute, limit) in [(" x=\"", WIDTH), (" y=\"", HEIGHT), (" cx=\"", WIDTH)] {
                    for value in svg.split(attribute).skip(1) {
                        let value: f64 = value.split('"').next().unwrap().parse().unwrap();
                        assert!((0.0..=limit).contains(&value), "{value}");
                    }
                }
            }
        }
    }
}

//! SVG drawing primitives of the charts.
//!
//! The SVG is written by hand: no plotting package supports both light and dark pages, which SVG
//! does with a media query.

use std::fmt::Write as _;

/// Upper estimate of a letter's width, in pixels, at the font size of legends and axes.
pub(crate) const LETTER: f64 = 7.0;

const STYLE: &str = "
  svg { background: #ffffff; font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
  .page { fill: #ffffff } .title { fill: #1f2328; font-size: 20px; font-weight: 600 }
  .head { fill: #1f2328; font-size: 14px; font-weight: 600 } .text { fill: #59636e; font-size: 12px }
  .grid { stroke: #d8dee4; stroke-width: 1 } .axis { stroke: #8c959f; stroke-width: 1 }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
";

const DARK_STYLE: &str = "
    svg { background: #0d1117 } .page { fill: #0d1117 } .title, .head { fill: #e6edf3 } .text { fill: #9198a1 }
    .grid { stroke: #2a313c } .axis { stroke: #656c76 }
";

/// An SVG document under construction.
#[derive(Debug)]
pub(crate) struct Drawing(String);

impl Drawing {
    /// Starts a document of this size in pixels, with a title, a description, and the chart's own
    /// CSS classes for light and for dark pages.
    pub(crate) fn new(
        (width, height): (f64, f64),
        (title, about): (&str, &str),
        (light, dark): (&str, &str),
    ) -> Self {
        let (title, about) = (escaped(title), escaped(about));
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title about\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"about\">{about}</desc>\n\
             <style>{STYLE}{light}  @media (prefers-color-scheme: dark) {{{DARK_STYLE}{dark}  }}\n\
             </style>\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
        ))
    }

    /// Returns the complete document.
    pub(crate) fn finish(mut self) -> String {
        self.0 += "</svg>\n";
        self.0
    }

    /// Appends elements without escaping.
    pub(crate) fn raw(&mut self, what: std::fmt::Arguments<'_>) {
        self.0.write_fmt(what).expect("writing to a string never fails");
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.raw(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, words: &str) {
        let words = escaped(words);
        self.raw(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n"
        ));
    }

    /// Draws a line through points.
    pub(crate) fn polyline(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let path = path(points);
        self.raw(format_args!("<path class=\"line {class}\" d=\"{path}\"/>\n"));
    }
}

/// Returns the SVG path commands of a line through points.
pub(crate) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        write!(path, "{command}{x:.1},{y:.1}").expect("writing to a string never fails");
    }
    path
}

/// Returns an upper estimate of the width of a text, in pixels.
pub(crate) fn width(text: &str) -> f64 {
    text.chars().map(|_| LETTER).sum()
}

fn escaped(text: &str) -> String {
    // XML does not allow control characters.
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

//! The report as one page of HTML, without scripts and without other files.

use std::fmt::Write as _;

use super::{Report, area_of, cell, title};
use crate::run::{AreaRun, SubjectRun};
use crate::shorten::shortened;

/// Number of findings of an area that the page shows.
const SHOWN: usize = 100;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#222}
table{border-collapse:collapse}
th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:left}
td.good{background:#e5f5e7}
td.bad{background:#fde8e6}
td.none{color:#777}
details{border:1px solid #ccc;border-radius:4px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:.5rem 0}
dt{color:#555}
dd{margin:0;min-width:0}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.4 ui-monospace,monospace}
.word{font-weight:600}
@media(prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd}td.good{background:#1d3a22}
td.bad{background:#4a211e}th,td,details{border-color:#555}dt{color:#aaa}a{color:#8ab4f8}}";

impl Report {
    /// Returns the report as a page of HTML: a table of areas and subjects, whose cells link to
    /// their findings, the smallest input first.
    pub fn to_html(&self) -> String {
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>Conformance report</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
             <h1>Conformance report</h1>\n<p>{}. A cell has the wrong answers and errors of the \
             cases that were run.</p>\n",
            escaped(&self.subtitle()),
        );
        self.table(&mut out);
        for (column, run) in self.runs.iter().enumerate() {
            self.subject(&mut out, column, run);
        }
        out += "</body>\n</html>\n";
        out
    }

    fn table(&self, out: &mut String) {
        *out += "<table>\n<tr><th>Area</th>";
        for run in &self.runs {
            let _ = write!(out, "<th>{}</th>", escaped(&title(run)));
        }
        *out += "</tr>\n";
        for (name, area_title) in self.areas() {
            let _ = write!(out, "<tr><th title=\"{}\">{}</th>", escaped(area_title), escaped(name));
            for (column, run) in self.runs.iter().enumerate() {
                let area = area_of(run, name);
                let text = escaped(&cell(area));
                let _ = match area {
                    None => write!(out, "<td class=\"none\">{text}</td>"),
                    Some(area) if has_section(area) => {
                        let link = anchor(column, name);
                        write!(out, "<td class=\"bad\"><a href=\"#{link}\">{text}</a></td>")
                    }
                    Some(area) if area.counts().run == 0 => {
                        write!(out, "<td class=\"none\">{text}</td>")
                    }
                    Some(_) => write!(out, "<td class=\"good\">{text}</td>"),
                };
            }
            *out += "</tr>\n";
        }
        *out += "</table>\n";
    }

    fn subject(&self, out: &mut String, column: usize, run: &SubjectRun) {
        let _ = writeln!(out, "<h2>{}</h2>", escaped(&title(run)));
        let counts = run.counts();
        let _ = writeln!(
            out,
            "<p>{} run: {} agree, {} differ, {} errors. {} skipped, {} not run.</p>",
            counts.run, counts.agree, counts.differ, counts.error, counts.skipped, counts.not_run,
        );
        for fault in &run.faults {
            let _ = writeln!(out, "<p>Fault that belongs to no case: {}</p>", escaped(fault));
        }
        for area in run.areas.iter().filter(|area| has_section(area)) {
            self.area(out, column, area);
        }
    }

    fn area(&self, out: &mut String, column: usize, area: &AreaRun) {
        let _ = writeln!(
            out,
            "<h3 id=\"{}\">{}: {}</h3>",
            anchor(column, &area.name),
            escaped(&area.name),
            escaped(&area.title),
        );
        if let Some(gave_up) = &area.gave_up {
            let _ = writeln!(out, "<p>Not all cases were asked: {}.</p>", escaped(gave_up));
        }
        for (number, (case, detail)) in area.findings().take(SHOWN).enumerate() {
            let _ = writeln!(
                out,
                "<details{}><summary><code>{}</code> <span class=\"word\">{}</span>: {}</summary>\
                 <dl>",
                // The smallest finding is what a reader wants to see first.
                if number == 0 { " open" } else { "" },
                escaped(&case.id),
                case.outcome.word(),
                escaped(&detail.comment),
            );
            let got = case.outcome.got().unwrap_or_default();
            for (name, value) in
                [("Input", &detail.input), ("Expected", &detail.expected), ("Got", &got)]
            {
                let text = format!("{:#}", shortened(value));
                let _ = writeln!(out, "<dt>{name}</dt><dd><pre>{}</pre></dd>", escaped(&text));
            }
            let source = format!("{} ({})", detail.source, detail.level.name());
            let _ = writeln!(out, "<dt>Source</dt><dd>{}</dd>", escaped(&source));
            for flag in &detail.flags {
                let meaning = self.flags.get(flag).map_or("", String::as_str);
                let text = format!("{flag}: {meaning}");
                let _ = writeln!(out, "<dt>Flag</dt><dd>{}</dd>", escaped(&text));
            }
            *out += "</dl></details>\n";
        }
        let number = area.findings().count();
        if number > SHOWN {
            let _ = writeln!(out, "<p>And {} more.</p>", number - SHOWN);
        }
    }
}

/// Returns `true` if the page has a section for the area, which its cell links to.
fn has_section(area: &AreaRun) -> bool {
    area.gave_up.is_some() || area.findings().next().is_some()
}

/// Returns the anchor of a section. Names of areas come from the pack and may contain anything.
fn anchor(column: usize, area: &str) -> String {
    let area: String =
        area.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("s{column}-{area}")
}

/// Escapes text for HTML, in elements and in attributes in double quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

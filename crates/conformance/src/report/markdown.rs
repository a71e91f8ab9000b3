//! The report as Markdown.

use std::fmt::Write as _;

use super::{Report, area_of, cell, title};
use crate::finding_kind::FindingKind;
use crate::run::{AreaRun, SubjectRun};
use crate::shorten::shortened;

/// Number of findings of an area that the page lists.
const LISTED: usize = 5;

impl Report {
    /// Returns the report as Markdown: a table of areas and subjects, the counts of each subject,
    /// and the smallest findings.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("# Conformance report\n\n{}. ", self.subtitle());
        out += "A cell has the wrong answers and errors of the cases that were run.\n\n";
        self.overview(&mut out);
        for run in &self.runs {
            subject(&mut out, run);
        }
        out
    }

    fn overview(&self, out: &mut String) {
        *out += "| area |";
        for run in &self.runs {
            let _ = write!(out, " {} |", escaped(&title(run)));
        }
        let _ = writeln!(out, "\n|---|{}", "---|".repeat(self.runs.len()));
        for (name, _) in self.areas() {
            let _ = write!(out, "| {} |", escaped(name));
            for run in &self.runs {
                let _ = write!(out, " {} |", cell(area_of(run, name)));
            }
            out.push('\n');
        }
    }
}

fn subject(out: &mut String, run: &SubjectRun) {
    let _ = writeln!(out, "\n## {}\n", escaped(&title(run)));
    *out += "| area | run | agree | differ | skipped | error | not run |\n|---|";
    *out += &"---:|".repeat(6);
    out.push('\n');
    for area in &run.areas {
        let counts = area.counts();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            escaped(&area.name),
            counts.run,
            counts.agree,
            counts.differ,
            counts.skipped,
            counts.error,
            counts.not_run,
        );
    }
    for fault in &run.faults {
        let _ = writeln!(out, "\nFault that belongs to no case: {}", escaped(fault));
    }
    for area in &run.areas {
        findings(out, area);
    }
}

fn findings(out: &mut String, area: &AreaRun) {
    let number = area.findings().count();
    if number == 0 && area.gave_up.is_none() {
        return;
    }
    let _ = writeln!(out, "\n### {}\n", escaped(&area.name));
    if let Some(gave_up) = &area.gave_up {
        let _ = writeln!(out, "Not all cases were asked: {}.\n", escaped(gave_up));
    }
    kinds(out, &area.kinds());
    for (case, detail) in area.findings().take(LISTED) {
        let got = case.outcome.got().unwrap_or_default();
        let word = case.outcome.word();
        let _ = writeln!(out, "- {} {word}: {}", code(&case.id), escaped(&detail.comment));
        for (name, value) in
            [("input", &detail.input), ("expected", &detail.expected), ("got", &got)]
        {
            let _ = writeln!(out, "  - {name} {}", code(&shortened(value).to_string()));
        }
    }
    if number > LISTED {
        let _ = writeln!(out, "- and {} more", number - LISTED);
    }
}

/// Lists the kinds of findings, if there are several.
fn kinds(out: &mut String, kinds: &[FindingKind<'_>]) {
    if kinds.len() < 2 {
        return;
    }
    *out += "| findings | outcome | text | smallest input |\n|---:|---|---|---|\n";
    for FindingKind { number, outcome, text, smallest } in kinds {
        let text = escaped(text.unwrap_or_default());
        let _ = writeln!(out, "| {number} | {outcome} | {text} | {} |", code(smallest));
    }
    out.push('\n');
}

/// Escapes text that stands in a paragraph or in a cell of a table.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => out.extend(['\\', c]),
            '<' => out += "&lt;",
            '&' => out += "&amp;",
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns text as a code span: its fence is longer than any run of backticks in the text.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Spaces keep a backtick at the end of the text apart from the fence.
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

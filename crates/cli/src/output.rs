//! Output of a command: a table for people and JSON for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{Table, presets};
use indicatif::HumanCount;
use serde_json::Value;

use crate::exit::Exit;
use crate::progress::above_status;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Report {
    /// Output for people.
    page: Page,
    /// Output for programs.
    json: Value,
    /// Hex that is printed alone on standard output, for a pipe; the page is then written to standard
    /// error.
    payload: Option<String>,
    exit: Exit,
    is_last_line: bool,
}

impl Report {
    pub(crate) fn new(page: Page, json: Value, exit: impl Into<Exit>) -> Self {
        Self { page, json, payload: None, exit: exit.into(), is_last_line: false }
    }

    /// Prints a payload on standard output; the page is then written to standard error.
    pub(crate) fn with_payload(self, payload: impl Into<Option<String>>) -> Self {
        Self { payload: payload.into(), ..self }
    }

    /// Prints the JSON on one line, as the last line of a command that printed lines before.
    pub(crate) fn after_lines(self) -> Self {
        Self { is_last_line: true, ..self }
    }

    /// Returns the page, the JSON and the exit code, to build another report from them.
    pub(crate) fn into_parts(self) -> (Page, Value, Exit) {
        (self.page, self.json, self.exit)
    }

    pub(crate) fn print(self, json: bool) -> anyhow::Result<ExitCode> {
        match self.write_stdout(json) {
            // The reader closed the pipe, as `head` does: that is not an error.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
        if !json && self.payload.is_some() {
            let mut stderr = io::stderr().lock();
            let page = self.page.render(colours(&stderr));
            // The payload is printed already, so a page that cannot be written is not an error.
            drop(stderr.write_all(page.as_bytes()));
        }
        Ok(self.exit.into())
    }

    fn write_stdout(&self, json: bool) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        match &self.payload {
            _ if json && self.is_last_line => writeln!(stdout, "{}", self.json)?,
            _ if json => writeln!(stdout, "{:#}", self.json)?,
            Some(payload) if payload.is_empty() => {}
            Some(payload) => writeln!(stdout, "{payload}")?,
            None => stdout.write_all(self.page.render(colours(&stdout)).as_bytes())?,
        }
        stdout.flush()
    }
}

/// Prints lines on standard output while a command runs.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// `true` if the reader closed the pipe.
    closed: bool,
    /// Collects the lines instead of printing them.
    #[cfg(test)]
    pub(crate) kept: Option<String>,
    /// Printing a text that contains this fails.
    #[cfg(test)]
    pub(crate) fails_at: Option<&'static str>,
}

impl Lines {
    /// Returns `true` if the reader closed the pipe, so that the command may end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints text that ends with a line break on standard output.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        if self.closed || text.is_empty() {
            return Ok(());
        }
        #[cfg(test)]
        if self.fails_at.is_some_and(|part| text.contains(part)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        #[cfg(test)]
        if let Some(kept) = &mut self.kept {
            kept.push_str(text);
            return Ok(());
        }
        let print = || {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        };
        match above_status(print) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            printed => printed,
        }
    }
}

fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Lines, fields and tables, laid out when they are printed.
#[derive(Debug, Default)]
pub(crate) struct Page(Vec<Part>);

#[derive(Debug)]
enum Part {
    Heading(String),
    Line(String),
    Fields(Vec<(&'static str, String)>),
    Table(Vec<&'static str>, Vec<Vec<String>>),
    Warning(String),
}

impl Page {
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.0.push(Part::Heading(text.into()));
    }

    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.0.push(Part::Line(text.into()));
    }

    /// Adds fields: names on the left, aligned values on the right.
    pub(crate) fn fields(&mut self, fields: Vec<(&'static str, String)>) {
        self.0.push(Part::Fields(fields));
    }

    pub(crate) fn table(&mut self, header: Vec<&'static str>, rows: Vec<Vec<String>>) {
        self.0.push(Part::Table(header, rows));
    }

    /// Appends another page.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn warnings(&mut self, warnings: &[String]) {
        self.0.extend(warnings.iter().cloned().map(Part::Warning));
    }

    fn render(&self, colours: bool) -> String {
        let paint = |code: &str, text: &str| {
            if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
        };
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Heading(text) => out += &paint(BOLD, &printable(text)),
                Part::Line(text) => out += &printable(text),
                Part::Fields(fields) => {
                    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                    let lines: Vec<_> = fields
                        .iter()
                        .map(|(name, value)| {
                            let name = paint(BOLD, &format!("{name:width$}"));
                            format!("{name}  {}", printable(value))
                        })
                        .collect();
                    out += &lines.join("\n");
                }
                Part::Table(header, rows) => {
                    let table = printable(&aligned(header, rows)).into_owned();
                    let (first, rest) = table.split_once('\n').unwrap_or((&table, ""));
                    out.extend([&paint(BOLD, first), "\n", rest]);
                }
                Part::Warning(text) => {
                    out.extend([&paint(YELLOW, "warning:"), " ", &printable(text)]);
                }
            }
            out.push('\n');
        }
        out
    }
}

const BOLD: &str = "1";
const YELLOW: &str = "33";
const RED: &str = "31";

fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Prints `error: what: why` on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let mut stderr = io::stderr().lock();
    let name = if colours(&stderr) { format!("\x1b[{RED}merror:\x1b[0m") } else { "error:".into() };
    // If standard error is closed too, the error cannot be reported anywhere.
    drop(writeln!(stderr, "{name} {}", printable(&format!("{error:#}"))));
}

/// `true` if notes and progress are not printed (`--quiet`).
static QUIET: AtomicBool = AtomicBool::new(false);

/// Turns notes and progress off, for `--quiet`.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints `note: text` on standard error, while a command runs.
pub(crate) fn print_note(text: &str) {
    print_log(&format!("note: {text}"));
}

/// Prints a log line on standard error, while a command runs.
pub(crate) fn print_log(text: &str) {
    if is_quiet() {
        return;
    }
    // If standard error is closed, the failure cannot be reported anywhere.
    above_status(|| drop(writeln!(io::stderr().lock(), "{}", printable(text))));
}

/// Escapes control characters and marks of writing direction, except line breaks.
///
/// Untrusted files and file names may contain them. On a terminal they would move the cursor, colour
/// lines or change the order of the text.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if steers(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Formats a rate: `50.0 %`, `1 in 9873`, `0`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
pub(crate) fn rate(rate: f64) -> String {
    if rate <= 0.0 {
        "0".into()
    } else if rate >= 0.1 {
        format!("{:.1} %", rate * 100.0)
    } else if rate < 1e-18 {
        format!("{rate:.0e}")
    } else {
        format!("1 in {}", grouped((1.0 / rate).round() as u64))
    }
}

/// Formats a share of blocks, with about two significant digits: `12.5 %`, `0.032 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        ..=0.0 => "0 %".into(),
        ..0.0001 => "< 0.0001 %".into(),
        ..0.001 => format!("{percent:.5} %"),
        ..0.01 => format!("{percent:.4} %"),
        ..0.1 => format!("{percent:.3} %"),
        ..1.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// Formats an estimate with two significant digits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
pub(crate) fn estimate(estimate: f64) -> String {
    match estimate {
        ..0.05 => "0".into(),
        ..10.0 => format!("{estimate:.1}"),
        estimate => {
            let unit = 10_f64.powf(estimate.log10().floor() - 1.0).max(1.0);
            grouped(((estimate / unit).round() * unit) as u64)
        }
    }
}

/// Formats a number of bytes: `86 kB`, `1.3 GB`.
pub(crate) fn bytes(bytes: f64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes / unit < 10.0 => format!("{:.1} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.0} {name}", bytes / unit),
        None => format!("{bytes:.0} bytes"),
    }
}

/// Formats a duration: `12 µs`, `1.2 ms`, `48.1 s`.
pub(crate) fn duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        ..1e3 => format!("{micros:.0} µs"),
        ..1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// Formats a number as `36,000` on a terminal, and as `36000` in a pipe, for other programs.
pub(crate) fn grouped(number: impl TryInto<u64>) -> String {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    let number = number.try_into().unwrap_or(u64::MAX);
    if *IS_TERMINAL { HumanCount(number).to_string() } else { number.to_string() }
}

/// Formats a number with a noun: `1 byte`, `2 bytes`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats a range of blocks: `8,192, 0 to 8,191`.
pub(crate) fn span(first: u64, last: u64, blocks: u64) -> String {
    format!("{}, {} to {}", grouped(blocks), grouped(first), grouped(last))
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::{rate, share};

    #[test]
    fn numbers_for_people() {
        assert_eq!(rate(0.0001), "1 in 10000");
        assert_eq!(rate(1.0), "100.0 %");
        assert_eq!(rate(0.0), "0");
        let shares = [0.0, 1e-9, 0.000_012, 0.004_2, 0.125, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.0001 %", "0.0012 %", "0.42 %", "12.5 %", "100.0 %"]);
    }
}

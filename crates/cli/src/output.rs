//! Output of a command: a table for people and JSON for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use indicatif::HumanCount;
use serde_json::{Map, Value};

use crate::exit::Exit;
use crate::progress::above_status;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Report {
    /// Output for people.
    page: Page,
    /// Output for programs.
    json: Value,
    /// Hex that is printed alone on standard output, for a pipe; the page is then written to
    /// standard error.
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

    /// Makes the JSON the last line after other lines of JSON. The JSON is then printed on one
    /// line, of kind `summary`.
    pub(crate) fn after_lines(self) -> Self {
        Self { is_last_line: true, json: tagged("summary", self.json), ..self }
    }

    /// Returns the page, the JSON and the exit code, to build another report from them.
    pub(crate) fn into_parts(self) -> (Page, Value, Exit) {
        (self.page, self.json, self.exit)
    }

    pub(crate) fn print(self, json: bool) -> anyhow::Result<ExitCode> {
        let is_read = match self.write_stdout(json) {
            Ok(()) => true,
            // The reader of our output closed the pipe, which is not an error of the command.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
            Err(error) => return Err(error.into()),
        };
        if !json {
            self.write_stderr(is_read);
        }
        Ok(self.exit.into())
    }

    /// Writes the warnings, and also the page if standard output has a payload. If nobody reads the
    /// result, no warnings are written.
    fn write_stderr(&self, is_read: bool) {
        let mut stderr = io::stderr().lock();
        let colours = colours(&stderr);
        let mut text = String::new();
        if self.payload.is_some() {
            text += &self.page.render(colours);
        }
        if is_read || self.payload.is_some() {
            text += &self.page.render_warnings(colours);
        }
        // The result is already printed. The result stays valid if nobody reads standard error.
        drop(stderr.write_all(text.as_bytes()));
    }

    fn write_stdout(&self, json: bool) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        match &self.payload {
            _ if json && self.is_last_line => stdout.write_all(line_of(&self.json).as_bytes())?,
            _ if json => writeln!(stdout, "{}", printable_json(format!("{:#}", self.json)))?,
            Some(payload) if payload.is_empty() => {}
            Some(payload) => writeln!(stdout, "{payload}")?,
            None => stdout.write_all(self.page.render(colours(&stdout)).as_bytes())?,
        }
        stdout.flush()
    }
}

/// Returns a line of JSON with its line break. The first member of each line names the kind of the
/// line.
pub(crate) fn json_line(kind: &str, members: Value) -> String {
    line_of(&tagged(kind, members))
}

/// Returns a JSON value as a line with its line break.
pub(crate) fn line_of(json: &Value) -> String {
    printable_json(format!("{json}\n"))
}

/// Returns a JSON object with the member `kind`, followed by `members`.
fn tagged(kind: &str, members: Value) -> Value {
    let mut line = Map::new();
    line.insert("kind".into(), kind.into());
    if let Value::Object(members) = members {
        line.extend(members);
    }
    line.into()
}

/// Lines that are printed while a command runs.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// `true` if the reader closed the pipe.
    closed: bool,
    /// Collects the lines instead of printing them.
    #[cfg(test)]
    pub(crate) kept: Option<String>,
    /// Printing fails for a text that contains this string.
    #[cfg(test)]
    pub(crate) fails_at: Option<&'static str>,
}

impl Lines {
    /// Returns `true` if the reader closed the pipe. The command may then end.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints lines, each with its line break, on standard output.
    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        if self.closed || text.is_empty() {
            return Ok(());
        }
        // Whoever made a line has escaped its parts, so that this changes nothing.
        let text = &printable_lines(text);
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

/// Escapes each line, but for its line break: LF, or CR LF in CSV.
fn printable_lines(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for line in text.split_inclusive('\n') {
        let end =
            line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
        out.extend([&*printable(end), &line[end.len()..]]);
    }
    Cow::Owned(out)
}

fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Lines, fields and tables, laid out when they are printed, and the command's warnings.
#[derive(Debug, Default)]
pub(crate) struct Page {
    parts: Vec<Part>,
    /// Warnings, which are printed on standard error after the rest of the page.
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Part {
    Heading(String),
    Line(String),
    Fields(Vec<(&'static str, String)>),
    Table(Vec<&'static str>, Vec<Vec<String>>),
}

/// Each text is one line: line breaks in it are escaped.
impl Page {
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Heading(text.into()));
    }

    pub(crate) fn line(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Line(text.into()));
    }

    /// Adds fields: names on the left, aligned values on the right.
    pub(crate) fn fields(&mut self, fields: Vec<(&'static str, String)>) {
        self.parts.push(Part::Fields(fields));
    }

    pub(crate) fn table(&mut self, header: Vec<&'static str>, rows: Vec<Vec<String>>) {
        self.parts.push(Part::Table(header, rows));
    }

    /// Appends another page. If `whose` is given, each warning of that page begins with this name.
    pub(crate) fn append(&mut self, other: Self, whose: Option<&str>) {
        self.parts.extend(other.parts);
        self.warnings.extend(other.warnings.into_iter().map(|text| match whose {
            Some(whose) => format!("{whose}: {text}"),
            None => text,
        }));
    }

    pub(crate) fn warnings(&mut self, warnings: &[String]) {
        self.warnings.extend_from_slice(warnings);
    }

    /// Returns everything except the warnings as text.
    fn render(&self, colours: bool) -> String {
        let paint = |code: &str, text: &str| paint(colours, code, text);
        let mut out = String::new();
        for part in &self.parts {
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
                    let table = aligned(header, rows);
                    let (first, rest) = table.split_once('\n').unwrap_or((&table, ""));
                    out.extend([&paint(BOLD, first), "\n", rest]);
                }
            }
            out.push('\n');
        }
        out
    }

    /// Returns the warnings, each as a line `warning: what`.
    fn render_warnings(&self, colours: bool) -> String {
        let name = paint(colours, YELLOW, "warning:");
        let mut out = String::new();
        for text in &self.warnings {
            out.extend([&name, " ", &printable(text), "\n"]);
        }
        out
    }
}

fn paint(colours: bool, code: &str, text: &str) -> String {
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

const BOLD: &str = "1";
const YELLOW: &str = "33";
const RED: &str = "31";

fn aligned(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| printable(cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Prints `error: what: why` on standard error.
pub(crate) fn print_error(error: &anyhow::Error) {
    let mut stderr = io::stderr().lock();
    let name = paint(colours(&stderr), RED, "error:");
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

/// The time at which the command started; set only with `--verbose`, if notes begin with the
/// elapsed time.
static STARTED: OnceLock<Instant> = OnceLock::new();

/// Makes each note begin with the time since this call, for `--verbose`.
pub(crate) fn set_verbose() {
    STARTED.get_or_init(Instant::now);
}

/// Prints the time since the start, with `--verbose`.
pub(crate) fn print_time_taken() {
    if STARTED.get().is_some() {
        print_log("the command ends");
    }
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
    let since = STARTED.get().map(|started| format!("{:8.3} s  ", started.elapsed().as_secs_f64()));
    let since = since.unwrap_or_default();
    // If standard error is closed, the failure cannot be reported anywhere.
    above_status(|| drop(writeln!(io::stderr().lock(), "{since}{}", printable(text))));
}

/// Escapes every character that a terminal does not show as itself: control characters, line breaks,
/// marks of writing direction. The text stays in its line, whatever a file, a name or a server put
/// into it. Quotes and backslashes stay, because text that was quoted before has them.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let kept = ['"', '\'', '\\'];
    let mut out = String::with_capacity(text.len() + 8);
    for part in text.split_inclusive(kept) {
        let (part, end) = part.split_at(part.trim_end_matches(kept).len());
        out.extend(part.escape_debug());
        out.push_str(end);
    }
    Cow::Owned(out)
}

/// Returns a name or another word as it is, or escaped and quoted if the terminal would not show it
/// as it is.
pub(crate) fn plain_or_quoted(text: &str) -> Cow<'_, str> {
    if printable(text) == text { Cow::Borrowed(text) } else { format!("{text:?}").into() }
}

/// Escapes the characters in JSON that a terminal does not show as themselves, and that JSON allows
/// in strings. A program reads the same strings.
pub(crate) fn printable_json(json: String) -> String {
    let steers = |c: char| c > '~' && c.escape_debug().len() > 1;
    if !json.contains(steers) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if steers(c) {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Formats a rate: `12.5 %`, `1 in 9873`, `0`.
pub(crate) fn rate(rate: f64) -> String {
    rate_in(rate, grouped)
}

/// Formats a rate with separators in its numbers: `1 in 9,873`. Charts and the demo use this,
/// because only people read them.
pub(crate) fn rate_with_separators(rate: f64) -> String {
    rate_in(rate, with_separators)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded for people")]
fn rate_in(rate: f64, number: impl Fn(u64) -> String) -> String {
    if rate <= 0.0 {
        "0".into()
    } else if rate >= 0.1 {
        format!("{:.1} %", rate * 100.0)
    } else if rate < 1e-18 {
        format!("{rate:.0e}")
    } else {
        format!("1 in {}", number((1.0 / rate).round() as u64))
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
    if *IS_TERMINAL { with_separators(number) } else { number.to_string() }
}

/// Formats a number as `36,000` even in a pipe. Charts and the demo use this, because only people
/// read them.
pub(crate) fn with_separators(number: impl TryInto<u64>) -> String {
    HumanCount(number.try_into().unwrap_or(u64::MAX)).to_string()
}

/// Formats a number with a noun: `1 byte`, `2 bytes`.
pub(crate) fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Formats the number of blocks in a range, and the range: `8,192, 0 to 8,191`.
pub(crate) fn span(first: u64, last: u64, blocks: u64) -> String {
    format!("{}, {} to {}", grouped(blocks), grouped(first), grouped(last))
}

#[expect(clippy::cast_precision_loss, reason = "a count for people")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        Page, grouped, json_line, plain_or_quoted, printable, printable_json, printable_lines,
        rate, rate_with_separators, share, tagged, with_separators,
    };

    #[test]
    fn numbers_for_people() {
        // A test may run in a terminal or in a pipe.
        assert_eq!(rate(0.0001), format!("1 in {}", grouped(10_000_u64)));
        assert_eq!(grouped(36_000_u64).replace(',', ""), "36000");
        assert_eq!(rate_with_separators(0.0001), "1 in 10,000");
        let numbers = [0_u64, 999, 1_000, 12_345_678].map(with_separators);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345,678"]);
        assert_eq!(rate(1.0), "100.0 %");
        assert_eq!(rate(0.0), "0");
        let shares = [0.0, 1e-9, 0.000_012, 0.004_2, 0.125, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.0001 %", "0.0012 %", "0.42 %", "12.5 %", "100.0 %"]);
    }

    #[test]
    fn the_kind_of_a_line_comes_first() {
        let line = json_line("hit", json!({ "height": 7, "again": false }));
        assert_eq!(line, "{\"kind\":\"hit\",\"height\":7,\"again\":false}\n");
        assert_eq!(tagged("summary", json!({})).to_string(), "{\"kind\":\"summary\"}");
    }

    /// Control characters of C0 and C1, line breaks, and marks of writing direction.
    const STEERING: &str =
        "a\u{1b}[2J\r\n\t\u{0}\u{7f}\u{85}\u{9b}\u{200f}\u{202e}\u{2028}\u{2066}z";

    #[test]
    fn text_stays_on_its_line() {
        let escaped =
            "a\\u{1b}[2J\\r\\n\\t\\0\\u{7f}\\u{85}\\u{9b}\\u{200f}\\u{202e}\\u{2028}\\u{2066}z";
        assert_eq!(printable(STEERING), escaped);
        assert_eq!(plain_or_quoted(STEERING), format!("\"{escaped}\""));
        for plain in ["", "it's", "\"a\\n\"", "Δx ≤ 7 – 日本語", "e\u{301}"] {
            assert_eq!(printable(plain), plain);
            assert_eq!(plain_or_quoted(plain), plain);
        }
        // The line breaks between lines stay, also those of CSV.
        assert_eq!(printable_lines("a\n\u{9b}b\r\nc\r"), "a\n\\u{9b}b\r\nc\\r");
        let mut page = Page::default();
        page.heading("a\nb");
        page.line("c\nd");
        page.fields(vec![("name", "e\nf".into())]);
        page.table(vec!["x", "y"], vec![vec!["g\nh".into(), "i".into()]]);
        page.warnings(&["j\nk".into()]);
        let lines = "a\\nb\nc\\nd\nname  e\\nf\nx     y\ng\\nh  i\n";
        assert_eq!(page.render(false), lines);
        assert_eq!(page.render_warnings(false), "warning: j\\nk\n");
    }

    #[test]
    fn json_is_read_as_before() {
        let json = json!({ STEERING: [STEERING, "\u{e0001}é"] });
        let text = printable_json(json.to_string());
        assert!(!text.chars().any(|c| c.is_control() || ('\u{2000}'..='\u{20ff}').contains(&c)));
        assert!(
            text.contains("\\u202e\\u2028\\u2066") && text.contains("\\udb40\\udc01é"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json);
    }

    #[test]
    fn warnings_are_no_part_of_the_result() {
        let mut page = Page::default();
        page.warnings(&["as good as its source".into()]);
        page.line("the result");
        assert_eq!(page.render(false), "the result\n");
        assert_eq!(page.render_warnings(false), "warning: as good as its source\n");
    }
}

//! Output of a command: a table for people and JSON for programs.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use comfy_table::{Table, presets};
use indicatif::HumanCount;
use serde_json::{Map, Value};

use crate::exit::Exit;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Report {
    /// Output for people.
    page: Page,
    /// Output for programs.
    json: Value,
    exit: Exit,
    is_last_line: bool,
}

impl Report {
    pub(crate) fn new(page: Page, json: Value, exit: Exit) -> Self {
        Self { page, json, exit, is_last_line: false }
    }

    /// Makes the JSON the last line after other lines of JSON. The JSON is then printed on one
    /// line, of kind `summary`.
    pub(crate) fn after_lines(self) -> Self {
        Self { is_last_line: true, json: tagged("summary", self.json), ..self }
    }

    pub(crate) fn print(self, json: bool) -> anyhow::Result<ExitCode> {
        let is_read = match self.write_stdout(json) {
            Ok(()) => true,
            // The reader of our output closed the pipe, which is not an error of the command.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => false,
            Err(error) => return Err(error.into()),
        };
        if is_read && !json {
            let mut stderr = io::stderr().lock();
            let warnings = self.page.render_warnings(colours(&stderr));
            // The result is already printed. The result stays valid if nobody reads standard error.
            drop(stderr.write_all(warnings.as_bytes()));
        }
        Ok(self.exit.into())
    }

    fn write_stdout(&self, json: bool) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let text = match json {
            true if self.is_last_line => line_of(&self.json),
            true => printable_json(format!("{:#}\n", self.json)),
            false => self.page.render(colours(&stdout)),
        };
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

/// Returns a line of JSON with its line break. The first member of each line names the kind of the
/// line.
pub(crate) fn json_line(kind: &str, members: Value) -> String {
    line_of(&tagged(kind, members))
}

/// Returns a JSON value as a line with its line break.
fn line_of(json: &Value) -> String {
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
}

impl Lines {
    /// Prints a line with its line break on standard output.
    pub(crate) fn print(&mut self, line: &str) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let text = printable(line.trim_end_matches('\n'));
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
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
    drop(writeln!(io::stderr().lock(), "{since}{}", printable(text)));
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Page, json_line, plain_or_quoted, printable, printable_json, tagged};

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

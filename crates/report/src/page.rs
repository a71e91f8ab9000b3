//! Output of a command: a table for people and JSON for programs.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use comfy_table::{Table, presets};
use serde_json::{Map, Value};

use crate::exit::Exit;
use crate::progress::above_status;
use crate::text::{printable, printable_json, printable_lines};

/// The result of a command.
#[derive(Debug)]
pub struct Report {
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
    /// Returns the report of a command, with its output for people and for programs.
    pub fn new(page: Page, json: Value, exit: impl Into<Exit>) -> Self {
        Self { page, json, payload: None, exit: exit.into(), is_last_line: false }
    }

    /// Adds warnings: after the page, and as the member `warnings` of the JSON.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.json["warnings"] = warnings.as_slice().into();
        self.page.warnings.extend(warnings);
        self
    }

    /// Prints a payload on standard output; the page is then written to standard error.
    #[must_use]
    pub fn with_payload(self, payload: impl Into<Option<String>>) -> Self {
        Self { payload: payload.into(), ..self }
    }

    /// Makes the JSON the last line after other lines of JSON. The JSON is then printed on one
    /// line, of kind `summary`.
    #[must_use]
    pub fn after_lines(self) -> Self {
        Self { is_last_line: true, json: tagged("summary", self.json), ..self }
    }

    /// Returns the page, the JSON and the exit code, to build another report from them.
    pub fn into_parts(self) -> (Page, Value, Exit) {
        (self.page, self.json, self.exit)
    }

    /// Prints the report: the JSON if `json` is `true`, and the page otherwise.
    ///
    /// # Errors
    /// Returns an error if standard output cannot be written. A closed pipe is not an error.
    pub fn print(self, json: bool) -> anyhow::Result<ExitCode> {
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

    /// Writes the warnings, and also the page if standard output has a payload. Without a payload,
    /// nothing is written if the reader of standard output has closed its pipe.
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
pub fn json_line(kind: &str, members: Value) -> String {
    line_of(&tagged(kind, members))
}

/// Returns a JSON value as a line with its line break.
pub fn line_of(json: &Value) -> String {
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
pub struct Lines {
    to: Box<dyn Write + Send>,
    /// `true` if the reader closed the pipe.
    closed: bool,
}

impl Default for Lines {
    /// Lines on standard output.
    fn default() -> Self {
        Self::to(io::stdout())
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Lines {
    /// Returns lines that are written to `to`, for a test.
    pub fn to(to: impl Write + Send + 'static) -> Self {
        Self { to: Box::new(to), closed: false }
    }

    /// Returns `true` if the reader closed the pipe. The command may then end.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Prints lines, each with its line break.
    ///
    /// # Errors
    /// Returns an error if the lines cannot be written. A closed pipe is not an error.
    pub fn print(&mut self, text: &str) -> io::Result<()> {
        if self.closed || text.is_empty() {
            return Ok(());
        }
        // The creator of a line has escaped its parts, so that this changes nothing.
        let text = printable_lines(text);
        let to = &mut self.to;
        match above_status(|| to.write_all(text.as_bytes()).and_then(|()| to.flush())) {
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
pub struct Page {
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
    /// Returns a page of fields: names on the left, aligned values on the right.
    pub fn of_fields(fields: Vec<(&'static str, String)>) -> Self {
        Self { parts: vec![Part::Fields(fields)], warnings: Vec::new() }
    }

    /// Adds a line that a terminal shows in bold.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Heading(text.into()));
    }

    /// Adds a line.
    pub fn line(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Line(text.into()));
    }

    /// Adds fields: names on the left, aligned values on the right.
    pub fn fields(&mut self, fields: Vec<(&'static str, String)>) {
        self.parts.push(Part::Fields(fields));
    }

    /// Adds a table. Its columns are aligned.
    pub fn table(&mut self, header: Vec<&'static str>, rows: Vec<Vec<String>>) {
        self.parts.push(Part::Table(header, rows));
    }

    /// Appends another page. If `whose` is given, each warning of that page begins with this name.
    pub fn append(&mut self, other: Self, whose: Option<&str>) {
        self.parts.extend(other.parts);
        self.warnings.extend(other.warnings.into_iter().map(|text| match whose {
            Some(whose) => format!("{whose}: {text}"),
            None => text,
        }));
    }

    /// Adds warnings.
    pub fn warnings(&mut self, warnings: &[String]) {
        self.warnings.extend_from_slice(warnings);
    }

    /// Returns, as text, everything except the warnings.
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
pub fn print_note(text: &str) {
    print_log(&format!("note: {text}"));
}

/// Prints a log line on standard error, while a command runs.
pub fn print_log(text: &str) {
    if is_quiet() {
        return;
    }
    let since = STARTED.get().map(|started| format!("{:8.3} s  ", started.elapsed().as_secs_f64()));
    let since = since.unwrap_or_default();
    // If standard error is closed, the failure cannot be reported anywhere.
    above_status(|| drop(writeln!(io::stderr().lock(), "{since}{}", printable(text))));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Page, json_line, tagged};

    #[test]
    fn the_kind_of_a_line_comes_first() {
        let line = json_line("hit", json!({ "height": 7, "again": false }));
        assert_eq!(line, "{\"kind\":\"hit\",\"height\":7,\"again\":false}\n");
        assert_eq!(tagged("summary", json!({})).to_string(), "{\"kind\":\"summary\"}");
    }

    #[test]
    fn text_stays_on_its_line() {
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
    fn warnings_are_no_part_of_the_result() {
        let mut page = Page::default();
        page.warnings(&["as good as its source".into()]);
        page.line("the result");
        assert_eq!(page.render(false), "the result\n");
        assert_eq!(page.render_warnings(false), "warning: as good as its source\n");
    }
}

//! Runs the commands of a page, and compares their output with the page. Times are removed, because
//! they differ in each run. A line `…` of a page matches any lines of the output.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use serde_json::Value;

/// The program that a page shows.
#[derive(Debug)]
pub struct Program {
    /// The path of the program.
    pub path: PathBuf,
    /// The start of each command that runs the program, up to its arguments.
    pub starts: &'static [&'static str],
}

/// What a page did.
#[derive(Debug)]
pub struct Ran {
    /// Number of commands whose output was compared.
    pub compared: usize,
    /// The pictures that commands drew: name and text.
    pub pictures: Vec<(String, String)>,
}

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Program {
    /// Runs a command, and returns what a terminal shows: standard output and standard error in the
    /// order in which they are written.
    ///
    /// # Panics
    /// If the program does not start.
    pub fn shown(&self, arguments: &[String], is_quiet: bool, directory: &Path) -> String {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let stderr = if is_quiet {
            Stdio::null()
        } else {
            Stdio::from(writer.try_clone().expect("a second end"))
        };
        let mut child = Command::new(&self.path)
            .args(arguments)
            .current_dir(directory)
            .stdout(writer)
            .stderr(stderr)
            .spawn()
            .expect("the binary starts");
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).expect("the output");
        child.wait().expect("the binary ends");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the arguments of the program, if the command runs it. Single quotes around an argument
    /// are supported, and no others.
    pub fn arguments(&self, command: &str) -> Option<Vec<String>> {
        let arguments = self.starts.iter().find_map(|start| command.strip_prefix(start))?;
        // Every second part is quoted.
        let parts = arguments.split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split(' ').filter(|word| !word.is_empty()).collect(),
            _ => vec![part],
        });
        Some(words.map(str::to_owned).collect())
    }
}

/// Runs the commands of a page in a directory of its own, with a copy of `fixtures`.
///
/// # Panics
/// If a command prints something else than the page shows, or is unknown.
pub fn run_page(page: &Path, program: &Program) -> Ran {
    let text = fs::read_to_string(page).expect("a page");
    let name = page.file_stem().expect("a name").to_string_lossy();
    let directory = env::temp_dir().join(format!("chainsieve-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    // The commands run at the root of the project.
    copy(&root().join("fixtures"), &directory.join("fixtures"));
    for (name, text) in files(&text) {
        fs::write(directory.join(name), text).expect("written");
    }
    let ports = Ports::of(&text);
    let mut servers = Vec::new();
    let mut compared = 0;
    for (command, expected) in sessions(&text) {
        if let Some(server) = command.strip_suffix(" &") {
            let arguments = program.arguments(&ports.free(server)).expect("a server of ours");
            let (server, said) = Server::start(program, &arguments, &directory);
            assert_eq!(ports.shown(&said), expected, "{command}");
            compared += 1;
            servers.push(server);
        } else if let Some((command, file)) = command.rsplit_once(" --json > ") {
            let mut arguments = program.arguments(command).expect("ours");
            arguments.push("--json".to_owned());
            let shown = program.shown(&arguments, true, &directory);
            fs::write(directory.join(file), shown).expect("written");
        } else if let Some(arguments) = program.arguments(&ports.free(&command)) {
            let (arguments, is_quiet) = match arguments.as_slice() {
                [arguments @ .., redirection, _] if redirection == "2>" => (arguments, true),
                arguments => (arguments, false),
            };
            let shown = program.shown(arguments, is_quiet, &directory);
            let command = format!("{}: {command}", page.display());
            assert_shows(&without_times(&ports.shown(&shown)), &without_times(&expected), &command);
            compared += 1;
        } else if let Some(folder) = command.strip_prefix("mkdir ") {
            fs::create_dir(directory.join(folder)).expect("made");
        } else if let Some((command, file)) = command.rsplit_once(" > ") {
            let text = match command.split_once(' ') {
                Some(("jq", arguments)) => jq(arguments, &directory),
                Some(("echo", text)) => text.trim_matches('\'').to_owned(),
                _ => panic!("{command}: unknown to this test"),
            };
            fs::write(directory.join(file), text).expect("written");
        } else {
            assert!(command.starts_with("cargo "), "{command}: unknown to this test");
        }
    }
    drop(servers);
    let drawn = text.lines().filter(|line| line.starts_with("$ ")).filter_map(|command| {
        let (_, rest) = command.split_once(" --svg ")?;
        let name = rest.split_whitespace().next().expect("a file").to_owned();
        let drawn = fs::read_to_string(directory.join(&name)).expect("a picture");
        Some((name, drawn))
    });
    let pictures = drawn.collect();
    fs::remove_dir_all(&directory).expect("removed");
    Ran { compared, pictures }
}

/// A command that runs in the background while other commands run.
struct Server(Child);

impl Server {
    /// Starts the command; also returns the first line that it prints.
    fn start(program: &Program, arguments: &[String], directory: &Path) -> (Self, String) {
        let mut server = Command::new(&program.path)
            .args(arguments)
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
            .expect("the binary starts");
        let mut said = String::new();
        let stdout = server.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut said).expect("text");
        (server, said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ports on this machine's address: the port in the page, and the port used in this run.
struct Ports(Vec<(String, String)>);

const HERE: &str = "127.0.0.1:";

impl Ports {
    fn of(page: &str) -> Self {
        let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
        let mut shown: Vec<String> = page.split(HERE).skip(1).map(digits).collect();
        shown.sort();
        shown.dedup();
        // Open all ports at once, so that they differ.
        let listener = |_: &String| TcpListener::bind((HERE.trim_end_matches(':'), 0));
        let free: Vec<_> = shown.iter().map(listener).collect();
        let port = |listener: io::Result<TcpListener>| {
            listener.and_then(|listener| listener.local_addr()).expect("a port").port().to_string()
        };
        Self(shown.into_iter().zip(free.into_iter().map(port)).collect())
    }

    /// Replaces the ports of the page by those of this run.
    fn free(&self, text: &str) -> String {
        let place = |text: String, (shown, free): &(String, String)| {
            text.replace(&format!("{HERE}{shown}"), &format!("{HERE}{free}"))
        };
        self.0.iter().fold(text.to_owned(), place)
    }

    /// Replaces the ports of this run by those of the page.
    fn shown(&self, text: &str) -> String {
        let place = |text: String, (shown, free): &(String, String)| {
            text.replace(&format!("{HERE}{free}"), &format!("{HERE}{shown}"))
        };
        self.0.iter().fold(text.to_owned(), place)
    }
}

/// Compares line by line; a line `…` of the page matches any lines up to the next match.
fn assert_shows(output: &str, expected: &str, command: &str) {
    let mut pieces = expected.split("\n…\n");
    let first = pieces.next().unwrap_or_default();
    let pieces: Vec<_> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else {
        assert_eq!(output, expected, "{command}");
        return;
    };
    let rest = output.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let Some(mut rest) = rest else { panic!("{command}: {output}\n\nis not\n\n{expected}") };
    for piece in between {
        let (_, behind) = rest.split_once(piece).unwrap_or_else(|| panic!("{command}: {output}"));
        rest = behind;
    }
}

/// Removes the separators of numbers: `17,686,111` becomes `17686111`.
fn without_separators(text: &str) -> String {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_separator = |at: usize| {
        text[at..].starts_with(',')
            && at > 0
            && is_digit(at - 1)
            && (at + 1..at + 4).all(is_digit)
            && !is_digit(at + 4)
    };
    text.char_indices().filter(|&(at, _)| !is_separator(at)).map(|(_, c)| c).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// Returns what `jq` prints, for the filters that the pages use: a member of each file, a member
/// of the elements of a slice, the start of a member of each element, or a list without one
/// element.
fn jq(arguments: &str, directory: &Path) -> String {
    let arguments = arguments.trim_start_matches("-r ");
    let (filter, files) = match arguments.strip_prefix('\'') {
        Some(quoted) => quoted.split_once("' ").expect("a quoted filter"),
        None => arguments.split_once(' ').expect("a filter"),
    };
    let mut out = String::new();
    let mut print = |value: &Value| {
        out += &value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.push('\n');
    };
    for file in files.split(' ') {
        let json = fs::read(directory.join(file)).expect("a fixture, or written before");
        let mut json: Value = serde_json::from_slice(&json).expect("JSON");
        if let Some(index) = filter.strip_prefix("del(.[").and_then(|rest| rest.strip_suffix("])"))
        {
            json.as_array_mut().expect("a list").remove(index.parse().expect("an index"));
            print(&json);
        } else if filter == r#".[] | select(.chain == "mainnet" and .number > 0).header"# {
            let rows = json.as_array().expect("a list").iter();
            let wanted = rows.filter(|row| row["chain"] == "mainnet" && row["number"] != 0);
            wanted.for_each(|row| print(&row["header"]));
        } else if let Some(member) = filter[1..].strip_suffix("[]") {
            json[member].as_array().expect("a list").iter().for_each(&mut print);
        } else if let Some((slice, member)) = filter.split_once("][].") {
            let (start, end) = slice[2..].split_once(':').expect("a slice");
            let slice = start.parse().expect("a number")..end.parse().expect("a number");
            json.as_array().expect("a list")[slice].iter().for_each(|row| print(&row[member]));
        } else if let Some(member) = filter.strip_prefix(".[].").filter(|rest| !rest.contains('['))
        {
            json.as_array().expect("a list").iter().for_each(|row| print(&row[member]));
        } else if let Some(rest) = filter.strip_prefix(".[].") {
            let (member, end) = rest.split_once("[:").expect("the start of a member");
            let end: usize = end.trim_end_matches(']').parse().expect("a number");
            let start = |row: &Value| row[member].as_str().map(|text| text[..end].into());
            json.as_array()
                .expect("a list")
                .iter()
                .for_each(|row| print(&start(row).expect("text")));
        } else {
            print(&json[filter.trim_start_matches('.')]);
        }
    }
    out
}

/// Returns each `$ command` of the console blocks, with the lines below it.
fn sessions(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            found.push((command.into(), String::new()));
        } else if let Some((_, output)) = found.last_mut().filter(|_| inside) {
            output.push_str(line);
            output.push('\n');
        }
    }
    found
}

/// Returns the name and the text of each code block that has the name of a file after its language.
fn files(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let named = blocks.filter_map(|block| {
        let (info, text) = block.split_once('\n')?;
        Some((info.split_once(' ')?.1, text))
    });
    named.collect()
}

/// Removes durations from the text, and the separators of numbers, which only terminals show.
fn without_times(text: &str) -> String {
    without_durations(&without_separators(text))
}

/// Removes `(12 µs)`, `(1.2 ms)` and `(3.4 s)` from the text.
pub fn without_durations(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let is_time = |end: &str| ["µs)", "ms)", " s)"].iter().any(|unit| end.ends_with(unit));
        match line.rsplit_once(" (") {
            Some((start, end)) if is_time(end) => out += start,
            _ => out += line,
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

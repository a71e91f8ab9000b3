//! Runs the commands of the README and of `docs/`, and compares their output with the pages. Times
//! are removed, because they differ in each run. A line `…` of a page matches any lines of the
//! output.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn commands_print_what_the_pages_show() {
    let pages = pages();
    assert!(pages.len() >= 10, "{pages:?}");
    let ran: usize = pages.iter().map(|page| run_page(page)).sum();
    assert!(ran >= 45, "only {ran} commands in console blocks");
}

/// Returns the README and every page of `docs/`.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    [root().join("README.md")].into_iter().chain(docs.filter(is_page)).collect()
}

/// `cargo run` in a clone asks for `--bin` where the default packages have two programs.
#[test]
fn cargo_run_has_one_program_to_run() {
    let mut cargo = Command::new(env!("CARGO"));
    let metadata = cargo.args(["metadata", "--no-deps", "--locked", "--format-version=1"]);
    let output = metadata.current_dir(root()).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().expect("a list");
    let default = list(&metadata["workspace_default_members"]);
    let packages = list(&metadata["packages"]);
    let default = packages.iter().filter(|package| default.contains(&package["id"]));
    let targets = default.flat_map(|package| list(&package["targets"]));
    let is_program = |target: &Value| list(&target["kind"]).contains(&"bin".into());
    let programs: Vec<_> =
        targets.filter(is_program).map(|target| target["name"].clone()).collect();
    assert_eq!(programs, ["chainsieve"]);
}

/// A reader should need at most five minutes for a README, and ten for a page of the guide. The
/// limits leave room, so that nobody shortens a sentence or leaves a fact out for the sake of a line.
#[test]
fn pages_stay_short() {
    for page in pages() {
        let lines = fs::read_to_string(&page).expect("a page").lines().count();
        let most = if page.ends_with("README.md") { 240 } else { 320 };
        assert!(lines <= most, "{}: {lines} lines, at most {most}", page.display());
    }
}

/// Commands with names of other people's nodes cannot run here. Their options and values exist all the
/// same: the parser reads them before `--help`.
#[test]
fn commands_with_placeholders_are_accepted() {
    let mut accepted = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let blocks = text.split("\n```sh\n").skip(1);
        let blocks = blocks.map(|block| block.split("\n```").next().expect("a block"));
        let lines = blocks.flat_map(|block| {
            let joined =
                block.replace("\\\n", " ").replace("0x…", &format!("0x{}", "a".repeat(64)));
            joined.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        for line in lines {
            let families = ["chainsieve eth ", "chainsieve btc "];
            let Some(at) = families.iter().find_map(|family| line.find(family)) else { continue };
            let mut arguments = arguments(&line[at..]).expect("ours");
            arguments.push("--help".to_owned());
            let run = Command::new(env!("CARGO_BIN_EXE_chainsieve")).args(&arguments).output();
            let run = run.expect("the binary starts");
            let words = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{}: {line}: {words}", page.display());
            accepted += 1;
        }
    }
    assert!(accepted >= 10, "only {accepted}");
}

/// The demo prints the separators of numbers everywhere, so the recording has them.
#[test]
fn the_recording_shows_the_demo() {
    let shown = shown(&["demo".to_owned()], false, &root());
    assert_is_picture("demo.svg", &recording(&without_durations(&shown)));
}

/// The table of differences has our own library, and subjects that no case fits. Neither counts.
#[test]
fn pages_count_the_libraries_of_others() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("a page");
    let table = read("docs/conformance.md");
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| [")?.split(" | ").collect();
        let [subject, _version, _areas, cases, ..] = cells[..] else { return None };
        Some((subject.split(']').next()?, cases.parse::<u64>().ok()?))
    });
    let others = rows.filter(|&(subject, cases)| subject != "chainsieve" && cases > 0).count();
    assert!(others > 0, "{table}");
    let expected = [
        ("docs/conformance.md", format!("{others} libraries and nodes of others")),
        ("docs/test-vectors.md", format!("{others} other libraries and nodes")),
        ("conformance/README.md", format!("{others} other libraries and nodes")),
        ("CHANGELOG.md", format!("{others} other libraries and nodes")),
    ];
    for (page, words) in expected {
        assert!(read(page).contains(&words), "{page}: {words}");
    }
}

/// Compares a picture of `docs/` with the picture that is drawn now. If `CHAINSIEVE_DRAW` is set,
/// the new picture first replaces the old one.
fn assert_is_picture(name: &str, drawn: &str) {
    let path = root().join("docs").join(name);
    if env::var_os("CHAINSIEVE_DRAW").is_some() {
        fs::write(&path, drawn).expect("written");
    }
    let kept = fs::read_to_string(&path).expect("a picture");
    assert!(kept == drawn, "{name} is outdated: run the test with CHAINSIEVE_DRAW=1");
}

/// Returns an SVG of a terminal in which the lines of a command's output appear one after another.
fn recording(output: &str) -> String {
    const LINE: usize = 18;
    let mut lines = vec!["$ chainsieve demo"];
    lines.extend(output.lines());
    let height = LINE * (lines.len() + 1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 940 {height}\" role=\"img\">\n\
         <title>Output of chainsieve demo</title>\n<style>\n\
         text {{ font: 13px monospace; fill: #e6edf3; white-space: pre; animation: show 0.2s both }}\n\
         @keyframes show {{ from {{ opacity: 0 }} }}\n\
         @media (prefers-reduced-motion) {{ text {{ animation: none }} }}\n\
         </style>\n<rect width=\"940\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (number, line) in (1..).zip(&lines) {
        let text = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (y, delay) = (LINE * number, 0.15 * f64::from(u32::try_from(number).expect("a line")));
        let element = format!(
            "<text x=\"14\" y=\"{y}\" style=\"animation-delay:{delay:.2}s\">{text}</text>\n"
        );
        svg += &element;
    }
    svg + "</svg>\n"
}

/// Runs the commands of a page in a directory of its own. Returns the number of commands whose
/// output was compared.
fn run_page(page: &Path) -> usize {
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
            let arguments = arguments(&ports.free(server)).expect("a server of ours");
            let (server, said) = Server::start(&arguments, &directory);
            assert_eq!(ports.shown(&said), expected, "{command}");
            compared += 1;
            servers.push(server);
        } else if let Some((command, file)) = command.rsplit_once(" --json > ") {
            let mut arguments = arguments(command).expect("ours");
            arguments.push("--json".to_owned());
            fs::write(directory.join(file), shown(&arguments, true, &directory)).expect("written");
        } else if let Some(arguments) = arguments(&ports.free(&command)) {
            let (arguments, is_quiet) = match arguments.as_slice() {
                [arguments @ .., redirection, _] if redirection == "2>" => (arguments, true),
                arguments => (arguments, false),
            };
            let shown = shown(arguments, is_quiet, &directory);
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
    for command in text.lines().filter(|line| line.starts_with("$ ")) {
        let Some((_, rest)) = command.split_once(" --svg ") else { continue };
        let name = rest.split_whitespace().next().expect("a file");
        let drawn = fs::read_to_string(directory.join(name)).expect("a picture");
        assert_is_picture(name, &drawn);
    }
    fs::remove_dir_all(&directory).expect("removed");
    compared
}

/// Runs a command, and returns what a terminal shows: standard output and standard error in the
/// order in which they are written.
fn shown(arguments: &[String], is_quiet: bool, directory: &Path) -> String {
    let (mut reader, writer) = io::pipe().expect("a pipe");
    let stderr = if is_quiet {
        Stdio::null()
    } else {
        Stdio::from(writer.try_clone().expect("a second end"))
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
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

/// A command that runs in the background while other commands run.
struct Server(Child);

impl Server {
    /// Starts the command; also returns the first line that it prints.
    fn start(arguments: &[String], directory: &Path) -> (Self, String) {
        let mut server = Command::new(env!("CARGO_BIN_EXE_chainsieve"))
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

/// Returns the arguments of our binary, if the command runs it. Single quotes around an argument
/// are supported, and no others.
fn arguments(command: &str) -> Option<Vec<String>> {
    let arguments = command
        .strip_prefix("cargo run --release -- ")
        .or_else(|| command.strip_prefix("chainsieve "))?;
    // Every second part is quoted.
    let parts = arguments.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split(' ').filter(|word| !word.is_empty()).collect(),
        _ => vec![part],
    });
    Some(words.map(str::to_owned).collect())
}

/// Removes durations from the text, and the separators of numbers, which only terminals show.
fn without_times(text: &str) -> String {
    without_durations(&without_separators(text))
}

/// Removes `(12 µs)`, `(1.2 ms)` and `(3.4 s)` from the text.
fn without_durations(text: &str) -> String {
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

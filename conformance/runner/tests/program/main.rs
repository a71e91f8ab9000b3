//! Tests of the program as users call it, with wrong inputs and its exit codes.

#![cfg(unix)]

mod changed;
mod exit_codes;
mod files;
mod nodes;
mod terminal;
mod vectors;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use testkit::program::built_in;

const YES: i32 = 0;
const USAGE: i32 = 2;
const WRONG: i32 = 3;
const UNDECIDED: i32 = 4;
const BAD_INPUT: i32 = 5;

struct Output {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Returns the program, without the environment variables that name a proxy.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve-conformance"));
    // Nodes are simulated on loopback, which a proxy of the environment can't reach.
    for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy).env_remove(proxy.to_uppercase());
    }
    command
}

fn output(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A program that does not read its input may exit before all of the input is written.
    drop(child.stdin.take().expect("piped").write_all(stdin));
    let output = child.wait_with_output().expect("the binary ends");
    Output {
        code: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn run(args: &[&str]) -> Output {
    output(binary().args(args), b"")
}

/// Runs a command with `--json`, checks its exit code, and returns its output.
fn json_of(args: &[&str], code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).expect("--json prints JSON")
}

/// Checks that a command fails with an error that contains each of `words`, and prints nothing to
/// standard output.
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let output = run(args);
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "{args:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{args:?}: {word:?} is not in {}", output.stderr);
    }
}

/// The program that answers with chainsieve.
fn chainsieve() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let name = "subject-chainsieve";
        built_in("conformance", name, ["--bin", name])
    });
    &PROGRAM
}

fn fixture(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bitcoin").join(name);
    serde_json::from_slice(&fs::read(path).expect("fixture")).expect("fixture is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// Returns `true` if the corpus is at hand, as it must be where `CI` is set.
fn has_corpus() -> bool {
    let has_corpus = std::env::var_os("CHAINSIEVE_CORPUS").is_some_and(|path| !path.is_empty());
    let is_ci = std::env::var_os("CI").is_some();
    assert!(has_corpus || !is_ci, "CI is set and CHAINSIEVE_CORPUS is not");
    has_corpus
}

/// A temporary file for one test, which is removed afterwards.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, contents: impl AsRef<[u8]>) -> Self {
        let file = Self::absent(name);
        fs::write(&file.0, contents).expect("temporary file");
        file
    }

    fn absent(name: &str) -> Self {
        let name = format!("chainsieve-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// A temporary folder for one test, which is removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("chainsieve-program-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("a folder");
        folder
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }

    /// Writes a file, and returns its path.
    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), contents).expect("a file");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

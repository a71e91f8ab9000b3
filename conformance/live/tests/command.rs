//! The programs under test. A test runs a program to its end, or reads its lines while it runs.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use testkit::program::{built, built_in};

use crate::harness::{Process, Scene, wait_for};

/// The command of the library.
static CHAINSIEVE: LazyLock<PathBuf> =
    LazyLock::new(|| built("chainsieve-cli", ["--bin", "chainsieve"]));
/// The program of the conformance vectors.
static CONFORMANCE: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = "chainsieve-conformance";
    built_in("conformance", name, ["--bin", name])
});

/// Returns a program with these arguments, without the caller's proxy settings.
fn with_arguments<S: AsRef<std::ffi::OsStr>>(program: &Path, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for proxy in
        ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        command.env_remove(proxy);
    }
    command
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Parses the command's output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}, {}", self.stdout, self.stderr))
    }

    /// Parses the command's output as one JSON value per line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

/// Runs a command of `chainsieve` to its end.
pub(crate) fn run(scene: &Scene, arguments: &[&str]) -> Ended {
    ended(scene, &CHAINSIEVE, arguments)
}

/// Runs a command of `chainsieve-conformance` to its end.
pub(crate) fn run_conformance(scene: &Scene, arguments: &[&str]) -> Ended {
    ended(scene, &CONFORMANCE, arguments)
}

fn ended(scene: &Scene, program: &Path, arguments: &[&str]) -> Ended {
    let mut process = scene.start("chainsieve", &mut with_arguments(program, arguments));
    let status = process.wait();
    Ended {
        code: status.code().unwrap_or(-1),
        stdout: std::fs::read_to_string(process.output()).expect("text"),
        stderr: process.log(),
    }
}

/// A running command, whose lines are read as they are printed.
#[derive(Debug)]
pub(crate) struct Running {
    process: Process,
    lines: Lines,
}

impl Running {
    /// Starts a command. To read its lines, `--json` must be among the arguments.
    pub(crate) fn start(scene: &Scene, arguments: &[&str]) -> Self {
        let process = scene.start("chainsieve", &mut with_arguments(&CHAINSIEVE, arguments));
        let lines = Lines::of(process.output());
        Self { process, lines }
    }

    /// Returns all lines so far.
    pub(crate) fn lines(&mut self) -> &[Value] {
        self.lines.read()
    }

    /// Waits for a line; lines that were printed before the call are also tested. Panics if the
    /// command ends and no line passes the test `is`.
    pub(crate) fn wait_for(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.wait(what, |lines| lines.iter().find(|line| is(line)).cloned())
    }

    /// Waits until `want` returns a value for the lines so far. Panics if the command ends before
    /// `want` returns a value.
    pub(crate) fn wait<T>(&mut self, what: &str, mut want: impl FnMut(&[Value]) -> Option<T>) -> T {
        wait_for(what, || {
            // First check whether the command has ended, then read the lines, so that the last
            // lines are not missed.
            let ended = self.process.ended();
            let found = want(self.lines.read());
            if let (None, Some(status)) = (&found, ended) {
                panic!("the command ended, {status}, before {what}");
            }
            found
        })
    }

    /// Returns the log of the command so far.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// Returns the process of the command.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills the command at once, as `kill -9` does. Returns the lines that the command had
    /// printed.
    pub(crate) fn kill(mut self) -> Vec<Value> {
        self.process.kill();
        self.lines.read().to_vec()
    }

    /// Ends the command as Ctrl-C does. Returns its exit code, its lines and its log.
    pub(crate) fn interrupt(mut self) -> (Option<i32>, Vec<Value>, String) {
        self.process.signal("INT");
        let code = self.process.wait().code();
        (code, self.lines.read().to_vec(), self.process.log())
    }

    /// Returns the peak of the command's memory so far (`VmHWM`) and its current memory (`VmRSS`),
    /// in KiB.
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some((field("VmHWM:")?, field("VmRSS:")?))
    }
}

/// The JSON lines of a growing file.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    read: u64,
    half: Vec<u8>,
    values: Vec<Value>,
}

impl Lines {
    /// Returns the lines of a file, none of which are read yet.
    pub(crate) fn of(path: &Path) -> Self {
        let file = File::open(path).expect("the output");
        Self { file, read: 0, half: Vec::new(), values: Vec::new() }
    }

    /// Reads all complete lines so far; an incomplete last line is kept for the next call.
    pub(crate) fn read(&mut self) -> &[Value] {
        self.file.seek(SeekFrom::Start(self.read)).expect("a file");
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).expect("a file");
        self.read += bytes.len() as u64;
        for byte in bytes {
            if byte != b'\n' {
                self.half.push(byte);
                continue;
            }
            let line = serde_json::from_slice(&self.half).unwrap_or_else(|error| {
                panic!("no JSON, {error}: {}", String::from_utf8_lossy(&self.half))
            });
            self.values.push(line);
            self.half.clear();
        }
        &self.values
    }
}

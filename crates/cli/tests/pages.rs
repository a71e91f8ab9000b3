//! Runs the commands of the README and of `docs/`, and compares their output with the pages. Times
//! are removed, because they differ in each run. A line `…` of a page matches any lines of the
//! output.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;
use testkit::pages::{Program, root, run_page, without_durations};

fn program() -> Program {
    Program {
        path: env!("CARGO_BIN_EXE_chainsieve").into(),
        starts: &["cargo run -- ", "chainsieve "],
    }
}

#[test]
fn commands_print_what_the_pages_show() {
    let pages = pages();
    assert!(pages.len() >= 10, "{pages:?}");
    let mut compared = 0;
    for page in &pages {
        let ran = run_page(page, &program());
        compared += ran.compared;
        ran.pictures.iter().for_each(|(name, drawn)| assert_is_picture(name, drawn));
    }
    assert!(compared >= 50, "only {compared} commands in console blocks");
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
            let mut arguments = program().arguments(&line[at..]).expect("ours");
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
    let shown = program().shown(&["demo".to_owned()], false, &root());
    assert_is_picture("demo.svg", &recording(&without_durations(&shown)));
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

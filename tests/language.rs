//! The language of docs, comments, messages and pages: plain technical English, in British spelling.
//! Phrases that have to be read twice fail here, and so do American spellings outside of code.

use std::fs;
use std::path::{Path, PathBuf};

/// Beginnings of a doc line without a subject and a verb of its own.
const BEGINNINGS: [&str; 2] = ["Whether ", "How many "];

/// Phrases that a reader cannot search for, or has to read twice.
const PHRASES: [&str; 24] = [
    "that is none",
    "that are none",
    "configuration is none",
    "query is none",
    "rate is none",
    "so many filters",
    "as long as so many",
    "up to so many",
    "of so many",
    "how many sixteens",
    "behind the last",
    "one behind the other",
    "lose their word",
    "counts in what",
    "counts no more",
    "count for less",
    "what was said of",
    "told is",
    "nobody knows",
    "patience",
    "that which",
    "goes on behind",
    "sets encoded",
    "the house has",
];

/// American spellings, as parts of words.
const AMERICAN: [&str; 10] = [
    "behavior",
    "neighbor",
    "reorganiz",
    "synchroniz",
    "recogniz",
    "colored",
    "honor",
    "favorite",
    "labeled",
    "modeled",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Adds the files with these extensions under a folder, without what tools put there.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("text");
        if path.is_dir() {
            if !["target", "node_modules", "venv", "corpus"].contains(&name) {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            found.push(path);
        }
    }
}

/// Returns the lines of prose, with their numbers: comments of Rust, and Markdown outside of code.
fn prose(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).expect("text");
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let mut in_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let words = if is_rust {
            let Some(comment) = line.strip_prefix("//") else {
                in_code = false;
                continue;
            };
            comment.trim_start_matches(['/', '!']).trim_start()
        } else {
            line
        };
        if words.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            // Code spans and the targets of links quote names that others chose.
            let spans = words.split('`').step_by(2).collect::<Vec<_>>().join("…");
            let mut pieces = spans.split("](");
            let mut text = pieces.next().unwrap_or_default().to_owned();
            text.extend(pieces.map(|piece| piece.split_once(')').map_or("", |(_, rest)| rest)));
            found.push((number, text));
        }
    }
    found
}

#[test]
fn texts_are_plain() {
    let mut paths = Vec::new();
    for folder in ["src", "crates", "conformance", "docs", "tests", "benches", "examples"] {
        files(&root().join(folder), &mut paths);
    }
    paths.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)));
    let mut wrong = Vec::new();
    let mut lines = 0;
    for path in paths.iter().filter(|path| !path.ends_with("tests/language.rs")) {
        for (number, line) in prose(path) {
            lines += 1;
            let lower = line.to_lowercase();
            let phrases = PHRASES.iter().chain(&AMERICAN).filter(|phrase| lower.contains(**phrase));
            let beginnings = BEGINNINGS.iter().filter(|beginning| line.starts_with(**beginning));
            for phrase in phrases.chain(beginnings) {
                wrong.push(format!("{}:{number}: {phrase:?}: {line}", path.display()));
            }
        }
    }
    assert!(lines > 20_000, "{lines} lines of prose");
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

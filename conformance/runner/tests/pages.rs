//! Runs the commands of the pages of `conformance`, and compares their output with the pages.

#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};

use testkit::pages::{Program, root, run_page};

/// Returns the README and every page of `conformance/docs/`.
fn pages() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(folder.join("docs")).expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    [folder.join("README.md")].into_iter().chain(docs.filter(is_page)).collect()
}

#[test]
fn commands_print_what_the_pages_show() {
    let program = Program {
        path: env!("CARGO_BIN_EXE_chainsieve-conformance").into(),
        starts: &["chainsieve-conformance "],
    };
    let compared: usize = pages().iter().map(|page| run_page(page, &program).compared).sum();
    assert!(compared >= 9, "only {compared} commands in console blocks");
}

/// The table of differences has our own library, and subjects that no case fits. Neither counts.
#[test]
fn pages_count_the_libraries_of_others() {
    let read = |page: &str| fs::read_to_string(root().join(page)).expect("a page");
    let table = read("conformance/docs/differences.md");
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| [")?.split(" | ").collect();
        let [subject, _version, _areas, cases, ..] = cells[..] else { return None };
        Some((subject.split(']').next()?, cases.parse::<u64>().ok()?))
    });
    let others = rows.filter(|&(subject, cases)| subject != "chainsieve" && cases > 0).count();
    assert!(others > 0, "{table}");
    let expected = [
        ("conformance/docs/differences.md", format!("{others} libraries and nodes of others")),
        ("conformance/docs/vectors.md", format!("{others} other libraries and nodes")),
        ("conformance/README.md", format!("{others} other libraries and nodes")),
        ("CHANGELOG.md", format!("{others} other libraries and nodes")),
    ];
    for (page, words) in expected {
        assert!(read(page).contains(&words), "{page}: {words}");
    }
}

/// Viewers other than rustdoc show the README alone: it needs a title, each of its code blocks a
/// language, and its programs no hidden lines.
#[test]
fn the_readme_stands_alone() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(readme).expect("text");
    assert_eq!(text.lines().next(), Some("# chainsieve-conformance"));
    let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
    assert!(fences.step_by(2).all(|language| !language.is_empty()), "{text}");
    let is_hidden = |line: &str| line.trim() == "#" || line.trim_start().starts_with("# ");
    assert!(!text.lines().skip(1).any(is_hidden), "{text}");
}

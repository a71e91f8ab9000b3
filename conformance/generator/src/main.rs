//! Writes the conformance vectors: from the facts of specifications and chains, and from the answers
//! of other implementations. Nothing of chainsieve is used, so that no expected value is its own.

#![expect(clippy::too_many_lines, reason = "functions list the cases of their area")]

mod bloom;
mod certificate;
mod filters;
mod foreign;
mod gcs;
mod gcs_large;
mod headers;
mod log_filter;
mod log_readings;
mod logs;
mod logs_node;
mod match_area;
mod match_rules;
mod match_traps;
mod merkle;
mod numbers;
mod pack;
mod parquet_file;
mod receipts;
mod script;
mod silent_payments;
mod sizing;
mod sources;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use pack::Area;
use sources::Sources;

fn areas(sources: &Sources) -> Vec<Area> {
    [
        bloom::areas(sources),
        merkle::areas(sources),
        script::areas(sources),
        gcs::areas(sources),
        filters::areas(sources),
        silent_payments::areas(sources),
        headers::areas(sources),
        receipts::areas(sources),
        logs::areas(sources),
        foreign::areas(sources),
    ]
    .into_iter()
    .flatten()
    .map(Area::sorted)
    .collect()
}

/// Returns the files of the pack that are made of the areas, by their path in the pack.
fn files(version: &str, areas: &[Area]) -> Vec<(String, String)> {
    let mut files = vec![("pack.json".to_owned(), pack::index(version, areas))];
    for area in areas {
        let name = area.name;
        files.push((format!("vectors/{name}.json"), area.vectors()));
        files.push((format!("schema/{name}.schema.json"), area.schema()));
        files.push((format!("pages/{name}.md"), area.page()));
    }
    let mut list = String::from(
        "// Written by the generator.\n\n/// The files of the pack: path and text.\n#[rustfmt::skip]\n\
         pub static FILES: &[(&str, &str)] = &[\n",
    );
    for (path, _) in &files {
        let _ = writeln!(list, "    (\"{path}\", include_str!(\"../{path}\")),");
    }
    list.push_str("];\n\n/// The files of chain data that vectors refer to: path and text.\n#[rustfmt::skip]\npub static FIXTURES: &[(&str, &str)] = &[\n");
    for path in pack::fixtures(areas) {
        let _ = writeln!(list, "    (\"{path}\", include_str!(\"../fixtures/{path}\")),");
    }
    list.push_str("];\n");
    files.push(("src/files.rs".to_owned(), list));
    files
}

/// Returns the version of the pack, which its package has.
fn version(pack: &Path) -> String {
    let manifest = fs::read_to_string(pack.join("Cargo.toml")).expect("the package of the pack");
    // The workspace before the package has a version, too.
    let (_, package) = manifest.split_once("\n[package]\n").expect("a package");
    let line = package.lines().find_map(|line| line.strip_prefix("version = \""));
    line.expect("a version").trim_end_matches('"').to_owned()
}

fn main() -> ExitCode {
    let pack = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Some(corpus) = env::var_os("CHAINSIEVE_CORPUS").map(PathBuf::from) else {
        eprintln!("CHAINSIEVE_CORPUS must name the folder of the corpus");
        return ExitCode::FAILURE;
    };
    let check = env::args().any(|argument| argument == "--check");
    let sources = Sources { corpus, fixtures: pack.join("fixtures") };
    let mut stale = false;
    let areas = areas(&sources);
    for (path, text) in files(&version(&pack), &areas) {
        let file = pack.join(&path);
        if fs::read_to_string(&file).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            eprintln!("{path} is not what the generator writes");
            stale = true;
            continue;
        }
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, text).expect("the file can be written");
        println!("{path}");
    }
    for area in &areas {
        println!("{:26} {:5} cases", area.name, area.len());
    }
    if stale { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

//! A copy of the repository with a switch at each chosen place: one build has all mutants, and the
//! environment chooses one when the program starts. To build each mutant would take hours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::sites::{self, Site};

/// A change of one place of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mutant {
    /// The number that the environment chooses it by.
    pub(crate) number: usize,
    /// The file, relative to the repository.
    pub(crate) file: String,
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// The line with the change in it.
    pub(crate) text: String,
    /// `false` if the compiler refuses the change.
    pub(crate) compiles: bool,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// Kernels and parsers of the library that an area of the vectors asks for: files and folders. Of the
/// packages' other files, no area knows.
const CODE: [&str; 28] = [
    "crates/lanes/src/bits/bit_stream.rs",
    "crates/lanes/src/bits/golomb_rice",
    "crates/lanes/src/hash",
    "crates/lanes/src/simd",
    "crates/filter/src/fuse",
    "crates/filter/src/hashing.rs",
    "crates/filter/src/interop/parquet.rs",
    "crates/filter/src/interop/xor_singleheader.rs",
    "crates/filter/src/split_block",
    "src/btc/merkle_tree.rs",
    "src/btc/raw.rs",
    "src/btc/script.rs",
    "src/btc/bip37/bit_array.rs",
    "src/btc/bip37/bloom_filter.rs",
    "src/btc/bip37/elements.rs",
    "src/btc/bip37/matching.rs",
    "src/btc/bip37/merkle_block.rs",
    "src/btc/bip37/payload.rs",
    "src/btc/bip158/block_filter.rs",
    "src/btc/bip158/gcs.rs",
    "src/btc/bip158/matcher.rs",
    "src/btc/bip158/scripts.rs",
    "src/eth/bloom.rs",
    "src/eth/log.rs",
    "src/eth/log_query",
    "src/eth/header",
    "src/eth/receipts",
    "src/eth/certificate",
];

/// The function that the switches call. It notes each place that it is asked about, so that a run
/// without a mutant tells which places the vectors reach.
const SWITCH: &str = r#"
/// Chooses a mutant.
#[allow(missing_docs)]
pub mod mutant {
    extern crate std;
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static CHOSEN: OnceLock<usize> = OnceLock::new();
    static REACHED: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];

    #[cold]
    fn note(number: usize) {
        if let Some(file) = std::env::var_os("MUTANTS_REACHED") {
            let file = std::fs::File::options().append(true).create(true).open(file);
            let _ = std::writeln!(file.unwrap(), "{number}");
        }
    }

    #[inline]
    pub fn on(number: usize) -> bool {
        if !REACHED[number].load(Relaxed) && !REACHED[number].swap(true, Relaxed) {
            note(number);
        }
        let chosen = || std::env::var("MUTANT").map_or(0, |text| text.parse().unwrap());
        *CHOSEN.get_or_init(chosen) == number
    }
}
"#;

/// Returns all places of the code that the vectors ask for, with the change of each.
pub(crate) fn places(repository: &Path) -> Vec<(Mutant, Site)> {
    let mut places = Vec::new();
    for file in files(repository) {
        let text = fs::read_to_string(repository.join(&file)).expect("a source file");
        for site in sites::sites(&text).unwrap_or_else(|e| panic!("{file}: {e}")) {
            let mutant = Mutant {
                number: places.len() + 1,
                file: file.clone(),
                line: text[..site.range.start].lines().count().max(1),
                text: site.in_line(&text),
                compiles: true,
            };
            places.push((mutant, site));
        }
    }
    number_repeated(&mut places);
    places
}

/// Adds to each text that its file has several times which of them it is.
fn number_repeated(places: &mut [(Mutant, Site)]) {
    let mut times: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    let key = |mutant: &Mutant| (mutant.file.clone(), mutant.text.clone());
    for (mutant, _) in &*places {
        times.entry(key(mutant)).or_default().1 += 1;
    }
    for (mutant, _) in places {
        let (at, all) = times.get_mut(&key(mutant)).expect("counted");
        *at += 1;
        if *all > 1 {
            mutant.text = format!("{} ({at} of {all})", mutant.text);
        }
    }
}

fn files(repository: &Path) -> Vec<String> {
    let listed = Command::new("git").arg("-C").arg(repository).arg("ls-files").output();
    let listed = String::from_utf8(listed.expect("git").stdout).expect("UTF-8");
    let is_code = |file: &&str| {
        CODE.iter().any(|code| {
            file.strip_prefix(code).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let is_test = |file: &&str| file.contains("test");
    let files = listed.lines().filter(is_code).filter(|file| !is_test(file));
    files
        .filter(|file| Path::new(file).extension().is_some_and(|end| end == "rs"))
        .map(str::to_owned)
        .collect()
}

/// Writes a copy of the repository's last commit to a folder.
fn copy(repository: &Path, folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let cloned =
        Command::new("git").args(["clone", "--quiet"]).arg(repository).arg(folder).status()?;
    assert!(cloned.success(), "git clone");
    Ok(())
}

/// The code of the subject, and what decides where its switches are. The vectors are not part of it, so
/// that a build stays valid when a case is added.
const SOURCES: [&str; 8] = [
    "conformance/Cargo.lock",
    "src",
    "crates/lanes",
    "crates/filter",
    "conformance/runner/src",
    "conformance/subjects/chainsieve",
    "conformance/mutants/src/sites.rs",
    "conformance/mutants/src/tree.rs",
];

/// Returns the names that git has for the sources in the last commit. They change with the contents.
fn source_names(repository: &Path) -> io::Result<String> {
    let objects = SOURCES.map(|path| format!("HEAD:{path}"));
    let named =
        Command::new("git").arg("-C").arg(repository).arg("rev-parse").args(objects).output()?;
    assert!(named.status.success(), "git rev-parse");
    Ok(String::from_utf8_lossy(&named.stdout).trim().to_owned())
}

/// The program that answers the questions of the vectors.
const SUBJECT: &str = "subject-chainsieve";

/// A program with a switch at each place.
#[derive(Serialize, Deserialize)]
pub(crate) struct Build {
    /// What git names the sources.
    names: String,
    pub(crate) program: PathBuf,
    pub(crate) mutants: Vec<Mutant>,
}

/// Builds the subject of the last commit with all mutants, or returns the build of an earlier run from
/// the same sources.
pub(crate) fn build(repository: &Path, folder: &Path) -> io::Result<Build> {
    let (tree, target, record) =
        (folder.join("tree"), folder.join("target"), folder.join("build.json"));
    let names = source_names(repository)?;
    let earlier = fs::read_to_string(&record).ok();
    let earlier = earlier.and_then(|text| serde_json::from_str::<Build>(&text).ok());
    if let Some(build) = earlier.filter(|build| build.names == names) {
        return Ok(build);
    }
    copy(repository, &tree)?;
    let lib = tree.join("crates/lanes/src/lib.rs");
    fs::write(&lib, fs::read_to_string(&lib)? + SWITCH)?;
    let mut places = places(&tree);
    let mut sources = BTreeMap::new();
    for (mutant, _) in &places {
        if !sources.contains_key(&mutant.file) {
            sources.insert(mutant.file.clone(), fs::read_to_string(tree.join(&mutant.file))?);
        }
    }
    loop {
        for (file, text) in &sources {
            let text = switched(file, text, &places);
            // A file that is written is compiled anew, and all packages that depend on it.
            if fs::read_to_string(tree.join(file))? != text {
                fs::write(tree.join(file), text)?;
            }
        }
        let broken = errors(&tree, &target, &places)?;
        if broken.is_empty() {
            break;
        }
        println!("{} mutants do not compile", broken.len());
        for (mutant, _) in &mut places {
            mutant.compiles &= !broken.contains(&mutant.number);
        }
    }
    let mutants = places.into_iter().map(|(mutant, _)| mutant).collect();
    let build = Build { names, program: target.join("release").join(SUBJECT), mutants };
    fs::write(record, serde_json::to_string(&build)?)?;
    Ok(build)
}

/// The text of a file with a switch at each of its places.
fn switched(file: &str, text: &str, places: &[(Mutant, Site)]) -> String {
    let switch = if file.starts_with("crates/lanes/") { "crate" } else { "chainsieve_lanes" };
    // At one position, the wider place opens first and closes last.
    let mut edits = Vec::new();
    for (mutant, site) in places.iter().filter(|(mutant, _)| mutant.file == file) {
        if !mutant.compiles {
            continue;
        }
        let number = mutant.number;
        let (range, with) = (&site.range, &site.with);
        let width = range.len();
        let (open, close) = if with.is_empty() {
            (format!("if {switch}::mutant::on({number}) {{}} else {{ "), " }")
        } else {
            (format!("(if {switch}::mutant::on({number}) {{ {with} }} else {{ "), " })")
        };
        edits.push((range.start, 1, usize::MAX - width, number, open));
        edits.push((range.end, 0, width, usize::MAX - number, close.to_owned()));
    }
    edits.sort();
    let (mut out, mut at) = (String::new(), 0);
    for (position, _, _, _, insert) in edits {
        out.push_str(&text[at..position]);
        out.push_str(&insert);
        at = position;
    }
    out + &text[at..]
}

/// Builds the subject, and returns the numbers of the mutants that the compiler refuses: those
/// on the lines of its errors, or else the nearest of the file.
fn errors(folder: &Path, target: &Path, places: &[(Mutant, Site)]) -> io::Result<BTreeSet<usize>> {
    let mut cargo = Command::new("cargo")
        .args(["build", "--release", "--locked", "--message-format=json"])
        .args(["-p", SUBJECT])
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "--cap-lints=warn")
        // The compiler takes less time, and the cases are small.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .current_dir(folder.join("conformance"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // The compiler names files of packages outside of the workspace by their whole paths.
    let folder = folder.canonicalize()?;
    let mut broken = BTreeSet::new();
    for line in BufReader::new(cargo.stdout.take().expect("a pipe")).lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let message = &message["message"];
        if message["level"] != "error" {
            continue;
        }
        for span in message["spans"].as_array().into_iter().flatten() {
            let lines = span["text"].as_array().into_iter().flatten();
            let text: String = lines.filter_map(|line| line["text"].as_str()).collect();
            let numbers = text.split("::mutant::on(").skip(1);
            let numbers: Vec<usize> =
                numbers.filter_map(|rest| rest.split(')').next()?.parse().ok()).collect();
            if numbers.is_empty() {
                let in_file = |span: &Value, file: &str| {
                    span["file_name"]
                        .as_str()
                        .is_some_and(|name| folder.join(file) == Path::new(name))
                };
                let line = span["line_start"].as_u64().expect("a line");
                let left = places.iter().map(|(mutant, _)| mutant).filter(|mutant| mutant.compiles);
                let here = left.filter(|mutant| in_file(span, &mutant.file));
                let nearest = here.min_by_key(|mutant| line.abs_diff(mutant.line as u64));
                broken.extend(nearest.map(|mutant| mutant.number));
            }
            broken.extend(numbers);
        }
    }
    let is_built = cargo.wait()?.success();
    assert!(is_built || !broken.is_empty(), "the build fails for another reason than a mutant");
    Ok(if is_built { BTreeSet::new() } else { broken })
}

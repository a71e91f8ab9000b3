//! A copy of the repository with a switch at each chosen place: one build has all mutants, and the
//! environment chooses one when the program starts. To build each mutant would take hours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sites::{self, Site};

/// A place of a file that a mutant can change.
#[derive(Debug, Clone)]
pub(crate) struct Mutant {
    /// The file, relative to the repository.
    pub(crate) file: String,
    /// The line, counted from 1.
    pub(crate) line: usize,
    /// The line with the change in it.
    pub(crate) text: String,
    pub(crate) site: Site,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// Kernels and parsers of the library that an area of the vectors asks for: files and folders. Of the
/// packages' other files, no area knows.
const CODE: [&str; 37] = [
    "crates/lanes/src/bits/bit_stream.rs",
    "crates/lanes/src/bits/golomb_rice",
    "crates/lanes/src/hash",
    "crates/lanes/src/simd",
    "crates/filter/src/fuse",
    "crates/filter/src/hashing.rs",
    "crates/filter/src/interop/parquet",
    "crates/filter/src/interop/parquet.rs",
    "crates/filter/src/interop/xor_singleheader.rs",
    "crates/filter/src/split_block",
    "src/btc/compact_size.rs",
    "src/btc/merkle_tree.rs",
    "src/btc/raw.rs",
    "src/btc/script.rs",
    "src/btc/bip37/bank.rs",
    "src/btc/bip37/bit_array.rs",
    "src/btc/bip37/bloom_filter.rs",
    "src/btc/bip37/elements.rs",
    "src/btc/bip37/matching.rs",
    "src/btc/bip37/merkle_block.rs",
    "src/btc/bip37/partial_tree.rs",
    "src/btc/bip37/payload.rs",
    "src/btc/bip37/sizing.rs",
    "src/btc/bip158/block_filter.rs",
    "src/btc/bip158/decoded.rs",
    "src/btc/bip158/gcs",
    "src/btc/bip158/gcs.rs",
    "src/btc/bip158/matcher.rs",
    "src/btc/bip158/scripts.rs",
    "src/btc/bip158/slots.rs",
    "src/btc/bip158/values.rs",
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

/// Returns all places of the code that the vectors ask for.
pub(crate) fn mutants(repository: &Path) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for file in files(repository) {
        let text = fs::read_to_string(repository.join(&file)).expect("a source file");
        let found = sites::sites(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        mutants.extend(found.into_iter().map(|site| {
            let line = text[..site.range.start].lines().count().max(1);
            Mutant { file: file.clone(), line, text: site.in_line(&text), site }
        }));
    }
    mutants
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
pub(crate) fn copy(repository: &Path, folder: &Path) -> io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let cloned =
        Command::new("git").args(["clone", "--quiet"]).arg(repository).arg(folder).status()?;
    assert!(cloned.success(), "git clone");
    Ok(())
}

/// The program that answers the questions of the vectors.
const SUBJECT: &str = "conformance-mutants-subject";

/// Builds the subject with these mutants, by number, and returns it with those that compile. `target`
/// takes what the compiler writes; what it has of other packages' is kept from run to run.
pub(crate) fn build(
    folder: &Path,
    target: &Path,
    mut mutants: BTreeMap<usize, Mutant>,
) -> io::Result<(PathBuf, BTreeMap<usize, Mutant>)> {
    let lib = folder.join("crates/lanes/src/lib.rs");
    fs::write(&lib, fs::read_to_string(&lib)? + SWITCH)?;
    let mut sources = BTreeMap::new();
    for mutant in mutants.values() {
        if !sources.contains_key(&mutant.file) {
            sources.insert(mutant.file.clone(), fs::read_to_string(folder.join(&mutant.file))?);
        }
    }
    loop {
        for (file, text) in &sources {
            let chosen: Vec<_> =
                mutants.iter().filter(|(_, mutant)| mutant.file == *file).collect();
            let text = switched(file, text, &chosen);
            // A file that is written is compiled anew, and all packages that depend on it.
            if fs::read_to_string(folder.join(file))? != text {
                fs::write(folder.join(file), text)?;
            }
        }
        let broken = errors(folder, target, &mutants)?;
        if broken.is_empty() {
            return Ok((target.join("release").join(SUBJECT), mutants));
        }
        println!("{} mutants do not compile", broken.len());
        mutants.retain(|number, _| !broken.contains(number));
    }
}

/// The text of a file with a switch at each place.
fn switched(file: &str, text: &str, mutants: &[(&usize, &Mutant)]) -> String {
    let switch = if file.starts_with("crates/lanes/") { "crate" } else { "chainsieve_lanes" };
    // At one position, the wider place opens first and closes last.
    let mut edits = Vec::new();
    for (number, mutant) in mutants {
        let (range, with) = (&mutant.site.range, &mutant.site.with);
        let width = range.len();
        let (open, close) = if with.is_empty() {
            (format!("if {switch}::mutant::on({number}) {{}} else {{ "), " }")
        } else {
            (format!("(if {switch}::mutant::on({number}) {{ {with} }} else {{ "), " })")
        };
        edits.push((range.start, 1, usize::MAX - width, **number, open));
        edits.push((range.end, 0, width, usize::MAX - **number, close.to_owned()));
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
fn errors(
    folder: &Path,
    target: &Path,
    mutants: &BTreeMap<usize, Mutant>,
) -> io::Result<BTreeSet<usize>> {
    let mut cargo = Command::new("cargo")
        .args(["build", "--release", "--locked", "--message-format=json"])
        .args(["-p", "conformance-mutants", "--features", "subject", "--bin", SUBJECT])
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "--cap-lints=warn")
        // The compiler takes less time, and the cases are small.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
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
                let line = span["line_start"].as_u64().expect("a line");
                let here = mutants.iter().filter(|(_, mutant)| span["file_name"] == *mutant.file);
                let nearest = here.min_by_key(|(_, mutant)| line.abs_diff(mutant.line as u64));
                broken.extend(nearest.map(|(number, _)| *number));
            }
            broken.extend(numbers);
        }
    }
    let is_built = cargo.wait()?.success();
    assert!(is_built || !broken.is_empty(), "the build fails for another reason than a mutant");
    Ok(if is_built { BTreeSet::new() } else { broken })
}

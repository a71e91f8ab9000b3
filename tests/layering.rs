//! Checks the structure of the sources: imports point down, between packages and within them, and no
//! package of the root's workspace imports one of `conformance`. `unsafe` stays in `lanes`, in one line
//! of the command that maps files, where streams and arrays of C come in, and in the tests' allocator.
//!
//! Each rule is a function from a file's path and text to its violations. Small texts that break
//! the rules show that violations are found.

use std::path::{Path, PathBuf};

/// The packages of ours that the sources of a package may use, by the start of their path. The
/// first matching entry applies.
const PACKAGES: [(&str, &[&str]); 11] = [
    ("crates/lanes/src", &[]),
    ("crates/filter/src", &["chainsieve_lanes"]),
    ("src/lib.rs", &["chainsieve_lanes", "chainsieve_filter"]),
    ("src", &["chainsieve_lanes"]),
    ("crates/testkit/src", &["chainsieve"]),
    ("crates/client/src", &["chainsieve"]),
    ("crates/provider/src", &["chainsieve"]),
    ("crates/report/src", &["chainsieve"]),
    ("crates/dataset/src", &["chainsieve"]),
    (
        "crates/cli/src",
        &[
            "chainsieve",
            "chainsieve_client",
            "chainsieve_filter",
            "chainsieve_provider",
            "chainsieve_report",
        ],
    ),
    ("python/src", &["chainsieve", "chainsieve_filter", "chainsieve_provider"]),
];

/// Returns the other modules that a top-level module may use, for `src` and `crates/lanes/src`.
fn may_use(module: &str) -> Option<&'static [&'static str]> {
    Some(match module {
        "simd" | "names" | "steady_clock" => &[],
        "bits" | "hash" => &["simd"],
        "btc" | "eth" => &["steady_clock"],
        _ => return None,
    })
}

/// Returns the text without comments and string literals, so that prose is not taken for code.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        let mut in_string = false;
        let mut characters = line.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '\\' if in_string => drop(characters.next()),
                '"' => in_string = !in_string,
                '/' if !in_string && characters.peek() == Some(&'/') => break,
                _ if in_string => {}
                _ => code.push(c),
            }
        }
        code.push('\n');
    }
    code
}

/// Returns the first names after every `crate::` in `code`: one name, or the names of a braced
/// list.
fn names_after_crate(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let rest = rest.trim_start();
        let Some(list) = rest.strip_prefix('{') else {
            names.push(identifier(rest));
            continue;
        };
        let mut depth = 0;
        let mut at_name = true;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => at_name = true,
                c if at_name && !c.is_whitespace() => {
                    names.push(identifier(&list[at..]));
                    at_name = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Returns the packages of ours that a source uses without permission.
fn upward_packages(path: &Path, text: &str) -> Vec<String> {
    let Some((_, allowed)) = PACKAGES.iter().find(|(start, _)| path.starts_with(start)) else {
        return Vec::new();
    };
    let code = code_of(text);
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let ours = |word: &&str| *word == "chainsieve" || word.starts_with("chainsieve_");
    // A package may name itself.
    let own = path.components().nth(1).map(|name| name.as_os_str().to_string_lossy().into_owned());
    let own = own.filter(|_| path.starts_with("crates")).map(|name| format!("chainsieve_{name}"));
    let mut wrong: Vec<String> = words
        .filter(ours)
        .filter(|word| !allowed.contains(word) && own.as_deref() != Some(*word))
        .map(|word| format!("{}: uses {word}", path.display()))
        .collect();
    wrong.dedup();
    wrong
}

/// Returns the imports within a package that do not point down. `path` is relative to the package's
/// `src`.
fn upward_imports(path: &Path, text: &str) -> Vec<String> {
    let module = path.components().next().expect("a file").as_os_str().to_string_lossy();
    let module = module.trim_end_matches(".rs");
    if module == "lib" {
        return Vec::new();
    }
    let Some(allowed) = may_use(module) else {
        return vec![format!("{}: the module {module} has no layer", path.display())];
    };
    let code = code_of(text);
    let mut wrong = Vec::new();
    for name in names_after_crate(&code) {
        if name != module && !allowed.contains(&name.as_str()) {
            wrong.push(format!("{}: {module} uses crate::{name}", path.display()));
        }
    }
    // A `super` that leaves the top-level module means `crate`.
    let depth = path.components().count() - usize::from(path.ends_with("mod.rs"));
    for run in runs_of_super(&code) {
        if run >= depth {
            wrong.push(format!("{}: super:: out of {module}", path.display()));
        }
    }
    wrong.dedup();
    wrong
}

/// Returns, for each `super::` in `code`, its position in its run of consecutive ones.
fn runs_of_super(code: &str) -> Vec<usize> {
    let mut run = 0;
    let count = |behind: &str| {
        run += 1;
        let so_far = run;
        if !behind.is_empty() {
            run = 0;
        }
        so_far
    };
    code.split("super::").skip(1).map(count).collect()
}

/// The folder whose files may contain `unsafe`.
const LANES: &str = "crates/lanes/src/simd";
/// The file of the command that may contain `unsafe`: one line maps a sealed segment.
const MAPS: &str = "crates/cli/src/eth/index/mapped.rs";
/// The other files that may contain `unsafe`, with the number of times, each with its reason. Tables come in and
/// verdicts go out over an interface of C.
const WITH_REASONS: [(&str, usize); 4] = [
    (MAPS, 1),
    ("crates/dataset/src/stream.rs", 4),
    ("crates/dataset/tests/dataset/tables.rs", 3),
    ("crates/dataset/examples/find_damage.rs", 1),
];
/// The counting allocator, which only tests use.
const COUNTS: &str = "crates/testkit/src/allocation.rs";

/// Where the package for Python reads the memory of arrays that other programs made.
const ARRAYS: &str = "python/src/keys";

/// Returns the number of times that the word `unsafe` occurs in the code.
fn count_unsafe(text: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code_of(text).split(|c| !is_word(c)).filter(|word| *word == "unsafe").count()
}

/// Returns the uses of `unsafe` outside the allowed places, and further uses in the file that maps.
fn unsafe_outside_lanes(path: &Path, text: &str) -> Vec<String> {
    let count = count_unsafe(text);
    let is_allowed = path.starts_with(LANES) || path.starts_with(ARRAYS);
    if is_allowed || path == Path::new(COUNTS) || count == 0 {
        return Vec::new();
    }
    if let Some((file, times)) = WITH_REASONS.iter().find(|(file, _)| path == Path::new(file)) {
        let documented = text.contains("// SAFETY: ") && text.contains("#[expect(unsafe_code, ");
        let message = format!("{file}: unsafe {count} times, or without its reasons");
        return if count == *times && documented { Vec::new() } else { vec![message] };
    }
    vec![format!("{}: unsafe outside {LANES}", path.display())]
}

/// Returns a violation if a satellite package includes the library's source by path instead of
/// using its public API.
fn reaches_into_the_library(path: &Path, text: &str) -> Vec<String> {
    let compact: String = text.split_whitespace().collect();
    let reaches = (compact.contains("#[path=") || compact.contains("include!("))
        && compact.contains("../src/");
    let message = format!("{}: includes the library's source", path.display());
    if reaches { vec![message] } else { Vec::new() }
}

/// Packages of the workspace `conformance`, which imports the others.
const SATELLITES: [&str; 2] = ["chainsieve_conformance", "chainsieve_vectors"];

/// Returns a violation if a file outside of `conformance` uses a package of that workspace.
fn imports_a_satellite(path: &Path, text: &str) -> Option<String> {
    let code = code_of(text);
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let found = words.find(|word| SATELLITES.contains(word))?;
    Some(format!("{}: uses {found}", path.display()))
}

fn rust_files(directory: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut directories = vec![root.join(directory)];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.expect("a directory entry").path();
            // Skip build output and packages of others.
            let is_foreign =
                ["target", "node_modules", "venv"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !is_foreign {
                directories.push(path);
            } else if path.is_file() && path.extension().is_some_and(|extension| extension == "rs")
            {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                let path = path.strip_prefix(root).expect("under the root").to_path_buf();
                files.push((path, text));
            }
        }
    }
    files.sort();
    files
}

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for package in ["src", "crates/lanes/src"] {
        let files = rust_files(package);
        assert!(files.len() > 10, "too few files to be {package}: {}", files.len());
        for (path, text) in &files {
            wrong.extend(upward_imports(path.strip_prefix(package).expect("under it"), text));
        }
    }
    for (package, _) in PACKAGES.into_iter().filter(|(path, _)| path.ends_with("src")) {
        let files = rust_files(package);
        assert!(!files.is_empty(), "no files in {package}");
        wrong.extend(files.iter().flat_map(|(path, text)| upward_packages(path, text)));
    }
    for folder in ["crates", "conformance", "python"] {
        let files = rust_files(folder);
        assert!(!files.is_empty(), "no packages in {folder}");
        wrong.extend(files.iter().flat_map(|(path, text)| reaches_into_the_library(path, text)));
    }
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz"] {
        let files = rust_files(folder);
        assert!(!files.is_empty(), "no files in {folder}");
        wrong.extend(files.iter().filter_map(|(path, text)| imports_a_satellite(path, text)));
    }
    assert_none(&wrong);
}

#[test]
fn upward_imports_are_found() {
    let wrong = |path: &str, text: &str| upward_imports(Path::new(path), text).len();
    assert_eq!(wrong("hash/murmur3.rs", "use crate::btc::script::ops;"), 1);
    assert_eq!(wrong("simd/mod.rs", "use crate::hash::murmur3_32;"), 1);
    assert_eq!(wrong("eth/bloom.rs", "use crate::{eth::scan, btc::script};"), 1);
    assert_eq!(wrong("eth/bloom.rs", "fn f() { crate::btc::f() }"), 1);
    assert_eq!(wrong("btc/script.rs", "use crate::{\n    eth::{bloom, scan},\n    btc,\n};"), 1);
    assert_eq!(wrong("btc/bip37/mod.rs", "use super::super::eth::bloom;"), 1);
    assert_eq!(wrong("btc/bip37/payload.rs", "use super::super::super::eth;"), 1);
    assert_eq!(wrong("hash/mod.rs", "use super::btc;"), 1);
    assert_eq!(wrong("wallet/mod.rs", ""), 1, "a module without a layer");

    assert_eq!(wrong("btc/script.rs", "use crate::{btc::bip37};"), 0);
    assert_eq!(wrong("btc/bip37/payload.rs", "use super::super::script::ops;"), 0);
    assert_eq!(wrong("btc/bip37/mod.rs", "use super::script::ops;"), 0);
    assert_eq!(wrong("hash/mod.rs", "// not crate::btc\nconst S: &str = \"crate::btc\";"), 0);
    assert_eq!(wrong("lib.rs", "pub use crate::btc::bip37;"), 0);

    let wrong = |path: &str, text: &str| upward_packages(Path::new(path), text).len();
    assert_eq!(wrong("crates/lanes/src/hash/mod.rs", "use chainsieve::btc;"), 1);
    assert_eq!(wrong("crates/filter/src/any.rs", "use chainsieve::hash;"), 1);
    assert_eq!(wrong("src/btc/script.rs", "use chainsieve_client::Client;"), 1);
    assert_eq!(wrong("src/btc/script.rs", "use chainsieve_filter::Filter;"), 1);
    assert_eq!(wrong("src/lib.rs", "pub use chainsieve_filter as filter;"), 0);
    assert_eq!(wrong("crates/client/src/lib.rs", "use chainsieve_lanes::simd;"), 1);
    assert_eq!(wrong("crates/filter/src/any.rs", "use chainsieve_lanes::simd;"), 0);
    assert_eq!(wrong("crates/filter/src/any.rs", "// of chainsieve_client"), 0);
    assert_eq!(
        wrong("crates/client/src/lib.rs", "pub use chainsieve; use chainsieve_client::A;"),
        0
    );

    assert_eq!(wrong("crates/report/src/page.rs", "use chainsieve_provider::Stop;"), 1);

    let tests = Path::new("crates/cli/tests/cli/main.rs");
    let wrong = |text| imports_a_satellite(tests, text).is_some();
    assert!(wrong("use chainsieve_conformance::Pack;") && wrong("chainsieve_vectors::FILES"));
    assert!(!wrong("use chainsieve::btc; // not chainsieve_vectors"));

    let includes = "#[path = \"../../../src/btc/script.rs\"]\nmod script;";
    assert_eq!(reaches_into_the_library(Path::new("crates/cli/src/main.rs"), includes).len(), 1);
}

#[test]
fn unsafe_is_in_lanes_and_where_it_has_its_reasons() {
    let folders = ["src", "crates", "conformance", "examples", "python"];
    let files = folders.into_iter().flat_map(rust_files);
    let wrong: Vec<_> = files.flat_map(|(path, text)| unsafe_outside_lanes(&path, &text)).collect();
    assert_none(&wrong);

    let text = "let x = unsafe { *p };";
    assert_eq!(unsafe_outside_lanes(Path::new("src/hash/murmur3.rs"), text).len(), 1);
    assert_eq!(unsafe_outside_lanes(Path::new("crates/lanes/src/simd/avx2.rs"), text).len(), 0);
    assert_eq!(unsafe_outside_lanes(Path::new("python/src/keys/arrow.rs"), text).len(), 0);
    assert_eq!(unsafe_outside_lanes(Path::new("python/src/eth.rs"), text).len(), 1);
    let line =
        "// SAFETY: sealed\n#[expect(unsafe_code, reason = \"\")]\nlet x = unsafe { m() };\n";
    assert_eq!(unsafe_outside_lanes(Path::new(MAPS), line).len(), 0);
    assert_eq!(unsafe_outside_lanes(Path::new(MAPS), &line.repeat(2)).len(), 1);
    assert_eq!(unsafe_outside_lanes(Path::new(MAPS), text).len(), 1);
    assert_eq!(unsafe_outside_lanes(Path::new("crates/cli/src/eth/mapped.rs"), line).len(), 1);
    let prose = "// unsafe\nconst S: &str = \"unsafe\"; #![deny(unsafe_code)]";
    assert_eq!(unsafe_outside_lanes(Path::new("src/lib.rs"), prose).len(), 0);
}

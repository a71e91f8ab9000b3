//! Programs of the repository that tests of other packages run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::Value;

/// Returns the path of a program of the workspace at the root, which is built unless it is up to date.
///
/// `target` chooses the program as Cargo's options do: `["--bin", name]` or `["--example", name]`.
///
/// # Panics
/// If the program cannot be built.
pub fn built(package: &str, target: [&str; 2]) -> PathBuf {
    built_in("", package, target)
}

/// Returns the path of a program of the workspace in a folder of the repository, like [`built`].
///
/// # Panics
/// If the program cannot be built.
pub fn built_in(workspace: &str, package: &str, target: [&str; 2]) -> PathBuf {
    let [kind, name] = target;
    let own = env::current_exe().expect("a test has a path");
    let folder = own.parent().and_then(Path::parent).expect("target/debug/deps");
    let path =
        if kind == "--example" { folder.join("examples").join(name) } else { folder.join(name) };
    // Cargo builds the programs of a workspace together with its tests, but not if only some
    // packages are tested.
    if is_fresh(&path) { path } else { build(workspace, package, target) }
}

/// Builds a program, and returns the path that Cargo reports: the running test may have another
/// profile.
fn build(workspace: &str, package: &str, [kind, name]: [&str; 2]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "--message-format", "json-render-diagnostics"]);
    build.arg("--manifest-path").arg(root.join(workspace).join("Cargo.toml"));
    // What tests have compiled is not compiled again.
    build.args(["--profile", "test", "--package", package, kind, name]).stderr(Stdio::inherit());
    // Variables that `cargo test` sets for a package would make Cargo rebuild what depends on them.
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| of_package(name)) {
        build.env_remove(name);
    }
    let output = build.output().expect("cargo runs");
    assert!(output.status.success(), "{name} is not built");
    let path = output.stdout.split(|byte| *byte == b'\n').find_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let is_program = message["target"]["name"] == *name;
        message["executable"].as_str().filter(|_| is_program).map(PathBuf::from)
    });
    path.expect("Cargo reports the program")
}

/// Returns `true` if a program is not older than its sources, which Cargo lists in a file next to
/// the program.
fn is_fresh(built: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let Some(made) = changed(built) else { return false };
    let Ok(list) = fs::read_to_string(built.with_extension("d")) else { return false };
    let Some((_, sources)) = list.split_once(": ") else { return false };
    // In this list, a space within a path is written as "\ ".
    let sources = sources.trim().replace("\\ ", "\0");
    let mut sources = sources.split(' ').map(|path| path.replace('\0', " "));
    sources.all(|path| changed(Path::new(&path)).is_some_and(|at| at <= made))
}

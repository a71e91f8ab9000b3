//! Runs the examples and checks what they print.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Runs an example and returns what it prints.
fn run(name: &str) -> String {
    // Cargo builds the examples together with the tests, but not if only one test is requested.
    let own = env::current_exe().expect("a test has a path");
    let built = own.parent().expect("in a folder").with_file_name("examples").join(name);
    let mut command = if is_fresh(&built) {
        Command::new(built)
    } else {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["run", "--quiet", "--package", "chainsieve-client", "--example", name]);
        cargo
    };
    let output = command.output().expect("the example can be started");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {error}");
    String::from_utf8(output.stdout).expect("text")
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

#[test]
fn a_light_wallet_finds_its_payment() {
    assert_eq!(run("light_wallet"), "50 BTC received\n");
}

#[test]
fn bdk_wallet_is_kept_up_to_date() {
    let printed = run("bdk_wallet");
    let lines: Vec<_> = printed.lines().collect();
    let [past, payment, reorganised] = lines.as_slice() else { panic!("{printed}") };
    assert_eq!(*past, "past: 50 BTC");
    // 50 BTC minus the payment of 0.01 BTC and a fee.
    assert!(payment.starts_with("after a payment: 49.9899"), "{payment}");
    assert_eq!(*reorganised, "after a reorganisation: 0 BTC confirmed");
}

#[test]
fn ldk_is_told_of_what_it_registers() {
    let printed = run("ldk_confirm");
    let lines: Vec<_> = printed.lines().collect();
    let last = lines.last().copied();
    assert!(lines.contains(&"best block 1, 1 transactions"), "{printed}");
    assert_eq!(last, Some("best block 2, 0 transactions"));
}

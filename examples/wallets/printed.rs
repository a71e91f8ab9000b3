//! Runs the programs and checks what they print.

use std::process::Command;

/// Runs a program and returns the lines that it prints.
fn run(program: &str) -> Vec<String> {
    let output = Command::new(program).output().expect("the program starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(String::from).collect()
}

#[test]
fn bdk_wallet_is_kept_up_to_date() {
    let lines = run(env!("CARGO_BIN_EXE_bdk_wallet"));
    let [past, payment, reorganised] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(past, "past: 50 BTC");
    // 50 BTC minus the payment of 0.01 BTC and a fee.
    assert!(payment.starts_with("after a payment: 49.9899"), "{payment}");
    assert_eq!(reorganised, "after a reorganisation: 0 BTC confirmed");
}

#[test]
fn a_stored_wallet_goes_on_after_a_restart() {
    let lines = run(env!("CARGO_BIN_EXE_bdk_stored"));
    let first = ["first run: 1 hit, 50 BTC", "second run: 0 hits, 50 BTC"];
    assert_eq!(lines[..2], first);
    assert_eq!(lines[2..], ["address 60: 1 hit, 100 BTC", "third run: 0 hits, 100 BTC"]);
}

#[test]
fn ldk_is_told_of_what_it_registers() {
    let lines = run(env!("CARGO_BIN_EXE_ldk_confirm"));
    assert!(lines.iter().any(|line| line == "best block 1, 1 transactions"), "{lines:?}");
    assert_eq!(lines.last().expect("a line"), "best block 2, 0 transactions");
}

#[test]
fn a_file_of_filters_brings_a_wallet_up_to_date() {
    let lines = run(env!("CARGO_BIN_EXE_scan_for_bdk"));
    let asked = "255 filters asked, blocks fetched: {9, 170, 181, 182, 183, 248}";
    assert_eq!(lines, [asked, "6 transactions, 18 BTC"]);
}

#[test]
fn spends_of_registered_outputs_are_found() {
    let lines = run(env!("CARGO_BIN_EXE_watch_for_ldk"));
    // The first payment, and the one of block 248.
    for spend in [
        "block 170: f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16 spends 1",
        "block 248: 828ef3b079f9c23829c56fe86e85b4a69d9e06e5b54ea597eef5fb3ffef509fe spends 1",
    ] {
        assert!(lines.iter().any(|line| line == spend), "{lines:?}");
    }
}

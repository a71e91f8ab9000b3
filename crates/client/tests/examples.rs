//! Runs the example and checks what it prints.

use std::process::Command;

use testkit::program::built;

#[test]
fn a_light_wallet_finds_its_payment() {
    let program = built("chainsieve-client", ["--example", "light_wallet"]);
    let output = Command::new(program).output().expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"50 BTC received\n");
}

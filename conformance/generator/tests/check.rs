//! The vectors are what the generator writes from the corpus.

use std::env;
use std::process::Command;

#[test]
fn the_vectors_are_what_the_generator_writes() {
    if env::var_os("CHAINSIEVE_CORPUS").is_none() {
        assert!(
            env::var_os("CI").is_none(),
            "CHAINSIEVE_CORPUS must name the folder of the corpus"
        );
        println!("no corpus");
        return;
    }
    let generator = env!("CARGO_BIN_EXE_conformance-generator");
    let status = Command::new(generator).arg("--check").status().expect("the generator starts");
    assert!(status.success(), "{status}");
}

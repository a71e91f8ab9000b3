//! Tests of the binary as users call it: each command on real data, with wrong inputs, and its exit
//! codes.

mod cf;
mod eth;
mod exit_codes;
mod filter;
mod mistakes;
mod terminal;
mod test_node;
mod transcripts;
mod watch;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use chainsieve::bitcoin::Block;
use chainsieve::bitcoin::consensus::encode::{deserialize_hex, serialize_hex};
use chainsieve::btc::bip37::{BlockElements, MerkleBlock};
use serde_json::{Value, json};

/// The extended public key of BIP84's test wallet.
const XPUB: &str = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";
const YES: i32 = 0;
const NO: i32 = 1;
const USAGE: i32 = 2;
const WRONG: i32 = 3;
const UNDECIDED: i32 = 4;
const BAD_INPUT: i32 = 5;

struct Output {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Output {
    /// Checks the exit code.
    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        self
    }

    /// Returns the lines of standard output, each of which is JSON.
    fn lines(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }
}

/// Returns the command, without the environment variables that name a provider or a proxy.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chainsieve"));
    // Providers are simulated on loopback, which a proxy of the environment can't reach.
    for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy).env_remove(proxy.to_uppercase());
    }
    command.env_remove("ETH_RPC_URL");
    command
}

fn run_with(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = binary()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // A command that does not read its input may exit before all of the input is written.
    drop(child.stdin.take().expect("piped").write_all(stdin));
    let output = child.wait_with_output().expect("the binary ends");
    Output {
        code: output.status.code().expect("no signal"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

/// Runs a command with `--json`, checks its exit code, and returns its output.
fn json_of(args: &[&str], code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat());
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).expect("--json prints JSON")
}

/// Checks that a command fails with an error that contains each of `words`, and prints nothing to
/// standard output.
fn fails(args: &[&str], stdin: &[u8], code: i32, words: &[&str]) {
    let output = run_with(args, stdin);
    assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "{args:?}");
    for word in words {
        assert!(output.stderr.contains(word), "{args:?}: {word:?} is not in {}", output.stderr);
    }
}

fn fixture(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bitcoin").join(name);
    serde_json::from_slice(&fs::read(path).expect("fixture")).expect("fixture is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn block_757753() -> String {
    text(&fixture("blocks/mainnet_757753.json")["block"]).to_owned()
}

/// Returns the merkleblock of these transactions of a block, and the transactions without witness.
fn merkle_block(block: &str, indices: &[u32]) -> (String, Vec<String>) {
    let elements = BlockElements::from_raw(&hex::decode(block).expect("hex")).expect("a block");
    let made = MerkleBlock::new(elements.header(), elements.txids(), indices).expect("in order");
    let block: Block = deserialize_hex(block).expect("a block");
    let sent = indices.iter().map(|&index| {
        let mut transaction = block.txdata[index as usize].clone();
        transaction.input.iter_mut().for_each(|input| input.witness.clear());
        serialize_hex(&transaction)
    });
    (hex::encode(made.encode()), sent.collect())
}

/// A temporary file for one test, which is removed afterwards.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, contents: impl AsRef<[u8]>) -> Self {
        let file = Self::absent(name);
        fs::write(&file.0, contents).expect("temporary file");
        file
    }

    fn absent(name: &str) -> Self {
        let name = format!("chainsieve-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("text")
    }

    fn read(&self) -> String {
        fs::read_to_string(&self.0).expect("written")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Feeds prefixes of each kind of input to every command: the result is an exit code, never a
/// panic.
#[test]
fn no_input_panics() {
    let vectors = fixture("bip37_vectors.json");
    let payloads = [
        "03614e9b050000000000000001",
        text(&vectors["transactions"]["funding"]["hex"]),
        text(
            &vectors["blocks"]["000000000000dab0130bbcc991d3d7ae6b81aa6f50a798888dfe62337458dc45"],
        ),
    ];
    for payload in payloads {
        for end in (0..payload.len()).step_by(26) {
            let cut = &payload.as_bytes()[..end];
            for args in [
                &["btc", "bloom", "info", "-"][..],
                &["btc", "match", "00010000000000000001", "-"],
                &["btc", "prove", "verify", "-", "--policy", "core"],
                &["btc", "bloom", "new", "-"],
            ] {
                let output = run_with(args, cut);
                assert!((0..=5).contains(&output.code), "{args:?} {end}: {}", output.stderr);
                assert!(!output.stderr.contains("panicked"), "{args:?} {end}: {}", output.stderr);
            }
        }
    }
}

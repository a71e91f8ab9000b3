//! `eth audit --rpc` against each lie of JSON-RPC. It needs no software of others.

use chainsieve_conformance::serve::{Protocol, ethereum, lies};
use libtest_mimic::Trial;

use crate::command;
use crate::harness::{Scene, live};

pub(crate) fn tests() -> Vec<Trial> {
    vec![live("eth_audit_is_not_deceived", &[], is_not_deceived)]
}

const YES: i32 = 0;
const WRONG: i32 = 3;
const UNDECIDED: i32 = 4;
const BAD_INPUT: i32 = 5;

/// The command reaches the verdict about each lie.
fn is_not_deceived(scene: &Scene) {
    let range = ["--from", "17686111", "--to", "17686112"];
    for lie in lies().filter(|lie| lie.protocol == Protocol::EthereumJsonRpc) {
        let node = ethereum::LyingNode::builder().lie(lie.id).expect("a lie");
        let node = node.start().expect("started");
        let url = node.url();
        let mut args = vec!["eth", "audit", "--rpc", &url, "--retries", "0"];
        args.extend(range);
        if lie.id == "eth-slow" {
            args.extend(["--timeout", "1"]);
        }
        let ended = command::run(scene, &args);
        assert!(node.told() > 0, "{}", lie.id);
        let expected: &[i32] = match lie.id {
            id if id.starts_with("eth-log") => &[WRONG],
            // False evidence is refused, so nothing is decided.
            id if id.starts_with("eth-receipt") || id.starts_with("eth-header") => {
                &[UNDECIDED, BAD_INPUT]
            }
            _ => &[BAD_INPUT],
        };
        assert!(expected.contains(&ended.code), "{}: {}{}", lie.id, ended.stdout, ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}: {}", lie.id, ended.stderr);
    }
    let node = ethereum::LyingNode::builder().start().expect("started");
    let url = node.url();
    let args = [&["eth", "audit", "--rpc", &url][..], &range].concat();
    assert_eq!(command::run(scene, &args).code, YES);
}

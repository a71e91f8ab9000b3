//! `chainsieve-conformance audit-node` against nodes of others. anvil keeps the rules as alloy reads them.
//! ganache 7.9.2 answers the topics `[[null]]` with no logs; hardhat 2.29.1 refuses them, which is
//! no difference, and answers an empty list of topics with no logs.

use chainsieve::alloy_primitives::B256;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::anvil::shapes_of;
use crate::command;
use crate::ethereum::{Log, runner, script};
use crate::evm_nodes::{EvmNode, Program};
use crate::harness::{Scene, live};
use crate::peers::Need;

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        live("audit_node_anvil_keeps_the_rules", &[Need::Anvil], anvil),
        live("audit_node_hardhat", &[Need::Hardhat], |scene| other(scene, Program::Hardhat)),
        live("audit_node_ganache", &[Need::Ganache], |scene| other(scene, Program::Ganache)),
    ]
}

fn audit(scene: &Scene, url: &str, to: u64, code: i32) -> Value {
    let to = to.to_string();
    let arguments = ["audit-node", "--ethereum", url, "--from", "0", "--to", &to, "--json"];
    let ended = command::run_conformance(scene, &arguments);
    assert_eq!(ended.code, code, "{}{}", ended.stdout, ended.stderr);
    ended.json()
}

fn anvil(scene: &Scene) {
    let (node, _) = shapes_of(scene, 31, &[]);
    let report = audit(scene, node.rpc().url(), node.height(), 0);
    assert_eq!(report["blocks"], node.height() + 1);
    assert_eq!(report["notes"], json!(["queries that end in \"any\": alloy's rules"]));
}

fn other(scene: &Scene, program: Program) {
    let node = EvmNode::start(scene, program);
    let contract = node.create(&runner(true));
    for count in 0..=4_u8 {
        let topics = (0..count).map(|topic| B256::repeat_byte(topic + 1)).collect();
        let logs = [Log { topics, data: vec![7] }, Log { topics: Vec::new(), data: Vec::new() }];
        node.call(contract, &script(&logs, false));
    }
    let report = audit(scene, node.rpc().url(), node.height(), 3);
    let second = json!(B256::repeat_byte(2));
    let expected = match program {
        Program::Hardhat => vec![json!([[]]), json!([[], second])],
        Program::Ganache => vec![json!([[null]])],
    };
    let notes = report["notes"].as_array().expect("a list").iter();
    let mut notes = notes.map(|note| note.as_str().expect("text"));
    let is_refused = notes.any(|note| note.starts_with("null among alternatives: refused"));
    assert_eq!(is_refused, program == Program::Hardhat, "{report:#}");
    let mut found = Vec::new();
    for difference in report["differences"].as_array().expect("a list") {
        assert_eq!(difference["rule"], "logs.node", "{difference}");
        found.push(difference["query"]["topics"].clone());
    }
    let is_found = |topics: &Value| found.contains(topics);
    assert!(expected.iter().all(is_found) && found.len() == expected.len(), "{report:#}");
}

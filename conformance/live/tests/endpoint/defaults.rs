//! Clients with their defaults: many calls at once, calls that cannot be proven, and a subscription that the
//! endpoint ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::clients::{self, Client};
use super::{Endpoint, questions};
use crate::anvil::number;
use crate::command::Lines;
use crate::ethereum::Step;
use crate::harness::{Scene, wait_until};
use crate::peers;

/// Returns the command that runs the script of defaults.
fn script(client: Client, task: &str, arguments: &[&str]) -> Command {
    if client == Client::Web3Py {
        let task = if task == "ask" { "defaults" } else { task };
        return client.script(&[&[task], arguments].concat());
    }
    let library = if client == Client::Viem { "viem" } else { "ethers" };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/endpoint/defaults.cjs");
    let mut command = clients::node(library, &path);
    command.args([task, library]).args(arguments);
    command
}

/// Each client gets what the node has, by each of its transports.
pub(super) fn ask(scene: &Scene, client: Client) {
    let (node, _) = questions::chain(scene, 47);
    let endpoint =
        Endpoint::start(scene, node.rpc().url(), &["--trust-head", "--unverified", "pass"]);
    endpoint.until_head(&node);
    let address = json!(node.accounts()[0]);
    let address = address.as_str().expect("text");
    let script = script(client, "ask", &[endpoint.http(), &endpoint.ws(), address]);
    let lines = clients::run(scene, script);
    let of_node = |method: &str, params: Value| node.rpc().call(method, &params);
    let hashes: Value = (0..150).map(|number| json!(node.hash_at(number % 20))).collect();
    let transports = if client == Client::Viem { 3 } else { 2 };
    assert_eq!(lines.len(), transports, "{lines:?}");
    for line in lines {
        assert_eq!(line["blocks"], hashes, "{}", line["via"]);
        assert_eq!(line["balance"], of_node("eth_getBalance", json!([address, "latest"])));
        assert_eq!(line["nonce"], of_node("eth_getTransactionCount", json!([address, "latest"])));
        assert_eq!(line["code"], of_node("eth_getCode", json!([address, "latest"])));
        assert_eq!(line["price"], of_node("eth_gasPrice", json!([])));
    }
    assert!(endpoint.metric("chainsieve_unverified_calls_total") >= 4 * transports as u64);
    endpoint.end();
}

/// The Python programs of the README and of the endpoint's page get what the node has.
pub(super) fn programs_of_the_pages(scene: &Scene) {
    let (node, chain) = questions::chain(scene, 49);
    let endpoint = Endpoint::of(scene, &node);
    let contract = chain.runners[0].to_string();
    let run = |page: &str, language: &str, more: &str| {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
        let text = fs::read_to_string(text).expect("a page");
        let begin = format!("```{language}\n");
        let programs = text.split(&begin).skip(1).map(|block| {
            let (program, _) = block.split_once("\n```").expect("its end");
            program
        });
        let program = programs.chain([more]).collect::<Vec<_>>().join("\n");
        let program = program
            .replace("http://127.0.0.1:8546", endpoint.http())
            .replace("0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2", &contract)
            .replace("26_000_000n", "0n")
            .replace("26_001_000n", &format!("{}n", node.height()));
        assert!(program.contains(endpoint.http()) && program.contains(&contract), "{program}");
        let is_python = language == "python";
        let path = scene.path(if is_python { "page.py" } else { "page.mjs" });
        fs::write(&path, program).expect("written");
        let mut command =
            if is_python { clients::python(&path) } else { clients::node("viem", &path) };
        let mut process = scene.start("client", &mut command);
        let status = process.wait();
        assert!(status.success(), "{page}: {status}: {}", process.log());
        let printed = fs::read_to_string(process.output()).expect("text");
        printed.lines().map(|line| line.replace(" 0x", " ")).collect::<Vec<_>>()
    };
    let head = node.height();
    let of_node = |first: u64| {
        let filter = json!({
            "address": contract, "fromBlock": format!("{first:#x}"), "toBlock": format!("{head:#x}"),
        });
        let line = |log: &Value| {
            let hash = log["transactionHash"].as_str().expect("a hash").trim_start_matches("0x");
            format!("{} {} {hash}", number(&log["blockNumber"]), number(&log["logIndex"]))
        };
        node.logs(&filter).iter().map(line).collect::<Vec<_>>()
    };
    let last_ten = of_node(head - 9);
    assert!(last_ten.len() >= 5, "{last_ten:?}");
    assert_eq!(run("README.md", "python", ""), last_ten);
    let more = format!(
        "for log in all_logs(node, '{contract}', 0, {head}, 7):\n    \
         print(log['blockNumber'], log['logIndex'], log['transactionHash'].hex())\n"
    );
    let mut expected = vec![head.to_string()];
    expected.extend(of_node(0));
    assert_eq!(run("docs/endpoint.md", "python", &more), expected);
    // Node.js finds the modules that a program imports in a folder beside the program.
    let modules = peers::modules_with("viem").expect("the test declares that it needs it");
    std::os::unix::fs::symlink(modules, scene.path("node_modules")).expect("a link");
    assert_eq!(run("docs/endpoint.md", "js", ""), of_node(0));
    endpoint.end();
}

/// A subscription that has a gap ends with its connection, and the client goes on with a new one.
pub(super) fn ended(scene: &Scene, client: Client) {
    let (node, mut chain) = questions::chain(scene, 48);
    let snapshot = node.rpc().call("evm_snapshot", &json!([]));
    node.mine(300);
    let endpoint = Endpoint::of(scene, &node);
    let mut process = scene.start("client", &mut script(client, "follow", &[&endpoint.ws()]));
    let mut lines = Lines::of(process.output());
    wait_until("a subscription", || endpoint.metric("chainsieve_subscriptions") > 0);
    chain.mine(&node, Step::EveryAddress);
    endpoint.until_head(&node);
    let mut until_told = |what: &str, height: u64| {
        wait_until(what, || {
            assert!(process.ended().is_none(), "{}", process.log());
            lines.read().iter().any(|line| line["number"] == height)
        });
    };
    until_told("the new block", node.height());
    // Another branch, which leaves the chain below all headers that the endpoint has.
    assert_eq!(node.rpc().call("evm_revert", &json!([snapshot])), json!(true));
    node.mine(400);
    endpoint.until_head(&node);
    wait_until("a new subscription", || endpoint.metric("chainsieve_subscriptions") > 0);
    // A client connects again after a while, and is told of what comes then.
    wait_until("a block of the new branch", || {
        node.mine(1);
        endpoint.until_head(&node);
        assert!(process.ended().is_none(), "{}", process.log());
        lines.read().iter().any(|line| line["number"] == node.height())
    });
    endpoint.end();
}

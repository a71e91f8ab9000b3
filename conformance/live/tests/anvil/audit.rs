//! `eth audit --rpc` against an honest anvil, and against two providers.

use chainsieve_conformance::serve::json_rpc::Fate;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::Anvil;
use crate::command::{self, Ended};
use crate::ethereum::{Chain, Query, STEPS};
use crate::harness::{Scene, live, rpc_proxy};
use crate::peers::Need;

pub(super) fn tests() -> Vec<Trial> {
    let needs = &[Need::Anvil];
    vec![
        live("anvil_audit_finds_the_truth_complete", needs, truth),
        live("anvil_audit_compares_two_providers", needs, two),
    ]
}

/// Audits the answer to a query over the blocks 0 to `head`, with `more` arguments.
pub(super) fn audit(
    scene: &Scene,
    urls: &[&str],
    query: &Query,
    head: u64,
    more: &[&str],
) -> Ended {
    let (flags, head) = (query.flags(), head.to_string());
    let mut arguments = vec!["eth", "audit", "--from", "0", "--to", &head, "--unfinalized"];
    // anvil builds headers and receipts by mainnet's rules.
    arguments.extend(["--assume-bloom", "exact", "--assume-receipts", "every-log", "--json"]);
    for url in urls {
        arguments.extend(["--rpc", url]);
    }
    arguments.extend(flags.iter().map(String::as_str));
    command::run(scene, &[&arguments[..], more].concat())
}

/// Verifies a certificate that contains all evidence, in the role of a user who trusts a block hash
/// and knows the query.
pub(super) fn verify(
    scene: &Scene,
    certificate: &str,
    query: &Query,
    head: u64,
    anchor: &str,
) -> Ended {
    let (flags, head) = (query.flags(), head.to_string());
    let mut arguments = vec!["eth", "verify-certificate", certificate, "--anchor", anchor];
    arguments.extend(["--from", "0", "--to", &head, "--json"]);
    arguments.extend(["--assume-bloom", "exact", "--assume-receipts", "every-log"]);
    arguments.extend(flags.iter().map(String::as_str));
    command::run(scene, &arguments)
}

/// Returns a chain with blocks of every shape.
pub(super) fn shapes(scene: &Scene, seed: u64) -> (Anvil, Chain) {
    shapes_of(scene, seed, &[])
}

/// Returns a chain with blocks of every shape, on a node that is started with these options.
pub(crate) fn shapes_of(scene: &Scene, seed: u64, options: &[&str]) -> (Anvil, Chain) {
    let node = Anvil::start(scene, options);
    let mut chain = Chain::begin(&node, seed);
    for step in STEPS {
        chain.mine(&node, step);
    }
    (node, chain)
}

fn truth(scene: &Scene) {
    let (node, chain) = shapes(scene, 6);
    let head = node.height();
    let anchor = node.hash_at(head).to_string();
    let certificate = scene.path("certificate");
    let certificate = certificate.to_str().expect("text");
    for query in [Query::all(&chain), vec![Query::everything()]].concat() {
        let expected = node.logs(&query.filter(0, head)).len();
        let ended = audit(
            scene,
            &[node.rpc().url()],
            &query,
            head,
            &["--anchor", &anchor, "--certificate", certificate, "--embed", "--force"],
        );
        assert_eq!(ended.code, 0, "{query:?}: {}{}", ended.stdout, ended.stderr);
        let report = ended.json();
        assert_eq!(
            [&report["status"], &report["logs"], &report["anchored_to"], &report["blocks"]["all"]],
            [&json!("complete"), &json!(expected), &json!(head), &json!(head + 1)],
            "{query:?}"
        );
        let verified = verify(scene, certificate, &query, head, &anchor);
        assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);

        // Without an anchor, the result depends on the provider's own chain, and the report says
        // so.
        let ended = audit(scene, &[node.rpc().url()], &query, head, &[]);
        let report = ended.json();
        assert_eq!(
            (&report["anchored_to"], &report["anchor_from"]),
            (&Value::Null, &json!("provider"))
        );
    }
}

fn two(scene: &Scene) {
    let (node, _) = shapes(scene, 7);
    let head = node.height();
    let query = Query::everything();
    let truth = node.logs(&query.filter(0, head));
    let url = node.rpc().url().to_owned();
    let ended = audit(scene, &[&url, &url], &query, head, &[]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let report = ended.json();
    assert_eq!(
        (&report["compared"]["same"], &report["anchor_agreed"]),
        (&json!(true), &json!(true)),
        "{}",
        report["compared"]
    );

    // One of the two providers omits a log, and the report names this provider.
    let omitted = truth[truth.len() / 2].clone();
    for liar in ["A", "B"] {
        let omitted = omitted.clone();
        let lying = rpc_proxy(node.rpc(), move |method, _, answer| {
            if let (true, Some(logs)) = (method == "eth_getLogs", answer["result"].as_array_mut()) {
                logs.retain(|log| log != &omitted);
            }
            Fate::Answered
        });
        let lying = lying.url();
        let urls = if liar == "A" { [&*lying, &*url] } else { [&*url, &*lying] };
        let ended = audit(scene, &urls, &query, head, &[]);
        assert_eq!(ended.code, 3, "{}{}", ended.stdout, ended.stderr);
        let report = ended.json();
        for audit in report["audits"].as_array().expect("two audits") {
            let lies = audit["provider"]["name"] == liar;
            assert_eq!(audit["status"], if lies { "wrong" } else { "complete" }, "{audit}");
            let findings = audit["findings"].as_array().expect("findings");
            assert_eq!(findings.len(), usize::from(lies), "{findings:?}");
            for finding in findings {
                assert_eq!(finding["kind"], "omitted_log");
                assert_eq!(finding["provider"], liar);
            }
        }
        let only = if liar == "A" { "only_b" } else { "only_a" };
        assert_eq!(report["compared"][only].as_array().map(Vec::len), Some(1), "{report}");
    }
}

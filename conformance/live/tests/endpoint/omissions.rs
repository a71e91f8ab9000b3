//! A node that omits logs: clients get them all the same, and the counters say what it omitted.

use chainsieve_conformance::serve::json_rpc::{Fate, Proxy};
use serde_json::{Value, json};
use testkit::eth::http_rpc::HttpRpc;

use super::clients::{self, Client};
use super::truth::Truth;
use super::{Endpoint, questions};
use crate::anvil::{Anvil, number};
use crate::harness::{Scene, rpc_proxy, wait_until};

const OMITTED: &str = "chainsieve_upstream_omitted_logs_total";
const COMPARED: &str = "chainsieve_upstream_compared_answers_total";

/// A chain behind a proxy that omits the logs of one block from every answer about more than one
/// block.
struct Omitting {
    node: Anvil,
    proxy: Proxy,
    truth: Truth,
    /// Number of omitted logs.
    omitted: u64,
    /// The first omitted log.
    first: Value,
}

fn omitting(scene: &Scene) -> Omitting {
    let (node, _) = questions::chain(scene, 43);
    let truth = Truth::of(&node);
    let block = truth.blocks.iter().rev().find(|block| block.logs().count() > 3).expect("logs");
    let omitted = block.logs().count() as u64;
    let first = block.logs().next().expect("a log").clone();
    let number = block.json["number"].clone();
    let proxy = rpc_proxy(node.rpc(), move |method, parameters, answer| {
        let is_range = parameters[0]["fromBlock"] != parameters[0]["toBlock"];
        if let (true, Some(logs)) =
            (method == "eth_getLogs" && is_range, answer["result"].as_array_mut())
        {
            logs.retain(|log| log["blockNumber"] != number);
        }
        Fate::Answered
    });
    Omitting { node, proxy, truth, omitted, first }
}

/// Asks for all logs behind the proxy, and waits until the proxy's answer was compared.
fn ask(scene: &Scene, of: &Omitting) -> Endpoint {
    let endpoint = Endpoint::start(scene, &of.proxy.url(), &["--trust-head"]);
    endpoint.until_head(&of.node);
    let filter = json!({ "fromBlock": "0x0", "toBlock": format!("{:#x}", of.truth.height()) });
    let right: Value = of.truth.logs(&filter).into_iter().cloned().collect();
    let lying = HttpRpc::to(of.proxy.url()).call("eth_getLogs", &json!([filter]));
    let lying = lying.as_array().expect("logs").len() as u64;
    assert_eq!(lying + of.omitted, right.as_array().expect("logs").len() as u64, "the proxy omits");
    assert_eq!(endpoint.call("eth_getLogs", &json!([filter])), right);
    wait_until("a comparison", || endpoint.metric(COMPARED) > 0);
    endpoint
}

pub(super) fn counted(scene: &Scene) {
    let of = omitting(scene);
    let mut endpoint = ask(scene, &of);
    let upstream = endpoint.listening["upstreams"][0].as_str().expect("an upstream").to_owned();
    let labelled = format!("{OMITTED}{{upstream=\"{upstream}\"}}");
    assert_eq!(endpoint.metric(&labelled), of.omitted, "{labelled}");
    for other in ["altered", "invented"] {
        let name = format!("chainsieve_upstream_{other}_logs_total");
        assert_eq!(endpoint.metric(&name), 0, "{name}");
    }
    let line = endpoint.running.wait_for("a line", |line| line["kind"] == "wrong_logs");
    assert_eq!(line["upstream"], json!(upstream));
    assert_eq!(line["found"], json!({ "omitted": of.omitted, "altered": 0, "invented": 0 }));
    assert_eq!(line["block"], json!(number(&of.first["blockNumber"])));
    assert_eq!(line["log_index"], json!(number(&of.first["logIndex"])));
    // The other node of two has everything.
    let second = of.node.rpc().url().to_owned();
    let endpoint = Endpoint::start(scene, &of.proxy.url(), &["--trust-head", "--rpc", &second]);
    endpoint.until_head(&of.node);
    endpoint.call("eth_getLogs", &json!([{ "fromBlock": "0x0" }]));
    wait_until("both comparisons", || endpoint.metric(COMPARED) == 2);
    assert_eq!(endpoint.metric(OMITTED), of.omitted);
    endpoint.end();
}

/// The Python client of Prometheus, whose parser is strict, reads the same counters.
pub(super) fn parsed(scene: &Scene) {
    let of = omitting(scene);
    let endpoint = ask(scene, &of);
    let samples = clients::run(scene, Client::Web3Py.script(&["metrics", endpoint.http()]));
    let value = |name: &str, labels: Value| {
        let is_it = |sample: &&Value| sample["name"] == name && sample["labels"] == labels;
        let found: Vec<_> = samples.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{name} {labels}: {samples:?}");
        found[0]["value"].as_u64().expect("a number")
    };
    let upstream = &endpoint.listening["upstreams"][0];
    assert_eq!(value(OMITTED, json!({ "upstream": upstream })), of.omitted);
    let labels = json!({ "method": "eth_getLogs", "outcome": "ok" });
    assert_eq!(value("chainsieve_requests_total", labels), 1);
    assert_eq!(value("chainsieve_verified_head", json!({})), of.truth.height());
    endpoint.end();
}

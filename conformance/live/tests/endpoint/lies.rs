//! Nodes that lie in every way of the conformance vectors, and in ways that need more than one answer:
//! what leaves the endpoint is right, or an error, and an honest second node makes it right.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chainsieve_conformance::serve::ethereum::LyingNode;
use chainsieve_conformance::serve::ethereum::lies::LOG_LIES;
use chainsieve_conformance::serve::json_rpc::{Fate, Proxy};
use chainsieve_conformance::serve::{Protocol, Verdict, lies};
use serde_json::Value;
use testkit::eth::http_rpc::HttpRpc;

use super::truth::{Truth, check};
use super::{Endpoint, plain, questions};
use crate::anvil::Anvil;
use crate::ethereum::Chain;
use crate::harness::{Scene, rpc_proxy, wait_until};

/// One call in so many is asked.
const EVERY: usize = 9;

/// Calls with their right results.
type Calls = Vec<(&'static str, Value, Value)>;

/// A chain, its last block, and calls with the results that the chain's own blocks give.
struct Scenario {
    node: Anvil,
    chain: Chain,
    truth: Truth,
    anchor: String,
}

impl Scenario {
    fn new(scene: &Scene, seed: u64) -> Self {
        let (node, chain) = questions::chain(scene, seed);
        let truth = Truth::of(&node);
        let anchor = node.hash_at(truth.height()).to_string();
        Self { node, chain, truth, anchor }
    }

    /// Returns one call in `every`.
    fn calls(&self, every: usize) -> Calls {
        let filters = questions::filters(&self.truth, &self.chain);
        plain::all(&self.truth, &filters).into_iter().step_by(every).collect()
    }

    /// Starts an endpoint over a liar, and over the chain's own node if there is a second one.
    fn endpoint(&self, scene: &Scene, liar: &str, with_second: bool) -> Endpoint {
        let mut more = vec!["--anchor", &self.anchor, "--timeout", "5", "--retries", "0"];
        if with_second {
            more.extend(["--rpc", self.node.rpc().url()]);
        }
        Endpoint::start(scene, liar, &more)
    }

    /// Asks an endpoint over a liar alone: each answer is right, or an error. Returns the number of right
    /// answers, and of all. With `has_head`, the liar lets the head through.
    fn alone(&self, scene: &Scene, story: &str, liar: &str, has_head: bool) -> [usize; 2] {
        let endpoint = self.endpoint(scene, liar, false);
        if has_head {
            endpoint.until_ready();
        }
        let mut right = 0;
        let calls = self.calls(EVERY);
        let all = calls.len();
        for (method, params, result) in calls {
            match endpoint.rpc.try_call(method, &params) {
                // That a hash is in no block is the word of the node.
                Ok(Value::Null) if is_by_hash(&params) && !result.is_null() => {}
                Ok(found) => {
                    check(&format!("{story}: {method} {params}"), &found, &result);
                    right += 1;
                }
                Err(error) => {
                    let error: Value = serde_json::from_str(&error).expect("an error of JSON-RPC");
                    assert!(error["code"].is_i64(), "{story}: {error}");
                }
            }
        }
        endpoint.end();
        [right, all]
    }

    /// Asks an endpoint over a liar and an honest node. All answers are right, and nothing is counted
    /// against the honest node.
    fn with_second(&self, scene: &Scene, story: &str, liar: &str, every: usize) -> Endpoint {
        let endpoint = self.endpoint(scene, liar, true);
        endpoint.until_ready();
        for (method, params, result) in self.calls(every) {
            let found = endpoint.rpc.try_call(method, &params);
            let found = found.unwrap_or_else(|error| panic!("{story}: {method} {params}: {error}"));
            check(&format!("{story}: {method} {params}"), &found, &result);
        }
        let honest = &endpoint.listening["upstreams"][1];
        assert_eq!(wrong_logs(&endpoint, honest), 0, "{story}");
        for what in ["receipts", "transactions", "withdrawals"] {
            let counter = "chainsieve_upstream_wrong_blocks_total";
            let name = format!("{counter}{{upstream={honest},what=\"{what}\"}}");
            assert_eq!(endpoint.metric(&name), 0, "{story}: {name}");
        }
        endpoint
    }
}

/// Returns `true` if a call names a block or a transaction by its hash.
fn is_by_hash(params: &Value) -> bool {
    let named = params[0].get("blockHash").unwrap_or(&params[0]);
    named.as_str().is_some_and(|text| text.len() == 66)
}

/// Returns the number of wrong logs that are counted against a node.
fn wrong_logs(endpoint: &Endpoint, upstream: &Value) -> u64 {
    let counters = ["omitted", "altered", "invented"]
        .map(|what| format!("chainsieve_upstream_{what}_logs_total{{upstream={upstream}}}"));
    counters.iter().map(|name| endpoint.metric(name)).sum()
}

/// Every lie about what a chain contains, told by a node alone and beside an honest one.
pub(super) fn of_the_vectors(scene: &Scene) {
    let of = Scenario::new(scene, 48);
    let told_by = |id: &str| {
        let node = LyingNode::builder().upstream(of.node.rpc().url()).lie(id).expect("a lie");
        node.start().expect("a free port")
    };
    for lie in lies().filter(|lie| lie.protocol == Protocol::EthereumJsonRpc) {
        let is_failure = lie.expected.verdict != Verdict::MustDetect;
        let is_about_logs = LOG_LIES.iter().any(|told| told.lie.id == lie.id);
        let every = if is_failure { 40 } else { EVERY };
        if !is_failure {
            let [right, all] = of.alone(scene, lie.id, &told_by(lie.id).url(), is_about_logs);
            // The receipts are honest, and have every log.
            assert!(right == all || !is_about_logs, "{}: {right} of {all}", lie.id);
        }
        let liar = told_by(lie.id);
        let endpoint = of.with_second(scene, lie.id, &liar.url(), every);
        assert!(liar.told() > 0, "{} was never told", lie.id);
        if is_about_logs {
            let liar = &endpoint.listening["upstreams"][0];
            wait_until(lie.id, || wrong_logs(&endpoint, liar) > 0);
        }
        endpoint.end();
    }
}

/// What one answer cannot show: cut answers, a head that lags, blocks of two branches, and an answer
/// without an end.
pub(super) fn over_time(scene: &Scene) {
    let of = Scenario::new(scene, 49);
    let other = Anvil::start(scene, &[]);
    Chain::begin(&other, 50).mine(&other, crate::ethereum::Step::Several(2));
    other.mine(of.truth.height() - other.height() - 2);
    let [right, all] = of.alone(scene, "cut answers", &cut(of.node.rpc(), 3).url(), true);
    assert_eq!(right, all, "the receipts are whole");
    let mixed = || mixed(of.node.rpc(), other.rpc().url().to_owned());
    of.alone(scene, "two branches", &mixed().url(), false);
    let lagging = || lagging(of.node.rpc(), of.truth.height() - 4);
    of.alone(scene, "a lagging node", &lagging().url(), false);
    for (story, liar) in [
        ("cut answers", cut(of.node.rpc(), 3)),
        ("a lagging node", lagging()),
        ("two branches", mixed()),
    ] {
        of.with_second(scene, story, &liar.url(), 3).end();
    }
    let endless = endless();
    let endpoint = of.with_second(scene, "an endless answer", &endless, 40);
    if let Some((peak, _)) = endpoint.running.memory() {
        assert!(peak < 1 << 20, "{peak} KiB");
    }
    endpoint.end();
}

/// A node that sends no more than so many logs, without a word.
pub(super) fn cut(node: &HttpRpc, most: usize) -> Proxy {
    rpc_proxy(node, move |method, _, answer| {
        if let (true, Some(logs)) = (method == "eth_getLogs", answer["result"].as_array_mut()) {
            logs.truncate(most);
        }
        Fate::Answered
    })
}

/// A node that does not have the blocks after `head` yet.
fn lagging(node: &HttpRpc, head: u64) -> Proxy {
    let is_after = move |number: &Value| {
        let digits = number.as_str().and_then(|text| text.strip_prefix("0x"));
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).is_some_and(|it| it > head)
    };
    rpc_proxy(node, move |_, _, answer| {
        let result = &mut answer["result"];
        if let Some(list) = result.as_array_mut() {
            list.retain(|item| !is_after(&item["blockNumber"]));
        } else if is_after(&result["number"]) || is_after(&result["blockNumber"]) {
            *result = Value::Null;
        }
        Fate::Answered
    })
}

/// A node that answers every third call by another chain.
fn mixed(node: &HttpRpc, other: String) -> Proxy {
    let calls = AtomicUsize::new(0);
    let other = HttpRpc::to(other);
    rpc_proxy(node, move |method, params, answer| {
        if calls.fetch_add(1, Ordering::Relaxed) % 3 == 2
            && let Ok(result) = other.try_call(method, params)
        {
            answer["result"] = result;
        }
        Fate::Answered
    })
}

/// A node whose answers do not end. Returns its URL.
pub(super) fn endless() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The client closes the connection.
            std::thread::spawn(move || drop(pour(stream)));
        }
    });
    format!("http://{address}")
}

fn pour(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let _ = stream.read(&mut [0; 8192])?;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    stream.write_all(br#"{"jsonrpc":"2.0","id":1,"result":""#)?;
    loop {
        stream.write_all(&[b'0'; 8192])?;
    }
}

//! `eth serve` between unmodified clients of others and an anvil.
//!
//! Every answer is compared with anvil's own blocks and receipts, which are read from anvil directly,
//! one by one ([`truth`]): no code that verifies decides what is right.

mod alloy;
mod clients;
mod defaults;
mod hostile;
mod kills;
mod lies;
mod omissions;
mod plain;
mod questions;
mod truth;
mod watching;

use libtest_mimic::Trial;
use serde_json::{Value, json};
use testkit::eth::http_rpc::HttpRpc;
use ureq::Agent;

use crate::anvil::Anvil;
use crate::command::Running;
use crate::follow::EXACT;
use crate::harness::{Scene, live, wait_until};
use crate::peers::Need;

pub(crate) fn tests() -> Vec<Trial> {
    let (viem, ethers) = (&[Need::Anvil, Need::Viem], &[Need::Anvil, Need::Ethers]);
    let both = &[Need::Anvil, Need::Viem, Need::Ethers];
    let pages = &[Need::Anvil, Need::Web3Py, Need::Viem];
    let (web3, anvil) = (&[Need::Anvil, Need::Web3Py], &[Need::Anvil]);
    vec![
        live("eth_serve_answers_viem", viem, |scene| clients::ask(scene, clients::Client::Viem)),
        live("eth_serve_answers_ethers", ethers, |scene| {
            clients::ask(scene, clients::Client::Ethers);
        }),
        live("eth_serve_answers_web3_py", web3, |scene| {
            clients::ask(scene, clients::Client::Web3Py);
        }),
        live("eth_serve_answers_alloy", anvil, alloy::ask),
        live("eth_serve_answers_plain_calls", anvil, plain::calls),
        live("eth_serve_answers_up_to_the_anchor", anvil, plain::anchored),
        live("eth_serve_tells_viem_of_reorganisations", viem, |scene| {
            watching::watch(scene, clients::Client::Viem);
        }),
        live("eth_serve_tells_ethers_of_reorganisations", ethers, |scene| {
            watching::watch(scene, clients::Client::Ethers);
        }),
        live("eth_serve_tells_web3_py_of_reorganisations", web3, |scene| {
            watching::watch(scene, clients::Client::Web3Py);
        }),
        live("eth_serve_serves_viem_with_its_defaults", both, |scene| {
            defaults::ask(scene, clients::Client::Viem);
        }),
        live("eth_serve_serves_ethers_with_its_defaults", both, |scene| {
            defaults::ask(scene, clients::Client::Ethers);
        }),
        live("eth_serve_serves_web3_py_with_its_defaults", web3, |scene| {
            defaults::ask(scene, clients::Client::Web3Py);
        }),
        live("eth_serve_serves_the_programs_of_the_pages", pages, defaults::programs_of_the_pages),
        live("eth_serve_serves_the_trial_of_its_page", &[], plain::trial_of_the_page),
        live("eth_serve_ends_a_subscription_of_web3_py", web3, |scene| {
            defaults::ended(scene, clients::Client::Web3Py);
        }),
        live("eth_serve_tells_alloy_of_reorganisations", anvil, alloy::watch),
        live("eth_serve_ends_a_subscription_of_viem", both, |scene| {
            defaults::ended(scene, clients::Client::Viem);
        }),
        live("eth_serve_ends_a_subscription_of_ethers", both, |scene| {
            defaults::ended(scene, clients::Client::Ethers);
        }),
        live("eth_serve_counts_what_a_node_omits", anvil, omissions::counted),
        live("eth_serve_metrics_are_those_of_prometheus", web3, omissions::parsed),
        live("eth_serve_passes_no_lie_of_the_vectors", anvil, lies::of_the_vectors),
        live("eth_serve_passes_no_lie_over_time", anvil, lies::over_time),
        live("eth_serve_serves_beside_hostile_clients_and_nodes", anvil, hostile::all_at_once),
        live("eth_serve_keeps_its_folder_when_killed", anvil, kills::kills),
    ]
}

/// A running `eth serve`.
#[derive(Debug)]
struct Endpoint {
    running: Running,
    /// Its first line.
    listening: Value,
    rpc: HttpRpc,
}

impl Endpoint {
    /// Starts the command on a free port, and waits until it listens. `more` has the arguments that
    /// say what is trusted.
    fn start(scene: &Scene, upstream: &str, more: &[&str]) -> Self {
        let mut arguments =
            vec!["--json", "eth", "serve", "--listen", "127.0.0.1:0", "--rpc", upstream];
        arguments.extend(["--poll", "0.05"]);
        arguments.extend(EXACT);
        arguments.extend(more);
        let mut running = Running::start(scene, &arguments);
        let listening = running.wait_for("listening", |line| line["kind"] == "listening");
        let address = listening["address"].as_str().expect("an address");
        let rpc = HttpRpc::to(format!("http://{address}"));
        Self { running, listening, rpc }
    }

    /// Starts the command with the head of the node, and waits until it is the verified one.
    fn of(scene: &Scene, node: &Anvil) -> Self {
        let endpoint = Self::start(scene, node.rpc().url(), &["--trust-head"]);
        endpoint.until_head(node);
        endpoint
    }

    /// Waits until there is a verified head.
    fn until_ready(&self) {
        wait_until("a verified head", || {
            self.rpc.get("/health").is_ok_and(|health| health["ready"] == true)
        });
    }

    /// Waits until the verified head is the node's head.
    fn until_head(&self, node: &Anvil) {
        let hash = json!(node.hash_at(node.height()));
        wait_until("the verified head", || {
            self.rpc.get("/health").is_ok_and(|health| health["head"]["hash"] == hash)
        });
    }

    fn http(&self) -> &str {
        self.rpc.url()
    }

    fn ws(&self) -> String {
        self.rpc.url().replacen("http", "ws", 1)
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        self.rpc.call(method, params)
    }

    /// Returns the error of a call.
    fn error(&self, method: &str, params: &Value) -> Value {
        let error = self.rpc.try_call(method, params).expect_err(method);
        serde_json::from_str(&error).expect("an error of JSON-RPC")
    }

    /// Returns the sum of the samples of `/metrics` whose line starts like this: a name, with or
    /// without its labels.
    fn metric(&self, start: &str) -> u64 {
        let agent: Agent = Agent::config_builder().proxy(None).build().into();
        let page = agent.get(format!("{}/metrics", self.http())).call();
        let text = page.and_then(|mut page| page.body_mut().read_to_string()).expect("a page");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let samples = text.lines().filter(|line| {
            line.strip_prefix(start).is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        samples
            .map(|line| {
                line.rsplit(' ').next().unwrap_or_default().parse::<u64>().expect("a number")
            })
            .sum()
    }

    /// Ends the command as Ctrl-C does.
    fn end(self) {
        let (code, lines, log) = self.running.interrupt();
        assert_eq!(code, Some(0), "{log}");
        let last = lines.last().expect("a last line");
        assert_eq!(last["kind"], "summary", "{last}");
    }
}

//! anvil as the provider of an Ethereum chain.

mod audit;
mod branch;
mod evidence;
mod history;
mod index;
mod lies;

use std::process::Command;

pub(crate) use audit::shapes_of;
pub(crate) use lies::targets;

use chainsieve::alloy_primitives::{Address, B256};
use chainsieve_conformance::serve::json_rpc::{Fate, Proxy};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::ethereum::{Chain, STEPS, Step, logs_of_receipts};
use crate::harness::{Process, Scene, free_port, live, rpc_proxy, start_server, wait_for};
use crate::peers::{self, Need};
use testkit::eth::http_rpc::HttpRpc;

pub(crate) fn tests() -> Vec<Trial> {
    let itself = vec![
        live("anvil_itself_mines_and_reorganises", &[Need::Anvil], itself),
        live("anvil_behind_the_proxy_says_what_the_proxy_makes_of_it", &[Need::Anvil], proxied),
    ];
    let parts = [
        itself,
        audit::tests(),
        branch::tests(),
        evidence::tests(),
        history::tests(),
        index::tests(),
        lies::tests(),
    ];
    parts.into_iter().flatten().collect()
}

/// A running anvil, which mines blocks only when [`Self::mine`] is called.
#[derive(Debug)]
pub(crate) struct Anvil {
    process: Process,
    rpc: HttpRpc,
    /// Funded accounts whose keys the node has.
    accounts: Vec<Address>,
}

impl Anvil {
    /// Starts a node with a fresh chain. The genesis block has a fixed time, so that every run has
    /// the same hashes.
    pub(crate) fn start(scene: &Scene, options: &[&str]) -> Self {
        let program = peers::anvil().expect("the test declares that it needs it");
        let start = || {
            let port = free_port();
            let mut command = Command::new(&program);
            command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
            // Without this option, anvil stores the states that exceed its memory limit in the home
            // folder, and never deletes them.
            command.arg("--cache-path").arg(scene.path("anvil-states"));
            command.args([
                "--quiet",
                "--no-mining",
                "--order",
                "fifo",
                "--timestamp",
                "1700000000",
            ]);
            let process = scene.start("anvil", command.args(options));
            Self { process, rpc: HttpRpc::new(port), accounts: Vec::new() }
        };
        let mut node = start_server(
            "anvil",
            start,
            |node| &mut node.process,
            |node| node.rpc.try_call("eth_chainId", &json!([])).is_ok(),
        );
        node.accounts =
            serde_json::from_value(node.rpc.call("eth_accounts", &json!([]))).expect("addresses");
        node
    }

    /// Returns the RPC endpoint of the node.
    pub(crate) fn rpc(&self) -> &HttpRpc {
        &self.rpc
    }

    pub(crate) fn accounts(&self) -> &[Address] {
        &self.accounts
    }

    /// Sends a transaction from one of the node's accounts. The gas is given, so that the node does
    /// not run the transaction before it is mined. So the node also mines transactions that fail.
    pub(crate) fn send(&self, from: usize, to: Option<Address>, input: &[u8], gas: u64) -> B256 {
        self.send_as(2, from, to, input, gas)
    }

    /// Sends a transaction like [`Self::send`], but with the transaction type `style`: 0, 1 (access
    /// list) or 2 (EIP-1559 fees).
    pub(crate) fn send_as(
        &self,
        style: usize,
        from: usize,
        to: Option<Address>,
        input: &[u8],
        gas: u64,
    ) -> B256 {
        let transaction = self.transaction(style, from, to, input, gas);
        let hash = self.rpc.call("eth_sendTransaction", &json!([transaction]));
        serde_json::from_value(hash).expect("a hash")
    }

    /// Returns the parameter of `eth_sendTransaction`.
    pub(crate) fn transaction(
        &self,
        style: usize,
        from: usize,
        to: Option<Address>,
        input: &[u8],
        gas: u64,
    ) -> Value {
        let mut transaction = json!({
            "from": self.accounts[from],
            "gas": format!("{gas:#x}"),
            "input": format!("0x{}", hex::encode(input)),
        });
        if let Some(to) = to {
            transaction["to"] = json!(to);
        }
        match style {
            0 => transaction["gasPrice"] = json!("0x77359400"),
            1 => {
                transaction["gasPrice"] = json!("0x77359400");
                transaction["accessList"] = json!([]);
            }
            _ => {
                transaction["maxFeePerGas"] = json!("0x77359400");
                transaction["maxPriorityFeePerGas"] = json!("0x3b9aca00");
            }
        }
        transaction
    }

    /// Mines blocks: the first contains all pending transactions, the others are empty.
    pub(crate) fn mine(&self, blocks: u64) {
        let height = self.height();
        self.rpc.call("anvil_mine", &json!([format!("{blocks:#x}"), "0x1"]));
        wait_for("mined blocks", || (self.height() >= height + blocks).then_some(()));
    }

    pub(crate) fn height(&self) -> u64 {
        number(&self.rpc.call("eth_blockNumber", &json!([])))
    }

    /// Returns a block as the node reports it, with the hashes of its transactions.
    pub(crate) fn block(&self, number: u64) -> Value {
        self.rpc.call("eth_getBlockByNumber", &json!([format!("{number:#x}"), false]))
    }

    pub(crate) fn hash_at(&self, number: u64) -> B256 {
        serde_json::from_value(self.block(number)["hash"].clone()).expect("a hash")
    }

    /// Returns the receipt of a transaction, after it is mined.
    pub(crate) fn receipt(&self, transaction: B256) -> Value {
        wait_for("a receipt", || {
            let receipt = self.rpc.call("eth_getTransactionReceipt", &json!([transaction]));
            (!receipt.is_null()).then_some(receipt)
        })
    }

    /// Deploys a contract from its init code, and returns its address.
    pub(crate) fn deploy(&self, init_code: &[u8]) -> Address {
        let transaction = self.send(0, None, init_code, 5_000_000);
        self.mine(1);
        let receipt = self.receipt(transaction);
        assert_eq!(receipt["status"], "0x1", "{receipt}");
        serde_json::from_value(receipt["contractAddress"].clone()).expect("an address")
    }

    /// Returns the node's answer to `eth_getLogs`.
    pub(crate) fn logs(&self, filter: &Value) -> Vec<Value> {
        let logs = self.rpc.call("eth_getLogs", &json!([filter]));
        logs.as_array().expect("logs").clone()
    }

    /// Replaces the last `depth` blocks by the same number of other blocks. The first of these
    /// contains the given transactions, in the form of `eth_sendTransaction`.
    pub(crate) fn reorganise(&self, depth: u64, transactions: &[Value]) {
        let height = self.height();
        let old = self.hash_at(height);
        let pairs: Vec<_> =
            transactions.iter().map(|transaction| json!([transaction, 0])).collect();
        self.rpc.call("anvil_reorg", &json!([depth, pairs]));
        wait_for("the other branch", || {
            (self.height() == height && self.hash_at(height) != old).then_some(())
        });
    }
}

/// Parses a QUANTITY of JSON-RPC: hex with the prefix `0x`.
pub(crate) fn number(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.strip_prefix("0x"));
    u64::from_str_radix(text.expect("a quantity"), 16).expect("a quantity of 64 bits")
}

/// Checks that the node behaves as the tests assume.
fn itself(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    let mut chain = Chain::begin(&node, 1);
    for step in STEPS {
        let number = chain.mine(&node, step);
        let from = format!("{number:#x}");
        let logs = node.logs(&json!({ "fromBlock": from, "toBlock": from }));
        assert_eq!(logs, logs_of_receipts(&node, number..=number), "{step:?}");
        let receipts = node.rpc().call("eth_getBlockReceipts", &json!([from]));
        let receipts = receipts.as_array().expect("receipts");
        let failed = receipts.iter().filter(|receipt| receipt["status"] == "0x0").count();
        assert_eq!(failed, usize::from(step == Step::Failed), "{step:?}");
        match step {
            Step::Empty => assert_eq!((logs.len(), receipts.len()), (0, 0)),
            Step::Plain => assert_eq!((logs.len(), receipts.len()), (0, 1)),
            Step::One(topics) => {
                assert_eq!(logs[0]["topics"].as_array().map(Vec::len), Some(topics));
            }
            Step::Several(transactions) => assert_eq!(receipts.len(), transactions),
            Step::Full(count) => assert_eq!(logs.len(), count),
            Step::EveryAddress => assert_eq!(logs.len(), chain.runners.len()),
            Step::Failed => assert_eq!(receipts[1]["logs"], json!([])),
            Step::Long | Step::Undone | Step::Creation => assert!(!logs.is_empty()),
        }
    }

    let height = node.height();
    let hashes = || (0..=height).map(|number| node.hash_at(number)).collect::<Vec<_>>();
    let old = hashes();
    node.reorganise(3, &[]);
    let new = hashes();
    let fork = usize::try_from(height).expect("short") - 2;
    assert_eq!(old[..fork], new[..fork]);
    assert!(old[fork..].iter().zip(&new[fork..]).all(|(old, new)| old != new));
    node.mine(1);
    assert_eq!(node.height(), height + 1);
}

/// Checks that the proxy forwards requests, alters one call of a batch, and refuses requests.
fn proxied(scene: &Scene) {
    let node = Anvil::start(scene, &[]);
    node.mine(3);
    let plain = rpc_proxy(node.rpc(), |_, _, _| Fate::Answered);
    let through = |proxy: &Proxy, body: &Value| HttpRpc::to(proxy.url()).post(&body.to_string());
    let calls = json!([
        { "jsonrpc": "2.0", "id": 7, "method": "eth_blockNumber", "params": [] },
        { "jsonrpc": "2.0", "id": 8, "method": "eth_chainId", "params": [] },
    ]);
    let (status, text) = through(&plain, &calls).expect("an answer");
    let direct = node.rpc().post(&calls.to_string()).expect("an answer").1;
    assert_eq!((status, json_of(&text)), (200, json_of(&direct)));
    assert_eq!(plain.calls()["eth_chainId"], 1);

    let lying = rpc_proxy(node.rpc(), |method, _, answer| {
        if method == "eth_blockNumber" {
            answer["result"] = json!("0x63");
        }
        Fate::Answered
    });
    let answers = json_of(&through(&lying, &calls).expect("an answer").1);
    assert_eq!(answers[0], json!({ "jsonrpc": "2.0", "id": 7, "result": "0x63" }));
    assert_eq!(answers[1], json_of(&direct)[1]);

    let busy = rpc_proxy(node.rpc(), |_, _, _| Fate::Status(429));
    assert_eq!(through(&busy, &calls[0]).expect("an answer").0, 429);
    let gone = rpc_proxy(node.rpc(), |_, _, _| Fate::Closed);
    assert!(through(&gone, &calls[0]).is_err());
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

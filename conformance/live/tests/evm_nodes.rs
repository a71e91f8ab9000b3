//! hardhat and ganache: Ethereum nodes in JavaScript that mine one block per transaction.

use std::fs;
use std::process::Command;

use chainsieve::alloy_primitives::Address;
use serde_json::{Value, json};

use crate::harness::{Process, Scene, free_port, start_server, wait_for};
use crate::peers;
use testkit::eth::http_rpc::HttpRpc;

/// The node software.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Program {
    Hardhat,
    Ganache,
}

/// A running node with the chain id of mainnet.
#[derive(Debug)]
pub(crate) struct EvmNode {
    _process: Process,
    rpc: HttpRpc,
    account: String,
}

impl EvmNode {
    pub(crate) fn start(scene: &Scene, program: Program) -> Self {
        let folder = scene.path("node");
        fs::create_dir_all(&folder).expect("a folder");
        let config =
            "module.exports = { solidity: '0.8.20', networks: { hardhat: { chainId: 1 } } };";
        fs::write(folder.join("hardhat.config.js"), config).expect("written");
        fs::write(folder.join("package.json"), "{\"private\":true}").expect("written");
        let start = || {
            let port = free_port();
            let mut command = Command::new("node");
            command.env("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true").current_dir(&folder);
            let (name, found) = match program {
                Program::Hardhat => ("hardhat", peers::hardhat()),
                Program::Ganache => ("ganache", peers::ganache()),
            };
            let script = found.expect("the test declares that it needs this node");
            // hardhat must be installed next to its configuration.
            let modules =
                script.ancestors().find(|at| at.ends_with("node_modules")).expect("there");
            #[cfg(unix)]
            drop(std::os::unix::fs::symlink(modules, folder.join("node_modules")));
            let port_text = port.to_string();
            match program {
                Program::Hardhat => {
                    let script = folder.join("node_modules/hardhat/internal/cli/bootstrap.js");
                    command.arg(script).args([
                        "node",
                        "--hostname",
                        "127.0.0.1",
                        "--port",
                        &port_text,
                    ])
                }
                Program::Ganache => command.arg(script).args([
                    "--server.host",
                    "127.0.0.1",
                    "--server.port",
                    &port_text,
                    "--chain.chainId",
                    "1",
                    "--wallet.seed",
                    "chainsieve",
                ]),
            };
            let process = scene.start(name, &mut command);
            (process, HttpRpc::new(port))
        };
        let (process, rpc) = start_server(
            "node",
            start,
            |node| &mut node.0,
            |node| node.1.try_call("eth_chainId", &json!([])).is_ok(),
        );
        let accounts = rpc.call("eth_accounts", &json!([]));
        let account = accounts[0].as_str().expect("an account").to_owned();
        Self { _process: process, rpc, account }
    }

    pub(crate) fn rpc(&self) -> &HttpRpc {
        &self.rpc
    }

    /// Deploys a contract, and returns its address.
    pub(crate) fn create(&self, code: &[u8]) -> Address {
        let receipt = self.send(&json!({ "data": format!("0x{}", hex::encode(code)) }));
        serde_json::from_value(receipt["contractAddress"].clone()).expect("an address")
    }

    /// Calls a contract in a block of its own.
    pub(crate) fn call(&self, contract: Address, input: &[u8]) {
        let input = format!("0x{}", hex::encode(input));
        let receipt = self.send(&json!({ "to": contract, "data": input }));
        assert_eq!(receipt["status"], "0x1");
    }

    fn send(&self, transaction: &Value) -> Value {
        let mut transaction = transaction.clone();
        transaction["from"] = json!(self.account);
        transaction["gas"] = json!("0x7a120");
        let hash = self.rpc.call("eth_sendTransaction", &json!([transaction]));
        wait_for("a receipt", || {
            let receipt = self.rpc.call("eth_getTransactionReceipt", &json!([hash]));
            (!receipt.is_null()).then_some(receipt)
        })
    }

    pub(crate) fn height(&self) -> u64 {
        let number = self.rpc.call("eth_blockNumber", &json!([]));
        u64::from_str_radix(&number.as_str().expect("a number")[2..], 16).expect("hex")
    }
}

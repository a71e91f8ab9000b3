//! Tests bcoin as an SPV node, a client of Bloom filters, against `btc test-node`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use chainsieve::bitcoin::{BlockHash, Script, Txid};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use ureq::Agent;

use crate::bcoin::{Bcoin, address_of};
use crate::harness::{Process, Scene, free_port, live, loopback, start_server, wait_until};
use crate::peers::{self, Need};
use crate::regtest::{Branch, Kind};
use crate::served::{Folder, Server};
use crate::wallet::{self, Wallet};
use testkit::eth::http_rpc::HttpRpc;

/// Script types for which bcoin has addresses.
const KINDS: [Kind; 5] =
    [Kind::P2pkh, Kind::P2shMultisig, Kind::P2wpkh, Kind::P2shP2wpkh, Kind::P2wshMultisig];

pub(crate) fn tests() -> Vec<Trial> {
    vec![live("bcoin_spv_finds_its_payments_on_btc_test_node", &[Need::Bcoin], finds_its_payments)]
}

/// An SPV node with headers and a wallet, which requests filtered blocks from one peer.
struct Spv {
    process: Process,
    rpc: HttpRpc,
    agent: Agent,
    wallet: String,
}

/// A confirmed transaction of the wallet: height, block and id.
type Confirmed = (u32, BlockHash, Txid);

impl Spv {
    fn start(scene: &Scene, peer: SocketAddr) -> Self {
        let program = peers::bcoin().expect("the test declares that it needs bcoin");
        let config = Agent::config_builder().timeout_global(Some(Duration::from_secs(120)));
        let agent: Agent = config.proxy(None).build().into();
        let start = || {
            let (http, wallet) = (free_port(), free_port());
            let mut command = Command::new("node");
            command.env("NODE_BACKEND", "js").arg(program.with_file_name("spvnode")).args([
                "--network=regtest",
                "--memory=true",
                "--http-host=127.0.0.1",
                "--no-auth=true",
                "--wallet-http-host=127.0.0.1",
                "--wallet-no-auth=true",
                "--log-file=false",
                "--workers=false",
                "--no-dns=true",
                "--upnp=false",
                "--max-outbound=1",
            ]);
            command.arg(format!("--http-port={http}"));
            command.arg(format!("--wallet-http-port={wallet}"));
            command.arg(format!("--only={peer}"));
            command.arg(format!("--prefix={}", scene.path("spv").display()));
            Self {
                process: scene.start("spvnode", &mut command),
                rpc: HttpRpc::new(http),
                agent: agent.clone(),
                wallet: format!("http://127.0.0.1:{wallet}/wallet/watch"),
            }
        };
        let up = |node: &mut Self| {
            let options = json!({ "watchOnly": true }).to_string();
            node.rpc.try_call("getblockcount", &json!([])).is_ok()
                && node.agent.put(&node.wallet).send(options).is_ok()
        };
        start_server("bcoin's SPV node", start, |node| &mut node.process, up)
    }

    /// Adds a script to the node's wallet.
    fn watch(&self, script: &Script) {
        let address = address_of(script).expect("a script with an address");
        let body = json!({ "account": "default", "address": address }).to_string();
        let answer = self.agent.post(format!("{}/import", self.wallet)).send(body);
        assert!(answer.expect("an answer").status().is_success());
    }

    fn listed(&self, what: &str) -> Vec<Value> {
        let answer = self.agent.get(format!("{}/tx/{what}", self.wallet)).call();
        let text = answer.expect("an answer").body_mut().read_to_string().expect("text");
        serde_json::from_str(&text).expect("a list")
    }

    /// Returns the wallet's transactions that are in a block of its chain.
    fn confirmed(&self) -> BTreeSet<Confirmed> {
        let in_block = |tx: &Value| {
            let height = u32::try_from(tx["height"].as_i64()?).ok()?;
            Some((height, parse(&tx["block"]), parse(&tx["hash"])))
        };
        self.listed("history").iter().filter_map(in_block).collect()
    }

    /// Returns the wallet's transactions that are in no block.
    fn unconfirmed(&self) -> BTreeSet<Txid> {
        self.listed("unconfirmed").iter().map(|tx| parse(&tx["hash"])).collect()
    }

    fn tip(&self) -> BlockHash {
        parse(&self.rpc.call("getbestblockhash", &json!([])))
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &Value) -> T {
    text.as_str().expect("text").parse().expect("a hash")
}

fn finds_its_payments(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mut wallet = Wallet::new(3, &KINDS);
    wallet::live(&node, &mut branch, &mut wallet);
    let folder = Folder::new(scene, "blocks", &node.blocks_from(1));
    let expected = |wallet: &Wallet| -> BTreeSet<Confirmed> {
        let events = wallet.history(&node).into_iter();
        events.map(|event| (event.height, event.block, event.txid)).collect()
    };

    // The node gets its addresses before it has a peer.
    let address = loopback(free_port());
    let spv = Spv::start(scene, address);
    for (kind, script) in KINDS.iter().zip(wallet.scripts()) {
        // bcoin's wallets identify scripts by their hash: one address covers P2PKH and P2WPKH.
        if *kind != Kind::P2wpkh {
            spv.watch(&script);
        }
    }
    let mut server = Server::start_at(scene, &folder, &address.to_string(), &[]);
    wait_until("the SPV node's chain", || spv.tip() == branch.tip());
    let found = expected(&wallet);
    assert!(found.len() > 10, "{found:?}");
    wait_until("the wallet's past", || spv.confirmed() == found);

    // A payment and a spend that are in no block yet, and a transaction that does not concern the
    // wallet.
    let mut other = (branch.clone(), wallet.clone());
    let payment = wallet.receive(&mut branch, &KINDS[..2]);
    let spend = wallet.spend(1);
    let filler = branch.filler(1);
    for tx in [&payment, &spend, &filler[0]] {
        folder.put_transaction(tx);
    }
    let pending = BTreeSet::from([payment.compute_txid(), spend.compute_txid()]);
    wait_until("payments without a block", || spv.unconfirmed() == pending);
    let first = branch.mine(vec![payment, spend]);
    folder.remove_transaction(&filler[0]);
    let second = branch.mine(filler);
    for block in [&first, &second] {
        node.submit(block);
    }
    folder.put("second.dat", &[first, second]);
    wait_until("the new blocks", || spv.tip() == branch.tip());
    let found = expected(&wallet);
    wait_until("payments in a block", || spv.confirmed() == found);
    assert_eq!(spv.unconfirmed(), BTreeSet::new());

    // A longer branch replaces these blocks. It contains another payment instead of their
    // transactions. The SPV node rolls back to the fork, and requests the blocks after the fork when
    // the next block is announced.
    let fork = other.0.tip();
    let payment = other.1.receive(&mut other.0, &KINDS[2..]);
    let mut replaced = vec![other.0.mine(vec![]), other.0.mine(vec![payment])];
    replaced.push(other.0.mine(vec![other.1.spend(2)]));
    for block in &replaced {
        node.submit(block);
    }
    folder.put("other.dat", &replaced);
    wait_until("the fork", || spv.tip() == fork);
    let next = other.0.mine(vec![]);
    node.submit(&next);
    folder.put("next.dat", &[next]);
    wait_until("the other branch", || spv.tip() == other.0.tip());
    let found = expected(&other.1);
    wait_until("payments of the other branch", || spv.confirmed() == found);
    server.wait_for_tip(other.0.tip());
    let lines = server.interrupt();
    let misbehaved = lines.iter().any(|line| line["misbehaved"] == true);
    assert!(!misbehaved, "{lines:?}");
}

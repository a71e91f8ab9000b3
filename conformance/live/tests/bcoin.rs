//! bcoin as a full node on regtest with BIP37, and its RPC.

mod sync;
mod watch;

pub(crate) use watch::Purse;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use chainsieve::bitcoin::consensus::encode::{deserialize_hex, serialize_hex};
use chainsieve::bitcoin::{
    Block, BlockHash, PubkeyHash, Script, ScriptBuf, Transaction, Txid, base58, bech32,
};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::harness::{Process, Scene, free_port, live, loopback, start_server};
use crate::peers::{self, Need};
use crate::regtest::{Branch, History, KINDS, Key, Kind};
use testkit::eth::http_rpc::HttpRpc;

/// Version bytes of bcoin's addresses on regtest (Core's are 111 and 196).
const PUBKEY_HASH: u8 = 60;
const SCRIPT_HASH: u8 = 38;

pub(crate) fn tests() -> Vec<Trial> {
    let itself = vec![live("bcoin_itself_mines_serves_and_comes_back", &[Need::Bcoin], itself)];
    [itself, sync::tests(), watch::tests()].into_iter().flatten().collect()
}

/// A running node, and the data that is needed to start it again.
#[derive(Debug)]
pub(crate) struct Bcoin {
    process: Process,
    rpc: HttpRpc,
    ports: Ports,
    /// Folder of the node's chain; `None` if the chain is in memory.
    folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    p2p: u16,
    http: u16,
}

impl Bcoin {
    /// Starts a node with its chain in memory: a restart would begin at the genesis block.
    pub(crate) fn in_memory(scene: &Scene) -> Self {
        Self::new(scene, None)
    }

    /// Starts a node whose chain survives [`Self::restart`].
    pub(crate) fn on_disk(scene: &Scene, folder: &str) -> Self {
        Self::new(scene, Some(&scene.path(folder)))
    }

    fn new(scene: &Scene, folder: Option<&PathBuf>) -> Self {
        let start = || {
            let ports = Ports { p2p: free_port(), http: free_port() };
            let process = launch(scene, ports, folder);
            Self { process, rpc: HttpRpc::new(ports.http), ports, folder: folder.cloned() }
        };
        start_server("bcoin", start, |node| &mut node.process, |node| node.answers())
    }

    /// Returns `true` once the node serves both requests and peers.
    fn answers(&self) -> bool {
        let serves_peers = || TcpStream::connect(self.address()).is_ok();
        self.rpc.try_call("getblockcount", &json!([])).is_ok() && serves_peers()
    }

    /// Stops the node gracefully, so that its chain is on disk.
    pub(crate) fn stop(&mut self) {
        self.process.signal("TERM");
        self.process.wait();
    }

    /// Starts the node again on the same ports, with the same chain if it is on disk.
    pub(crate) fn restart(&mut self, scene: &Scene) {
        let (ports, folder) = (self.ports, self.folder.clone());
        let start = || launch(scene, ports, folder.as_ref());
        let rpc = self.rpc.clone();
        self.process = start_server(
            "bcoin again",
            start,
            |process| process,
            |_| rpc.try_call("getblockcount", &json!([])).is_ok(),
        );
    }

    /// Returns the node's address for peers.
    pub(crate) fn address(&self) -> SocketAddr {
        loopback(self.ports.p2p)
    }

    /// Mines blocks from the node's memory pool; the rewards go to a P2PKH script.
    pub(crate) fn generate(&self, blocks: u32, to: PubkeyHash) -> Vec<BlockHash> {
        let address = address_of(&ScriptBuf::new_p2pkh(&to));
        let hashes = self.rpc.call("generatetoaddress", &json!([blocks, address]));
        let hashes = hashes.as_array().expect("hashes");
        hashes.iter().map(parse).collect()
    }

    pub(crate) fn height(&self) -> u32 {
        let height = self.rpc.call("getblockcount", &json!([])).as_u64().expect("a height");
        u32::try_from(height).expect("a test's chain is short")
    }

    pub(crate) fn tip(&self) -> BlockHash {
        parse(&self.rpc.call("getbestblockhash", &json!([])))
    }

    pub(crate) fn hash_at(&self, height: u32) -> BlockHash {
        parse(&self.rpc.call("getblockhash", &json!([height])))
    }

    /// Returns a block of any branch, if the node knows the block.
    pub(crate) fn block(&self, hash: BlockHash) -> Block {
        let hex = self.rpc.call("getblock", &json!([hash.to_string(), false]));
        deserialize_hex(hex.as_str().expect("hex")).expect("a block")
    }

    /// Returns the blocks of the node's best chain, from this height to the tip.
    pub(crate) fn blocks_from(&self, height: u32) -> Vec<Block> {
        (height..=self.height()).map(|height| self.block(self.hash_at(height))).collect()
    }

    /// Submits a block that a test mined. A block of a side branch is kept, and becomes part of the
    /// best chain once its branch has more work.
    pub(crate) fn submit(&self, block: &Block) {
        let answer = self.rpc.call("submitblock", &json!([serialize_hex(block)]));
        assert!(
            answer.is_null() || answer == "rejected: inconclusive-not-best-prevblk",
            "{answer}"
        );
        assert_eq!(self.block(block.block_hash()).txdata.len(), block.txdata.len());
    }

    /// Sends a transaction to the node's memory pool; the node announces it to its peers.
    pub(crate) fn send(&self, transaction: &Transaction) -> Txid {
        parse(&self.rpc.call("sendrawtransaction", &json!([serialize_hex(transaction)])))
    }

    /// Returns `true` if the node's memory pool contains this transaction.
    pub(crate) fn has_unconfirmed(&self, txid: Txid) -> bool {
        let pool = self.rpc.call("getrawmempool", &json!([]));
        pool.as_array().expect("ids").iter().any(|id| *id == txid.to_string())
    }

    /// Returns the transactions that the node's address index lists for a script. The index works
    /// only with the chain in memory: on disk, with a `leveldown` that current Node.js loads, the
    /// index lists none.
    pub(crate) fn transactions_of(&self, script: &Script) -> BTreeSet<Txid> {
        let address = address_of(script).expect("a script with an address");
        let listed = self.rpc.get(&format!("/tx/address/{address}")).expect("the index");
        listed.as_array().expect("transactions").iter().map(|tx| parse(&tx["hash"])).collect()
    }

    /// Closes the node's connections to all peers.
    pub(crate) fn disconnect_all(&self) {
        let peers = self.rpc.call("getpeerinfo", &json!([]));
        for peer in peers.as_array().into_iter().flatten() {
            drop(self.rpc.try_call("disconnectnode", &json!([peer["addr"]])));
        }
    }
}

fn launch(scene: &Scene, ports: Ports, folder: Option<&PathBuf>) -> Process {
    let program = peers::bcoin().expect("the test declares that it needs it");
    let prefix = folder.cloned().unwrap_or_else(|| scene.path("bcoin"));
    let mut command = Command::new("node");
    command.env("NODE_BACKEND", "js").arg(program).args([
        "--network=regtest",
        "--bip37=true",
        "--listen=true",
        "--host=127.0.0.1",
        "--public-host=127.0.0.1",
        "--http-host=127.0.0.1",
        "--no-auth=true",
        "--log-file=false",
        "--log-level=warning",
        "--workers=false",
        "--index-tx=true",
        "--index-address=true",
        "--no-wallet=true",
        "--no-dns=true",
        "--upnp=false",
        // bcoin fails an assertion if the value of this option is 0.
        "--max-outbound=1",
        "--only=127.0.0.1:1",
    ]);
    command.arg(format!("--port={}", ports.p2p)).arg(format!("--http-port={}", ports.http));
    command.arg(format!("--prefix={}", prefix.display()));
    command.arg(format!("--memory={}", folder.is_none()));
    scene.start("bcoin", &mut command)
}

/// Groups of script types that have the same hash for the same key. bcoin's address index has only
/// one entry for such a group.
pub(crate) const SAME_ADDRESS: [&[Kind]; 4] = [
    &[Kind::P2pkh, Kind::P2pk, Kind::P2wpkh],
    &[Kind::P2shMultisig, Kind::BareMultisig],
    &[Kind::P2shP2wpkh],
    &[Kind::P2wshMultisig],
];

/// Returns bcoin's address of a script; its regtest prefixes differ from Core's.
pub(crate) fn address_of(script: &Script) -> Option<String> {
    let bytes = script.as_bytes();
    let base58 = |prefix: u8, hash: &[u8]| base58::encode_check(&[&[prefix], hash].concat());
    match script {
        _ if script.is_p2pkh() => Some(base58(PUBKEY_HASH, &bytes[3..23])),
        _ if script.is_p2sh() => Some(base58(SCRIPT_HASH, &bytes[2..22])),
        _ if script.is_witness_program() && bytes[0] == 0 => {
            let human = bech32::Hrp::parse("rb").expect("letters");
            bech32::segwit::encode_v0(human, &bytes[2..]).ok()
        }
        _ => None,
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &Value) -> T {
    text.as_str().expect("text").parse().expect("what the method returns")
}

/// Checks that the node behaves as the tests assume.
fn itself(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mine = Key::new(2);
    let mut other = branch.fork();

    // A block of many transactions creates coins of every script type. All coins are then spent.
    let paid = branch.pay(KINDS.map(|kind| mine.output(kind, 100_000)).to_vec());
    let coins: Vec<_> = (0..).zip(KINDS).map(|(vout, _)| mine.coin(&paid, vout)).collect();
    let mut transactions = branch.filler(60);
    transactions.push(paid);
    transactions.extend(branch.filler(60));
    node.submit(&branch.mine(transactions));
    let spends = coins.iter().map(|coin| {
        mine.spend(std::slice::from_ref(coin), vec![mine.output(Kind::P2wpkh, 90_000)])
    });
    let spends = spends.collect();
    node.submit(&branch.mine(spends));
    assert_eq!((node.height(), node.tip()), (branch.height(), branch.tip()));

    let first = branch.height() - 1;
    let blocks = node.blocks_from(first);
    let events = History::of_scripts(KINDS.map(|kind| mine.script(kind))).read(first, &blocks);
    assert_eq!(events.len(), 3 * KINDS.len());
    // For scripts with an address, bcoin's address index lists the same transactions.
    for kinds in SAME_ADDRESS {
        let listed = node.transactions_of(&mine.script(kinds[0]));
        let events = History::of_scripts(kinds.iter().map(|&kind| mine.script(kind)));
        let events = events.read(first, &blocks);
        assert_eq!(listed, events.iter().map(|event| event.txid).collect(), "{kinds:?}");
    }

    // A branch with more work, submitted block by block, becomes the best chain.
    let fork = other.height();
    for _ in 0..3 {
        let filler = other.filler(2);
        node.submit(&other.mine(filler));
    }
    assert_eq!((node.height(), node.tip()), (fork + 3, other.tip()));

    let mut node = Bcoin::on_disk(scene, "chain");
    let hashes = node.generate(3, mine.hash());
    node.stop();
    node.restart(scene);
    assert_eq!((node.height(), node.tip()), (3, hashes[2]));
}

//! Tests the crate `bip157`, a client of compact filters, against `btc test-node`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bip157::chain::BlockHeaderChanges;
use bip157::{Builder, Client, Event, TrustedPeer, Warning};
use chainsieve::bitcoin::{Block, BlockHash, Network, ScriptBuf};
use libtest_mimic::Trial;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::bcoin::Bcoin;
use crate::harness::{PATIENCE, Scene, live};
use crate::peers::Need;
use crate::regtest::{self, Branch, History, KINDS};
use crate::served::{Folder, Server};
use crate::wallet::{self, Wallet};

pub(crate) fn tests() -> Vec<Trial> {
    vec![live(
        "crate_bip157_finds_its_payments_on_btc_test_node",
        &[Need::Bcoin],
        finds_its_payments,
    )]
}

/// A wallet that uses the crate, and downloads the blocks whose filters match.
struct Light {
    client: Client,
    scripts: Vec<ScriptBuf>,
    /// The downloaded blocks on its current chain, by height.
    blocks: BTreeMap<u32, Block>,
    /// Number of filters received.
    filters: usize,
    /// Hashes of the blocks that were reorganised away.
    reorganised: Vec<BlockHash>,
    runtime: Runtime,
}

impl Light {
    fn start(peers: &[SocketAddr], scripts: Vec<ScriptBuf>) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let peers = peers.iter().map(|&peer| TrustedPeer::from_socket_addr(peer));
        let peers: Vec<_> = peers.collect();
        let required = u8::try_from(peers.len()).expect("few");
        let (node, client) = Builder::new(Network::Regtest)
            .add_peers(peers)
            .required_peers(required)
            .whitelist_only()
            .build();
        runtime.spawn(async move {
            if let Err(error) = node.run().await {
                eprintln!("bip157: {error}");
            }
        });
        Self {
            client,
            scripts,
            blocks: BTreeMap::new(),
            filters: 0,
            reorganised: Vec::new(),
            runtime,
        }
    }

    /// Continues until the wallet is in sync with this tip.
    fn sync_to(&mut self, tip: BlockHash) {
        while self.next_sync() != tip {}
    }

    fn next_sync(&mut self) -> BlockHash {
        loop {
            let Client { event_rx, warn_rx, .. } = &mut self.client;
            let event = self.runtime.block_on(async { timeout(PATIENCE, event_rx.recv()).await });
            let mut warnings = Vec::new();
            while let Ok(warning) = warn_rx.try_recv() {
                warnings.push(warning);
            }
            let quiet = |warning: &Warning| matches!(warning, Warning::NeedConnections { .. });
            assert!(warnings.iter().all(quiet), "{warnings:?}");
            match event.expect("an event in time").expect("the client runs") {
                Event::IndexedFilter(filter) => {
                    self.filters += 1;
                    if !filter.contains_any(self.scripts.iter()) {
                        continue;
                    }
                    let (height, hash) = (filter.height(), filter.block_hash());
                    let block = self.client.requester.get_block(hash);
                    let block = self.runtime.block_on(async { timeout(PATIENCE, block).await });
                    let block = block.expect("a block in time").expect("a block");
                    assert_eq!(block.height, height);
                    self.blocks.insert(height, block.block);
                }
                Event::ChainUpdate(BlockHeaderChanges::Reorganized { reorganized, .. }) => {
                    for header in reorganized {
                        self.blocks.remove(&header.height);
                        self.reorganised.push(header.header.block_hash());
                    }
                }
                Event::ChainUpdate(_) => {}
                Event::FiltersSynced(update) => return update.tip().hash,
            }
        }
    }

    /// Returns the events in the blocks that the wallet has downloaded.
    fn history(&self) -> Vec<regtest::Event> {
        let history = History::of_scripts(self.scripts.clone());
        let blocks = self.blocks.iter().map(|(&height, block)| (height, block));
        history.and(blocks).events().iter().copied().collect()
    }
}

fn finds_its_payments(scene: &Scene) {
    let node = Bcoin::in_memory(scene);
    let mut branch = Branch::begin(&node);
    let mut wallet = Wallet::new(2, &KINDS);
    wallet::live(&node, &mut branch, &mut wallet);
    let blocks = node.blocks_from(1);
    let folder = Folder::new(scene, "blocks", &blocks);
    let mut servers = [(); 2].map(|()| Server::start(scene, &folder, &[]));
    let addresses = [servers[0].address(), servers[1].address()];
    let mut light = Light::start(&addresses, wallet.scripts());
    light.sync_to(branch.tip());
    assert_eq!(light.filters, blocks.len());
    let found = wallet.history(&node);
    assert!(found.len() > 20, "{found:?}");
    assert_eq!(light.history(), found);
    assert!(light.blocks.len() < blocks.len() / 5, "{} blocks downloaded", light.blocks.len());

    // Two branches start at this block. The branch that is announced second is longer than the
    // first.
    let mut other = (branch.clone(), wallet.clone());
    let payment = wallet.receive(&mut branch, &KINDS[4..6]);
    let first = branch.mine(vec![payment]);
    let second = branch.mine(vec![wallet.spend(1)]);
    for block in [&first, &second] {
        node.submit(block);
    }
    folder.put("second.dat", &[first.clone(), second.clone()]);
    light.sync_to(branch.tip());
    assert_eq!(light.history(), wallet.history(&node));
    assert_eq!(light.reorganised, []);

    let payment = other.1.receive(&mut other.0, &KINDS[..3]);
    let mut replaced = vec![other.0.mine(vec![]), other.0.mine(vec![payment])];
    replaced.push(other.0.mine(vec![other.1.spend(2)]));
    for block in &replaced {
        node.submit(block);
    }
    assert_eq!(node.tip(), replaced[2].block_hash(), "the node follows it too");
    folder.put("other.dat", &replaced);
    light.sync_to(replaced[2].block_hash());
    let mut left = light.reorganised.clone();
    left.sort();
    let mut expected_to_leave = vec![first.block_hash(), second.block_hash()];
    expected_to_leave.sort();
    assert_eq!(left, expected_to_leave);
    assert_eq!(light.history(), wallet.history(&node));
    drop(light.client.requester.shutdown());
    for server in &mut servers {
        server.wait_for_tip(replaced[2].block_hash());
    }
    for server in servers {
        let lines = server.interrupt();
        let misbehaved = lines.iter().any(|line| line["misbehaved"] == true);
        assert!(!misbehaved, "{lines:?}");
    }
}

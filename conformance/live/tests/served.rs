//! `btc test-node` over a folder that the tests fill.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use chainsieve::bitcoin::consensus::encode::{serialize, serialize_hex};
use chainsieve::bitcoin::{Block, BlockHash, Transaction};
use serde_json::Value;

use crate::command::Running;
use crate::harness::Scene;

/// A folder of regtest blocks, which several nodes can share.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Returns a folder with these blocks in one file.
    pub(crate) fn new(scene: &Scene, name: &str, blocks: &[Block]) -> Self {
        let folder = Self(scene.path(name));
        fs::create_dir_all(folder.0.join("mempool")).expect("a folder");
        if !blocks.is_empty() {
            folder.put("first.dat", blocks);
        }
        folder
    }

    /// Adds a file of raw blocks atomically.
    pub(crate) fn put(&self, name: &str, blocks: &[Block]) {
        let bytes: Vec<u8> = blocks.iter().flat_map(serialize).collect();
        write(&self.0.join(name), &bytes);
    }

    /// Adds a transaction that is in no block.
    pub(crate) fn put_transaction(&self, tx: &Transaction) {
        write(&self.transaction(tx), serialize_hex(tx).as_bytes());
    }

    pub(crate) fn remove_transaction(&self, tx: &Transaction) {
        fs::remove_file(self.transaction(tx)).expect("it is there");
    }

    fn transaction(&self, tx: &Transaction) -> PathBuf {
        self.0.join("mempool").join(tx.compute_txid().to_string())
    }
}

/// Writes under another name first, so that no reader sees an incomplete file.
fn write(path: &Path, bytes: &[u8]) {
    let partial = path.with_extension("part");
    fs::write(&partial, bytes).expect("a file");
    fs::rename(partial, path).expect("the same folder");
}

/// A running `btc test-node`.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    address: SocketAddr,
}

impl Server {
    /// Starts a server on a free port.
    pub(crate) fn start(scene: &Scene, folder: &Folder, options: &[&str]) -> Self {
        Self::start_at(scene, folder, "127.0.0.1:0", options)
    }

    /// Starts a server at an address.
    pub(crate) fn start_at(
        scene: &Scene,
        folder: &Folder,
        address: &str,
        options: &[&str],
    ) -> Self {
        let path = folder.0.to_str().expect("a UTF-8 path");
        let arguments =
            ["btc", "test-node", path, "--network", "regtest", "--listen", address, "--json"];
        let mut running = Running::start(scene, &[&arguments, options].concat());
        let ready = running.wait_for("a node that listens", |line| line["kind"] == "listening");
        let address = ready["address"].as_str().expect("an address");
        Self { running, address: address.parse().expect("an address") }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server serves this tip.
    pub(crate) fn wait_for_tip(&mut self, tip: BlockHash) {
        let tip = tip.to_string();
        self.running.wait("a tip that is served", |lines| {
            let has_tip = |line: &&Value| line["kind"] == "chain" || line["kind"] == "listening";
            let last = lines.iter().rev().find(has_tip)?;
            (last["tip"] == tip).then_some(())
        });
    }

    /// Kills the server at once, as `kill -9` does. The server's port is free afterwards.
    pub(crate) fn kill(&mut self) {
        self.running.process().kill();
    }

    /// Ends the server as Ctrl-C does. Checks that the server exits with code 0 and has printed no
    /// warning.
    pub(crate) fn interrupt(self) -> Vec<Value> {
        let (code, lines, log) = self.running.interrupt();
        assert_eq!(code, Some(0), "{log}");
        let warnings: Vec<_> = lines.iter().filter(|line| line["kind"] == "warning").collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        lines
    }
}

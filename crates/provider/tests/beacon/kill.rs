//! At random moments, kills a process that keeps a light client in a folder, while the chain grows.
//!
//! The file is then always readable, and is not older than the last header that the process
//! received. A reader beside the process never sees anything else than a whole light client.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;
use chainsieve_provider::BeaconClient;
use serde::{Deserialize, Serialize};
use testkit::Rng;
use testkit::eth::beacon_server::BeaconServer;
use testkit::eth::beacon_world::at;

use testkit::TestFolder;

use crate::setup::MADE_UP;

/// Number of kills.
const KILLS: usize = 25;
/// Timeout of each wait, far longer than a step takes.
const TIMEOUT: Duration = Duration::from_secs(3 * 60);

const TASK: &str = "CHAINSIEVE_BEACON_TASK";

#[derive(Serialize, Deserialize)]
struct Task {
    url: String,
    folder: PathBuf,
    network: Network,
    root: B256,
}

impl Task {
    fn records(&self) -> PathBuf {
        self.folder.join("records")
    }
}

/// Follows the chain, and records the slot of each header that it received, until it is killed.
#[test]
#[ignore = "a process of other tests"]
fn beacon_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).expect("a task");
    let mut records =
        OpenOptions::new().append(true).create(true).open(task.records()).expect("a file");
    let client = BeaconClient::builder(task.network.clone())
        .checkpoint(task.root)
        .url(&task.url)
        .folder(&task.folder)
        .poll(Duration::ZERO)
        .build()
        .expect("a client");
    loop {
        let round = client.sync().expect("an honest server");
        writeln!(records, "{}", round.finalized.beacon.slot).expect("written");
    }
}

struct Process(Child);

impl Process {
    fn start(task: &Task) -> Self {
        let stderr = File::create(task.folder.join("stderr")).expect("a file");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "kill::beacon_process", "--ignored", "--nocapture"])
            .env(TASK, serde_json::to_string(task).expect("JSON"))
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        Self(child.expect("starts"))
    }

    /// Kills the process, by SIGKILL on Unix.
    fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_received() {
    let folder = TestFolder::new("kill");
    let mut slot = at(0, 40);
    let server = BeaconServer::start(MADE_UP.network(), MADE_UP.data_at(slot));
    let task = Task {
        url: server.url().to_owned(),
        folder: folder.path().to_owned(),
        network: MADE_UP.network().clone(),
        root: MADE_UP.root,
    };
    let mut rng = Rng::new(3);
    // Slot of the newest header in the file so far.
    let mut stored = 0;
    let mut read = || {
        let read = BeaconClient::read(folder.path(), MADE_UP.network().clone());
        if let Some(client) = read.expect("a whole light client") {
            let header = client.finalized();
            assert_eq!(MADE_UP.chain.root(header.beacon.slot), Some(header.root));
            assert!(header.beacon.slot >= stored, "from {stored} to {}", header.beacon.slot);
            stored = header.beacon.slot;
        }
        stored
    };
    let recorded = || {
        let text = fs::read_to_string(task.records()).unwrap_or_default();
        // A kill may leave a part of the last line.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().last().map_or(0, |line| line.parse::<u64>().expect("a slot"))
    };
    for kill in 0..KILLS {
        let mut process = Process::start(&task);
        server.take_asked();
        for _ in 0..rng.below(5) {
            // The chain grows while the process asks.
            slot = (slot + 1 + rng.below(9) as u64).min(MADE_UP.now);
            server.set(MADE_UP.data_at(slot));
            let requests = 1 + rng.below(6);
            let (began, mut asked) = (Instant::now(), 0);
            while asked < requests {
                asked += server.take_asked().len();
                read();
                if let Some(status) = process.0.try_wait().expect("asked") {
                    let words = fs::read_to_string(task.folder.join("stderr"));
                    panic!("the process ended by itself: {status}, {words:?}");
                }
                assert!(began.elapsed() < TIMEOUT, "timeout of the process");
            }
        }
        std::thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        process.kill();
        let (stored, recorded) = (read(), recorded());
        assert!(stored >= recorded, "kill {kill}: stored {stored}, received {recorded}");
    }
    assert!(stored > 0, "nothing was stored");
    // The next client goes on from there to the newest block.
    server.set(MADE_UP.data.clone());
    let client = MADE_UP.client([server.url()]).folder(folder.path()).build().expect("readable");
    let started = client.light_client().expect("stored").finalized().beacon.slot;
    assert_eq!(started, stored);
    assert_eq!(client.sync().expect("honest").finalized.beacon.slot, MADE_UP.newest());
}

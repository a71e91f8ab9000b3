//! At random moments, kills a process that follows logs, while the chain grows and is reorganised.
//!
//! The next process resumes at the stored cursor. Every log must be delivered at least once, no log
//! may be invented, and logs of blocks that left the chain must be delivered as removed. If the
//! reader stores the cursor in one transaction with the logs, each log must be delivered exactly
//! once.

mod follower;
mod law;
mod node;
mod records;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chainsieve::eth::header::BlockRef;

use follower::Task;
use law::Tally;
use node::Node;
use records::{BLOCKS, Keeper, REMOVED, lines};
use testkit::{Rng, TestFolder};

/// Number of delivered blocks that the follower remembers: more blocks than a reorganisation
/// removes.
const KEEP: usize = 16;
/// Number of chains on which each way of storing the cursor is tested. `KILLS`: number of kills on
/// each chain.
const CHAINS: u64 = 3;
const KILLS: usize = 21;
/// A process that halts does so before a random step among this many first steps.
const HALT: usize = 60;
/// Timeout of each wait, far longer than a step takes.
const PATIENCE: Duration = Duration::from_secs(3 * 60);

const TASK: &str = "CHAINSIEVE_FOLLOWER_TASK";

#[test]
fn cursor_file_of_the_crate() {
    chains(Keeper::Crate);
}

/// If the reader stores the cursor, the check of the records rejects any repetition.
#[test]
fn cursor_that_the_reader_keeps() {
    chains(Keeper::Reader);
}

/// Follows logs until the process is killed.
#[test]
#[ignore = "a process of other tests"]
fn follower_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    follower::follow(&serde_json::from_str(&task).expect("a task"));
}

fn chains(keeper: Keeper) {
    let mut sum = Tally::default();
    for seed in 0..CHAINS {
        let mut run = Run::begin(keeper, seed);
        for _ in 0..KILLS {
            run.life();
        }
        let tally = run.end();
        // The process catches up with the chain before every fifth kill, and at least one log was
        // delivered each time.
        assert!(tally.delivered > KILLS / 5 && tally.removed > 0, "{tally:?}");
        sum.started += tally.started;
        sum.delivered += tally.delivered;
        sum.removed += tally.removed;
        sum.repeated += tally.repeated;
    }
    println!("{keeper:?}: {sum:?}");
}

/// A chain, and the processes that follow it one after the other.
struct Run {
    node: Node,
    task: Task,
    rng: Rng,
    kills: usize,
    folder: TestFolder,
}

impl Run {
    fn begin(keeper: Keeper, seed: u64) -> Self {
        let folder = TestFolder::new("kill");
        let node = Node::start(seed);
        let task = Task {
            url: node.url.clone(),
            folder: folder.path().to_owned(),
            keeper,
            from: [Some(0), None, Some(7)][usize::try_from(seed % 3).expect("below 3")],
            confirmations: seed % 2 * 2,
            seed: 0,
            halt: None,
        };
        Self { node, task, rng: Rng::new(seed ^ 0x6b69_6c6c), kills: 0, folder }
    }

    /// Runs a process from its start to its kill.
    fn life(&mut self) {
        let kind = self.kills % 5;
        self.task.halt = (kind == 3).then(|| self.rng.below(HALT));
        let mut process = self.start();
        match kind {
            // The process is killed before its first request or shortly after this request.
            0 => self.pause(20_000),
            // The process is killed before a random step. The chain changes until the process has
            // reached this step.
            3 => {
                let halted = self.task.halted();
                while !halted.exists() {
                    self.node.chain().change();
                    let requests = self.requests() + 6;
                    process.wait_until(|| halted.exists() || self.requests() >= requests);
                }
                fs::remove_file(halted).expect("removed");
            }
            4 => {
                self.node.chain().outgrow(self.task.confirmations);
                self.settle(&mut process);
            }
            _ => {
                for _ in 0..self.rng.below(6) {
                    self.node.chain().change();
                    let requests = self.requests() + self.rng.below(12);
                    process.wait_until(|| self.requests() >= requests);
                }
                self.pause(4_000);
            }
        }
        process.kill();
        self.kills += 1;
        if kind == 4 {
            self.node.chain().take_back(self.task.confirmations);
        }
        // The chain also changes while no process follows it.
        for _ in 0..self.rng.below(3) {
            self.node.chain().change();
        }
    }

    /// Runs a last process to the end, and checks the records of all processes.
    fn end(mut self) -> Tally {
        self.task.halt = None;
        self.node.chain().outgrow(self.task.confirmations);
        let mut process = self.start();
        let last = self.settle(&mut process);
        process.kill();
        let text = fs::read_to_string(self.task.records()).expect("records");
        let chain = self.node.chain();
        let tally = law::check(&text, &self.task, &chain.world, last);
        drop(chain);
        drop(self.folder);
        tally
    }

    fn start(&mut self) -> Process {
        self.task.seed = self.rng.u64();
        Process::start(&self.task)
    }

    fn requests(&self) -> usize {
        self.node.chain().requests
    }

    /// Waits until everything is delivered. Returns the last block.
    fn settle(&self, process: &mut Process) -> BlockRef {
        let last = {
            let world = &self.node.chain().world;
            let number = world.head().number - self.task.confirmations;
            world.at(number).expect("a block").at
        };
        let hash = last.hash.to_string();
        process.wait_until(|| {
            let text = fs::read_to_string(self.task.records()).unwrap_or_default();
            let is_end = |(word, _): &(&str, &str)| [BLOCKS, REMOVED].contains(word);
            let end = lines(&text, self.task.keeper).rfind(is_end);
            end.is_some_and(|(_, rest)| rest == hash)
        });
        last
    }

    fn pause(&mut self, longest: usize) {
        std::thread::sleep(Duration::from_micros(self.rng.below(longest) as u64));
    }
}

/// A second process of this program, which executes [`follower_process`].
struct Process {
    child: Child,
    stderr: PathBuf,
}

impl Process {
    fn start(task: &Task) -> Self {
        let stderr = task.folder.join("stderr");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "follower_process", "--ignored", "--nocapture"])
            .env(TASK, serde_json::to_string(task).expect("JSON"))
            .stdout(Stdio::null())
            .stderr(File::create(&stderr).expect("a file"))
            .spawn()
            .expect("starts");
        Self { child, stderr }
    }

    /// Waits until `is_there` returns `true`. Panics if the process ends while this function waits.
    fn wait_until(&mut self, is_there: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_there() {
            self.must_run();
            assert!(began.elapsed() < PATIENCE, "timeout of the process\n{}", self.stderr());
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn must_run(&mut self) {
        let ended = self.child.try_wait().expect("asked");
        assert!(ended.is_none(), "the process ended by itself\n{}", self.stderr());
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Kills the process, by SIGKILL on Unix.
    fn kill(mut self) {
        self.must_run();
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

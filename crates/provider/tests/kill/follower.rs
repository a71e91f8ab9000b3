//! The process that is killed. The process follows logs, records each update, and then acknowledges
//! the update.

use std::path::PathBuf;
use std::time::Duration;

use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::log::LocatedLog;
use chainsieve_provider::{Cursor, LogQuery, News, Provider};
use serde::{Deserialize, Serialize};

use super::records::{BLOCKS, CURSOR, FROM, Keeper, LOG, NONE, REMOVED, Records, STARTED};
use testkit::Rng;
use testkit::eth::world::ASKED;

/// Maximum length of a pause in microseconds.
const PAUSE: usize = 1_500;

/// Configuration of the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    pub(crate) keeper: Keeper,
    /// First block to follow; `None` starts at the newest block.
    pub(crate) from: Option<u64>,
    pub(crate) confirmations: u64,
    pub(crate) seed: u64,
    /// Number of the step before which the process halts, to be killed there.
    pub(crate) halt: Option<usize>,
}

impl Task {
    pub(crate) fn records(&self) -> PathBuf {
        self.folder.join("records")
    }

    /// Path of a file that exists once the process has halted.
    pub(crate) fn halted(&self) -> PathBuf {
        self.folder.join("halted")
    }
}

/// The steps of the process, between which it may pause or halt.
struct Steps<'a> {
    task: &'a Task,
    records: Records,
    taken: usize,
    rng: Rng,
}

impl Steps<'_> {
    fn step(&mut self) {
        if self.task.halt == Some(self.taken) {
            std::fs::write(self.task.halted(), "").expect("written");
            loop {
                std::thread::park();
            }
        }
        self.taken += 1;
        if self.rng.one_in(2) {
            let pause = self.rng.below(PAUSE) as u64;
            std::thread::sleep(Duration::from_micros(pause));
        }
    }

    fn write(&mut self, word: &str, rest: &str) {
        self.step();
        self.records.write(word, rest);
    }

    fn write_logs(&mut self, logs: &[LocatedLog]) {
        for log in logs {
            self.write(LOG, &log.to_json());
        }
    }
}

/// Follows logs until the process is killed.
pub(crate) fn follow(task: &Task) {
    let (records, cursor) = Records::open(&task.records(), task.keeper);
    let mut steps = Steps { task, records, taken: 0, rng: Rng::new(task.seed) };
    steps.write(STARTED, &task.seed.to_string());
    let profile = ChainProfile::assumed("test", BloomSoundness::Exact, ReceiptsScope::EveryLog);
    let provider =
        Provider::builder().url(&task.url).profile(profile).trust_head().build().expect("a node");
    let mut query = LogQuery::new().address(ASKED);
    if let Some(from) = task.from {
        query = query.from_block(from);
    }
    let follow = provider.follow(&query).confirmations(task.confirmations).keep(super::KEEP);
    let follow = follow.poll(Duration::from_millis(2));
    let follow = match (task.keeper, cursor) {
        (Keeper::Crate, _) => follow.cursor_file(task.folder.join("cursor")),
        (Keeper::Reader, None) => follow,
        (Keeper::Reader, Some(cursor)) => follow.cursor(Cursor::from_json(&cursor).expect("one")),
    };
    let following = follow.start().expect("it starts");
    for update in following.updates() {
        match &update.news {
            News::Started(started) => steps.write(FROM, &started.from.to_string()),
            News::Removed(removed) => {
                steps.write_logs(&removed.logs);
                let last = removed.last.map_or(NONE.to_owned(), |last| last.hash.to_string());
                steps.write(REMOVED, &last);
            }
            News::Blocks(blocks) => {
                steps.write_logs(&blocks.logs);
                steps.write(BLOCKS, &blocks.last.hash.to_string());
            }
            other => panic!("not asked for: {other:?}"),
        }
        assert_eq!(update.cursor.is_some(), task.keeper == Keeper::Reader);
        if let Some(cursor) = &update.cursor {
            steps.write(CURSOR, &cursor.to_json());
        }
        steps.step();
        following.acknowledge(&update);
    }
    panic!("it ended: {:?}", following.shutdown());
}

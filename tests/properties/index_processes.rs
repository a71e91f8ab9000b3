//! An index in a folder, with processes that are killed while they write to it.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use alloy_primitives::B256;
use chainsieve::eth::bloom;
use chainsieve::eth::index::{Folder, Index, IndexError, Writer};
use chainsieve::eth::log_query::CompiledQuery;

use testkit::eth::index_sessions::{check_reader, settings};
use testkit::eth::made_up_headers::{Blocks, VALUES};
use testkit::{Rng, TestFolder};

/// Environment variables that give a process its folder and its seed.
const FOLDER: &str = "CHAINSIEVE_INDEX_FOLDER";
const SEED: &str = "CHAINSIEVE_INDEX_SEED";

fn open(folder: &Path) -> Result<Writer<Folder>, IndexError> {
    Ok(Writer::open(Folder::new(folder), &settings())?.with_confirmations(4))
}

/// A process that runs one of the ignored tests below.
struct Process {
    child: Child,
    /// The output lines of the process, until another owner takes them.
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    fn start(test: &str, folder: &Path, seed: u64) -> Self {
        let test = format!("{}::{test}", module_path!().split_once("::").expect("a module").1);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", &test, "--ignored", "--nocapture"])
            .env(FOLDER, folder)
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines: Some(lines) }
    }

    /// Returns the next line that the process reports.
    fn next(&mut self) -> Option<String> {
        self.lines.as_mut()?.find_map(|line| Some(line.ok()?.strip_prefix("> ")?.into()))
    }

    /// Kills the process, and returns the lines that it has reported.
    fn kill(mut self) -> Vec<String> {
        assert_eq!(self.child.try_wait().expect("asked"), None, "it ended");
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
        core::iter::from_fn(|| self.next()).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the folder and the seed of a process that was started by [`Process::start`].
fn task() -> Option<(PathBuf, u64)> {
    let seed = std::env::var(SEED).ok()?.parse().expect("a number");
    Some((std::env::var_os(FOLDER)?.into(), seed))
}

/// Writes without end. Reports each operation before it begins, and each sync after it has
/// succeeded.
#[test]
#[ignore = "a process of other tests"]
fn writer_process() {
    let Some((folder, seed)) = task() else { return };
    let mut rng = Rng::new(seed);
    let mut blocks = Blocks::default();
    let mut writer = open(&folder).expect("opens");
    println!();
    for step in 1.. {
        match rng.below(8) {
            0 => {
                let Some(numbers) = writer.numbers() else { continue };
                let last =
                    numbers.end() - (rng.below(5) as u64).min(numbers.end() - numbers.start());
                if writer.hash(last).is_some() {
                    println!("> back {last}");
                    writer.roll_back(last).expect("taken back");
                }
            }
            1..5 => {
                let next = writer.numbers().map_or(0, |numbers| numbers.end() + 1);
                // Append a whole section: often at first, and rarely later, so that the index stays
                // small.
                let seldom = if next < 30_000 { 6 } else { 400 };
                let count = if rng.one_in(seldom) { 8192 } else { 1 + rng.below(40) };
                // Other hashes with the same blooms.
                let branch = 7000 * (seed << 32 | step);
                println!("> append {count} {branch}");
                let parent = writer.last_hash().unwrap_or_default();
                let chain = blocks.extend(next, parent, count, branch);
                writer.append(&chain).expect("appended");
            }
            _ => {
                writer.sync().expect("synced");
                println!("> synced");
            }
        }
    }
}

/// The state that an index must have, according to the reports of its writer.
struct Model {
    blocks: Blocks,
    tip: Option<B256>,
    /// The last blocks that are possible since the last acknowledgement.
    allowed: HashSet<Option<B256>>,
}

impl Model {
    fn hear(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        match words[0] {
            "append" => {
                let next = self.tip.map_or(0, |tip| self.blocks.number(tip) + 1);
                let count = usize::try_from(number(1)).expect("few");
                let parent = self.tip.unwrap_or_default();
                let chain = self.blocks.extend(next, parent, count, number(2));
                self.allowed.extend(chain.blocks().map(|block| Some(block.hash)));
                self.tip = chain.last_hash();
            }
            "back" => {
                self.tip = self.tip.map(|tip| self.blocks.ancestor(tip, number(1)));
                self.allowed.insert(self.tip);
            }
            "synced" => self.allowed = [self.tip].into(),
            word => panic!("{word}"),
        }
    }
}

#[test]
fn a_killed_writer_leaves_what_was_acknowledged() {
    let folder = TestFolder::new("killed");
    let mut rng = Rng::new(0x9111);
    let mut model = Model { blocks: Blocks::default(), tip: None, allowed: [None].into() };
    for seed in 0..12 {
        let mut process = Process::start("writer_process", folder.path(), seed);
        let lines = 1 + rng.below(40);
        for line in 0..lines {
            model.hear(&process.next().expect("goes on"));
            if line == 0 {
                assert_eq!(open(folder.path()).err(), Some(IndexError::Locked));
            }
        }
        for line in process.kill() {
            model.hear(&line);
        }
        let mut writer = open(folder.path()).expect("the lock went with the process");
        model.tip = writer.last_hash();
        assert!(model.allowed.contains(&model.tip), "{:?}", writer.numbers());
        if let Some(tip) = model.tip {
            let index = Index::open(Folder::new(folder.path())).expect("opens");
            check_reader(&index, 0, tip, &model.blocks);
            if rng.one_in(2) {
                writer.sync().expect("synced");
                model.allowed = [model.tip].into();
            }
        }
    }
    assert!(model.tip.is_some_and(|tip| model.blocks.number(tip) > 8192));
}

/// Reads without end. After each change, checks that all blocks are those that the writer makes.
#[test]
#[ignore = "a process of other tests"]
fn reader_process() {
    let Some((folder, _)) = task() else { return };
    let values = VALUES.map(|value| CompiledQuery::new(vec![vec![bloom::positions(&value)]]));
    let mut index = loop {
        match Index::open(Folder::new(&folder)) {
            Ok(index) => break index,
            Err(error) => assert_eq!(error, IndexError::NoIndex),
        }
    };
    println!();
    loop {
        if index.refresh().expect("whatever a writer does") {
            let Some(numbers) = index.numbers() else { continue };
            for (query, every) in values.iter().zip([7, 100]) {
                let found = index.candidates(query, numbers.clone());
                let found = found.expect("answered");
                let holds =
                    |number: &u64| number.is_multiple_of(every) || number.is_multiple_of(1000);
                assert!(found.iter().eq(numbers.clone().filter(holds)), "{numbers:?}");
            }
            println!("> {}", numbers.end());
        }
    }
}

/// Runs one process that writes and two that read, until each reader has seen this many changes.
fn one_writes_and_two_read(name: &str, changes: usize) {
    let folder = TestFolder::new(name);
    let mut writer = Process::start("writer_process", folder.path(), 77);
    // Read the writer's output: a full pipe would stop the writer.
    let heard = writer.lines.take().map(|lines| std::thread::spawn(|| lines.count()));
    let mut readers = [1, 2].map(|seed| Process::start("reader_process", folder.path(), seed));
    for reader in &mut readers {
        for change in 0..changes {
            assert!(reader.next().is_some(), "a reader ended after {change} changes");
        }
    }
    for process in readers {
        process.kill();
    }
    writer.kill();
    assert!(heard.expect("taken once").join().expect("heard") > 0);
    let last = open(folder.path()).expect("opens").numbers().expect("blocks");
    assert!(*last.end() > 8192, "{last:?}");
}

#[test]
fn two_read_while_one_writes() {
    one_writes_and_two_read("read", 40);
}

#[test]
#[ignore = "long: a minute or so"]
fn two_read_while_one_writes_for_long() {
    let changes = std::env::var("CHAINSIEVE_INDEX_CHANGES").ok();
    let changes = changes.map_or(4000, |changes| changes.parse().expect("a number"));
    one_writes_and_two_read("read-long", changes);
}

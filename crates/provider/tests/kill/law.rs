//! Checks the property that the records of all processes together must have.

use std::collections::{HashMap, HashSet};

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;

use super::follower::Task;
use super::records::{BLOCKS, CURSOR, FROM, Keeper, LOG, NONE, REMOVED, STARTED, lines};
use testkit::eth::world::{ASKED, Key, World};

/// Counts of what was delivered.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of processes that wrote at least one record.
    pub(crate) started: usize,
    pub(crate) delivered: usize,
    pub(crate) removed: usize,
    /// Number of repetitions that a kill explains: logs delivered again because their
    /// acknowledgement may be lost, and logs removed although they may not have been delivered.
    pub(crate) repeated: usize,
}

/// State of a reader of the records: the delivered logs so far.
struct Reader<'a> {
    world: &'a World,
    keeper: Keeper,
    /// Logs that were delivered and not removed.
    logs: HashMap<Key, Vec<u8>>,
    /// Logs of the update whose records are being read.
    update: HashSet<Key>,
    /// `true` if all records of the current update were read.
    is_whole: bool,
    /// Logs of updates that may not have been acknowledged when a process was killed.
    unsure: HashSet<Key>,
    /// Logs that this process removed and has not delivered again since.
    taken_back: HashSet<Key>,
    /// The first block to follow, if it was given as a number.
    from: Option<u64>,
    first: Option<u64>,
    /// The last block up to which all logs were delivered.
    last: Option<BlockRef>,
    tally: Tally,
}

/// Checks the records of a task against all branches that the chain ever had. `last` is the block
/// up to which everything was delivered in the end.
pub(crate) fn check(text: &str, task: &Task, world: &World, last: BlockRef) -> Tally {
    let keeper = task.keeper;
    let mut reader = Reader {
        world,
        keeper,
        logs: HashMap::new(),
        update: HashSet::new(),
        is_whole: false,
        unsure: HashSet::new(),
        taken_back: HashSet::new(),
        from: task.from,
        first: None,
        last: None,
        tally: Tally::default(),
    };
    for (word, rest) in lines(text, keeper) {
        reader.read(word, rest);
    }
    assert_eq!(reader.last, Some(last), "all is given out");
    let first = reader.first.expect("it began");
    assert_eq!(reader.logs, world.logs_up_to(last, first), "every log, and no other");
    reader.tally
}

impl Reader<'_> {
    fn read(&mut self, word: &str, rest: &str) {
        match word {
            STARTED => {
                self.tally.started += 1;
                self.is_whole = false;
                self.taken_back.clear();
                let update = self.update.drain();
                match self.keeper {
                    Keeper::Crate => self.unsure.extend(update),
                    // A reader's transaction is either complete or absent.
                    Keeper::Reader => drop(update),
                }
            }
            FROM => {
                let from = rest.parse().expect("a number");
                let first = *self.first.get_or_insert(from);
                assert_eq!(first, from, "each process has the same first block");
                assert_eq!(first, self.from.unwrap_or(first), "the requested first block");
            }
            LOG => {
                self.begin();
                self.log(&LocatedLog::from_json(rest).expect("a log"));
            }
            BLOCKS | REMOVED => {
                self.begin();
                let block = |hash: &str| self.world.blocks[&hash.parse::<B256>().expect("it")].at;
                self.last = (rest != NONE).then(|| block(rest));
                self.is_whole = true;
                if let Some(last) = self.last.filter(|_| word == BLOCKS) {
                    // When new blocks are delivered, the logs of all blocks that left the chain
                    // were already removed.
                    let number = |key: &Key| self.world.blocks[&key.0].at.number;
                    self.unsure.retain(|key| number(key) > last.number);
                }
                self.compare();
            }
            CURSOR => {}
            other => panic!("a record of an unknown kind: {other}"),
        }
    }

    /// Begins an update, unless the records of an update are still being read. The beginning of an
    /// update shows that the previous update was acknowledged.
    fn begin(&mut self) {
        if std::mem::take(&mut self.is_whole) {
            for key in self.update.drain() {
                self.unsure.remove(&key);
            }
        }
    }

    fn log(&mut self, log: &LocatedLog) {
        let key = (log.block_hash, log.log_index);
        let block = self.world.blocks.get(&log.block_hash);
        let block = block.unwrap_or_else(|| panic!("a log of an unknown block: {log:?}"));
        let asked = block.asked.iter().find(|(index, _)| *index == log.log_index);
        let (_, data) = asked.unwrap_or_else(|| panic!("a log that is not in its block: {log:?}"));
        let whole = (log.block_number, log.log.address, &log.log.data.data[..]);
        assert_eq!(whole, (block.at.number, ASKED, &data[..]));
        assert!(log.log.data.topics().is_empty());
        // The hash is the true one, or unproven if the block left the chain before its transactions
        // came.
        let at = usize::try_from(log.transaction_index).expect("an index");
        assert!(log.transaction_hash.is_none_or(|hash| hash == block.hashes[at]), "{log:?}");
        assert!(self.first.is_some_and(|first| first <= log.block_number), "too early: {log:?}");
        let (came, unsure) = if log.removed {
            self.tally.removed += 1;
            let was = self.logs.remove(&key);
            // The process may have been killed before it delivered the log.
            let may_be = self.keeper == Keeper::Crate && self.tally.started > 1;
            (was.is_some(), may_be && self.taken_back.insert(key))
        } else {
            self.tally.delivered += 1;
            self.taken_back.remove(&key);
            let was = self.logs.insert(key, data.clone());
            (was.is_none(), self.unsure.contains(&key))
        };
        self.tally.repeated += usize::from(!came);
        assert!(came || unsure, "the log was already delivered and acknowledged: {log:?}");
        self.update.insert(key);
    }

    /// Checks the logs that were delivered and not removed. They must be the logs of the chain up
    /// to the last block, except for logs that are still unsure.
    fn compare(&self) {
        let Some(first) = self.first else { panic!("the first block is not known yet") };
        let expected = self.last.map(|last| self.world.logs_up_to(last, first)).unwrap_or_default();
        let is_sure = |key: &&Key| !self.unsure.contains(*key) || self.update.contains(*key);
        let have: HashSet<&Key> = self.logs.keys().filter(is_sure).collect();
        let should: HashSet<&Key> = expected.keys().filter(is_sure).collect();
        assert_eq!(have, should, "up to {:?}", self.last);
    }
}

//! Sessions of index writers, which record the states that the index may be in after a crash.

use alloy_primitives::B256;
use chainsieve::eth::bloom;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Index, IndexError, Settings, Storage, Writer};
use chainsieve::eth::log_query::CompiledQuery;

use crate::eth::made_up_headers::{Blocks, VALUES};
use crate::eth::recording_storage::{Disk, Recorder};

/// Number of newest blocks that stay unsealed in sessions.
pub const CONFIRMATIONS: u64 = 4;

pub fn settings() -> Settings {
    Settings::new("made up").expect("a label")
}

pub fn open(recorder: &Recorder) -> Result<Writer<Recorder>, IndexError> {
    Ok(Writer::open(recorder.clone(), &settings())?.with_confirmations(CONFIRMATIONS))
}

/// A writer, and all states that it went through. The hash of the last block identifies a state,
/// because blocks are added one by one.
pub struct Session {
    pub recorder: Recorder,
    pub writer: Writer<Recorder>,
    pub first: u64,
    pub tip: Option<B256>,
    /// Each state, with the number of storage operations done before it.
    states: Vec<(usize, Option<B256>)>,
    /// For each sync: the number of operations that were done when it returned, and the index of
    /// the state that it acknowledged.
    acknowledged: Vec<(usize, usize)>,
    branch: u64,
}

impl Session {
    /// Opens a session that continues with the existing files.
    pub fn open(recorder: Recorder, first: u64) -> Result<Self, IndexError> {
        let writer = open(&recorder)?;
        let tip = writer.last_hash();
        let done = recorder.done();
        let (states, acknowledged) = (vec![(done, tip)], vec![(0, 0)]);
        Ok(Self { recorder, writer, first, tip, states, acknowledged, branch: 0 })
    }

    /// Drops the writer and its changes that were not synced, and opens another writer.
    pub fn reopen(self) -> Result<Self, IndexError> {
        let Self { recorder, writer, first, mut states, acknowledged, branch, .. } = self;
        drop(writer);
        let writer = open(&recorder)?;
        let tip = writer.last_hash();
        states.push((recorder.done(), tip));
        Ok(Self { recorder, writer, first, tip, states, acknowledged, branch })
    }

    /// Appends `count` new blocks after the last one.
    pub fn extend(&mut self, blocks: &mut Blocks, count: usize) -> Result<(), IndexError> {
        self.branch += 1;
        let chain = match self.tip {
            Some(tip) => blocks.extend(blocks.number(tip) + 1, tip, count, self.branch),
            None => blocks.extend(self.first, B256::ZERO, count, self.branch),
        };
        self.append(&chain)
    }

    pub fn append(&mut self, chain: &LinkedHeaders) -> Result<(), IndexError> {
        let done = self.recorder.done();
        self.states.extend(chain.blocks().map(|block| (done, Some(block.hash))));
        let added = self.writer.append(chain)?;
        assert_eq!(added, chain.len() as u64);
        self.tip = chain.last_hash();
        self.check();
        Ok(())
    }

    /// Rolls back the last `count` blocks.
    pub fn roll_back(&mut self, blocks: &Blocks, count: u64) -> Result<(), IndexError> {
        let tip = self.tip.expect("blocks to take back");
        let last = blocks.number(tip) - count;
        self.tip = Some(blocks.ancestor(tip, last));
        self.states.push((self.recorder.done(), self.tip));
        assert_eq!(self.writer.roll_back(last)?, count);
        self.check();
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), IndexError> {
        self.writer.sync()?;
        self.acknowledged.push((self.recorder.done(), self.states.len() - 1));
        self.check();
        Ok(())
    }

    fn check(&self) {
        assert_eq!(self.writer.last_hash(), self.tip);
        assert_eq!(
            self.writer.numbers().map(|numbers| *numbers.start()),
            self.tip.map(|_| self.first)
        );
    }

    /// Returns the possible last blocks of an index after a crash that came after `done`
    /// operations.
    pub fn allowed(&self, done: usize) -> Vec<Option<B256>> {
        let known = self.acknowledged.iter().rfind(|(before, _)| *before <= done);
        let (_, from) = *known.expect("the state at the start");
        let (known, later) = self.states[from..].split_first().expect("the acknowledged state");
        let later = later.iter().filter(|(before, _)| *before < done);
        core::iter::once(known).chain(later).map(|(_, tip)| *tip).collect()
    }
}

/// Checks that a reader has exactly the blocks from `first` to `tip`, and finds in them the values
/// that alloy finds.
pub fn check_reader<S: Storage>(index: &Index<S>, first: u64, tip: B256, blocks: &Blocks) {
    let all = first..=blocks.number(tip);
    assert_eq!(index.numbers(), Some(all.clone()));
    assert_eq!(index.next_known_hash(*all.end()).expect("the last block"), (*all.end(), tip));
    for (value, expected) in VALUES.iter().zip(blocks.found(tip)) {
        let query = CompiledQuery::new(vec![vec![bloom::positions(value)]]);
        let found = index.candidates(&query, all.clone()).expect("answered");
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
}

/// Opens the files that a crash left, checks that they are in one of the allowed states, and
/// continues with these files. Returns the session, which has synced three more blocks.
pub fn recovered(
    disk: &Disk,
    first: u64,
    allowed: &[Option<B256>],
    blocks: &mut Blocks,
) -> Session {
    let mut session = Session::open(Recorder::of(disk), first).expect("opens");
    assert!(allowed.contains(&session.tip), "{:?} is not one of {allowed:?}", session.tip);
    session.branch = 1 << 32;
    let index = Index::open(Recorder::of(disk));
    if let Some(tip) = session.tip {
        let numbers = session.writer.numbers();
        assert_eq!(numbers, Some(first..=blocks.number(tip)));
        check_reader(&index.expect("opens"), first, tip, blocks);
    } else if disk.get("manifest").is_some() {
        assert_eq!(index.expect("opens").numbers(), None);
    } else {
        assert_eq!(index.err(), Some(IndexError::NoIndex));
    }
    session.extend(blocks, 3).expect("goes on");
    session.sync().expect("acknowledged");
    session
}

/// Opens the files of a session after its sync. Checks that the files contain all blocks, and that
/// no file is unused.
pub fn check_synced(session: Session, blocks: &Blocks) {
    let (first, tip) = (session.first, session.tip);
    let session = session.reopen().expect("opens");
    assert_eq!(session.writer.last_hash(), tip);
    let index = Index::open(session.recorder.clone()).expect("opens");
    check_reader(&index, first, tip.expect("blocks"), blocks);
    let disk = session.recorder.now();
    let sections = disk
        .get("manifest")
        .map_or(0, |bytes| u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")));
    let tails = disk.with_extension("tail").count();
    let segments = disk.with_extension("segment").count();
    // One segment exists for each set bit of the number of sections, which is below 32 here.
    assert!(sections < 32);
    assert_eq!((tails, segments), (1, sections.count_ones() as usize));
    assert_eq!(disk.names().count(), 2 + segments);
}

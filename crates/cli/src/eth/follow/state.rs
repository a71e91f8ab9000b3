//! What was printed, in a file that outlives kills and power cuts.
//!
//! The file is replaced before a batch is printed, with the blocks of the batch marked as unsure,
//! and again after. So whoever reads it knows of each block whose lines may be out.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::log::LocatedLog;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::blocks::{Block, Blocks, Point, Work};
use super::machine::Machine;
use super::messages::{Batch, Reorg};
use crate::input::named;
use crate::output::grouped;

const VERSION: u32 = 1;
/// Larger than any: the logs of some hundred full blocks.
const MAX_BYTES: u64 = 4 << 30;

/// What a file is of: another command line may not go on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    pub(super) chain_id: u64,
    /// The query without its range, as `eth_getLogs` takes it.
    pub(super) query: String,
    pub(super) semantics: String,
    /// The first block that is linked.
    pub(super) start: u64,
    /// The first block that is of interest.
    pub(super) from: u64,
}

/// What an earlier process left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) blocks: Blocks,
    pub(super) reorg: Option<Reorg>,
    pub(super) anchored: Option<Point>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    subject: Subject,
    /// Whether there were blocks below the first of these.
    let_go: bool,
    blocks: Vec<SavedBlock>,
    reorg: Option<SavedReorg>,
    anchored: Option<SavedPoint>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct SavedPoint {
    number: u64,
    hash: B256,
}

#[derive(Serialize, Deserialize)]
struct SavedBlock {
    number: u64,
    hash: B256,
    /// Whether it is not known that its lines are out.
    unsure: bool,
    logs: Vec<Box<RawValue>>,
}

#[derive(Serialize, Deserialize)]
struct SavedReorg {
    ancestor: Option<SavedPoint>,
    removed: Vec<SavedBlock>,
}

impl From<Point> for SavedPoint {
    fn from(point: Point) -> Self {
        Self { number: point.number, hash: point.hash }
    }
}

impl From<SavedPoint> for Point {
    fn from(point: SavedPoint) -> Self {
        Self { number: point.number, hash: point.hash }
    }
}

impl SavedBlock {
    fn of(block: &Block, unsure: bool) -> anyhow::Result<Self> {
        let raw = |log: &LocatedLog| RawValue::from_string(log.to_json());
        let logs = block.logs().iter().map(raw).collect::<Result<_, _>>()?;
        Ok(Self { number: block.at.number, hash: block.at.hash, unsure, logs })
    }

    fn read(self) -> anyhow::Result<Block> {
        let Self { number, hash, unsure, logs } = self;
        let logs = logs.iter().map(|log| LocatedLog::from_json(log.get()));
        let logs =
            logs.collect::<Result<Vec<_>, _>>().with_context(|| format!("block {number}"))?;
        ensure!(
            logs.iter().all(|log| log.block_number == number && log.block_hash == hash),
            "block {number}: a log of another block"
        );
        Ok(Block { at: Point { number, hash }, work: Work::Logs(logs), unsure })
    }
}

/// The text of the file when this batch is about to be printed, or when nothing is.
pub(super) fn text(
    machine: &Machine,
    subject: &Subject,
    batch: Option<Batch>,
) -> anyhow::Result<String> {
    let blocks = machine.blocks();
    let mut saved = Vec::new();
    for block in blocks.printed() {
        saved.push(SavedBlock::of(block, false)?);
    }
    let upcoming = match batch {
        Some(Batch::Blocks(count)) => count,
        _ => 0,
    };
    for (index, block) in blocks.pending().enumerate() {
        if index >= upcoming && !block.unsure {
            break;
        }
        saved.push(SavedBlock::of(block, true)?);
    }
    let reorg = machine.pending_reorg().map(|reorg| {
        let removed = reorg.removed.iter().map(|block| SavedBlock::of(block, true));
        let removed = removed.collect::<anyhow::Result<_>>()?;
        anyhow::Ok(SavedReorg { ancestor: reorg.ancestor.map(Into::into), removed })
    });
    let saved = Saved {
        version: VERSION,
        subject: subject.clone(),
        let_go: blocks.has_let_go(),
        blocks: saved,
        reorg: reorg.transpose()?,
        anchored: machine.anchored().map(Into::into),
    };
    Ok(serde_json::to_string(&saved)?)
}

/// Reads what [`text`] wrote.
pub(super) fn parse(text: &str) -> anyhow::Result<(Subject, Left)> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_str(text).context("no state of eth follow")?;
    ensure!(version == VERSION, "of version {version}; this program reads version {VERSION}");
    let Saved { subject, let_go, blocks, reorg, anchored, .. } = serde_json::from_str(text)?;
    let blocks = blocks.into_iter().map(SavedBlock::read).collect::<anyhow::Result<Vec<_>>>()?;
    for pair in blocks.windows(2) {
        let (before, behind) = (pair[0].at.number, pair[1].at.number);
        ensure!(before < behind, "block {behind} comes behind block {before}");
        ensure!(pair[1].unsure || !pair[0].unsure, "block {behind} is sure, and {before} is not");
    }
    let reorg = reorg.map(|SavedReorg { ancestor, removed }| {
        let removed = removed.into_iter().map(SavedBlock::read).collect::<anyhow::Result<_>>()?;
        anyhow::Ok(Reorg { ancestor: ancestor.map(Into::into), removed })
    });
    let printed = blocks.iter().take_while(|block| !block.unsure).count();
    let left = Left {
        blocks: Blocks::of(blocks, printed, let_go),
        reorg: reorg.transpose()?,
        anchored: anchored.map(Into::into),
    };
    Ok((subject, left))
}

/// The file, which no other process writes meanwhile.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    /// Held.
    _lock: File,
}

impl StateFile {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let name = || format!("state, {}", named(path));
        let lock_path = beside(path, ".lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.with_context(name)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}: another process follows with it", name()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(name),
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// What an earlier process left; none if there was none.
    pub(super) fn read(&self) -> anyhow::Result<Option<(Subject, Left)>> {
        let name = || format!("state, {}", named(&self.path));
        let size = match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata.with_context(name)?.len(),
        };
        let (size_text, limit) = (grouped(size), grouped(MAX_BYTES));
        ensure!(size <= MAX_BYTES, "{}: {size_text} bytes; the limit is {limit}", name());
        let text = fs::read_to_string(&self.path).with_context(name)?;
        parse(&text).map(Some).with_context(name)
    }

    /// Replaces the file; when this returns it is durable.
    pub(super) fn write(&self, text: &str) -> anyhow::Result<()> {
        let write = || {
            let new = beside(&self.path, ".new");
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            if cfg!(unix) {
                let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
                File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            io::Result::Ok(())
        };
        write().with_context(|| format!("state, {}", named(&self.path)))
    }
}

/// A path with something at the end of its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

//! The polled folder: files of blocks, and `mempool/` with files of transactions.
//!
//! A truncated file may still be under construction. Such a file is read again when it changes. It
//! is reported as damaged if it has not changed for a while.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use chainsieve::bitcoin::Transaction;
use chainsieve_report::blocks::{SourcedBlock, decode, files, for_each_block_of};
use chainsieve_report::{Input, named};

/// Time without a change after which a truncated file is reported as damaged.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest file of one transaction in bytes: the hex of the largest message payload.
const MAX_TX_FILE: u64 = 8_000_000;
/// The subfolder of transactions.
const MEMPOOL: &str = "mempool";

/// The folder, and the state of its files.
pub(super) struct Folder {
    root: PathBuf,
    blocks: HashMap<PathBuf, Seen<()>>,
    transactions: HashMap<PathBuf, Seen<Arc<Transaction>>>,
}

/// The state of a file when it was read last.
struct Seen<T> {
    stamp: Stamp,
    state: State<T>,
}

/// Length and modification time of a file, to detect changes.
type Stamp = (u64, Option<SystemTime>);

enum State<T> {
    Read(T),
    /// The file is truncated and may still be under construction.
    Unread {
        since: Instant,
    },
    Damaged,
}

/// Changes in the folder, except new blocks.
#[derive(Default)]
pub(super) struct News {
    /// All current transactions, if any was added or removed.
    pub(super) transactions: Option<Vec<Arc<Transaction>>>,
    /// Errors of damaged files.
    pub(super) complaints: Vec<String>,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), blocks: HashMap::new(), transactions: HashMap::new() }
    }

    /// Polls the folder; calls `take` with the blocks of new and changed files. If a file is
    /// truncated, its complete blocks are passed.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be listed.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        mut take: impl FnMut(SourcedBlock),
    ) -> anyhow::Result<News> {
        let mut news = News::default();
        let files = list(&self.root).with_context(|| named(&self.root))?;
        self.blocks.retain(|path, _| is_listed(&files, path));
        for (path, stamp) in files {
            let read = || read_blocks(&path, &mut take);
            look(&mut self.blocks, &path, stamp, now, read, &mut news.complaints);
        }
        let mempool = self.root.join(MEMPOOL);
        let files = match list(&mempool) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            files => files.with_context(|| named(&mempool))?,
        };
        let before = self.transactions.len();
        self.transactions.retain(|path, _| is_listed(&files, path));
        let mut changed = self.transactions.len() != before;
        for (path, stamp) in files {
            let read = || read_transaction(&path);
            changed |= look(&mut self.transactions, &path, stamp, now, read, &mut news.complaints);
        }
        if changed {
            let read = self.transactions.values().filter_map(|seen| match &seen.state {
                State::Read(tx) => Some(Arc::clone(tx)),
                _ => None,
            });
            news.transactions = Some(read.collect());
        }
        Ok(news)
    }
}

/// Reads a file if it is new or has changed. A file that could not be read is tried once more after
/// a while without changes. Returns `true` if the file was read, so that its contents may have
/// changed.
fn look<T>(
    seen: &mut HashMap<PathBuf, Seen<T>>,
    path: &Path,
    stamp: Stamp,
    now: Instant,
    read: impl FnOnce() -> anyhow::Result<T>,
    complaints: &mut Vec<String>,
) -> bool {
    let since = match seen.get(path) {
        Some(seen) if seen.stamp == stamp => match seen.state {
            State::Unread { since } if now.duration_since(since) >= PATIENCE => Some(since),
            _ => return false,
        },
        _ => None,
    };
    let state = match read() {
        Ok(read) => State::Read(read),
        Err(_) if since.is_none() => State::Unread { since: now },
        Err(error) => {
            complaints.push(format!("damaged or truncated file: {error:#}"));
            State::Damaged
        }
    };
    seen.insert(path.to_owned(), Seen { stamp, state });
    true
}

/// Returns the files of a folder, each with its stamp, in the order of their names.
fn list(folder: &Path) -> io::Result<Vec<(PathBuf, Stamp)>> {
    let stamp = |metadata: Metadata| (metadata.len(), metadata.modified().ok());
    Ok(files(folder)?.into_iter().map(|(path, metadata)| (path, stamp(metadata))).collect())
}

fn is_listed(files: &[(PathBuf, Stamp)], path: &Path) -> bool {
    files.binary_search_by(|(file, _)| file.as_path().cmp(path)).is_ok()
}

fn read_blocks(path: &Path, take: &mut impl FnMut(SourcedBlock)) -> anyhow::Result<()> {
    for_each_block_of(path, |block| {
        take(block);
        Ok(())
    })
}

fn read_transaction(path: &Path) -> anyhow::Result<Arc<Transaction>> {
    let source = named(path);
    let bytes = fs::read(path).with_context(|| source.clone())?;
    let length = bytes.len() as u64;
    ensure!(length <= MAX_TX_FILE, "{source}: {length} bytes, the limit is {MAX_TX_FILE}");
    let Input { source, bytes } = Input { source, bytes }.unhex("transaction")?;
    Ok(Arc::new(decode(&bytes).with_context(|| format!("transaction, {source}"))?))
}

#[cfg(test)]
mod tests;

//! The file that `btc cf build` writes.
//!
//! The file is created, or truncated to its intact part, only when the first filter is written. A
//! build that fails before it writes a filter creates no file and changes none.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::bip158::container::{BatchReader, ContainerError, Header, Intact, Writer};
use chainsieve_report::{count, named};

/// A file that filters are appended to.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The file does not exist yet.
    New,
    /// The file exists; an incomplete record may follow its intact part.
    Old(File, Intact),
    Open(Writer<BufWriter<File>>),
}

impl Target {
    /// Returns a target for a file that must not exist yet.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        // A link whose target is missing is treated as an existing file.
        ensure!(
            path.symlink_metadata().is_err(),
            "{}: the file exists; --append continues after its last filter",
            named(path)
        );
        Ok(Self { path: path.to_owned(), state: State::New })
    }

    /// Opens a file with filters. Also returns the intact part of the file, and the number of bytes
    /// of an incomplete last record. The first filter that is appended overwrites this record.
    ///
    /// Only an incomplete last record may follow the intact part. Any other bytes after this part
    /// are a damaged record: to truncate the file there would delete the records after the damage.
    pub(crate) fn append_to(path: &Path) -> anyhow::Result<(Self, Intact, u64)> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        lock(&file)?;
        let (intact, damage) = BatchReader::new(BufReader::new(&file))?.recover()?;
        let behind = file.metadata()?.len().saturating_sub(intact.bytes);
        let cut = match damage {
            None => 0,
            Some(ContainerError::RecordTruncated { .. }) => behind,
            Some(damage) => bail!(
                "{damage}; {} precede the damage; the {} after them are kept: to discard these \
                 bytes, truncate the file to {} bytes first",
                count(intact.records, "intact filter"),
                count(behind, "byte"),
                intact.bytes
            ),
        };
        Ok((Self { path: path.to_owned(), state: State::Old(file, intact) }, intact, cut))
    }

    /// Appends a filter and flushes it to the file; a new file starts with `header`.
    pub(crate) fn append(
        &mut self,
        header: Header,
        block_hash: &BlockHash,
        content: &[u8],
    ) -> anyhow::Result<()> {
        let path = &self.path;
        let writer = match &mut self.state {
            State::Open(writer) => writer,
            State::New => {
                let file = File::create_new(path).with_context(|| named(path))?;
                lock(&file).with_context(|| named(path))?;
                self.state = State::Open(Writer::create(BufWriter::new(file), header)?);
                return self.append(header, block_hash, content);
            }
            State::Old(file, intact) => {
                file.set_len(intact.bytes).with_context(|| named(path))?;
                let writer = Writer::resume(BufWriter::new(file.try_clone()?), *intact);
                self.state = State::Open(writer);
                return self.append(header, block_hash, content);
            }
        };
        writer
            .append(block_hash, content)
            .and_then(|()| writer.flush())
            .with_context(|| named(path))
    }

    /// Syncs the file to the disk.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if let State::Open(writer) = self.state {
            let file = writer.finish()?.into_inner().map_err(|error| anyhow!(error.to_string()))?;
            file.sync_all().with_context(|| named(&self.path))?;
        }
        Ok(())
    }
}

/// Locks the file: two processes that append at once would damage it. Where the system cannot lock
/// files, the file stays unlocked.
fn lock(file: &File) -> anyhow::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another process is appending to the file"),
        Err(TryLockError::Error(_)) | Ok(()) => Ok(()),
    }
}

//! The file that `btc cf build` writes: made, or cut to what is intact, only when the first filter
//! is there, so that a build that fails before leaves nothing behind and loses nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::bitcoin::BlockHash;
use chainsieve::btc::bip158::container::{BatchReader, ContainerError, Header, Intact, Writer};

use crate::input::named;
use crate::output::count;

/// A file that filters are appended to.
#[derive(Debug)]
pub(crate) struct Target {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not there yet.
    New,
    /// There, with filters; after them may be a part of a record.
    Old(File, Intact),
    Open(Writer<BufWriter<File>>),
}

impl Target {
    /// A file that must not be there yet.
    pub(crate) fn new(path: &Path) -> anyhow::Result<Self> {
        // A link to nowhere is there too.
        ensure!(
            path.symlink_metadata().is_err(),
            "{}: is there already; --append goes on behind its last filter",
            named(path)
        );
        Ok(Self { path: path.to_owned(), state: State::New })
    }

    /// Opens a file with filters. Also returns its intact part, and the number of trailing bytes of
    /// an incomplete record, which the first filter that is appended overwrites.
    ///
    /// Only an incomplete last record may follow the intact part. Anything else is damage to a
    /// record that was complete, and cutting it off would lose what comes after it.
    pub(crate) fn append_to(path: &Path) -> anyhow::Result<(Self, Intact, u64)> {
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        lock(&file)?;
        let (intact, damage) = BatchReader::new(BufReader::new(&file))?.recover()?;
        let behind = file.metadata()?.len().saturating_sub(intact.bytes);
        let cut = match damage {
            None => 0,
            Some(ContainerError::RecordTruncated { .. }) => behind,
            Some(damage) => bail!(
                "{damage}; {} stand before it, and {} from there on, which are kept: to give them \
                 up, cut the file to {} bytes first",
                count(intact.records, "intact filter"),
                count(behind, "byte"),
                intact.bytes
            ),
        };
        Ok((Self { path: path.to_owned(), state: State::Old(file, intact) }, intact, cut))
    }

    /// Appends a filter; it is in the file when this returns. `header` starts a new file.
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

    /// Waits until all is on the disk.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if let State::Open(writer) = self.state {
            let file = writer.finish()?.into_inner().map_err(|error| anyhow!(error.to_string()))?;
            file.sync_all().with_context(|| named(&self.path))?;
        }
        Ok(())
    }
}

/// Two that append at once would damage the file. Where files cannot be locked, none is.
fn lock(file: &File) -> anyhow::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => bail!("another process appends to it"),
        Err(TryLockError::Error(_)) | Ok(()) => Ok(()),
    }
}

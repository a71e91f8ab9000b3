//! Files of filters in the order of their heights: a single file, or all files of a folder.

use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::btc::bip158::{filter_hash, filter_header};
use chainsieve::btc::bip158::container::{Batch, BatchReader, ContainerError, Header};
use chainsieve_report::{grouped, named};
use rayon::prelude::*;

use super::block_hashes::BlockHashes;

/// Size of the read buffer in bytes, large enough for few system calls.
const BUFFER: usize = 1 << 20;
/// Number of bytes of filters in a batch, enough to keep every core busy.
const BATCH: usize = 16 << 20;

/// Files of filters whose heights are consecutive, also from file to file.
#[derive(Debug)]
pub(crate) struct FilterFiles {
    files: Vec<(Header, PathBuf)>,
    /// The reader of a single file, kept open because a pipe can be opened only once.
    opened: Option<BatchReader<BufReader<File>>>,
    /// The expected block hashes.
    blocks: Option<BlockHashes>,
    bytes: u64,
}

impl FilterFiles {
    /// Opens a file, or all files of a folder; other kinds of files in the folder are skipped.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = || named(path);
        let mut files = Vec::new();
        let mut opened = None;
        if path.is_dir() {
            for entry in fs::read_dir(path).with_context(shown)? {
                let path = entry.with_context(shown)?.path();
                if !path.is_file() {
                    continue;
                }
                match reader(&path) {
                    Ok(reader) => files.push((*reader.header(), path)),
                    Err(error) if is_other(&error) => {}
                    Err(error) => return Err(error.context(named(&path))),
                }
            }
            ensure!(!files.is_empty(), "{}: the folder contains no file of filters", shown());
            files.sort_by_key(|(header, _)| header.start_height);
        } else {
            let reader = opened.insert(reader(path).with_context(shown)?);
            files.push((*reader.header(), path.to_owned()));
        }
        let magic = files[0].0.network_magic;
        if let Some((_, other)) = files.iter().find(|(header, _)| header.network_magic != magic) {
            bail!(
                "{}: the file belongs to another network than {}",
                named(other),
                named(&files[0].1)
            );
        }
        let size = |(_, path): &(Header, PathBuf)| fs::metadata(path).map_or(0, |file| file.len());
        let bytes = files.iter().map(size).sum();
        Ok(Self { files, opened, blocks: None, bytes })
    }

    /// Sets the expected block hashes; a filter of another block is then an error.
    pub(crate) fn of_blocks(mut self, blocks: Option<BlockHashes>) -> Self {
        self.blocks = blocks;
        self
    }

    /// Returns the header of the first file.
    pub(crate) fn header(&self) -> Header {
        self.files[0].0
    }

    /// Returns the size of all files in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns `true` if the filters can be read more than once. A pipe yields its bytes only once.
    pub(crate) fn are_rereadable(&self) -> bool {
        self.files.iter().all(|(_, path)| path.is_file())
    }

    /// Calls `take` with batches of filters, their filter headers, and the number of bytes read so
    /// far, until `take` returns `Break`.
    ///
    /// Reading stops at damaged data, since no height may be missing. If the last file is damaged,
    /// a description of the damage is returned, and all filters before the damage were passed to
    /// `take`. Damage in any other file is an error.
    pub(crate) fn for_each_batch(
        &mut self,
        mut take: impl FnMut(&Batch, &[FilterHeader], u64) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<Option<String>> {
        let mut batch = Batch::new();
        let mut headers = Vec::new();
        let mut done = 0;
        let mut height = self.header().start_height;
        let mut last = self.header().previous_filter_header;
        for (index, (header, path)) in self.files.iter().enumerate() {
            ensure!(
                height == header.start_height,
                "{}: the file starts at height {}, expected {}: the previous filters are in {}",
                named(path),
                grouped(header.start_height),
                grouped(height),
                named(&self.files[index.saturating_sub(1)].1)
            );
            ensure!(
                last == header.previous_filter_header,
                "{}: the file continues filter header {}, but {} ends with {last}",
                named(path),
                header.previous_filter_header,
                named(&self.files[index.saturating_sub(1)].1)
            );
            let mut reader = match self.opened.take() {
                Some(reader) => reader,
                None => reader(path).with_context(|| named(path))?,
            };
            loop {
                match reader.read(&mut batch, BATCH) {
                    Ok(()) if batch.is_empty() => break,
                    Ok(()) => {
                        if let Some(blocks) = &self.blocks {
                            blocks.check(&batch).with_context(|| named(path))?;
                        }
                        extend(&mut headers, &batch, &mut last);
                        if take(&batch, &headers, done + reader.intact().bytes)?.is_break() {
                            return Ok(None);
                        }
                    }
                    Err(error) if index + 1 == self.files.len() => {
                        let file = named(path);
                        let damage = format!("{file}: {error}; everything before it is intact");
                        return Ok(Some(damage));
                    }
                    Err(error) => return Err(error).with_context(|| named(path)),
                }
            }
            done += reader.intact().bytes;
            height = reader.intact().next_height();
        }
        Ok(None)
    }
}

/// Replaces `headers` by the filter headers of `batch`. `last` is the filter header before the
/// batch, and is updated to the last one of the batch.
fn extend(headers: &mut Vec<FilterHeader>, batch: &Batch, last: &mut FilterHeader) {
    let items: Vec<_> = batch.items().collect();
    let hashes: Vec<_> = items.par_iter().map(|item| filter_hash(item.content)).collect();
    headers.clear();
    headers.extend(hashes.iter().map(|hash| {
        *last = filter_header(hash, last);
        *last
    }));
}

fn reader(path: &Path) -> anyhow::Result<BatchReader<BufReader<File>>> {
    Ok(BatchReader::new(BufReader::with_capacity(BUFFER, File::open(path)?))?)
}

/// Returns `true` if the error means that a file does not contain filters.
fn is_other(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(ContainerError::NotAContainer(_) | ContainerError::HeaderTruncated { .. })
    )
}

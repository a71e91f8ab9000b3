//! Files of filters in the order of their heights: one, or those of a folder.

use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::btc::bip158::container::{Batch, BatchReader, ContainerError, Header};
use chainsieve::btc::bip158::{filter_hash, filter_header};
use rayon::prelude::*;

use super::block_hashes::BlockHashes;
use crate::input::named;
use crate::output::grouped;

/// Large enough that the system is asked rarely.
const BUFFER: usize = 1 << 20;
/// As many bytes of filters as are read before they are asked: some for each core.
const BATCH: usize = 16 << 20;

/// Files whose filters stand one behind the other.
#[derive(Debug)]
pub(crate) struct FilterFiles {
    files: Vec<(Header, PathBuf)>,
    /// The one file: a pipe can be opened only once.
    opened: Option<BatchReader<BufReader<File>>>,
    /// What their blocks should be.
    blocks: Option<BlockHashes>,
    bytes: u64,
}

impl FilterFiles {
    /// Opens a file, or all files of a folder; those of it that are no files of filters are passed
    /// over.
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
            ensure!(!files.is_empty(), "{}: no file of filters in the folder", shown());
            files.sort_by_key(|(header, _)| header.start_height);
        } else {
            let reader = opened.insert(reader(path).with_context(shown)?);
            files.push((*reader.header(), path.to_owned()));
        }
        let magic = files[0].0.network_magic;
        if let Some((_, other)) = files.iter().find(|(header, _)| header.network_magic != magic) {
            bail!("{}: of another network than {}", named(other), named(&files[0].1));
        }
        let size = |(_, path): &(Header, PathBuf)| fs::metadata(path).map_or(0, |file| file.len());
        let bytes = files.iter().map(size).sum();
        Ok(Self { files, opened, blocks: None, bytes })
    }

    /// With the blocks that the filters should be of: others end it with an error.
    pub(crate) fn of_blocks(mut self, blocks: Option<BlockHashes>) -> Self {
        self.blocks = blocks;
        self
    }

    /// What the first file says of itself.
    pub(crate) fn header(&self) -> Header {
        self.files[0].0
    }

    /// The bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands over all filters, some at a time, with the filter headers over them and how many bytes
    /// of all files were read, until it is told to stop. A damaged file ends it, since no height
    /// may be missing; returns what is damaged. What stands before was handed over.
    pub(crate) fn for_each_batch(
        mut self,
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
                "{}: starts at height {}, where {} was to come: filters up to there are in {}",
                named(path),
                grouped(header.start_height),
                grouped(height),
                named(&self.files[index.saturating_sub(1)].1)
            );
            ensure!(
                last == header.previous_filter_header,
                "{}: goes on from filter header {}, {} ends with {last}",
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
                        let damage = format!("{file}: {error}; what stands before it is intact");
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

/// Replaces `headers` by those over the filters of `batch`, which follow on `last`.
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

/// Whether a file of a folder is one of something else.
fn is_other(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(ContainerError::NotAContainer(_) | ContainerError::HeaderTruncated { .. })
    )
}

//! `btc cf …`: compact block filters, from files of filters whose heights are consecutive.

pub(crate) mod audit;
pub(crate) mod build;
pub(crate) mod headers;
pub(crate) mod scan;

use std::fs::{self, File};
use std::io::BufReader;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::container::{BatchReader, ContainerError, Header};
use chainsieve::btc::bip158::scan::FilterItem;
use chainsieve::btc::bip158::{filter_hash, filter_header};
use chainsieve_report::{count, decode_hex, grouped, named};
use rayon::prelude::*;

use crate::args::cf::BlockHeadersArgs;

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
        mut take: impl FnMut(&[FilterItem<'_>], &[FilterHeader], u64) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<Option<String>> {
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
                match reader.read(BATCH) {
                    Ok(()) => {
                        let batch: Vec<_> = reader.items().collect();
                        if batch.is_empty() {
                            break;
                        }
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
                        let damage = format!("{file}: {error}; all records before it are intact");
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
fn extend(headers: &mut Vec<FilterHeader>, batch: &[FilterItem<'_>], last: &mut FilterHeader) {
    let hashes: Vec<_> = batch.par_iter().map(|item| filter_hash(item.content)).collect();
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

/// The length of a block header in bytes.
const LENGTH: usize = 80;

/// Hashes of consecutive blocks.
#[derive(Debug)]
pub(crate) struct BlockHashes {
    first: u32,
    hashes: Vec<BlockHash>,
    /// The heights whose block hashes are compared.
    compared: RangeInclusive<u32>,
}

impl BlockHashes {
    /// Reads the headers of `--block-headers`; returns `None` without that argument.
    pub(crate) fn read(
        args: &BlockHeadersArgs,
        compared: RangeInclusive<u32>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.block_headers else { return Ok(None) };
        let hashes = hashes(path).with_context(|| named(path))?;
        ensure!(!hashes.is_empty(), "{}: the file contains no block headers", named(path));
        Ok(Some(Self { first: args.block_headers_from, hashes, compared }))
    }

    /// Compares the block hashes of a batch of filters with the trusted block hashes.
    pub(crate) fn check(&self, batch: &[FilterItem<'_>]) -> anyhow::Result<()> {
        for item in batch.iter().filter(|item| self.compared.contains(&item.height)) {
            let index = item.height.checked_sub(self.first).map(|index| index as usize);
            let Some(hash) = index.and_then(|index| self.hashes.get(index)) else {
                bail!(
                    "no block header for the filter of height {}: there are {} headers from \
                     height {} on",
                    grouped(item.height),
                    grouped(self.hashes.len()),
                    grouped(self.first)
                );
            };
            ensure!(
                item.block_hash == *hash,
                "the filter of height {} is stored with block hash {}, but the block headers have \
                 {hash}: with a false block hash, a filter matches nothing",
                grouped(item.height),
                item.block_hash
            );
        }
        Ok(())
    }
}

/// Reads concatenated raw headers, or hex with one header per line, and hashes them.
fn hashes(path: &Path) -> anyhow::Result<Vec<BlockHash>> {
    let bytes = fs::read(path)?;
    let is_text = bytes
        .iter()
        .take(2 * LENGTH)
        .all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace());
    if !is_text {
        let (headers, rest) = bytes.as_chunks::<LENGTH>();
        ensure!(rest.is_empty(), "{}, not a multiple of {LENGTH}", count(bytes.len(), "byte"));
        return Ok(headers.iter().map(|header| BlockHash::hash(header)).collect());
    }
    let text = str::from_utf8(&bytes)?;
    let lines = (1_u64..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            let place = || format!("line {number}");
            let header = decode_hex(line.trim()).with_context(place)?;
            ensure!(
                header.len() == LENGTH,
                "line {number}: {}, but a block header has {LENGTH}",
                count(header.len(), "byte")
            );
            Ok(BlockHash::hash(&header))
        })
        .collect()
}

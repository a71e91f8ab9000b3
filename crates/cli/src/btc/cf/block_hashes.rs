//! Trusted block hashes, with which the block hashes of filters are compared.
//!
//! The elements of a filter are hashed with its block hash as the key, and filter headers do not
//! commit to the block hash. A valid filter that is stored with a false block hash matches nothing.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::container::Batch;
use chainsieve_report::{count, decode_hex, grouped, named};

use crate::args::cf::BlockHeadersArgs;

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

    /// Compares the block hashes of a batch of filters with the trusted ones.
    pub(crate) fn check(&self, batch: &Batch) -> anyhow::Result<()> {
        for item in batch.items().filter(|item| self.compared.contains(&item.height)) {
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
    let bytes = std::fs::read(path)?;
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

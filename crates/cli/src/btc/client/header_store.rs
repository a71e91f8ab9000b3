//! The file of headers: what the library's `HeaderChain::encode` gives, appended to.
//!
//! A kill while headers are appended leaves part of the last ones, and one in a reorganization the
//! chain up to the fork and part of the new branch: either way a chain, if a shorter one.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use chainsieve::bitcoin::Network;
use chainsieve::btc::headers::{ChainEvent, HeaderChain};

use super::folder;
use crate::input::named;

/// The headers on the disk.
#[derive(Debug)]
pub(crate) struct HeaderStore {
    path: PathBuf,
    file: File,
}

/// What was found on the disk.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) store: HeaderStore,
    pub(crate) chain: HeaderChain,
    /// The bytes behind what is intact, which were cut off.
    pub(crate) cut: u64,
}

impl HeaderStore {
    /// Opens the file, or makes it with nothing but the genesis block.
    pub(crate) fn open(path: &Path, network: Network) -> anyhow::Result<Stored> {
        let bytes = folder::read(path)?;
        let (chain, intact) = match &bytes {
            Some(bytes) => decode(bytes, network).with_context(|| named(path))?,
            None => (HeaderChain::new(network), 0),
        };
        if intact == 0 {
            folder::replace(path, &chain.encode())?;
        }
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| named(path))?;
        let cut = match (intact, bytes) {
            (0, _) | (_, None) => 0,
            (intact, Some(bytes)) => bytes.len() as u64 - intact,
        };
        if cut > 0 {
            let cut_off = || {
                file.set_len(intact)?;
                file.sync_all()
            };
            cut_off().with_context(|| named(path))?;
        }
        Ok(Stored { store: Self { path: path.to_owned(), file }, chain, cut })
    }

    /// Writes what has changed; it is on the disk when this returns. `chain` is the chain after
    /// `events`.
    pub(crate) fn apply(
        &mut self,
        chain: &HeaderChain,
        events: &[ChainEvent],
    ) -> anyhow::Result<()> {
        let heights = events.iter().map(|event| match event {
            ChainEvent::Connected { at, .. } | ChainEvent::Disconnected { at } => at.height,
        });
        let Some(lowest) = heights.min() else { return Ok(()) };
        let write = || {
            let offset = chain.record_offset(lowest);
            let mut file = &self.file;
            file.set_len(offset)?;
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&chain.encode_from(lowest))?;
            file.sync_data()
        };
        write().with_context(|| format!("cannot write {}", named(&self.path)))
    }
}

/// The chain, and the bytes that are intact: 0 if the file is to be made anew.
fn decode(bytes: &[u8], network: Network) -> anyhow::Result<(HeaderChain, u64)> {
    let (chain, intact) = match HeaderChain::decode(bytes) {
        Ok(chain) => (chain, bytes.len() as u64),
        Err(error) => {
            let fresh = HeaderChain::new(network);
            if fresh.encode().starts_with(bytes) {
                return Ok((fresh, 0));
            }
            let intact = error.intact_len().ok_or_else(|| anyhow!("{error}"))?;
            let prefix = bytes.get(..usize::try_from(intact)?).unwrap_or(bytes);
            (HeaderChain::decode(prefix)?, intact)
        }
    };
    if chain.network() != network {
        bail!("headers of {}, not of {network}: see --network", chain.network());
    }
    Ok((chain, intact))
}

#[cfg(test)]
#[path = "header_store_tests.rs"]
mod tests;

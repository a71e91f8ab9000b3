//! Headers in row order: the fields that an index stores, before they are transposed.

use alloc::vec::Vec;

use alloy_primitives::{B256, Bloom};

use super::format::tail::TailRow;
use crate::eth::bloom::{BYTES, Blooms as _};
use crate::eth::header::ChainBlock;

/// Consecutive headers, each the parent of the next, stored as columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    /// Number of the first header.
    pub(super) first: u64,
    /// Hash of the block before the first header.
    pub(super) parent_hash: B256,
    pub(super) hashes: Vec<B256>,
    /// Timestamps, in seconds since 1970.
    pub(super) times: Vec<u64>,
    pub(super) gas: Vec<u64>,
    pub(super) blooms: Vec<[u8; BYTES]>,
}

impl Rows {
    pub(super) fn new(first: u64, parent_hash: B256) -> Self {
        Self {
            first,
            parent_hash,
            hashes: Vec::new(),
            times: Vec::new(),
            gas: Vec::new(),
            blooms: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the number of the block after the last header.
    pub(super) fn next(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// Returns the hash of the last header, or of the block before the first header if there are no
    /// headers.
    pub(super) fn last_hash(&self) -> B256 {
        self.hashes.last().copied().unwrap_or(self.parent_hash)
    }

    /// Returns the hash of block `number` if it is one of the headers or the block before the first
    /// header; otherwise returns `None`.
    pub(super) fn hash(&self, number: u64) -> Option<B256> {
        match number.checked_sub(self.first) {
            Some(index) => self.hashes.get(usize::try_from(index).ok()?).copied(),
            None if number.checked_add(1) == Some(self.first) => Some(self.parent_hash),
            None => None,
        }
    }

    /// Returns the parent hash of block `number`, which must be one of the headers or the block
    /// after the last header.
    pub(super) fn parent_of(&self, number: u64) -> B256 {
        let before = number.checked_sub(self.first + 1);
        let before = before.and_then(|index| usize::try_from(index).ok());
        before.map_or(self.parent_hash, |index| self.hashes[index])
    }

    pub(super) fn push(&mut self, row: &TailRow) {
        self.hashes.push(row.hash);
        self.times.push(row.time);
        self.gas.push(row.gas_used);
        self.blooms.push(row.bloom);
    }

    /// Appends blocks and their filters.
    pub(super) fn extend<'a>(
        &mut self,
        blocks: impl Iterator<Item = ChainBlock<'a>>,
        blooms: &[Bloom],
    ) {
        for block in blocks {
            self.hashes.push(block.hash);
            self.times.push(block.timestamp);
            self.gas.push(block.gas_used);
        }
        self.blooms.extend_from_slice(blooms.as_arrays());
    }

    /// Removes the headers after block `last`, which is one of the headers or the block before
    /// them.
    pub(super) fn truncate(&mut self, last: u64) {
        let keep = usize::try_from((last + 1).saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.hashes.truncate(keep);
        self.times.truncate(keep);
        self.gas.truncate(keep);
        self.blooms.truncate(keep);
    }

    /// Removes the first `count` headers.
    pub(super) fn remove_front(&mut self, count: usize) {
        let Some(before) = count.checked_sub(1) else { return };
        self.parent_hash = self.hashes[before];
        self.first += count as u64;
        self.hashes.drain(..count);
        self.times.drain(..count);
        self.gas.drain(..count);
        self.blooms.drain(..count);
    }
}

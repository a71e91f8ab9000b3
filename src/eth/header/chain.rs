//! Chains of headers linked by parent hash, and their authentication by trusted hashes.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bloom};
use chainsieve_lanes::hash::keccak256_each;
use chainsieve_lanes::simd::Backend;

use super::{BlockRef, HeaderBuf, HeaderError, HeaderView};
use crate::eth::bloom::BloomView;
use crate::eth::log_query::CompiledQuery;
use crate::eth::scan;

/// Reason why a header cannot be linked to a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The header itself is malformed.
    #[error("header {index}: {error}")]
    Header {
        /// Index of the header among the given headers, from 0.
        index: usize,
        /// Reason why the header is malformed.
        error: HeaderError,
    },
    /// Blocks are missing between the chain's last block and this header.
    #[error("block {found} comes after block {last}: {} are missing", found - last - 1)]
    Gap {
        /// Number of the chain's last block.
        last: u64,
        /// Number of the header.
        found: u64,
    },
    /// The header is a child of the chain's last block, but its number is not the next number.
    #[error("the child of block {last} has the number {found}")]
    Number {
        /// Number of the chain's last block.
        last: u64,
        /// Number of the header.
        found: u64,
    },
    /// The header's parent is not the chain's block with the preceding number.
    #[error("the parent of block {number} is {found}; the preceding block here is {expected}")]
    Parent {
        /// Number of the header.
        number: u64,
        /// Hash of the chain's block with the preceding number.
        expected: B256,
        /// The header's parent hash.
        found: B256,
    },
    /// The header is not on the chain, and its number is at most the number of the chain's first
    /// block.
    #[error("block {number} is not on the chain, which begins at block {first}")]
    BeforeFirst {
        /// Number of the header.
        number: u64,
        /// Number of the chain's first block.
        first: u64,
    },
}

/// Effect of linking a header to a chain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "linked", rename_all = "snake_case")]
#[must_use = "a reorganisation takes blocks off the chain"]
#[non_exhaustive]
pub enum Linked {
    /// The header is the new last block.
    Extended,
    /// The chain already contained the header.
    Known,
    /// The header is the child of an earlier block, and is now the last block. All blocks that
    /// followed this earlier block were removed.
    Reorganised {
        /// Hashes of the removed blocks, the lowest block first.
        removed: Vec<B256>,
    },
}

/// A block of a [`LinkedHeaders`], or a single header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainBlock<'a> {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: B256,
    /// Root of the receipts trie.
    pub receipts_root: B256,
    /// Root of the transactions trie.
    pub transactions_root: B256,
    /// Unix timestamp in seconds.
    pub timestamp: u64,
    /// The gas that the block used.
    pub gas_used: u64,
    /// The filter of the block's logs. All bits are set if the length of the header's filter is not
    /// 256 bytes.
    pub bloom: &'a Bloom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    hash: B256,
    receipts_root: B256,
    transactions_root: B256,
    timestamp: u64,
    gas_used: u64,
}

/// A chain of consecutive headers, each the parent of the next.
///
/// A trusted hash authenticates only its block and the ancestors of its block. So a trusted hash at
/// the *end* of a chain authenticates the whole chain ([`anchored_to`](Self::anchored_to)). The
/// blocks after a trusted block are not authenticated, because anyone can append headers.
///
/// # Cost
/// The chain uses 368 bytes of memory for each block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedHeaders {
    first: u64,
    /// Parent hash of the first block, or of the block that must become the first block.
    parent: Option<B256>,
    fields: Vec<Fields>,
    blooms: Vec<Bloom>,
}

/// Filter that carries no information, and replaces each filter whose length is not 256 bytes.
const NO_INFORMATION: Bloom = Bloom::repeat_byte(u8::MAX);

/// Number of headers hashed in one batch: enough to fill all SIMD lanes, and few enough that the
/// bytes stay in the cache.
const BATCH: usize = 64;

impl LinkedHeaders {
    /// Creates an empty chain. The first header that is linked becomes the first block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty chain whose first block must be a child of this chain's last block.
    ///
    /// Use this function to process a long chain in parts and keep only one part in memory. If this
    /// chain is empty, the function returns a copy of it.
    #[must_use]
    pub fn following(&self) -> Self {
        match self.fields.last() {
            None => self.clone(),
            Some(last) => Self {
                first: self.next_number(),
                parent: Some(last.hash),
                fields: Vec::new(),
                blooms: Vec::new(),
            },
        }
    }

    /// Links one header.
    ///
    /// If the header is the child of an earlier block, all blocks above its parent are removed. The
    /// chain does not compare branches, so a header from an untrusted source can remove any number
    /// of blocks. A caller with untrusted headers must choose the branch first, or check afterwards
    /// that the [anchor](Self::anchored_to) is still on the chain.
    ///
    /// # Errors
    /// Returns a [`ChainError`], and does not change the chain, if the header is not the child of a
    /// block of the chain.
    pub fn push(&mut self, header: &HeaderView<'_>) -> Result<Linked, ChainError> {
        let hash = header.hash();
        let number = header.number();
        if let Some(block) = self.block(number)
            && block.hash == hash
        {
            return Ok(Linked::Known);
        }
        // A child of a block below the last one replaces all blocks above its parent. A sibling of the
        // first block replaces the whole chain.
        let parent = header.parent_hash();
        let replaced = self.index(number).filter(|&at| {
            at < self.fields.len()
                && match at {
                    0 => self.parent == Some(parent),
                    at => self.fields[at - 1].hash == parent,
                }
        });
        if let Some(at) = replaced {
            let removed = self.fields.drain(at..).map(|fields| fields.hash).collect();
            self.blooms.truncate(at);
            self.append(header, hash);
            return Ok(Linked::Reorganised { removed });
        }
        self.check_next(header)?;
        self.append(header, hash);
        Ok(Linked::Extended)
    }

    /// Links headers whose RLP is concatenated, and returns their number.
    ///
    /// # Errors
    /// Returns a [`ChainError`] at the first header that is not the child of the chain's *last*
    /// block. Unlike [`push`](Self::push), this function accepts no reorganisation. The preceding
    /// headers stay linked.
    ///
    /// # Cost
    /// Computes the hashes of the headers, several at a time.
    pub fn extend_from_rlp(&mut self, rlp: &[u8]) -> Result<usize, ChainError> {
        self.extend_from_rlp_on(Backend::best(), rlp)
    }

    /// Does the same as [`extend_from_rlp`](Self::extend_from_rlp), on the given backend.
    ///
    /// # Errors
    /// Returns the same errors as [`extend_from_rlp`](Self::extend_from_rlp).
    pub fn extend_from_rlp_on(
        &mut self,
        backend: Backend,
        mut rlp: &[u8],
    ) -> Result<usize, ChainError> {
        let mut headers = Vec::with_capacity(BATCH);
        let mut linked = 0;
        while !rlp.is_empty() {
            headers.clear();
            let mut malformed = None;
            while headers.len() < BATCH && !rlp.is_empty() && malformed.is_none() {
                match HeaderView::decode_prefix(rlp) {
                    Ok((header, behind)) => {
                        headers.push(header);
                        rlp = behind;
                    }
                    Err(error) => malformed = Some(error),
                }
            }
            self.extend_on(backend, &headers)?;
            linked += headers.len();
            if let Some(error) = malformed {
                return Err(ChainError::Header { index: linked, error });
            }
        }
        Ok(linked)
    }

    /// Links headers. Each header must be the child of the preceding header.
    ///
    /// # Errors
    /// Returns the same errors as [`extend_from_rlp`](Self::extend_from_rlp).
    pub fn extend(&mut self, headers: &[HeaderView<'_>]) -> Result<(), ChainError> {
        self.extend_on(Backend::best(), headers)
    }

    fn extend_on(
        &mut self,
        backend: Backend,
        headers: &[HeaderView<'_>],
    ) -> Result<(), ChainError> {
        self.fields.reserve(headers.len());
        self.blooms.reserve(headers.len());
        let mut messages = [&[][..]; BATCH];
        for headers in headers.chunks(BATCH) {
            for (message, header) in messages.iter_mut().zip(headers) {
                *message = header.rlp();
            }
            let hashes = keccak256_each(backend, &messages[..headers.len()]);
            for (header, hash) in headers.iter().zip(hashes) {
                self.check_next(header)?;
                self.append(header, B256::new(hash));
            }
        }
        Ok(())
    }

    /// Returns `true` if the chain has no block.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the number of blocks in the chain.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns the range of the chain's block numbers, or `None` if the chain is empty.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let last = self.fields.len().checked_sub(1)?;
        Some(self.first..=self.first + last as u64)
    }

    /// Returns the parent hash of the first block, or of the block that must become the first
    /// block.
    ///
    /// Returns `None` for an empty chain that accepts any first block.
    pub fn parent_hash(&self) -> Option<B256> {
        self.parent
    }

    /// Returns the hash of the last block, or `None` if the chain is empty.
    pub fn last_hash(&self) -> Option<B256> {
        self.fields.last().map(|last| last.hash)
    }

    /// Returns the block with this number, or `None` if it is not on the chain.
    #[inline]
    pub fn block(&self, number: u64) -> Option<ChainBlock<'_>> {
        self.at(self.index(number)?)
    }

    /// Returns the blocks in ascending order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = ChainBlock<'_>> {
        let blocks = self.fields.iter().zip(&self.blooms).enumerate();
        blocks.map(|(index, (fields, bloom))| self.joined(index, fields, bloom))
    }

    /// Returns a copy of the blocks with these numbers: a chain of its own.
    ///
    /// Numbers that are not on this chain are ignored. If none of the numbers is on this chain, the
    /// result is empty.
    #[must_use]
    pub fn part(&self, numbers: RangeInclusive<u64>) -> Self {
        let Some(own) = self.numbers() else { return Self::default() };
        let first = *numbers.start().max(own.start());
        let last = *numbers.end().min(own.end());
        let (Some(from), Some(to), true) = (self.index(first), self.index(last), first <= last)
        else {
            return Self::default();
        };
        let before = from.checked_sub(1).and_then(|index| self.fields.get(index));
        Self {
            first,
            parent: before.map(|block| block.hash).or(self.parent),
            fields: self.fields.get(from..=to).unwrap_or_default().to_vec(),
            blooms: self.blooms.get(from..=to).unwrap_or_default().to_vec(),
        }
    }

    /// Returns the blocks that may contain a log of the query, in ascending order.
    ///
    /// The filters of all other blocks rule out a match. If the blocks are
    /// [authentic](Self::anchored_to) and the chain's filters are sound, it is proven that no other
    /// block contains a match. The query's own range of blocks is ignored.
    ///
    /// # Cost
    /// Makes one [scan](scan::candidates) of all filters before the first block is returned.
    pub fn candidates(
        &self,
        query: &CompiledQuery,
    ) -> impl Iterator<Item = ChainBlock<'_>> + use<'_> {
        let found = scan::candidates(query, &self.blooms);
        found.into_iter().filter_map(|index| self.at(index))
    }

    /// Returns the filters of all blocks in ascending order, for scanning.
    ///
    /// A filter whose length is not 256 bytes is replaced by a filter with all bits set, because
    /// neither of the two filters carries information.
    pub fn blooms(&self) -> &[Bloom] {
        &self.blooms
    }

    /// Returns the number of the highest block whose hash is one of `anchors`.
    ///
    /// If the anchors are trusted, the returned block and all blocks below it are authentic. The
    /// blocks above the returned block are not proven to be authentic. Returns `None` if no anchor
    /// is on the chain.
    ///
    /// # Cost
    /// Sorts the anchors, and then searches the anchors for the hash of each block, from the last
    /// block down to the result.
    pub fn anchored_to(&self, anchors: &[B256]) -> Option<u64> {
        let mut anchors = anchors.to_vec();
        anchors.sort_unstable();
        let is_anchor = |fields: &Fields| anchors.binary_search(&fields.hash).is_ok();
        let index = self.fields.iter().rposition(is_anchor)?;
        Some(self.first + index as u64)
    }

    /// Returns the number that the next block must have.
    fn next_number(&self) -> u64 {
        self.first.saturating_add(self.fields.len() as u64)
    }

    /// Returns the block at this index.
    #[inline]
    fn at(&self, index: usize) -> Option<ChainBlock<'_>> {
        Some(self.joined(index, self.fields.get(index)?, self.blooms.get(index)?))
    }

    #[inline]
    fn joined<'a>(&self, index: usize, fields: &Fields, bloom: &'a Bloom) -> ChainBlock<'a> {
        let Fields { hash, receipts_root, transactions_root, timestamp, gas_used } = *fields;
        let number = self.first + index as u64;
        ChainBlock { number, hash, receipts_root, transactions_root, timestamp, gas_used, bloom }
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    /// Checks that the header is the child of the chain's last block and has the next number.
    fn check_next(&self, header: &HeaderView<'_>) -> Result<(), ChainError> {
        let Some(parent) = self.fields.last().map(|last| last.hash).or(self.parent) else {
            return Ok(());
        };
        let number = header.number();
        let next = self.next_number();
        let last = next.saturating_sub(1);
        if next == u64::MAX && !self.is_empty() {
            return Err(ChainError::Number { last, found: number }); // no larger number exists
        }
        let found = header.parent_hash();
        if found == parent {
            return if number == next {
                Ok(())
            } else {
                Err(ChainError::Number { last, found: number })
            };
        }
        if number > next {
            return Err(ChainError::Gap { last, found: number });
        }
        if number <= self.first && !self.is_empty() {
            return Err(ChainError::BeforeFirst { number, first: self.first });
        }
        let before = number.checked_sub(1).and_then(|before| self.block(before));
        let expected = before.map_or(parent, |before| before.hash);
        Err(ChainError::Parent { number, expected, found })
    }

    fn append(&mut self, header: &HeaderView<'_>, hash: B256) {
        if self.parent.is_none() {
            self.parent = Some(header.parent_hash());
            self.first = header.number();
        }
        self.fields.push(Fields {
            hash,
            receipts_root: header.receipts_root(),
            transactions_root: header.transactions_root(),
            timestamp: header.timestamp(),
            gas_used: header.gas_used(),
        });
        let bloom = header.logs_bloom().bytes();
        self.blooms.push(bloom.map_or(NO_INFORMATION, Bloom::from));
    }
}

impl<'a> From<&'a HeaderBuf> for ChainBlock<'a> {
    fn from(header: &'a HeaderBuf) -> Self {
        let view = header.view();
        Self {
            number: view.number(),
            hash: header.hash(),
            receipts_root: view.receipts_root(),
            transactions_root: view.transactions_root(),
            timestamp: view.timestamp(),
            gas_used: view.gas_used(),
            bloom: view.logs_bloom().bytes().map_or(&NO_INFORMATION, Into::into),
        }
    }
}

impl From<ChainBlock<'_>> for BlockRef {
    fn from(block: ChainBlock<'_>) -> Self {
        Self { number: block.number, hash: block.hash }
    }
}

impl<'a> From<ChainBlock<'a>> for BloomView<'a> {
    fn from(block: ChainBlock<'a>) -> Self {
        block.bloom.into()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bloom, Fields};

    #[test]
    fn a_block_takes_what_the_docs_say() {
        assert_eq!(size_of::<Fields>() + size_of::<Bloom>(), 368);
    }
}

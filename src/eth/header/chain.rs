//! Headers linked by parent hash, and how far a trusted hash authenticates them.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use alloy_primitives::{B256, Bloom};
use chainsieve_lanes::hash::keccak256_each;
use chainsieve_lanes::simd::Backend;

use super::{BlockRef, HeaderBuf, HeaderError, HeaderView};
use crate::eth::bloom::BloomView;
use crate::eth::log_query::CompiledQuery;
use crate::eth::scan;

/// Why a header does not go on with a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The header itself is malformed.
    #[error("header {index}: {error}")]
    Header {
        /// Which header of those given, from 0.
        index: usize,
        /// What is wrong with it.
        error: HeaderError,
    },
    /// Blocks are missing between the chain's last and this one.
    #[error("block {found} comes after block {last}: {} are missing", found - last - 1)]
    Gap {
        /// Number of the chain's last block.
        last: u64,
        /// Number of the header.
        found: u64,
    },
    /// The header has the hash of the chain's last block as its parent, and not the next number.
    #[error("the child of block {last} says that its number is {found}")]
    Number {
        /// Number of the chain's last block.
        last: u64,
        /// Number of the header.
        found: u64,
    },
    /// The header's parent is not the chain's block before it.
    #[error("the parent of block {number} is {found}; the block before it here is {expected}")]
    Parent {
        /// Number of the header.
        number: u64,
        /// Hash of the chain's block before.
        expected: B256,
        /// The header's parent hash.
        found: B256,
    },
    /// The header belongs below the chain's first block.
    #[error("block {number} does not follow on the chain, which begins at block {first}")]
    BeforeFirst {
        /// Number of the header.
        number: u64,
        /// Number of the chain's first block.
        first: u64,
    },
}

/// What a header did to a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a reorganisation takes blocks off the chain"]
pub enum Linked {
    /// It is the new last block.
    Extended,
    /// The chain already had it.
    Known,
    /// It has another block of the chain as its parent, and is the new last block: these are off
    /// the chain, the lowest first.
    Reorganised {
        /// Hashes of the blocks that are off the chain.
        removed: Vec<B256>,
    },
}

/// A block of a [`HeaderChain`], or of a header by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainBlock<'a> {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block.
    pub hash: B256,
    /// Root of the trie of receipts.
    pub receipts_root: B256,
    /// Root of the trie of transactions.
    pub transactions_root: B256,
    /// Time in seconds since 1970.
    pub timestamp: u64,
    /// The gas that the block used.
    pub gas_used: u64,
    /// The filter of its logs; all ones if the header's has not 256 bytes.
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

/// Consecutive blocks, each the parent of the next.
///
/// A hash authenticates its ancestors only. So what a chain proves hangs on its *end*: the blocks
/// up to one whose hash is trusted ([`anchored_to`](Self::anchored_to)). A chain that goes on from
/// a trusted block proves nothing by it: anyone can append headers.
///
/// # Cost
/// 368 bytes for each block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderChain {
    first: u64,
    /// Parent of the first block.
    parent: Option<B256>,
    fields: Vec<Fields>,
    blooms: Vec<Bloom>,
}

/// In the place of a filter that has not 256 bytes: it says no more than that one.
const NO_INFORMATION: Bloom = Bloom::repeat_byte(u8::MAX);

/// Headers hashed together, so that the lanes are busy and the bytes still in the cache.
const BATCH: usize = 64;

impl HeaderChain {
    /// A chain that starts with whatever header comes first.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty chain whose first block must follow on this one's last: for headers that come in
    /// stretches, of which only one is kept in memory. Of an empty chain, its copy.
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
    /// A child of any block of the chain takes those above its parent off, however many they are:
    /// nothing here knows which of two branches is the better one. Whoever gets headers from
    /// strangers asks first, or checks afterwards that the [anchor](Self::anchored_to) is still on
    /// the chain.
    ///
    /// # Errors
    /// [`ChainError`] if it does not follow on any block of the chain, which stays as it was.
    pub fn push(&mut self, header: &HeaderView<'_>) -> Result<Linked, ChainError> {
        self.link(header, header.hash())
    }

    /// Links headers whose RLP stands one behind the other. Returns how many there were.
    ///
    /// # Errors
    /// [`ChainError`] at the first header that does not follow on the chain's *last* block:
    /// a stretch of headers holds no reorganisations. Those before it stay linked.
    ///
    /// # Cost
    /// The hashes, several at a time.
    pub fn extend_from_rlp(&mut self, rlp: &[u8]) -> Result<usize, ChainError> {
        self.extend_from_rlp_on(Backend::best(), rlp)
    }

    /// As [`extend_from_rlp`](Self::extend_from_rlp), on this backend.
    ///
    /// # Errors
    /// As [`extend_from_rlp`](Self::extend_from_rlp).
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

    /// Links headers, each of which must follow on the one before.
    ///
    /// # Errors
    /// As [`extend_from_rlp`](Self::extend_from_rlp).
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

    /// Whether the chain has no block.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// How many blocks the chain has.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// The numbers of the chain's blocks; none if it is empty.
    pub fn numbers(&self) -> Option<RangeInclusive<u64>> {
        let last = self.fields.len().checked_sub(1)?;
        Some(self.first..=self.first + last as u64)
    }

    /// The parent hash of the first block, or that of the block that is to come first.
    pub fn parent_hash(&self) -> Option<B256> {
        self.parent
    }

    /// Hash of the last block.
    pub fn last_hash(&self) -> Option<B256> {
        self.fields.last().map(|last| last.hash)
    }

    /// The block of this number.
    #[inline]
    pub fn block(&self, number: u64) -> Option<ChainBlock<'_>> {
        self.at(self.index(number)?)
    }

    /// The blocks in order.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = ChainBlock<'_>> {
        let blocks = self.fields.iter().zip(&self.blooms).enumerate();
        blocks.map(|(index, (fields, bloom))| self.joined(index, fields, bloom))
    }

    /// The blocks that may hold a log of the query, in order. The filters of all others rule it
    /// out: under a [trusted hash](Self::anchored_to), and where the chain's filters are sound,
    /// that is a proof.
    ///
    /// The query's own range of blocks is not looked at.
    ///
    /// # Cost
    /// A [scan](scan::candidates) of all filters, at once.
    pub fn candidates(
        &self,
        query: &CompiledQuery,
    ) -> impl Iterator<Item = ChainBlock<'_>> + use<'_> {
        let found = scan::candidates(query, &self.blooms);
        found.into_iter().filter_map(|index| self.at(index))
    }

    /// The filters of all blocks in order, for scanning. One that has not 256 bytes is all ones
    /// here: both say nothing.
    pub fn blooms(&self) -> &[Bloom] {
        &self.blooms
    }

    /// The highest block whose hash is one of `anchors`: it and all blocks below are authentic if
    /// that hash is. Those above are not proven to be anyone's.
    ///
    /// # Cost
    /// A sort of the anchors, and a binary search in them for each block above the one found.
    pub fn anchored_to(&self, anchors: &[B256]) -> Option<u64> {
        let mut anchors = anchors.to_vec();
        anchors.sort_unstable();
        let is_anchor = |fields: &Fields| anchors.binary_search(&fields.hash).is_ok();
        let index = self.fields.iter().rposition(is_anchor)?;
        Some(self.first + index as u64)
    }

    /// The number that the next block must have.
    fn next_number(&self) -> u64 {
        self.first.saturating_add(self.fields.len() as u64)
    }

    /// The block at this index.
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

    fn link(&mut self, header: &HeaderView<'_>, hash: B256) -> Result<Linked, ChainError> {
        let number = header.number();
        if let Some(block) = self.block(number)
            && block.hash == hash
        {
            return Ok(Linked::Known);
        }
        if number == self.first && self.parent == Some(header.parent_hash()) && !self.is_empty() {
            let removed = self.fields.drain(..).map(|fields| fields.hash).collect();
            self.blooms.clear();
            self.append(header, hash);
            return Ok(Linked::Reorganised { removed });
        }
        let above_parent = number.checked_sub(1).and_then(|parent| self.index(parent));
        if let Some(at) = above_parent
            && at + 1 < self.fields.len()
            && self.fields[at].hash == header.parent_hash()
        {
            let removed = self.fields.drain(at + 1..).map(|fields| fields.hash).collect();
            self.blooms.truncate(at + 1);
            self.append(header, hash);
            return Ok(Linked::Reorganised { removed });
        }
        self.check_next(header)?;
        self.append(header, hash);
        Ok(Linked::Extended)
    }

    /// Whether the header follows on the chain's last block.
    fn check_next(&self, header: &HeaderView<'_>) -> Result<(), ChainError> {
        let Some(parent) = self.fields.last().map(|last| last.hash).or(self.parent) else {
            return Ok(());
        };
        let number = header.number();
        let next = self.next_number();
        let last = next.saturating_sub(1);
        if next == u64::MAX && !self.is_empty() {
            return Err(ChainError::Number { last, found: number }); // no number is left
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

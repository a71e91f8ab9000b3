//! A coded Bloom filter beside the filter that it opens to.

use alloc::vec::Vec;

use super::classic::BloomFilter;
use super::compressed::CompressedBloomFilter;
use crate::encoding::{DecodeError, EncodeError, Portable, parameter};
use crate::hashing::KeyHasher;
use crate::membership::Filter;
use crate::sizing::SizingError;

/// A [`CompressedBloomFilter`], and the filter that it opens to, which is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedBloomFilter {
    coded: CompressedBloomFilter,
    opened: BloomFilter,
}

impl OpenedBloomFilter {
    /// Bits that each bit of the code may open to: a filter made to be coded has some 25.
    /// What takes more is opened [by hand](CompressedBloomFilter::open).
    pub const MAX_EXPANSION: u64 = 64;

    /// Opens a filter.
    ///
    /// # Errors
    /// If it opens to more than [`MAX_EXPANSION`](Self::MAX_EXPANSION) times its bits, and to more
    /// than 64 kB; or if there is no memory for them.
    pub fn of(coded: CompressedBloomFilter) -> Result<Self, SizingError> {
        let max_bits = coded.coded_bits().saturating_mul(Self::MAX_EXPANSION).max(1 << 19);
        Ok(Self { opened: coded.open(max_bits)?, coded })
    }

    /// As it was coded.
    pub const fn coded(&self) -> &CompressedBloomFilter {
        &self.coded
    }

    /// As it is asked.
    pub const fn opened(&self) -> &BloomFilter {
        &self.opened
    }
}

impl Portable for OpenedBloomFilter {
    fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.coded.encode()
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let coded = CompressedBloomFilter::decode(bytes)?;
        let num_bits = coded.num_bits();
        Self::of(coded).map_err(|error| {
            if let SizingError::NoMemory(no_memory) = error {
                return no_memory.into();
            }
            let limit = "at most 64 for each bit of the code";
            parameter("the number of bits that the code opens to", num_bits, limit)
        })
    }
}

impl Filter for OpenedBloomFilter {
    type Hash = u64;

    fn hasher(&self) -> &KeyHasher {
        self.opened.hasher()
    }

    fn contains_hash(&self, hash: u64) -> bool {
        self.opened.contains_hash(hash)
    }

    fn contains_batch(&self, hashes: &[u64], may_contain: &mut [bool]) {
        self.opened.contains_batch(hashes, may_contain);
    }

    fn len(&self) -> u64 {
        self.opened.len()
    }

    fn num_bits(&self) -> u64 {
        self.opened.num_bits()
    }

    fn fill(&self) -> f64 {
        self.opened.fill()
    }

    fn expected_fpr(&self) -> f64 {
        self.opened.expected_fpr()
    }

    fn estimated_len(&self) -> Option<f64> {
        self.opened.estimated_len()
    }
}

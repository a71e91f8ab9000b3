//! A compressed Bloom filter together with its decompressed form.

use alloc::vec::Vec;

use super::classic::BloomFilter;
use super::compressed::CompressedBloomFilter;
use crate::encoding::{DecodeError, EncodeError, Portable, parameter};
use crate::hashing::KeyHasher;
use crate::membership::Filter;
use crate::sizing::SizingError;

/// A [`CompressedBloomFilter`] together with its decompressed filter, which answers the queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedBloomFilter {
    coded: CompressedBloomFilter,
    opened: BloomFilter,
}

impl OpenedBloomFilter {
    /// Greatest number of filter bits for each bit of the code. Filters sized for compression have
    /// fewer than 25 bits for each bit of the code. A filter that exceeds this limit has to be
    /// decompressed by [`CompressedBloomFilter::open`], with an explicit limit.
    pub const MAX_EXPANSION: u64 = 64;

    /// Decompresses a filter.
    ///
    /// # Errors
    /// Returns an error if the decompressed filter has more than
    /// [`MAX_EXPANSION`](Self::MAX_EXPANSION) times the bits of the code and more than 64 kB, or if
    /// there is no memory for the filter.
    pub fn of(coded: CompressedBloomFilter) -> Result<Self, SizingError> {
        let max_bits = coded.coded_bits().saturating_mul(Self::MAX_EXPANSION).max(1 << 19);
        Ok(Self { opened: coded.open(max_bits)?, coded })
    }

    /// Returns the compressed filter.
    pub const fn coded(&self) -> &CompressedBloomFilter {
        &self.coded
    }

    /// Returns the decompressed filter.
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
            parameter("the number of bits that the code expands to", num_bits, limit)
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

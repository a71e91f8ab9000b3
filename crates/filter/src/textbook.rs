//! Filters from textbooks that are not recommended for new programs.
//!
//! Another filter of this crate is smaller or faster than each of them. The filters of this module
//! serve as a baseline for measurements, and to read filters that other programs wrote.

pub use super::bloom::partitioned::{PartitionedBloomFilter, PartitionedBloomFilterRef};
pub use super::counting::CountingBloomFilter;

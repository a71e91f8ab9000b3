//! Filters from textbooks that are not recommended for new programs.
//!
//! For each of these filters, this crate has another filter that is smaller or faster. Use the
//! filters of this module as a baseline for measurements, or to read filters that other programs
//! wrote.

pub use super::bloom::partitioned::{PartitionedBloomFilter, PartitionedBloomFilterRef};
pub use super::counting::CountingBloomFilter;

//! Filters that textbooks have and nobody should take: each is beaten by another in memory or in
//! speed, and is here to be measured against, and to read what others wrote.

pub use super::bloom::partitioned::{PartitionedBloomFilter, PartitionedBloomFilterRef};
pub use super::counting::CountingBloomFilter;

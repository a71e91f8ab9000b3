//! Other implementations' bytes.

pub mod guava;
pub mod parquet;
pub mod xor_singleheader;

//! Other implementations' bytes.

#[cfg(feature = "guava")]
pub mod guava;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(feature = "xor-singleheader")]
pub mod xor_singleheader;

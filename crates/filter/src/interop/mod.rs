//! Byte formats of Bloom and fuse filters that other libraries read and write.

#[cfg(feature = "guava")]
pub mod guava;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(feature = "xor-singleheader")]
pub mod xor_singleheader;

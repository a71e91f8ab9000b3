//! Bloom filters whose positions span the whole filter: classic, shared between threads, and
//! compressed for transmission.

#[cfg(feature = "std")]
mod atomic;
mod bits;
mod classic;
mod compressed;
mod filter;
mod opened;
pub(crate) mod partitioned;
mod places;
#[cfg(test)]
mod tests;

#[cfg(feature = "std")]
pub use atomic::AtomicBloomFilter;
pub use classic::{BloomFilter, BloomFilterRef};
pub use compressed::CompressedBloomFilter;
pub use filter::Bloom;
pub use opened::OpenedBloomFilter;

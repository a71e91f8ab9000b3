//! Code that the tests, benches and fuzz targets of chainsieve share: seeded random numbers,
//! simulated chains, readers of `fixtures/` and of the corpus, slow reference implementations
//! written from the specifications, storage that records what a crash may leave, programs of
//! the workspace, the commands of pages, temporary folders, and nodes on loopback.

pub mod allocation;
mod binomial;
#[cfg(feature = "chains")]
pub mod btc;
pub mod corpus;
#[cfg(feature = "chains")]
pub mod eth;
mod mutation;
pub mod pages;
pub mod program;
mod rng;
#[cfg(feature = "chains")]
pub mod socks;
mod test_folder;
pub mod timer;
#[cfg(feature = "chains")]
pub mod vectors;

pub use binomial::assert_rate;
pub use mutation::mutated;
pub use rng::{Rng, split_mix, stride};
pub use test_folder::TestFolder;

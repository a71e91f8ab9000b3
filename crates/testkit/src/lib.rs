//! What the tests, benches and fuzz targets of chainsieve share: numbers by seeds, made-up chains,
//! readers of `fixtures/` and of the corpus, slow references written from the texts, storage that
//! records what a crash would leave, and nodes on loopback.

pub mod allocation;
mod binomial;
#[cfg(feature = "chains")]
pub mod btc;
pub mod corpus;
#[cfg(feature = "chains")]
pub mod eth;
mod mutation;
#[cfg(feature = "chains")]
pub mod proxy;
mod rng;
pub mod timer;

pub use binomial::assert_rate;
pub use mutation::mutated;
pub use rng::{Rng, split_mix};

//! Bitcoin: filters of BIP37 and BIP157/158, headers, and the light client, wallet and server
//! parts.

#[cfg(feature = "std")]
pub mod bip157;
pub mod bip158;
pub mod bip37;
#[cfg(all(feature = "std", feature = "descriptors"))]
pub mod client;
#[cfg(feature = "descriptors")]
pub mod descriptors;
pub mod headers;
#[cfg(feature = "serde")]
mod json;
pub mod merkle_tree;
mod names;
#[cfg(feature = "std")]
mod pace;
pub mod peer;
pub mod proof_of_work;
pub mod protocol;
mod raw;
mod records;
pub mod script;
#[cfg(feature = "std")]
pub mod server;
#[cfg(test)]
mod tests;
pub mod wallet;

pub use raw::RawError;

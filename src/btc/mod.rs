//! Bitcoin: filters of BIP37 and BIP157/158, headers, and the light client, wallet and server
//! parts.
//!
//! | what you call | module |
//! |---|---|
//! | match Bloom filters, build and verify merkle blocks (BIP37) | [`bip37`] |
//! | build, match, scan and audit compact filters (BIP158) | [`bip158`] |
//! | follow the chain of headers with the most work | [`headers`] |
//! | find a wallet's transactions in blocks | [`wallet`] |
//! | derive the scripts of a descriptor | `descriptors` (feature `descriptors`) |
//! | read scripts, merkle paths, proof of work | [`script`], [`merkle_tree`], [`proof_of_work`] |
//! | constants of the protocol, as Bitcoin Core names them | [`protocol`] |
//! | ids of connections, and grades of evidence | [`peer`] |
//!
//! A state machine takes events and returns actions, without sockets and without a clock:
//!
//! | what you drive | module |
//! |---|---|
//! | a light client over both kinds of filters | `client` (features `std` and `descriptors`) |
//! | the wallet's side of a BIP37 connection | [`bip37::session`] |
//! | the download of compact filters from several peers (BIP157) | `bip157` (feature `std`) |
//! | a node that serves blocks and filters | `server` (feature `std`) |

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

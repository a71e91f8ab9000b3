//! What a wallet watches, and what of a transaction or block is the wallet's.
//!
//! [`Watch`] keeps scripts, keys and coins and compares them exactly, without a filter. It is the
//! same whether a whole block comes ([`Watch::scan`], after a match of a compact filter) or single
//! transactions do ([`Watch::relevance`], from a BIP37 peer), and both give a
//! [`RelevantTransaction`].
//!
//! With the feature `descriptors`, `Keychains` derives the scripts of ranged descriptors and looks
//! ahead of the last index used.

mod coins;
#[cfg(feature = "descriptors")]
mod keychains;
mod relevance;
mod scan;
mod scripts;
#[cfg(test)]
mod tests;
mod watch;

pub use coins::WatchedOutput;
#[cfg(feature = "descriptors")]
pub use keychains::{Keychain, KeychainScript, Keychains, LookAhead};
pub use relevance::{Place, Received, Relevance, RelevantTransaction, Spent};
pub use scan::{BlockScan, Outcome};
pub use scripts::{History, Label, WatchedScript};
pub use watch::{Watch, Watched};

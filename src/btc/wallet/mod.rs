//! The watched scripts, keys and coins of a wallet, and the parts of transactions and blocks that
//! concern them.
//!
//! [`WatchedItems`] stores scripts, keys and coins and compares them exactly, without a filter.
//! [`WatchedItems::scan`] handles a whole block, after a compact filter has matched.
//! [`WatchedItems::relevance`] handles a single transaction from a BIP37 peer. A
//! [`RelevantTransaction`] contains what either function found.
//!
//! With the feature `descriptors`, `Keychains` derives the scripts of ranged descriptors ahead of
//! the last used index.

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
pub use watch::{WatchItem, WatchedItems};

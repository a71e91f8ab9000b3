//! The watched scripts, keys and coins of a wallet, and the parts of transactions and blocks that
//! concern them.
//!
//! You call [`WatchedItems`]. A caller that derives addresses also drives `Keychains`.
//!
//! [`WatchedItems`] stores scripts, keys and coins and compares them exactly, without a filter.
//! [`WatchedItems::scan`] handles a whole block, after a compact filter has matched.
//! [`WatchedItems::relevance`] handles a single transaction from a BIP37 peer. A
//! [`RelevantTransaction`] contains what either function found.
//!
//! With the feature `descriptors`, `Keychains` derives the scripts of ranged descriptors ahead of
//! the last used index.

mod items;
#[cfg(feature = "descriptors")]
mod keychains;
mod scan;
#[cfg(test)]
mod tests;
mod watch;

pub use items::{History, Label, WatchedOutput, WatchedScript};
#[cfg(all(feature = "std", feature = "descriptors"))]
pub(in crate::btc) use keychains::Keychain;
#[cfg(feature = "descriptors")]
pub use keychains::{Keychains, LookAhead};
pub use scan::{BlockScan, Outcome, Received, Relevance, RelevantTransaction, Spent, TxPosition};
pub use watch::{WatchItem, WatchedItems};

//! Nodes that conform, or that lie in one named way, for authors of wallets and log scanners who
//! test their own software.
//!
//! Each [`Lie`] has an id, and the verdict that a correct client must reach. [`bitcoin::LyingNode`]
//! is a Bitcoin peer, [`ethereum::LyingNode`] a node with JSON-RPC. Both serve built-in blocks, so
//! that they need no data, and count how often the lie was told.
//!
//! ```
//! use chainsieve_conformance::serve::{Verdict, bitcoin, find, lies};
//!
//! let lie = find("btc-filter-damaged").expect("a known lie");
//! assert_eq!(lie.expected.verdict, Verdict::MustDetect);
//! let node = bitcoin::LyingNode::builder().lie(lie.id)?.start()?;
//! println!("connect the wallet to {}", node.address());
//! assert_eq!(node.told(), 0, "nobody has asked yet");
//! assert!(lies().count() > 40);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bitcoin;
pub mod ethereum;
pub mod json_rpc;
mod lie;

pub use lie::{Count, Expected, Lie, Protocol, StartError, Verdict, find, lies};

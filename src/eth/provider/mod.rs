//! Providers of JSON-RPC: what they limit, and how requests are split, spent, sent again and
//! compared. Pure: without sockets and clock.
//!
//! The package `chainsieve-provider` does the talking.

mod budget;
mod difference;
mod limit;
mod retry;
mod windows;

pub use budget::{Budget, Spending};
pub use difference::Difference;
pub use limit::Limit;
pub use retry::Retry;
pub use windows::{SingleBlock, WindowAction, WindowEvent, WindowSize, Windows};

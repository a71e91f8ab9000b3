//! Requests to providers of JSON-RPC: their limits, splitting of ranges, budgets, retries, and
//! comparison of answers.
//!
//! This module has no sockets and no clock; the package `chainsieve-provider` does the I/O.

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

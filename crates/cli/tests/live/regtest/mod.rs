//! Bitcoin chains of regtest that the tests build themselves: coins of every type of script, the
//! transactions that move them, blocks of many transactions, and branches.

mod branch;
mod history;
mod reported;
mod scripts;

pub(crate) use branch::Branch;
pub(crate) use history::{Event, History, Move};
pub(crate) use reported::reported;
pub(crate) use scripts::{Coin, KINDS, Key, Kind};

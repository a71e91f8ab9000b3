//! Regtest chains that the tests build: coins of every script type, transactions that spend them,
//! blocks of many transactions, and branches.

mod branch;
mod history;
mod reported;
mod scripts;

pub(crate) use branch::Branch;
pub(crate) use history::{Event, History, Move};
pub(crate) use reported::reported;
pub(crate) use scripts::{Coin, KINDS, Key, Kind};

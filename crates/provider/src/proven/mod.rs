//! Verified blocks: the header by its hash, the receipts and the body by the roots in the header.
//!
//! [`Blocks`] asks the nodes for what is not known. What a trusted header does not commit to is never
//! returned as proven. Everything that was proven may be kept in memory and on disk, and whatever is asked
//! for by several threads at the same time is fetched once. Counters and logs are the caller's: an
//! [`Observer`] is told what happened.
//!
//! | file | contents |
//! |---|---|
//! | `blocks` | the front: blocks of one chain, from these nodes |
//! | `header`, `receipts`, `body` | one part of a block: kept, fetched, proven |
//! | `places` | the blocks of transactions, as nodes named them |
//! | `filter_trust` | whether a filter that rules a log out is believed |
//! | `memory` | how one budget is divided among what is kept |
//! | `source` | the nodes and the disk, and reasons why neither has something |
//! | `flight`, `store` | work that is done once, and the file on disk |
//! | `observer` | what the caller is told |

mod blocks;
mod body;
mod filter_trust;
mod flight;
mod header;
mod memory;
mod observer;
mod places;
mod receipts;
mod source;
mod store;

pub(crate) use blocks::{Blocks, Options};
pub(crate) use body::Body;
pub(crate) use flight::Flights;
pub(crate) use header::BlockHeader;
pub(crate) use observer::{Found, Observer, Wrong};
pub(crate) use source::{Missing, Part};
pub(crate) use store::Store;

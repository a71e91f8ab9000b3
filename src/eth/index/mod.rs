//! The filters of a chain on disk, turned on their side: a query in milliseconds.
//!
//! Row by row, a query reads every filter of its range: 6.8 GB for all of mainnet. Here one bit of
//! all filters stands together, and a query for one address reads three of 2,048 such rows. What
//! comes out are the same candidates as those of a [`scan`](crate::eth::scan).
//!
//! | step | type |
//! |---|---|
//! | build, add headers, take a reorganisation back | [`Writer`] |
//! | ask | [`Index`] |
//! | what a query gives | [`Candidates`] |
//! | what it will cost | [`Index::forecast`] |
//! | check it by itself, or against headers | [`Index::check`], [`Verifier`] |
//! | where the files are | [`Storage`], [`WriteStorage`], [`Folder`] |
//!
//! An index is a cache of headers that its builder verified: the writer takes a
//! [`HeaderChain`](crate::eth::header::HeaderChain), nothing else. To a stranger it proves nothing.
//! A candidate's hash comes from the column of block hashes, or is found by linking headers from
//! the candidate to the next block whose hash the index has ([`Index::anchor`]).
//!
//! The [format](self#format) is read by all later versions.

mod directory;
mod error;
mod files;
mod forecast;
mod format;
mod info;
mod query;
mod reader;
mod rows;
mod seal;
mod section;
mod storage;
mod tail;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use error::{Damage, IndexError, Operation, Part};
pub use format::Settings;
pub use info::SegmentFile;
pub use query::{Candidates, ExplainedRow, Explanation, QueryStats};
pub use reader::Index;
pub use storage::{Append, FileKind, Folder, ReadAt, Storage, WriteStorage};
pub use verify::{Checked, Verified, Verifier};
pub use writer::{Appended, Writer};

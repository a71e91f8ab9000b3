//! Bit-sliced index over the Bloom filters of a chain: it is stored on disk and answers a query in
//! milliseconds.
//!
//! A row-by-row scan reads every filter of its range: 6.8 GB for all of mainnet. The index stores
//! the transposed matrix instead: one row for each of the 2,048 filter bits, with one bit for each
//! block. A query for one address reads three of these 2,048 rows. The result has the same
//! candidates as a [`scan`](crate::eth::scan) of the headers.
//!
//! | step | type |
//! |---|---|
//! | build the index, add headers, roll back a reorganisation | [`Writer`] |
//! | query the index | [`Index`] |
//! | result of a query | [`Candidates`] |
//! | see how full the filters are | [`Index::fills`] |
//! | check the index for damage, or against headers | [`Index::check`], [`Verifier`] |
//! | store the files | [`Storage`], [`WriteStorage`], [`Folder`] |
//!
//! An index is a cache of headers that its builder verified: the writer accepts only a
//! [`LinkedHeaders`](crate::eth::header::LinkedHeaders). The index proves nothing to anybody else.
//! The hash of a candidate block is read from the column of block hashes. If the index has no such
//! column, the caller links headers from the candidate to the next block whose hash the index
//! stores ([`Index::next_known_hash`]).
//!
//! All later versions of this library will read the [format](self#format).

mod directory;
mod error;
mod files;
mod fills;
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
pub use query::{Candidates, QueryStats};
pub use reader::Index;
pub use storage::{Append, FileKind, Folder, ReadAt, Storage, WriteStorage};
pub use verify::{Checked, Verified, Verifier};
pub use writer::{Appended, Writer};

//! Headers, bodies and receipts in files: era1 and ere archives, RLP, JSON, hex.
//!
//! [`HeaderReader`] reads the headers of a file in any [format](FileFormat), which its first bytes
//! show. [`BlockEntries`] reads the bodies or receipts of an archive, [`Archive`] every entry of it,
//! and [`JsonValues`] splits a JSON text of any size.
//!
//! All read from an [`Input`], which wraps a [`Read`](std::io::Read): a file, standard input, a
//! pipe. Files come from strangers: every length in them has a limit, memory grows with the bytes
//! that were read and not with those that are announced, and what is wrong is a [`FileError`] with
//! its position.
//!
//! Archives are compressed with Snappy: reading them takes the feature `era`.

#[cfg(feature = "era")]
mod archive;
#[cfg(feature = "era")]
mod archive_headers;
mod error;
mod format;
mod header_reader;
mod hex_lines;
mod input;
mod json_headers;
mod json_values;
mod rlp;

#[cfg(feature = "era")]
pub use archive::{Archive, BlockEntries, Entry, EntryKind, body_transactions};
pub use error::{FileError, FileProblem, IndexProblem, Position};
pub use format::{FileFormat, MAX_HEADER, UnknownFormatName};
pub use header_reader::{HeaderBatch, HeaderReader};
pub use input::Input;
pub use json_values::{JsonValue, JsonValues};

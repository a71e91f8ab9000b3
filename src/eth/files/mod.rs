//! Readers of headers, bodies and receipts in files: era1 and ere archives, RLP, JSON, hex.
//!
//! - [`HeaderReader`] reads the headers of a file, and detects its [format](FileFormat) from the
//!   first bytes.
//! - `BlockEntries` reads the bodies or the receipts of an archive.
//! - `Archive` reads every entry of an archive.
//! - `HistoryReader` shows that the headers of an archive are part of the chain, by the archive's
//!   accumulator and proofs (feature `anchor`).
//! - [`JsonValues`] splits a JSON text of any size into its values.
//!
//! All readers read from an [`Input`], which wraps a [`Read`](std::io::Read): a file, standard
//! input, a pipe. Files are untrusted. So every length in a file has a limit, and memory grows with
//! the bytes that were read, not with the length that the file claims. Every error is a
//! [`FileError`] with its position.
//!
//! Archives are compressed with Snappy, so reading them needs the feature `era`.

#[cfg(feature = "era")]
mod archive;
#[cfg(feature = "era")]
mod archive_headers;
#[cfg(all(feature = "era", feature = "anchor"))]
mod archive_history;
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
#[cfg(all(feature = "era", feature = "anchor"))]
pub use archive_history::{ArchiveHistory, HistoryReader};
pub use error::{FileError, FileProblem, IndexProblem, Position};
pub use format::{FileFormat, MAX_HEADER, UnknownFormatName};
pub use header_reader::{HeaderBatch, HeaderReader};
pub use input::Input;
pub use json_values::{JsonValue, JsonValues};

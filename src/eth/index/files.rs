//! Reading the files of an index: errors contain the name of the file and the offset.

use std::io;

use super::error::{Damage, IndexError, Operation, Part};
use super::format::damaged;
use super::format::manifest::{self, Manifest};
use super::storage::{FileKind, ReadAt, Storage};

/// Converts an I/O error of an operation on a file into an [`IndexError`].
pub(super) fn failed(
    operation: Operation,
    file: &str,
    offset: u64,
) -> impl FnOnce(io::Error) -> IndexError {
    move |error| IndexError::Io { kind: error.kind(), operation, file: file.into(), offset }
}

/// Opens a file.
pub(super) fn open<S: Storage>(
    storage: &S,
    name: &str,
    kind: FileKind,
) -> Result<S::File, IndexError> {
    storage.open(name, kind).map_err(failed(Operation::Open, name, 0))
}

/// Returns the length of a file in bytes.
pub(super) fn length(file: &(impl ReadAt + ?Sized), name: &str) -> Result<u64, IndexError> {
    file.length().map_err(failed(Operation::Length, name, 0))
}

/// Fills `buffer` with the bytes from `offset` on.
pub(super) fn read(
    file: &(impl ReadAt + ?Sized),
    name: &str,
    buffer: &mut [u8],
    offset: u64,
) -> Result<(), IndexError> {
    file.read_exact_at(buffer, offset).map_err(failed(Operation::Read, name, offset))
}

/// Reads and decodes the manifest.
///
/// # Errors
/// Returns [`IndexError::NoIndex`] if there is no manifest, an I/O error of the storage, or an
/// error of [`Manifest::from_bytes`]. A manifest with trailing bytes is reported as damaged.
pub(super) fn read_manifest(storage: &impl Storage) -> Result<Manifest, IndexError> {
    let name = manifest::NAME;
    let file = open(storage, name, FileKind::Growing).map_err(|error| match error {
        IndexError::Io { kind: io::ErrorKind::NotFound, .. } => IndexError::NoIndex,
        error => error,
    })?;
    let found = length(&file, name)?;
    let mut bytes = [0; manifest::LEN];
    let bytes = &mut bytes[..usize::try_from(found).unwrap_or(usize::MAX).min(manifest::LEN)];
    read(&file, name, bytes, 0)?;
    let manifest = Manifest::from_bytes(bytes)?;
    let expected = manifest::LEN as u64;
    if found != expected {
        let damage = Damage::Length { found, expected };
        return Err(damaged(name, expected, Part::Manifest, damage));
    }
    Ok(manifest)
}

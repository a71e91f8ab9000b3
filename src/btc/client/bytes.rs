//! Encodings in the files of a client: numbers, texts and consensus encodings.
//!
//! Numbers are little-endian. A reading function removes its bytes from the front of the slice and
//! returns `None` if they are malformed or missing.

use std::string::String;
use std::vec::Vec;

use bitcoin::consensus::encode::{Decodable, Encodable, deserialize_partial};
use bitcoin::hashes::{Hash as _, sha256d};

/// First 4 bytes of the double SHA-256 of `bytes`.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash = sha256d::Hash::hash(bytes).to_byte_array();
    *hash.first_chunk().expect("32 bytes")
}

/// Appends a text with its length as u16. A text of more than 65,535 bytes is cut.
pub(super) fn push_text(text: &str, body: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    body.extend(length.to_le_bytes());
    body.extend(text.as_bytes().iter().take(length.into()));
}

/// Reads a text; invalid UTF-8 is replaced.
pub(super) fn text(from: &mut &[u8]) -> Option<String> {
    let length = u16::from_le_bytes(take(from)?);
    let (text, rest) = from.split_at_checked(length.into())?;
    *from = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Reads `N` bytes.
pub(super) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

/// Reads a u32.
pub(super) fn number(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// Appends a 0 byte for `None`, or a 1 byte and the number.
pub(super) fn push_optional(value: Option<u32>, body: &mut Vec<u8>) {
    body.push(value.is_some().into());
    body.extend(value.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads what [`push_optional`] wrote. The outer `None` means that the bytes are malformed, the
/// inner `None` that the number is absent.
#[expect(clippy::option_option, reason = "malformed, absent, or present")]
pub(super) fn optional(from: &mut &[u8]) -> Option<Option<u32>> {
    match take(from)? {
        [0] => Some(None),
        [1] => Some(Some(number(from)?)),
        _ => None,
    }
}

/// Appends the consensus encoding of a value.
pub(super) fn push_consensus(value: &impl Encodable, body: &mut Vec<u8>) {
    value.consensus_encode(body).expect("a vector takes everything");
}

/// Reads a consensus encoding.
pub(super) fn consensus<T: Decodable>(from: &mut &[u8]) -> Option<T> {
    let (value, used) = deserialize_partial(from).ok()?;
    *from = from.get(used..)?;
    Some(value)
}

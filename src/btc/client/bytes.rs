//! Numbers, texts and consensus encodings in the files of a client. Numbers are little-endian; a
//! reader takes bytes off the front of its slice, and `None` is malformed.

use std::string::String;
use std::vec::Vec;

use bitcoin::consensus::encode::{Decodable, Encodable, deserialize_partial};
use bitcoin::hashes::{Hash as _, sha256d};

/// The first bytes of the double SHA-256.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 4] {
    let hash = sha256d::Hash::hash(bytes).to_byte_array();
    *hash.first_chunk().expect("32 bytes")
}

/// Its length in two bytes, and as much of it as that can tell.
pub(super) fn push_text(text: &str, body: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    body.extend(length.to_le_bytes());
    body.extend(text.as_bytes().iter().take(length.into()));
}

pub(super) fn text(from: &mut &[u8]) -> Option<String> {
    let length = u16::from_le_bytes(take(from)?);
    let (text, rest) = from.split_at_checked(length.into())?;
    *from = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}

pub(super) fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

pub(super) fn number(from: &mut &[u8]) -> Option<u32> {
    take(from).map(u32::from_le_bytes)
}

/// 0 and nothing, or 1 and a number.
pub(super) fn push_optional(value: Option<u32>, body: &mut Vec<u8>) {
    body.push(value.is_some().into());
    body.extend(value.iter().flat_map(|value| value.to_le_bytes()));
}

#[expect(clippy::option_option, reason = "malformed, absent, or there")]
pub(super) fn optional(from: &mut &[u8]) -> Option<Option<u32>> {
    match take(from)? {
        [0] => Some(None),
        [1] => Some(Some(number(from)?)),
        _ => None,
    }
}

pub(super) fn push_consensus(value: &impl Encodable, body: &mut Vec<u8>) {
    value.consensus_encode(body).expect("a vector takes everything");
}

pub(super) fn consensus<T: Decodable>(from: &mut &[u8]) -> Option<T> {
    let (value, used) = deserialize_partial(from).ok()?;
    *from = from.get(used..)?;
    Some(value)
}

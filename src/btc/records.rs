//! The one encoding of the files that a Bitcoin client keeps: records with checksums.
//!
//! A file begins with a name of 4 bytes and a version u8. Records follow: length u32 | checksum 4 |
//! body. The frame (length and checksum) is that of a message's payload on the wire, `CheckedData`
//! in the package `bitcoin`. The checksum is the first 4 bytes of the double SHA-256 of the body.
//! The fields of a body have Bitcoin's consensus encoding: numbers are little-endian, and a compact
//! size precedes a text.
//!
//! A reading function removes its bytes from the front of the slice. It returns `None` if they are
//! malformed or missing.

use alloc::vec::Vec;

use bitcoin::consensus::encode::{CheckedData, Decodable, Encodable, deserialize_partial};
use bitcoin::hashes::{Hash as _, sha256d};

/// Length in bytes of the name and the version at the start of a file.
pub(crate) const START_LEN: usize = 5;
/// Length in bytes of the length and the checksum before each body.
pub(crate) const FRAME_LEN: usize = 8;

/// Returns the start of a file.
pub(crate) fn start(name: [u8; 4], version: u8) -> [u8; START_LEN] {
    let [a, b, c, d] = name;
    [a, b, c, d, version]
}

/// Appends a record to a file.
///
/// # Panics
/// If the body has 2^32 bytes or more.
pub(crate) fn push_record(body: Vec<u8>, file: &mut Vec<u8>) {
    push(&CheckedData::new(body), file);
}

/// Removes the first record from `file` and returns its body. Returns `None` if the record is
/// incomplete or damaged; `file` then stays as it is.
pub(crate) fn record<'a>(file: &mut &'a [u8]) -> Option<&'a [u8]> {
    // `CheckedData` would copy the body, and allocate for it before its end is found to be missing.
    let (frame, rest) = file.split_first_chunk::<FRAME_LEN>()?;
    let [l0, l1, l2, l3, sum @ ..] = *frame;
    let length = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
    let (body, rest) = rest.split_at_checked(length)?;
    if !sha256d::Hash::hash(body).as_byte_array().starts_with(&sum) {
        return None;
    }
    *file = rest;
    Some(body)
}

/// Appends a field.
pub(crate) fn push(value: &(impl Encodable + ?Sized), body: &mut Vec<u8>) {
    value.consensus_encode(body).expect("a vector takes everything");
}

/// Removes a field.
pub(crate) fn take<T: Decodable>(from: &mut &[u8]) -> Option<T> {
    let (value, used) = deserialize_partial(from).ok()?;
    *from = from.get(used..)?;
    Some(value)
}

/// Appends a 0 byte for `None`, or a 1 byte and the value.
#[cfg(all(feature = "std", feature = "descriptors"))] // for the client
pub(crate) fn push_optional(value: Option<&impl Encodable>, body: &mut Vec<u8>) {
    push(&value.is_some(), body);
    if let Some(value) = value {
        push(value, body);
    }
}

/// Removes the value that [`push_optional`] appended. The outer `None` means that the bytes are
/// malformed; the inner `None` means that there is no value.
#[cfg(all(feature = "std", feature = "descriptors"))] // for the client
#[expect(clippy::option_option, reason = "malformed, absent, or present")]
pub(crate) fn take_optional<T: Decodable>(from: &mut &[u8]) -> Option<Option<T>> {
    match take(from)? {
        0u8 => Some(None),
        1 => take(from).map(Some),
        _ => None,
    }
}

/// Appends the number of values that follow.
#[cfg(feature = "std")]
pub(crate) fn push_count(count: usize, body: &mut Vec<u8>) {
    push(&u32::try_from(count).expect("fewer than 2^32 values are kept"), body);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec;

    /// Lays out a file with these bodies byte by byte. No function above is used, so that tests can
    /// compare.
    pub(crate) fn laid_out(start: [u8; START_LEN], bodies: &[Vec<u8>]) -> Vec<u8> {
        let mut file = start.to_vec();
        for body in bodies {
            file.extend(u32::try_from(body.len()).expect("small").to_le_bytes());
            file.extend(&sha256d::Hash::hash(body).to_byte_array()[..4]);
            file.extend(body);
        }
        file
    }

    #[test]
    fn a_record_is_what_a_message_has_as_its_payload() {
        for body in [vec![], vec![7], vec![9; 300]] {
            let mut file = Vec::new();
            push_record(body.clone(), &mut file);
            // The payload's length and checksum in the `verack` of Bitcoin Core: 5df6e0e2.
            if body.is_empty() {
                assert_eq!(file, [0, 0, 0, 0, 0x5d, 0xf6, 0xe0, 0xe2]);
            }
            let mut rest = &file[..];
            let whole: CheckedData = take(&mut rest).expect("a record");
            assert_eq!((whole.data(), rest.len()), (&body[..], 0));
            file.push(1);
            let mut rest = &file[..];
            assert_eq!(record(&mut rest), Some(&body[..]));
            assert_eq!(rest, [1]);
        }
    }

    #[test]
    fn a_record_that_is_cut_or_changed_stays_unread() {
        let mut file = Vec::new();
        push_record(vec![1, 2, 3], &mut file);
        for length in 0..file.len() {
            let mut rest = &file[..length];
            assert_eq!(record(&mut rest), None);
            assert_eq!(rest.len(), length);
        }
        for place in 0..file.len() {
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[place] ^= 1 << bit;
                assert_eq!(record(&mut &changed[..]), None, "byte {place}, bit {bit}");
            }
        }
    }
}

//! Bitcoin's variable-length integer (`CompactSize`), read as Core's `ReadCompactSize` reads it,
//! and fields of fixed size.

use alloc::vec::Vec;

/// Largest length that Core's `ReadCompactSize` accepts (`MAX_SIZE`): 32 MiB.
pub(crate) const MAX_SIZE: u64 = 0x0200_0000;

/// Reason why a field cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldError {
    /// Fewer bytes remain than the field needs.
    Truncated {
        /// Number of bytes that the field needs.
        needed: u64,
        /// Number of bytes that remain.
        left: usize,
    },
    /// A length is encoded in more bytes than it needs.
    NonMinimalLength(u64),
    /// A length is over [`MAX_SIZE`].
    LengthTooLarge(u64),
}

/// Removes the first `N` bytes from `bytes` and returns them.
pub(crate) fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], FieldError> {
    let (first, rest) = bytes
        .split_first_chunk()
        .ok_or(FieldError::Truncated { needed: N as u64, left: bytes.len() })?;
    *bytes = rest;
    Ok(*first)
}

/// Removes the first `count` items of `N` bytes each from `bytes` and returns them, without copying
/// them.
pub(crate) fn take_chunks<'a, const N: usize>(
    bytes: &mut &'a [u8],
    count: usize,
) -> Result<&'a [[u8; N]], FieldError> {
    let (items, rest) = count
        .checked_mul(N)
        .and_then(|length| bytes.split_at_checked(length))
        .ok_or(FieldError::Truncated {
            needed: (count as u64).saturating_mul(N as u64),
            left: bytes.len(),
        })?;
    *bytes = rest;
    Ok(items.as_chunks().0)
}

/// Removes a `CompactSize` from the front of `bytes`. A number that is not encoded in the fewest
/// bytes is an error, as in Core.
pub(crate) fn take_compact_size(bytes: &mut &[u8]) -> Result<u64, FieldError> {
    let [first] = take(bytes)?;
    let (length, least) = match first {
        0xfd => (u64::from(u16::from_le_bytes(take(bytes)?)), 0xfd),
        0xfe => (u64::from(u32::from_le_bytes(take(bytes)?)), 0x1_0000),
        0xff => (u64::from_le_bytes(take(bytes)?), 0x1_0000_0000),
        _ => (u64::from(first), 0),
    };
    if length < least { Err(FieldError::NonMinimalLength(length)) } else { Ok(length) }
}

/// Removes a `CompactSize` of at most [`MAX_SIZE`] from the front of `bytes`.
pub(crate) fn take_length(bytes: &mut &[u8]) -> Result<usize, FieldError> {
    let length = take_compact_size(bytes)?;
    match usize::try_from(length) {
        Ok(length_usize) if length <= MAX_SIZE => Ok(length_usize),
        _ => Err(FieldError::LengthTooLarge(length)),
    }
}

/// Removes a `CompactSize` `n` and the next `n` bytes from the front of `bytes`, and returns these
/// `n` bytes.
pub(crate) fn take_var_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], FieldError> {
    let length = take_length(bytes)?;
    Ok(take_chunks::<1>(bytes, length)?.as_flattened())
}

/// Appends `length` as a `CompactSize`, in the fewest bytes.
#[expect(clippy::cast_possible_truncation, reason = "each arm holds what fits")]
pub(crate) fn put_length(out: &mut Vec<u8>, length: usize) {
    match length as u64 {
        length @ 0..=0xfc => out.push(length as u8),
        length @ ..=0xffff => {
            out.push(0xfd);
            out.extend((length as u16).to_le_bytes());
        }
        length @ ..=0xffff_ffff => {
            out.push(0xfe);
            out.extend((length as u32).to_le_bytes());
        }
        length => {
            out.push(0xff);
            out.extend(length.to_le_bytes());
        }
    }
}

/// Appends the length of `data` as a `CompactSize`, then `data`.
pub(crate) fn put_var_bytes(out: &mut Vec<u8>, data: &[u8]) {
    put_length(out, data.len());
    out.extend(data);
}

#[cfg(test)]
mod tests {
    use super::{FieldError, take_length, take_var_bytes};

    #[test]
    fn lengths_are_minimal_and_limited() {
        let read = |bytes: &[u8]| take_length(&mut &bytes[..]);
        assert_eq!(read(&[0xfc]), Ok(0xfc));
        assert_eq!(read(&[0xfd, 0xfd, 0]), Ok(0xfd));
        assert_eq!(read(&[0xfd, 0xfc, 0]), Err(FieldError::NonMinimalLength(0xfc)));
        assert_eq!(read(&[0xfe, 0xff, 0xff, 0, 0]), Err(FieldError::NonMinimalLength(0xffff)));
        assert_eq!(read(&[0xfe, 0, 0, 0, 2]), Ok(0x0200_0000));
        assert_eq!(read(&[0xfe, 1, 0, 0, 2]), Err(FieldError::LengthTooLarge(0x0200_0001)));
        assert_eq!(read(&[0xff; 9]), Err(FieldError::LengthTooLarge(u64::MAX)));
        assert_eq!(read(&[0xfe, 1]), Err(FieldError::Truncated { needed: 4, left: 1 }));
        assert_eq!(
            take_var_bytes(&mut &[3, 1, 2][..]),
            Err(FieldError::Truncated { needed: 3, left: 2 })
        );
    }
}

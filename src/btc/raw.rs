//! Reading and writing of raw bytes: `CompactSize`, read as Core's `ReadCompactSize` reads it, fields of
//! fixed size, and a parser of raw blocks and transactions that does not decode them.
//!
//! A node stores raw blocks, and building a `bitcoin::Block` costs more than matching a raw block.
//! The reader reads the bytes once and returns borrowed scripts and outpoints.
//!
//! The reader accepts everything that `bitcoin::consensus::deserialize` accepts. The reader also
//! accepts witnesses over 4,000,000 bytes, which no block can contain. Bitcoin Core differs only
//! for transactions without inputs, which no valid block contains: Core reads a zero byte after the
//! empty list of inputs as an empty list of outputs, and rejects the segwit form without inputs.

use alloc::vec::Vec;

use thiserror::Error;

/// Reason why bytes are not a valid block or transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RawError {
    /// The bytes end within a field.
    #[error("ends early: {left} of the {needed} bytes of a field at offset {offset}")]
    Truncated {
        /// Offset of the field's first byte.
        offset: usize,
        /// Number of bytes that the field needs.
        needed: u64,
        /// Number of bytes that are left.
        left: usize,
    },
    /// A length is encoded in more bytes than it needs.
    #[error("length {length} at offset {offset} is not encoded in the fewest bytes")]
    NonMinimalLength {
        /// Offset of the length's first byte.
        offset: usize,
        /// The length.
        length: u64,
    },
    /// The list of inputs is empty, and the segwit flag after it is not 1.
    #[error("segwit flag {flag} at offset {offset}, but only 1 is known")]
    UnsupportedSegwitFlag {
        /// Offset of the flag.
        offset: usize,
        /// The flag.
        flag: u8,
    },
    /// A transaction has the segwit flag, but none of its inputs has a witness.
    #[error("transaction at offset {offset} has a segwit flag, but no witness")]
    NoWitness {
        /// Offset of the transaction's first byte.
        offset: usize,
    },
    /// Trailing bytes follow the block or transaction.
    #[error("{0} trailing bytes")]
    TrailingBytes(usize),
    /// The length does not fit the 32-bit offsets of elements.
    #[error("{0} bytes, the limit is {max}", max = u32::MAX)]
    TooLarge(usize),
}

/// A part of a transaction that is tested by a filter: an input or an output.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    Input { outpoint: &'a [u8; 36], script_sig: &'a [u8] },
    Output { script_pubkey: &'a [u8] },
}

/// Cursor over the bytes of a block or transaction.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, RawError> {
        match u32::try_from(bytes.len()) {
            Ok(_) => Ok(Self { bytes, offset: 0 }),
            Err(_) => Err(RawError::TooLarge(bytes.len())),
        }
    }

    pub(crate) fn finish(&self) -> Result<(), RawError> {
        match self.rest().len() {
            0 => Ok(()),
            count => Err(RawError::TrailingBytes(count)),
        }
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.offset..]
    }

    #[inline]
    fn truncated(&self, needed: u64) -> RawError {
        RawError::Truncated { offset: self.offset, needed, left: self.rest().len() }
    }

    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], RawError> {
        let taken = self.rest().first_chunk().ok_or_else(|| self.truncated(N as u64))?;
        self.offset += N;
        Ok(taken)
    }

    #[inline]
    fn take_bytes(&mut self, length: u64) -> Result<&'a [u8], RawError> {
        let taken = usize::try_from(length).ok().and_then(|length| self.rest().get(..length));
        let taken = taken.ok_or_else(|| self.truncated(length))?;
        self.offset += taken.len();
        Ok(taken)
    }

    #[inline(always)]
    pub(crate) fn compact_size(&mut self) -> Result<u64, RawError> {
        match self.bytes.get(self.offset) {
            Some(&length @ ..0xfd) => {
                self.offset += 1;
                Ok(u64::from(length))
            }
            _ => self.long_compact_size(),
        }
    }

    #[cold]
    fn long_compact_size(&mut self) -> Result<u64, RawError> {
        let offset = self.offset;
        let mut rest = self.rest();
        let length = take_compact_size(&mut rest).map_err(|error| match error {
            FieldError::Truncated { needed, left } => RawError::Truncated { offset, needed, left },
            FieldError::NonMinimalLength(length) | FieldError::LengthTooLarge(length) => {
                RawError::NonMinimalLength { offset, length }
            }
        })?;
        self.offset = self.bytes.len() - rest.len();
        Ok(length)
    }

    #[inline]
    fn var_bytes(&mut self) -> Result<&'a [u8], RawError> {
        let length = self.compact_size()?;
        self.take_bytes(length)
    }

    /// Reads a transaction, and calls `visit` with each part.
    ///
    /// Returns the bytes whose double SHA-256 is the txid, in up to three pieces: all bytes except
    /// marker, flag and witnesses.
    #[inline]
    pub(crate) fn transaction(
        &mut self,
        mut visit: impl FnMut(Part<'a>),
    ) -> Result<[&'a [u8]; 3], RawError> {
        let start = self.offset;
        self.take::<4>()?;
        let mut body = self.offset;
        let mut inputs = self.compact_size()?;
        // BIP144: an empty list of inputs is the marker of the segwit form, and the flag follows
        // it.
        let is_segwit = inputs == 0;
        if is_segwit {
            let offset = self.offset;
            let [flag] = *self.take()?;
            if flag != 1 {
                return Err(RawError::UnsupportedSegwitFlag { offset, flag });
            }
            body = self.offset;
            inputs = self.compact_size()?;
        }
        for _ in 0..inputs {
            let outpoint = self.take()?;
            let script_sig = self.var_bytes()?;
            self.take::<4>()?;
            visit(Part::Input { outpoint, script_sig });
        }
        for _ in 0..self.compact_size()? {
            self.take::<8>()?;
            let script_pubkey = self.var_bytes()?;
            visit(Part::Output { script_pubkey });
        }
        let body = &self.bytes[body..self.offset];
        if !is_segwit {
            self.take::<4>()?;
            return Ok([&self.bytes[start..self.offset], &[], &[]]);
        }
        // A segwit transaction without any witness is rejected, as `bitcoin` and Core do. Only
        // `bitcoin` accepts the segwit form without inputs.
        let mut has_witness = inputs == 0;
        for _ in 0..inputs {
            let items = self.compact_size()?;
            has_witness |= items != 0;
            for _ in 0..items {
                self.var_bytes()?;
            }
        }
        if !has_witness {
            return Err(RawError::NoWitness { offset: start });
        }
        Ok([&self.bytes[start..start + 4], body, self.take::<4>()?])
    }
}

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

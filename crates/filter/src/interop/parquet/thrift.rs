//! A reader for the part of Thrift's compact protocol that Parquet's headers need. The reader skips
//! fields that it does not know.
//!
//! Source: `thrift-compact-protocol.md` of `apache/thrift`.

use alloc::vec::Vec;

/// Type number of a 32-bit integer.
pub(super) const I32: u8 = 5;
/// Type number of a struct.
pub(super) const STRUCT: u8 = 12;
/// Greatest nesting depth of structs, lists and maps. A valid header needs a depth of 3. The limit
/// keeps hostile bytes from exhausting the stack.
const MAX_DEPTH: u32 = 16;

/// The reason why bytes are not valid Thrift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThriftError {
    /// The bytes end inside a value.
    #[error("the header ends after {0} bytes, inside a value")]
    Truncated(u64),
    /// A number has more bits than its type.
    #[error("the number before byte {0} of the header is too large for its type")]
    TooLarge(u64),
    /// A field has a type number that the protocol does not define.
    #[error("unknown type {kind} before byte {at} of the header")]
    Kind {
        /// The type number.
        kind: u8,
        /// Number of bytes read before the error.
        at: u64,
    },
    /// Values are nested too deeply.
    #[error("values are nested more than {0} levels deep")]
    TooDeep(u32),
}

/// Reads values one after another from a byte slice.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    read: u64,
    depth: u32,
}

/// The state of reading a struct's fields: the number of the last field, because the next number is
/// stored as the difference from it.
pub(super) struct Fields {
    last_id: i16,
}

/// The number and the type of a field.
pub(super) struct Field {
    pub(super) id: i16,
    pub(super) kind: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: 0, depth: 0 }
    }

    /// Returns the bytes that were not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Enters a struct. [`Fields::next`] leaves the struct at its end.
    pub(super) fn fields(&mut self) -> Result<Fields, ThriftError> {
        self.enter()?;
        Ok(Fields { last_id: 0 })
    }

    pub(super) fn i32(&mut self) -> Result<i32, ThriftError> {
        i32::try_from(self.zigzag()?).map_err(|_| ThriftError::TooLarge(self.read))
    }

    /// Skips the value of a field with type `kind`.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), ThriftError> {
        match kind {
            // A boolean field has no value bytes: its type is `true` (1) or `false` (2).
            1 | 2 => Ok(()),
            kind => self.skip_value(kind),
        }
    }

    fn skip_value(&mut self, kind: u8) -> Result<(), ThriftError> {
        match kind {
            1..=3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            9 | 10 => {
                self.enter()?;
                let start = self.byte()?;
                let count = match start >> 4 {
                    15 => self.varint()?,
                    count => count.into(),
                };
                self.skip_values(count, &[start & 15])
            }
            11 => {
                self.enter()?;
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                self.skip_values(count, &[kinds >> 4, kinds & 15])
            }
            STRUCT => {
                let mut fields = self.fields()?;
                while let Some(field) = fields.next(self)? {
                    self.skip(field.kind)?;
                }
                Ok(())
            }
            kind => Err(ThriftError::Kind { kind, at: self.read }),
        }
    }

    /// Skips the elements of a list, set or map.
    ///
    /// Every element takes at least one byte. A hostile `count` therefore ends the loop with an
    /// error when the bytes end.
    fn skip_values(&mut self, count: u64, kinds: &[u8]) -> Result<(), ThriftError> {
        for _ in 0..count {
            for kind in kinds {
                self.skip_value(*kind)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), ThriftError> {
        // Nested values are skipped by recursion, so their depth is limited.
        if self.depth == MAX_DEPTH {
            return Err(ThriftError::TooDeep(MAX_DEPTH));
        }
        self.depth += 1;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, ThriftError> {
        let (first, rest) = self.bytes.split_first().ok_or(ThriftError::Truncated(self.read))?;
        self.bytes = rest;
        self.read += 1;
        Ok(*first)
    }

    fn pass(&mut self, count: u64) -> Result<(), ThriftError> {
        let rest = usize::try_from(count).ok().and_then(|count| self.bytes.get(count..));
        self.bytes = rest.ok_or(ThriftError::Truncated(self.read + self.bytes.len() as u64))?;
        self.read += count;
        Ok(())
    }

    /// Reads an unsigned number: 7 bits per byte, the lowest bits first, with the high bit set in
    /// all bytes but the last.
    fn varint(&mut self) -> Result<u64, ThriftError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The number has more than 64 bits.
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ThriftError::TooLarge(self.read))
    }

    /// Reads a signed number in zigzag encoding, where the sign is the lowest bit.
    fn zigzag(&mut self) -> Result<i64, ThriftError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

impl Fields {
    /// Returns the next field, or `None` at the end of the struct. The caller must then read or
    /// skip the field's value.
    pub(super) fn next(&mut self, reader: &mut Reader<'_>) -> Result<Option<Field>, ThriftError> {
        let start = reader.byte()?;
        if start == 0 {
            reader.depth -= 1;
            return Ok(None);
        }
        let too_large = ThriftError::TooLarge(reader.read);
        let id = match start >> 4 {
            0 => i16::try_from(reader.zigzag()?).ok(),
            step => self.last_id.checked_add(step.into()),
        };
        self.last_id = id.ok_or(too_large)?;
        Ok(Some(Field { id: self.last_id, kind: start & 15 }))
    }
}

/// Writes an `i32` field. `step` is the number of the field minus the number of the preceding field
/// (0 for the first field), from 1 to 15.
pub(super) fn write_i32_field(bytes: &mut Vec<u8>, step: u8, value: i32) {
    bytes.push(step << 4 | I32);
    let mut left = (value << 1 ^ value >> 31).cast_unsigned();
    while left >= 0x80 {
        bytes.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    bytes.push(left.to_le_bytes()[0]);
}

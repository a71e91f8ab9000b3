//! As much of Thrift's compact protocol as headers take: structs are read, what is unknown in them
//! is passed over.
//!
//! From the protocol's document, `thrift-compact-protocol.md` of `apache/thrift`.

use alloc::vec::Vec;

pub(super) const I32: u8 = 5;
pub(super) const STRUCT: u8 = 12;
/// Structs in structs, lists and maps; a header has three.
const MAX_DEPTH: u32 = 16;

/// Why bytes are not Thrift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThriftError {
    /// The bytes end inside of a value.
    #[error("the header ends after {0} bytes, inside of a value")]
    Truncated(u64),
    /// A number of more bits than its type has.
    #[error("a number too large for its type before byte {0} of the header")]
    TooLarge(u64),
    /// A type that the protocol does not have.
    #[error("type {kind} before byte {at} of the header is unknown")]
    Kind {
        /// The type.
        kind: u8,
        /// Where.
        at: u64,
    },
    /// Values inside of values, too many of them.
    #[error("values in values, more than {0} deep")]
    TooDeep(u32),
}

/// Reads values one behind the other.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    read: u64,
    depth: u32,
}

/// The fields of a struct.
pub(super) struct Fields {
    last_id: i16,
}

/// The start of a field.
pub(super) struct Field {
    pub(super) id: i16,
    pub(super) kind: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, read: 0, depth: 0 }
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Enters a struct. It is left when its fields end.
    pub(super) fn fields(&mut self) -> Result<Fields, ThriftError> {
        self.enter()?;
        Ok(Fields { last_id: 0 })
    }

    pub(super) fn i32(&mut self) -> Result<i32, ThriftError> {
        i32::try_from(self.zigzag()?).map_err(|_| ThriftError::TooLarge(self.read))
    }

    /// Passes over a value of a field.
    pub(super) fn skip(&mut self, kind: u8) -> Result<(), ThriftError> {
        match kind {
            // The type of the field is the value, for truths.
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

    /// Every value takes a byte at least, so the loop ends with the bytes.
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

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self) -> Result<u64, ThriftError> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
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

    /// A number whose sign is the lowest bit.
    fn zigzag(&mut self) -> Result<i64, ThriftError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

impl Fields {
    /// The next field, whose value then has to be read; none at the end.
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

/// Writes a number as the first field of a struct, or as one up to 15 behind the last.
pub(super) fn write_i32_field(bytes: &mut Vec<u8>, step: u8, value: i32) {
    bytes.push(step << 4 | I32);
    let mut left = (value << 1 ^ value >> 31).cast_unsigned();
    while left >= 0x80 {
        bytes.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    bytes.push(left.to_le_bytes()[0]);
}

//! RLP headers one behind the other, or blocks, as `geth export` writes them.

use std::io::Read as _;

use anyhow::bail;

use super::{MAX_HEADER, Place, Records};
use crate::output::grouped;
use crate::source::Source;

pub(super) struct RlpHeaders {
    source: Source,
}

impl RlpHeaders {
    pub(super) fn new(source: Source) -> Self {
        Self { source }
    }
}

impl Records for RlpHeaders {
    fn next(&mut self, rlp: &mut Vec<u8>) -> anyhow::Result<Option<Place>> {
        let at = self.source.offset();
        let Some(&first) = self.source.peek()?.first() else { return Ok(None) };
        let length = list_head(&mut self.source, rlp)?;
        let behind = self.source.offset().saturating_add(length);
        match self.source.peek()?.first() {
            // The first item of a block is its header; that of a header is a hash.
            Some(0xc0..) if length > 0 => {
                rlp.truncate(rlp.len() - usize::from(head_length(first)));
                let length = list_head(&mut self.source, rlp)?;
                payload(&mut self.source, at, length, rlp)?;
                let left = behind.saturating_sub(self.source.offset());
                let skipped = self.source.skip(left)?;
                if skipped < left {
                    bail!(
                        "byte {}: the block lacks {} bytes at its end",
                        grouped(at),
                        grouped(left - skipped)
                    );
                }
            }
            _ => payload(&mut self.source, at, length, rlp)?,
        }
        Ok(Some(Place::Byte(at)))
    }

    fn source(&self) -> &Source {
        &self.source
    }
}

/// Bytes before the payload of a list that starts with this byte.
fn head_length(first: u8) -> u8 {
    1 + first.saturating_sub(0xf7)
}

/// Appends the head of a list, and returns the length of its payload.
fn list_head(source: &mut Source, rlp: &mut Vec<u8>) -> anyhow::Result<u64> {
    let at = source.offset();
    let mut first = [0];
    source.read_exact(&mut first)?;
    let [first] = first;
    if first < 0xc0 {
        bail!(
            "byte {}: 0x{first:02x} does not start a header, which is an RLP list (0xc0 to 0xff)",
            grouped(at)
        );
    }
    let mut digits = [0; 8];
    let count = usize::from(head_length(first) - 1);
    if source.read_exact(&mut digits[8 - count..]).is_err() {
        bail!("byte {}: the length of a list is cut off", grouped(at));
    }
    rlp.push(first);
    rlp.extend_from_slice(&digits[8 - count..]);
    Ok(if count == 0 { u64::from(first - 0xc0) } else { u64::from_be_bytes(digits) })
}

fn payload(source: &mut Source, at: u64, length: u64, rlp: &mut Vec<u8>) -> anyhow::Result<()> {
    if length > MAX_HEADER {
        bail!(
            "byte {}: a header of {} bytes; the limit is {}",
            grouped(at),
            grouped(length),
            grouped(MAX_HEADER)
        );
    }
    let read = source.append(length, rlp)?;
    if read < length {
        bail!(
            "byte {}: the header has {} bytes, and the source ends after {}",
            grouped(at),
            grouped(length),
            grouped(read)
        );
    }
    Ok(())
}

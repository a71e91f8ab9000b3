//! Reader of concatenated RLP: headers, or blocks as `geth export` writes them.

use std::io::Read;

use super::error::{FileError, FileProblem, Position};
use super::format::MAX_HEADER;
use super::input::Input;

pub(super) struct RlpHeaders<R> {
    pub(super) input: Input<R>,
}

impl<R: Read> RlpHeaders<R> {
    pub(super) fn next(&mut self, rlp: &mut Vec<u8>) -> Result<Option<Position>, FileError> {
        let at = self.input.position();
        let Some(&first) = self.input.peek()?.first() else { return Ok(None) };
        let block = self.list_head(rlp)?;
        let start = self.input.offset();
        match self.input.peek()?.first() {
            // The first item of a block is a list, its header. The first item of a header is a
            // string, the parent hash.
            Some(0xc0..) if block > 0 => {
                rlp.truncate(rlp.len() - usize::from(head_length(first)));
                let length = self.list_head(rlp)?;
                self.payload(at, length, rlp)?;
                let left = block.saturating_sub(self.input.offset() - start);
                if self.input.skip(left)? < left {
                    let found = self.input.offset() - start;
                    return Err(truncated(at, "block", block, found));
                }
            }
            _ => self.payload(at, block, rlp)?,
        }
        Ok(Some(at))
    }

    /// Appends the head of an RLP list to `rlp`, and returns the length of the list's payload.
    fn list_head(&mut self, rlp: &mut Vec<u8>) -> Result<u64, FileError> {
        let at = self.input.position();
        let before = rlp.len();
        self.input.append(1, rlp)?;
        let first = rlp.get(before).copied().unwrap_or_default();
        if first < 0xc0 {
            return Err(FileError::new(at, FileProblem::NotAList { first }));
        }
        let digits = u64::from(head_length(first) - 1);
        if digits == 0 {
            return Ok(u64::from(first - 0xc0));
        }
        let found = self.input.append(digits, rlp)?;
        if found < digits {
            return Err(truncated(at, "length of the list", digits, found));
        }
        let digits = rlp.iter().skip(before + 1);
        Ok(digits.fold(0, |length, &digit| length << 8 | u64::from(digit)))
    }

    fn payload(&mut self, at: Position, length: u64, rlp: &mut Vec<u8>) -> Result<(), FileError> {
        if length > MAX_HEADER {
            let problem = FileProblem::TooLong { part: "header", length, limit: MAX_HEADER };
            return Err(FileError::new(at, problem));
        }
        let found = self.input.append(length, rlp)?;
        if found < length {
            return Err(truncated(at, "header", length, found));
        }
        Ok(())
    }
}

/// Returns the number of bytes before the payload of an RLP list that starts with this byte.
fn head_length(first: u8) -> u8 {
    1 + first.saturating_sub(0xf7)
}

fn truncated(at: Position, part: &'static str, expected: u64, found: u64) -> FileError {
    FileError::new(at, FileProblem::Truncated { part, expected, found })
}
